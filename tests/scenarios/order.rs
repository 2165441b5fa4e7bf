//! Ties and order.

use lockstep::batch::Batch;
use lockstep::scheduler::SchedulerConfig;
use lockstep::simulation::{Simulation, Workload};
use policy_core::RequestPriority::{High, Low, Normal};
use policy_core::Separator;

use super::{config, id, of, request, run};

#[test]
fn among_victims_tied_throughout_the_smallest_sequence_id_is_taken_and_the_evidence_says_so() {
    let mut requests = vec![of(Low, 1, 5, 60); 4];
    requests.push(of(High, 10, 5, 5));
    let limits = SchedulerConfig {
        max_num_seqs: 4,
        ..config()
    };
    let run = run(limits, requests);
    let preemption = run
        .plans
        .iter()
        .find_map(|p| p.preemptions.first())
        .unwrap();
    assert_eq!(preemption.request, id(0));
    assert_eq!(preemption.separator, Some(Separator::Id));
    assert_eq!(preemption.runner_up.unwrap().id.number(), 1);
    assert_eq!(preemption.considered, 4);
}

#[test]
fn tied_sequences_are_hit_in_turn_before_any_is_hit_twice() {
    let mut requests = vec![of(Low, 1, 5, 200); 3];
    // Each High comes when the last one is gone and the victim is back.
    requests.extend((0..6).map(|n| of(High, 20 + n * 20, 5, 3)));
    let limits = SchedulerConfig {
        max_num_seqs: 3,
        worn_after_preemptions: 100,
        ..config()
    };
    let run = run(limits, requests);
    let victims = run.victims();
    assert!(victims.len() >= 6, "{victims:?}");
    let mut first: Vec<_> = victims[..3].to_vec();
    first.sort_unstable();
    assert_eq!(first, [0, 1, 2], "{victims:?}");
}

#[test]
fn the_order_of_the_batch_is_part_of_the_plan() {
    let requests = vec![
        of(Low, 1, 9, 9),
        of(High, 2, 9, 9),
        of(Normal, 2, 9, 9),
        of(High, 3, 9, 9),
    ];
    let mut simulation = Simulation::new(config(), Workload { requests }).unwrap();
    let mut batch = Batch::default();
    for _ in 0..4 {
        simulation.step();
    }
    let order: Vec<_> = simulation
        .plan
        .chunks
        .iter()
        .map(|c| c.request.number())
        .collect();
    assert_eq!(order, [1, 3, 2, 0], "by class, then by arrival");
    simulation
        .scheduler
        .fill_batch(&simulation.plan, &mut batch);
    let rows: Vec<_> = batch
        .sequences
        .iter()
        .map(|s| (s.first_row, s.rows))
        .collect();
    assert_eq!(rows, [(0, 1), (1, 1), (2, 1), (3, 1)]);
    for (chunk, sequence) in simulation.plan.chunks.iter().zip(&batch.sequences) {
        let tokens = simulation.scheduler.tokens(chunk.request).unwrap();
        let row = sequence.first_row as usize;
        assert_eq!(batch.token_ids[row], tokens[chunk.start as usize]);
        assert_eq!(batch.positions[row], chunk.start);
        let table = simulation.plan.block_table(chunk);
        assert_eq!(batch.block_table(sequence), table);
        assert_eq!(
            batch.slots[row],
            table[chunk.start as usize / 16] * 16 + chunk.start % 16
        );
    }
    assert_eq!(batch.sampling_rows, [0, 1, 2, 3]);
}

#[test]
fn the_same_load_gives_the_same_plans_every_time() {
    let load = || {
        (0..20)
            .map(|n| request(1 + n / 7, 10 + n as u32, 30))
            .collect()
    };
    let limits = SchedulerConfig {
        num_blocks: 16,
        ..config()
    };
    let plans = run(limits.clone(), load()).plans;
    assert!(plans.iter().any(|plan| !plan.preemptions.is_empty()));
    for _ in 0..3 {
        assert_eq!(run(limits.clone(), load()).plans, plans);
    }
}
