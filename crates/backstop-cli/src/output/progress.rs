//! Progress bars, on stderr, on terminals only; log lines and notes go above them.

use indicatif::{MultiProgress, ProgressBar, ProgressStyle};
use std::sync::OnceLock;
use std::time::Duration;

/// All bars of this process: one owner, so that whatever else is written can make room.
static BARS: OnceLock<MultiProgress> = OnceLock::new();

/// How often a bar moves by itself.
const TICK: Duration = Duration::from_millis(120);

/// A bar with a known end, or one that never shows.
pub(crate) fn bar(is_shown: bool, total: u64, template: &str) -> ProgressBar {
    add_bar(is_shown, || ProgressBar::new(total), template)
}

/// A line that shows that something goes on.
pub(crate) fn spinner(is_shown: bool, template: &str) -> ProgressBar {
    add_bar(is_shown, ProgressBar::new_spinner, template)
}

fn add_bar(is_shown: bool, make: impl FnOnce() -> ProgressBar, template: &str) -> ProgressBar {
    if !is_shown {
        return ProgressBar::hidden();
    }
    let bar = BARS.get_or_init(MultiProgress::new).add(make());
    // A template that cannot be read leaves the plain bar, which is still progress.
    if let Ok(style) = ProgressStyle::with_template(template) {
        bar.set_style(style.progress_chars("━╸─").tick_chars("⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏ "));
    }
    bar.enable_steady_tick(TICK);
    bar
}

/// Writes something with the bars out of the way.
pub(crate) fn suspend_bars<T>(write: impl FnOnce() -> T) -> T {
    match BARS.get() {
        Some(bars) => bars.suspend(write),
        None => write(),
    }
}
