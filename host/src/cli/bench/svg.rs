//! Line charts as SVG, in colours that can be read on a white page and on a dark one.

use std::fmt::Write;

/// The size of a chart, and what is left around its plot, in pixels.
const WIDTH: f64 = 560.0;
const HEIGHT: f64 = 340.0;
const LEFT: f64 = 62.0;
const RIGHT: f64 = 24.0;
const TOP: f64 = 62.0;
const BOTTOM: f64 = 48.0;
/// Of a middling lightness: on white and on black alike their contrast is above 3.
const COLOURS: [&str; 6] = [
    "#2f7fe0", "#c77412", "#2f9e55", "#c4549a", "#8a6fe0", "#b0892a",
];
const INK: &str = "#767d86";
/// Up to so many points of a series, each is marked with its value.
const MARKED: usize = 8;

/// A line of a chart.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Series {
    /// What the legend calls it.
    pub(super) name: String,
    /// Its points, ascending in x.
    pub(super) points: Vec<(f64, f64)>,
}

/// Lines over one pair of axes. The vertical one begins at 0; on the horizontal one equal steps are
/// equal factors, so x is positive.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Chart {
    /// The heading.
    pub(super) title: String,
    /// What x is, with its unit.
    pub(super) x: &'static str,
    /// What y is, with its unit.
    pub(super) y: &'static str,
    /// The lines.
    pub(super) series: Vec<Series>,
}

/// A document with these charts side by side.
pub(super) fn document(charts: &[Chart]) -> String {
    let width = WIDTH * charts.len() as f64;
    let mut out = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {HEIGHT}\" \
         width=\"{width}\" height=\"{HEIGHT}\" fill=\"{INK}\" font-size=\"12\" \
         font-family=\"system-ui, sans-serif\">\n"
    );
    for (i, chart) in charts.iter().enumerate() {
        let _ = writeln!(out, "<g transform=\"translate({} 0)\">", i as f64 * WIDTH);
        chart.draw(&mut out);
        out += "</g>\n";
    }
    out + "</svg>\n"
}

impl Chart {
    fn draw(&self, out: &mut String) {
        let frame = Frame::of(self);
        text(
            out,
            LEFT,
            20.0,
            "start",
            "font-size=\"14\" font-weight=\"600\"",
            &self.title,
        );
        frame.axes(out, self);
        let mut at = LEFT;
        for (series, colour) in self.series.iter().zip(COLOURS.iter().cycle()) {
            let _ = writeln!(
                out,
                "<rect x=\"{at:.1}\" y=\"34\" width=\"12\" height=\"3\" fill=\"{colour}\"/>"
            );
            text(out, at + 17.0, 40.0, "start", "", &series.name);
            at += 35.0 + 6.6 * series.name.chars().count() as f64;
            frame.line(out, series, colour);
        }
    }
}

/// Where values stand.
struct Frame {
    x: [f64; 2],
    top: f64,
    step: f64,
}

impl Frame {
    fn of(chart: &Chart) -> Self {
        let points = || chart.series.iter().flat_map(|series| &series.points);
        let x = points().map(|point| point.0);
        let (least, most) = (
            x.clone().fold(f64::INFINITY, f64::min),
            x.fold(f64::NEG_INFINITY, f64::max),
        );
        let highest = points().map(|point| point.1).fold(0.0, f64::max).max(1e-9);
        let step = nice(highest / 5.0);
        Self {
            x: if least < most {
                [least, most]
            } else {
                [least / 2.0, least * 2.0]
            },
            top: (highest / step).ceil() * step,
            step,
        }
    }

    fn across(&self, x: f64) -> f64 {
        let [least, most] = self.x.map(f64::ln);
        LEFT + (x.ln() - least) / (most - least) * (WIDTH - LEFT - RIGHT)
    }

    fn up(&self, y: f64) -> f64 {
        HEIGHT - BOTTOM - y / self.top * (HEIGHT - TOP - BOTTOM)
    }

    fn axes(&self, out: &mut String, chart: &Chart) {
        let (left, right) = (LEFT, WIDTH - RIGHT);
        for tick in 0..=(self.top / self.step).round() as u32 {
            let value = f64::from(tick) * self.step;
            let y = self.up(value);
            let _ = writeln!(
                out,
                "<path d=\"M{left} {y:.1}H{right}\" stroke=\"{INK}\" stroke-opacity=\"0.3\"/>"
            );
            text(out, left - 8.0, y + 4.0, "end", "", &number(value));
        }
        for value in self.ticks(chart) {
            let x = self.across(value);
            text(out, x, HEIGHT - BOTTOM + 18.0, "middle", "", &number(value));
        }
        text(
            out,
            (left + right) / 2.0,
            HEIGHT - 10.0,
            "middle",
            "",
            chart.x,
        );
        let middle = (TOP + HEIGHT - BOTTOM) / 2.0;
        let turned = format!("transform=\"rotate(-90 14 {middle})\"");
        text(out, 14.0, middle, "middle", &turned, chart.y);
    }

    /// The places of few points, or round numbers.
    fn ticks(&self, chart: &Chart) -> Vec<f64> {
        let longest = chart.series.iter().max_by_key(|series| series.points.len());
        let points = longest
            .map(|series| series.points.as_slice())
            .unwrap_or_default();
        if points.len() <= MARKED {
            return points.iter().map(|point| point.0).collect();
        }
        let inside = |value: &f64| (self.x[0]..=self.x[1]).contains(value);
        let decade = |exponent| [1.0, 2.0, 5.0].map(|m: f64| m * 10_f64.powi(exponent));
        (-3..9).flat_map(decade).filter(inside).collect()
    }

    fn line(&self, out: &mut String, series: &Series, colour: &str) {
        let places = series
            .points
            .iter()
            .map(|&(x, y)| (self.across(x), self.up(y)));
        let path: Vec<String> = places
            .clone()
            .map(|(x, y)| format!("{x:.1} {y:.1}"))
            .collect();
        let _ = writeln!(
            out,
            "<path d=\"M{}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"2\"/>",
            path.join("L")
        );
        if series.points.len() <= MARKED {
            for ((x, y), (_, value)) in places.zip(&series.points) {
                let _ = writeln!(
                    out,
                    "<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"3\" fill=\"{colour}\"/>"
                );
                let style = format!("fill=\"{colour}\" font-size=\"11\"");
                text(out, x, y - 8.0, "middle", &style, &number(*value));
            }
        }
    }
}

/// The least of 1, 2, 5 and their tenfolds that is not below `step`.
fn nice(step: f64) -> f64 {
    let decade = 10_f64.powf(step.log10().floor());
    let found = [1.0, 2.0, 5.0, 10.0]
        .map(|m| m * decade)
        .into_iter()
        .find(|m| *m >= step);
    found.unwrap_or(step)
}

/// A value with the digits that matter.
fn number(value: f64) -> String {
    let digits = match value.abs() {
        v if v >= 20.0 => 0,
        v if v >= 2.0 => 1,
        _ => 2,
    };
    let number = format!("{value:.digits$}");
    match number.contains('.') {
        true => number
            .trim_end_matches('0')
            .trim_end_matches('.')
            .to_owned(),
        false => number,
    }
}

fn text(out: &mut String, x: f64, y: f64, anchor: &str, style: &str, content: &str) {
    let content = content.replace('&', "&amp;").replace('<', "&lt;");
    let _ = writeln!(
        out,
        "<text x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"{anchor}\" {style}>{content}</text>"
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chart(points: Vec<(f64, f64)>) -> Chart {
        Chart {
            title: "a < b & c".into(),
            x: "x",
            y: "y",
            series: vec![Series {
                name: "one".into(),
                points,
            }],
        }
    }

    #[test]
    fn points_stand_between_the_axes_and_text_is_escaped() {
        let drawn = document(&[chart(vec![(1.0, 3.0), (8.0, 6.0), (64.0, 9.0)])]);
        assert!(drawn.contains("a &lt; b &amp; c"));
        // Equal factors are equal steps, and 9 of 10 is nine tenths up.
        let (left, right) = (LEFT, WIDTH - RIGHT);
        let (low, high) = (HEIGHT - BOTTOM, TOP);
        let (middle, top) = ((left + right) / 2.0, low + (high - low) * 0.9);
        assert!(drawn.contains(&format!("L{middle:.1} ")), "{drawn}");
        assert!(
            drawn.contains(&format!("L{right:.1} {top:.1}\"")),
            "{drawn}"
        );
    }

    #[test]
    fn nothing_to_draw_is_no_fault() {
        for points in [vec![], vec![(3.0, 0.0)]] {
            let drawn = document(&[chart(points)]);
            assert!(drawn.ends_with("</svg>\n"));
        }
    }

    #[test]
    fn steps_are_round() {
        assert_eq!(
            [0.7, 1.0, 1.2, 3.0, 70.0].map(nice),
            [1.0, 1.0, 2.0, 5.0, 100.0]
        );
        assert_eq!(
            [0.1, 0.0, 7.98, 100.0, 1453.2].map(number),
            ["0.1", "0", "8", "100", "1453"]
        );
    }
}
