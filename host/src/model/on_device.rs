//! The forward pass of a Llama model on a device, by the kernels of the table.
//!
//! Under the `portable` numerics each operation's result is the CPU's, bit for bit; so are the logits.

mod buffers;
mod footprint;
mod inputs;
mod launcher;
mod layers;
mod limits;
mod ranks;
mod rounded;
mod step;

use std::collections::BTreeMap;

use lockstep_kernels::Shape;

use self::buffers::Buffers;
use self::inputs::Inputs;
use self::launcher::Launcher;
use self::layers::{DeviceLayer, Matrix, RopeTables};
use self::ranks::{Found, MAX_RANKS};
use self::rounded::Rounded;
use self::step::Step;
use super::footprint::positions;
use super::weights::{Shapes, Weights};
use super::{ModelConfig, ModelError, ModelOptions, Numerics, check};
use crate::backend::cpu::pool::Pool;
use crate::backend::device::{Argument, Device};
use crate::batch::{Batch, Forward, ForwardError, Ranked};
use crate::gguf::Gguf;

pub use self::footprint::DeviceFootprint;

use Argument::{Buffer, F32, U32};

/// A model on a device, with its KV pool.
#[derive(Debug)]
pub struct OnDevice<D: Device> {
    config: ModelConfig,
    options: ModelOptions,
    layers: Vec<DeviceLayer<D::Buffer>>,
    embedding: Matrix<D::Buffer>,
    /// None where the embedding is the output projection as well.
    output: Option<Matrix<D::Buffer>>,
    output_norm: D::Buffer,
    tables: RopeTables<D::Buffer>,
    buffers: Buffers<D::Buffer>,
    inputs: Inputs<D::Staging>,
    launcher: Launcher<D>,
    /// What the last step found of its ranked rows.
    found: Found,
    /// The sampling rows before those on the device.
    sampling_rows: usize,
    /// The decode steps that were recorded, by their size; none where they are launched one by one.
    graphs: Option<BTreeMap<Step, usize>>,
}

impl<D: Device> OnDevice<D> {
    /// Loads the model of `file` onto `device`: checks it, packs its weights here, and takes all
    /// memory that steps will need there.
    ///
    /// # Errors
    /// A [`ModelError`] that names what is wrong with the file, the options or the device.
    pub fn load(file: &Gguf, options: ModelOptions, mut device: D) -> Result<Self, ModelError> {
        let config = ModelConfig::from_gguf(file)?;
        check::options(&options)?;
        limits::check(&config, &options)?;
        let shapes = Shapes::read(file, &config)?;
        let mut pool = Pool::new(options.threads).map_err(|source| ModelError::System {
            what: "threads",
            source,
        })?;
        let weights = Weights::load(file, &shapes, &mut pool)?;
        let tied = std::ptr::eq(weights.output(), &weights.embedding);
        let layers = load_layers(&weights, &config, &options, &mut device)?;
        let output = (!tied)
            .then(|| Matrix::load(weights.output(), &mut device))
            .transpose()?;
        let tables = RopeTables::load(&config, &options, &weights, &mut device).map_err(failed)?;
        Ok(Self {
            layers,
            output,
            embedding: Matrix::load(&weights.embedding, &mut device)?,
            output_norm: layers::floats(&weights.output_norm, &mut device).map_err(failed)?,
            tables,
            buffers: Buffers::new(&config, &options, &mut device).map_err(failed)?,
            inputs: Inputs::new(&config, &options, &mut device).map_err(failed)?,
            found: Found::default(),
            sampling_rows: 0,
            graphs: (device.keeps_graphs() && !options.enforce_eager).then(BTreeMap::new),
            launcher: launcher(&config, &options, device).map_err(failed)?,
            config,
            options,
        })
    }

    /// The shape of the model.
    pub const fn config(&self) -> &ModelConfig {
        &self.config
    }

    fn run(&mut self, batch: &Batch, logits: &mut [f32]) -> Result<Vec<u32>, String> {
        let padded = match self.graphs {
            Some(_) => Step::padded(batch, &self.config, &self.options),
            None => None,
        };
        let step = padded.unwrap_or_else(|| Step::of(batch));
        let device = &mut self.launcher.device;
        self.inputs.send(batch, &step, &self.buffers, device)?;
        match padded {
            Some(step) => self.launch_graph(step)?,
            None => self.pass(&step)?,
        }
        // The device computes: what it will be given next is prepared meanwhile.
        self.inputs.prepare(batch, &step)?;
        let device = &mut self.launcher.device;
        self.found.clear();
        self.sampling_rows = batch.sampling_rows.len();
        if step.ranks > 0 {
            let rows = self.sampling_rows..self.sampling_rows + batch.ranked_rows.len();
            let size = (self.config.vocab_size as u32, step.ranks);
            let ranks = &self.buffers.ranks;
            ranks.read(device, rows, size, &mut self.found)?;
        }
        self.buffers.end(batch, logits, device)
    }

    /// Launches the graph of a decode step, which the first step of its size records.
    fn launch_graph(&mut self, step: Step) -> Result<(), String> {
        let known = self
            .graphs
            .as_ref()
            .and_then(|graphs| graphs.get(&step).copied());
        let graph = match known {
            Some(graph) => graph,
            None => {
                self.launcher.device.begin_graph()?;
                let passed = self.pass(&step);
                let graph = self.launcher.device.end_graph();
                passed?;
                let graph = graph?;
                self.graphs.get_or_insert_default().insert(step, graph);
                graph
            }
        };
        self.launcher.device.launch_graph(graph)
    }

    /// Launches a whole pass over the rows that are on the device. The residual ends in the buffer
    /// that it began in, so that a recorded pass can be launched again: two sums a layer, each of
    /// which swaps the two buffers.
    fn pass(&mut self, step: &Step) -> Result<(), String> {
        let (b, launcher) = (&mut self.buffers, &mut self.launcher);
        let out = &b.residual;
        launcher.embed(&self.embedding, &b.tokens, out, step.rows)?;
        for layer in &self.layers {
            attention(
                launcher,
                &self.config,
                &self.options,
                layer,
                &self.tables,
                b,
                step,
            )?;
            feed_forward(launcher, &self.config, layer, b, step)?;
        }
        let matrix = self.output.as_ref().unwrap_or(&self.embedding);
        head(launcher, &self.config, matrix, &self.output_norm, b, step)
    }
}

fn launcher<D: Device>(
    config: &ModelConfig,
    options: &ModelOptions,
    mut device: D,
) -> Result<Launcher<D>, String> {
    let rounded = match options.numerics {
        Numerics::Portable => None,
        Numerics::Fast => Some(Rounded::new(config, options, &mut device)?),
    };
    Ok(Launcher { device, rounded })
}

/// Loads the layers, and says how far it is.
fn load_layers<D: Device>(
    weights: &Weights,
    config: &ModelConfig,
    options: &ModelOptions,
    device: &mut D,
) -> Result<Vec<DeviceLayer<D::Buffer>>, ModelError> {
    let mut layers = Vec::with_capacity(config.layers);
    for layer in &weights.layers {
        layers.push(DeviceLayer::load(layer, config, options, device)?);
        let (done, all) = (layers.len(), config.layers);
        if done * 4 / all > (done - 1) * 4 / all {
            log::info!("uploaded {done} of {all} layers");
        }
    }
    Ok(layers)
}

fn failed(message: String) -> ModelError {
    ModelError::Device(message)
}

/// The first half of a block.
fn attention<D: Device>(
    launcher: &mut Launcher<D>,
    config: &ModelConfig,
    options: &ModelOptions,
    layer: &DeviceLayer<D::Buffer>,
    tables: &RopeTables<D::Buffer>,
    b: &mut Buffers<D::Buffer>,
    step: &Step,
) -> Result<(), String> {
    let (rows, width) = (step.rows, config.embedding as u32);
    let norm = &layer.attention_norm;
    let flags = &b.flags;
    launcher.normalise(
        &b.residual,
        norm,
        &b.normed,
        flags,
        (rows, width),
        config.rms_epsilon,
    )?;
    let matrices = [
        (&layer.query, &b.queries),
        (&layer.key, &b.keys),
        (&layer.value, &b.values),
    ];
    launcher.linear(&matrices, &b.normed, &b.quantised, rows)?;
    rotate_and_store(launcher, config, options, layer, tables, b, rows)?;
    attend(launcher, config, options, layer, b, step)?;
    let query_width = config.query_width() as u32;
    launcher.check(&b.attended, flags, (rows, query_width))?;
    let matrices = [(&layer.output, &b.projected)];
    launcher.linear(&matrices, &b.attended, &b.quantised, rows)?;
    add_to_residual(launcher, b, rows * width)
}

fn rotate_and_store<D: Device>(
    launcher: &mut Launcher<D>,
    config: &ModelConfig,
    options: &ModelOptions,
    layer: &DeviceLayer<D::Buffer>,
    tables: &RopeTables<D::Buffer>,
    b: &Buffers<D::Buffer>,
    rows: u32,
) -> Result<(), String> {
    let (heads, kv_heads) = (config.heads as u32, config.kv_heads as u32);
    let dim = config.head_dim as u32;
    let shape = Shape {
        rows,
        ..Shape::default()
    };
    for (x, heads) in [(&b.queries, heads), (&b.keys, kv_heads)] {
        let buffers = [x, &tables.cosines, &tables.sines, &b.positions];
        let mut arguments = Vec::from(buffers.map(Buffer));
        arguments.extend([heads, dim, 2, 1].map(U32));
        launcher.launch("rope", shape, &arguments)?;
    }
    let (keys, values) = (&layer.kv_keys, &layer.kv_values);
    let buffers = [&b.keys, &b.values, &b.slots, keys, values, &b.flags];
    let mut arguments = Vec::from(buffers.map(Buffer));
    arguments.extend([kv_heads, dim, options.block_size].map(U32));
    let entry = format!("kv_store_{}", options.kv_dtype.name());
    launcher.launch(&entry, shape, &arguments)
}

fn attend<D: Device>(
    launcher: &mut Launcher<D>,
    config: &ModelConfig,
    options: &ModelOptions,
    layer: &DeviceLayer<D::Buffer>,
    b: &Buffers<D::Buffer>,
    step: &Step,
) -> Result<(), String> {
    let (kv_heads, dim) = (config.kv_heads as u32, config.head_dim as u32);
    let shape = Shape {
        rows: step.rows,
        heads: config.heads as u32,
        kv_heads,
        dim,
        positions: step.positions,
        ..Shape::default()
    };
    let (keys, values) = (&layer.kv_keys, &layer.kv_values);
    let inputs = [
        &b.queries,
        keys,
        values,
        &b.positions,
        &b.tables,
        &b.block_tables,
    ];
    let partials = [&b.partial_m, &b.partial_l, &b.partial_o];
    let mut arguments = Vec::from(inputs.map(Buffer));
    arguments.extend(partials.map(Buffer));
    let window = config.sliding_window;
    let heads = config.heads as u32;
    arguments.extend([heads, kv_heads, dim, options.block_size, window].map(U32));
    arguments.push(F32(1.0 / (config.head_dim as f32).sqrt()));
    let entry = format!("attention_split_{}", options.kv_dtype.name());
    launcher.launch(&entry, shape, &arguments)?;
    let mut arguments = Vec::from(partials.map(Buffer));
    arguments.extend([Buffer(&b.positions), Buffer(&b.attended)]);
    arguments.extend([dim, window, shape.splits()].map(U32));
    launcher.launch("attention_merge", shape, &arguments)
}

/// The second half of a block.
fn feed_forward<D: Device>(
    launcher: &mut Launcher<D>,
    config: &ModelConfig,
    layer: &DeviceLayer<D::Buffer>,
    b: &mut Buffers<D::Buffer>,
    step: &Step,
) -> Result<(), String> {
    let (rows, width) = (step.rows, config.embedding as u32);
    let inner = config.feed_forward as u32;
    let norm = &layer.feed_forward_norm;
    launcher.normalise(
        &b.residual,
        norm,
        &b.normed,
        &b.flags,
        (rows, width),
        config.rms_epsilon,
    )?;
    let matrices = [(&layer.gate, &b.gate), (&layer.up, &b.up)];
    launcher.linear(&matrices, &b.normed, &b.quantised, rows)?;
    launcher.elementwise("silu_mul", [&b.gate, &b.up, &b.gated], rows * inner)?;
    launcher.check(&b.gated, &b.flags, (rows, inner))?;
    launcher.linear(&[(&layer.down, &b.projected)], &b.gated, &b.quantised, rows)?;
    add_to_residual(launcher, b, rows * width)
}

fn add_to_residual<D: Device>(
    launcher: &mut Launcher<D>,
    b: &mut Buffers<D::Buffer>,
    elements: u32,
) -> Result<(), String> {
    // A kernel's output overlaps no input of it: the sum goes to the other buffer.
    launcher.elementwise(
        "add",
        [&b.residual, &b.projected, &b.next_residual],
        elements,
    )?;
    std::mem::swap(&mut b.residual, &mut b.next_residual);
    Ok(())
}

/// The logits of the sampling rows.
fn head<D: Device>(
    launcher: &mut Launcher<D>,
    config: &ModelConfig,
    matrix: &Matrix<D::Buffer>,
    norm: &D::Buffer,
    b: &Buffers<D::Buffer>,
    step: &Step,
) -> Result<(), String> {
    let (rows, width) = (step.sampling_rows, config.embedding as u32);
    if rows == 0 {
        return Ok(());
    }
    let shape = Shape {
        rows,
        ..Shape::default()
    };
    let arguments = [
        Buffer(&b.residual),
        Buffer(&b.sampling_rows),
        Buffer(&b.projected),
        U32(width),
    ];
    launcher.launch("gather_rows", shape, &arguments)?;
    let flags = &b.sampling_flags;
    let epsilon = config.rms_epsilon;
    launcher.normalise(&b.projected, norm, &b.normed, flags, (rows, width), epsilon)?;
    launcher.linear(&[(matrix, &b.logits)], &b.normed, &b.quantised, rows)?;
    launcher.check(&b.logits, flags, (rows, matrix.outputs))?;
    match step.ranks {
        0 => Ok(()),
        ranks => {
            let size = (rows, matrix.outputs);
            b.ranks.find(launcher, &b.logits, size, ranks)
        }
    }
}

impl<D: Device> Forward for OnDevice<D> {
    fn vocab_size(&self) -> usize {
        self.config.vocab_size
    }

    fn forward(&mut self, batch: &Batch, logits: &mut [f32]) -> Result<(), ForwardError> {
        let limits = check::Limits {
            rows: self.options.max_rows,
            positions: positions(&self.config, &self.options),
            vocab_size: self.config.vocab_size,
            blocks: self.options.num_blocks as usize,
            block_size: self.options.block_size as usize,
            ranks: MAX_RANKS,
        };
        check::batch(batch, logits.len(), &limits).map_err(ForwardError::Device)?;
        if batch.rows() == 0 {
            return Ok(());
        }
        let sequences = self.run(batch, logits).map_err(ForwardError::Device)?;
        match sequences.is_empty() {
            true => Ok(()),
            false => Err(ForwardError::NonFinite { sequences }),
        }
    }

    fn max_ranks(&self) -> u32 {
        MAX_RANKS
    }

    fn ranked(&self, index: usize) -> &[Ranked] {
        self.found.of(index)
    }

    fn ranked_logits(&mut self, index: usize, logits: &mut [f32]) -> Result<(), ForwardError> {
        let first = (self.sampling_rows + index) * self.config.vocab_size;
        // This is rare: what stands before the row is read as well.
        let mut all = vec![0.0_f32; first + logits.len()];
        let device = &mut self.launcher.device;
        device
            .read(&self.buffers.logits, bytemuck::cast_slice_mut(&mut all))
            .map_err(ForwardError::Device)?;
        logits.copy_from_slice(&all[first..]);
        Ok(())
    }

    fn copy_blocks(&mut self, copies: &[(u32, u32)]) -> Result<(), ForwardError> {
        let blocks = self.options.num_blocks;
        if let Some((from, to)) = copies.iter().find(|(a, b)| *a >= blocks || *b >= blocks) {
            let message = format!("no copy from block {from} to {to}: there are {blocks}");
            return Err(ForwardError::Device(message));
        }
        let bytes = layers::block_bytes(&self.config, &self.options);
        let device = &mut self.launcher.device;
        for (from, to) in copies.iter().filter(|(from, to)| from != to) {
            let (from, to) = (*from as usize * bytes, *to as usize * bytes);
            for layer in &self.layers {
                for buffer in [&layer.kv_keys, &layer.kv_values] {
                    device
                        .copy(buffer, from, to, bytes)
                        .map_err(ForwardError::Device)?;
                }
            }
        }
        Ok(())
    }
}
