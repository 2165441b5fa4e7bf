//! A program whose panic handler calls a function that does not exist: it links only if the
//! optimizer has proved that nothing it exercises can panic.
//!
//! It exercises every selector and what parses and prints, under inputs the compiler cannot see. The
//! program is built with overflow checks, so that an addition that could overflow is a panic too.
//! That it links is a proof; that it does not, under another compiler, may be only a weaker optimizer.
#![no_std]
#![no_main]

use core::ffi::{c_char, c_int};
use core::fmt::{self, Write};
use core::hint::black_box;
use core::panic::PanicInfo;

use policy_core::{
    Aging, Arrival, CachedBlock, Candidate, Need, PreemptionPolicy, RequestPriority, Separator,
    SequenceId, WorkerId, first_duplicate, select_block, select_least, select_least_n,
    select_victim, select_victims, select_worker,
};

// For `main`'s caller and for `memcpy` and its like.
#[link(name = "c")]
unsafe extern "C" {
    /// Defined nowhere.
    fn a_panic_is_reachable_in_policy_core() -> !;
}

#[panic_handler]
fn panic(_: &PanicInfo<'_>) -> ! {
    // SAFETY: a program in which this call exists does not link.
    unsafe { a_panic_is_reachable_in_policy_core() }
}

/// How many candidates are offered.
const OFFERED: u64 = 64;

/// Exercises everything and returns 0 where the answers are those expected.
#[unsafe(no_mangle)]
pub extern "C" fn main(_arguments: c_int, _values: *const *const c_char) -> c_int {
    let right = [victims(), queue(), blocks(), workers(), names(), control()];
    c_int::from(!right.iter().all(|&right| right))
}

fn candidate(number: u64) -> Candidate {
    black_box(Candidate {
        id: SequenceId::new(number),
        priority: RequestPriority::from((number % 3) as i64),
        generated_tokens: (number % 5) as u32,
        exempt: number.is_multiple_of(7),
        worn: number.is_multiple_of(4),
    })
}

fn victims() -> bool {
    let policy = black_box(PreemptionPolicy::LongestFirst);
    let need = black_box(Need::Seat);
    let offered = || (0..black_box(OFFERED)).map(candidate);
    let one = select_victim(policy, need, offered());
    let some = select_victims::<8>(policy, need, offered());
    let reach = some
        .as_ref()
        .map(|some| some.take_until(|victim| victim.worn));
    black_box(&reach);
    let (Ok(Some(one)), Ok(some)) = (one, some) else {
        return false;
    };
    let order = policy.rank(&candidate(1)) < policy.rank(&candidate(2));
    let first = some.ranked.first() == Some(&one.victim);
    black_box((order, one.separator, first_duplicate(offered())));
    first && one.victim.id == SequenceId::new(9)
}

fn queue() -> bool {
    let aging = Aging::from_steps(black_box(u32::MAX));
    let arrival = |number| {
        black_box(Arrival {
            priority: RequestPriority::Low,
            step: u64::MAX - number,
            number,
        })
    };
    let waiting = (0..black_box(OFFERED)).map(|number| aging.importance(arrival(number)));
    let head = select_least(waiting, |importance| *importance);
    black_box(aging.overtaken_for(black_box(RequestPriority::Low)));
    black_box(SequenceId::new(black_box(u64::MAX)).successor()).is_none()
        && matches!(head, Ok(Some(choice)) if choice.winner.arrival_number() == 0)
}

fn blocks() -> bool {
    let block = |id| {
        black_box(CachedBlock {
            id,
            last_used_step: 3,
            depth: id,
        })
    };
    let choice = select_block((0..black_box(9)).map(block));
    black_box(block(1).rank() < block(2).rank());
    matches!(choice, Ok(Some(choice)) if choice.winner.id == 8)
}

fn workers() -> bool {
    let ids = || (0..black_box(4)).map(WorkerId::new);
    let choice = select_worker(black_box(b"session 42"), ids());
    let ranking = select_least_n::<3, _, _, _>(ids(), |_| ());
    let left_out = ranking.map_or(0, |ranking| ranking.left_out());
    left_out == 1 && matches!(choice, Ok(Some(choice)) if choice.winner == WorkerId::new(3))
}

fn names() -> bool {
    let mut length = Length(0);
    let printed = [
        write!(length, "{}", black_box(SequenceId::new(u64::MAX))),
        write!(length, "{}", black_box(RequestPriority::High)),
        write!(length, "{}", black_box(PreemptionPolicy::LongestFirst)),
        write!(length, "{}", black_box(Separator::Id)),
        write!(length, "{}", black_box(policy_core::DuplicateId(7))),
    ];
    let wrong = black_box("urgent").parse::<RequestPriority>();
    black_box((
        black_box("longest-first")
            .parse::<PreemptionPolicy>()
            .is_ok(),
        black_box("id").parse::<Separator>().is_ok(),
        black_box("-3").parse::<RequestPriority>().is_ok(),
    ));
    let right = black_box("seat").parse::<Need>() == Ok(Need::Seat);
    black_box(length.0);
    let refused = wrong.as_ref().err().map(|error| write!(length, "{error}"));
    right
        && refused == Some(Ok(()))
        && printed.iter().all(Result::is_ok)
        && wrong.is_err_and(|error| error.value() == "urgent" && !error.accepted().is_empty())
}

/// With the feature `reachable-panic` this can panic, and the link must fail.
fn control() -> bool {
    let list = black_box([1, 2, 3]);
    let index = black_box(1);
    if cfg!(feature = "reachable-panic") {
        list[index] == 2
    } else {
        list.get(index) == Some(&2)
    }
}

/// A writer that counts.
struct Length(usize);

impl fmt::Write for Length {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.0 = self.0.saturating_add(text.len());
        Ok(())
    }
}
