//! An engine on the real model, driven turn by turn: a test decides what arrives at which step.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use lockstep::batch::{Batch, Forward, ForwardError};
use lockstep::engine::{Engine, EngineError, Parts, Probe};
use lockstep::gguf::Gguf;
use lockstep::intake::{self, Intake, IntakeLimits, Refusal};
use lockstep::journal::{
    Chronicle, Header, JournalContent, JournalOptions, JournalSync, JournalWriter,
};
use lockstep::metrics::{Metrics, MetricsLabels};
use lockstep::model::{Isa, KvDtype, Model, ModelOptions, NUMERICS_VERSION};
use lockstep::request::{
    Event, Failure, FinishReason, PositionLogprobs, Request, RequestId, SamplingParams,
    StopConditions, Usage,
};
use lockstep::scheduler::{Scheduler, SchedulerConfig};
use lockstep::structured::Matcher;
use lockstep::tokenizer::{Encoding, Tokenizer};
use policy_core::RequestPriority;
use tokio::sync::mpsc::Receiver;

/// What may differ between two runs that must agree.
#[derive(Clone, Debug)]
pub struct RigOptions {
    /// The scheduler's limits.
    pub scheduler: SchedulerConfig,
    /// Threads that compute.
    pub threads: usize,
    /// The vector path.
    pub isa: Option<Isa>,
    /// Where the journal goes, if anywhere.
    pub journal: Option<PathBuf>,
    /// How the model fails, if it does.
    pub fault: Option<Fault>,
}

/// A model that fails at its n-th forward pass, from 0.
#[derive(Clone, Copy, Debug)]
pub enum Fault {
    /// The device reports an error.
    Device(u32),
    /// A bug: the thread panics.
    Panic(u32),
    /// Every row of logits wants token 7.
    Skew(u32),
}

/// A model with a fault in it.
struct Faulty {
    model: Model,
    fault: Fault,
    passes: u32,
}

impl Forward for Faulty {
    fn vocab_size(&self) -> usize {
        self.model.vocab_size()
    }

    fn forward(&mut self, batch: &Batch, logits: &mut [f32]) -> Result<(), ForwardError> {
        let pass = self.passes;
        self.passes += 1;
        match self.fault {
            Fault::Device(at) if at == pass => Err(ForwardError::Device("it is gone".to_owned())),
            Fault::Panic(at) if at == pass => panic!("a planted bug"),
            Fault::Skew(at) if at == pass => {
                self.model.forward(batch, logits)?;
                logits
                    .chunks_mut(self.model.vocab_size())
                    .for_each(|row| row[7] = 1e6);
                Ok(())
            }
            _ => self.model.forward(batch, logits),
        }
    }

    fn copy_blocks(&mut self, copies: &[(u32, u32)]) -> Result<(), ForwardError> {
        self.model.copy_blocks(copies)
    }
}

impl Default for RigOptions {
    fn default() -> Self {
        let scheduler = SchedulerConfig {
            max_num_seqs: 32,
            max_num_batched_tokens: 128,
            max_chunk_tokens: 64,
            max_model_len: 256,
            num_blocks: 512,
            ..SchedulerConfig::default()
        };
        Self {
            scheduler,
            threads: 2,
            isa: None,
            journal: None,
            fault: None,
        }
    }
}

/// What a test asks for.
#[derive(Clone, Debug)]
pub struct Want {
    /// The prompt, as plain text.
    pub prompt: String,
    /// Tokens of the answer.
    pub max_tokens: u32,
    /// How they are drawn.
    pub sampling: SamplingParams,
    /// The class.
    pub priority: RequestPriority,
    /// When it fails if it has not ended.
    pub timeout: Option<Duration>,
    /// When it fails if it has no seat.
    pub queue_timeout: Option<Duration>,
    /// How many alternatives are reported per token.
    pub logprobs: Option<u32>,
    /// What it is held to, compiled.
    pub matcher: Option<Matcher>,
    /// Texts that end it.
    pub stop: Vec<String>,
    /// Whether end tokens are drawn like any other.
    pub ignore_eos: bool,
}

impl Want {
    /// A greedy answer of exactly `max_tokens` tokens.
    pub fn greedy(prompt: &str, max_tokens: u32) -> Self {
        let sampling = SamplingParams {
            temperature: 0.0,
            ..SamplingParams::default()
        };
        Self {
            prompt: prompt.to_owned(),
            max_tokens,
            sampling,
            priority: RequestPriority::Normal,
            timeout: None,
            queue_timeout: None,
            logprobs: None,
            matcher: None,
            stop: Vec::new(),
            ignore_eos: true,
        }
    }

    /// The same with temperature 0.8 and this seed.
    pub fn drawn(prompt: &str, max_tokens: u32, seed: u64) -> Self {
        let sampling = SamplingParams {
            temperature: 0.8,
            seed,
            ..SamplingParams::default()
        };
        Self {
            sampling,
            ..Self::greedy(prompt, max_tokens)
        }
    }

    /// The same in another class.
    pub fn priority(self, priority: RequestPriority) -> Self {
        Self { priority, ..self }
    }
}

/// A whole answer: two that must agree are compared with `==`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// The tokens, in order.
    pub tokens: Vec<u32>,
    /// The text.
    pub text: String,
    /// Why it ended.
    pub reason: FinishReason,
    /// A hash of the bits of the logits that gave each token.
    pub logits: Vec<[u8; 32]>,
    /// Per token with logprobs: it and its alternatives, each with the bits of its logprob.
    pub logprobs: Vec<Vec<(u32, u32)>>,
}

type Rows = Arc<Mutex<BTreeMap<(RequestId, usize), [u8; 32]>>>;

struct HashRows(Rows);

impl Probe for HashRows {
    fn logits(&mut self, request: RequestId, position: usize, logits: &[f32]) {
        let mut hasher = blake3::Hasher::new();
        for logit in logits {
            hasher.update(&logit.to_bits().to_le_bytes());
        }
        let before = self
            .0
            .lock()
            .unwrap()
            .insert((request, position), *hasher.finalize().as_bytes());
        assert!(
            before.is_none(),
            "request {request} drew its token at {position} twice"
        );
    }
}

/// An engine, its door, and what its probe saw.
pub struct Rig {
    engine: Option<Engine>,
    intake: Intake,
    tokenizer: Arc<Tokenizer>,
    rows: Rows,
}

/// A request under way.
pub struct Stream {
    events: Receiver<Event>,
    prompt_tokens: usize,
}

fn file() -> &'static Gguf {
    static FILE: OnceLock<Gguf> = OnceLock::new();
    FILE.get_or_init(|| Gguf::open(&super::real_model()).expect("the real model is whole"))
}

impl Rig {
    /// An engine with nothing live.
    pub fn new(options: &RigOptions) -> Self {
        let config = &options.scheduler;
        let tokenizer = Arc::new(Tokenizer::from_gguf(file()).unwrap());
        let model = Model::load(
            file(),
            ModelOptions {
                threads: options.threads,
                kv_dtype: KvDtype::F16,
                num_blocks: config.num_blocks,
                block_size: config.block_size,
                max_rows: config.max_num_batched_tokens as usize,
                max_positions: config.max_model_len,
                isa: options.isa,
                ..ModelOptions::default()
            },
        )
        .unwrap();
        let journal = options.journal.as_ref().map(|path| {
            let header = Header::new(config.clone(), "test", NUMERICS_VERSION);
            let options = JournalOptions {
                path: path.clone(),
                sync: JournalSync::None,
                content: JournalContent::Tokens,
                max_bytes: None,
                max_files: None,
            };
            JournalWriter::create(&options, header).unwrap()
        });
        let (intake, door) = intake::door(IntakeLimits {
            max_waiting: 256,
            max_model_len: config.max_model_len,
            vocab_size: tokenizer.len() as u32,
        });
        let rows = Rows::default();
        let engine = Engine::new(Parts {
            door,
            scheduler: Scheduler::new(config.clone()).unwrap(),
            model: match options.fault {
                None => Box::new(model),
                Some(fault) => Box::new(Faulty {
                    model,
                    fault,
                    passes: 0,
                }),
            },
            tokenizer: Arc::clone(&tokenizer),
            journal,
            metrics: Arc::new(Metrics::new(MetricsLabels::default())),
            chronicle: Arc::new(Mutex::new(Chronicle::new(config.preemption_policy, 64))),
            probe: Some(Box::new(HashRows(Arc::clone(&rows)))),
        });
        Self {
            engine: Some(engine),
            intake,
            tokenizer,
            rows,
        }
    }

    /// Hands a request over; it arrives at the next turn.
    pub fn submit(&self, want: &Want) -> Stream {
        self.try_submit(want).unwrap()
    }

    /// Hands a request over, if the door takes it.
    ///
    /// # Errors
    /// Why it does not.
    pub fn try_submit(&self, want: &Want) -> Result<Stream, Refusal> {
        let how = Encoding {
            add_special: true,
            parse_special: false,
        };
        let prompt = self.tokenizer.encode(&want.prompt, how).unwrap();
        let prompt_tokens = prompt.len();
        let request = Request {
            prompt: prompt.into(),
            priority: want.priority,
            sampling: want.sampling.clone(),
            stop: StopConditions {
                max_tokens: want.max_tokens,
                stop: want.stop.clone(),
                ignore_eos: want.ignore_eos,
                ..StopConditions::default()
            },
            logprobs: want.logprobs,
            prompt_logprobs: None,
            cache_salt: None,
            timeout: want.timeout,
            queue_timeout: want.queue_timeout,
            matcher: want.matcher.clone(),
        };
        let events = self.intake.submit(request)?;
        Ok(Stream {
            events,
            prompt_tokens,
        })
    }

    /// Takes turns.
    pub fn turns(&mut self, count: usize) {
        for _ in 0..count {
            if self.engine_mut().num_live() > 0 || self.intake.waiting() > 0 {
                self.engine_mut().turn().unwrap();
            }
        }
    }

    /// Takes turns until nothing is live.
    pub fn finish(&mut self) {
        while self.engine_mut().num_live() > 0 || self.intake.waiting() > 0 {
            self.engine_mut().turn().unwrap();
        }
    }

    /// Runs the engine's own loop until it ends.
    pub fn run(&mut self) -> Result<(), EngineError> {
        self.engine.take().unwrap().run()
    }

    /// The engine alone.
    pub fn into_engine(mut self) -> Engine {
        self.engine.take().unwrap()
    }

    /// The door.
    pub fn intake(&self) -> &Intake {
        &self.intake
    }

    /// Ends the engine: its journal is whole then.
    pub fn close(mut self) {
        self.finish();
        self.intake.drain();
        self.engine.take().unwrap().run().unwrap();
    }

    /// The whole answer of a stream whose request has ended.
    ///
    /// # Panics
    /// Unless its events are: accepted, started, tokens numbered from 0, and one end.
    pub fn answer(&self, stream: &mut Stream) -> (Answer, Usage) {
        let Event::Accepted { request } = stream.next() else {
            panic!("accepted comes first")
        };
        assert!(
            matches!(stream.next(), Event::Started { .. }),
            "started comes second"
        );
        let (mut tokens, mut text) = (Vec::new(), String::new());
        let mut logprobs = Vec::new();
        let (reason, usage) = loop {
            match stream.next() {
                Event::Token(token) => {
                    assert_eq!(
                        token.index as usize,
                        tokens.len(),
                        "each token once, in order"
                    );
                    tokens.push(token.token);
                    logprobs.extend(token.logprobs.as_ref().map(bits));
                    text.push_str(&token.text);
                }
                Event::Finished {
                    reason,
                    text: tail,
                    usage,
                    ..
                } => {
                    text.push_str(&tail);
                    break (reason, usage);
                }
                other => panic!("unexpected {other:?}"),
            }
        };
        assert!(stream.events.try_recv().is_err(), "nothing follows the end");
        let rows = self.rows.lock().unwrap();
        let positions = stream.prompt_tokens..stream.prompt_tokens + tokens.len();
        let logits = positions
            .map(|position| rows[&(request, position)])
            .collect();
        (
            Answer {
                tokens,
                text,
                reason,
                logits,
                logprobs,
            },
            usage,
        )
    }

    /// The failure that a stream ended with, and how many tokens came before it.
    ///
    /// # Panics
    /// Unless its tokens are numbered from 0 and a failure is its one end.
    pub fn failure(&self, stream: &mut Stream) -> (Failure, u32) {
        let mut tokens = 0;
        loop {
            match stream.next() {
                Event::Token(token) => {
                    assert_eq!(token.index, tokens, "each token once, in order");
                    tokens += 1;
                }
                Event::Failed(failure) => {
                    assert!(stream.events.try_recv().is_err(), "nothing follows the end");
                    return (failure, tokens);
                }
                Event::Finished { .. } => panic!("the answer is whole"),
                Event::Accepted { .. } | Event::Started { .. } => {}
            }
        }
    }

    fn engine_mut(&mut self) -> &mut Engine {
        self.engine.as_mut().unwrap()
    }
}

/// The token itself, then its alternatives.
fn bits(position: &PositionLogprobs) -> Vec<(u32, u32)> {
    let all = std::iter::once(&position.chosen).chain(&position.top);
    all.map(|entry| (entry.token, entry.logprob.to_bits()))
        .collect()
}

impl Stream {
    fn next(&mut self) -> Event {
        self.events
            .try_recv()
            .expect("the request has ended, so its events are there")
    }
}
