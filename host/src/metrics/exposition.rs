//! The Prometheus text format, version 0.0.4.

use std::fmt::{Display, Write};

use super::histogram::Histogram;

/// The content type of the format.
pub(crate) const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// A page of metrics under construction. Every sample carries the page's own labels.
pub(super) struct Page {
    text: String,
    labels: String,
}

impl Page {
    /// An empty page whose samples all carry these labels.
    pub(super) fn new(labels: &[(&str, &str)]) -> Self {
        Self {
            text: String::with_capacity(16 << 10),
            labels: render_labels(labels),
        }
    }

    /// The finished page.
    pub(super) fn finish(self) -> String {
        self.text
    }

    /// A number that goes up and down.
    pub(super) fn gauge(&mut self, name: &str, help: &str, value: impl Display) {
        self.head(name, help, "gauge");
        self.sample(name, "", "", value);
    }

    /// A number that only goes up; `name` ends in `_total`.
    pub(super) fn counter(&mut self, name: &str, help: &str, value: impl Display) {
        self.head(name, help, "counter");
        self.sample(name, "", "", value);
    }

    /// A counter for each value of one label.
    pub(super) fn counters<'a>(
        &mut self,
        name: &str,
        help: &str,
        label: &str,
        values: impl IntoIterator<Item = (&'a str, u64)>,
    ) {
        self.head(name, help, "counter");
        for (key, value) in values {
            let labels = render_labels(&[(label, key)]);
            self.sample(name, "", &labels, value);
        }
    }

    /// A constant 1 whose labels are the information.
    pub(super) fn info(&mut self, name: &str, help: &str, labels: &[(&str, &str)]) {
        self.head(name, help, "gauge");
        self.sample(name, "", &render_labels(labels), 1);
    }

    /// A histogram.
    pub(super) fn histogram(&mut self, name: &str, help: &str, histogram: &Histogram) {
        self.head(name, help, "histogram");
        let reading = histogram.read();
        for (edge, count) in &reading.cumulative {
            self.sample(name, "_bucket", &format!("le=\"{edge:?}\""), count);
        }
        self.sample(name, "_bucket", "le=\"+Inf\"", reading.count);
        self.sample(name, "_sum", "", reading.sum);
        self.sample(name, "_count", "", reading.count);
    }

    fn head(&mut self, name: &str, help: &str, kind: &str) {
        let _ = writeln!(self.text, "# HELP {name} {help}\n# TYPE {name} {kind}");
    }

    fn sample(&mut self, name: &str, suffix: &str, labels: &str, value: impl Display) {
        let comma = if labels.is_empty() || self.labels.is_empty() {
            ""
        } else {
            ","
        };
        let own = &self.labels;
        let _ = writeln!(self.text, "{name}{suffix}{{{own}{comma}{labels}}} {value}");
    }
}

fn render_labels(labels: &[(&str, &str)]) -> String {
    let mut text = String::new();
    for (name, value) in labels {
        let comma = if text.is_empty() { "" } else { "," };
        let value = value
            .replace('\\', "\\\\")
            .replace('"', "\\\"")
            .replace('\n', "\\n");
        let _ = write!(text, "{comma}{name}=\"{value}\"");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_reads_as_the_format_says() {
        let mut page = Page::new(&[("model_name", "a\"b\\c\n"), ("engine", "0")]);
        page.gauge("x:running", "Running.", 2);
        page.counters(
            "y_total",
            "By reason.",
            "reason",
            [("stop", 1), ("length", 0)],
        );
        let expected = "# HELP x:running Running.\n# TYPE x:running gauge\n\
            x:running{model_name=\"a\\\"b\\\\c\\n\",engine=\"0\"} 2\n\
            # HELP y_total By reason.\n# TYPE y_total counter\n\
            y_total{model_name=\"a\\\"b\\\\c\\n\",engine=\"0\",reason=\"stop\"} 1\n\
            y_total{model_name=\"a\\\"b\\\\c\\n\",engine=\"0\",reason=\"length\"} 0\n";
        assert_eq!(page.finish(), expected);
    }

    #[test]
    fn a_histogram_ends_with_infinity_sum_and_count() {
        let histogram = Histogram::of_numbers(&[1.0, 8.0]);
        histogram.observe_number(3);
        histogram.observe_number(9);
        let mut page = Page::new(&[]);
        page.histogram("h", "H.", &histogram);
        let expected = "# HELP h H.\n# TYPE h histogram\nh_bucket{le=\"1.0\"} 0\nh_bucket{le=\"8.0\"} 1\n\
            h_bucket{le=\"+Inf\"} 2\nh_sum{} 12\nh_count{} 2\n";
        assert_eq!(page.finish(), expected);
    }
}
