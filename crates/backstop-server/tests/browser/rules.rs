//! What every page owes to whoever cannot see it, and to whoever runs it under a strict policy.

use crate::page::{Node, Page};

/// What a person acts on, or has to make out as a whole: each needs a name.
const NAMED: [&str; 15] = [
    "button",
    "link",
    "textbox",
    "searchbox",
    "combobox",
    "checkbox",
    "radio",
    "listbox",
    "spinbutton",
    "switch",
    "menuitem",
    "table",
    "image",
    "img",
    "dialog",
];
/// Parts of a page that can be jumped to.
const LANDMARKS: [&str; 2] = ["main", "navigation"];

/// Holds a page to all of it.
pub(crate) fn check(page: &Page) {
    check_with(page, &LANDMARKS);
}

/// Holds a page to it that is shown to strangers: there is nothing to navigate to yet.
pub(crate) fn check_outside(page: &Page) {
    check_with(page, &LANDMARKS[..1]);
}

fn check_with(page: &Page, landmarks: &[&str]) {
    let at = page.address();
    let broken = broken(&page.tree(), landmarks);
    assert!(broken.is_empty(), "{at}: {broken:#?}");
    let complaints = page.complaints();
    assert!(complaints.is_empty(), "{at}: {complaints:#?}");
}

/// Holds what is shown above a page to it: while it is there, the page behind it is not told of.
pub(crate) fn check_dialog(page: &Page) {
    let nameless = nameless(&page.tree());
    assert!(nameless.is_empty(), "{}: {nameless:#?}", page.address());
}

fn broken(tree: &[Node], landmarks: &[&str]) -> Vec<String> {
    let mut broken = Vec::new();
    let with = |role: &str| {
        tree.iter()
            .filter(|node| node.role == role)
            .collect::<Vec<_>>()
    };
    let titles: Vec<&Node> = with("heading")
        .into_iter()
        .filter(|node| node.level == Some(1))
        .collect();
    if titles.len() != 1 || titles[0].name.trim().is_empty() {
        broken.push(format!(
            "one heading of level 1 with a name, not {titles:?}"
        ));
    }
    if with("RootWebArea")
        .first()
        .is_none_or(|root| root.name.trim().is_empty())
    {
        broken.push("the document has no title".to_owned());
    }
    for landmark in landmarks {
        if with(landmark).is_empty() {
            broken.push(format!("no {landmark}"));
        }
    }
    if with("main").len() > 1 {
        broken.push("more than one main".to_owned());
    }
    broken.extend(nameless(tree));
    broken
}

fn nameless(tree: &[Node]) -> Vec<String> {
    let needs_name =
        |node: &&Node| NAMED.contains(&node.role.as_str()) && node.name.trim().is_empty();
    tree.iter()
        .filter(needs_name)
        .map(|node| format!("a {} without a name: {node:?}", node.role))
        .collect()
}
