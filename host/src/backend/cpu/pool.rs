//! A persistent pool of threads for work that is parted in microseconds.
//!
//! A product of the model is often shorter than a system call. So a thread that waits spins first,
//! then gives its core to whoever wants it, and sleeps only after that: quick while a step runs,
//! harmless when another program takes a core, quiet when the engine is idle. Nobody waits for a
//! thread that has not begun: where the system keeps one away, the others do its share.

use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::JoinHandle;

/// Polls before the core is offered to others.
const SPINS: u32 = 2_000;
/// Offers of the core before sleep.
const YIELDS: u32 = 100;

/// Set in the state while threads may join the round; above it stands the round's number, below it
/// how many have joined and not left.
const OPEN: u64 = 1 << 31;
const MEMBERS: u64 = OPEN - 1;
const ROUND: u64 = 1 << 32;

/// The work of a round: called with the thread's index and the items to work.
type Work<'a> = &'a (dyn Fn(usize, Range<usize>) + Sync);

/// What a round's members need to know of it.
#[derive(Clone, Copy)]
struct Job {
    /// A [`Work`] whose lifetime the round itself bounds.
    work: *const (dyn Fn(usize, Range<usize>) + Sync),
    items: usize,
    grain: usize,
}

/// The next item of a thread's region, on a cache line of its own.
#[repr(align(128))]
struct Next(AtomicUsize);

struct Shared {
    state: AtomicU64,
    regions: Box<[Next]>,
    job: Mutex<Option<Job>>,
    stop: AtomicBool,
    panicked: AtomicBool,
    sleepers: AtomicU32,
    lock: Mutex<()>,
    wake: Condvar,
}

// SAFETY: the job's work is `Sync`, and `Round::drop` returns only when no member uses it.
unsafe impl Send for Shared {}
// SAFETY: as above.
unsafe impl Sync for Shared {}

impl Shared {
    /// Wakes whoever sleeps, after a change of the state.
    fn notify(&self) {
        if self.sleepers.load(Ordering::SeqCst) > 0 {
            // Taking the lock puts this wake-up after the check of whoever is about to sleep.
            drop(self.lock.lock().unwrap_or_else(PoisonError::into_inner));
            self.wake.notify_all();
        }
    }

    /// Waits until the state is as wanted.
    fn wait(&self, wanted: impl Fn(u64) -> bool) {
        for _ in 0..SPINS {
            if wanted(self.state.load(Ordering::Acquire)) {
                return;
            }
            std::hint::spin_loop();
        }
        for _ in 0..YIELDS {
            if wanted(self.state.load(Ordering::Acquire)) {
                return;
            }
            std::thread::yield_now();
        }
        let mut guard = self.lock.lock().unwrap_or_else(PoisonError::into_inner);
        self.sleepers.fetch_add(1, Ordering::SeqCst);
        while !wanted(self.state.load(Ordering::SeqCst)) {
            guard = self
                .wake
                .wait(guard)
                .unwrap_or_else(PoisonError::into_inner);
        }
        self.sleepers.fetch_sub(1, Ordering::SeqCst);
    }

    /// Joins the open round, if there still is one.
    fn join(&self) -> bool {
        let join = |state: u64| (state & OPEN != 0).then_some(state + 1);
        self.state
            .fetch_update(Ordering::AcqRel, Ordering::Acquire, join)
            .is_ok()
    }

    fn leave(&self) {
        if self.state.fetch_sub(1, Ordering::SeqCst) & MEMBERS == 1 {
            self.notify();
        }
    }

    /// Works pieces until none is left: those of the thread's own region, which lie side by side and
    /// so come quickly from memory, then what others have left of theirs.
    fn work(&self, thread: usize, work: Work<'_>, items: usize, grain: usize) {
        let threads = self.regions.len();
        for owner in (thread..threads).chain(0..thread) {
            let end = region(items, owner, threads).end;
            loop {
                let first = self.regions[owner].0.fetch_add(grain, Ordering::Relaxed);
                if first >= end {
                    break;
                }
                work(thread, first..end.min(first + grain));
            }
        }
    }
}

/// The region of `items` that a thread of so many begins with.
pub(super) const fn region(items: usize, thread: usize, threads: usize) -> Range<usize> {
    items * thread / threads..items * (thread + 1) / threads
}

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
            state: AtomicU64::new(0),
            regions: (0..threads.max(1))
                .map(|_| Next(AtomicUsize::new(0)))
                .collect(),
            job: Mutex::new(None),
            stop: AtomicBool::new(false),
            panicked: AtomicBool::new(false),
            sleepers: AtomicU32::new(0),
            lock: Mutex::new(()),
            wake: Condvar::new(),
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

    /// Calls `work(thread, first..last)` until pieces of at most `grain` items cover `0..items`. Each
    /// thread begins in a region of its own, but who does which piece is chance, so no result may
    /// depend on it.
    ///
    /// # Panics
    /// If the work panicked on one of the threads.
    pub fn share(&mut self, items: usize, grain: usize, work: Work<'_>) {
        let grain = grain.max(1);
        if items <= grain || self.workers.is_empty() {
            return work(0, 0..items);
        }
        let round = Round::open(&self.shared, work, items, grain);
        self.shared.work(0, work, items, grain);
        drop(round);
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        // No round is opened for it: a worker on its way into the last one would join and then wait
        // for another.
        self.shared.stop.store(true, Ordering::SeqCst);
        self.shared.notify();
        for worker in self.workers.drain(..) {
            // A worker catches its panics; there is nothing to hear from it.
            let _ = worker.join();
        }
    }
}

/// An open round; its end, also by a panic of the caller's share, waits for every member.
struct Round<'a>(&'a Shared);

impl<'a> Round<'a> {
    fn open(shared: &'a Shared, work: Work<'a>, items: usize, grain: usize) -> Self {
        // SAFETY: only the lifetime changes; `drop` waits until no member uses the work.
        let work = unsafe { std::mem::transmute::<Work<'a>, Work<'static>>(work) };
        let job = Job { work, items, grain };
        *shared.job.lock().unwrap_or_else(PoisonError::into_inner) = Some(job);
        let threads = shared.regions.len();
        for (owner, next) in shared.regions.iter().enumerate() {
            let first = region(items, owner, threads).start;
            next.0.store(first, Ordering::Relaxed);
        }
        shared.state.fetch_add(ROUND | OPEN, Ordering::SeqCst);
        shared.notify();
        Self(shared)
    }
}

impl Drop for Round<'_> {
    fn drop(&mut self) {
        self.0.state.fetch_and(!OPEN, Ordering::AcqRel);
        self.0.wait(|state| state & MEMBERS == 0);
        let panicked = self.0.panicked.swap(false, Ordering::AcqRel);
        assert!(
            !panicked || std::thread::panicking(),
            "a worker thread panicked"
        );
    }
}

fn work_rounds(shared: &Shared, index: usize) {
    let mut seen = 0;
    loop {
        let stopped = || shared.stop.load(Ordering::SeqCst);
        shared.wait(|state| state & OPEN != 0 && state / ROUND != seen || stopped());
        if stopped() {
            return;
        }
        if !shared.join() {
            continue;
        }
        seen = shared.state.load(Ordering::Acquire) / ROUND;
        let job = *shared.job.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(Job { work, items, grain }) = job {
            // SAFETY: the round waits for its members before the work's lifetime ends.
            let work = unsafe { &*work };
            let work = || shared.work(index, work, items, grain);
            if std::panic::catch_unwind(std::panic::AssertUnwindSafe(work)).is_err() {
                shared.panicked.store(true, Ordering::Release);
            }
        }
        shared.leave();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_item_is_worked_once() {
        for threads in 1..5 {
            let mut pool = Pool::new(threads).expect("threads");
            for round in 0..2000 {
                let items = round % 200;
                let counts: Vec<AtomicU32> = (0..items).map(|_| AtomicU32::new(0)).collect();
                pool.share(items, 3, &|_, range| {
                    for count in &counts[range] {
                        count.fetch_add(1, Ordering::Relaxed);
                    }
                });
                assert!(counts.iter().all(|c| c.load(Ordering::Relaxed) == 1));
            }
        }
    }

    #[test]
    fn a_pool_may_end_while_a_worker_is_about_to_join() {
        // More threads than cores, so that some stop between any two instructions.
        std::thread::scope(|scope| {
            for _ in 0..16 {
                scope.spawn(|| {
                    for _ in 0..2000 {
                        let mut pool = Pool::new(2).expect("threads");
                        pool.share(2, 1, &|_, _| {});
                    }
                });
            }
        });
    }

    #[test]
    fn two_threads_work_at_once() {
        let mut pool = Pool::new(2).expect("threads");
        for _ in 0..3 {
            // Long enough for the worker to be asleep: each item waits for the other.
            std::thread::sleep(std::time::Duration::from_millis(30));
            let arrived = std::sync::Barrier::new(2);
            pool.share(2, 1, &|_, _| {
                arrived.wait();
            });
        }
    }

    #[test]
    fn a_panic_reaches_the_caller_and_the_pool_lives_on() {
        let mut pool = Pool::new(2).expect("threads");
        let arrived = std::sync::Barrier::new(2);
        let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            pool.share(2, 1, &|thread, _| {
                arrived.wait();
                assert_eq!(thread, 0, "the worker's share");
            });
        }));
        assert!(outcome.is_err());
        let count = AtomicUsize::new(0);
        pool.share(10, 1, &|_, range| {
            count.fetch_add(range.len(), Ordering::Relaxed);
        });
        assert_eq!(count.load(Ordering::Relaxed), 10);
    }
}
