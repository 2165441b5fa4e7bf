//! Linear layers that add in whatever order is fastest: lanes along the inputs, folded at the end.
//!
//! Blocks of sixteen stand side by side, a block to a lane, so that one scale vector serves 512
//! inputs; outputs and rows are tiled in registers; sixteen sums are folded at once. Nothing of this
//! is bound to give a row the same bits in another batch or on another vector width.

#![expect(
    clippy::needless_range_loop,
    reason = "loops over registers index several arrays at once"
)]

use std::arch::x86_64::*;

use super::vectors::fold;

/// Inputs of a step: sixteen blocks of 32.
const STEP: usize = 512;
/// Vectors of eight-bit values in a step.
const VECTORS: usize = 8;

/// A format of the comparison.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Format {
    /// Eight bits and a scale.
    Q8_0,
    /// Four bits, a scale and a minimum.
    Q4_1,
    /// Half precision.
    F16,
}

/// Weights, repacked.
pub(crate) struct Weights {
    format: Format,
    outputs: usize,
    inputs: usize,
    bytes: Vec<__m512i>,
}

/// Rows of activations: quantised, or as they are.
pub(crate) struct Activations {
    steps: Vec<Step>,
    plain: Vec<__m512>,
}

/// 512 quantised activations of a row.
#[derive(Clone, Copy)]
#[repr(C, align(64))]
struct Step {
    /// Vector `j`: elements `4 j..4 j + 4` of each of sixteen blocks.
    q: [[i8; 64]; VECTORS],
    d: [f32; 16],
    d_sum: [f32; 16],
    /// What the offset of 128 of eight-bit weights adds, negated.
    bias: [i32; 16],
}

impl Format {
    /// Bytes of a block of 32 in a file.
    pub(crate) const fn block_bytes(self) -> usize {
        match self {
            Self::Q8_0 => 34,
            Self::Q4_1 => 20,
            Self::F16 => 64,
        }
    }

    /// Vectors of a step of one output.
    const fn vectors(self) -> usize {
        match self {
            Self::Q8_0 => VECTORS,
            Self::Q4_1 => VECTORS / 2,
            Self::F16 => 2 * VECTORS,
        }
    }

    /// Bytes of scales of a step of one output.
    const fn scales(self) -> usize {
        match self {
            Self::Q8_0 => 32,
            Self::Q4_1 => 64,
            Self::F16 => 0,
        }
    }
}

impl Weights {
    /// Repacks a matrix as it stands in a file.
    pub(crate) fn pack(format: Format, outputs: usize, inputs: usize, file: &[u8]) -> Self {
        assert!(inputs.is_multiple_of(STEP));
        let row_bytes = inputs / 32 * format.block_bytes();
        let stride = Self::row_bytes(format, inputs);
        let zero = [0_u8; 64];
        let mut bytes = vec![zero; outputs * stride / 64];
        for (row, out) in file
            .chunks_exact(row_bytes)
            .zip(bytes.as_flattened_mut().chunks_exact_mut(stride))
        {
            pack_row(format, row, out);
        }
        // SAFETY: both are 64 bytes of anything.
        let bytes = bytes.into_iter().map(|v| unsafe { std::mem::transmute(v) });
        Self {
            format,
            outputs,
            inputs,
            bytes: bytes.collect(),
        }
    }

    /// Bytes of one output: its vectors, then its scales.
    fn row_bytes(format: Format, inputs: usize) -> usize {
        let step = format.vectors() * 64 + format.scales();
        (inputs / STEP * step).next_multiple_of(64)
    }

    fn row(&self, output: usize) -> *const u8 {
        let stride = Self::row_bytes(self.format, self.inputs);
        assert!(output < self.outputs);
        self.bytes
            .as_ptr()
            .cast::<u8>()
            .wrapping_add(output * stride)
    }
}

fn pack_row(format: Format, row: &[u8], out: &mut [u8]) {
    if format == Format::F16 {
        out[..row.len()].copy_from_slice(row);
        return;
    }
    let steps = row.len() / format.block_bytes() / 16;
    let (quants, scales) = out.split_at_mut(steps * format.vectors() * 64);
    for (i, block) in row.chunks_exact(format.block_bytes()).enumerate() {
        let (step, lane) = (i / 16, i % 16);
        let quants = &mut quants[step * format.vectors() * 64..];
        let scales = &mut scales[step * format.scales()..];
        scales[lane * 2..lane * 2 + 2].copy_from_slice(&block[..2]);
        match format {
            Format::Q8_0 => {
                for (k, q) in block[2..].iter().enumerate() {
                    quants[k / 4 * 64 + lane * 4 + k % 4] = q.wrapping_add(128);
                }
            }
            _ => {
                scales[32 + lane * 2..34 + lane * 2].copy_from_slice(&block[2..4]);
                // Byte k of a block holds elements k and k + 16: vectors j and j + 4.
                for (k, q) in block[4..].iter().enumerate() {
                    quants[k / 4 * 64 + lane * 4 + k % 4] = *q;
                }
            }
        }
    }
}

impl Activations {
    /// Quantises rows as the contract does.
    pub(crate) fn new(rows: &[f32], inputs: usize) -> Self {
        let zero = Step {
            q: [[0; 64]; VECTORS],
            d: [0.0; 16],
            d_sum: [0.0; 16],
            bias: [0; 16],
        };
        let mut steps = vec![zero; rows.len() / STEP];
        for (step, x) in steps.iter_mut().zip(rows.chunks_exact(STEP)) {
            for (lane, block) in x.chunks_exact(32).enumerate() {
                step.write(lane, block);
            }
        }
        let vector = |x: &[f32]| {
            let x: [f32; 16] = x.try_into().expect("sixteen");
            // SAFETY: both are sixteen floats.
            unsafe { std::mem::transmute::<[f32; 16], __m512>(x) }
        };
        assert!(inputs.is_multiple_of(STEP));
        Self {
            steps,
            plain: rows.chunks_exact(16).map(vector).collect(),
        }
    }
}

impl Step {
    fn write(&mut self, lane: usize, x: &[f32]) {
        let most = x.iter().fold(0.0_f32, |most, x| most.max(x.abs()));
        let mut sum = 0;
        for (k, x) in x.iter().enumerate() {
            let q = (x * (127.0 / most)).round_ties_even().clamp(-127.0, 127.0) as i8;
            self.q[k / 4][lane * 4 + k % 4] = q;
            sum += i32::from(q);
        }
        self.d[lane] = most / 127.0;
        self.d_sum[lane] = self.d[lane] * sum as f32;
        self.bias[lane] = -128 * sum;
    }
}

/// Multiplies rows of activations with all outputs: `out[row * outputs + output]`. Outputs are a
/// multiple of 16; rows are 1 or a multiple of 8.
///
/// # Safety
/// The machine has AVX-512 with VNNI.
#[target_feature(enable = "avx512f,avx512bw,avx512vnni,f16c")]
pub(crate) unsafe fn linear(
    weights: &Weights,
    activations: &Activations,
    rows: usize,
    out: &mut [f32],
) {
    assert_eq!(out.len(), rows * weights.outputs);
    // SAFETY: as the caller says.
    unsafe {
        match (weights.format, rows) {
            (Format::Q8_0, 1) => tiles::<Q8, 4, 1>(weights, activations, rows, out),
            (Format::Q8_0, _) => tiles::<Q8, 2, 4>(weights, activations, rows, out),
            (Format::Q4_1, 1) => tiles::<Q4, 4, 1>(weights, activations, rows, out),
            (Format::Q4_1, _) => tiles::<Q4, 2, 4>(weights, activations, rows, out),
            (Format::F16, 1) => tiles::<Half, 4, 1>(weights, activations, rows, out),
            (Format::F16, _) => tiles::<Half, 4, 4>(weights, activations, rows, out),
        }
    }
}

/// The sums of `O` outputs from `output` on with `R` rows from `row` on, lanes not yet folded.
trait Tile {
    unsafe fn tile<const O: usize, const R: usize>(
        weights: [*const u8; O],
        activations: &Activations,
        inputs: usize,
        row: usize,
        sums: &mut [__m512],
    );
}

/// Outputs whose weights stay in the first-level cache while all rows pass.
const PANEL: usize = 16;

/// Tiles of sixteen sums: enough tiles of `O` by `R` for one fold.
#[target_feature(enable = "avx512f,avx512bw,avx512vnni,f16c")]
#[inline]
unsafe fn tiles<T: Tile, const O: usize, const R: usize>(
    weights: &Weights,
    activations: &Activations,
    rows: usize,
    out: &mut [f32],
) {
    const { assert!(16 % (O * R) == 0) };
    let outputs = 16 / R;
    for panel in (0..weights.outputs).step_by(PANEL) {
        for row in (0..rows).step_by(R) {
            for first in (panel..panel + PANEL).step_by(outputs) {
                let mut sums = [_mm512_setzero_ps(); 16];
                for (i, sums) in sums.chunks_exact_mut(O * R).enumerate() {
                    let pointers = std::array::from_fn(|o| weights.row(first + i * O + o));
                    // SAFETY: as the caller says.
                    unsafe { T::tile::<O, R>(pointers, activations, weights.inputs, row, sums) };
                }
                let mut all = [0.0_f32; 16];
                // SAFETY: there is room for sixteen.
                unsafe { _mm512_storeu_ps(all.as_mut_ptr(), fold(&sums)) };
                for (i, sum) in all.into_iter().enumerate() {
                    out[(row + i % R) * weights.outputs + first + i / R] = sum;
                }
            }
        }
    }
}

/// Asks for the weights of the next tile at the place that this tile is at.
#[target_feature(enable = "avx512f")]
#[inline]
fn prefetch<const O: usize>(weights: [*const u8; O], offset: usize) {
    let ahead = match O {
        1 => 4096,
        _ => (weights[1].addr() - weights[0].addr()) * O,
    };
    for p in weights {
        _mm_prefetch::<_MM_HINT_T0>(p.wrapping_add(ahead + offset).cast());
    }
}

/// Sixteen stored half-precision numbers.
#[target_feature(enable = "avx512f,f16c")]
#[inline]
unsafe fn halves(p: *const u8) -> __m512 {
    // SAFETY: the caller has 32 bytes there.
    unsafe { _mm512_cvtph_ps(_mm256_loadu_si256(p.cast())) }
}

struct Q8;
struct Q4;
struct Half;

macro_rules! quantised_tile {
    ($name:ident, $format:expr, $bias:expr, $minimum:expr) => {
        impl Tile for $name {
            #[inline(always)]
            unsafe fn tile<const O: usize, const R: usize>(
                weights: [*const u8; O],
                activations: &Activations,
                inputs: usize,
                row: usize,
                sums: &mut [__m512],
            ) {
                // SAFETY: the rows and outputs are there, and so are the instructions.
                unsafe {
                    quantised::<O, R, { $bias }, { $minimum }>(
                        $format,
                        weights,
                        activations,
                        inputs,
                        row,
                        sums,
                    );
                }
            }
        }
    };
}

quantised_tile!(Q8, Format::Q8_0, true, false);
quantised_tile!(Q4, Format::Q4_1, false, true);

#[target_feature(enable = "avx512f,avx512bw,avx512vnni,f16c")]
#[inline]
unsafe fn quantised<const O: usize, const R: usize, const EIGHT: bool, const MIN: bool>(
    format: Format,
    weights: [*const u8; O],
    activations: &Activations,
    inputs: usize,
    row: usize,
    sums: &mut [__m512],
) {
    let steps = inputs / STEP;
    let mask = _mm512_set1_epi8(15);
    let mut totals = [[_mm512_setzero_ps(); R]; O];
    for step in 0..steps {
        let x: [&Step; R] = std::array::from_fn(|r| &activations.steps[(row + r) * steps + step]);
        // SAFETY: the pointers begin rows of `steps` steps; vectors are read inside them.
        unsafe {
            let vector = |p: *const u8, j: usize| {
                _mm512_loadu_si512(p.add((step * format.vectors() + j) * 64).cast())
            };
            let zero = |x: &Step| match EIGHT {
                true => _mm512_load_si512(x.bias.as_ptr().cast()),
                false => _mm512_setzero_si512(),
            };
            let mut ints: [[__m512i; R]; O] = [x.map(zero); O];
            for j in 0..format.vectors() {
                let w: [__m512i; O] = weights.map(|p| vector(p, j));
                if row == 0 {
                    prefetch(weights, (step * format.vectors() + j) * 64);
                }
                for r in 0..R {
                    let q = |j: usize| _mm512_load_si512(x[r].q[j].as_ptr().cast());
                    for o in 0..O {
                        let low = if EIGHT {
                            w[o]
                        } else {
                            _mm512_and_si512(w[o], mask)
                        };
                        ints[o][r] = _mm512_dpbusd_epi32(ints[o][r], low, q(j));
                        if !EIGHT {
                            let high = _mm512_and_si512(_mm512_srli_epi16::<4>(w[o]), mask);
                            ints[o][r] = _mm512_dpbusd_epi32(ints[o][r], high, q(j + VECTORS / 2));
                        }
                    }
                }
            }
            for o in 0..O {
                let scales = weights[o].add(steps * format.vectors() * 64 + step * format.scales());
                let scale = halves(scales);
                for r in 0..R {
                    let d = _mm512_mul_ps(scale, _mm512_load_ps(x[r].d.as_ptr()));
                    let int = _mm512_cvtepi32_ps(ints[o][r]);
                    totals[o][r] = _mm512_fmadd_ps(d, int, totals[o][r]);
                    if MIN {
                        let sum = _mm512_load_ps(x[r].d_sum.as_ptr());
                        totals[o][r] = _mm512_fmadd_ps(halves(scales.add(32)), sum, totals[o][r]);
                    }
                }
            }
        }
    }
    for (o, totals) in totals.iter().enumerate() {
        sums[o * R..(o + 1) * R].copy_from_slice(totals);
    }
}

impl Tile for Half {
    #[inline(always)]
    unsafe fn tile<const O: usize, const R: usize>(
        weights: [*const u8; O],
        activations: &Activations,
        inputs: usize,
        row: usize,
        sums: &mut [__m512],
    ) {
        // SAFETY: the rows and outputs are there, and so are the instructions.
        unsafe { dense::<O, R>(weights, activations, inputs, row, sums) };
    }
}

#[target_feature(enable = "avx512f,f16c")]
#[inline]
unsafe fn dense<const O: usize, const R: usize>(
    weights: [*const u8; O],
    activations: &Activations,
    inputs: usize,
    row: usize,
    sums: &mut [__m512],
) {
    let vectors = inputs / 16;
    let mut totals = [[_mm512_setzero_ps(); R]; O];
    for k in 0..vectors {
        // SAFETY: the pointers begin rows of `vectors` vectors.
        let w = weights.map(|p| unsafe { halves(p.add(k * 32)) });
        if row == 0 && k % 2 == 0 {
            prefetch(weights, k * 32);
        }
        for r in 0..R {
            let x = activations.plain[(row + r) * vectors + k];
            for o in 0..O {
                totals[o][r] = _mm512_fmadd_ps(w[o], x, totals[o][r]);
            }
        }
    }
    for (o, totals) in totals.iter().enumerate() {
        sums[o * R..(o + 1) * R].copy_from_slice(totals);
    }
}
