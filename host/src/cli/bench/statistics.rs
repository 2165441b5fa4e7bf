//! What a load's timelines amount to, under the names of `vllm bench serve`.

use std::time::Duration;

use serde_json::{Value, json};

use super::target::Timeline;

/// The percentiles that are told, beside mean and maximum.
const PERCENTILES: [f64; 3] = [50.0, 90.0, 99.0];

/// Measured durations, ascending.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Durations {
    /// In milliseconds.
    milliseconds: Vec<f64>,
}

impl FromIterator<Duration> for Durations {
    fn from_iter<I: IntoIterator<Item = Duration>>(durations: I) -> Self {
        let all = durations.into_iter().map(|d| d.as_secs_f64() * 1e3);
        let mut milliseconds: Vec<f64> = all.collect();
        milliseconds.sort_by(f64::total_cmp);
        Self { milliseconds }
    }
}

impl Durations {
    /// The `percent`th percentile, interpolated between neighbours as numpy does; 0 of none.
    pub(super) fn percentile(&self, percent: f64) -> f64 {
        let Some(last) = self.milliseconds.len().checked_sub(1) else {
            return 0.0;
        };
        let place = percent / 100.0 * last as f64;
        let below = self.milliseconds[place as usize];
        let above = self.milliseconds[(place as usize + 1).min(last)];
        below + (above - below) * place.fract()
    }

    /// Their mean; 0 of none.
    pub(super) fn mean(&self) -> f64 {
        let count = self.milliseconds.len().max(1) as f64;
        // An empty sum of floats is -0.
        self.milliseconds.iter().sum::<f64>().max(0.0) / count
    }
}

/// What a load amounts to.
#[derive(Clone, Debug, Default)]
pub(super) struct Summary {
    /// Requests that were answered whole.
    pub(super) completed: usize,
    /// What was said of those that were not.
    pub(super) failures: Vec<String>,
    /// From the first request to the last answer.
    pub(super) elapsed: Duration,
    /// Tokens of all prompts.
    pub(super) input_tokens: u64,
    /// Tokens of all answers.
    pub(super) output_tokens: u64,
    /// Times to the first token.
    pub(super) ttft: Durations,
    /// Times per output token after the first, one per request.
    pub(super) tpot: Durations,
    /// Times between neighbouring tokens (chunks), of all requests.
    pub(super) itl: Durations,
    /// Times from sending to the answer's end.
    pub(super) e2el: Durations,
}

impl Summary {
    /// Sums the timelines of a load up.
    pub(super) fn new(timelines: &[Timeline], elapsed: Duration) -> Self {
        let whole = || timelines.iter().filter(|t| t.error.is_none());
        let per_token = |t: &Timeline| {
            let decoding = t.tokens.last()?.checked_sub(*t.tokens.first()?)?;
            let gaps = u32::try_from(t.output_tokens.checked_sub(1)?).ok()?;
            (gaps > 0).then(|| decoding / gaps)
        };
        let first = |t: &Timeline| t.tokens.first().map(|first| *first - t.sent);
        Self {
            completed: whole().count(),
            failures: timelines.iter().filter_map(|t| t.error.clone()).collect(),
            elapsed,
            input_tokens: whole().map(|t| t.prompt_tokens).sum(),
            output_tokens: whole().map(|t| t.output_tokens).sum(),
            ttft: whole().filter_map(first).collect(),
            tpot: whole().filter_map(per_token).collect(),
            itl: whole().flat_map(gaps).collect(),
            e2el: whole().map(|t| t.ended - t.sent).collect(),
        }
    }

    /// Requests, and output tokens, and all tokens, a second.
    pub(super) fn throughput(&self) -> [f64; 3] {
        let seconds = self.elapsed.as_secs_f64().max(1e-9);
        let tokens = self.input_tokens + self.output_tokens;
        [self.completed as u64, self.output_tokens, tokens].map(|count| count as f64 / seconds)
    }

    /// The four latencies, by the names that people know them under.
    pub(super) fn latencies(&self) -> [(&'static str, &Durations); 4] {
        [
            ("TTFT", &self.ttft),
            ("TPOT", &self.tpot),
            ("ITL", &self.itl),
            ("E2EL", &self.e2el),
        ]
    }

    /// The summary under the names of vLLM's result files.
    pub(super) fn json(&self) -> Value {
        let [requests, output, total] = self.throughput();
        let mut json = json!({
            "completed": self.completed,
            "failed": self.failures.len(),
            "errors": self.failures.first(),
            "duration": self.elapsed.as_secs_f64(),
            "total_input_tokens": self.input_tokens,
            "total_output_tokens": self.output_tokens,
            "request_throughput": requests,
            "output_throughput": output,
            "total_token_throughput": total,
        });
        for (name, durations) in self.latencies() {
            let name = name.to_lowercase();
            json[format!("mean_{name}_ms")] = json!(durations.mean());
            json[format!("median_{name}_ms")] = json!(durations.percentile(50.0));
            for percent in PERCENTILES {
                json[format!("p{percent}_{name}_ms")] = json!(durations.percentile(percent));
            }
            json[format!("max_{name}_ms")] = json!(durations.percentile(100.0));
        }
        json
    }

    /// The summary for people.
    pub(super) fn table(&self) -> String {
        let [requests, output, total] = self.throughput();
        let lines = [
            ("Successful requests", self.completed as f64, 0),
            ("Failed requests", self.failures.len() as f64, 0),
            ("Benchmark duration (s)", self.elapsed.as_secs_f64(), 2),
            ("Total input tokens", self.input_tokens as f64, 0),
            ("Total generated tokens", self.output_tokens as f64, 0),
            ("Request throughput (req/s)", requests, 2),
            ("Output token throughput (tok/s)", output, 1),
            ("Total token throughput (tok/s)", total, 1),
        ];
        let mut text = String::new();
        for (name, value, digits) in lines {
            text += &format!("{name:34}{value:>12.digits$}\n");
        }
        let head = ["mean", "p50", "p90", "p99", "max"].map(|name| format!("{name:>10}"));
        text += &format!("\n{:12}{}", "ms", head.concat());
        for (name, durations) in self.latencies() {
            let percentiles = PERCENTILES.map(|percent| durations.percentile(percent));
            text += &format!("\n{name:12}{:10.2}", durations.mean());
            for value in percentiles.into_iter().chain([durations.percentile(100.0)]) {
                text += &format!("{value:10.2}");
            }
        }
        text
    }
}

/// The times between neighbouring tokens of a request.
pub(super) fn gaps(timeline: &Timeline) -> impl Iterator<Item = Duration> + '_ {
    let pairs = timeline.tokens.windows(2);
    pairs.map(|pair| pair[1].saturating_sub(pair[0]))
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: fn(u64) -> Duration = Duration::from_millis;

    #[test]
    fn percentiles_are_those_of_numpy() {
        let durations: Durations = [40, 10, 30, 20].map(MS).into_iter().collect();
        let percentiles = [0.0, 50.0, 90.0, 100.0].map(|p| durations.percentile(p));
        assert_eq!(percentiles, [10.0, 25.0, 37.0, 40.0]);
        assert_eq!(durations.mean(), 25.0);
        assert_eq!(Durations::default().percentile(99.0), 0.0);
    }

    #[test]
    fn a_summary_counts_what_was_answered() {
        let answered = Timeline {
            sent: MS(100),
            tokens: vec![MS(150), MS(160), MS(180)],
            ended: MS(190),
            prompt_tokens: 5,
            output_tokens: 4,
            error: None,
        };
        let refused = Timeline {
            error: Some("429".into()),
            ..Timeline::default()
        };
        let summary = Summary::new(&[answered, refused], MS(500));
        assert_eq!((summary.completed, summary.failures.len()), (1, 1));
        assert_eq!(summary.ttft.milliseconds, [50.0]);
        assert_eq!(summary.itl.milliseconds, [10.0, 20.0]);
        assert_eq!(summary.tpot.milliseconds, [10.0]);
        assert_eq!(summary.e2el.milliseconds, [90.0]);
        assert_eq!(summary.throughput(), [2.0, 8.0, 18.0]);
        let json = summary.json();
        assert_eq!(json["p99_ttft_ms"], 50.0);
        assert_eq!(json["errors"], "429");
    }
}
