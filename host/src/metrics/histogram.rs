//! Lock-free histograms with fixed edges.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// What the sum of a histogram counts in: seconds are kept in nanoseconds, numbers as they are.
const NANOS: f64 = 1e9;

/// Counts of observations per bucket, and their sum. Every update is two relaxed atomic adds.
#[derive(Debug)]
pub(super) struct Histogram {
    edges: Vec<f64>,
    /// One more than `edges`: the last is for what is above all of them.
    buckets: Vec<AtomicU64>,
    sum: AtomicU64,
    scale: f64,
}

/// A reading of a histogram.
#[derive(Debug, PartialEq)]
pub(super) struct Reading {
    /// Upper edges and how many observations were at most that, ascending.
    pub(super) cumulative: Vec<(f64, u64)>,
    /// All observations.
    pub(super) count: u64,
    /// Their sum.
    pub(super) sum: f64,
}

impl Histogram {
    /// A histogram of durations, with edges in seconds.
    pub(super) fn of_seconds(edges: &[f64]) -> Self {
        Self::with_scale(edges, NANOS)
    }

    /// A histogram of whole numbers.
    pub(super) fn of_numbers(edges: &[f64]) -> Self {
        Self::with_scale(edges, 1.0)
    }

    /// A histogram of token counts with edges 1, 2, 5, 10, 20, 50 .. up to `max`.
    pub(super) fn of_tokens(max: u32) -> Self {
        let mut edges = Vec::new();
        let mut decade = 1.0;
        while decade <= f64::from(max) {
            edges.extend(
                [1.0, 2.0, 5.0]
                    .map(|m| m * decade)
                    .into_iter()
                    .filter(|&e| e <= f64::from(max)),
            );
            decade *= 10.0;
        }
        Self::of_numbers(&edges)
    }

    fn with_scale(edges: &[f64], scale: f64) -> Self {
        Self {
            edges: edges.to_vec(),
            buckets: (0..=edges.len()).map(|_| AtomicU64::new(0)).collect(),
            sum: AtomicU64::new(0),
            scale,
        }
    }

    /// Counts a duration.
    pub(super) fn observe(&self, duration: Duration) {
        let nanos = u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX);
        self.count(duration.as_secs_f64(), nanos);
    }

    /// Counts a number.
    pub(super) fn observe_number(&self, number: u64) {
        self.count(number as f64, number);
    }

    fn count(&self, value: f64, units: u64) {
        let bucket = self.edges.partition_point(|&edge| edge < value);
        if let Some(counter) = self.buckets.get(bucket) {
            counter.fetch_add(1, Ordering::Relaxed);
        }
        self.sum.fetch_add(units, Ordering::Relaxed);
    }

    /// What was counted so far.
    pub(super) fn read(&self) -> Reading {
        let mut count = 0;
        let mut cumulative = Vec::with_capacity(self.edges.len());
        for (position, bucket) in self.buckets.iter().enumerate() {
            count += bucket.load(Ordering::Relaxed);
            if let Some(&edge) = self.edges.get(position) {
                cumulative.push((edge, count));
            }
        }
        let sum = self.sum.load(Ordering::Relaxed) as f64 / self.scale;
        Reading {
            cumulative,
            count,
            sum,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_edge_belongs_to_its_own_bucket() {
        let histogram = Histogram::of_seconds(&[0.01, 1.0]);
        for millis in [10, 11, 1000, 1001] {
            histogram.observe(Duration::from_millis(millis));
        }
        let reading = histogram.read();
        assert_eq!(reading.cumulative, [(0.01, 1), (1.0, 3)]);
        assert_eq!((reading.count, reading.sum), (4, 2.022));
    }

    #[test]
    fn token_edges_end_at_the_context() {
        let edges = Histogram::of_tokens(2048).edges;
        assert_eq!(
            edges,
            [1., 2., 5., 10., 20., 50., 100., 200., 500., 1000., 2000.]
        );
    }
}
