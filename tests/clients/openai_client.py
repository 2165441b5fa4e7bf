"""The `openai` client against a running server: python openai_client.py BASE_URL [API_KEY]."""

import json
import sys

import openai
from openai import OpenAI

client = OpenAI(base_url=sys.argv[1], api_key=(sys.argv + ["none"])[2], max_retries=0, timeout=60)
model = client.models.list().data[0].id
messages = [{"role": "user", "content": "in the"}]


def models():
    assert client.models.retrieve(model).id == model


def chat():
    whole = client.chat.completions.create(model=model, messages=messages, max_completion_tokens=16, seed=3)
    assert whole.choices[0].message.role == "assistant"
    assert whole.usage.total_tokens == whole.usage.prompt_tokens + whole.usage.completion_tokens
    assert whole.system_fingerprint
    again = client.chat.completions.create(model=model, messages=messages, max_completion_tokens=16, seed=3)
    assert again.choices[0].message.content == whole.choices[0].message.content
    stream = client.chat.completions.create(
        model=model, messages=messages, max_completion_tokens=16, seed=3, stream=True,
        stream_options={"include_usage": True},
    )
    text, usage, ids = "", None, set()
    for chunk in stream:
        ids.add(chunk.id)
        usage = chunk.usage or usage
        if chunk.choices:
            assert usage is None
            text += chunk.choices[0].delta.content or ""
    assert text == whole.choices[0].message.content, (text, whole)
    # The second time the prompt may have been cached; the counts are the same.
    assert usage.total_tokens == whole.usage.total_tokens and len(ids) == 1


def extra_fields():
    whole = client.chat.completions.create(
        model=model, messages=messages, max_tokens=8, n=2, logprobs=True, top_logprobs=2, temperature=0,
        extra_body={"priority": "high", "min_p": 0.1, "ignore_eos": True, "return_token_ids": True},
    )
    for choice in whole.choices:
        assert len(choice.logprobs.content) == 8 == len(choice.model_extra["token_ids"])
        for entry in choice.logprobs.content:
            assert entry.logprob == entry.top_logprobs[0].logprob
            assert len(entry.top_logprobs) == 2
    assert [choice.index for choice in whole.choices] == [0, 1]


def raw_headers():
    raw = client.chat.completions.with_raw_response.create(
        model=model, messages=messages, max_tokens=1, extra_headers={"x-request-id": "mine-1"}
    )
    assert raw.headers["x-request-id"] == "mine-1"
    assert raw.parse().model == model


def completions():
    whole = client.completions.create(model=model, prompt=["in", "the"], max_tokens=4, echo=True, logprobs=1)
    assert [choice.index for choice in whole.choices] == [0, 1]
    assert whole.choices[1].text.startswith("the")
    assert whole.choices[0].logprobs.token_logprobs[0] is None
    stream = client.completions.create(model=model, prompt="in", max_tokens=4, seed=1, stream=True)
    text = "".join(chunk.choices[0].text for chunk in stream)
    assert text == client.completions.create(model=model, prompt="in", max_tokens=4, seed=1).choices[0].text


def structured():
    schema = {
        "type": "object", "properties": {"kind": {"type": "string", "enum": ["x", "y"]}},
        "required": ["kind"], "additionalProperties": False,
    }
    whole = client.chat.completions.create(
        model=model, messages=messages, max_tokens=200, seed=1,
        response_format={"type": "json_schema", "json_schema": {"name": "n", "strict": True, "schema": schema}},
    )
    assert json.loads(whole.choices[0].message.content)["kind"] in ("x", "y")


def tools():
    tool = {
        "type": "function",
        "function": {
            "name": "unit",
            "parameters": {
                "type": "object", "properties": {"unit": {"type": "string", "enum": ["C", "F"]}},
                "required": ["unit"], "additionalProperties": False,
            },
        },
    }
    choice = {"type": "function", "function": {"name": "unit"}}
    whole = client.chat.completions.create(
        model=model, messages=messages, max_tokens=200, seed=1, tools=[tool], tool_choice=choice
    )
    call = whole.choices[0].message.tool_calls[0]
    assert call.function.name == "unit" and json.loads(call.function.arguments)["unit"] in ("C", "F")
    client.chat.completions.create(model=model, messages=messages, max_tokens=8, tools=[tool])


def responses():
    whole = client.responses.create(model=model, input="in the", max_output_tokens=16, extra_body={"seed": 3})
    text, final = "", None
    for event in client.responses.create(
        model=model, input="in the", max_output_tokens=16, stream=True, extra_body={"seed": 3}
    ):
        if event.type == "response.output_text.delta":
            text += event.delta
        if event.type in ("response.completed", "response.incomplete"):
            final = event.response
    assert text == whole.output_text == final.output_text
    assert final.usage.total_tokens == whole.usage.total_tokens


def errors():
    for kwargs, kind, code in [
        ({"model": "other"}, openai.NotFoundError, "model_not_found"),
        ({"temperature": -1}, openai.BadRequestError, "invalid_value"),
        ({"messages": []}, openai.BadRequestError, "empty_messages"),
        ({"max_tokens": 10**6}, openai.BadRequestError, "context_length_exceeded"),
    ]:
        try:
            client.chat.completions.create(**{"model": model, "messages": messages, **kwargs})
        except kind as error:
            assert error.code == code, error
        else:
            raise AssertionError(kwargs)


def closing():
    stream = client.chat.completions.create(
        model=model, messages=messages, max_tokens=200, stream=True, extra_body={"ignore_eos": True}
    )
    next(iter(stream))
    stream.close()


for check in (models, chat, extra_fields, raw_headers, completions, structured, tools, responses, errors, closing):
    check()
    print(f"ok {check.__name__}")
