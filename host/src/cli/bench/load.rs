//! Sending the requests of a load: so many at a time, or as they arrive.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tokio::task::JoinSet;

use super::super::drive::arbitrary_tokens;
use super::target::{Target, Timeline, Work};
use crate::clock::{self, Moment};

/// When requests are sent.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Arrivals {
    /// A closed loop: the next one when one of so many has been answered.
    Concurrency(usize),
    /// An open loop: so many a second, as a Poisson process of a fixed seed.
    Rate(f64),
}

/// Sends every request and hears every answer, in the order of the requests; and how long it took.
pub(super) async fn run(
    target: &Arc<Target>,
    work: Vec<Work>,
    arrivals: Arrivals,
) -> (Vec<Timeline>, Duration) {
    let begun = clock::now();
    let mut timelines = match arrivals {
        Arrivals::Concurrency(count) => closed(target, work, count.max(1), begun).await,
        Arrivals::Rate(rate) => open(target, work, rate, begun).await,
    };
    let elapsed = begun.elapsed();
    timelines.sort_by_key(|(number, _)| *number);
    let timelines = timelines.into_iter().map(|(_, timeline)| timeline);
    (timelines.collect(), elapsed)
}

async fn closed(
    target: &Arc<Target>,
    work: Vec<Work>,
    count: usize,
    begun: Moment,
) -> Vec<(usize, Timeline)> {
    let (next, work) = (Arc::new(AtomicUsize::new(0)), Arc::new(work));
    let mut senders = JoinSet::new();
    for _ in 0..count.min(work.len()) {
        let (target, next, work) = (Arc::clone(target), Arc::clone(&next), Arc::clone(&work));
        senders.spawn(async move {
            let mut timelines = Vec::new();
            loop {
                let number = next.fetch_add(1, Ordering::Relaxed);
                let Some(work) = work.get(number) else {
                    return timelines;
                };
                timelines.push((number, target.send(work.clone(), begun).await));
            }
        });
    }
    senders.join_all().await.into_iter().flatten().collect()
}

async fn open(
    target: &Arc<Target>,
    work: Vec<Work>,
    rate: f64,
    begun: Moment,
) -> Vec<(usize, Timeline)> {
    let mut senders = JoinSet::new();
    let due = arrival_times(work.len(), rate);
    for (number, (work, due)) in work.into_iter().zip(due).enumerate() {
        let target = Arc::clone(target);
        senders.spawn(async move {
            tokio::time::sleep(due.saturating_sub(begun.elapsed())).await;
            (number, target.send(work, begun).await)
        });
    }
    senders.join_all().await
}

/// When requests of a Poisson process arrive: the gaps are exponential with mean `1 / rate`.
pub(super) fn arrival_times(count: usize, rate: f64) -> Vec<Duration> {
    let steps = 1 << 24;
    let mut at = 0.0;
    let draws = arbitrary_tokens(0x0a11, count, steps).into_iter();
    draws
        .map(|draw| {
            let due = Duration::try_from_secs_f64(at).unwrap_or(Duration::MAX);
            at -= ((f64::from(draw) + 0.5) / steps as f64).ln() / rate;
            due
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arrivals_ascend_from_zero_with_the_mean_that_was_asked_for() {
        let times = arrival_times(2000, 4.0);
        assert_eq!(times[0], Duration::ZERO);
        assert!(times.is_sorted());
        let rate = 1999.0 / times[1999].as_secs_f64();
        assert!((3.7..4.3).contains(&rate), "{rate}");
        assert_eq!(times, arrival_times(2000, 4.0));
    }
}
