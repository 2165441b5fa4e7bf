//! Divergence, reconvergence, and what lanes do together.

use ptx_interpreter::FaultKind;

use crate::{fault, run};

#[test]
fn lanes_that_part_meet_again() {
    let body = "setp.lt.u32 %p1, %r2, 10;\nmov.u32 %r10, 0;\nmov.u32 %r11, %r2;\n\
                @%p1 bra $less;\nadd.s32 %r10, %r10, 100;\nbra $done;\n$less:\n\
                add.s32 %r10, %r10, 1;\nadd.s32 %r11, %r11, 1;\nsetp.lt.u32 %p2, %r11, 10;\n\
                @%p2 bra $less;\n$done:\nvote.sync.ballot.b32 %r12, %p1, -1;\n\
                add.s32 %r10, %r10, %r12;\nst.global.u32 [%rd5], %r10;";
    let expected = (0..32)
        .map(|t| if t < 10 { 10 - t } else { 100 } + 0x3ff)
        .collect();
    assert_eq!(run(body, 32, &[0; 32], 32), Ok(expected));
}

#[test]
fn votes_count_the_lanes_of_their_mask() {
    let body = "setp.lt.u32 %p1, %r2, 4;\nvote.sync.any.pred %p2, %p1, -1;\n\
                vote.sync.all.pred %p3, %p1, -1;\nselp.b32 %r10, 1, 0, %p2;\n\
                selp.b32 %r11, 2, 0, %p3;\nadd.s32 %r10, %r10, %r11;\nst.global.u32 [%rd5], %r10;";
    assert_eq!(run(body, 32, &[0; 32], 32), Ok(vec![1; 32]));
}

#[test]
fn shuffles_read_the_lane_that_the_manual_says() {
    let shuffle = |code: &str| {
        let body = format!(
            "{code}\nselp.b32 %r11, 100, 0, %p1;\nadd.s32 %r10, %r10, %r11;\nst.global.u32 [%rd5], %r10;"
        );
        run(&body, 32, &[0; 32], 32).unwrap_or_else(|fault| panic!("{code}: {fault}"))
    };
    let all = |from: fn(u32) -> Option<u32>| -> Vec<u32> {
        (0..32)
            .map(|lane| from(lane).map_or(lane, |from| from + 100))
            .collect()
    };
    assert_eq!(
        shuffle("shfl.sync.down.b32 %r10|%p1, %r2, 5, 31, -1;"),
        all(|lane| Some(lane + 5).filter(|from| *from < 32))
    );
    assert_eq!(
        shuffle("shfl.sync.up.b32 %r10|%p1, %r2, 5, 0, -1;"),
        all(|lane| lane.checked_sub(5))
    );
    assert_eq!(
        shuffle("shfl.sync.bfly.b32 %r10|%p1, %r2, 3, 31, -1;"),
        all(|lane| Some(lane ^ 3))
    );
    assert_eq!(
        shuffle("shfl.sync.idx.b32 %r10|%p1, %r2, 3, 0x181f, -1;"),
        all(|lane| Some(lane / 8 * 8 + 3))
    );
    assert_eq!(
        shuffle("shfl.sync.down.b32 %r10|%p1, %r2, 5, 0x181f, -1;"),
        all(|lane| Some(lane + 5).filter(|from| from / 8 == lane / 8))
    );
}

#[test]
fn a_shuffle_that_a_lane_cannot_reach_is_caught() {
    let parted = "setp.lt.u32 %p1, %r2, 16;\n@%p1 bra $end;\n\
                  shfl.sync.bfly.b32 %r10, %r2, 1, 31, -1;\n$end:\nadd.s32 %r11, %r2, 1;";
    assert!(matches!(fault(parted, 32), FaultKind::NotConverged { .. }));
    let ended = "setp.lt.u32 %p1, %r2, 16;\n@%p1 ret;\nshfl.sync.bfly.b32 %r10, %r2, 1, 31, -1;";
    assert!(matches!(fault(ended, 32), FaultKind::NotConverged { .. }));
    let not_named = "shfl.sync.bfly.b32 %r10, %r2, 1, 31, 1;";
    assert!(matches!(
        fault(not_named, 32),
        FaultKind::NotConverged { .. }
    ));
    let half = "setp.lt.u32 %p1, %r2, 16;\n@!%p1 bra $end;\n\
                shfl.sync.bfly.b32 %r10, %r2, 16, 31, 0xffff;\n$end:\nadd.s32 %r11, %r2, 1;";
    assert!(matches!(
        fault(half, 32),
        FaultKind::ShuffleSource { lane: 16 }
    ));
    // A block of 20 threads has no lane 20 to read.
    assert!(matches!(
        fault("shfl.sync.idx.b32 %r10, %r2, 20, 31, 0xfffff;", 20),
        FaultKind::ShuffleSource { lane: 20 }
    ));
}

#[test]
fn a_barrier_that_a_thread_cannot_reach_is_caught() {
    let lane = "setp.eq.s32 %p1, %r2, 0;\n@%p1 bra $end;\nbar.sync 0;\n$end:\nadd.s32 %r3, %r2, 1;";
    assert!(matches!(fault(lane, 32), FaultKind::NotConverged { .. }));
    let guarded = "setp.eq.s32 %p1, %r2, 0;\n@%p1 bar.sync 0;";
    assert!(matches!(fault(guarded, 32), FaultKind::NotConverged { .. }));
    let warp =
        "setp.lt.u32 %p1, %r2, 32;\n@%p1 bra $end;\nbar.sync 0;\n$end:\nadd.s32 %r3, %r2, 1;";
    assert_eq!(fault(warp, 64), FaultKind::ExitedAtBarrier);
    let some = "setp.lt.u32 %p1, %r2, 4;\n@%p1 ret;\nbar.sync 0;";
    assert_eq!(fault(some, 32), FaultKind::ExitedAtBarrier);
}
