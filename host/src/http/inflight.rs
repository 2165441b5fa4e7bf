//! The calls that are being answered by the engine: to abort one, and to wait for all.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::{Notify, oneshot};

use crate::request::RequestId;

/// Calls that are remembered by name after their end.
const MAX_RECENT: usize = 4096;

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
    /// The latest calls and the engine's numbers of their requests, oldest first.
    recent: VecDeque<Recent>,
}

#[derive(Debug)]
struct Recent {
    id: String,
    label: String,
    request: RequestId,
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

    /// The engine's number of the latest request under this answer id or label, while it is among
    /// the last few thousand.
    pub(super) fn request_of(&self, name: &str) -> Option<RequestId> {
        let calls = self.shared.lock();
        let matches = |recent: &&Recent| recent.id == name || recent.label == name;
        calls
            .recent
            .iter()
            .rev()
            .find(matches)
            .map(|recent| recent.request)
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

impl Place {
    /// Notes the number that the engine gave to a request of the call.
    pub(super) fn accepted(&self, request: RequestId) {
        let mut calls = self.shared.lock();
        let Some(entry) = calls.by_number.get(&self.number) else {
            return;
        };
        let recent = Recent {
            id: entry.id.clone(),
            label: entry.label.clone(),
            request,
        };
        if calls.recent.len() == MAX_RECENT {
            calls.recent.pop_front();
        }
        calls.recent.push_back(recent);
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
