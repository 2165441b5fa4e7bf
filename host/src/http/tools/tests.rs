//! Tool calls in every form, whole and cut at every place.

use super::*;

fn parser() -> ToolParser {
    let names = Arc::from(["f".to_owned(), "g".to_owned()]);
    ToolParser::new("chatcmpl-00ff", 1, &Calls::Free(names))
}

fn whole(text: &str) -> (String, Vec<(String, String)>) {
    let (text, calls) = parser().whole(text);
    let calls = calls
        .into_iter()
        .map(|call| (call.function.name.unwrap(), call.function.arguments));
    (text, calls.collect())
}

/// The same, with the text cut into bits of `size` characters.
fn in_bits(text: &str, size: usize) -> (String, Vec<(String, String)>) {
    let mut parser = parser();
    let characters: Vec<char> = text.chars().collect();
    let mut pieces = Vec::new();
    for bit in characters.chunks(size) {
        pieces.extend(parser.push(&bit.iter().collect::<String>()));
    }
    pieces.extend(parser.finish());
    let (mut text, mut calls) = (String::new(), Vec::<(String, String)>::new());
    for piece in pieces {
        match piece {
            Piece::Text(more) => text.push_str(&more),
            Piece::Call(call) => {
                if let Some(name) = call.function.name {
                    assert_eq!(call.index, Some(calls.len() as u32));
                    assert_eq!(call.id, Some(format!("call_00ff01{:03}", calls.len())));
                    calls.push((name, String::new()));
                }
                calls
                    .last_mut()
                    .unwrap()
                    .1
                    .push_str(&call.function.arguments);
            }
        }
    }
    (text, calls)
}

fn call(name: &str, arguments: &str) -> (String, String) {
    (name.to_owned(), arguments.to_owned())
}

#[test]
fn calls_of_every_form_are_found_however_the_text_is_cut() {
    let cases = [
        (
            "Let me see.\n<tool_call>\n{\"name\": \"f\", \"arguments\": {\"x\": \"}{\\\"é\"}}\n</tool_call>",
            "Let me see.\n",
            vec![call("f", "{\"x\": \"}{\\\"é\"}")],
        ),
        (
            "<tool_call>{\"arguments\": {\"x\": [1, {}]}, \"name\": \"f\"}</tool_call>\n<tool_call>{\"name\": \"g\"}</tool_call>",
            "",
            vec![call("f", "{\"x\": [1, {}]}"), call("g", "{}")],
        ),
        (
            "<tool_call>\n<function=f>\n<parameter=x>\n1\n</parameter>\n<parameter=y>\na b\n</parameter>\n</function>\n</tool_call>",
            "",
            vec![call("f", "{\"x\":1,\"y\":\"a b\"}")],
        ),
        (
            "{\"name\": \"f\", \"parameters\": {\"x\": 1}}; {\"name\": \"g\", \"parameters\": {}}",
            "",
            vec![call("f", "{\"x\": 1}"), call("g", "{}")],
        ),
        (
            "<|python_tag|>{\"type\": \"function\", \"name\": \"f\", \"parameters\": {\"x\": 1}}",
            "",
            vec![call("f", "{\"x\": 1}")],
        ),
        (
            "[TOOL_CALLS][{\"name\": \"f\", \"arguments\": {\"x\": 1}}, {\"name\": \"g\", \"arguments\": \"\"}]",
            "",
            vec![call("f", "{\"x\": 1}"), call("g", "{}")],
        ),
        (
            "[TOOL_CALLS]f[ARGS]{\"x\": {\"y\": 2}}[TOOL_CALLS]g{}",
            "",
            vec![call("f", "{\"x\": {\"y\": 2}}"), call("g", "{}")],
        ),
        (
            "<tool_call>{\"name\": \"f\", \"arguments\": \"{\\\"x\\\": 1}\"}</tool_call> done",
            "done",
            vec![call("f", "{\"x\": 1}")],
        ),
    ];
    for (text, rest, calls) in cases {
        assert_eq!(whole(text), (rest.to_owned(), calls.clone()), "{text}");
        for size in [1, 2, 3, 7] {
            assert_eq!(
                in_bits(text, size),
                (rest.to_owned(), calls.clone()),
                "{size}: {text}"
            );
        }
    }
}

#[test]
fn what_is_no_call_stays_text_unchanged() {
    let cases = [
        "",
        "  \n",
        "plain < text [TOOL_ and <tool_cal",
        "{\"answer\": {\"name\": \"f\"}}",
        "{\"name\": \"unknown\", \"age\": 3}",
        "  {\"x\": 1",
        "<tool_call>no json",
        "<tool_call><b>",
        "<tool_call>",
        "<tool_call>{\"x\": 1}",
        "[TOOL_CALLS]",
        "a<|python_tag|>print(1)",
        "<tool_call><function=f><parameter=x>1</function></tool_call>",
    ];
    for text in cases {
        let expected = (text.replace("  {", "{"), Vec::new());
        let (found, calls) = whole(text);
        assert_eq!((found.clone(), calls), expected, "{text}");
        for size in [1, 2, 5] {
            assert_eq!(in_bits(text, size), expected, "{size}: {text}");
        }
    }
}

#[test]
fn arguments_are_passed_on_while_they_are_written() {
    let mut parser = parser();
    let pieces = parser.push("<tool_call>{\"name\": \"f\", \"arguments\": {\"x\": \"lo");
    assert_eq!(pieces.len(), 2, "{pieces:?}");
    let Piece::Call(second) = &pieces[1] else {
        panic!("{pieces:?}")
    };
    assert_eq!(second.function.arguments, "{\"x\": \"lo");
}

#[test]
fn forced_calls_are_read_as_what_the_constraint_makes_them() {
    let named = || ToolParser::new("chatcmpl-00ff", 0, &Calls::Arguments("f".into()));
    let (text, calls) = named().whole("{\"x\": {\"y\": 1}}");
    assert_eq!((text.as_str(), calls.len()), ("", 1));
    assert_eq!(calls[0].function.arguments, "{\"x\": {\"y\": 1}}");
    // Cut short by its length, the call has the arguments that there are.
    let (_, calls) = named().whole("{\"x\": ");
    assert_eq!(calls[0].function.arguments, "{\"x\": ");
    let listed = || ToolParser::new("chatcmpl-00ff", 0, &Calls::Listed);
    let text =
        "[{\"name\": \"f\", \"arguments\": {\"x\": 1}},\n {\"name\": \"g\", \"arguments\": {}}]";
    let (rest, calls) = listed().whole(text);
    let names: Vec<_> = calls
        .iter()
        .map(|call| call.function.name.as_deref().unwrap())
        .collect();
    assert_eq!((rest.as_str(), names), ("", vec!["f", "g"]));
    let mut parser = listed();
    let pieces: Vec<Piece> = text
        .chars()
        .flat_map(|c| parser.push(&c.to_string()))
        .collect();
    let fragments = pieces.iter().filter_map(|piece| match piece {
        Piece::Call(call) if call.index == Some(0) => Some(call.function.arguments.as_str()),
        _ => None,
    });
    assert_eq!(fragments.collect::<String>(), "{\"x\": 1}");
}
