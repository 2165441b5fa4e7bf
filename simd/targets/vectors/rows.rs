//! Operations on single rows, and the functions that they share.

use alloc::vec;
use alloc::vec::Vec;
use core::fmt;

use half::f16;

use lockstep_simd::exp::{exp, gelu, silu};
use lockstep_simd::{reference, rows};

use super::random::Random;
use super::{Digest, Lines, Path};

const WIDTHS: [usize; 4] = [16, 64, 80, 576];

pub(super) fn run(lines: &mut Lines<'_>) -> fmt::Result {
    for width in WIDTHS {
        let mut random = Random(width as u64);
        let mut row = |limit| -> Vec<f32> { (0..width).map(|_| random.bounded(limit)).collect() };
        let (x, y, angles) = (row(1e15), row(1e15), row(1.0));
        lines.put(format_args!("norm {width}"), norm(lines.path, &x, &y))?;
        lines.put(format_args!("add {width}"), add(lines.path, &x, &y))?;
        lines.put(
            format_args!("rotation {width}"),
            rotation(lines.path, &x, &angles),
        )?;
    }
    // Every sign and exponent, some forty numbers of each.
    let sweep: Vec<f32> = (0..0x7f80_0000_u32)
        .step_by(0x3_3333)
        .map(f32::from_bits)
        .collect();
    let both: Vec<f32> = sweep.iter().flat_map(|x| [*x, -x]).collect();
    // The range in which the functions are neither 0 nor their argument.
    let middle: Vec<f32> = (-24_000..24_000).map(|i| i as f32 * 0.004).collect();
    for (name, x) in [("sweep", &both), ("middle", &middle)] {
        let x = &x[..x.len() / 16 * 16];
        lines.put(format_args!("silu, {name}"), silus(lines.path, x))?;
        lines.put(format_args!("gelu, {name}"), gelus(lines.path, x))?;
        lines.put(
            format_args!("exp, {name}"),
            exponentials(lines.path, &x[5..]),
        )?;
        lines.put(format_args!("to f16, {name}"), halves(lines.path, x))?;
    }
    Ok(())
}

fn norm(path: Path, x: &[f32], weight: &[f32]) -> Digest {
    let Path::Kernels(isa) = path else {
        return Digest::of(&reference::rms_norm(x, weight, 1e-5));
    };
    let mut out = vec![f32::NAN; x.len()];
    // SAFETY: the machine has `isa`.
    assert!(
        unsafe { rows::rms_norm(isa, x, weight, 1e-5, &mut out) },
        "a finite sum"
    );
    Digest::of(&out)
}

fn add(path: Path, x: &[f32], y: &[f32]) -> Digest {
    let mut out = x.to_vec();
    match path {
        Path::Reference => out.iter_mut().zip(y).for_each(|(x, y)| *x += y),
        // SAFETY: the machine has `isa`.
        Path::Kernels(isa) => unsafe { rows::add(isa, &mut out, y) },
    }
    Digest::of(&out)
}

fn rotation(path: Path, x: &[f32], angles: &[f32]) -> Digest {
    let (cos, sin) = angles.split_at(angles.len() / 2);
    let twice =
        |v: &[f32], sign: f32| -> Vec<f32> { v.iter().flat_map(|v| [sign * v, *v]).collect() };
    let mut out = x.to_vec();
    match path {
        Path::Reference => reference::rope(&mut out, cos, sin),
        // SAFETY: the machine has `isa`.
        Path::Kernels(isa) => unsafe {
            rows::rope(isa, &mut out, &twice(cos, 1.0), &twice(sin, -1.0));
        },
    }
    Digest::of(&out)
}

fn silus(path: Path, x: &[f32]) -> Digest {
    let mut out = x.to_vec();
    match path {
        Path::Reference => out.iter_mut().for_each(|x| *x = silu(*x) * 0.75),
        // SAFETY: the machine has `isa`.
        Path::Kernels(isa) => unsafe { rows::silu_mul(isa, &mut out, &vec![0.75; x.len()]) },
    }
    Digest::of(&out)
}

fn gelus(path: Path, x: &[f32]) -> Digest {
    let mut out = x.to_vec();
    match path {
        Path::Reference => out.iter_mut().for_each(|x| *x = gelu(*x) * 0.75),
        // SAFETY: the machine has `isa`.
        Path::Kernels(isa) => unsafe { rows::gelu_mul(isa, &mut out, &vec![0.75; x.len()]) },
    }
    Digest::of(&out)
}

fn exponentials(path: Path, x: &[f32]) -> Digest {
    let mut out = x.to_vec();
    match path {
        Path::Reference => out.iter_mut().for_each(|x| *x = exp(*x - 0.5)),
        // SAFETY: the machine has `isa`.
        Path::Kernels(isa) => unsafe { rows::exponentials(isa, x, 0.5, &mut out) },
    }
    Digest::of(&out)
}

fn halves(path: Path, x: &[f32]) -> Digest {
    let mut digest = Digest::EMPTY;
    for x in x.as_chunks().0 {
        let halves = match path {
            Path::Reference => x.map(|x| f16::from_f32(x).to_bits()),
            // SAFETY: the machine has `isa`.
            Path::Kernels(isa) => unsafe { rows::to_f16(isa, x) },
        };
        halves.into_iter().for_each(|half| digest.word(half.into()));
    }
    digest
}
