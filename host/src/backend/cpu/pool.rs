//! A persistent pool of threads for work that is parted in microseconds.
//!
//! A product of the model is often shorter than a system call. So a thread that waits spins first,
//! then gives its core to whoever wants it, and sleeps only after that: quick while a step runs,
//! harmless when another program takes a core, quiet when the engine is idle.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::JoinHandle;

/// Polls before the core is offered to others.
const SPINS: u32 = 4_000;
/// Offers of the core before sleep.
const YIELDS: u32 = 200;

/// A number to wait for.
#[derive(Debug, Default)]
struct Gate {
    value: AtomicU32,
    sleepers: AtomicU32,
    lock: Mutex<()>,
    wake: Condvar,
}

impl Gate {
    fn load(&self) -> u32 {
        self.value.load(Ordering::Acquire)
    }

    /// Changes the number and wakes who sleeps on it.
    fn add(&self, difference: u32) {
        self.value.fetch_add(difference, Ordering::SeqCst);
        if self.sleepers.load(Ordering::SeqCst) > 0 {
            // Taking the lock puts this wake-up after the check of whoever is about to sleep.
            drop(self.lock.lock().unwrap_or_else(PoisonError::into_inner));
            self.wake.notify_all();
        }
    }

    fn wait(&self, done: impl Fn(u32) -> bool) {
        for _ in 0..SPINS {
            if done(self.load()) {
                return;
            }
            std::hint::spin_loop();
        }
        for _ in 0..YIELDS {
            if done(self.load()) {
                return;
            }
            std::thread::yield_now();
        }
        self.sleep(done);
    }

    fn sleep(&self, done: impl Fn(u32) -> bool) {
        let mut guard = self.lock.lock().unwrap_or_else(PoisonError::into_inner);
        self.sleepers.fetch_add(1, Ordering::SeqCst);
        while !done(self.value.load(Ordering::SeqCst)) {
            guard = self
                .wake
                .wait(guard)
                .unwrap_or_else(PoisonError::into_inner);
        }
        self.sleepers.fetch_sub(1, Ordering::SeqCst);
    }
}

/// The work of a round: called once on every thread with the thread's index.
type Work<'a> = &'a (dyn Fn(usize) + Sync);

/// A [`Work`] whose lifetime the round itself bounds.
#[derive(Clone, Copy)]
struct Erased(*const (dyn Fn(usize) + Sync));

struct Shared {
    /// Counts rounds; the last one ends the workers.
    round: Gate,
    /// Counts workers that have finished a round.
    finished: Gate,
    work: Mutex<Option<Erased>>,
    next: AtomicUsize,
    stop: AtomicBool,
    panicked: AtomicBool,
}

// SAFETY: the erased work is `Sync`, and `Pool::run` returns only when no worker uses it.
unsafe impl Send for Shared {}
// SAFETY: as above.
unsafe impl Sync for Shared {}

/// Threads that share work; the caller is one of them.
pub struct Pool {
    shared: Arc<Shared>,
    workers: Vec<JoinHandle<()>>,
}

impl std::fmt::Debug for Pool {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Pool({} threads)", self.threads())
    }
}

impl Pool {
    /// A pool of `threads` threads, the caller's included; at least one.
    ///
    /// # Errors
    /// The system gives no more threads.
    pub fn new(threads: usize) -> std::io::Result<Self> {
        let shared = Arc::new(Shared {
            round: Gate::default(),
            finished: Gate::default(),
            work: Mutex::new(None),
            next: AtomicUsize::new(0),
            stop: AtomicBool::new(false),
            panicked: AtomicBool::new(false),
        });
        let mut pool = Self {
            shared,
            workers: Vec::new(),
        };
        for index in 1..threads.max(1) {
            let shared = Arc::clone(&pool.shared);
            let worker = std::thread::Builder::new()
                .name(format!("lockstep-{index}"))
                .spawn(move || work_rounds(&shared, index))?;
            pool.workers.push(worker);
        }
        Ok(pool)
    }

    /// How many threads share the work.
    pub fn threads(&self) -> usize {
        self.workers.len() + 1
    }

    /// Calls `work` once on every thread, with the thread's index, and waits for all.
    ///
    /// # Panics
    /// If the work panicked on one of them.
    pub fn run(&mut self, work: Work<'_>) {
        if self.workers.is_empty() {
            return work(0);
        }
        let _round = Round::begin(&self.shared, self.workers.len() as u32, work);
        work(0);
    }

    /// Calls `work(thread, first..last)` until pieces of at most `grain` items cover `0..items`; who
    /// does which piece is chance, so no result may depend on it.
    ///
    /// # Panics
    /// If the work panicked on one of the threads.
    pub fn share(
        &mut self,
        items: usize,
        grain: usize,
        work: &(dyn Fn(usize, std::ops::Range<usize>) + Sync),
    ) {
        let grain = grain.max(1);
        if items <= grain || self.workers.is_empty() {
            return work(0, 0..items);
        }
        self.shared.next.store(0, Ordering::Relaxed);
        let shared = Arc::clone(&self.shared);
        self.run(&|thread| {
            loop {
                let first = shared.next.fetch_add(grain, Ordering::Relaxed);
                if first >= items {
                    break;
                }
                work(thread, first..items.min(first + grain));
            }
        });
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::Release);
        self.shared.round.add(1);
        for worker in self.workers.drain(..) {
            // A worker catches its panics; there is nothing to hear from it.
            let _ = worker.join();
        }
    }
}

/// A round in progress: its end, also by a panic of the caller's share, waits for every worker.
struct Round<'a> {
    shared: &'a Shared,
    finished_at: u32,
}

impl<'a> Round<'a> {
    fn begin(shared: &'a Shared, workers: u32, work: Work<'a>) -> Self {
        // SAFETY: only the lifetime changes; `drop` waits until no worker uses the work.
        let erased = unsafe { std::mem::transmute::<Work<'a>, Work<'static>>(work) };
        *shared.work.lock().unwrap_or_else(PoisonError::into_inner) = Some(Erased(erased));
        let finished_at = shared.finished.load().wrapping_add(workers);
        shared.round.add(1);
        Self {
            shared,
            finished_at,
        }
    }
}

impl Drop for Round<'_> {
    fn drop(&mut self) {
        self.shared.finished.wait(|value| value == self.finished_at);
        let panicked = self.shared.panicked.swap(false, Ordering::AcqRel);
        assert!(
            !panicked || std::thread::panicking(),
            "a worker thread panicked"
        );
    }
}

fn work_rounds(shared: &Shared, index: usize) {
    let mut seen = 0_u32;
    loop {
        shared.round.wait(|round| round != seen);
        seen = seen.wrapping_add(1);
        if shared.stop.load(Ordering::Acquire) {
            return;
        }
        let work = *shared.work.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(Erased(work)) = work {
            // SAFETY: the round waits for this thread before the work's lifetime ends.
            let work = unsafe { &*work };
            let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| work(index)));
            if outcome.is_err() {
                shared.panicked.store(true, Ordering::Release);
            }
        }
        shared.finished.add(1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_item_is_worked_once() {
        for threads in 1..5 {
            let mut pool = Pool::new(threads).expect("threads");
            for round in 0..200 {
                let counts: Vec<AtomicU32> = (0..round).map(|_| AtomicU32::new(0)).collect();
                pool.share(round, 3, &|_, range| {
                    for count in &counts[range] {
                        count.fetch_add(1, Ordering::Relaxed);
                    }
                });
                assert!(counts.iter().all(|c| c.load(Ordering::Relaxed) == 1));
            }
        }
    }

    #[test]
    fn a_sleeping_pool_wakes() {
        let mut pool = Pool::new(3).expect("threads");
        for _ in 0..3 {
            std::thread::sleep(std::time::Duration::from_millis(30));
            let count = AtomicU32::new(0);
            pool.run(&|_| {
                count.fetch_add(1, Ordering::Relaxed);
            });
            assert_eq!(count.load(Ordering::Relaxed), 3);
        }
    }

    #[test]
    fn a_panic_reaches_the_caller_and_the_pool_lives_on() {
        let mut pool = Pool::new(2).expect("threads");
        let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            pool.run(&|thread| assert_eq!(thread, 0, "worker"));
        }));
        assert!(outcome.is_err());
        let count = AtomicU32::new(0);
        pool.run(&|_| {
            count.fetch_add(1, Ordering::Relaxed);
        });
        assert_eq!(count.load(Ordering::Relaxed), 2);
    }
}
