//! `lockstep run`: one prompt, or a chat in the terminal.

use std::io::{self, BufRead, IsTerminal, Read, Write};
use std::process::ExitCode;
use std::sync::Arc;

use policy_core::RequestPriority;
use serde_json::{Value, json};

use super::CliError;
use crate::config::EngineArgs;
use crate::http::SeedSource;
use crate::http::text::{ChatPrompt, TextModel};
use crate::request::{Event, FinishReason, Request, SamplingParams, StopConditions};
use crate::start::{Running, start};

/// The arguments of `lockstep run`.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    #[command(flatten)]
    engine: EngineArgs,
    /// The prompt; without one, a chat in the terminal, or all of standard input
    prompt: Option<String>,
    /// What the model is told before the conversation
    #[arg(long, env = "LOCKSTEP_RUN_SYSTEM")]
    system: Option<String>,
    /// Gives the prompt to the model as it is, without its chat template
    #[arg(long, env = "LOCKSTEP_RUN_RAW")]
    raw: bool,
    /// The most tokens of an answer
    #[arg(long, env = "LOCKSTEP_RUN_MAX_TOKENS", default_value_t = 512, value_parser = clap::value_parser!(u32).range(1..))]
    max_tokens: u32,
    /// Divides the logits; 0 always takes the most likely token
    #[arg(long, env = "LOCKSTEP_RUN_TEMPERATURE", default_value_t = 0.0)]
    temperature: f32,
    /// The probability mass that tokens are drawn from
    #[arg(long, env = "LOCKSTEP_RUN_TOP_P", default_value_t = 1.0)]
    top_p: f32,
    /// How many of the most likely tokens are drawn from; 0 is all
    #[arg(long, env = "LOCKSTEP_RUN_TOP_K", default_value_t = 0)]
    top_k: u32,
}

/// Answers, streaming, to standard output.
pub(super) fn run(args: Args) -> Result<ExitCode, CliError> {
    check(&args)?;
    let running = start(&args.engine, &args.engine.model)?;
    let answered = Chat::new(&args, &running).run();
    // The journal is whole only when the engine has ended, however the chat did.
    running.intake.abort();
    running.join()?;
    answered?;
    Ok(ExitCode::SUCCESS)
}

fn check(args: &Args) -> Result<(), CliError> {
    if !(args.temperature.is_finite() && args.temperature >= 0.0) {
        return Err(format!(
            "--temperature is {} and must be at least 0",
            args.temperature
        )
        .into());
    }
    if !(args.top_p > 0.0 && args.top_p <= 1.0) {
        return Err(format!(
            "--top-p is {} and must be above 0 and at most 1",
            args.top_p
        )
        .into());
    }
    Ok(())
}

/// A conversation: what was said so far.
struct Chat<'a> {
    args: &'a Args,
    running: &'a Running,
    seeds: SeedSource,
    messages: Vec<Value>,
}

impl<'a> Chat<'a> {
    fn new(args: &'a Args, running: &'a Running) -> Self {
        let system = args
            .system
            .as_ref()
            .map(|text| json!({"role": "system", "content": text}));
        let seeds = SeedSource::new(args.engine.seed);
        Self {
            args,
            running,
            seeds,
            messages: system.into_iter().collect(),
        }
    }

    fn run(&mut self) -> Result<(), CliError> {
        match &self.args.prompt {
            Some(prompt) => self.answer(prompt),
            None if io::stdin().is_terminal() => self.converse(),
            None => {
                let mut prompt = String::new();
                io::stdin().read_to_string(&mut prompt)?;
                self.answer(prompt.trim_end_matches('\n'))
            }
        }
    }

    /// Reads lines until the end of input.
    fn converse(&mut self) -> Result<(), CliError> {
        eprintln!("Type a message; Ctrl-D ends the chat.");
        loop {
            eprint!("> ");
            let mut line = String::new();
            if io::stdin().lock().read_line(&mut line)? == 0 {
                eprintln!();
                return Ok(());
            }
            let line = line.trim();
            if !line.is_empty() {
                self.answer(line)?;
            }
        }
    }

    /// Streams the answer to one message and keeps both.
    fn answer(&mut self, message: &str) -> Result<(), CliError> {
        let prompt = self.prompt(message)?;
        let mut events = self.running.intake.submit(self.request(prompt))?;
        let mut answer = String::new();
        let mut out = io::stdout().lock();
        while let Some(event) = events.blocking_recv() {
            let text = match event {
                Event::Token(token) => token.text,
                Event::Finished { text, reason, .. } => {
                    if reason == FinishReason::Length {
                        log::info!("the answer reached its limit");
                    }
                    text
                }
                Event::Failed(failure) => return Err(failure.into()),
                Event::Accepted { .. } | Event::Started { .. } => continue,
            };
            out.write_all(text.as_bytes())?;
            out.flush()?;
            answer.push_str(&text);
        }
        writeln!(out)?;
        self.messages
            .push(json!({"role": "assistant", "content": answer}));
        Ok(())
    }

    fn prompt(&mut self, message: &str) -> Result<Arc<[u32]>, CliError> {
        if self.args.raw {
            return Ok(self.running.text.encode(message, true, false)?.into());
        }
        self.messages
            .push(json!({"role": "user", "content": message}));
        let chat = ChatPrompt {
            messages: self.messages.clone(),
            add_generation_prompt: true,
            ..ChatPrompt::default()
        };
        Ok(self.running.text.render_chat(&chat)?.into())
    }

    fn request(&self, prompt: Arc<[u32]>) -> Request {
        let room = self
            .running
            .config
            .max_model_len
            .saturating_sub(prompt.len() as u32);
        let args = self.args;
        Request {
            prompt,
            priority: RequestPriority::Normal,
            sampling: SamplingParams {
                temperature: args.temperature,
                top_k: args.top_k,
                top_p: args.top_p,
                seed: self.seeds.next_seed(),
                ..SamplingParams::default()
            },
            stop: StopConditions {
                max_tokens: args.max_tokens.min(room),
                skip_special_tokens: true,
                ..StopConditions::default()
            },
            logprobs: None,
            prompt_logprobs: None,
            cache_salt: None,
            timeout: None,
            queue_timeout: None,
            matcher: None,
        }
    }
}
