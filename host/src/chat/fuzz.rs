//! Seeded random mutations of templates and conversations: whatever comes, it is rendered or
//! refused, the same each time, and no message ever becomes a control token.

use serde_json::{Value as Json, json};

use super::{ChatTemplate, Conversation, MAX_OUTPUT_BYTES};
use crate::gguf::Gguf;
use crate::gguf::tiny::tiny_llama;
use crate::tokenizer::Tokenizer;

/// xorshift64* from a fixed seed.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: usize) -> usize {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 33) as usize % sides
    }

    fn of<'a, T: ?Sized>(&mut self, items: &[&'a T]) -> &'a T {
        items[self.roll(items.len())]
    }
}

/// Templates as models bring them, in small.
const TEMPLATES: [&str; 5] = [
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content | trim }}<|im_end|>\n{% endfor %}\
     {% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}",
    "{{ bos_token }}{%- set ns = namespace(n=0) %}{%- for m in messages %}{%- set ns.n = ns.n + 1 %}\
     {%- if m['role'] == 'user' and ns.n % 2 == 0 %}{{ raise_exception('roles must alternate') }}{%- endif %}\
     [{{ m.role | upper }}] {{ m['content'][:40] + eos_token }}{%- endfor %}",
    "{%- if tools %}{{ tools | tojson(indent=2) }}{%- for t in tools %}{{ t.function.name }}{%- endfor %}{%- endif %}\
     {%- for m in messages %}{%- for c in m.tool_calls or [] %}{{ c.function.name }}({{ c.function.arguments | tojson }}){%- endfor %}\
     {{ m.content }}{%- endfor %}",
    "{%- macro show(m) %}{{ m.content.split('x') | join('-') }}{%- endmacro %}{%- for m in messages %}{{ show(m) }}{%- endfor %}\
     {{ strftime_now('%d %b %Y') }}",
    "{%- set all = messages | map(attribute='content') | list %}{{ all | join('') }}{{ date_string or '' }}",
];

/// Pieces that templates are made of, and that loops and recursion are made of.
const CODE: [&str; 22] = [
    "{{",
    "}}",
    "{%",
    "%}",
    "{#",
    "#}",
    "{% endfor %}",
    "{% for i in range(99999999) %}",
    "loop.index",
    "messages",
    "[0]",
    "|",
    "'",
    "\"",
    "| length",
    "* 1000000",
    "{% set x = x ~ x %}",
    "not",
    "-%}",
    "namespace()",
    "é",
    "\0",
];

/// Texts that messages are made of: control tokens whole and in part, and what may mark them.
const TEXTS: [&str; 14] = [
    "<|im_start|>",
    "<|im_end|>",
    "<|im_",
    "end|>",
    "<",
    "|>",
    "hello",
    "",
    "\u{e000}",
    "\u{f8ff}",
    "\u{10fffd}",
    "{{ bos_token }}",
    "{% raw %}",
    "x\n\u{1f469}",
];

/// How many there are: more in `make fuzz`.
fn rounds() -> usize {
    let asked = std::env::var("LOCKSTEP_FUZZ_ROUNDS").ok();
    asked.and_then(|text| text.parse().ok()).unwrap_or(3000)
}

fn tokenizer() -> Tokenizer {
    let file = Gguf::from_bytes(tiny_llama(1)).expect("a whole file");
    Tokenizer::from_gguf(&file).expect("a vocabulary")
}

fn content(dice: &mut Dice) -> String {
    (0..dice.roll(5)).map(|_| dice.of(&TEXTS)).collect()
}

/// A message as a client may write it, or not.
fn message(dice: &mut Dice) -> Json {
    let role = dice.of(&["user", "assistant", "system", "tool", "<|im_end|>"]);
    let text = content(dice);
    match dice.roll(8) {
        0 => {
            json!({"role": role, "content": [{"type": "text", "text": text}, {"type": "text", "text": content(dice)}]})
        }
        1 => json!({"role": "assistant", "content": null, "tool_calls": [
            {"type": "function", "function": {"name": text, "arguments": {text.as_str(): [1, content(dice)]}}}]}),
        2 => json!({"role": role, "content": dice.roll(100)}),
        3 => json!({"content": text}),
        4 => json!([text]),
        _ => json!({"role": role, "content": text, text.as_str(): {"a": content(dice)}}),
    }
}

fn mutated(source: &str, dice: &mut Dice) -> String {
    let mut characters: Vec<char> = source.chars().collect();
    for _ in 0..=dice.roll(3) {
        let at = dice.roll(characters.len().max(1));
        let end = (at + dice.roll(12)).min(characters.len());
        match dice.roll(4) {
            0 => drop(characters.drain(at..end)),
            1 => characters.extend_from_within(at..end),
            _ => {
                let piece: Vec<char> = dice.of(&CODE).chars().collect();
                characters.splice(at..at, piece);
            }
        }
    }
    characters.into_iter().collect()
}

/// Renders twice; whether it was rendered.
fn render(template: &ChatTemplate, messages: &[Json], dice: &mut Dice) -> Option<super::Prompt> {
    let tools =
        [json!({"type": "function", "function": {"name": content(dice), "parameters": {}}})];
    let kwargs = json!({"date_string": content(dice), "messages": "not these"});
    let goes_on = dice.roll(6) == 0;
    let conversation = Conversation {
        messages,
        tools: if dice.roll(3) == 0 { &tools } else { &[] },
        add_generation_prompt: !goes_on,
        continue_final_message: goes_on,
        kwargs: kwargs.as_object().filter(|_| dice.roll(2) == 0),
        now: Some(1_700_000_000),
    };
    let (one, two) = (
        template.render(&conversation),
        template.render(&conversation),
    );
    assert_eq!(format!("{one:?}"), format!("{two:?}"));
    one.ok()
        .inspect(|prompt| assert!(prompt.text.len() <= MAX_OUTPUT_BYTES))
}

#[test]
fn mutated_templates_are_rendered_or_refused() {
    let (mut dice, tokenizer) = (Dice(0x5eed), tokenizer());
    let (mut compiled, mut rendered) = (0, 0);
    for _ in 0..rounds() {
        let source = dice.of(&TEMPLATES);
        let source = mutated(source, &mut dice);
        let Ok(template) = ChatTemplate::from_source(&source, &tokenizer) else {
            continue;
        };
        compiled += 1;
        let messages: Vec<Json> = (0..=dice.roll(3)).map(|_| message(&mut dice)).collect();
        rendered += usize::from(render(&template, &messages, &mut dice).is_some());
    }
    assert!(compiled > rounds() / 6 && compiled < rounds(), "{compiled}");
    assert!(
        rendered > rounds() / 30 && rendered < compiled,
        "{rendered} of {compiled}"
    );
}

#[test]
fn whatever_messages_hold_is_plain_text() {
    let (mut dice, tokenizer) = (Dice(0xc0ff_ee00), tokenizer());
    let templates =
        TEMPLATES.map(|source| ChatTemplate::from_source(source, &tokenizer).expect(source));
    let mut rendered = 0;
    for _ in 0..rounds() {
        let messages: Vec<Json> = (0..=dice.roll(4)).map(|_| message(&mut dice)).collect();
        let number = dice.roll(templates.len());
        let Some(prompt) = render(&templates[number], &messages, &mut dice) else {
            continue;
        };
        rendered += 1;
        let ids = tokenizer.encode_prompt(&prompt).expect("whole text");
        let control = ids.iter().filter(|id| tokenizer.is_control(**id)).count();
        // The first template writes two around each message, and may open one; the second one before
        // all and one behind each; the others write none.
        let most = [2 * messages.len() + 1, messages.len() + 1, 0, 0, 0][number];
        assert!(control <= most, "{control} of {most} in {:?}", prompt.text);
        assert_eq!(tokenizer.decode(&ids, false), prompt.text);
    }
    assert!(rendered > rounds() / 6, "{rendered}");
}
