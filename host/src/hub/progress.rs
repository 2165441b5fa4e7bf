//! Progress of long work, on the terminal and only there.

use indicatif::{ProgressBar, ProgressStyle};

/// A bar for bytes, of which `total` are expected if that is known; nothing is drawn where
/// standard error is not a terminal.
pub(super) fn bytes(what: &str, done: u64, total: Option<u64>) -> ProgressBar {
    let (bar, template) = match total {
        Some(total) => (
            ProgressBar::new(total),
            "{msg} {wide_bar} {bytes}/{total_bytes} {bytes_per_sec} {eta}",
        ),
        None => (
            ProgressBar::no_length(),
            "{msg} {spinner} {bytes} {bytes_per_sec}",
        ),
    };
    if let Ok(style) = ProgressStyle::with_template(template) {
        bar.set_style(style);
    }
    bar.set_message(what.to_string());
    bar.set_position(done);
    bar.reset_eta();
    bar
}
