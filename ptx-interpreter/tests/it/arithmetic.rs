//! Each operation against the value that the PTX manual gives it.

use crate::run;

/// One thread computes `code` from input words in %r10, %r11, %r12 (as floats: %f1 to %f3) into
/// %r13.
fn value(code: &str, input: [u32; 3]) -> u32 {
    let body = format!(
        "ld.global.u32 %r10, [%rd1];\nld.global.u32 %r11, [%rd1+4];\n\
         ld.global.u32 %r12, [%rd1+8];\nmov.b32 %f1, %r10;\nmov.b32 %f2, %r11;\n\
         mov.b32 %f3, %r12;\n{code}\nst.global.u32 [%rd5], %r13;"
    );
    run(&body, 1, &input, 1).unwrap_or_else(|fault| panic!("{code}: {fault}"))[0]
}

fn float(code: &str, a: f32, b: f32, c: f32) -> f32 {
    let code = format!("{code}\nmov.b32 %r13, %f4;");
    f32::from_bits(value(&code, [a.to_bits(), b.to_bits(), c.to_bits()]))
}

fn minus(n: i32) -> u32 {
    n as u32
}

#[test]
fn integers_wrap_and_widen() {
    for (code, input, expected) in integer_cases() {
        assert_eq!(value(code, input), expected, "{code} of {input:x?}");
    }
}

/// Code, the words it reads, and the word it gives.
type Case = (&'static str, [u32; 3], u32);

fn integer_cases() -> Vec<Case> {
    [plain_cases(), bit_cases()].concat()
}

fn plain_cases() -> Vec<Case> {
    vec![
        ("add.s32 %r13, %r10, %r11;", [u32::MAX, 2, 0], 1),
        ("sub.s32 %r13, %r10, %r11;", [1, 2, 0], minus(-1)),
        (
            "mul.lo.s32 %r13, %r10, %r11;",
            [minus(-3), 5, 0],
            minus(-15),
        ),
        ("mul.hi.s32 %r13, %r10, %r11;", [minus(-1), 5, 0], minus(-1)),
        ("mul.hi.u32 %r13, %r10, %r11;", [u32::MAX, 5, 0], 4),
        ("mad.lo.s32 %r13, %r10, %r11, %r12;", [3, 5, 7], 22),
        ("div.s32 %r13, %r10, %r11;", [minus(-7), 2, 0], minus(-3)),
        ("rem.u32 %r13, %r10, %r11;", [7, 4, 0], 3),
        ("min.s32 %r13, %r10, %r11;", [minus(-7), 2, 0], minus(-7)),
        ("min.u32 %r13, %r10, %r11;", [minus(-7), 2, 0], 2),
        ("shl.b32 %r13, %r10, %r11;", [3, 31, 0], 0x8000_0000),
        ("shl.b32 %r13, %r10, %r11;", [3, 32, 0], 0),
        ("shr.u32 %r13, %r10, %r11;", [minus(-8), 1, 0], 0x7fff_fffc),
        ("shr.s32 %r13, %r10, %r11;", [minus(-8), 40, 0], minus(-1)),
    ]
}

fn bit_cases() -> Vec<Case> {
    vec![
        ("not.b32 %r13, %r10;", [1, 0, 0], minus(-2)),
        ("clz.b32 %r13, %r10;", [1, 0, 0], 31),
        ("popc.b32 %r13, %r10;", [0xf0f, 0, 0], 8),
        ("bfe.u32 %r13, %r10, 8, 4;", [0xabcd, 0, 0], 0xb),
        ("bfe.s32 %r13, %r10, 8, 4;", [0xabcd, 0, 0], minus(-5)),
        ("bfi.b32 %r13, %r10, %r11, 8, 4;", [0xf5, 0xaaaa, 0], 0xa5aa),
        (
            "prmt.b32 %r13, %r10, %r11, 0x9140;",
            [0x0304_8102, 0x0807_0605, 0],
            0xff81_0502,
        ),
        (
            "shf.l.wrap.b32 %r13, %r10, %r11, 8;",
            [0x1234_5678, 0x9abc_def0, 0],
            0xbcde_f012,
        ),
        (
            "shf.r.wrap.b32 %r13, %r10, %r11, 8;",
            [0x1234_5678, 0x9abc_def0, 0],
            0xf012_3456,
        ),
        (
            "lop3.b32 %r13, %r10, %r11, %r12, 0xea;",
            [0b1100, 0b1010, 0b0001],
            0b1001,
        ),
        (
            "dp4a.s32.s32 %r13, %r10, %r11, %r12;",
            [0x01ff_0280, 0x0302_0201, 7],
            minus(-116),
        ),
        (
            "dp4a.u32.s32 %r13, %r10, %r11, %r12;",
            [0xff, 0xff, 7],
            minus(-248),
        ),
        ("cvt.s32.s8 %r13, %r10;", [0x80, 0, 0], minus(-128)),
        (
            "mov.b32 {%h1, %h2}, %r10;\nmov.b32 %r13, {%h2, %h1};",
            [0x0001_0002, 0, 0],
            0x0002_0001,
        ),
        (
            "setp.lt.s32 %p1, %r10, %r11;\nselp.b32 %r13, 1, 2, %p1;",
            [minus(-1), 0, 0],
            1,
        ),
        (
            "setp.lt.u32 %p1, %r10, %r11;\nselp.b32 %r13, 1, 2, %p1;",
            [minus(-1), 0, 0],
            2,
        ),
    ]
}

#[test]
fn floats_round_once() {
    let tiny = f32::from_bits(1);
    for (code, a, b, c, expected) in [
        (
            "add.rn.f32 %f4, %f1, %f2;",
            1.0,
            2.0_f32.powi(-24),
            0.0,
            1.0,
        ),
        (
            "fma.rn.f32 %f4, %f1, %f2, %f3;",
            1.0 + f32::EPSILON,
            1.0 - f32::EPSILON,
            -1.0,
            -(f32::EPSILON * f32::EPSILON),
        ),
        ("mul.rn.f32 %f4, %f1, %f2;", tiny, 0.5, 0.0, 0.0),
        ("mul.rn.f32 %f4, %f1, %f2;", tiny, 2.0, 0.0, tiny * 2.0),
        ("div.rn.f32 %f4, %f1, %f2;", 1.0, 3.0, 0.0, 1.0 / 3.0),
        (
            "sqrt.rn.f32 %f4, %f1;",
            2.0,
            0.0,
            0.0,
            std::f32::consts::SQRT_2,
        ),
        ("max.f32 %f4, %f1, %f2;", f32::NAN, 1.0, 0.0, 1.0),
        ("max.f32 %f4, %f1, %f2;", -0.0, 0.0, 0.0, 0.0),
        ("min.f32 %f4, %f1, %f2;", -0.0, 0.0, 0.0, -0.0),
        ("abs.f32 %f4, %f1;", -0.0, 0.0, 0.0, 0.0),
        ("cvt.rni.f32.f32 %f4, %f1;", 2.5, 0.0, 0.0, 2.0),
    ] {
        assert_eq!(
            float(code, a, b, c).to_bits(),
            expected.to_bits(),
            "{code} of {a} {b} {c}"
        );
    }
    assert_eq!(
        float("sub.rn.f32 %f4, %f1, %f1;", f32::INFINITY, 0.0, 0.0).to_bits(),
        0x7fff_ffff
    );
}

#[test]
fn conversions_round_and_clamp() {
    for (code, a, expected) in [
        ("cvt.rni.s32.f32 %r13, %f1;", 2.5_f32, 2),
        ("cvt.rni.s32.f32 %r13, %f1;", -3.5, -4),
        ("cvt.rzi.s32.f32 %r13, %f1;", -3.5, -3),
        ("cvt.rmi.s32.f32 %r13, %f1;", -3.5, -4),
        ("cvt.rpi.s32.f32 %r13, %f1;", -3.5, -3),
        ("cvt.rzi.s32.f32 %r13, %f1;", 1e20, i32::MAX),
        ("cvt.rzi.u32.f32 %r13, %f1;", -1.0, 0),
        ("cvt.rzi.s32.f32 %r13, %f1;", f32::NAN, 0),
    ] {
        assert_eq!(
            value(code, [a.to_bits(), 0, 0]) as i32,
            expected,
            "{code} of {a}"
        );
    }
    let from = |n: i32| {
        value(
            "cvt.rn.f32.s32 %f4, %r10;\nmov.b32 %r13, %f4;",
            [n as u32, 0, 0],
        )
    };
    assert_eq!(from(16_777_217), 16_777_216.0_f32.to_bits());
    assert_eq!(from(-5), (-5.0_f32).to_bits());
}

#[test]
fn every_half_survives_and_every_f32_rounds_to_the_nearest_half() {
    let widen = "cvt.u16.u32 %h1, %r10;\ncvt.f32.f16 %f4, %h1;\nmov.b32 %r13, %f4;";
    let narrow = "cvt.rn.f16.f32 %h1, %f1;\ncvt.u32.u16 %r13, %h1;";
    for half in (0..0x7c00_u32)
        .step_by(37)
        .chain([0, 1, 0x3ff, 0x400, 0x7bff])
    {
        for half in [half, half | 0x8000] {
            assert_eq!(value(narrow, [value(widen, [half, 0, 0]), 0, 0]), half);
        }
    }
    for (x, half) in [
        (65_519.0_f32, 0x7bff),
        (65_520.0, 0x7c00),
        (1e30, 0x7c00),
        (2.0_f32.powi(-25), 0),
        (2.0_f32.powi(-25) * 1.000_001, 1),
        (2.0_f32.powi(-24) * 1.5, 2),
        (1.0 + 2.0_f32.powi(-11), 0x3c00),
        (1.0 + 3.0 * 2.0_f32.powi(-11), 0x3c02),
        (f32::from_bits(1), 0),
    ] {
        assert_eq!(value(narrow, [x.to_bits(), 0, 0]), half, "{x}");
    }
    assert_eq!(value(widen, [0x0001, 0, 0]), 2.0_f32.powi(-24).to_bits());
    assert_eq!(value(widen, [0xfc00, 0, 0]), f32::NEG_INFINITY.to_bits());
}
