//! `/v1/responses`: the same answers, told as items and events.

use std::sync::Arc;

use serde_json::{Map, Value, json};

use super::body::{Reply, json_ok};
use super::call::Call;
use super::error::ApiError;
use super::generation::{Generation, Update};
use super::prepare::{self, Wanted};
use super::sse::{EventWriter, Format};
use super::text::TextModel;
use super::tokens::TokenNames;
use super::tools::{Piece, ToolParser};
use super::wire::output::{Head, ToolCall, UsageBody};
use super::wire::responses::ResponsesRequest;
use crate::request::{FinishReason, PositionLogprobs};

/// Answers a request for a response.
///
/// # Errors
/// Whatever is wrong with the request; nothing has been sent then.
pub(super) async fn answer(call: Call) -> Result<Reply, ApiError> {
    let (call, body) = call.read_body().await?;
    let server = Arc::clone(&call.server);
    let request = ResponsesRequest::read(&body, server.bounds())?;
    let body_bytes = body.len();
    // It would lie there for as long as the answer takes.
    let reservation = body.into_reservation();
    let mut chat = request.chat;
    prepare::check_model(&server, chat.common.model.as_deref())?;
    let constraint = chat.take_constraint()?;
    prepare::constrain(&server, constraint, &mut chat.common).await?;
    let calls = chat.calls();
    // Some formats mark a call by control tokens, which the parser has to see.
    chat.common.skip_special_tokens &= calls.is_none();
    let tokens = prepare::render_chat(&server, chat.prompt, body_bytes).await?;
    let wanted = Wanted {
        logprobs: chat.logprobs,
        prompt_logprobs: None,
        may_be_empty: false,
        default_max_tokens: server.app.limits.default_max_tokens,
    };
    let (stream, resumable) = (chat.common.stream, chat.common.resumable);
    let prepared = prepare::prepare(&server, &call.headers, chat.common, vec![tokens], wanted)?;
    let head = call.head("resp_", "response", prepared.seed);
    let mut generation = call.submit(&head, prepared.requests, 1)?;
    drop(reservation);
    let parser = calls.map(|calls| ToolParser::new(&head.id, 0, &calls));
    let text = Arc::clone(&server.app.text);
    let mut format = ResponsesFormat::new(head, request.echoed, text, parser);
    if stream {
        return call.stream(generation, format, resumable);
    }
    // A whole response is what the events of a stream add up to.
    let mut unheard = EventWriter::default();
    while let Some(update) = generation.update().await {
        format.update(update?, &mut unheard);
        unheard.clear();
    }
    json_ok(&format.response(generation.usage()))
}

/// Writes responses: keeps the items so far, and tells every change as an event.
struct ResponsesFormat {
    head: Head,
    echoed: Map<String, Value>,
    text: Arc<dyn TextModel>,
    parser: Option<ToolParser>,
    sequence: u64,
    /// The items that are complete.
    items: Vec<Value>,
    open: Option<OpenItem>,
    reason: Option<FinishReason>,
}

/// The item that is being written.
enum OpenItem {
    Message {
        text: String,
        logprobs: Vec<Value>,
    },
    Call {
        call_id: String,
        name: String,
        arguments: String,
    },
}

impl ResponsesFormat {
    fn new(
        head: Head,
        echoed: Map<String, Value>,
        text: Arc<dyn TextModel>,
        parser: Option<ToolParser>,
    ) -> Self {
        Self {
            head,
            echoed,
            text,
            parser,
            sequence: 0,
            items: Vec::new(),
            open: None,
            reason: None,
        }
    }

    /// The response, complete.
    fn response(&self, usage: UsageBody) -> Value {
        let (status, details) = match self.reason {
            Some(FinishReason::Length) => ("incomplete", json!({"reason": "max_output_tokens"})),
            _ => ("completed", Value::Null),
        };
        let mut response = self.snapshot(status);
        response["incomplete_details"] = details;
        response["usage"] = json!({
            "input_tokens": usage.prompt_tokens,
            "input_tokens_details": {"cached_tokens": usage.prompt_tokens_details.cached_tokens},
            "output_tokens": usage.completion_tokens,
            "output_tokens_details": {"reasoning_tokens": 0},
            "total_tokens": usage.total_tokens,
        });
        response
    }

    /// The response as far as it is.
    fn snapshot(&self, status: &str) -> Value {
        let head = &self.head;
        let mut response = json!({
            "id": head.id,
            "object": head.object,
            "created_at": head.created,
            "status": status,
            "error": null,
            "incomplete_details": null,
            "model": head.model,
            "output": self.items,
            "previous_response_id": null,
            "text": {"format": {"type": "text"}},
            "usage": null,
            "system_fingerprint": head.system_fingerprint,
            "seed": head.seed,
        });
        if let Value::Object(map) = &mut response {
            map.extend(self.echoed.clone());
        }
        response
    }

    fn emit(&mut self, name: &str, mut event: Value, out: &mut EventWriter) {
        event["type"] = name.into();
        event["sequence_number"] = self.sequence.into();
        self.sequence += 1;
        out.named(name, &event);
    }

    fn item_id(&self, prefix: &str) -> String {
        let digits = self.head.id.trim_start_matches("resp_");
        format!("{prefix}_{digits}{:03}", self.items.len())
    }

    /// The open item, as it stands.
    fn item(&self, item: &OpenItem, status: &str) -> Value {
        match item {
            OpenItem::Message { .. } => json!({
                "type": "message",
                "id": self.item_id("msg"),
                "status": status,
                "role": "assistant",
                "content": if status == "in_progress" { json!([]) } else { json!([part(item)]) },
            }),
            OpenItem::Call {
                call_id,
                name,
                arguments,
            } => json!({
                "type": "function_call",
                "id": self.item_id("fc"),
                "call_id": call_id,
                "name": name,
                "arguments": arguments,
                "status": status,
            }),
        }
    }

    fn open(&mut self, item: OpenItem, out: &mut EventWriter) {
        self.close_item("completed", out);
        let index = self.items.len();
        let shown = self.item(&item, "in_progress");
        let id = shown["id"].clone();
        self.emit(
            "response.output_item.added",
            json!({"output_index": index, "item": shown}),
            out,
        );
        if matches!(item, OpenItem::Message { .. }) {
            let event = json!({
                "item_id": id, "output_index": index, "content_index": 0, "part": part(&item),
            });
            self.emit("response.content_part.added", event, out);
        }
        self.open = Some(item);
    }

    fn close_item(&mut self, status: &str, out: &mut EventWriter) {
        let Some(item) = self.open.take() else {
            return;
        };
        let index = self.items.len();
        let shown = self.item(&item, status);
        let at = json!({"item_id": shown["id"], "output_index": index});
        match &item {
            OpenItem::Message { text, logprobs } => {
                let mut done = at.clone();
                done["content_index"] = 0.into();
                let mut text_done = done.clone();
                text_done["text"] = text.as_str().into();
                text_done["logprobs"] = logprobs.as_slice().into();
                self.emit("response.output_text.done", text_done, out);
                done["part"] = part(&item);
                self.emit("response.content_part.done", done, out);
            }
            OpenItem::Call {
                name, arguments, ..
            } => {
                let mut done = at;
                done["name"] = name.as_str().into();
                done["arguments"] = arguments.as_str().into();
                self.emit("response.function_call_arguments.done", done, out);
            }
        }
        let event = json!({"output_index": index, "item": shown});
        self.emit("response.output_item.done", event, out);
        self.items.push(shown);
    }

    fn write_text(&mut self, delta: &str, added: &[Value], out: &mut EventWriter) {
        if delta.is_empty() && added.is_empty() {
            return;
        }
        if !matches!(self.open, Some(OpenItem::Message { .. })) {
            let (text, logprobs) = (String::new(), Vec::new());
            self.open(OpenItem::Message { text, logprobs }, out);
        }
        if let Some(OpenItem::Message { text, logprobs }) = &mut self.open {
            text.push_str(delta);
            logprobs.extend_from_slice(added);
        }
        let event = json!({
            "item_id": self.item_id("msg"),
            "output_index": self.items.len(),
            "content_index": 0,
            "delta": delta,
            "logprobs": added,
        });
        self.emit("response.output_text.delta", event, out);
    }

    fn write_call(&mut self, call: ToolCall, out: &mut EventWriter) {
        if let (Some(call_id), Some(name)) = (call.id, call.function.name) {
            let arguments = String::new();
            self.open(
                OpenItem::Call {
                    call_id,
                    name,
                    arguments,
                },
                out,
            );
        }
        let delta = call.function.arguments;
        if delta.is_empty() {
            return;
        }
        if let Some(OpenItem::Call { arguments, .. }) = &mut self.open {
            arguments.push_str(&delta);
        }
        let event = json!({
            "item_id": self.item_id("fc"), "output_index": self.items.len(), "delta": delta,
        });
        self.emit("response.function_call_arguments.delta", event, out);
    }

    fn write(&mut self, text: &str, logprobs: &[Value], end: bool, out: &mut EventWriter) {
        let Some(parser) = &mut self.parser else {
            self.write_text(text, logprobs, out);
            return;
        };
        let mut pieces = parser.push(text);
        if end {
            pieces.extend(parser.finish());
        }
        for piece in pieces {
            match piece {
                Piece::Text(text) => self.write_text(&text, logprobs, out),
                Piece::Call(call) => self.write_call(call, out),
            }
        }
    }

    fn logprobs(&self, positions: &[PositionLogprobs]) -> Vec<Value> {
        let names = TokenNames {
            text: self.text.as_ref(),
            as_ids: false,
        };
        let entry = |position| serde_json::to_value(names.chat(position)).unwrap_or_default();
        positions.iter().map(entry).collect()
    }
}

/// The content of a message.
fn part(item: &OpenItem) -> Value {
    match item {
        OpenItem::Message { text, logprobs } => json!({
            "type": "output_text", "text": text, "annotations": [], "logprobs": logprobs,
        }),
        OpenItem::Call { .. } => Value::Null,
    }
}

impl Format for ResponsesFormat {
    fn open(&mut self, out: &mut EventWriter) {
        for name in ["response.created", "response.in_progress"] {
            let response = self.snapshot("in_progress");
            self.emit(name, json!({"response": response}), out);
        }
    }

    fn update(&mut self, update: Update, out: &mut EventWriter) {
        match update {
            Update::Started { .. } => {}
            Update::Token { token, .. } => {
                let logprobs = self.logprobs(token.logprobs.as_slice());
                self.write(&token.text, &logprobs, false, out);
            }
            Update::Finished { reason, text, .. } => {
                self.write(&text, &[], true, out);
                self.reason = Some(reason);
                let cut = reason == FinishReason::Length;
                self.close_item(if cut { "incomplete" } else { "completed" }, out);
            }
        }
    }

    fn close(&mut self, generation: &Generation, out: &mut EventWriter) {
        let response = self.response(generation.usage());
        let name = match self.reason {
            Some(FinishReason::Length) => "response.incomplete",
            _ => "response.completed",
        };
        self.emit(name, json!({"response": response}), out);
    }

    fn fail(&mut self, error: &ApiError, out: &mut EventWriter) {
        self.close_item("incomplete", out);
        let code = error.code.unwrap_or("server_error");
        let event = json!({"code": code, "message": error.message, "param": null});
        self.emit("error", event, out);
        let mut response = self.snapshot("failed");
        response["error"] = json!({"code": code, "message": error.message});
        self.emit("response.failed", json!({"response": response}), out);
    }
}
