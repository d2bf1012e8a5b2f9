//! One page, used as a person uses it: what it says to assistive technology, the mouse, the
//! keyboard.

use crate::chromium::{Browser, PATIENCE, browser};
use serde_json::{Value, json};
use std::time::{Duration, Instant};

/// A page in a context of its own: no cookie, no storage of any other.
pub(crate) struct Page {
    browser: &'static Browser,
    context: String,
    session: String,
}

/// One node of the accessibility tree.
#[derive(Clone, Debug)]
pub(crate) struct Node {
    /// What it is: `button`, `link`, `heading`, …
    pub(crate) role: String,
    /// What it is called.
    pub(crate) name: String,
    /// The level of a heading.
    pub(crate) level: Option<u64>,
    id: u64,
}

/// A key that is no letter.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Key(pub(crate) &'static str, pub(crate) u32);

pub(crate) const ESCAPE: Key = Key("Escape", 27);
pub(crate) const ENTER: Key = Key("Enter", 13);
pub(crate) const TAB: Key = Key("Tab", 9);

impl Page {
    /// An empty page.
    pub(crate) fn open() -> Self {
        let browser = browser();
        let context = browser.call(None, "Target.createBrowserContext", &json!({}));
        let context = context["browserContextId"].as_str().unwrap().to_owned();
        let target = json!({ "url": "about:blank", "browserContextId": context, "width": 1280, "height": 900 });
        let target = browser.call(None, "Target.createTarget", &target);
        let attach = json!({ "targetId": target["targetId"], "flatten": true });
        let attached = browser.call(None, "Target.attachToTarget", &attach);
        let session = attached["sessionId"].as_str().unwrap().to_owned();
        let page = Self {
            browser,
            context,
            session,
        };
        for domain in ["Page", "Runtime", "Log", "Network", "DOM", "Accessibility"] {
            page.call(&format!("{domain}.enable"), &json!({}));
        }
        page
    }

    /// On a screen of this size from now on.
    pub(crate) fn sized(&self, width: u64, height: u64) {
        let size =
            json!({ "width": width, "height": height, "deviceScaleFactor": 1, "mobile": false });
        self.call("Emulation.setDeviceMetricsOverride", &size);
    }

    /// As for somebody who likes it `dark` or `light`.
    pub(crate) fn coloured(&self, scheme: &str) {
        let media = json!({ "features": [{ "name": "prefers-color-scheme", "value": scheme }] });
        self.call("Emulation.setEmulatedMedia", &media);
    }

    /// Without script from now on.
    pub(crate) fn without_script(self) -> Self {
        self.call(
            "Emulation.setScriptExecutionDisabled",
            &json!({ "value": true }),
        );
        self
    }

    /// Calls a method of the protocol.
    pub(crate) fn call(&self, method: &str, params: &Value) -> Value {
        self.browser.call(Some(&self.session), method, params)
    }

    /// Goes to an address, and waits until it is loaded.
    pub(crate) fn go(&self, address: &str) {
        self.after(|| {
            let went = self.call("Page.navigate", &json!({ "url": address }));
            assert!(
                went["errorText"].is_null(),
                "{address}: {}",
                went["errorText"]
            );
        });
    }

    /// Does something that leads to another page, and waits until that is loaded.
    pub(crate) fn after(&self, act: impl FnOnce()) {
        let loaded = "Page.loadEventFired";
        let before = self.events(loaded).len();
        act();
        self.browser.wait_past(&self.session, loaded, before);
    }

    /// What happened so far.
    pub(crate) fn events(&self, method: &str) -> Vec<Value> {
        self.browser.events(&self.session, method)
    }

    /// Where it is.
    pub(crate) fn address(&self) -> String {
        let history = self.call("Page.getNavigationHistory", &json!({}));
        let at = usize::try_from(history["currentIndex"].as_u64().unwrap()).unwrap();
        history["entries"][at]["url"].as_str().unwrap().to_owned()
    }

    /// The status of the last document.
    pub(crate) fn status(&self) -> u64 {
        let answers = self.events("Network.responseReceived");
        let document = answers
            .iter()
            .rev()
            .find(|answer| answer["type"] == "Document")
            .unwrap();
        document["response"]["status"].as_u64().unwrap()
    }

    /// What an expression says.
    pub(crate) fn eval(&self, expression: &str) -> Value {
        let said = self.call(
            "Runtime.evaluate",
            &json!({ "expression": expression, "returnByValue": true, "awaitPromise": true }),
        );
        assert!(
            said["exceptionDetails"].is_null(),
            "{expression}: {}",
            said["exceptionDetails"]
        );
        said["result"]["value"].clone()
    }

    /// Everything that assistive technology is told of.
    pub(crate) fn tree(&self) -> Vec<Node> {
        let tree = self.call("Accessibility.getFullAXTree", &json!({}));
        let nodes = tree["nodes"].as_array().unwrap().iter();
        nodes
            .filter(|node| node["ignored"] != true)
            .map(Node::of)
            .collect()
    }

    /// All text.
    pub(crate) fn text(&self) -> String {
        let nodes = self
            .tree()
            .into_iter()
            .filter(|node| node.role == "StaticText");
        nodes.map(|node| node.name).collect::<Vec<_>>().join("\n")
    }

    /// What has this role and name; complains with what there is instead.
    pub(crate) fn find(&self, role: &str, name: &str) -> Node {
        let tree = self.tree();
        let found = tree
            .iter()
            .find(|node| node.role == role && node.name == name);
        found.cloned().unwrap_or_else(|| {
            let there: Vec<&str> = tree
                .iter()
                .filter(|node| node.role == role)
                .map(|node| node.name.as_str())
                .collect();
            panic!(
                "{}: no {role} is called {name:?}; there are {there:?}",
                self.address()
            )
        })
    }

    /// Clicks on it, with the mouse.
    pub(crate) fn click(&self, role: &str, name: &str) {
        self.click_on(|page| page.find(role, name));
    }

    /// Clicks on what is found. Live updates may replace it between the look and the click: then it
    /// is looked for again.
    pub(crate) fn click_on(&self, find: impl Fn(&Self) -> Node) {
        let deadline = Instant::now() + PATIENCE;
        while let Err(why) = self.try_click(&find(self)) {
            assert!(Instant::now() < deadline, "{}: {why}", self.address());
        }
    }

    fn try_click(&self, node: &Node) -> Result<(), Value> {
        let which = json!({ "backendNodeId": node.id });
        let call = |method: &str, params: &Value| {
            self.browser.try_call(Some(&self.session), method, params)
        };
        call("DOM.scrollIntoViewIfNeeded", &which)?;
        let shape = call("DOM.getBoxModel", &which)?;
        let quad: Vec<f64> = shape["model"]["content"]
            .as_array()
            .unwrap()
            .iter()
            .filter_map(Value::as_f64)
            .collect();
        let (x, y) = (
            f64::midpoint(quad[0], quad[4]),
            f64::midpoint(quad[1], quad[5]),
        );
        self.click_at(x, y);
        Ok(())
    }

    /// Clicks where nothing is.
    pub(crate) fn click_at(&self, x: f64, y: f64) {
        for kind in ["mousePressed", "mouseReleased"] {
            let event = json!({ "type": kind, "x": x, "y": y, "button": "left", "clickCount": 1 });
            self.call("Input.dispatchMouseEvent", &event);
        }
    }

    /// Writes into a field, in place of what it had.
    pub(crate) fn fill(&self, role: &str, name: &str, text: &str) {
        let node = self.find(role, name);
        self.call("DOM.focus", &json!({ "backendNodeId": node.id }));
        for kind in ["keyDown", "keyUp"] {
            let all = json!({ "type": kind, "key": "a", "code": "KeyA", "windowsVirtualKeyCode": 65,
                "modifiers": 2, "commands": if kind == "keyDown" { json!(["selectAll"]) } else { json!([]) } });
            self.call("Input.dispatchKeyEvent", &all);
        }
        self.call("Input.insertText", &json!({ "text": text }));
    }

    /// Presses keys of letters, one after the other.
    pub(crate) fn press(&self, letters: &str) {
        for letter in letters.chars() {
            let text = letter.to_string();
            self.call(
                "Input.dispatchKeyEvent",
                &json!({ "type": "keyDown", "key": text, "text": text }),
            );
            self.call(
                "Input.dispatchKeyEvent",
                &json!({ "type": "keyUp", "key": text }),
            );
        }
    }

    /// Presses a key that is no letter.
    pub(crate) fn press_key(&self, Key(name, code): Key) {
        for kind in ["rawKeyDown", "keyUp"] {
            let mut event =
                json!({ "type": kind, "key": name, "code": name, "windowsVirtualKeyCode": code });
            if name == "Enter" && kind == "rawKeyDown" {
                event["type"] = "keyDown".into();
                event["text"] = "\r".into();
            }
            self.call("Input.dispatchKeyEvent", &event);
        }
    }

    /// Looks again and again until it is so.
    pub(crate) fn wait_until(&self, what: &str, is_so: impl Fn(&Self) -> bool) {
        let deadline = Instant::now() + PATIENCE;
        while !is_so(self) {
            assert!(
                Instant::now() < deadline,
                "{}: {what} did not come to pass",
                self.address()
            );
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    /// What went wrong on it so far: errors of the console, exceptions, what its policy forbade,
    /// dialogs nobody asked for.
    pub(crate) fn complaints(&self) -> Vec<String> {
        let said = |event: &Value| event.to_string();
        let errors = self
            .events("Runtime.consoleAPICalled")
            .into_iter()
            .filter(|event| event["type"] == "error");
        let logged = self.events("Log.entryAdded").into_iter().filter(|event| {
            // An error page is an answer, and says so to the console as well.
            let is_status = event["entry"]["text"]
                .as_str()
                .unwrap_or_default()
                .contains("responded with a status of");
            event["entry"]["level"] == "error" && !is_status
        });
        let thrown = self.events("Runtime.exceptionThrown");
        errors
            .chain(logged)
            .chain(thrown)
            .map(|event| said(&event))
            .collect()
    }

    /// How many dialogs there were.
    pub(crate) fn dialogs(&self) -> usize {
        self.events("Page.javascriptDialogOpening").len()
    }
}

impl Drop for Page {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            let which = json!({ "browserContextId": self.context });
            self.browser
                .call(None, "Target.disposeBrowserContext", &which);
        }
    }
}

impl Node {
    fn of(node: &Value) -> Self {
        let text = |field: &str| node[field]["value"].as_str().unwrap_or_default().to_owned();
        let properties = node["properties"].as_array();
        let level = properties
            .into_iter()
            .flatten()
            .find(|property| property["name"] == "level");
        Self {
            role: text("role"),
            name: text("name"),
            level: level.and_then(|property| property["value"]["value"].as_u64()),
            id: node["backendDOMNodeId"].as_u64().unwrap_or_default(),
        }
    }
}
