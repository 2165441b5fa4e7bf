//! Two accesses that nothing orders, inside a block and between blocks.

use ptx_interpreter::{FaultKind, Order};

use crate::{fault, run, run_grid};

/// Every thread puts its number down and, after `between`, reads the one `distance` further on.
fn exchange(between: &str, distance: u32) -> String {
    format!(
        "mov.u32 %r10, buffer;\nshl.b32 %r11, %r2, 2;\nadd.s32 %r12, %r10, %r11;\n\
         st.shared.u32 [%r12], %r2;\n{between}\nadd.s32 %r13, %r2, {distance};\n\
         rem.u32 %r13, %r13, %r1;\nshl.b32 %r13, %r13, 2;\nadd.s32 %r13, %r10, %r13;\n\
         ld.shared.u32 %r14, [%r13];\nst.global.u32 [%rd5], %r14;"
    )
}

fn race(body: &str, threads: u32) -> bool {
    matches!(fault(body, threads), FaultKind::Race { .. })
}

#[test]
fn a_barrier_orders_the_block_and_its_absence_is_caught() {
    let expected: Vec<u32> = (0..64).map(|thread| (thread + 33) % 64).collect();
    for order in [Order::Ascending, Order::Descending] {
        let body = exchange("bar.sync 0;", 33);
        assert_eq!(
            run_grid(&body, 1, 64, &[0; 64], 64, order),
            Ok(expected.clone())
        );
    }
    assert!(matches!(
        fault(&exchange("", 33), 64),
        FaultKind::Race { .. } | FaultKind::Uninitialised { .. }
    ));
    assert!(race(&exchange("", 31), 32));
}

#[test]
fn a_warp_barrier_orders_its_warp_only() {
    let expected: Vec<u32> = (0..32).map(|thread| (thread + 1) % 32).collect();
    let body = exchange("bar.warp.sync -1;", 1);
    assert_eq!(run(&body, 32, &[0; 32], 32), Ok(expected));
    let kind = fault(&body, 64);
    assert!(
        matches!(
            kind,
            FaultKind::Race { .. } | FaultKind::Uninitialised { .. }
        ),
        "{kind}"
    );
    assert!(race(
        &exchange("shfl.sync.idx.b32 %r20, %r2, 0, 31, -1;", 1),
        32
    ));
}

#[test]
fn a_write_after_reads_without_a_barrier_is_caught() {
    let again = "st.shared.u32 [%r12], %r2;";
    let body = format!("{}\n{again}", exchange("bar.sync 0;", 33));
    assert!(race(&body, 64));
    let body = format!("{}\nbar.sync 0;\n{again}", exchange("bar.sync 0;", 33));
    assert!(run(&body, 64, &[0; 64], 64).is_ok());
}

#[test]
fn two_lanes_that_write_one_word_race() {
    assert!(race("mov.u32 %r10, buffer;\nst.shared.u32 [%r10], %r1;", 2));
    assert!(race("st.global.u32 [%rd2], %r1;", 2));
}

#[test]
fn blocks_race_with_each_other_in_global_memory() {
    let write = "st.global.u32 [%rd2], %r1;";
    let read = "mov.u32 %r10, %ctaid.x;\nsetp.eq.s32 %p1, %r10, 0;\n\
                @%p1 st.global.u32 [%rd2], %r1;\n@!%p1 ld.global.u32 %r11, [%rd2];";
    for (body, order) in [
        (write, Order::Ascending),
        (write, Order::Descending),
        (read, Order::Ascending),
    ] {
        let fault = run_grid(body, 2, 1, &[0], 1, order).expect_err("blocks race");
        assert!(matches!(fault.kind, FaultKind::Race { .. }), "{fault}");
    }
}
