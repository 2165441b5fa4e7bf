//! An engine that plays scripts. It checks that every request it is given is one that the real
//! engine could take, and remembers what it saw.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use lockstep::batch::TokenId;
use lockstep::http::text::{ChatPrompt, TextError, TextModel, TokenizerInfo};
use lockstep::intake::{Door, EngineState, Message, Submission};
use lockstep::request::{
    Event, Failure, FinishReason, PositionLogprobs, Request, RequestId, StopCause, TokenEvent,
    TokenLogprob, Usage,
};
use tokio::sync::Semaphore;

/// Tokens 0 to 255 are the bytes; these two stand around.
pub(super) const BOS: TokenId = 256;
pub(super) const EOS: TokenId = 257;
/// Every id is below this.
pub(super) const VOCAB: u32 = 258;

/// How an answer goes.
#[derive(Clone, Debug)]
pub(super) struct Script {
    /// Its tokens; `max_tokens` cuts them.
    pub(super) tokens: Vec<TokenId>,
    /// Before this many tokens are out, a permit of the gate is needed for each of the others.
    pub(super) free: usize,
    /// How it fails after its tokens, if it does.
    pub(super) failure: Option<Failure>,
    /// Whether the engine just goes away after its tokens.
    pub(super) vanish: bool,
}

impl Script {
    /// An answer with this text.
    pub(super) fn text(text: &str) -> Self {
        Self {
            tokens: text.bytes().map(TokenId::from).collect(),
            free: usize::MAX,
            failure: None,
            vanish: false,
        }
    }
}

/// Chooses the script of a request.
pub(super) type Director = Arc<dyn Fn(&Request) -> Script + Send + Sync>;

/// What the engine saw.
#[derive(Debug, Default)]
pub(super) struct Log {
    /// The requests, in order.
    pub(super) requests: Vec<Request>,
    /// Requests whose client went away before they ended.
    pub(super) cancelled: usize,
    /// Requests that ended with a terminal event.
    pub(super) ended: usize,
}

/// The engine's side of a fixture.
#[derive(Clone)]
pub(super) struct Stage {
    pub(super) log: Arc<Mutex<Log>>,
    pub(super) gate: Arc<Semaphore>,
}

/// Plays until the door closes; what still plays then is ended.
pub(super) async fn perform(mut door: Door, director: Director, stage: Stage) {
    door.set_state(EngineState::Ready);
    let mut number = 0;
    let mut playing = tokio::task::JoinSet::new();
    while let Some(message) = door.messages.recv().await {
        let Message::Submit(choices) = message else {
            continue;
        };
        let prompt = choices.first().map(|first| first.request.prompt.clone());
        for submission in choices {
            assert_eq!(Some(&submission.request.prompt), prompt.as_ref());
            check(&submission.request);
            let script = director(&submission.request);
            let mut log = stage.log.lock().unwrap();
            log.requests.push(submission.request.clone());
            drop(log);
            playing.spawn(play(
                submission,
                RequestId::new(number),
                script,
                stage.clone(),
            ));
            number += 1;
        }
    }
    door.set_state(EngineState::Dead);
    playing.join_all().await;
}

/// What the door promises of every request.
fn check(request: &Request) {
    let sampling = &request.sampling;
    assert!(!request.prompt.is_empty() && request.prompt.iter().all(|&id| id < VOCAB));
    assert!(sampling.temperature.is_finite() && sampling.temperature >= 0.0);
    assert!(sampling.top_p > 0.0 && sampling.top_p <= 1.0);
    assert!((0.0..=1.0).contains(&sampling.min_p));
    assert!(sampling.repetition_penalty > 0.0 && sampling.repetition_penalty.is_finite());
    for penalty in [sampling.presence_penalty, sampling.frequency_penalty] {
        assert!((-2.0..=2.0).contains(&penalty));
    }
    assert!(sampling.logit_bias.is_sorted_by(|a, b| a.0 < b.0));
    assert!(
        sampling
            .logit_bias
            .iter()
            .all(|(id, bias)| *id < VOCAB && bias.is_finite())
    );
    if let Some(allowed) = &sampling.allowed_token_ids {
        assert!(!allowed.is_empty() && allowed.is_sorted_by(|a, b| a < b));
        assert!(allowed.iter().all(|&id| id < VOCAB));
    }
    assert!(sampling.bad_words.iter().all(|word| !word.is_empty()));
    assert!(request.stop.stop_token_ids.iter().all(|&id| id < VOCAB));
    assert!(request.stop.stop.iter().all(|text| !text.is_empty()));
    assert!(request.stop.min_tokens <= request.stop.max_tokens);
    assert!(request.logprobs.is_none_or(|top| top <= 20));
    assert!(request.prompt_logprobs.is_none_or(|top| top <= 20));
}

async fn play(submission: Submission, id: RequestId, script: Script, stage: Stage) {
    let Submission {
        request,
        events,
        permit,
        ..
    } = submission;
    let mut heard = events.try_send(Event::Accepted { request: id }).is_ok();
    drop(permit);
    heard &= events.try_send(started(&request)).is_ok();
    let count = script.tokens.len().min(request.stop.max_tokens as usize);
    let mut decoder = Decoder::default();
    for (index, &token) in script.tokens.iter().take(count).enumerate() {
        if index >= script.free {
            tokio::select! {
                permit = stage.gate.acquire() => permit.expect("the gate stays").forget(),
                () = events.closed() => {
                    stage.log.lock().unwrap().cancelled += 1;
                    return;
                }
            }
        }
        let event = TokenEvent {
            index: index as u32,
            token,
            text: decoder.push(token),
            logprobs: request.logprobs.map(|top| logprobs(token, top)),
        };
        // The queue holds everything that a request can have: it is never full.
        heard &= events.try_send(Event::Token(event)).is_ok();
    }
    if script.vanish {
        return;
    }
    let last = match script.failure {
        Some(failure) => Event::Failed(failure),
        None => finished(&request, count, script.tokens.len(), decoder.flush()),
    };
    heard &= events.try_send(last).is_ok();
    let mut log = stage.log.lock().unwrap();
    if heard {
        log.ended += 1;
    } else {
        log.cancelled += 1;
    }
}

fn started(request: &Request) -> Event {
    let prompt_logprobs = match request.prompt_logprobs {
        Some(top) => request
            .prompt
            .iter()
            .skip(1)
            .map(|&token| logprobs(token, top))
            .collect(),
        None => Vec::new(),
    };
    Event::Started {
        cached_tokens: 0,
        prompt_logprobs,
    }
}

fn finished(request: &Request, count: usize, whole: usize, text: String) -> Event {
    let cut = count < whole || request.stop.max_tokens as usize == count;
    Event::Finished {
        reason: if cut {
            FinishReason::Length
        } else {
            FinishReason::Stop
        },
        stop: (!cut).then_some(StopCause::EndToken(EOS)),
        text,
        usage: Usage {
            prompt_tokens: request.prompt.len() as u32,
            completion_tokens: count as u32,
            cached_tokens: 0,
            preemptions: 0,
        },
    }
}

/// Values that depend on the token, the most likely one being another for odd tokens.
pub(super) fn logprobs(token: TokenId, top: u32) -> PositionLogprobs {
    let entry = |token: TokenId, rank: u32| TokenLogprob {
        token,
        logprob: -0.1 * rank as f32 - token as f32 / 1000.0,
        rank,
    };
    let chosen = if token.is_multiple_of(2) {
        entry(token, 1)
    } else {
        entry(token, 2)
    };
    let top = (1..=top).map(|rank| match (rank, token % 2) {
        (1, 0) | (2, 1) => chosen,
        _ => entry((token + rank) % 256, rank),
    });
    PositionLogprobs {
        chosen,
        top: top.collect(),
    }
}

/// Whole characters of bytes that come one by one.
#[derive(Default)]
struct Decoder(Vec<u8>);

impl Decoder {
    fn push(&mut self, token: TokenId) -> String {
        self.0.extend(u8::try_from(token));
        match std::str::from_utf8(&self.0) {
            Ok(text) => {
                let text = text.to_owned();
                self.0.clear();
                text
            }
            Err(_) => String::new(),
        }
    }

    fn flush(&mut self) -> String {
        String::from_utf8_lossy(&std::mem::take(&mut self.0)).into_owned()
    }
}

/// A tokenizer whose tokens are bytes. `<s>` and `</s>` are its control tokens.
pub(super) struct Bytes;

impl TextModel for Bytes {
    fn encode(
        &self,
        text: &str,
        add_special: bool,
        parse_special: bool,
    ) -> Result<Vec<TokenId>, TextError> {
        let mut tokens: Vec<TokenId> = add_special.then_some(BOS).into_iter().collect();
        let mut rest = text;
        while let Some(first) = rest.chars().next() {
            let control = [("<s>", BOS), ("</s>", EOS)];
            let found = control
                .iter()
                .find(|(name, _)| parse_special && rest.starts_with(name));
            let length = match found {
                Some((name, id)) => {
                    tokens.push(*id);
                    name.len()
                }
                None => {
                    let length = first.len_utf8();
                    tokens.extend(rest.as_bytes()[..length].iter().map(|&b| TokenId::from(b)));
                    length
                }
            };
            rest = &rest[length..];
        }
        Ok(tokens)
    }

    fn decode(&self, tokens: &[TokenId], skip_special: bool) -> String {
        let mut bytes = Vec::new();
        for &token in tokens {
            if token < 256 || !skip_special {
                bytes.extend(self.token_bytes(token));
            }
        }
        String::from_utf8_lossy(&bytes).into_owned()
    }

    fn token_bytes(&self, token: TokenId) -> Vec<u8> {
        match token {
            BOS => b"<s>".to_vec(),
            EOS => b"</s>".to_vec(),
            byte => u8::try_from(byte).into_iter().collect(),
        }
    }

    fn render_chat(&self, chat: &ChatPrompt) -> Result<Vec<TokenId>, TextError> {
        let mut tokens = vec![BOS];
        for message in &chat.messages {
            let content = message["content"].as_str().expect("contents are texts");
            if content == "raise" {
                return Err(TextError("the template says no".into()));
            }
            let role = message["role"].as_str().expect("roles are texts");
            tokens.extend(self.encode(&format!("{role}:{content}\n"), false, false)?);
        }
        Ok(tokens)
    }

    fn describe(&self) -> TokenizerInfo {
        TokenizerInfo {
            vocab_size: VOCAB,
            bos_token: Some("<s>".into()),
            eos_token: Some("</s>".into()),
            eos_token_id: Some(EOS),
            ..TokenizerInfo::default()
        }
    }
}

/// The texts of the prompts that the engine saw, with how often.
pub(super) fn prompts(log: &Log) -> BTreeMap<String, usize> {
    let mut counts = BTreeMap::new();
    for request in &log.requests {
        *counts
            .entry(Bytes.decode(&request.prompt, true))
            .or_insert(0) += 1;
    }
    counts
}
