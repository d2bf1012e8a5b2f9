//! What every page owes to whoever cannot see it, and to whoever runs it under a strict policy.

use crate::page::{Node, Page};

/// Roles that a person acts on: each needs a name.
const ACTED_ON: [&str; 11] = [
    "button", "link", "textbox", "searchbox", "combobox", "checkbox", "radio", "listbox", "spinbutton", "switch",
    "menuitem",
];
/// Parts of a page that can be jumped to.
const LANDMARKS: [&str; 2] = ["main", "navigation"];

/// Holds a page to all of it.
pub(crate) fn check(page: &Page) {
    let at = page.address();
    let broken = broken(&page.tree());
    assert!(broken.is_empty(), "{at}: {broken:#?}");
    let complaints = page.complaints();
    assert!(complaints.is_empty(), "{at}: {complaints:#?}");
}

fn broken(tree: &[Node]) -> Vec<String> {
    let mut broken = Vec::new();
    let with = |role: &str| tree.iter().filter(|node| node.role == role).collect::<Vec<_>>();
    let titles: Vec<&Node> = with("heading").into_iter().filter(|node| node.level == Some(1)).collect();
    if titles.len() != 1 || titles[0].name.trim().is_empty() {
        broken.push(format!("one heading of level 1 with a name, not {titles:?}"));
    }
    if with("RootWebArea").first().is_none_or(|root| root.name.trim().is_empty()) {
        broken.push("the document has no title".to_owned());
    }
    for landmark in LANDMARKS {
        if with(landmark).is_empty() {
            broken.push(format!("no {landmark}"));
        }
    }
    if with("main").len() > 1 {
        broken.push("more than one main".to_owned());
    }
    let is_nameless = |node: &&Node| node.name.trim().is_empty();
    for role in ACTED_ON.into_iter().chain(["table", "image", "img", "dialog"]) {
        for node in with(role).into_iter().filter(is_nameless) {
            broken.push(format!("a {role} without a name: {node:?}"));
        }
    }
    broken
}
