//! The forward pass of a Llama model.

use super::footprint::{kv_shape, max_inputs, positions, row_floats};
use super::weights::{Layer, Shapes, Weights};
use super::{ModelConfig, ModelError, ModelOptions, Numerics, RopeScaling, check};
use crate::backend::Isa;
use crate::backend::cpu::activations::{Activations, Form};
use crate::backend::cpu::device::{AttentionShape, Cpu, Flags, Piece, Places, RopeTables, Rows};
use crate::backend::cpu::kv::KvPool;
use crate::backend::cpu::pack::PackedMatrix;
use crate::batch::{Batch, Forward, ForwardError, TokenId};
use crate::gguf::Gguf;
use crate::profile::{Operation, Profile};

/// A model on the CPU, with its KV pool.
#[derive(Debug)]
pub struct Model {
    config: ModelConfig,
    options: ModelOptions,
    weights: Weights,
    tables: RopeTables,
    shape: AttentionShape,
    cpu: Cpu,
    kv: KvPool,
    buffers: Buffers,
    pieces: Vec<Piece>,
    profile: Option<Profile>,
}

/// Room for the rows of a step.
#[derive(Debug)]
struct Buffers {
    residual: Rows,
    normed: Rows,
    queries: Rows,
    attended: Rows,
    gate: Rows,
    up: Rows,
    activations: Activations,
    flags: Flags,
}

impl Buffers {
    fn new(config: &ModelConfig, forms: &[Form], max_rows: usize) -> std::io::Result<Self> {
        let [residual, normed, queries, attended, gate, up] =
            row_floats(config).map(|width| Rows::new(max_rows, width));
        Ok(Self {
            residual: residual?,
            normed: normed?,
            queries: queries?,
            attended: attended?,
            gate: gate?,
            up: up?,
            activations: Activations::new(max_rows, max_inputs(config), forms)?,
            flags: Flags::new(max_rows),
        })
    }
}

impl Model {
    /// Loads the model of `file`: checks it, packs its weights and takes all memory that steps will
    /// need. The file is not needed afterwards.
    ///
    /// # Errors
    /// A [`ModelError`] that names what is wrong with the file, the options or the machine.
    pub fn load(file: &Gguf, options: ModelOptions) -> Result<Self, ModelError> {
        let config = ModelConfig::from_gguf(file)?;
        check::options(&options)?;
        if options.numerics != Numerics::Portable {
            return Err(ModelError::NeedsGpu);
        }
        let isa = options.isa.unwrap_or_else(Isa::best);
        if !isa.available() {
            return Err(ModelError::NoIsa { isa });
        }
        let shapes = Shapes::read(file, &config)?;
        let shape = attention_shape(&config);
        let system = |what| move |source| ModelError::System { what, source };
        let mut cpu = Cpu::new(isa, options.threads, positions(&config, &options), &shape)
            .map_err(system("threads"))?;
        let weights = Weights::load(file, &shapes, cpu.pool())?;
        let kv = KvPool::new(kv_shape(&config, &options));
        let buffers = Buffers::new(&config, &shapes.forms(), options.max_rows);
        Ok(Self {
            tables: rope_tables(&config, &options, weights.rope_factors.as_deref()),
            weights,
            shape,
            cpu,
            kv: kv.map_err(system("memory for the KV pool"))?,
            buffers: buffers.map_err(system("memory for activations"))?,
            pieces: Vec::with_capacity(2 * options.max_rows),
            profile: None,
            config,
            options,
        })
    }

    /// The shape of the model.
    pub const fn config(&self) -> &ModelConfig {
        &self.config
    }

    /// The options it was loaded with.
    pub const fn options(&self) -> &ModelOptions {
        &self.options
    }

    /// The vector instructions it uses.
    pub const fn isa(&self) -> Isa {
        self.cpu.isa()
    }

    /// The most positions a sequence can have: the least of the model's context, the configured
    /// length, and the pool.
    pub fn max_positions(&self) -> usize {
        positions(&self.config, &self.options)
    }

    fn layer(&mut self, index: usize, places: &Places<'_>) {
        let (layer, rows) = (&self.weights.layers[index], places.positions.len());
        let profile = &mut self.profile;
        let (cpu, config, b) = (&mut self.cpu, &self.config, &mut self.buffers);
        let matrices = [&layer.query, &layer.key, &layer.value];
        let (forms, count) = forms(&matrices);
        cpu.normalise(
            &b.residual,
            rows,
            &|row| row,
            &layer.attention_norm,
            config.rms_epsilon,
            &mut b.normed,
            &mut b.activations,
            &forms[..count],
            &b.flags,
        );
        Profile::mark(profile, Operation::Normalise);
        cpu.queries_keys_values(
            matrices,
            &[&layer.output],
            &b.activations,
            index,
            places,
            &self.tables,
            &mut b.queries,
            &mut self.kv,
            &b.flags,
        );
        Profile::mark(profile, Operation::QueriesKeysValues);
        cpu.attend(
            &self.shape,
            index,
            places,
            &b.queries,
            &self.kv,
            &mut b.attended,
        );
        Profile::mark(profile, Operation::Attention);
        let form = Form::of(layer.output.ggml_type());
        cpu.prepare(&b.attended, rows, &mut b.activations, form, &b.flags);
        Profile::mark(profile, Operation::Normalise);
        cpu.linear_add(
            &layer.output,
            &[&layer.gate],
            &b.activations,
            rows,
            &mut b.residual,
        );
        Profile::mark(profile, Operation::AttentionOutput);
        let following = match self.weights.layers.get(index + 1) {
            Some(layer) => &[&layer.query, &layer.key, &layer.value][..],
            None => &[self.weights.output()],
        };
        feed_forward(cpu, layer, following, config, b, rows, profile);
    }

    fn logits(&mut self, sampling_rows: &[u32], logits: &mut [f32]) {
        let matrix = self.weights.output();
        let b = &mut self.buffers;
        let rows = sampling_rows.len();
        self.cpu.normalise(
            &b.residual,
            rows,
            &|i| sampling_rows[i] as usize,
            &self.weights.output_norm,
            self.config.rms_epsilon,
            &mut b.normed,
            &mut b.activations,
            &[Form::of(matrix.ggml_type())],
            &b.flags,
        );
        Profile::mark(&mut self.profile, Operation::Normalise);
        self.cpu.linear(matrix, &b.activations, rows, logits);
        self.cpu.check_finite(sampling_rows, logits, &b.flags);
        Profile::mark(&mut self.profile, Operation::Output);
    }

    fn cut(&mut self, batch: &Batch) {
        self.pieces.clear();
        for sequence in &batch.sequences {
            let (row, table) = (sequence.first_row as usize, sequence.first_block as usize);
            Piece::cut(
                &mut self.pieces,
                row,
                sequence.rows as usize,
                batch.positions[row] as usize,
                table..table + sequence.blocks as usize,
            );
        }
    }

    fn not_finite(&self, batch: &Batch) -> Result<(), ForwardError> {
        let flagged = |i: &u32| {
            let sequence = &batch.sequences[*i as usize];
            let first = sequence.first_row as usize;
            self.buffers
                .flags
                .any(first..first + sequence.rows as usize)
        };
        let sequences: Vec<u32> = (0..batch.sequences.len() as u32).filter(flagged).collect();
        match sequences.is_empty() {
            true => Ok(()),
            false => Err(ForwardError::NonFinite { sequences }),
        }
    }
}

/// The second half of a block.
fn feed_forward(
    cpu: &mut Cpu,
    layer: &Layer,
    following: &[&PackedMatrix],
    config: &ModelConfig,
    b: &mut Buffers,
    rows: usize,
    profile: &mut Option<Profile>,
) {
    let matrices = [&layer.gate, &layer.up];
    let (forms, count) = forms(&matrices);
    cpu.normalise(
        &b.residual,
        rows,
        &|row| row,
        &layer.feed_forward_norm,
        config.rms_epsilon,
        &mut b.normed,
        &mut b.activations,
        &forms[..count],
        &b.flags,
    );
    Profile::mark(profile, Operation::Normalise);
    let down = &[&layer.down];
    cpu.gate_up(matrices, down, &b.activations, rows, &mut b.gate, &mut b.up);
    Profile::mark(profile, Operation::GateUp);
    let form = Form::of(layer.down.ggml_type());
    cpu.prepare(&b.gate, rows, &mut b.activations, form, &b.flags);
    Profile::mark(profile, Operation::Normalise);
    cpu.linear_add(
        &layer.down,
        following,
        &b.activations,
        rows,
        &mut b.residual,
    );
    Profile::mark(profile, Operation::Down);
}

/// The forms that matrices want, each once: the first so many of the array.
fn forms(matrices: &[&PackedMatrix]) -> ([Form; 3], usize) {
    let (mut forms, mut count) = ([Form::Dense; 3], 0);
    for matrix in matrices {
        let form = Form::of(matrix.ggml_type());
        if !forms[..count].contains(&form) {
            forms[count] = form;
            count += 1;
        }
    }
    (forms, count)
}

pub(super) fn attention_shape(config: &ModelConfig) -> AttentionShape {
    AttentionShape {
        group: config.group(),
        kv_heads: config.kv_heads,
        head_dim: config.head_dim,
        window: config.sliding_window as usize,
        scale: 1.0 / (config.head_dim as f32).sqrt(),
    }
}

fn rope_tables(
    config: &ModelConfig,
    options: &ModelOptions,
    factors: Option<&[f32]>,
) -> RopeTables {
    RopeTables::new(positions(config, options), &frequencies(config, factors))
}

/// By how much each pair of a head turns from one position to the next.
pub(super) fn frequencies(config: &ModelConfig, factors: Option<&[f32]>) -> Vec<f64> {
    let (base, pairs) = (f64::from(config.rope_base), config.head_dim / 2);
    let squeeze = match config.rope_scaling {
        RopeScaling::None => 1.0,
        RopeScaling::Linear { factor } => f64::from(factor),
    };
    let frequency = |i: usize| {
        let factor = factors.map_or(1.0, |factors| f64::from(factors[i]));
        libm::pow(base, -(i as f64) / pairs as f64) / (squeeze * factor)
    };
    (0..pairs).map(frequency).collect()
}

impl Forward for Model {
    fn vocab_size(&self) -> usize {
        self.config.vocab_size
    }

    fn forward(&mut self, batch: &Batch, logits: &mut [f32]) -> Result<(), ForwardError> {
        let limits = check::Limits {
            rows: self.options.max_rows,
            positions: self.max_positions(),
            vocab_size: self.config.vocab_size,
            blocks: self.options.num_blocks as usize,
            block_size: self.options.block_size as usize,
            ranks: 0,
        };
        check::batch(batch, logits.len(), &limits).map_err(ForwardError::Device)?;
        if batch.rows() == 0 {
            return Ok(());
        }
        Profile::begin(&mut self.profile);
        self.buffers.flags.clear();
        self.cut(batch);
        let tokens: &[TokenId] = &batch.token_ids;
        self.cpu
            .embed(&self.weights.embedding, tokens, &mut self.buffers.residual);
        let pieces = std::mem::take(&mut self.pieces);
        let places = Places {
            positions: &batch.positions,
            slots: &batch.slots,
            block_tables: &batch.block_tables,
            pieces: &pieces,
        };
        Profile::mark(&mut self.profile, Operation::Embed);
        for index in 0..self.config.layers {
            self.layer(index, &places);
        }
        self.pieces = pieces;
        self.logits(&batch.sampling_rows, logits);
        self.not_finite(batch)
    }

    fn copy_blocks(&mut self, copies: &[(u32, u32)]) -> Result<(), ForwardError> {
        let blocks = self.options.num_blocks;
        if let Some((from, to)) = copies.iter().find(|(a, b)| *a >= blocks || *b >= blocks) {
            let message = format!("no copy from block {from} to {to}: there are {blocks}");
            return Err(ForwardError::Device(message));
        }
        for (from, to) in copies {
            self.kv.copy_block(*from as usize, *to as usize);
        }
        Ok(())
    }

    fn set_profile(&mut self, profile: Option<Profile>) -> Option<Profile> {
        std::mem::replace(&mut self.profile, profile)
    }
}
