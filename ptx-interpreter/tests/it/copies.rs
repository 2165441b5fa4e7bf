//! Asynchronous copies: nothing is there before its wait.

use ptx_interpreter::{FaultKind, Order};

use crate::{fault, run, run_counted};

/// Each of four threads copies 16 bytes into shared memory and, after `wait`, writes the word that
/// its neighbour copied.
fn copy(wait: &str) -> String {
    format!(
        "mov.u32 %r10, buffer;\nshl.b32 %r11, %r2, 4;\nadd.s32 %r12, %r10, %r11;\n\
         cvt.u64.u32 %rd6, %r11;\nadd.s64 %rd7, %rd1, %rd6;\n\
         cp.async.cg.shared.global [%r12], [%rd7], 16;\n{wait}\n\
         xor.b32 %r13, %r11, 16;\nadd.s32 %r13, %r10, %r13;\nld.shared.u32 %r14, [%r13];\n\
         st.global.u32 [%rd5], %r14;"
    )
}

const COMMIT: &str = "cp.async.commit_group;";
const WAIT: &str = "cp.async.wait_group 0;";
const BARRIER: &str = "bar.sync 0;";

#[test]
fn what_was_waited_for_is_there() {
    let input: Vec<u32> = (0..64).collect();
    for wait in [
        format!("{COMMIT}\n{WAIT}\n{BARRIER}"),
        format!("cp.async.wait_all;\n{BARRIER}"),
    ] {
        assert_eq!(run(&copy(&wait), 4, &input, 4), Ok(vec![4, 0, 12, 8]));
    }
}

#[test]
fn every_missing_part_is_caught() {
    let no_wait = copy(&format!("{COMMIT}\n{BARRIER}"));
    assert!(matches!(fault(&no_wait, 4), FaultKind::InFlight { .. }));
    let no_commit = copy(&format!("{WAIT}\n{BARRIER}"));
    assert!(matches!(fault(&no_commit, 4), FaultKind::InFlight { .. }));
    let too_lax = copy(&format!("{COMMIT}\ncp.async.wait_group 1;\n{BARRIER}"));
    assert!(matches!(fault(&too_lax, 4), FaultKind::InFlight { .. }));
    let no_barrier = copy(&format!("{COMMIT}\n{WAIT}"));
    assert!(matches!(fault(&no_barrier, 4), FaultKind::Race { .. }));
    let unused = "mov.u32 %r10, buffer;\ncp.async.ca.shared.global [%r10], [%rd1], 4;";
    assert_eq!(fault(unused, 1), FaultKind::NeverWaited);
    let overwritten = format!("{unused}\nst.shared.u32 [%r10], %r1;\ncp.async.wait_all;");
    assert!(matches!(fault(&overwritten, 1), FaultKind::InFlight { .. }));
}

#[test]
fn an_older_group_is_there_while_a_newer_one_is_under_way() {
    let two = |wait: &str, read: u32| {
        format!(
            "mov.u32 %r10, buffer;\ncp.async.ca.shared.global [%r10], [%rd1], 4;\n{COMMIT}\n\
             cp.async.ca.shared.global [%r10+4], [%rd1+4], 4;\n{COMMIT}\n{wait}\n\
             ld.shared.u32 %r11, [%r10+{read}];\ncp.async.wait_all;\nst.global.u32 [%rd5], %r11;"
        )
    };
    assert_eq!(
        run(&two("cp.async.wait_group 1;", 0), 1, &[7, 8], 1),
        Ok(vec![7])
    );
    assert!(matches!(
        fault(&two("cp.async.wait_group 1;", 4), 1),
        FaultKind::InFlight { .. }
    ));
}

#[test]
fn what_is_not_read_is_filled_up_with_zeros() {
    let filled = |bytes: u32| {
        format!(
            "mov.u32 %r10, buffer;\nmov.u32 %r11, {bytes};\n\
             cp.async.cg.shared.global [%r10], [%rd1+16], 16, %r11;\ncp.async.wait_all;\n\
             ld.shared.v4.u32 {{%r12, %r13, %r14, %r15}}, [%r10];\n\
             st.global.v4.u32 [%rd2], {{%r12, %r13, %r14, %r15}};"
        )
    };
    let input: Vec<u32> = (0..8).map(|i| 0x0101_0101 * (i + 1)).collect();
    let copied = |bytes| run(&filled(bytes), 1, &input, 4);
    assert_eq!(copied(6), Ok(vec![0x0505_0505, 0x0606, 0, 0]));
    assert_eq!(copied(0), Ok(vec![0; 4]));
    // The buffer ends after two of the four words.
    assert_eq!(
        run(&filled(8), 1, &input[..6], 4),
        Ok(vec![0x0505_0505, 0x0606_0606, 0, 0])
    );
    assert!(run(&filled(12), 1, &input[..6], 4).is_err());
    assert!(copied(17).is_err());
}

#[test]
fn copies_that_nobody_reads_are_counted() {
    let unread = |then: &str, read: u32| {
        let body = format!(
            "mov.u32 %r10, buffer;\ncp.async.ca.shared.global [%r10], [%rd1], 4;\n\
             cp.async.cg.shared.global [%r10+16], [%rd1+16], 16;\ncp.async.wait_all;\n{then}\n\
             ld.shared.u32 %r11, [%r10+{read}];\nst.global.u32 [%rd5], %r11;"
        );
        let input: Vec<u32> = (0..8).collect();
        let run = run_counted(&body, [1, 1], &input, 1, Order::Ascending);
        run.map(|(words, statistics)| (words[0], statistics.unread_copies))
    };
    // A byte of one is read, then of the other.
    assert_eq!(unread("", 0), Ok((0, 1)));
    assert_eq!(unread("", 28), Ok((7, 1)));
    assert_eq!(unread("ld.shared.u32 %r12, [%r10];", 20), Ok((5, 0)));
    // What was written over is not what was copied.
    assert_eq!(unread("st.shared.u32 [%r10], %r2;", 0), Ok((0, 2)));
    // Nor is what was copied over.
    let again = "cp.async.ca.shared.global [%r10], [%rd1+4], 4;\ncp.async.wait_all;";
    assert_eq!(unread(again, 0), Ok((1, 2)));
}
