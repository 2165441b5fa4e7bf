//! What a quantised weight is made of: codes, scales and minimums.

use half::f16;
use lockstep::backend::decode;
use lockstep::gguf::GgmlType;

/// A weight that is `d * scale * q + m * minimum`; formats without sub-scales have ones there, and
/// those without minimums an `m` of zero.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Parts {
    pub(crate) d: f16,
    pub(crate) scale: i32,
    pub(crate) q: i32,
    /// Negative for the K-quants, which subtract their minimum.
    pub(crate) m: f16,
    pub(crate) minimum: i32,
}

/// Where the parts lie in a block of a file.
struct Places {
    d: usize,
    m: Option<usize>,
    /// The sub-scales' bytes, and what makes all of them one (and sub-minimums zero).
    scales: Option<(usize, &'static [u8])>,
    /// The codes' bytes that make every integer one, with where they begin.
    ones: Option<&'static [(usize, usize, u8)]>,
}

const UNPACKED_ONES: &[u8] = &[1, 1, 1, 1, 0, 0, 0, 0, 1, 1, 1, 1];

fn places(ggml_type: GgmlType) -> Places {
    let plain = |m| Places {
        d: 0,
        m,
        scales: None,
        ones: None,
    };
    let kquant = |ones| Places {
        d: 0,
        m: Some(2),
        scales: Some((4, UNPACKED_ONES)),
        ones: Some(ones),
    };
    match ggml_type {
        GgmlType::Q4_1 | GgmlType::Q5_1 => plain(Some(2)),
        GgmlType::Q4_K => kquant(&[(16, 128, 0x11)]),
        GgmlType::Q5_K => kquant(&[(16, 32, 0), (48, 128, 0x11)]),
        GgmlType::Q6_K => Places {
            d: 208,
            m: None,
            scales: Some((192, &[1; 16])),
            // 33 less 32.
            ones: Some(&[(0, 128, 0x11), (128, 64, 0xaa)]),
        },
        _ => plain(None),
    }
}

/// The parts of each weight of a row. Found through the decoder of files, by putting ones and zeros
/// where the other parts are.
pub(crate) fn parts(ggml_type: GgmlType, row: &[u8]) -> Vec<Parts> {
    let blocks = row.chunks(ggml_type.block_bytes());
    blocks
        .flat_map(|block| block_parts(ggml_type, block))
        .collect()
}

fn block_parts(ggml_type: GgmlType, block: &[u8]) -> Vec<Parts> {
    let Places { d, m, scales, ones } = places(ggml_type);
    let half_at = |at: usize| f16::from_le_bytes([block[at], block[at + 1]]);
    let decoded = |d_is: f32, m_is: f32, scales_are: bool, codes_are: bool| -> Vec<i32> {
        let mut block = block.to_vec();
        block[d..d + 2].copy_from_slice(&f16::from_f32(d_is).to_le_bytes());
        if let Some(m) = m {
            block[m..m + 2].copy_from_slice(&f16::from_f32(m_is).to_le_bytes());
        }
        if let (true, Some((at, ones))) = (scales_are, scales) {
            block[at..at + ones.len()].copy_from_slice(ones);
        }
        if codes_are {
            for (at, length, byte) in ones.unwrap_or_default() {
                block[*at..at + length].fill(*byte);
            }
        }
        let mut out = vec![0.0; ggml_type.block_len()];
        decode::row(ggml_type, &block, &mut out);
        out.iter().map(|x| *x as i32).collect()
    };
    let is_kquant = scales.is_some();
    let q = decoded(1.0, 0.0, true, false);
    let ones = vec![1; q.len()];
    let scale = if is_kquant {
        decoded(1.0, 0.0, false, true)
    } else {
        ones
    };
    let minimum = decoded(0.0, if is_kquant { -1.0 } else { 1.0 }, false, false);
    let m = m.map_or(f16::ZERO, half_at);
    let part = |i: usize| Parts {
        d: half_at(d),
        scale: scale[i],
        q: q[i],
        m: if is_kquant { -m } else { m },
        minimum: minimum[i],
    };
    (0..q.len()).map(part).collect()
}
