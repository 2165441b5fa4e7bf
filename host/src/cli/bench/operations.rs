//! `lockstep bench --profile`: each operation of a step, and what the machine would allow.

use std::time::Duration;

use serde_json::{Value, json};

use crate::gguf::{Gguf, TensorInfo};
use crate::model::ModelConfig;
use crate::profile::{Operation, Profile};

/// What a step has to read and multiply in each operation, whatever computes it.
#[derive(Clone, Debug)]
pub(super) struct Demands {
    weights: Vec<(Operation, Demand)>,
    layers: u64,
    query_width: u64,
    kv_width: u64,
    kv_bytes: u64,
}

/// Bytes of weights, and multiply-adds of one row.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Demand {
    bytes: u64,
    products: u64,
}

/// What was computed while a profile was taken.
#[derive(Clone, Copy, Debug)]
pub(super) struct Steps {
    /// Forward passes.
    pub(super) count: u64,
    /// Rows of each.
    pub(super) rows: u64,
    /// Rows of each that were sampled.
    pub(super) sampled: u64,
    /// Positions that each row attends to, on average.
    pub(super) context: u64,
    /// Positions that are read from memory in each step: those of every sequence once.
    pub(super) positions: u64,
}

/// What the machine does at most.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Peaks {
    /// GB/s that are read.
    pub(super) bandwidth: f64,
    /// Multiply-adds of bytes, in G/s; 0 where it is not known.
    pub(super) int8: f64,
    /// Multiply-adds of f32, in G/s; 0 where it is not known.
    pub(super) f32: f64,
}

impl Demands {
    /// Those of the model in `file`.
    pub(super) fn of(file: &Gguf, config: &ModelConfig, kv_bytes: usize) -> Self {
        let mut weights: Vec<(Operation, Demand)> = Vec::new();
        let tied = file.tensor("output.weight").is_none();
        for tensor in file.tensors().iter().filter(|tensor| tensor.rows() > 1) {
            let Some(operation) = operation(tensor, tied) else {
                continue;
            };
            let demand = Demand {
                bytes: tensor.bytes(),
                products: tensor.elements(),
            };
            weights.push((operation, demand));
        }
        Self {
            weights,
            layers: config.layers as u64,
            query_width: config.query_width() as u64,
            kv_width: config.kv_width() as u64,
            kv_bytes: kv_bytes as u64,
        }
    }

    /// Bytes that one step reads, and multiply-adds that it makes.
    fn step(&self, operation: Operation, steps: &Steps) -> Demand {
        if operation == Operation::Attention {
            return Demand {
                bytes: 2 * self.layers * self.kv_width * self.kv_bytes * steps.positions,
                products: 2 * self.layers * self.query_width * steps.context * steps.rows,
            };
        }
        let rows = match operation {
            Operation::Output => steps.sampled,
            _ => steps.rows,
        };
        let of_it = self.weights.iter().filter(|(of, _)| *of == operation);
        of_it.fold(Demand::default(), |sum, (_, demand)| Demand {
            bytes: sum.bytes + demand.bytes,
            products: sum.products + demand.products * rows,
        })
    }
}

/// The operation that reads a matrix.
fn operation(tensor: &TensorInfo, tied: bool) -> Option<Operation> {
    let name = tensor.name();
    let part = name.strip_suffix(".weight")?;
    match part.rsplit('.').next()? {
        "attn_q" | "attn_k" | "attn_v" => Some(Operation::QueriesKeysValues),
        "attn_output" => Some(Operation::AttentionOutput),
        "ffn_gate" | "ffn_up" => Some(Operation::GateUp),
        "ffn_down" => Some(Operation::Down),
        "output" => Some(Operation::Output),
        "token_embd" if tied => Some(Operation::Output),
        _ => None,
    }
}

/// One operation, measured: all of one step.
#[derive(Clone, Copy, Debug)]
pub(super) struct Line {
    operation: Operation,
    took: Duration,
    demand: Demand,
    floor: Duration,
}

/// A line for each operation.
pub(super) fn lines(
    profile: &Profile,
    demands: &Demands,
    steps: &Steps,
    peaks: &Peaks,
) -> Vec<Line> {
    let line = |operation| {
        let demand = demands.step(operation, steps);
        let peak = match operation {
            Operation::Attention => peaks.f32,
            _ => peaks.int8,
        };
        let least = |amount: u64, peak: f64| match peak > 0.0 {
            true => amount as f64 / (peak * 1e9),
            false => 0.0,
        };
        let floor = least(demand.bytes, peaks.bandwidth).max(least(demand.products, peak));
        let count = u32::try_from(steps.count).unwrap_or(u32::MAX).max(1);
        Line {
            operation,
            took: profile.spent(operation) / count,
            demand,
            floor: Duration::from_secs_f64(floor),
        }
    };
    Operation::ALL.map(line).into()
}

/// The table of some lines, for people.
pub(super) fn table(lines: &[Line]) -> String {
    let total: Duration = lines.iter().map(|line| line.took).sum();
    let mut text = format!(
        "{:20}{:>10}{:>8}{:>10}{:>10}{:>10}{:>9}",
        "", "us", "share", "GB/s", "G mul-add", "floor us", "of it"
    );
    for line in lines {
        let [took, floor] = [line.took, line.floor].map(|d| d.as_secs_f64() * 1e6);
        let rate = |amount: u64| amount as f64 / line.took.as_secs_f64().max(1e-12) / 1e9;
        let share = 100.0 * line.took.as_secs_f64() / total.as_secs_f64().max(1e-12);
        text += &format!("\n{:20}{took:10.1}{share:7.1}%", line.operation.name());
        if line.demand != Demand::default() {
            let of_it = 100.0 * floor / took.max(1e-9);
            text += &format!(
                "{:10.1}{:10.1}{floor:10.1}{of_it:8.0}%",
                rate(line.demand.bytes),
                rate(line.demand.products)
            );
        }
    }
    let floor: Duration = lines.iter().map(|line| line.floor).sum();
    let [took, floor] = [total, floor].map(|d| d.as_secs_f64() * 1e6);
    text + &format!(
        "\n{:20}{took:10.1}{:38}{floor:10.1}{:8.0}%",
        "a step",
        "",
        100.0 * floor / took.max(1e-9)
    )
}

/// The lines for scripts.
pub(super) fn json(lines: &[Line]) -> Value {
    let line = |line: &Line| {
        json!({
            "operation": line.operation.name(),
            "seconds": line.took.as_secs_f64(),
            "floor_seconds": line.floor.as_secs_f64(),
            "bytes": line.demand.bytes,
            "multiply_adds": line.demand.products,
        })
    };
    lines.iter().map(line).collect()
}
