//! The `fast` profile over whole passes: near the portable logits, and the same bits however a
//! sequence is batched and cut into chunks.

use lockstep::batch::Forward;
use lockstep::gguf::{Gguf, tiny::tiny_llama};
use lockstep::model::{KvDtype, Model, ModelError, ModelOptions, Numerics, OnDevice};

use crate::interpreter::Interpreter;
use crate::{Share, batch, logits, options};

/// The most that a logit may differ, relative to the greatest. The portable rows are the coarser ones:
/// they are rounded to 1/254 of a block's greatest, once for each of the fourteen matrices of two
/// layers and for the output.
const NEAR: f32 = 15.0 / 254.0;

fn file() -> Gguf {
    Gguf::from_bytes(tiny_llama(7)).unwrap_or_else(|error| panic!("{error}"))
}

/// Room for a step of more rows than a narrow kernel gets.
fn many_rows(numerics: Numerics) -> ModelOptions {
    ModelOptions {
        num_blocks: 14,
        max_rows: 80,
        max_positions: 96,
        numerics,
        ..options(KvDtype::F16)
    }
}

fn on_device(file: &Gguf, numerics: Numerics) -> OnDevice<Interpreter> {
    OnDevice::load(file, many_rows(numerics), Interpreter::new())
        .unwrap_or_else(|error| panic!("{error}"))
}

/// The logits of the last of several steps.
fn last(model: &mut impl Forward, steps: &[&[Share<'_>]]) -> Vec<u32> {
    let mut last = Vec::new();
    for shares in steps {
        last = logits(model, &batch(shares));
    }
    last
}

const A: [u32; 5] = [5, 2, 9, 4, 0];
const B: [u32; 3] = [7, 11, 1];

#[test]
fn fast_logits_are_near_the_portable_ones() {
    let file = file();
    let tokens: Vec<u32> = (0..18).map(|i| i * 13 % 260).collect();
    let steps: [&[Share<'_>]; 2] = [&[(&tokens[..17], 0, &A)], &[(&tokens, 17, &A)]];
    let floats = |words: Vec<u32>| words.into_iter().map(f32::from_bits).collect::<Vec<_>>();
    let portable = floats(last(&mut on_device(&file, Numerics::Portable), &steps));
    let fast = floats(last(&mut on_device(&file, Numerics::Fast), &steps));
    let greatest = portable.iter().fold(0.0_f32, |m, x| m.max(x.abs()));
    let pairs = portable.iter().zip(&fast);
    let off = pairs.fold(0.0_f32, |m, (a, b)| m.max((a - b).abs()));
    println!("off by {off}, the greatest logit is {greatest}");
    assert!(off <= NEAR * greatest, "off by {off} of {greatest}");
    assert!(off > 0.0, "the profiles are the same");
}

#[test]
fn fast_logits_depend_on_neither_the_batch_nor_the_chunks() {
    let file = file();
    let a: Vec<u32> = (0..70).map(|i| i * 13 % 260).collect();
    let b: Vec<u32> = (0..40).map(|i| 259 - i * 3).collect();
    let mut model = on_device(&file, Numerics::Fast);
    let vocab = model.vocab_size();
    let mut of = |steps: &[&[Share<'_>]]| last(&mut model, steps)[..vocab].to_vec();
    // By the kernel for many rows, and by the one for few.
    let whole = of(&[&[(&a[..69], 0, &A)], &[(&a, 69, &A)]]);
    let chunked = of(&[
        &[(&a[..7], 0, &A)],
        &[(&a[..31], 7, &A)],
        &[(&a[..69], 31, &A)],
        &[(&a, 69, &A)],
    ]);
    assert_eq!(whole, chunked);
    let among_others = of(&[
        &[(&a[..40], 0, &A), (&b[..38], 0, &B)],
        &[(&a[..69], 40, &A), (&b[..39], 38, &B)],
        &[(&a, 69, &A), (&b, 39, &B)],
    ]);
    assert_eq!(whole, among_others);
    assert_eq!(whole, of(&[&[(&a, 0, &A)]]));
}

#[test]
fn a_cpu_refuses_the_fast_numerics() {
    let error = Model::load(&file(), many_rows(Numerics::Fast)).err();
    assert!(matches!(error, Some(ModelError::NeedsGpu)), "{error:?}");
}
