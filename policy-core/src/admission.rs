//! The order of the waiting queue: importance, fixed at arrival.
//!
//! A request gets its [`Importance`] once, when it arrives, and keeps it for life: while it waits,
//! while it runs, and when it waits again after a preemption. So nothing is ever re-sorted, no two
//! requests swap places as time goes on, and no clock is read.

use core::num::NonZeroU32;

use crate::order::{Identified, Ranked};
use crate::priority::RequestPriority;

/// What importance is made of: all of it is known when a request arrives.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Arrival {
    /// The class of the request.
    pub priority: RequestPriority,
    /// The step at which it arrived.
    pub step: u64,
    /// Its place in the order of arrival: unique, rising.
    pub number: u64,
}

impl Identified for Arrival {
    type Id = u64;

    fn id(&self) -> u64 {
        self.number
    }
}

/// A request's place in the order of importance: the least is the most important.
///
/// A total order: the arrival number ends it, and no two requests share one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Importance(Ranked<u64, u64>);

impl Importance {
    /// The arrival number of the request.
    pub const fn arrival_number(self) -> u64 {
        self.0.id()
    }
}

impl Identified for Importance {
    type Id = u64;

    fn id(&self) -> u64 {
        self.arrival_number()
    }
}

/// How waiting makes up for a lower class.
///
/// With ageing on, the key is `(arrival step + steps × {high 0, normal 1, low 2}, arrival number)`:
/// each class that a request is below another costs it `steps` steps, no more, so it is overtaken
/// only by what arrives within [`Aging::overtaken_for`] steps after it. With ageing off, the key is
/// `(class, arrival number)`, and a low request waits for as long as higher ones keep coming.
///
/// ```
/// use policy_core::{Aging, Arrival, RequestPriority};
/// let low = Arrival { priority: RequestPriority::Low, step: 10, number: 0 };
/// let high = |step| Arrival { priority: RequestPriority::High, step, number: step };
///
/// let aging = Aging::from_steps(50);
/// assert!(aging.importance(high(109)) < aging.importance(low));
/// assert!(aging.importance(low) < aging.importance(high(110)));
/// assert_eq!(aging.overtaken_for(RequestPriority::Low), Some(100));
///
/// assert!(Aging::OFF.importance(high(1_000_000)) < Aging::OFF.importance(low));
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Aging(Option<NonZeroU32>);

impl Aging {
    /// Class before arrival, for ever.
    pub const OFF: Self = Self(None);

    /// One class is worth this many steps of waiting; 0 is [`Aging::OFF`].
    pub const fn from_steps(steps: u32) -> Self {
        Self(NonZeroU32::new(steps))
    }

    /// How many steps of waiting one class is worth; 0 where ageing is off.
    pub const fn steps(self) -> u32 {
        match self.0 {
            Some(steps) => steps.get(),
            None => 0,
        }
    }

    /// The importance of a request that arrives so. To be taken once and kept.
    ///
    /// The sum saturates at `u64::MAX`: exact for every step below 2^64 − 2^33, which at a million
    /// steps a second is half a million years; past it the arrival number alone decides, and the
    /// order is total still.
    pub fn importance(self, arrival: Arrival) -> Importance {
        let classes = arrival.priority.classes_above();
        let key = match self.0 {
            // At most 2 × (2^32 − 1): the product cannot overflow.
            Some(steps) => arrival
                .step
                .saturating_add(classes.saturating_mul(u64::from(steps.get()))),
            None => classes,
        };
        Importance(Ranked::new(key, &arrival))
    }

    /// For how many steps after its arrival a request of this class can still be overtaken by one
    /// that arrives; `None` where there is no such bound.
    ///
    /// What arrives that many steps later, or more, is less important, whatever its class.
    pub const fn overtaken_for(self, priority: RequestPriority) -> Option<u64> {
        match (priority, self.0) {
            (RequestPriority::High, _) => Some(0),
            (_, None) => None,
            (_, Some(steps)) => Some(priority.classes_above().saturating_mul(steps.get() as u64)),
        }
    }
}
