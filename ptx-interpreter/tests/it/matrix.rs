//! The integer matrix product against the plain sums.

use crate::run;

/// Lane `lane` holds rows `lane / 4` and 8 more, four elements at `lane % 4 * 4` and 16 more.
#[test]
fn the_matrix_product_is_the_sum_of_products() {
    let a = |row: usize, k: usize| ((row * 37 + k * 11 + row * k) % 251) as u8 as i8;
    let b = |k: usize, column: usize| ((k * 53 + column * 29 + 7) % 253) as u8 as i8;
    let c = |row: usize, column: usize| (row * 100 + column) as i32 - 800;
    let word = |bytes: [i8; 4]| u32::from_le_bytes(bytes.map(|byte| byte as u8));
    let mut input = Vec::new();
    for lane in 0..32 {
        let (group, place) = (lane / 4, lane % 4);
        for (row, k) in [(group, 0), (group + 8, 0), (group, 16), (group + 8, 16)] {
            input.push(word(std::array::from_fn(|i| a(row, k + place * 4 + i))));
        }
        for k in [0, 16] {
            input.push(word(std::array::from_fn(|i| b(k + place * 4 + i, group))));
        }
        for (row, column) in [(group, 0), (group, 1), (group + 8, 0), (group + 8, 1)] {
            input.push(c(row, place * 2 + column) as u32);
        }
    }
    let body = "mul.wide.u32 %rd6, %r2, 40;\nadd.s64 %rd6, %rd1, %rd6;\n\
        ld.global.v2.u32 {%r10, %r11}, [%rd6];\nld.global.v2.u32 {%r12, %r13}, [%rd6+8];\n\
        ld.global.v2.u32 {%r14, %r15}, [%rd6+16];\nld.global.v2.u32 {%r16, %r17}, [%rd6+24];\n\
        ld.global.v2.u32 {%r18, %r19}, [%rd6+32];\n\
        mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 {%r20, %r21, %r22, %r23}, \
        {%r10, %r11, %r12, %r13}, {%r14, %r15}, {%r16, %r17, %r18, %r19};\n\
        mul.wide.u32 %rd7, %r2, 16;\nadd.s64 %rd7, %rd2, %rd7;\n\
        st.global.v4.u32 [%rd7], {%r20, %r21, %r22, %r23};";
    let out = run(body, 32, &input, 128).unwrap_or_else(|fault| panic!("{fault}"));
    for (index, word) in out.iter().enumerate() {
        let (lane, part) = (index / 4, index % 4);
        let row = lane / 4 + if part < 2 { 0 } else { 8 };
        let column = lane % 4 * 2 + part % 2;
        let sum: i32 = (0..32)
            .map(|k| i32::from(a(row, k)) * i32::from(b(k, column)))
            .sum();
        assert_eq!(
            *word as i32,
            sum + c(row, column),
            "row {row}, column {column}"
        );
    }
}

/// Half as long a sum: the first two registers of the one and the first of the other matrix.
#[test]
fn the_product_of_sixteen_elements_is_that_of_thirty_two_with_zeros() {
    let input: Vec<u32> = (0..32 * 8)
        .map(|i: u32| i.wrapping_mul(0x9e37_79b9))
        .collect();
    let product = |shape: &str, a: &str, b: &str| {
        let body = format!(
            "mul.wide.u32 %rd6, %r2, 32;\nadd.s64 %rd6, %rd1, %rd6;\nmov.u32 %r18, 0;\n\
             ld.global.v2.u32 {{%r10, %r11}}, [%rd6];\nld.global.u32 %r14, [%rd6+8];\n\
             mma.sync.aligned.{shape}.row.col.s32.s8.s8.s32 {{%r20, %r21, %r22, %r23}}, \
             {{%r10, %r11{a}}}, {{%r14{b}}}, {{%r14, %r10, %r11, %r18}};\n\
             mul.wide.u32 %rd7, %r2, 16;\nadd.s64 %rd7, %rd2, %rd7;\n\
             st.global.v4.u32 [%rd7], {{%r20, %r21, %r22, %r23}};"
        );
        run(&body, 32, &input, 128).unwrap_or_else(|fault| panic!("{fault}"))
    };
    let long = product("m16n8k32", ", %r18, %r18", ", %r18");
    assert_eq!(product("m16n8k16", "", ""), long);
}
