//! Whole forward passes by the shipped PTX, run in the interpreter: the logits are the CPU
//! backend's, bit for bit.

#[path = "../asked/mod.rs"]
mod asked;
mod fast;
mod interpreter;
mod ranks;

use lockstep::backend::cuda::Cuda;
use lockstep::backend::device::Device;
use lockstep::batch::{Batch, BatchSequence, Forward};
use lockstep::gguf::{Gguf, tiny::tiny_llama};
use lockstep::model::{KvDtype, Model, ModelOptions, OnDevice};

use interpreter::Interpreter;

/// Tokens of a sequence that a step computes: all of its tokens, how many of them are computed
/// before, and its blocks.
type Share<'a> = (&'a [u32], usize, &'a [u32]);

const BLOCK_SIZE: u32 = 16;

fn batch(shares: &[Share<'_>]) -> Batch {
    let mut batch = Batch::default();
    for (tokens, computed, blocks) in shares {
        batch.sequences.push(BatchSequence {
            first_row: batch.token_ids.len() as u32,
            rows: (tokens.len() - computed) as u32,
            first_block: batch.block_tables.len() as u32,
            blocks: blocks.len() as u32,
        });
        batch.block_tables.extend(*blocks);
        for (position, token) in tokens.iter().enumerate().skip(*computed) {
            batch.token_ids.push(*token);
            batch.positions.push(position as u32);
            let block = blocks[position / BLOCK_SIZE as usize];
            batch
                .slots
                .push(block * BLOCK_SIZE + position as u32 % BLOCK_SIZE);
        }
        batch.sampling_rows.push(batch.token_ids.len() as u32 - 1);
    }
    batch
}

fn logits(model: &mut impl Forward, batch: &Batch) -> Vec<u32> {
    let mut logits = vec![0.0; batch.sampling_rows.len() * model.vocab_size()];
    model
        .forward(batch, &mut logits)
        .unwrap_or_else(|error| panic!("{error}"));
    logits.iter().map(|logit| logit.to_bits()).collect()
}

fn options(kv_dtype: KvDtype) -> ModelOptions {
    ModelOptions {
        threads: 1,
        kv_dtype,
        num_blocks: 8,
        block_size: BLOCK_SIZE,
        max_rows: 24,
        max_positions: 64,
        ..ModelOptions::default()
    }
}

/// Prefill of two sequences at once, decoding beside a chunk, and decoding after a copied block.
fn steps<'a>(a: &'a [u32], b: &'a [u32]) -> Vec<Batch> {
    vec![
        batch(&[(&a[..17], 0, &[5, 2]), (&b[..3], 0, &[7])]),
        batch(&[(&a[..18], 17, &[5, 2]), (&b[..9], 3, &[7])]),
        batch(&[(&b[..10], 9, &[7])]),
    ]
}

#[test]
fn a_tiny_model_gives_the_cpus_logits() {
    tiny_model(Interpreter::new);
}

#[test]
fn padding_rows_reach_no_live_row() {
    padding(Interpreter::new);
}

/// Both through the driver that is found: a GPU's, or a stand-in's.
#[test]
fn the_same_through_a_driver() {
    if !asked::for_a_driver() {
        return;
    }
    let open = || {
        Cuda::open(0, &lockstep_kernels::kernels().collect::<Vec<_>>())
            .unwrap_or_else(|error| panic!("{error}"))
    };
    tiny_model(open);
    padding(open);
    println!("on {}", open().info());
}

fn tiny_model<D: Device>(open: impl Fn() -> D) {
    let file = Gguf::from_bytes(tiny_llama(7)).unwrap_or_else(|error| panic!("{error}"));
    let a: Vec<u32> = (0..18).map(|i| i * 13 % 260).collect();
    let b: Vec<u32> = (0..12).map(|i| 259 - i * 7).collect();
    for kv_dtype in [KvDtype::F16, KvDtype::F32] {
        let options = options(kv_dtype);
        let mut cpu = Model::load(&file, options).unwrap_or_else(|error| panic!("{error}"));
        let mut device =
            OnDevice::load(&file, options, open()).unwrap_or_else(|error| panic!("{error}"));
        for batch in steps(&a, &b) {
            assert_eq!(
                logits(&mut device, &batch),
                logits(&mut cpu, &batch),
                "{kv_dtype}"
            );
        }
        for model in [&mut cpu as &mut dyn Forward, &mut device] {
            model
                .copy_blocks(&[(7, 1)])
                .unwrap_or_else(|error| panic!("{error}"));
        }
        let batch = batch(&[(&b[..11], 10, &[1])]);
        assert_eq!(
            logits(&mut device, &batch),
            logits(&mut cpu, &batch),
            "{kv_dtype}"
        );
    }
}

/// Sequences that fill the pool to its last block decode together, three of them and then five:
/// what pads their steps to the size of a graph reaches none of them.
fn padding<D: Device>(open: impl Fn() -> D) {
    let file = Gguf::from_bytes(tiny_llama(3)).unwrap_or_else(|error| panic!("{error}"));
    let tokens: Vec<Vec<u32>> = (0..8_u32)
        .map(|i| (0..16).map(|j| (i * 37 + j * 11) % 260).collect())
        .collect();
    for enforce_eager in [false, true] {
        let options = ModelOptions {
            enforce_eager,
            max_rows: 32,
            ..options(KvDtype::F16)
        };
        let mut cpu = Model::load(&file, options).unwrap_or_else(|error| panic!("{error}"));
        let mut device =
            OnDevice::load(&file, options, open()).unwrap_or_else(|error| panic!("{error}"));
        let blocks: Vec<[u32; 1]> = (0..8).map(|block| [block]).collect();
        let share =
            |i: usize, len: usize, computed: usize| (&tokens[i][..len], computed, &blocks[i][..]);
        let mut steps = vec![batch(&[0, 1, 2].map(|i| share(i, 9, 0)))];
        steps.push(batch(&[3, 4, 5, 6, 7].map(|i| share(i, 4, 0))));
        for len in 10..13 {
            steps.push(batch(&[0, 1, 2].map(|i| share(i, len, len - 1))));
            let other = len - 5;
            steps.push(batch(&[3, 4, 5, 6, 7].map(|i| share(i, other, other - 1))));
        }
        let last = (0..8).map(|i| {
            if i < 3 {
                share(i, 13, 12)
            } else {
                share(i, 8, 7)
            }
        });
        steps.push(batch(&last.collect::<Vec<_>>()));
        for (index, batch) in steps.iter().enumerate() {
            let found = logits(&mut device, batch);
            assert_eq!(
                found,
                logits(&mut cpu, batch),
                "step {index}, eager: {enforce_eager}"
            );
        }
    }
}

/// The model at `LOCKSTEP_TEST_MODEL`, for two prompts of a few tokens and one more.
#[test]
#[ignore = "needs a model's file in LOCKSTEP_TEST_MODEL, and minutes"]
fn a_real_model_gives_the_cpus_logits() {
    let path = std::env::var("LOCKSTEP_TEST_MODEL").expect("LOCKSTEP_TEST_MODEL names a file");
    let file = Gguf::open(path.as_ref()).unwrap_or_else(|error| panic!("{error}"));
    let options = options(KvDtype::F16);
    let mut cpu = Model::load(&file, options).unwrap_or_else(|error| panic!("{error}"));
    let mut device = OnDevice::load(&file, options, Interpreter::new())
        .unwrap_or_else(|error| panic!("{error}"));
    let (a, b) = ([1, 9690, 198, 2683], [1, 3725]);
    for batch in [
        batch(&[(&a[..3], 0, &[5]), (&b, 0, &[7])]),
        batch(&[(&a, 3, &[5])]),
    ] {
        assert_eq!(logits(&mut device, &batch), logits(&mut cpu, &batch));
    }
    println!("the interpreter's logits are the CPU's, bit for bit");
}
