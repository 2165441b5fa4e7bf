//! The simulator against the production scheduler: safety, liveness, twice, alone.

mod journal;

use lockstep::simulation::{Checker, Simulation, swarm};

/// Steps within which a load of this many tokens drains once arrivals have stopped.
fn run_checked(seed: u64, requests: u32) -> Simulation {
    let (config, workload) = swarm(seed, requests);
    let mut simulation = Simulation::new(config.clone(), workload).unwrap();
    let mut checker = Checker::new(config);
    for _ in 0..2_000_000 {
        if simulation.is_done() {
            break;
        }
        simulation.step();
        if let Err(violation) = checker.check(&simulation) {
            panic!(
                "seed {seed}: {violation}\ninputs: {:?}\nplan: {:?}",
                simulation.inputs, simulation.plan
            );
        }
    }
    checker
        .check_end(requests as usize)
        .unwrap_or_else(|violation| panic!("seed {seed}: {violation}"));
    simulation
}

#[test]
fn swarm_keeps_every_promise() {
    let seeds: u64 = std::env::var("SEEDS").map_or(200, |s| s.parse().unwrap());
    let mut preemptions = 0;
    let mut steps = 0;
    for seed in 0..seeds {
        let simulation = run_checked(seed, 60);
        steps += simulation.scheduler.num_steps();
        preemptions += simulation
            .outcomes
            .iter()
            .filter_map(|o| o.released)
            .map(|(_, r)| u64::from(r.preemptions))
            .sum::<u64>();
    }
    eprintln!("{seeds} seeds, {steps} steps, {preemptions} preemptions");
}
