//! Cases of the KV cache and of attention: shuffled block tables, stale memory full of NaN,
//! windows, grouped heads, several splits.

use half::f16;
use lockstep::backend::reference::{self, Partial, SPLIT};
use lockstep_kernels::Shape;

use crate::case::{Case, Expected, Value, in_f32, in_u32, noted, out_f32, written};
use crate::random::Random;
use crate::reference::split;

pub(crate) fn cases() -> Vec<Case> {
    let mut out = Vec::new();
    for is_half in [true, false] {
        for (kv_heads, dim, block_size) in [(1, 16, 16), (3, 64, 32), (2, 80, 16)] {
            out.push(kv_store(is_half, kv_heads, dim, block_size));
        }
        let limit = Attention::at_the_limit(is_half);
        out.push(limit.split_case());
        if is_half {
            out.push(merge_at_the_limit());
        }
        for (index, setting) in SETTINGS.into_iter().enumerate() {
            // Scores of some hundred, so that a wrong maximum overflows; and of some units, so
            // that the merged splits are of one magnitude.
            for scale in [0.37, 0.011] {
                let stale = if (index % 2 == 0) == (scale > 0.1) {
                    STALE_NAN
                } else {
                    STALE_HUGE
                };
                let attention = Attention::new(is_half, setting, scale, stale);
                out.push(attention.split_case());
                if is_half {
                    out.push(attention.merge_case());
                }
            }
            let attention = Attention::new(is_half, setting, 0.37, STALE_NOTHING);
            out.push(attention.split_case());
        }
    }
    out
}

/// A cache's element as bytes.
fn element(is_half: bool, x: f32) -> Vec<u8> {
    if is_half {
        f16::from_f32(x).to_le_bytes().to_vec()
    } else {
        x.to_le_bytes().to_vec()
    }
}

/// The same, back as a float.
fn rounded(is_half: bool, x: f32) -> f32 {
    if is_half {
        f16::from_f32(x).to_f32()
    } else {
        x
    }
}

fn kv_store(is_half: bool, kv_heads: usize, dim: usize, block_size: usize) -> Case {
    let mut random = Random::new((kv_heads * dim) as u64);
    let width = kv_heads * dim;
    let slots: Vec<usize> = (0..12)
        .map(|row| row * (block_size - 3) % (3 * block_size))
        .collect();
    let floats = |random: &mut Random| -> Vec<f32> {
        (0..slots.len() * width)
            .map(|_| (random.edgy()).clamp(-60_000.0, 60_000.0))
            .collect()
    };
    let (mut k, mut v) = (floats(&mut random), floats(&mut random));
    // One entry of a row, in any warp's part: infinite, or too great for an f16; the last row has none.
    for row in 0..slots.len() - 1 {
        let of = if row % 2 == 0 { &mut k } else { &mut v };
        let sign = if row % 4 < 2 { 1.0 } else { -1.0 };
        let x = if row % 3 == 0 {
            65_520.0
        } else {
            f32::INFINITY
        };
        of[row * width + row * 37 % width] = sign * x;
    }
    let size = if is_half { 2 } else { 4 };
    let stale = vec![0xff; 3 * width * block_size * size];
    let (mut keys, mut values) = (stale.clone(), stale.clone());
    for (row, slot) in slots.iter().enumerate() {
        for i in 0..width {
            let (head, c) = (i / dim, i % dim);
            let head_place = (slot / block_size * kv_heads + head) * dim * block_size;
            let key = (head_place + c * block_size + slot % block_size) * size;
            let value = (head_place + slot % block_size * dim + c) * size;
            keys[key..key + size].copy_from_slice(&element(is_half, k[row * width + i]));
            values[value..value + size].copy_from_slice(&element(is_half, v[row * width + i]));
        }
    }
    let finite = |x: &f32| rounded(is_half, *x).is_finite();
    let non_finite: Vec<u32> = (0..slots.len())
        .map(|row| row * width..(row + 1) * width)
        .map(|row| u32::from(!k[row.clone()].iter().chain(&v[row]).all(finite)))
        .collect();
    let shape = Shape {
        rows: slots.len() as u32,
        ..Shape::default()
    };
    let values = vec![
        in_f32(&k),
        in_f32(&v),
        in_u32(&slots.iter().map(|slot| *slot as u32).collect::<Vec<_>>()),
        Value::InOut(stale.clone(), written(keys)),
        Value::InOut(stale, written(values)),
        noted(&non_finite),
        Value::U32(kv_heads as u32),
        Value::U32(dim as u32),
        Value::U32(block_size as u32),
    ];
    let entry = if is_half {
        "kv_store_f16"
    } else {
        "kv_store_f32"
    };
    Case::new(
        entry,
        format!("{kv_heads} heads of {dim}, blocks of {block_size}"),
        shape,
        values,
    )
}

/// Rows' positions, heads, KV heads, dim, block size, window.
type Setting = (&'static [u32], usize, usize, usize, usize, usize);

/// What memory holds that nothing of this sequence wrote: NaN, numbers that drown all others, or
/// nothing that anybody has written.
const STALE_NAN: Option<[u8; 2]> = Some([0xff, 0xff]);
const STALE_HUGE: Option<[u8; 2]> = Some([0xff, 0x7b]);
const STALE_NOTHING: Option<[u8; 2]> = None;

const SETTINGS: [Setting; 15] = [
    (&[599], 2, 1, 16, 16, 89),
    (&[1100, 800, 600, 300, 5], 1, 1, 16, 16, 0),
    (&[3, 4, 20, 771], 2, 1, 16, 16, 20),
    (&[0], 1, 1, 16, 16, 0),
    (&[5, 6, 300], 4, 2, 64, 16, 0),
    (&[255, 256, 257], 2, 2, 32, 48, 0),
    (&[600, 40], 3, 1, 16, 32, 100),
    (&[511, 512], 2, 1, 144, 256, 256),
    (&[19, 700], 2, 2, 16, 16, 1),
    // More query heads to a KV head than a block has room for.
    (&[20, 290], 17, 1, 16, 16, 0),
    (&[70], 8, 1, 256, 16, 0),
    // A window that begins and ends in each 32 positions of a split.
    (&[20, 50, 90, 120, 150, 180, 210, 240], 1, 1, 16, 16, 9),
    // Every remainder of four positions at the end of a second chunk; a table that ends with its row.
    (&[63, 64, 65, 66, 67, 68, 69, 70, 131, 31], 2, 1, 16, 16, 0),
    // The same of a first chunk, by where its window begins; and fewer than four, or four, before a
    // second chunk.
    (&[89, 90, 91, 92], 1, 1, 16, 16, 80),
    (&[27, 29], 1, 1, 256, 16, 16),
];

struct Attention {
    is_half: bool,
    setting: Setting,
    q: Vec<f32>,
    /// Keys and values by (row, position, KV head, component); a row is a sequence of its own.
    keys: Vec<f32>,
    values: Vec<f32>,
    /// Each row's table, and all of them.
    tables: Vec<u32>,
    block_tables: Vec<u32>,
    blocks: usize,
    scale: f32,
    stale: Option<[u8; 2]>,
}

impl Attention {
    fn new(is_half: bool, setting: Setting, scale: f32, stale: Option<[u8; 2]>) -> Self {
        let (positions, heads, kv_heads, dim, block_size, _) = setting;
        let mut random = Random::new(positions[0] as u64 * 3 + dim as u64);
        let q = (0..positions.len() * heads * dim).map(|_| random.edgy().clamp(-9.0, 9.0));
        let q = q.collect();
        let longest = positions.iter().max().map_or(0, |p| *p as usize + 1);
        let count = positions.len() * longest * kv_heads * dim;
        let spread = 30.0 / (dim as f32).sqrt();
        let mut cached = || {
            (0..count)
                .map(|_| rounded(is_half, random.float() * spread))
                .collect::<Vec<_>>()
        };
        let (keys, values) = (cached(), cached());
        let (mut tables, mut block_tables) = (Vec::new(), Vec::new());
        for position in positions {
            tables.push(block_tables.len() as u32);
            block_tables.extend(vec![0; *position as usize / block_size + 1]);
        }
        // Blocks in an order of their own, every third one unused.
        let blocks = block_tables.len() * 3 / 2 + 1;
        let step = (2..).find(|step| gcd(*step, blocks) == 1).unwrap_or(1);
        for (index, block) in block_tables.iter_mut().enumerate() {
            *block = ((index + 1) * step % blocks) as u32;
        }
        Self {
            is_half,
            setting,
            q,
            keys,
            values,
            tables,
            block_tables,
            blocks,
            scale,
            stale,
        }
    }

    /// Weights of exp(-87.33), the least that is not 0, and nothing beside them in the sums.
    fn at_the_limit(is_half: bool) -> Self {
        let mut attention = Self::new(is_half, (&[240], 1, 1, 16, 16, 0), 87.33, STALE_NAN);
        for list in [&mut attention.q, &mut attention.keys, &mut attention.values] {
            list.fill(0.0);
        }
        attention.q[0] = 1.0;
        for position in (1..240).step_by(32) {
            let at = attention.place(0, position, 0, 0);
            attention.keys[at] = -1.0;
            attention.values[at..at + 16].fill(60_000.0);
        }
        attention
    }

    fn place(&self, row: usize, position: usize, head: usize, c: usize) -> usize {
        let (positions, _, kv_heads, dim, ..) = self.setting;
        let longest = positions.iter().max().map_or(0, |p| *p as usize + 1);
        ((row * longest + position) * kv_heads + head) * dim + c
    }

    /// The pool's keys and values; what no row may see is stale. Where nobody wrote behind a row's
    /// last position, its positions before the window were written all the same.
    fn pools(&self) -> (Expected, Expected) {
        let (positions, _, kv_heads, dim, block_size, window) = self.setting;
        let size = if self.is_half { 2 } else { 4 };
        let stale: Expected = match self.stale {
            Some(bytes) => written(bytes.to_vec()),
            None => vec![None; 2],
        };
        let stale = stale.repeat(self.blocks * kv_heads * dim * block_size * size / 2);
        let (mut keys, mut values) = (stale.clone(), stale);
        for (row, last) in positions.iter().enumerate() {
            let last = *last as usize;
            let first = if window == 0 || self.stale == STALE_NOTHING {
                0
            } else {
                (last + 1).saturating_sub(window)
            };
            for position in first..=last {
                let table = self.tables[row] as usize;
                let block = self.block_tables[table + position / block_size] as usize;
                let offset = position % block_size;
                for head in 0..kv_heads {
                    for c in 0..dim {
                        let head_place = (block * kv_heads + head) * dim * block_size;
                        let key = (head_place + c * block_size + offset) * size;
                        let value = (head_place + offset * dim + c) * size;
                        let at = self.place(row, position, head, c);
                        keys[key..key + size]
                            .copy_from_slice(&written(element(self.is_half, self.keys[at])));
                        values[value..value + size]
                            .copy_from_slice(&written(element(self.is_half, self.values[at])));
                    }
                }
            }
        }
        (keys, values)
    }

    fn shape(&self) -> Shape {
        let (positions, heads, kv_heads, dim, ..) = self.setting;
        Shape {
            rows: positions.len() as u32,
            heads: heads as u32,
            kv_heads: kv_heads as u32,
            dim: dim as u32,
            positions: positions.iter().max().map_or(0, |p| p + 1),
            ..Shape::default()
        }
    }

    /// The splits of one head of one row; `None` where nothing is unmasked.
    fn partials(&self, row: usize, head: usize) -> Vec<Option<Partial>> {
        let (positions, heads, kv_heads, dim, _, window) = self.setting;
        let length = positions[row] as usize + 1;
        let lowest = if window == 0 {
            0
        } else {
            length.saturating_sub(window)
        };
        let kv_head = head / (heads / kv_heads);
        let at = (row * heads + head) * dim;
        let part = |start: usize| {
            let (first, end) = (start.max(lowest), length.min(start + SPLIT));
            (first < end).then(|| {
                let of = |list: &[f32], position| {
                    let place = self.place(row, position, kv_head, 0);
                    list[place..place + dim].to_vec()
                };
                split(
                    &self.q[at..at + dim],
                    (first, end),
                    |position| of(&self.keys, position),
                    |position| of(&self.values, position),
                    self.scale,
                )
            })
        };
        (0..self.shape().splits() as usize)
            .map(|s| part(s * SPLIT))
            .collect()
    }

    /// All partials as the kernel lays them out: maxima, sums, weighted sums.
    fn all_partials(&self) -> (Expected, Expected, Expected) {
        let (positions, heads, _, dim, ..) = self.setting;
        let (mut m, mut l, mut o) = (Vec::new(), Vec::new(), Vec::new());
        for row in 0..positions.len() {
            for head in 0..heads {
                for partial in self.partials(row, head) {
                    let Some(Partial {
                        m: greatest,
                        l: sum,
                        o: weighted,
                    }) = partial
                    else {
                        m.extend([None; 4]);
                        l.extend([None; 4]);
                        o.extend(vec![None; 4 * dim]);
                        continue;
                    };
                    m.extend(written(greatest.to_le_bytes().to_vec()));
                    l.extend(written(sum.to_le_bytes().to_vec()));
                    o.extend(written(crate::case::bytes_of_f32(&weighted)));
                }
            }
        }
        (m, l, o)
    }

    /// The splits' merged result against the reference's own.
    fn check_against_reference(&self, row: usize, head: usize, found: &[f32]) {
        let (positions, heads, kv_heads, dim, _, window) = self.setting;
        let cached = |list: &[f32]| -> Vec<Vec<f32>> {
            let place = |position| self.place(row, position, head / (heads / kv_heads), 0);
            let positions = 0..=positions[row] as usize;
            positions
                .map(|p| list[place(p)..place(p) + dim].to_vec())
                .collect()
        };
        let q = &self.q[(row * heads + head) * dim..][..dim];
        let (keys, values) = (cached(&self.keys), cached(&self.values));
        let expected = reference::attention(q, &keys, &values, self.scale, window);
        let bits = |list: &[f32]| list.iter().map(|x| x.to_bits()).collect::<Vec<_>>();
        assert_eq!(bits(found), bits(&expected), "row {row}, head {head}");
    }

    /// Copies of values that nobody reads: of the positions before the window that share a group of
    /// sixteen with its first.
    fn unread_copies(&self) -> u64 {
        let (positions, _, _, dim, _, window) = self.setting;
        let Some(window) = Some(window).filter(|window| *window > 0) else {
            return 0;
        };
        let before = |last: &u32| (*last as usize + 1).saturating_sub(window) % 16;
        let element = if self.is_half { 2 } else { 4 };
        let kernel = lockstep_kernels::kernel("attention_split_f16").expect("the table has it");
        let [_, blocks_of_a_row, _] = kernel.size(&self.shape()).grid;
        let positions: usize = positions.iter().map(before).sum();
        (positions * dim * element / 16) as u64 * u64::from(blocks_of_a_row)
    }

    fn split_case(&self) -> Case {
        let (_, heads, kv_heads, dim, block_size, window) = self.setting;
        let (keys, values) = self.pools();
        let (m, l, o) = self.all_partials();
        let values = vec![
            in_f32(&self.q),
            Value::InPart(keys),
            Value::InPart(values),
            in_u32(self.setting.0),
            in_u32(&self.tables),
            in_u32(&self.block_tables),
            Value::Out(m),
            Value::Out(l),
            Value::Out(o),
            Value::U32(heads as u32),
            Value::U32(kv_heads as u32),
            Value::U32(dim as u32),
            Value::U32(block_size as u32),
            Value::U32(window as u32),
            Value::F32(self.scale),
        ];
        let entry = if self.is_half {
            "attention_split_f16"
        } else {
            "attention_split_f32"
        };
        let name = format!("{:?} {}", self.setting, self.scale);
        Case {
            unread_copies: self.unread_copies(),
            ..Case::new(entry, name, self.shape(), values)
        }
    }

    fn merge_case(&self) -> Case {
        let (positions, heads, _, dim, _, window) = self.setting;
        let (m, l, o) = self.all_partials();
        let mut expected = Vec::new();
        for row in 0..positions.len() {
            for head in 0..heads {
                let partials = self.partials(row, head).into_iter().flatten();
                let merged = partials.reduce(|merged, next| merged.merge(&next));
                let Partial { l, o, .. } = merged.expect("a position is unmasked");
                let divided: Vec<f32> = o.iter().map(|o| o / l).collect();
                self.check_against_reference(row, head, &divided);
                expected.extend(divided);
            }
        }
        // What no split wrote is stale: NaN.
        let stale = |bytes: Expected| {
            Value::In(bytes.into_iter().map(|byte| byte.unwrap_or(0xff)).collect())
        };
        let values = vec![
            stale(m),
            stale(l),
            stale(o),
            in_u32(positions),
            out_f32(&expected),
            Value::U32(dim as u32),
            Value::U32(window as u32),
            Value::U32(self.shape().splits()),
        ];
        Case::new(
            "attention_merge",
            format!("{:?} {}", self.setting, self.scale),
            self.shape(),
            values,
        )
    }
}

/// The same for the merge, in either direction.
fn merge_at_the_limit() -> Case {
    let (m, l) = ([0.0, -87.33, -87.33, 0.0], [1.0; 4]);
    let o = [vec![0.0; 16], vec![1e30; 32], vec![0.0; 16]].concat();
    let partial = |part: usize| Partial {
        m: m[part],
        l: l[part],
        o: o[part * 16..part * 16 + 16].to_vec(),
    };
    let expected: Vec<f32> = [0, 2]
        .into_iter()
        .map(|part| partial(part).merge(&partial(part + 1)))
        .flat_map(|Partial { l, o, .. }| o.into_iter().map(move |o| o / l))
        .collect();
    let values = vec![
        in_f32(&m),
        in_f32(&l),
        in_f32(&o),
        in_u32(&[300, 511]),
        out_f32(&expected),
        Value::U32(16),
        Value::U32(0),
        Value::U32(2),
    ];
    let shape = Shape {
        rows: 2,
        heads: 1,
        positions: 512,
        ..Shape::default()
    };
    Case::new("attention_merge", "weights at the limit", shape, values)
}

fn gcd(a: usize, b: usize) -> usize {
    if b == 0 { a } else { gcd(b, a % b) }
}
