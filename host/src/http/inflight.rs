//! The calls that are being answered by the engine: to abort one, and to wait for all.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::{Notify, oneshot};

/// Every generating call of the server. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub(super) struct InFlight {
    shared: Arc<Shared>,
}

#[derive(Debug, Default)]
struct Shared {
    calls: Mutex<Calls>,
    ended: Notify,
}

#[derive(Debug, Default)]
struct Calls {
    next: u64,
    by_number: BTreeMap<u64, Entry>,
}

#[derive(Debug)]
struct Entry {
    id: String,
    label: String,
    abort: oneshot::Sender<()>,
}

/// A call's place among those in flight; gives it back when dropped.
#[derive(Debug)]
pub(super) struct Place {
    shared: Arc<Shared>,
    number: u64,
    /// Resolves when someone asks for the call to be aborted.
    pub(super) aborted: oneshot::Receiver<()>,
}

impl InFlight {
    /// Enters a call under the id of its answer and its label.
    pub(super) fn enter(&self, id: &str, label: &str) -> Place {
        let (abort, aborted) = oneshot::channel();
        let mut calls = self.shared.lock();
        let number = calls.next;
        calls.next += 1;
        let entry = Entry {
            id: id.to_owned(),
            label: label.to_owned(),
            abort,
        };
        calls.by_number.insert(number, entry);
        drop(calls);
        Place {
            shared: Arc::clone(&self.shared),
            number,
            aborted,
        }
    }

    /// Aborts every call with this id or label; how many there were.
    pub(super) fn abort(&self, name: &str) -> usize {
        let mut calls = self.shared.lock();
        let matches = |entry: &Entry| entry.id == name || entry.label == name;
        let numbers: Vec<u64> = calls
            .by_number
            .iter()
            .filter_map(|(number, entry)| matches(entry).then_some(*number))
            .collect();
        for number in &numbers {
            if let Some(entry) = calls.by_number.remove(number) {
                // A call that has just ended hears nothing, as it should.
                let _ = entry.abort.send(());
            }
        }
        numbers.len()
    }

    /// How many calls there are.
    pub(super) fn len(&self) -> usize {
        self.shared.lock().by_number.len()
    }

    /// Waits until there is none.
    pub(super) async fn none_left(&self) {
        loop {
            let ended = self.shared.ended.notified();
            if self.len() == 0 {
                return;
            }
            ended.await;
        }
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Calls> {
        // Nothing panics while it is held; if something did, the map would still be whole.
        self.calls.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.shared.lock().by_number.remove(&self.number);
        self.shared.ended.notify_waiters();
    }
}
