//! Attention: both types of the cache, grouped heads, several splits, windows, whole and in parts.

use alloc::vec;
use alloc::vec::Vec;
use core::fmt;

use half::f16;

use lockstep_simd::attention::{
    Item, attend, attend_split, merge_splits, partial_len, scratch_len,
};
use lockstep_simd::contract::SPLIT;
use lockstep_simd::kv::{Kv, KvDtype, KvShape};
use lockstep_simd::{Isa, reference};

use super::random::Random;
use super::{Digest, Lines, Path};

/// What a case is of.
#[derive(Clone, Copy)]
struct Case {
    dtype: KvDtype,
    kv_heads: usize,
    /// Query heads that share a head of keys.
    group: usize,
    head_dim: usize,
    /// The position of the first row.
    position: usize,
    rows: usize,
    block_size: usize,
    window: usize,
}

const fn case(
    dtype: KvDtype,
    [kv_heads, group, head_dim]: [usize; 3],
    [position, rows, block_size, window]: [usize; 4],
) -> Case {
    Case {
        dtype,
        kv_heads,
        group,
        head_dim,
        position,
        rows,
        block_size,
        window,
    }
}

const CASES: [Case; 10] = [
    case(KvDtype::F16, [1, 1, 16], [0, 1, 16, 0]),
    case(KvDtype::F16, [2, 3, 64], [60, 4, 16, 0]),
    case(KvDtype::F16, [1, 5, 128], [300, 2, 32, 0]),
    case(KvDtype::F16, [3, 1, 48], [516, 3, 48, 0]),
    case(KvDtype::F32, [1, 4, 32], [255, 1, 16, 0]),
    case(KvDtype::F32, [2, 3, 64], [256, 4, 256, 0]),
    case(KvDtype::F16, [1, 3, 64], [40, 4, 16, 1]),
    case(KvDtype::F16, [2, 2, 64], [513, 4, 16, 3]),
    case(KvDtype::F32, [1, 3, 32], [514, 4, 32, 257]),
    case(KvDtype::F16, [1, 3, 64], [700, 4, 16, 300]),
];

const SCALE: f32 = 0.3;

pub(super) fn run(lines: &mut Lines<'_>) -> fmt::Result {
    for (i, case) in CASES.into_iter().enumerate() {
        let sequence = Sequence::random(&mut Random(1000 + i as u64), case);
        let parts: [Vec<f32>; 2] = match lines.path {
            Path::Reference => [sequence.reference(), sequence.reference()],
            Path::Kernels(isa) => [false, true].map(|parted| sequence.kernels(isa, parted)),
        };
        for (how, found) in ["whole", "by splits"].into_iter().zip(parts) {
            let Case {
                dtype,
                kv_heads,
                group,
                head_dim,
                position,
                rows,
                block_size,
                window,
            } = case;
            lines.put(
                format_args!(
                    "attention {dtype} {kv_heads} x {group} heads of {head_dim}, {rows} rows at \
                     {position}, blocks of {block_size}, window {window}, {how}"
                ),
                Digest::of(&found),
            )?;
        }
    }
    Ok(())
}

struct Sequence {
    case: Case,
    queries: Vec<Vec<f32>>,
    keys: Vec<Vec<f32>>,
    values: Vec<Vec<f32>>,
}

impl Sequence {
    fn random(random: &mut Random, case: Case) -> Self {
        let width = case.kv_heads * case.head_dim;
        let mut rows = |count: usize, width: usize| -> Vec<Vec<f32>> {
            let mut row = |_| (0..width).map(|_| random.bounded(6.0)).collect();
            (0..count).map(&mut row).collect()
        };
        let positions = case.position + case.rows;
        Self {
            queries: rows(case.rows, width * case.group),
            keys: rows(positions, width),
            values: rows(positions, width),
            case,
        }
    }

    /// A cached head, as the cache holds it.
    fn cached(&self, rows: &[Vec<f32>], head: usize, positions: usize) -> Vec<Vec<f32>> {
        let stored = |x: &f32| match self.case.dtype {
            KvDtype::F16 => f16::from_f32(*x).to_f32(),
            KvDtype::F32 => *x,
        };
        let part = |row: &Vec<f32>| {
            let row = &row[head * self.case.head_dim..][..self.case.head_dim];
            row.iter().map(stored).collect()
        };
        rows[..positions].iter().map(part).collect()
    }

    fn reference(&self) -> Vec<f32> {
        let Case {
            group, head_dim, ..
        } = self.case;
        let mut out = Vec::new();
        for (row, queries) in self.queries.iter().enumerate() {
            for (head, query) in queries.chunks_exact(head_dim).enumerate() {
                let positions = self.case.position + row + 1;
                let keys = self.cached(&self.keys, head / group, positions);
                let values = self.cached(&self.values, head / group, positions);
                out.extend(reference::attention(
                    query,
                    &keys,
                    &values,
                    SCALE,
                    self.case.window,
                ));
            }
        }
        out
    }

    /// The same through a pool whose every unused element is no number, blocks from the last to the
    /// first.
    fn kernels(&self, isa: Isa, parted: bool) -> Vec<f32> {
        let Case {
            kv_heads,
            group,
            head_dim,
            rows,
            ..
        } = self.case;
        let blocks = (self.case.position + rows).div_ceil(self.case.block_size);
        let shape = KvShape {
            layers: 1,
            heads: kv_heads,
            head_dim,
            blocks,
            block_size: self.case.block_size,
            dtype: self.case.dtype,
        };
        let mut memory = vec![u32::MAX; shape.bytes().expect("small") / 4];
        // SAFETY: the memory outlives the view; one thread.
        let kv = unsafe { Kv::new(shape, memory.as_mut_ptr().cast()) };
        let table: Vec<u32> = (0..blocks as u32).rev().collect();
        self.store(isa, kv, &table);
        let width = kv_heads * group * head_dim;
        let queries = self.queries.concat();
        let mut out = vec![f32::NAN; rows * width];
        for kv_head in 0..kv_heads {
            let first = kv_head * group * head_dim;
            let item = Item {
                layer: 0,
                kv_head,
                blocks: &table,
                position: self.case.position,
                queries: queries[first..].as_ptr(),
                out: out[first..].as_mut_ptr(),
                query_stride: width,
                out_stride: width,
                rows,
                group,
                window: self.case.window,
                scale: SCALE,
                next: None,
            };
            // SAFETY: the machine has `isa`; the buffers hold the rows.
            unsafe { compute(isa, kv, item, parted) };
        }
        out
    }

    fn store(&self, isa: Isa, kv: Kv, table: &[u32]) {
        let Case {
            kv_heads,
            head_dim,
            block_size,
            ..
        } = self.case;
        for (position, (key, value)) in self.keys.iter().zip(&self.values).enumerate() {
            let slot = table[position / block_size] as usize * block_size + position % block_size;
            for head in 0..kv_heads {
                let part = head * head_dim..(head + 1) * head_dim;
                let (key, value) = (&key[part.clone()], &value[part]);
                let pieces = key.as_chunks().0.iter().zip(value.as_chunks().0);
                for (i, (key, value)) in pieces.enumerate() {
                    // SAFETY: the machine has `isa`; one thread.
                    unsafe {
                        assert!(kv.store_key(isa, 0, slot, head, 16 * i, key), "finite");
                        assert!(kv.store_value(isa, 0, slot, head, 16 * i, value), "finite");
                    }
                }
            }
        }
    }
}

/// # Safety
/// As for [`attend`].
unsafe fn compute(isa: Isa, kv: Kv, item: Item<'_>, parted: bool) {
    let head_dim = kv.shape().head_dim;
    let mut room = vec![f32::NAN; scratch_len(item.group, head_dim)];
    if !parted {
        // SAFETY: as the caller says.
        return unsafe { attend(isa, kv, item, &mut room) };
    }
    let splits = (item.position + item.rows).div_ceil(SPLIT);
    let stride = partial_len(item.rows * item.group, head_dim);
    let mut partials = vec![f32::NAN; splits * stride];
    for (split, partial) in partials.chunks_exact_mut(stride).enumerate().rev() {
        // SAFETY: as the caller says.
        unsafe { attend_split(isa, kv, item, &mut room, split, partial.as_mut_ptr()) };
    }
    // SAFETY: as the caller says.
    unsafe { merge_splits(isa, kv, item, &mut room, partials.as_ptr(), stride) };
}
