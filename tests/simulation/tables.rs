//! The table that the defaults were chosen from.

use std::fs;
use std::path::Path;

use lockstep::scheduler::SchedulerConfig;
use lockstep::simulation::{LOADS, Summary, load, summarize, table};
use policy_core::PreemptionPolicy;

/// To make it anew: `LOCKSTEP_REGENERATE=1 cargo test published_table`.
const TABLE: &str = include_str!("tables.txt");
const FILE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/simulation/tables.txt");

fn variants(default: &SchedulerConfig) -> Vec<(String, SchedulerConfig)> {
    let mut variants = Vec::new();
    for policy in PreemptionPolicy::ALL {
        let mut config = default.clone();
        config.preemption_policy = *policy;
        variants.push((policy.to_string(), config));
    }
    for aging in [0, 200, 1000] {
        let mut config = default.clone();
        config.priority_aging_steps = aging;
        variants.push((format!("ageing {aging}"), config));
    }
    for headroom in [0, 2] {
        let mut config = default.clone();
        config.admission_headroom_blocks = headroom;
        variants.push((format!("headroom {headroom}"), config));
    }
    let mut config = default.clone();
    config.enable_prefix_caching = false;
    variants.push(("no prefix cache".to_owned(), config));
    variants
}

#[test]
fn the_published_table_is_what_the_scheduler_does() {
    let mut text = String::new();
    for name in LOADS {
        let (config, workload) = load(name).unwrap();
        let of = |(name, config): (String, SchedulerConfig)| {
            summarize(&name, &config, &workload).unwrap()
        };
        let summaries: Vec<Summary> = variants(&config).into_iter().map(of).collect();
        text.push_str(&format!("{name}\n{}\n", table(&summaries)));
    }
    if std::env::var_os("LOCKSTEP_REGENERATE").is_some() {
        fs::write(Path::new(FILE), &text).unwrap();
        return;
    }
    assert_eq!(text, TABLE);
}
