//! The contract's kernels and the free ones, by turns.

use std::hint::black_box;

use lockstep::backend::Isa;
use lockstep::backend::cpu::activations::{Activations, Form};
use lockstep::backend::cpu::device::{AttentionShape, Cpu, Flags, Rows};
use lockstep::backend::cpu::pack::PackedMatrix;
use lockstep::clock;
use lockstep::gguf::GgmlType;

use super::folded::{self, Format, Weights};

/// As in the model's layers: the second-level cache holds one of them.
const INPUTS: usize = 1536;
const OUTPUTS: usize = 576;
/// So many that no cache holds them.
const MANY_OUTPUTS: usize = 65_536;
/// Turns of each kernel.
const TURNS: usize = 31;
/// What one turn takes at least, in seconds.
const TURN: f64 = 2e-3;

/// Prints the tables.
pub(crate) fn report() {
    println!("G mul-add/s, one thread       rows   contract       free   contract / free");
    let cases = [
        ("in cache", OUTPUTS, &[1, 8, 128][..]),
        ("from memory", MANY_OUTPUTS, &[1]),
    ];
    for (place, outputs, all_rows) in cases {
        for format in [Format::Q8_0, Format::Q4_1, Format::F16] {
            for &rows in all_rows {
                let [contract, free] = Pair::new(format, outputs, rows).rates();
                let name = format!("{format:?}, {place}");
                println!(
                    "{name:28}{rows:6}{contract:11.1}{free:11.1}{:18.2}",
                    contract / free
                );
            }
        }
    }
}

/// One product, for both kinds.
struct Pair {
    rows: usize,
    matrix: PackedMatrix,
    activations: Activations,
    weights: Weights,
    free: folded::Activations,
    cpu: Cpu,
    out: [Vec<f32>; 2],
}

impl Pair {
    fn new(format: Format, outputs: usize, rows: usize) -> Self {
        let mut random = Random(7);
        let ggml_type = match format {
            Format::Q8_0 => GgmlType::Q8_0,
            Format::Q4_1 => GgmlType::Q4_1,
            Format::F16 => GgmlType::F16,
        };
        let file = random.weights(format, outputs);
        let x: Vec<f32> = (0..rows * INPUTS).map(|_| random.float()).collect();
        let shape = AttentionShape {
            group: 1,
            kv_heads: 1,
            head_dim: 16,
            window: 0,
            scale: 1.0,
        };
        let mut cpu = Cpu::new(Isa::best(), 1, 1, &shape).expect("one thread");
        let matrix = PackedMatrix::pack(ggml_type, outputs, INPUTS, &file, cpu.pool());
        let form = Form::of(ggml_type);
        let mut activations = Activations::new(rows, INPUTS, &[form]).expect("memory");
        let mut room = Rows::new(rows, INPUTS).expect("memory");
        // Rows are filled as a model fills them: from a table of embeddings.
        let table: Vec<u8> = x.iter().flat_map(|x| x.to_le_bytes()).collect();
        let table = PackedMatrix::pack(GgmlType::F32, rows, INPUTS, &table, cpu.pool());
        let tokens: Vec<u32> = (0..rows as u32).collect();
        cpu.embed(&table.expect("memory"), &tokens, &mut room);
        cpu.prepare(&room, rows, &mut activations, form, &Flags::new(rows));
        let mut pair = Self {
            rows,
            matrix: matrix.expect("memory"),
            activations,
            weights: Weights::pack(format, outputs, INPUTS, &file),
            free: folded::Activations::new(&x, INPUTS),
            cpu,
            out: [vec![0.0; rows * outputs], vec![0.0; rows * outputs]],
        };
        pair.check();
        pair
    }

    fn contract(&mut self) {
        let out = &mut self.out[0];
        let (matrix, activations) = (&self.matrix, &self.activations);
        self.cpu.linear(matrix, activations, self.rows, out);
        black_box(out);
    }

    fn free(&mut self) {
        let out = &mut self.out[1];
        // SAFETY: `main` has found the instructions.
        unsafe { folded::linear(&self.weights, &self.free, self.rows, out) };
        black_box(out);
    }

    /// Both compute the same, but for rounding: or the comparison would be worth nothing.
    fn check(&mut self) {
        self.contract();
        self.free();
        let scale = self.out[0]
            .iter()
            .fold(0.0_f32, |most, y| most.max(y.abs()));
        for (i, (a, b)) in self.out[0].iter().zip(&self.out[1]).enumerate() {
            assert!((a - b).abs() < 1e-4 * scale, "output {i}: {a} and {b}");
        }
    }

    /// Billions of multiply-adds a second, medians of turns.
    fn rates(&mut self) -> [f64; 2] {
        let begun = clock::now();
        self.contract();
        let once = begun.elapsed().as_secs_f64();
        let calls = (TURN / once).ceil() as usize;
        let mut took = [Vec::new(), Vec::new()];
        for _ in 0..TURNS {
            for (kind, took) in took.iter_mut().enumerate() {
                let begun = clock::now();
                for _ in 0..calls {
                    if kind == 0 {
                        self.contract()
                    } else {
                        self.free()
                    }
                }
                took.push(begun.elapsed().as_secs_f64());
            }
        }
        let products = calls * self.out[0].len() * INPUTS;
        took.map(|mut took| {
            took.sort_by(f64::total_cmp);
            products as f64 / took[TURNS / 2] / 1e9
        })
    }
}

/// SplitMix64 (Steele, Lea, Flood 2014).
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut x = self.0;
        x = (x ^ x >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        x = (x ^ x >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        x ^ x >> 31
    }

    /// In [-1, 1).
    fn float(&mut self) -> f32 {
        (self.next() >> 40) as f32 / (1 << 23) as f32 - 1.0
    }

    /// A matrix as it stands in a file, of scales near 2^-6.
    fn weights(&mut self, format: Format, outputs: usize) -> Vec<u8> {
        let scale = 0x2400_u16.to_le_bytes();
        let mut bytes = Vec::new();
        for _ in 0..outputs * INPUTS / 32 {
            let scales = match format {
                Format::Q8_0 => 1,
                Format::Q4_1 => 2,
                Format::F16 => 0,
            };
            (0..scales).for_each(|_| bytes.extend(scale));
            for _ in 0..(format.block_bytes() - 2 * scales) / 2 {
                let bits = self.next();
                // A half's exponent is kept small.
                let half = (bits as u16 & 0x83ff) | 0x2400 | (bits >> 32) as u16 & 0x0c00;
                let word = if format == Format::F16 {
                    half
                } else {
                    bits as u16
                };
                bytes.extend(word.to_le_bytes());
            }
        }
        bytes
    }
}
