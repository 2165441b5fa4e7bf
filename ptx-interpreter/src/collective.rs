//! What lanes do together: shuffles, votes, warp barriers and matrix products.

use crate::arithmetic::sign_extend;
use crate::block::{Context, LANES};
use crate::execute::lanes;
use crate::fault::FaultKind;
use crate::float;
use crate::instruction::{Address, Elements, Operand, Operation, Register, Shuffle, Vote};
use crate::warp::{LaneFault, Lanes, Warp};

/// The lanes that have to be at `operation`, where it is one that lanes do together.
///
/// # Errors
/// A mask that differs between the lanes, or that leaves out a lane that is there.
pub(crate) fn expected(
    warp: &Warp,
    operation: &Operation,
    active: u32,
    context: &Context<'_>,
) -> Result<Option<u32>, LaneFault> {
    let mask = match operation {
        Operation::WarpBarrier { mask }
        | Operation::Shuffle { mask, .. }
        | Operation::Vote { mask, .. } => *mask,
        Operation::MatrixMultiply { .. } | Operation::LoadMatrix { .. } => {
            Operand::Immediate(u64::from(u32::MAX))
        }
        _ => return Ok(None),
    };
    let masks = warp.value(mask, active, context)?;
    let first = active.trailing_zeros() as usize;
    let expected = masks[first] as u32;
    for lane in lanes(active) {
        if masks[lane] as u32 != expected || expected >> lane & 1 == 0 {
            return Err((
                lane,
                FaultKind::NotConverged {
                    present: active,
                    expected,
                },
            ));
        }
    }
    Ok(Some(expected))
}

/// Executes what lanes do together; every expected lane is in `active`.
pub(crate) fn execute(
    warp: &mut Warp,
    operation: &Operation,
    active: u32,
    context: &mut Context<'_>,
) -> Result<(), LaneFault> {
    match operation {
        Operation::WarpBarrier { .. } => {
            // A barrier of some lanes orders those only: it does not count for the others.
            warp.epoch += u32::from(active == warp.live());
            Ok(())
        }
        Operation::Shuffle {
            shuffle,
            to,
            valid,
            a,
            b,
            c,
            ..
        } => exchange(warp, *shuffle, (*to, *valid), [*a, *b, *c], active, context),
        Operation::Vote { vote, to, a, .. } => {
            let values = warp.value(*a, active, context)?;
            let ballot = lanes(active)
                .filter(|l| values[*l] != 0)
                .fold(0_u32, |m, l| m | 1 << l);
            let result = match vote {
                Vote::All => u64::from(ballot == active),
                Vote::Any => u64::from(ballot != 0),
                Vote::Ballot => u64::from(ballot),
            };
            warp.write(*to, active, &[result; LANES], context.kernel);
            Ok(())
        }
        Operation::MatrixMultiply {
            elements,
            to,
            a,
            b,
            c,
        } => {
            let fragments = [a, b, c].map(|operands| operands.as_slice());
            matrix_multiply(warp, *elements, to, fragments, active, context)
        }
        Operation::LoadMatrix {
            to,
            address,
            transposed,
        } => load_matrices(warp, to, *address, *transposed, context),
        _ => Ok(()),
    }
}

fn exchange(
    warp: &mut Warp,
    shuffle: Shuffle,
    (to, valid): (Register, Option<Register>),
    [a, b, c]: [Operand; 3],
    active: u32,
    context: &Context<'_>,
) -> Result<(), LaneFault> {
    let values = warp.value(a, active, context)?;
    let distances = warp.value(b, active, context)?;
    let bounds = warp.value(c, active, context)?;
    let mut out: Lanes = [0; LANES];
    let mut inside: Lanes = [0; LANES];
    for lane in lanes(active) {
        let (distance, bounds) = (distances[lane] as usize & 31, bounds[lane] as usize);
        let segment = bounds >> 8 & 31;
        let clamp = bounds & 31;
        let last = lane & segment | clamp & !segment;
        let first = lane & segment;
        let (from, is_inside) = match shuffle {
            Shuffle::Up => (lane.wrapping_sub(distance), lane >= last + distance),
            Shuffle::Down => (lane + distance, lane + distance <= last),
            Shuffle::Butterfly => (lane ^ distance, (lane ^ distance) <= last),
            Shuffle::Index => {
                let from = first | distance & !segment;
                (from, from <= last)
            }
        };
        let from = if is_inside { from } else { lane };
        if active >> from & 1 == 0 {
            return Err((lane, FaultKind::ShuffleSource { lane: from as u32 }));
        }
        out[lane] = values[from];
        inside[lane] = u64::from(is_inside);
    }
    warp.write(to, active, &out, context.kernel);
    if let Some(valid) = valid {
        warp.write(valid, active, &inside, context.kernel);
    }
    Ok(())
}

/// Rows of the first matrix, and columns of the second.
const ROWS: usize = 16;
const COLUMNS: usize = 8;

/// The place of a 16x8 result in a lane's registers (PTX ISA, matrix fragments, C and D).
const fn place(lane: usize, index: usize) -> (usize, usize) {
    let row = lane / 4 + if index >= 2 { 8 } else { 0 };
    (row, lane % 4 * 2 + index % 2)
}

/// The rows of the first matrix and the columns of the second, of which a register holds `packed`
/// elements each: in the layout that all shapes of 32-byte rows have (PTX ISA, matrix fragments for
/// `mma.m16n8k16` of 16-bit types and for `mma.m16n8k32`).
fn unpack<T: Copy + Default>(
    (a, b): (&[Lanes], &[Lanes]),
    packed: usize,
    element: impl Fn(u64) -> T,
) -> (Vec<Vec<T>>, Vec<Vec<T>>) {
    let half = packed * 4;
    let mut left = vec![vec![T::default(); half * 2]; ROWS];
    let mut right = vec![vec![T::default(); half * 2]; COLUMNS];
    let bits = 32 / packed;
    for lane in 0..LANES {
        let (group, place) = (lane / 4, lane % 4 * packed);
        for index in 0..packed {
            let at = |register: &Lanes| element(register[lane] >> (bits * index));
            for (register, words) in a.iter().enumerate() {
                let (row, k) = (group + register % 2 * 8, place + register / 2 * half);
                left[row][k + index] = at(words);
            }
            for (register, words) in b.iter().enumerate() {
                right[group][place + register * half + index] = at(words);
            }
        }
    }
    (left, right)
}

/// A product and what is added to it.
///
/// Of integers the sum is exact. Of floats each result is one chain of fused multiply-adds in f32
/// over ascending k, from what is added: a device's own order, and how it rounds inside, are not
/// specified, but an order is needed so that kernels that differ in theirs are seen to differ.
fn matrix_multiply(
    warp: &mut Warp,
    elements: Elements,
    to: &[Register],
    [a, b, c]: [&[Operand]; 3],
    active: u32,
    context: &Context<'_>,
) -> Result<(), LaneFault> {
    let fragment = |operands: &[Operand]| -> Result<Vec<Lanes>, LaneFault> {
        operands
            .iter()
            .map(|operand| warp.value(*operand, active, context))
            .collect()
    };
    let (a, b, c) = (fragment(a)?, fragment(b)?, fragment(c)?);
    let chain = |left: &[f32], right: &[f32], c: u64| {
        let pairs = left.iter().zip(right);
        let sum = pairs.fold(f32::from_bits(c as u32), |sum, (a, b)| a.mul_add(*b, sum));
        u64::from(float::canonical(sum).to_bits())
    };
    let result: Vec<Lanes> = match elements {
        Elements::Bytes => {
            let (left, right) = unpack((&a, &b), 4, |word| sign_extend(word, 8) as i32);
            each_result(&c, |row, column, c| {
                let products = left[row].iter().zip(&right[column]).map(|(a, b)| a * b);
                let sum = products.fold(c as u32 as i32, i32::wrapping_add);
                u64::from(sum as u32)
            })
        }
        Elements::Halves => {
            let (left, right) = unpack((&a, &b), 2, |word| float::from_half(word as u16));
            each_result(&c, |row, column, c| chain(&left[row], &right[column], c))
        }
        Elements::BrainFloats => {
            let (left, right) = unpack((&a, &b), 2, |word| float::from_brain_float(word as u16));
            each_result(&c, |row, column, c| chain(&left[row], &right[column], c))
        }
    };
    for (to, out) in to.iter().zip(&result) {
        warp.write(*to, active, out, context.kernel);
    }
    Ok(())
}

fn each_result(c: &[Lanes], of: impl Fn(usize, usize, u64) -> u64) -> Vec<Lanes> {
    let register = |(index, c): (usize, &Lanes)| {
        std::array::from_fn(|lane| {
            let (row, column) = place(lane, index);
            of(row, column, c[lane])
        })
    };
    c.iter().enumerate().map(register).collect()
}

/// Loads one 8x8 matrix for each register: lane `8 m + r` says where row `r` of matrix `m` lies,
/// and lane `l` gets elements `2 (l % 4)` and one more of row `l / 4`, or of that column where
/// they are transposed (PTX ISA, `ldmatrix`).
fn load_matrices(
    warp: &mut Warp,
    to: &[Register],
    address: Address,
    transposed: bool,
    context: &mut Context<'_>,
) -> Result<(), LaneFault> {
    let base = warp.value(address.base, u32::MAX, context)?;
    let mut matrices = vec![[[0_u16; 8]; 8]; to.len()];
    for lane in 0..8 * to.len() {
        let now = warp.access(lane, context);
        let address = base[lane].wrapping_add_signed(address.offset);
        let row = context.shared.read(address, 16, &now);
        let row = row.map_err(|kind| (lane, kind))?;
        for (element, bytes) in matrices[lane / 8][lane % 8].iter_mut().zip(row.chunks(2)) {
            *element = u16::from_le_bytes([bytes[0], bytes[1]]);
        }
    }
    for (to, matrix) in to.iter().zip(&matrices) {
        let element = |row: usize, column: usize| {
            let (row, column) = if transposed {
                (column, row)
            } else {
                (row, column)
            };
            u64::from(matrix[row][column])
        };
        let out = std::array::from_fn(|lane| {
            let (row, column) = (lane / 4, lane % 4 * 2);
            element(row, column) | element(row, column + 1) << 16
        });
        warp.write(*to, u32::MAX, &out, context.kernel);
    }
    Ok(())
}
