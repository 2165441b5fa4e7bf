//! What is refused before anything runs.

use ptx_interpreter::{Argument, FaultKind, Launch, Memory, Module};

use crate::kernel;

fn refused(body: &str) -> String {
    match Module::parse(&kernel(body)) {
        Ok(_) => panic!("accepted: {body}"),
        Err(error) => {
            assert!(error.line > 0, "{error}");
            error.message
        }
    }
}

#[test]
fn contractible_and_approximate_arithmetic_is_refused() {
    for body in [
        "add.f32 %f1, %f2, %f3;",
        "mul.f32 %f1, %f2, %f3;",
        "mul.rn.ftz.f32 %f1, %f2, %f3;",
        "div.full.f32 %f1, %f2, %f3;",
        "div.approx.f32 %f1, %f2, %f3;",
        "sqrt.approx.f32 %f1, %f2;",
        "rsqrt.approx.f32 %f1, %f2;",
        "ex2.approx.f32 %f1, %f2;",
        "fma.rz.f32 %f1, %f2, %f3, %f4;",
        "cvt.rz.f16.f32 %h1, %f1;",
        "add.rn.f64 %rd6, %rd7, %rd8;",
    ] {
        assert!(!refused(body).is_empty());
    }
}

#[test]
fn memory_without_a_name_is_refused() {
    refused("ld.u32 %r3, [%rd1];");
    refused("ld.local.u32 %r3, [%rd1];");
    refused("st.param.u32 [%rd1], %r3;");
}

#[test]
fn broken_texts_are_errors_with_a_line() {
    assert!(refused("mov.u32 %r3, %r99;").contains("%r99"));
    assert!(refused("bra nowhere;").contains("nowhere"));
    assert!(refused("mov.u32 %r3, ;").contains(';'));
    assert!(refused("ld.global.v2.u32 %r3, [%rd1];").contains("expected"));
    assert!(refused("frobnicate.u32 %r3;").contains("frobnicate"));
    for text in [
        "§",
        "/* open",
        ".entry",
        ".visible .entry k(",
        ".visible .entry k() { ret",
    ] {
        assert!(Module::parse(text).is_err(), "{text}");
    }
}

#[test]
fn every_prefix_of_a_kernel_is_an_error_or_a_module() {
    let text = kernel("@!%p1 bra $L;\nbar.sync 0;\n$L:\nmov.b32 {%h1, %h2}, %r2;");
    for end in 0..text.len() {
        let _ = Module::parse(&text[..end]);
    }
    assert!(Module::parse(&text).is_ok());
}

#[test]
fn a_launch_has_to_fit_its_kernel() {
    let module = Module::parse(&kernel("")).expect("it parses");
    let pointer = Argument::U64(0);
    let launch = |block, arguments| Launch::new(1, block, arguments);
    for launch in [
        launch(1, vec![pointer, pointer]),
        launch(1, vec![pointer, pointer, pointer]),
        launch(0, vec![pointer, pointer, Argument::U32(0)]),
        launch(1025, vec![pointer, pointer, Argument::U32(0)]),
        Launch {
            shared_bytes: 99 * 1024,
            ..launch(1, vec![pointer, pointer, Argument::U32(0)])
        },
        Launch {
            grid: [1, 0, 1],
            ..launch(1, vec![pointer, pointer, Argument::U32(0)])
        },
    ] {
        let fault = module
            .run("k", &launch, &mut Memory::new())
            .expect_err("it does not fit");
        assert!(matches!(fault.kind, FaultKind::Launch(_)), "{fault}");
    }
}
