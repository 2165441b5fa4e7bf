//! Every operation on every instruction set against the scalar reference, bit for bit.

use std::sync::Mutex;

use half::f16;
use lockstep_simd::attention::{self, Item, ROWS};
use lockstep_simd::linear::Output;
use lockstep_simd::rows;
use quickcheck::{Arbitrary, Gen, QuickCheck};

use super::activations::{Activations, Form};
use super::attention::Scratch;
use super::device::linear;
use super::kv::{KvDtype, KvPool, KvShape};
use super::pack::PackedMatrix;
use super::pool::Pool;
use crate::backend::reference::{self, SPLIT};
use crate::backend::{Isa, decode, exp};
use crate::gguf::GgmlType;

fn machine() -> impl Iterator<Item = Isa> {
    Isa::ALL.into_iter().filter(|isa| isa.available())
}

fn check(tests: u64, property: fn(u64) -> bool) {
    let seed = Gen::from_size_and_seed(100, 0x10c5_7e95);
    QuickCheck::new()
        .tests(tests)
        .rng(seed)
        .quickcheck(property);
}

fn bits(values: &[f32]) -> Vec<u32> {
    values.iter().map(|value| value.to_bits()).collect()
}

/// Activations of all kinds: ordinary, tiny, huge, subnormal, zeros of both signs.
fn activation(g: &mut Gen) -> f32 {
    let ordinary = (i32::arbitrary(g) % 4096) as f32 / 1024.0;
    match u8::arbitrary(g) % 16 {
        0 => 0.0,
        1 => -0.0,
        2 => f32::from_bits(u32::arbitrary(g) % 0x0080_0000),
        3 => ordinary * 1e-30,
        4 => ordinary * 1e12,
        _ => ordinary,
    }
}

fn half(g: &mut Gen) -> f16 {
    let ordinary = f16::from_f32((i32::arbitrary(g) % 4096) as f32 / 65536.0);
    match u8::arbitrary(g) % 16 {
        0 => f16::from_bits(u16::arbitrary(g) % 0x0400),
        1 => f16::from_f32(-0.0),
        2 => f16::MAX,
        _ => ordinary,
    }
}

/// A row's bytes: random codes, but scales that are numbers.
fn row_bytes(g: &mut Gen, ggml_type: GgmlType, inputs: usize) -> Vec<u8> {
    let mut bytes = Vec::new();
    for _ in 0..inputs / ggml_type.block_len() {
        let mut block: Vec<u8> = (0..ggml_type.block_bytes())
            .map(|_| u8::arbitrary(g))
            .collect();
        let mut put = |offset: usize, value: f16| {
            block[offset..offset + 2].copy_from_slice(&value.to_le_bytes());
        };
        match ggml_type {
            GgmlType::F32 => block.copy_from_slice(&activation(g).to_le_bytes()),
            GgmlType::F16 => put(0, half(g)),
            GgmlType::BF16 => {
                let value = half::bf16::from_f32(activation(g));
                block.copy_from_slice(&value.to_le_bytes());
            }
            GgmlType::Q4_0 | GgmlType::Q5_0 | GgmlType::Q8_0 | GgmlType::IQ4_NL => put(0, half(g)),
            GgmlType::IQ4_XS => put(0, half(g)),
            GgmlType::Q4_1 | GgmlType::Q5_1 | GgmlType::Q4_K | GgmlType::Q5_K => {
                put(0, half(g));
                put(2, half(g));
            }
            GgmlType::Q2_K => {
                put(80, half(g));
                put(82, half(g));
            }
            GgmlType::Q3_K => put(108, half(g)),
            GgmlType::Q6_K => put(208, half(g)),
            GgmlType::MXFP4 => block[0] = [0, 1, 2, 120, 127, 130, 140][block[0] as usize % 7],
        }
        bytes.extend(block);
    }
    bytes
}

/// A linear layer with its activations.
#[derive(Clone, Debug)]
struct Layer {
    ggml_type: GgmlType,
    outputs: usize,
    inputs: usize,
    bytes: Vec<u8>,
    rows: Vec<Vec<f32>>,
}

impl Layer {
    fn random(g: &mut Gen, ggml_type: GgmlType, rows: usize) -> Self {
        let inputs = match ggml_type.block_len() {
            256 => 256 * (1 + usize::arbitrary(g) % 5),
            _ => 32 * (1 + usize::arbitrary(g) % 36),
        };
        let outputs = 1 + usize::arbitrary(g) % 70;
        let bytes = (0..outputs)
            .flat_map(|_| row_bytes(g, ggml_type, inputs))
            .collect();
        let row = |g: &mut Gen| (0..inputs).map(|_| activation(g)).collect();
        let rows = (0..rows).map(|_| row(g)).collect();
        Self {
            ggml_type,
            outputs,
            inputs,
            bytes,
            rows,
        }
    }

    fn reference(&self) -> Vec<f32> {
        let row_bytes = self.bytes.len() / self.outputs;
        let weights: Vec<&[u8]> = self.bytes.chunks_exact(row_bytes).collect();
        let row = |x: &Vec<f32>| -> Vec<f32> {
            let dot = |bytes: &&[u8]| reference::dot(self.ggml_type, bytes, x);
            weights.iter().map(dot).collect()
        };
        self.rows.iter().flat_map(row).collect()
    }

    fn pack(&self) -> PackedMatrix {
        let mut pool = Pool::new(2).expect("threads");
        PackedMatrix::pack(
            self.ggml_type,
            self.outputs,
            self.inputs,
            &self.bytes,
            &mut pool,
        )
        .expect("memory")
    }

    fn run(&self, isa: Isa, packed: &PackedMatrix) -> Vec<f32> {
        let form = Form::of(self.ggml_type);
        let rows = self.rows.len();
        let activations = Activations::new(rows, self.inputs, &[form]).expect("memory");
        let mut out = vec![f32::NAN; rows * self.outputs];
        let output = Output {
            base: out.as_mut_ptr(),
            stride: self.outputs,
            add: false,
        };
        // SAFETY: the machine has `isa`; everything is as large as the shapes say.
        unsafe {
            for (row, x) in self.rows.iter().enumerate() {
                assert!(activations.write(isa, form, x, row, rows));
            }
            linear(
                isa,
                packed,
                0..packed.tiles(),
                &activations,
                rows,
                output,
                None,
            );
        }
        out
    }
}

#[test]
fn linear_layers_equal_the_reference() {
    check(12, |seed| {
        let g = &mut Gen::from_size_and_seed(100, seed);
        GgmlType::ALL.into_iter().all(|ggml_type| {
            let rows = 1 + usize::arbitrary(g) % 20;
            let layer = Layer::random(g, ggml_type, rows);
            let (expected, packed) = (bits(&layer.reference()), layer.pack());
            let right = |isa: &Isa| bits(&layer.run(*isa, &packed)) == expected;
            let wrong = machine().find(|isa| !right(isa));
            wrong
                .inspect(|isa| eprintln!("{ggml_type} differs on {isa}"))
                .is_none()
        })
    });
}

#[test]
fn rows_do_not_depend_on_their_batch() {
    let g = &mut Gen::from_size_and_seed(100, 7);
    for ggml_type in GgmlType::ALL {
        let all = Layer::random(g, ggml_type, 67);
        let packed = all.pack();
        let isa = Isa::best();
        let alone: Vec<Vec<u32>> = all
            .rows
            .iter()
            .map(|row| {
                let rows = vec![row.clone()];
                bits(
                    &Layer {
                        rows,
                        ..all.clone()
                    }
                    .run(isa, &packed),
                )
            })
            .collect();
        for count in 1..=67 {
            let rows = all.rows[..count].to_vec();
            let together = bits(
                &Layer {
                    rows,
                    ..all.clone()
                }
                .run(isa, &packed),
            );
            assert_eq!(
                together,
                alone[..count].concat(),
                "{ggml_type}, {count} rows"
            );
        }
    }
}

#[test]
fn packed_rows_decode_to_the_same_values() {
    let g = &mut Gen::from_size_and_seed(100, 3);
    for ggml_type in GgmlType::ALL {
        let layer = Layer::random(g, ggml_type, 0);
        let packed = layer.pack();
        let row_bytes = layer.bytes.len() / layer.outputs;
        for (output, bytes) in layer.bytes.chunks_exact(row_bytes).enumerate() {
            let (mut expected, mut found) = (vec![0.0; layer.inputs], vec![0.0; layer.inputs]);
            decode::row(ggml_type, bytes, &mut expected);
            packed.row(output, &mut found);
            assert_eq!(bits(&found), bits(&expected), "{ggml_type}, row {output}");
        }
    }
}

#[test]
fn packed_weights_are_about_as_large_as_the_file() {
    for ggml_type in GgmlType::ALL {
        let packed = PackedMatrix::packed_bytes(ggml_type, 576, 1536).expect("small");
        let file = 576 * 1536 / ggml_type.block_len() * ggml_type.block_bytes();
        assert!(
            packed as f64 <= 1.05 * file as f64,
            "{ggml_type}: {packed} of {file}"
        );
    }
}

#[test]
fn a_row_that_is_not_finite_is_found_and_harms_no_other() {
    let g = &mut Gen::from_size_and_seed(100, 5);
    for ggml_type in [GgmlType::Q4_1, GgmlType::Q6_K] {
        let layer = Layer::random(g, ggml_type, 3);
        let form = Form::of(ggml_type);
        for (isa, bad) in machine()
            .flat_map(|isa| [f32::NAN, f32::INFINITY, f32::NEG_INFINITY].map(|bad| (isa, bad)))
        {
            let activations = Activations::new(1, layer.inputs, &[form]).expect("memory");
            let mut x = layer.rows[0].clone();
            x[usize::arbitrary(g) % layer.inputs] = bad;
            // SAFETY: the machine has `isa`, there is one row.
            assert!(!unsafe { activations.write(isa, form, &x, 0, 1) });
            let zeros = vec![0.0; layer.inputs];
            let expected = Activations::new(1, layer.inputs, &[form]).expect("memory");
            // SAFETY: as above.
            assert!(unsafe { expected.write(isa, form, &zeros, 0, 1) });
            let len = lockstep_simd::activations::bytes_of(form, 1, layer.inputs);
            let written = |activations: &Activations| {
                // SAFETY: the row's bytes are there, and nobody writes them.
                unsafe { std::slice::from_raw_parts(activations.base(form, 1, layer.inputs), len) }
                    .to_vec()
            };
            assert!(
                written(&activations) == written(&expected),
                "{ggml_type} {isa} {bad}"
            );
        }
    }
}

#[test]
fn row_operations_equal_the_reference() {
    check(200, |seed| {
        let g = &mut Gen::from_size_and_seed(100, seed);
        let width = 16 * (1 + usize::arbitrary(g) % 40);
        let mut row = || -> Vec<f32> { (0..width).map(|_| activation(g).min(1e10)).collect() };
        let (x, y, angle) = (row(), row(), row());
        let cos: Vec<f32> = angle[..width / 2].iter().map(|a| libm::cosf(*a)).collect();
        let sin: Vec<f32> = angle[..width / 2].iter().map(|a| libm::sinf(*a)).collect();
        let twice =
            |v: &[f32], sign: f32| -> Vec<f32> { v.iter().flat_map(|v| [sign * v, *v]).collect() };
        let normed = reference::rms_norm(&x, &y, 1e-5);
        let gated: Vec<f32> = x.iter().zip(&y).map(|(x, y)| exp::silu(*x) * y).collect();
        let sum: Vec<f32> = x.iter().zip(&y).map(|(x, y)| x + y).collect();
        let mut turned = x.clone();
        reference::rope(&mut turned, &cos, &sin);
        machine().all(|isa| {
            let (mut n, mut s, mut a, mut r) = (x.clone(), x.clone(), x.clone(), x.clone());
            // SAFETY: the machine has `isa`.
            unsafe {
                rows::rms_norm(isa, &x, &y, 1e-5, &mut n);
                rows::silu_mul(isa, &mut s, &y);
                rows::add(isa, &mut a, &y);
                rows::rope(isa, &mut r, &twice(&cos, 1.0), &twice(&sin, -1.0));
            }
            bits(&n) == bits(&normed)
                && bits(&s) == bits(&gated)
                && bits(&a) == bits(&sum)
                && bits(&r) == bits(&turned)
        })
    });
}

/// A sequence's queries, keys and values.
struct Sequence {
    heads: usize,
    kv_heads: usize,
    head_dim: usize,
    positions: usize,
    queries: Vec<Vec<f32>>,
    keys: Vec<Vec<f32>>,
    values: Vec<Vec<f32>>,
}

impl Sequence {
    fn random(g: &mut Gen, dtype: KvDtype) -> Self {
        let kv_heads = 1 + usize::arbitrary(g) % 3;
        let heads = kv_heads * (1 + usize::arbitrary(g) % 5);
        let head_dim = [16, 32, 48, 64, 128][usize::arbitrary(g) % 5];
        let positions = [1, 17, 255, 256, 257, 300, 600][usize::arbitrary(g) % 7];
        let stored = |x: f32| match dtype {
            KvDtype::F16 => f16::from_f32(x).to_f32(),
            KvDtype::F32 => x,
        };
        let mut rows = |width: usize, scale: f32| -> Vec<Vec<f32>> {
            let element = |g: &mut Gen| activation(g).clamp(-8.0, 8.0) * scale;
            (0..positions)
                .map(|_| (0..width).map(|_| element(g)).collect())
                .collect()
        };
        let queries = rows(heads * head_dim, 1.0);
        let mut cached = || -> Vec<Vec<f32>> {
            let rows = rows(kv_heads * head_dim, 0.5);
            rows.into_iter()
                .map(|row| row.into_iter().map(stored).collect())
                .collect()
        };
        let (keys, values) = (cached(), cached());
        Self {
            heads,
            kv_heads,
            head_dim,
            positions,
            queries,
            keys,
            values,
        }
    }

    fn reference(&self, position: usize, scale: f32, window: usize) -> Vec<f32> {
        let group = self.heads / self.kv_heads;
        let head = |head: usize| -> Vec<f32> {
            let part =
                |row: &Vec<f32>, h: usize| row[h * self.head_dim..][..self.head_dim].to_vec();
            let take = |rows: &[Vec<f32>]| -> Vec<Vec<f32>> {
                rows[..=position]
                    .iter()
                    .map(|row| part(row, head / group))
                    .collect()
            };
            let query = part(&self.queries[position], head);
            reference::attention(
                &query,
                &take(&self.keys),
                &take(&self.values),
                scale,
                window,
            )
        };
        (0..self.heads).flat_map(head).collect()
    }

    /// A pool whose every unused element is NaN, with the sequence in blocks from the last to the
    /// first.
    fn store(&self, dtype: KvDtype, block_size: usize) -> (KvPool, Vec<u32>) {
        let blocks = self.positions.div_ceil(block_size);
        let shape = KvShape {
            layers: 2,
            heads: self.kv_heads,
            head_dim: self.head_dim,
            blocks: blocks + 1,
            block_size,
            dtype,
        };
        let table: Vec<u32> = (0..blocks as u32).rev().collect();
        let pool = KvPool::new(shape).expect("memory");
        let nan = vec![f32::NAN; self.head_dim];
        let put = |slot: usize, head: usize, key: &[f32], value: &[f32]| {
            // SAFETY: one thread.
            unsafe {
                for (i, (key, value)) in key
                    .as_chunks()
                    .0
                    .iter()
                    .zip(value.as_chunks().0)
                    .enumerate()
                {
                    pool.store_key(Isa::best(), 1, slot, head, 16 * i, key);
                    pool.store_value(Isa::best(), 1, slot, head, 16 * i, value);
                }
            }
        };
        for head in 0..self.kv_heads {
            for slot in 0..(blocks + 1) * block_size {
                put(slot, head, &nan, &nan);
            }
            for position in 0..self.positions {
                let slot = table[position / block_size] as usize * block_size;
                let range = head * self.head_dim..(head + 1) * self.head_dim;
                let (key, value) = (
                    &self.keys[position][range.clone()],
                    &self.values[position][range],
                );
                put(slot + position % block_size, head, key, value);
            }
        }
        (pool, table)
    }

    /// Attention of `rows` rows from `position` on, together.
    fn attend(
        &self,
        isa: Isa,
        (pool, table): &(KvPool, Vec<u32>),
        position: usize,
        rows: usize,
        scale: f32,
        window: usize,
    ) -> Vec<f32> {
        let (group, width) = (self.heads / self.kv_heads, self.heads * self.head_dim);
        let mut scratch = Scratch::new(group, self.head_dim);
        let queries = self.queries[position..position + rows].concat();
        let mut out = vec![f32::NAN; rows * width];
        for kv_head in 0..self.kv_heads {
            let first = kv_head * group * self.head_dim;
            // SAFETY: the machine has `isa`; the buffers hold the rows.
            unsafe {
                let item = Item {
                    layer: 1,
                    kv_head,
                    blocks: table,
                    position,
                    queries: queries.as_ptr().add(first),
                    out: out.as_mut_ptr().add(first),
                    query_stride: width,
                    out_stride: width,
                    rows,
                    group,
                    window,
                    scale,
                    next: None,
                };
                attention::attend(isa, **pool, item, scratch.as_mut_slice());
            }
        }
        out
    }
}

#[test]
fn attention_equals_the_reference_whatever_rows_and_blocks() {
    check(80, |seed| {
        let g = &mut Gen::from_size_and_seed(100, seed);
        let dtype = [KvDtype::F16, KvDtype::F32][usize::arbitrary(g) % 2];
        let sequence = Sequence::random(g, dtype);
        let scale = 1.0 / (sequence.head_dim as f32).sqrt();
        let rows = (1 + usize::arbitrary(g) % ROWS).min(sequence.positions);
        let last = sequence.positions - 1;
        let first = (last + 1 - rows).max(last / SPLIT * SPLIT);
        // None, one that is narrower than the rows, some inside and across splits, one that is wider.
        let window = [0, 1, 3, 16, 100, 255, 256, 257, 300, 1000][usize::arbitrary(g) % 10];
        let expected: Vec<f32> = (first..=last)
            .flat_map(|p| sequence.reference(p, scale, window))
            .collect();
        [16, 32, 48, 256].into_iter().all(|block_size| {
            let stored = sequence.store(dtype, block_size);
            machine().all(|isa| {
                let found = sequence.attend(isa, &stored, first, last + 1 - first, scale, window);
                bits(&found) == bits(&expected)
            })
        })
    });
}

#[test]
fn exponentials_are_one_definition() {
    // Through softmax of one dimension: a value of 1 and scores that run over the whole range.
    let worst = Mutex::new(0);
    for isa in machine() {
        for start in (-90_000..0).step_by(16) {
            let mut gate: Vec<f32> = (0..16).map(|i| (start + i) as f32 * -1e-3).collect();
            let expected: Vec<f32> = gate.iter().map(|x| exp::silu(*x)).collect();
            // SAFETY: the machine has `isa`.
            unsafe { rows::silu_mul(isa, &mut gate, &[1.0; 16]) };
            if bits(&gate) != bits(&expected) {
                *worst.lock().expect("one thread") += 1;
            }
        }
    }
    assert_eq!(*worst.lock().expect("one thread"), 0);
}

#[test]
fn halves_are_rounded_to_nearest_even() {
    let nearest = |x: f32| f16::from_f32(x).to_bits();
    for isa in machine() {
        for start in (0..u32::MAX - 0x10_0000).step_by(0x0f_fff1) {
            let x: [f32; 16] = std::array::from_fn(|i| f32::from_bits(start + i as u32 * 0x1001));
            if x.iter().all(|x| !x.is_nan()) {
                // SAFETY: the machine has `isa`.
                assert_eq!(unsafe { rows::to_f16(isa, &x) }, x.map(nearest), "{isa}");
            }
        }
    }
}

#[test]
fn what_the_cache_cannot_hold_is_found() {
    let shape = |dtype| KvShape {
        layers: 1,
        heads: 1,
        head_dim: 16,
        blocks: 1,
        block_size: 16,
        dtype,
    };
    for (dtype, value, finite) in [
        (KvDtype::F16, 65_504.0, true),
        (KvDtype::F16, 65_519.0, true),
        (KvDtype::F16, 65_520.0, false),
        (KvDtype::F16, f32::NAN, false),
        (KvDtype::F32, 65_520.0, true),
        (KvDtype::F32, f32::INFINITY, false),
    ] {
        let pool = KvPool::new(shape(dtype)).expect("memory");
        let mut x = [1.0; 16];
        x[7] = value;
        for isa in machine() {
            // SAFETY: the machine has `isa`; one thread.
            unsafe {
                assert_eq!(
                    pool.store_key(isa, 0, 3, 0, 0, &x),
                    finite,
                    "{dtype} {value}"
                );
                assert_eq!(
                    pool.store_value(isa, 0, 3, 0, 0, &x),
                    finite,
                    "{dtype} {value}"
                );
            }
        }
    }
}
