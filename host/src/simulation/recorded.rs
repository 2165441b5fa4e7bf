//! The load of a journal: what arrived when, how long each answer was, and who went away.

use std::path::Path;

use super::workload::{SimulatedRequest, Workload};
use crate::journal::{JournalReader, ReadError, ReplayReport, replay_with};
use crate::request::RequestId;
use crate::scheduler::{Arrival, Finish, Inputs, Plan, Release, ReleaseCause, SchedulerConfig};

/// A journal as a load.
#[derive(Clone, Debug)]
pub struct RecordedLoad {
    /// The limits that it was recorded under.
    pub config: SchedulerConfig,
    /// The requests.
    pub workload: Workload,
    /// How well it replays.
    pub report: ReplayReport,
    /// Requests that had not ended where the journal ends: what becomes of them is made up.
    pub unended: usize,
}

/// Reads a journal as a load.
///
/// A request's answer has as many tokens as the journal saw; one that was broken off goes on until
/// then in any other run too, or until its bound. What lies behind a difference is left out.
///
/// # Errors
/// Where the file is not a journal.
pub fn recorded_load(path: &Path) -> Result<RecordedLoad, ReadError> {
    let config = JournalReader::open(path)?.header().config.clone();
    let mut load = Recorded::default();
    let report = replay_with(path, |inputs, plan| load.take(inputs, plan))?;
    Ok(RecordedLoad {
        config,
        unended: load.requests.len() - load.ended,
        workload: Workload {
            requests: load.requests,
        },
        report,
    })
}

#[derive(Default)]
struct Recorded {
    /// Ascending: the place of each is its place in the load.
    ids: Vec<RequestId>,
    requests: Vec<SimulatedRequest>,
    ended: usize,
}

impl Recorded {
    fn take(&mut self, inputs: &Inputs, plan: &Plan) {
        for arrival in &inputs.arrivals {
            let request = self.request(arrival, plan.step);
            self.ids.push(arrival.request);
            self.requests.push(request);
        }
        for release in &plan.releases {
            self.end(release, plan.step);
        }
    }

    fn place(&self, request: RequestId) -> Option<usize> {
        self.ids.binary_search(&request).ok()
    }

    fn request(&self, arrival: &Arrival, step: u64) -> SimulatedRequest {
        let mut request =
            SimulatedRequest::new(step, arrival.prompt.len() as u32, arrival.max_tokens);
        request.priority = arrival.priority;
        request.max_tokens = Some(arrival.max_tokens);
        request.structured = arrival.structured;
        request.cache_salt = arrival.cache_salt.clone();
        request.prompt = Some(arrival.prompt.clone());
        request.sibling_of = arrival
            .sibling_of
            .and_then(|first| self.place(first))
            .map(|first| first as u32);
        request
    }

    fn end(&mut self, release: &Release, step: u64) {
        let Some(place) = self.place(release.request) else {
            return;
        };
        self.ended += 1;
        let request = &mut self.requests[place];
        match release.cause {
            ReleaseCause::Finished(Finish::Stop | Finish::Length) => {
                request.output_tokens = release.generated_tokens;
            }
            ReleaseCause::Finished(Finish::NonFinite | Finish::NoToken) => {
                request.non_finite_at = Some(release.generated_tokens);
            }
            ReleaseCause::Cancelled => request.cancel_step = Some(step),
            ReleaseCause::Expired => request.expire_step = Some(step),
            ReleaseCause::Rejected(_) => {}
        }
    }
}
