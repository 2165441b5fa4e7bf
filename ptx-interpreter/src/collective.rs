//! What lanes do together: shuffles, votes, warp barriers and matrix products.

use crate::arithmetic::sign_extend;
use crate::block::{Context, LANES};
use crate::execute::lanes;
use crate::fault::FaultKind;
use crate::instruction::{Operand, Operation, Register, Shuffle, Vote};
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
        Operation::MatrixMultiply { .. } => Operand::Immediate(u64::from(u32::MAX)),
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
    context: &Context<'_>,
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
        Operation::MatrixMultiply { to, a, b, c } => {
            matrix_multiply(warp, to, [a, b, c], active, context)
        }
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

/// Rows of the first matrix, columns of the second, length of the sums.
const SHAPE: (usize, usize, usize) = (16, 8, 32);

/// The product of 16x32 and 32x8 signed bytes, added to 16x8 integers, in the fragment layout of
/// `mma.m16n8k32` (PTX ISA, matrix fragments for 8-bit types).
fn matrix_multiply(
    warp: &mut Warp,
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
    let byte = |word: u64, index: usize| sign_extend(word >> (8 * (index % 4)), 8) as i32;
    let (rows, columns, length) = SHAPE;
    let mut left = vec![[0_i32; 32]; rows];
    let mut right = vec![[0_i32; 32]; columns];
    for lane in 0..LANES {
        let (group, place) = (lane / 4, lane % 4);
        for index in 0..16 {
            let row = group + if index / 4 % 2 == 1 { 8 } else { 0 };
            let k = place * 4 + index % 4 + if index >= 8 { 16 } else { 0 };
            left[row][k] = byte(a[index / 4][lane], index);
        }
        for index in 0..8 {
            let k = place * 4 + index % 4 + if index >= 4 { 16 } else { 0 };
            right[group][k] = byte(b[index / 4][lane], index);
        }
    }
    for (index, to) in to.iter().enumerate() {
        let out = std::array::from_fn(|lane| {
            let row = lane / 4 + if index >= 2 { 8 } else { 0 };
            let column = lane % 4 * 2 + index % 2;
            let sum = (0..length).map(|k| left[row][k] * right[column][k]);
            let sum = sum.fold(c[index][lane] as u32 as i32, i32::wrapping_add);
            u64::from(sum as u32)
        });
        warp.write(*to, active, &out, context.kernel);
    }
    Ok(())
}
