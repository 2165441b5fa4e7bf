//! `lockstep doctor`: proves on this machine, with this model, what the numerics contract promises.

use std::process::ExitCode;

use super::CliError;
use super::drive::{Driver, Stream, arbitrary_tokens};
use crate::backend::{DeviceChoice, Isa, cuda};
use crate::batch::TokenId;
use crate::config::DeviceArgs;
use crate::gguf::Gguf;
use crate::model::{KvDtype, Model, ModelOptions, NUMERICS_VERSION, Placement};
use crate::start::request;

/// The arguments of `lockstep doctor`.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// A path, an alias of `lockstep pull`, or a Hugging Face repository in the local cache.
    #[arg(long, env = "LOCKSTEP_MODEL")]
    model: String,
    /// Threads that the first answer is computed with.
    #[arg(long, env = "LOCKSTEP_THREADS", value_parser = crate::config::parse_threads, default_value_t = 2)]
    threads: usize,
    /// How keys and values are stored: f16 or f32.
    #[arg(long, env = "LOCKSTEP_KV_CACHE_DTYPE", default_value_t = KvDtype::F16)]
    kv_cache_dtype: KvDtype,
    /// Tokens of the prompt that is computed in every way.
    #[arg(long, env = "LOCKSTEP_DOCTOR_PROMPT", default_value_t = 150,
        value_parser = clap::value_parser!(u16).range(20..=8192))]
    prompt: u16,
    #[command(flatten)]
    device: DeviceArgs,
}

/// Strangers that share the batch.
const STRANGERS: usize = 8;

/// What is compared, and what has differed.
struct Doctor {
    file: Gguf,
    options: ModelOptions,
    tokens: Vec<TokenId>,
    expected: Vec<u32>,
    failures: usize,
}

/// Runs it.
pub(super) fn run(args: Args) -> Result<ExitCode, CliError> {
    let path = crate::hub::resolve(&args.model)?;
    machine(args.threads)?;
    let mut doctor = Doctor::new(&args, Gguf::open(&path)?)?;
    doctor.examine()?;
    doctor.examine_device(&args.device)?;
    match doctor.failures {
        0 => {
            say!("every way gave the same bits");
            Ok(ExitCode::SUCCESS)
        }
        count => {
            say!("{count} ways gave other bits: this is a defect, please report it");
            Ok(ExitCode::FAILURE)
        }
    }
}

fn machine(threads: usize) -> Result<(), CliError> {
    let cores = std::thread::available_parallelism().map_or(0, usize::from);
    let paths: Vec<&str> = Isa::ALL
        .into_iter()
        .filter(|isa| isa.available())
        .map(Isa::name)
        .collect();
    say!("numerics:      {NUMERICS_VERSION}");
    say!("cores:         {cores}");
    // More threads than cores read no more, and each has a buffer of its own.
    let threads = threads.min(cores.max(1));
    let read = super::machine::bandwidth(threads)?;
    say!("memory:        {read:.1} GB/s read by {threads} threads");
    say!(
        "vector paths:  {} (best: {})",
        paths.join(", "),
        Isa::best()
    );
    match cuda::devices() {
        Err(error) => say!("GPU:           none: {error}"),
        Ok(driver) => {
            let (major, minor) = driver.cuda_version;
            for device in driver.devices {
                say!("GPU:           {device}; driver for CUDA {major}.{minor}");
            }
        }
    }
    Ok(())
}

fn bits(logits: &[f32]) -> Vec<u32> {
    logits.iter().map(|x| x.to_bits()).collect()
}

impl Doctor {
    fn new(args: &Args, file: Gguf) -> Result<Self, CliError> {
        let length = usize::from(args.prompt);
        let options = ModelOptions {
            threads: args.threads,
            kv_dtype: args.kv_cache_dtype,
            num_blocks: u32::try_from((STRANGERS + 1) * (length.div_ceil(16) + 1))?,
            max_rows: length.max(512),
            ..ModelOptions::default()
        };
        let model = Model::load(&file, options)?;
        let isa = model.isa();
        let mut driver = Driver::new(Box::new(model), options.block_size);
        let tokens = arbitrary_tokens(1, length, driver.model.vocab_size());
        let mut doctor = Self {
            file,
            options,
            tokens,
            expected: Vec::new(),
            failures: 0,
        };
        doctor.expected = bits(driver.finish(&mut doctor.stream(0), length)?);
        say!(
            "reference:     {length} tokens at once, {} threads, {isa}",
            args.threads
        );
        Ok(doctor)
    }

    /// The prompt as stream `i` of the pool.
    fn stream(&self, i: usize) -> Stream {
        let blocks = self.tokens.len().div_ceil(16) as u32 + 1;
        Stream::new(self.tokens.clone(), i as u32 * blocks, blocks)
    }

    fn driver(&self, options: ModelOptions) -> Result<Driver, CliError> {
        let model = Model::load(&self.file, options)?;
        Ok(Driver::new(Box::new(model), options.block_size))
    }

    /// Every way on the CPU.
    fn examine(&mut self) -> Result<(), CliError> {
        let mut driver = self.driver(self.options)?;
        self.ways(&mut driver, "")?;
        self.machines()
    }

    /// The same on a device, if there is one: its reference is the CPU's.
    fn examine_device(&mut self, args: &DeviceArgs) -> Result<(), CliError> {
        let asked = DeviceArgs {
            device: match args.device {
                DeviceChoice::Auto => DeviceChoice::Cuda(0),
                choice => choice,
            },
            ..*args
        };
        if asked.device == DeviceChoice::Cpu {
            return Ok(());
        }
        let options = ModelOptions {
            enforce_eager: args.enforce_eager,
            ..self.options
        };
        let placement = match Placement::choose(&self.file, &options, &request(&asked, true)) {
            Ok(placement) => placement,
            Err(error) if args.device == DeviceChoice::Auto => {
                say!("on a GPU: not examined: {error}");
                return Ok(());
            }
            Err(error) => return Err(error.into()),
        };
        let name = placement.name();
        say!("reference:     the CPU's, for {name}");
        let model = placement.load(&self.file, options)?;
        self.ways(&mut Driver::new(model, options.block_size), "on the GPU, ")
    }

    /// In chunks, after a preemption, in a batch, and on a prefix of another's.
    fn ways(&mut self, driver: &mut Driver, place: &str) -> Result<(), CliError> {
        self.chunks(driver, place)?;
        self.batches(driver, place)?;
        self.prefix(driver, place)
    }

    fn compare(&mut self, how: &str, found: &[f32]) {
        let same = bits(found) == self.expected;
        say!("{how:40} {}", if same { "same bits" } else { "OTHER BITS" });
        self.failures += usize::from(!same);
    }

    fn chunks(&mut self, driver: &mut Driver, place: &str) -> Result<(), CliError> {
        for chunk in [1, 7, 64] {
            let mut stream = self.stream(0);
            let found = driver.finish(&mut stream, chunk)?.to_vec();
            self.compare(&format!("{place}in chunks of {chunk}"), &found);
        }
        let mut stream = self.stream(1);
        let found = driver.finish(&mut stream, 50)?.to_vec();
        self.compare(&format!("{place}computed anew after a preemption"), &found);
        Ok(())
    }

    /// Among strangers of other lengths, all in one batch at every step.
    fn batches(&mut self, driver: &mut Driver, place: &str) -> Result<(), CliError> {
        let vocab = driver.model.vocab_size();
        let stranger = |i: usize| {
            let length = self.tokens.len() - i * self.tokens.len() / 20;
            Stream {
                tokens: arbitrary_tokens(i as u32 + 7, length, vocab),
                ..self.stream(i)
            }
        };
        let mut streams: Vec<Stream> = (1..=STRANGERS).map(stranger).collect();
        streams.insert(STRANGERS / 2, self.stream(0));
        let mut found = Vec::new();
        while streams[STRANGERS / 2].computed < self.tokens.len() {
            let done: Vec<bool> = streams
                .iter()
                .map(|s| s.computed == s.tokens.len())
                .collect();
            let logits = driver.step(&mut streams, 11)?;
            let mut rows = logits.chunks_exact(vocab);
            for (i, stream) in streams.iter().enumerate() {
                let ended = !done[i] && stream.computed == stream.tokens.len();
                let row = if ended { rows.next() } else { None };
                if i == STRANGERS / 2 {
                    found = row.unwrap_or_default().to_vec();
                }
            }
        }
        self.compare(&format!("{place}among {STRANGERS} strangers"), &found);
        Ok(())
    }

    /// On keys and values that another sequence computed.
    fn prefix(&mut self, driver: &mut Driver, place: &str) -> Result<(), CliError> {
        let (mut first, mut second) = (self.stream(0), self.stream(1));
        driver.finish(&mut first, 64)?;
        let shared = self.tokens.len() / 2 / 16;
        let copies = first
            .table
            .iter()
            .copied()
            .zip(second.table.iter().copied());
        let copies: Vec<(u32, u32)> = copies.take(shared).collect();
        driver.model.copy_blocks(&copies)?;
        second.computed = shared * 16;
        let found = driver.finish(&mut second, 64)?.to_vec();
        self.compare(&format!("{place}after a prefix hit"), &found);
        Ok(())
    }

    fn machines(&mut self) -> Result<(), CliError> {
        for threads in 1..=3 {
            let mut driver = self.driver(ModelOptions {
                threads,
                ..self.options
            })?;
            let found = driver.finish(&mut self.stream(0), 64)?.to_vec();
            self.compare(&format!("with {threads} threads"), &found);
        }
        for isa in Isa::ALL.into_iter().filter(|isa| isa.available()) {
            let options = ModelOptions {
                isa: Some(isa),
                ..self.options
            };
            let found = self
                .driver(options)?
                .finish(&mut self.stream(0), 64)?
                .to_vec();
            self.compare(&format!("on the {isa} path"), &found);
        }
        let options = ModelOptions {
            block_size: 32,
            ..self.options
        };
        let found = self
            .driver(options)?
            .finish(&mut self.stream(0), 64)?
            .to_vec();
        self.compare("with blocks of 32 positions", &found);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gguf::tiny::tiny_llama;

    fn doctor() -> Doctor {
        let args = Args {
            model: String::new(),
            threads: 2,
            kv_cache_dtype: KvDtype::F16,
            prompt: 90,
            device: crate::config::EngineArgs::for_model("").device,
        };
        let file = Gguf::from_bytes(tiny_llama(1)).expect("a whole file");
        Doctor::new(&args, file).expect("a supported model")
    }

    fn examine(doctor: &mut Doctor) -> usize {
        doctor.examine().expect("finite logits");
        doctor.failures
    }

    #[test]
    fn every_way_gives_the_same_bits() {
        assert_eq!(examine(&mut doctor()), 0);
    }

    #[test]
    fn one_other_bit_is_found_in_every_way() {
        let mut doctor = doctor();
        doctor.expected[17] ^= 1;
        let paths = Isa::ALL.into_iter().filter(|isa| isa.available()).count();
        // Three chunk sizes, a preemption, strangers, a prefix, three numbers of threads, a block
        // size, and every path.
        assert_eq!(examine(&mut doctor), 10 + paths);
    }
}
