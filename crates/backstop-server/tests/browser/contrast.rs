//! Whether what is written can be read: the contrast of every text with what is behind it, and of
//! every field's edge, in both themes (WCAG 2.2, 1.4.3 and 1.4.11 at level AA).

use crate::crawl::crawl;
use crate::page::Page;
use crate::site::Site;

/// Texts and edges that are too faint, each with its contrast: 4.5 for text, 3 for large text and
/// for the edges of fields.
const FAINT: &str = r"(() => {
const numbers = (colour) => {
  const found = colour.match(/-?[\d.]+/g).map(Number);
  const [r, g, b] = colour.startsWith('color(') ? found.map((part) => part * 255) : found;
  return [r, g, b, found[3] ?? 1];
};
const over = (top, below) => [0, 1, 2].map((at) => top[at] * top[3] + below[at] * (1 - top[3])).concat(1);
const behind = (node) => {
  const layers = [];
  for (let each = node; each; each = each.parentElement) layers.push(numbers(getComputedStyle(each).backgroundColor));
  return layers.reverse().reduce((below, top) => over(top, below), [255, 255, 255, 1]);
};
const light = (colour) => {
  const [r, g, b] = colour.map((part) => part / 255).map((part) => part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4);
  return 0.2126 * r + 0.7152 * g + 0.0722 * b;
};
const contrast = (one, other) => {
  const [most, least] = [light(one), light(other)].sort((a, b) => b - a);
  return (most + 0.05) / (least + 0.05);
};
const faint = new Set();
const check = (what, colour, ground, least) => {
  const found = contrast(over(numbers(colour), ground), ground);
  if (found < least) faint.add(`${found.toFixed(2)} of ${least}: ${what}`);
};
const hidden = '.away, .skip, title, desc, script, option, datalist';
const texts = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
while (texts.nextNode()) {
  const [words, node] = [texts.currentNode.textContent.trim(), texts.currentNode.parentElement];
  if (!words || node.closest(hidden) || !node.checkVisibility({ visibilityProperty: true })) continue;
  const style = getComputedStyle(node);
  const size = parseFloat(style.fontSize);
  const isLarge = size >= 24 || (size >= 18.66 && Number(style.fontWeight) >= 700);
  const colour = node.closest('svg') ? style.fill : style.color;
  check(`${node.tagName}.${node.getAttribute('class')} ${words.slice(0, 30)}`, colour, behind(node), isLarge ? 3 : 4.5);
}
for (const field of document.querySelectorAll('input:not([type=hidden], [type=checkbox], [type=radio]), select, textarea')) {
  if (!field.checkVisibility()) continue;
  check(`edge of ${field.name}`, getComputedStyle(field).borderTopColor, behind(field.parentElement), 3);
  if (field.placeholder) check(`placeholder of ${field.name}`, getComputedStyle(field, '::placeholder').color, behind(field), 4.5);
}
return JSON.stringify([...faint]);
})()";

/// As where the pointer is on all rows at once, and every question is asked.
const TOUCHED: &str = r"(() => {
const style = new CSSStyleSheet();
style.replaceSync('tbody tr { background: var(--panel-2) }');
document.adoptedStyleSheets = [style];
for (const each of document.querySelectorAll('details')) each.open = true;
})()";

#[test]
fn everything_that_is_written_can_be_read() {
    let site = Site::filled(&["plain"]);
    let page = Page::open();
    let mut faint = Vec::new();
    let seen = crawl(&site, &page, 1, |page| {
        for is_touched in [false, true] {
            if is_touched {
                page.eval(TOUCHED);
            }
            for scheme in ["light", "dark"] {
                page.coloured(scheme);
                let found = page.eval(FAINT);
                let found: Vec<String> = serde_json::from_str(found.as_str().unwrap()).unwrap();
                faint.extend(
                    found
                        .into_iter()
                        .map(|found| format!("{scheme} {}: {found}", page.address())),
                );
            }
        }
    });
    assert!(seen.len() > 20, "{seen:?}");
    assert!(faint.is_empty(), "{faint:#?}");
}
