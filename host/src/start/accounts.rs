//! The accounts of live requests, as `/debug` tells them.

use std::sync::{Arc, Mutex, PoisonError};

use crate::http::DebugView;
use crate::journal::Chronicle;
use crate::request::RequestId;

/// The chronicle that the engine writes; a reader copies what it tells and lets go at once.
#[derive(Clone, Debug)]
pub struct Accounts(pub Arc<Mutex<Chronicle>>);

impl Accounts {
    fn read<T>(&self, read: impl FnOnce(&Chronicle) -> T) -> T {
        read(&self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl DebugView for Accounts {
    fn request(&self, number: u64) -> Option<serde_json::Value> {
        let account = self.read(|chronicle| chronicle.account(RequestId::new(number)).cloned())?;
        let sentences = account.sentences();
        let mut told = serde_json::to_value(account).ok()?;
        told.as_object_mut()?
            .insert("sentences".to_owned(), sentences.into());
        Some(told)
    }

    fn preemptions(&self, limit: usize) -> serde_json::Value {
        let latest: Vec<_> =
            self.read(|chronicle| chronicle.preemptions().take(limit).cloned().collect());
        serde_json::to_value(latest).unwrap_or_default()
    }
}
