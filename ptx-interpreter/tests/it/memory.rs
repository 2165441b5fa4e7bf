//! Stray, misaligned, premature and forbidden accesses.

use ptx_interpreter::{Argument, FaultKind, Launch, Memory, Module, Permission};

use crate::{fault, kernel, run};

#[test]
fn vectors_and_bytes_are_loaded_and_stored() {
    let body = "ld.global.v4.u32 {%r10, %r11, %r12, %r13}, [%rd1];\n\
                st.global.v2.u32 [%rd2], {%r13, %r12};\nld.global.s8 %r14, [%rd1+3];\n\
                st.global.u32 [%rd2+8], %r14;\nld.global.u8 %r14, [%rd1+3];\n\
                st.global.u32 [%rd2+12], %r14;";
    let out = run(body, 1, &[0xff00_0000, 2, 3, 4], 4);
    assert_eq!(out, Ok(vec![4, 3, u32::MAX, 0xff]));
}

#[test]
fn an_access_outside_of_its_buffer_is_caught() {
    let read = "ld.global.u32 %r10, [%rd1+256];\nst.global.u32 [%rd5], %r10;";
    assert!(matches!(
        fault(read, 1),
        FaultKind::OutOfBounds { bytes: 4, .. }
    ));
    let before = "ld.global.u32 %r10, [%rd1+-4];";
    assert!(matches!(fault(before, 1), FaultKind::OutOfBounds { .. }));
    let write = "st.global.u32 [%rd2+4], %r1;";
    assert!(matches!(fault(write, 1), FaultKind::OutOfBounds { .. }));
    let shared = "mov.u32 %r10, buffer;\nst.shared.u32 [%r10+512], %r1;";
    assert!(matches!(fault(shared, 1), FaultKind::OutOfBounds { .. }));
    let null = "mov.u64 %rd6, 0;\nld.global.u32 %r10, [%rd6];";
    assert!(matches!(fault(null, 1), FaultKind::OutOfBounds { .. }));
}

#[test]
fn a_misaligned_access_is_caught() {
    let wide = "ld.global.v2.u32 {%r10, %r11}, [%rd1+4];";
    assert!(matches!(
        fault(wide, 1),
        FaultKind::Misaligned { bytes: 8, .. }
    ));
    let shared = "mov.u32 %r10, buffer;\nst.shared.u32 [%r10+2], %r1;";
    assert!(matches!(
        fault(shared, 1),
        FaultKind::Misaligned { bytes: 4, .. }
    ));
}

#[test]
fn what_nothing_wrote_is_not_read() {
    let global = "ld.global.u32 %r10, [%rd2];";
    assert!(matches!(fault(global, 1), FaultKind::Uninitialised { .. }));
    let shared = "mov.u32 %r10, buffer;\nst.shared.u8 [%r10], %r1;\nld.shared.u32 %r11, [%r10];";
    assert!(matches!(fault(shared, 1), FaultKind::Uninitialised { .. }));
    assert_eq!(
        fault("add.s32 %r10, %r11, 1;", 1),
        FaultKind::UndefinedRegister("%r11".into())
    );
    let one_lane = "setp.eq.s32 %p1, %r2, 0;\n@%p1 mov.u32 %r10, 1;\nst.global.u32 [%rd5], %r10;";
    assert_eq!(
        fault(one_lane, 2),
        FaultKind::UndefinedRegister("%r10".into())
    );
}

#[test]
fn permissions_hold() {
    assert!(matches!(
        fault("st.global.u32 [%rd1], %r1;", 1),
        FaultKind::ReadOnly { .. }
    ));
    let body = "st.global.u32 [%rd5], %r1;\nld.global.nc.u32 %r10, [%rd5];";
    assert!(matches!(fault(body, 1), FaultKind::NonCoherent { .. }));
}

#[test]
fn shared_memory_is_forgotten_between_blocks() {
    let body = "mov.u32 %r10, %ctaid.x;\nsetp.eq.s32 %p1, %r10, 0;\nmov.u32 %r11, dynamic;\n\
                @%p1 st.shared.u32 [%r11], %r1;\nld.shared.u32 %r12, [%r11];";
    let module = Module::parse(&kernel(body)).expect("it parses");
    let mut memory = Memory::new();
    let buffer = Argument::Buffer(memory.upload(&[0; 4], Permission::Write));
    let mut launch = Launch::new(2, 1, vec![buffer, buffer, Argument::U32(0)]);
    launch.shared_bytes = 4;
    let fault = module
        .run("k", &launch, &mut memory)
        .expect_err("block 1 reads nothing's write");
    assert!(
        matches!(fault.kind, FaultKind::Uninitialised { .. }),
        "{fault}"
    );
    assert_eq!(fault.block, 1);
}

#[test]
fn a_division_by_zero_and_an_endless_loop_are_caught() {
    assert_eq!(
        fault("mov.u32 %r10, 0;\ndiv.u32 %r11, %r1, %r10;", 1),
        FaultKind::DivisionByZero
    );
    assert_eq!(fault("$again:\nbra $again;", 1), FaultKind::StepLimit);
}
