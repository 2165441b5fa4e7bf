//! Pairs of halves, bf16, and the products and loads of 16-bit matrices.

use crate::run;

/// One thread computes `code` from input words in %r10, %r11, %r12 into %r13.
fn value(code: &str, input: [u32; 3]) -> u32 {
    let body = format!(
        "ld.global.u32 %r10, [%rd1];\nld.global.u32 %r11, [%rd1+4];\n\
         ld.global.u32 %r12, [%rd1+8];\n{code}\nst.global.u32 [%rd5], %r13;"
    );
    run(&body, 1, &input, 1).unwrap_or_else(|fault| panic!("{code}: {fault}"))[0]
}

/// Words of two halves, the lower one first in the text.
const ONE_TWO: u32 = 0x4000_3c00;
const THREE_HALF: u32 = 0x3800_4200;

#[test]
fn pairs_of_halves_are_rounded_once_each() {
    let cases = [
        // 1 + 3, 2 + 0.5
        (
            "add.rn.f16x2 %r13, %r10, %r11;",
            [ONE_TWO, THREE_HALF, 0],
            0x4100_4400,
        ),
        // 1 - 3, 2 - 0.5
        (
            "sub.rn.f16x2 %r13, %r10, %r11;",
            [ONE_TWO, THREE_HALF, 0],
            0x3e00_c000,
        ),
        // 1.0009766^2 = 1.001954 and a half step: to even; the upper one overflows.
        (
            "mul.rn.f16x2 %r13, %r10, %r11;",
            [0x7bff_3c01, 0x4000_3c01, 0],
            0x7c00_3c02,
        ),
        // 1.0009766^2 - 1.0019531 = 2^-20, which a product rounded first would lose; 2 * 0.5 + 0
        (
            "fma.rn.f16x2 %r13, %r10, %r11, %r12;",
            [0x4000_3c01, 0x3800_3c01, 0x0000_bc02],
            0x3c00_0010,
        ),
        // The least half squared is lost beside 1; 65504 * 2 - 65504 is 65504.
        (
            "fma.rn.f16x2 %r13, %r10, %r11, %r12;",
            [0x7bff_0001, 0x4000_0001, 0xfbff_3c00],
            0x7bff_3c00,
        ),
        // 2048 + 1 is a tie, to even; a least half squared above it rounds up.
        (
            "fma.rn.f16x2 %r13, %r10, %r11, %r12;",
            [0x3c00_3c00, 0x3c00_3c00, 0x6800_6800],
            0x6800_6800,
        ),
        ("neg.f16x2 %r13, %r10;", [ONE_TWO, 0, 0], 0xc000_bc00),
    ];
    for (code, input, expected) in cases {
        let found = value(code, input);
        assert_eq!(found, expected, "{code} of {input:x?} is {found:x}");
    }
}

#[test]
fn a_brain_float_is_the_nearest_with_ties_to_even() {
    let code = "mov.b32 %f1, %r10;\ncvt.rn.bf16.f32 %h1, %f1;\nmov.u32 %r12, 0;\n\
        cvt.u32.u16 %r13, %h1;";
    for (input, expected) in [
        (0x3f80_0000, 0x3f80),
        (0x3f80_8000, 0x3f80),
        (0x3f80_8001, 0x3f81),
        (0x3f81_8000, 0x3f82),
        (0xff7f_ffff, 0xff80),
        (0x0000_8001, 0x0001),
        (0xffc0_0000, 0x7fff),
    ] {
        assert_eq!(value(code, [input, 0, 0]), expected, "{input:x}");
    }
}

/// The places of a lane's elements, by the manual's tables for `mma.m16n8k16` of 16-bit types.
fn place_a(lane: usize, i: usize) -> (usize, usize) {
    let row = if matches!(i, 0 | 1 | 4 | 5) {
        lane / 4
    } else {
        lane / 4 + 8
    };
    (row, lane % 4 * 2 + i % 2 + if i < 4 { 0 } else { 8 })
}

fn place_b(lane: usize, i: usize) -> (usize, usize) {
    (lane % 4 * 2 + i % 2 + if i < 2 { 0 } else { 8 }, lane / 4)
}

fn place_c(lane: usize, i: usize) -> (usize, usize) {
    (
        if i < 2 { lane / 4 } else { lane / 4 + 8 },
        lane % 4 * 2 + i % 2,
    )
}

/// Small numbers, so that sums are exact in any order.
fn a(row: usize, k: usize) -> i32 {
    ((row * 37 + k * 11 + row * k) % 31) as i32 - 15
}

fn b(k: usize, column: usize) -> i32 {
    ((k * 53 + column * 29 + 7) % 29) as i32 - 14
}

fn c(row: usize, column: usize) -> i32 {
    (row * 100 + column) as i32 - 800
}

/// Bits of an integer of at most eight bits as a half, and as a bf16.
fn half(x: i32) -> u32 {
    let x = x as f32;
    let bits = x.to_bits();
    let sign = bits >> 16 & 0x8000;
    if x == 0.0 {
        0
    } else {
        sign | ((bits & 0x7fff_ffff) - (112 << 23)) >> 13
    }
}

fn brain(x: i32) -> u32 {
    (x as f32).to_bits() >> 16
}

/// An element by its place.
type Element = fn(usize, usize) -> i32;

fn product(kind: &str, bits: fn(i32) -> u32, [a, b, c]: [Element; 3]) -> Vec<u32> {
    let mut input = Vec::new();
    for lane in 0..32 {
        for word in 0..4 {
            let element = |i| {
                let (row, k) = place_a(lane, i);
                bits(a(row, k))
            };
            input.push(element(word * 2) | element(word * 2 + 1) << 16);
        }
        for word in 0..2 {
            let element = |i| {
                let (k, column) = place_b(lane, i);
                bits(b(k, column))
            };
            input.push(element(word * 2) | element(word * 2 + 1) << 16);
        }
        for i in 0..4 {
            let (row, column) = place_c(lane, i);
            input.push((c(row, column) as f32).to_bits());
        }
    }
    let body = format!(
        "mul.wide.u32 %rd6, %r2, 40;\nadd.s64 %rd6, %rd1, %rd6;\n\
         ld.global.v2.u32 {{%r10, %r11}}, [%rd6];\nld.global.v2.u32 {{%r12, %r13}}, [%rd6+8];\n\
         ld.global.v2.u32 {{%r14, %r15}}, [%rd6+16];\nld.global.v2.f32 {{%f1, %f2}}, [%rd6+24];\n\
         ld.global.v2.f32 {{%f3, %f4}}, [%rd6+32];\n\
         mma.sync.aligned.m16n8k16.row.col.f32.{kind}.{kind}.f32 {{%f5, %f6, %f7, %f8}}, \
         {{%r10, %r11, %r12, %r13}}, {{%r14, %r15}}, {{%f1, %f2, %f3, %f4}};\n\
         mul.wide.u32 %rd7, %r2, 16;\nadd.s64 %rd7, %rd2, %rd7;\n\
         st.global.v4.f32 [%rd7], {{%f5, %f6, %f7, %f8}};"
    );
    run(&body, 32, &input, 128).unwrap_or_else(|fault| panic!("{fault}"))
}

#[test]
fn a_product_of_16_bit_floats_is_the_sum_of_products() {
    for (kind, bits) in [("f16", half as fn(i32) -> u32), ("bf16", brain)] {
        for (index, word) in product(kind, bits, [a, b, c]).iter().enumerate() {
            let (row, column) = place_c(index / 4, index % 4);
            let sum: i32 = (0..16).map(|k| a(row, k) * b(k, column)).sum();
            let expected = (sum + c(row, column)) as f32;
            assert_eq!(
                f32::from_bits(*word),
                expected,
                "{kind}: row {row}, column {column}"
            );
        }
    }
}

/// Lanes store their rows of four matrices, and load them as fragments.
fn loaded(modifiers: &str, count: usize) -> Vec<u32> {
    // Lane l writes row l % 8 of matrix l / 8 at row l: elements 8 l and so on.
    let input: Vec<u32> = (0..128).map(|i| (2 * i) | ((2 * i + 1) << 16)).collect();
    let registers = ["%r20", "%r21", "%r22", "%r23"];
    let body = format!(
        "shl.b32 %r3, %r2, 4;\ncvt.u64.u32 %rd6, %r3;\nadd.s64 %rd7, %rd1, %rd6;\n\
         ld.global.v4.u32 {{%r10, %r11, %r12, %r13}}, [%rd7];\nmov.u32 %r4, buffer;\n\
         add.s32 %r4, %r4, %r3;\nst.shared.v4.u32 [%r4], {{%r10, %r11, %r12, %r13}};\n\
         bar.warp.sync -1;\nmov.u32 %r20, 0;\nmov.u32 %r21, 0;\nmov.u32 %r22, 0;\nmov.u32 %r23, 0;\n\
         ldmatrix.sync.aligned.m8n8.{modifiers}.b16 {{{}}}, [%r4];\nadd.s64 %rd8, %rd2, %rd6;\n\
         st.global.v4.u32 [%rd8], {{%r20, %r21, %r22, %r23}};",
        registers[..count].join(", ")
    );
    run(&body, 32, &input, 128).unwrap_or_else(|fault| panic!("{fault}"))
}

#[test]
fn a_lane_loads_its_pair_of_each_matrix() {
    for (count, name) in [(1, "x1"), (2, "x2"), (4, "x4")] {
        let plain = loaded(&format!("{name}.shared"), count);
        let transposed = loaded(&format!("{name}.trans.shared"), count);
        for lane in 0..32 {
            for matrix in 0..count {
                let element = |row: usize, column: usize| (matrix * 64 + row * 8 + column) as u32;
                let (row, column) = (lane / 4, lane % 4 * 2);
                let pair = element(row, column) | element(row, column + 1) << 16;
                assert_eq!(plain[lane * 4 + matrix], pair, "lane {lane} of {name}");
                let pair = element(column, row) | element(column + 1, row) << 16;
                assert_eq!(transposed[lane * 4 + matrix], pair, "lane {lane} of {name}");
            }
        }
    }
}

#[test]
fn floats_are_added_in_ascending_order_and_rounded_each_time() {
    // 2^24 and then fifteen ones, each of which is lost; the other way round none would be.
    fn first(k: usize) -> i32 {
        if k == 0 { 1 << 12 } else { 1 }
    }
    fn last(k: usize) -> i32 {
        if k == 15 { 1 << 12 } else { 1 }
    }
    let sum = |a: Element, b: Element| f32::from_bits(product("f16", half, [a, b, |_, _| 0])[0]);
    assert_eq!(sum(|_, k| first(k), |k, _| first(k)), 16_777_216.0);
    assert_eq!(sum(|_, k| last(k), |k, _| last(k)), 16_777_232.0);
}
