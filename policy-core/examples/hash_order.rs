//! Measures how far the iteration order of a hash map reaches: the figures of `docs/code-guidelines.md`.
//!
//! `cargo run --release -p policy-core --example hash_order`

#![expect(
    clippy::disallowed_types,
    reason = "the hazard is measured here; nothing is decided by it"
)]

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::hash::{BuildHasherDefault, DefaultHasher};

use policy_core::{Candidate, Need, PreemptionPolicy, RequestPriority, SequenceId, select_victim};

const MAPS: usize = 1_000;

/// A map whose hash has fixed keys.
type FixedMap = HashMap<u64, Candidate, BuildHasherDefault<DefaultHasher>>;

/// A way to choose a victim from an iterator, by name.
type Way = (&'static str, fn(&mut dyn Iterator<Item = Candidate>) -> u64);

const WAYS: [Way; 5] = [
    ("max_by_key(length)", |candidates| {
        let longest = candidates.max_by_key(|c| c.generated_tokens);
        longest.map_or(0, number)
    }),
    ("min_by_key(Reverse(length))", |candidates| {
        let longest = candidates.min_by_key(|c| Reverse(c.generated_tokens));
        longest.map_or(0, number)
    }),
    ("sort_by_key(length), first", |candidates| {
        let mut all: Vec<_> = candidates.collect();
        all.sort_by_key(|c| Reverse(c.generated_tokens));
        all.first().copied().map_or(0, number)
    }),
    ("sort_unstable_by_key(length), first", |candidates| {
        let mut all: Vec<_> = candidates.collect();
        all.sort_unstable_by_key(|c| Reverse(c.generated_tokens));
        all.first().copied().map_or(0, number)
    }),
    ("select_victim", |candidates| {
        let chosen = select_victim(PreemptionPolicy::LongestFirst, Need::Seat, candidates);
        let chosen = chosen.ok().flatten();
        chosen.map_or(0, |chosen| number(chosen.victim))
    }),
];

fn main() {
    orders_of_one_content();
    victims_of_one_tie();
    a_fixed_hash_is_no_cure();
}

fn number(candidate: Candidate) -> u64 {
    candidate.id.number()
}

/// Candidates that tie on everything but the id.
fn tied(n: u64) -> impl Iterator<Item = (u64, Candidate)> + Clone {
    (1..=n).map(|id| {
        let candidate = Candidate::new(SequenceId::new(id), RequestPriority::Normal, 12);
        (id, candidate)
    })
}

fn orders_of_one_content() {
    println!("{MAPS} maps, built by the same insertions in the same order:");
    for n in [2, 4, 8, 16, 64] {
        let map = || tied(n).collect::<HashMap<_, _>>();
        let orders: Vec<Vec<u64>> = (0..MAPS).map(|_| map().into_keys().collect()).collect();
        let like_first = orders.iter().filter(|order| **order == orders[0]).count();
        let firsts: BTreeSet<_> = orders.iter().map(|order| order[0]).collect();
        let distinct: BTreeSet<_> = orders.iter().collect();
        println!(
            "  {n:>2} entries: {} orders, {} different first entries, {like_first} maps like the first",
            distinct.len(),
            firsts.len(),
        );
    }
    let one = tied(16).collect::<HashMap<_, _>>();
    println!(
        "  one map iterated twice: same order: {}",
        one.keys().eq(one.keys())
    );
    println!(
        "  a map and its clone: same order: {}",
        one.keys().eq(one.clone().keys())
    );
}

fn victims_of_one_tie() {
    println!("{MAPS} maps of 16 candidates that tie; different victims by:");
    for (name, choose) in WAYS {
        let map = || tied(16).collect::<HashMap<_, _>>();
        let victim = |_| choose(&mut map().into_values());
        let hashed: BTreeSet<_> = (0..MAPS).map(victim).collect();
        let ordered: BTreeMap<_, _> = tied(16).collect();
        let ordered = choose(&mut ordered.into_values());
        println!(
            "  {name:<36} {:>2} over hash maps; over a BTreeMap the one victim is {ordered}",
            hashed.len()
        );
    }
}

fn a_fixed_hash_is_no_cure() {
    println!("a hash with fixed keys, 16 entries, the same content by another history:");
    let plain: FixedMap = tied(16).collect();
    let again: FixedMap = tied(16).collect();
    let mut roomy = FixedMap::with_capacity_and_hasher(500, BuildHasherDefault::default());
    roomy.extend(tied(16));
    let mut shrunk: FixedMap = tied(400).collect();
    shrunk.retain(|id, _| *id <= 16);
    for (name, other) in [
        ("built the same way", again),
        ("built with room for 500", roomy),
        ("grown to 400 and cut back", shrunk),
    ] {
        println!("  {name}: same order: {}", plain.keys().eq(other.keys()));
    }
}
