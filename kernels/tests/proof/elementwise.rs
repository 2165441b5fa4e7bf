//! Cases of the kernels over rows.

use crate::case::{
    Case, Value, bytes_of_f32, bytes_of_u32, in_f32, in_u32, noted, out_f32, written,
};
use crate::random::Random;
use crate::reference::{quantised, rope as rotate};
use lockstep::backend::exp::{gelu, silu};
use lockstep::backend::reference;
use lockstep_kernels::Shape;

pub(crate) fn cases() -> Vec<Case> {
    let mut out = Vec::new();
    for (n, rows) in [(1, 1), (63, 2), (64, 1), (65, 1), (192, 3), (577, 2)] {
        out.push(rms_norm(n, rows));
    }
    for blocks in [1, 8, 9, 40] {
        out.push(quantise(32, blocks));
    }
    for blocks in [1, 8, 39] {
        out.push(quantise(256, blocks));
    }
    for n in [1, 255, 256, 700] {
        out.extend(pairs(n));
    }
    for (n, rows) in [(300, 14), (1, 3), (128, 2)] {
        out.push(check_rows(n, rows));
        out.push(gather_rows(n, rows));
    }
    for (heads, dim) in [(1, 64), (9, 64), (3, 2), (5, 128)] {
        out.push(rope(heads, dim, 2, 1));
        out.push(rope(heads, dim, 1, dim / 2));
    }
    out
}

/// Shapes that nobody chose.
pub(crate) fn random(random: &mut Random) -> Vec<Case> {
    let mut below = |end| 1 + random.below(end) as usize;
    let mut out = Vec::new();
    for _ in 0..3 {
        out.push(rms_norm(below(5000), below(9)));
        out.extend([32, 256].map(|block| quantise(block, below(60))));
        out.extend(pairs(below(4000)));
        out.push(check_rows(below(3000), below(20)));
        out.push(gather_rows(below(3000), below(20)));
    }
    out
}

fn rms_norm(n: usize, rows: usize) -> Case {
    let mut random = Random::new(n as u64);
    let mut x: Vec<f32> = (0..n * rows).map(|_| random.edgy()).collect();
    if rows > 2 {
        x[..n].fill(0.0);
    }
    let weight = random.floats(n);
    let epsilon = 1e-5;
    let norm = |row| reference::rms_norm(row, &weight, epsilon);
    let expected: Vec<f32> = x.chunks(n).flat_map(norm).collect();
    let shape = Shape {
        rows: rows as u32,
        ..Shape::default()
    };
    let values = vec![
        in_f32(&x),
        in_f32(&weight),
        out_f32(&expected),
        Value::U32(n as u32),
        Value::F32(epsilon),
    ];
    Case::new("rms_norm", format!("{rows} rows of {n}"), shape, values)
}

fn quantise(block: usize, blocks: usize) -> Case {
    let mut random = Random::new((block * blocks) as u64);
    let mut x = random.activations(block * blocks);
    // Halves that tie, the greatest magnitude that is too small, and the least that is not.
    x[..block].fill(0.5);
    x[0] = -127.0;
    if blocks > 4 {
        x[block..2 * block].fill(f32::from_bits((27 << 23) - 1));
        x[2 * block..3 * block].fill(-f32::from_bits(27 << 23));
        x[3 * block..4 * block].fill(-0.0);
        x[4 * block] = f32::MAX;
        // The greatest magnitude anywhere, of either sign.
        for (i, block) in x.chunks_mut(block).enumerate().skip(5) {
            let at = i * 37 % block.len();
            block.fill_with(|| random.float());
            block[at] = if i % 3 == 0 { -4.0 } else { 4.0 };
        }
    }
    let (q, d, sums) = quantised(&x, block);
    let shape = Shape {
        elements: blocks as u32,
        ..Shape::default()
    };
    let values = vec![
        in_f32(&x),
        Value::Out(written(q)),
        out_f32(&d),
        Value::Out(written(bytes_of_u32(&sums))),
        Value::U32(blocks as u32),
    ];
    Case::new(
        &format!("quantise_{block}"),
        format!("{blocks} blocks"),
        shape,
        values,
    )
}

fn pairs(n: usize) -> [Case; 3] {
    let mut random = Random::new(n as u64 + 1000);
    let a: Vec<f32> = (0..n)
        .map(|i| match i % 50 {
            0 => 100.0,
            1 => -100.0,
            2 => -88.37,
            3 => 87.33,
            4 => 87.34,
            // GELU's exponential is then that of 88.37, the greatest that is finite.
            5 => f32::from_bits(0xc120_bb82),
            _ => random.edgy() * 8.0,
        })
        .collect();
    let b: Vec<f32> = (0..n).map(|_| random.edgy()).collect();
    let shape = Shape {
        elements: n as u32,
        ..Shape::default()
    };
    let case = |entry: &str, of: fn(f32, f32) -> f32| {
        let expected: Vec<f32> = a.iter().zip(&b).map(|(a, b)| of(*a, *b)).collect();
        let values = vec![
            in_f32(&a),
            in_f32(&b),
            out_f32(&expected),
            Value::U32(n as u32),
        ];
        Case::new(entry, format!("{n} elements"), shape, values)
    };
    [
        case("add", |a, b| a + b),
        case("silu_mul", |gate, up| silu(gate) * up),
        case("gelu_mul", |gate, up| gelu(gate) * up),
    ]
}

fn rope(heads: usize, dim: usize, stride: usize, offset: usize) -> Case {
    let mut random = Random::new((heads * dim + stride) as u64);
    let positions = [3, 0, 6];
    let half = dim / 2;
    let x: Vec<f32> = (0..positions.len() * heads * dim)
        .map(|_| random.edgy())
        .collect();
    let angle = |i: usize| (i / half) as f64 * 0.7_f64.powi((i % half) as i32);
    let cosines: Vec<f32> = (0..7 * half).map(|i| angle(i).cos() as f32).collect();
    let sines: Vec<f32> = (0..7 * half).map(|i| angle(i).sin() as f32).collect();
    let mut expected = x.clone();
    for (row, position) in expected.chunks_mut(heads * dim).zip(positions) {
        let table = position as usize * half..(position as usize + 1) * half;
        for head in row.chunks_mut(dim) {
            rotate(
                head,
                &cosines[table.clone()],
                &sines[table.clone()],
                stride,
                offset,
            );
        }
    }
    let shape = Shape {
        rows: positions.len() as u32,
        ..Shape::default()
    };
    let values = vec![
        Value::InOut(bytes_of_f32(&x), written(bytes_of_f32(&expected))),
        in_f32(&cosines),
        in_f32(&sines),
        in_u32(&positions),
        Value::U32(heads as u32),
        Value::U32(dim as u32),
        Value::U32(stride as u32),
        Value::U32(offset as u32),
    ];
    Case::new(
        "rope",
        format!("{heads} heads of {dim}, stride {stride}"),
        shape,
        values,
    )
}

fn check_rows(n: usize, rows: usize) -> Case {
    let mut random = Random::new(n as u64);
    let mut x: Vec<f32> = (0..n * rows).map(|_| random.edgy()).collect();
    // One value of a row, in any warp's part, and the first of a second turn; every fourth row has
    // none.
    let broken = [f32::INFINITY, f32::NAN, f32::NEG_INFINITY, f32::MAX];
    for row in 0..rows {
        let place = if row == 0 { 128 } else { row * 37 };
        x[row * n + place % n] = broken[row % 4];
    }
    let flags: Vec<u32> = (0..rows).map(|row| u32::from(row % 4 != 3)).collect();
    let shape = Shape {
        rows: rows as u32,
        ..Shape::default()
    };
    let values = vec![in_f32(&x), noted(&flags), Value::U32(n as u32)];
    Case::new("check_rows", format!("{rows} rows of {n}"), shape, values)
}

fn gather_rows(n: usize, rows: usize) -> Case {
    let x = Random::new(n as u64).floats(n * rows);
    let chosen: Vec<u32> = [rows - 1, 0, rows / 2].map(|row| row as u32).to_vec();
    let row = |row: &u32| x[*row as usize * n..][..n].to_vec();
    let expected: Vec<f32> = chosen.iter().flat_map(row).collect();
    let shape = Shape {
        rows: chosen.len() as u32,
        ..Shape::default()
    };
    let values = vec![
        in_f32(&x),
        in_u32(&chosen),
        out_f32(&expected),
        Value::U32(n as u32),
    ];
    Case::new("gather_rows", format!("{rows} rows of {n}"), shape, values)
}
