"""Clients that build on others, against a running server: python other_clients.py BASE_URL [API_KEY].

Needs what tests/clients/requirements.txt lists; `make test-clients` installs it.
"""

import json
import os
import subprocess
import sys
import tempfile

# It would ask the network for prices.
os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"
base_url = sys.argv[1]
api_key = (sys.argv + ["none"])[2]
root = base_url.removesuffix("/v1")


def model_name():
    from openai import OpenAI

    return OpenAI(base_url=base_url, api_key=api_key).models.list().data[0].id


MODEL = model_name()


def litellm_client():
    import litellm

    kwargs = dict(model=f"openai/{MODEL}", api_base=base_url, api_key=api_key, messages=[{"role": "user", "content": "in the"}],
                  max_tokens=16, seed=3)
    whole = litellm.completion(**kwargs)
    text = "".join(chunk.choices[0].delta.content or "" for chunk in litellm.completion(stream=True, **kwargs))
    assert text == whole.choices[0].message.content


def langchain_client():
    from langchain_openai import ChatOpenAI
    from pydantic import BaseModel, ConfigDict

    class Unit(BaseModel):
        # Without this a model of random weights may add properties without end.
        model_config = ConfigDict(extra="forbid")
        unit: bool

    chat = ChatOpenAI(model=MODEL, base_url=base_url, api_key=api_key, max_tokens=300, seed=3)
    assert isinstance(chat.invoke("in the").content, str)
    assert "".join(part.content for part in chat.stream("in the", max_tokens=8)) is not None
    for method in ("function_calling", "json_schema"):
        assert isinstance(chat.with_structured_output(Unit, method=method).invoke("in the"), Unit), method


def instructor_client():
    import instructor
    from openai import OpenAI
    from pydantic import BaseModel, ConfigDict

    class Unit(BaseModel):
        # Without this a model of random weights may add properties without end.
        model_config = ConfigDict(extra="forbid")
        unit: bool

    for mode in (instructor.Mode.TOOLS, instructor.Mode.JSON_SCHEMA):
        client = instructor.from_openai(OpenAI(base_url=base_url, api_key=api_key), mode=mode)
        unit = client.chat.completions.create(
            model=MODEL, response_model=Unit, max_tokens=300, messages=[{"role": "user", "content": "in"}], max_retries=0
        )
        assert isinstance(unit.unit, bool), mode


def llm_client():
    with tempfile.TemporaryDirectory() as folder:
        with open(os.path.join(folder, "extra-openai-models.yaml"), "w") as models:
            models.write(f"- model_id: lockstep\n  model_name: {MODEL}\n  api_base: {base_url}\n  supports_schema: true\n")
        environment = {**os.environ, "LLM_USER_PATH": folder, "OPENAI_API_KEY": api_key}
        command = [sys.executable, "-m", "llm", "-m", "lockstep", "-o", "max_tokens", "300", "in the"]
        subprocess.run(command, env=environment, check=True, capture_output=True, timeout=120)
        schema = '{"type": "object", "properties": {"unit": {"type": "boolean"}}, "required": ["unit"], "additionalProperties": false}'
        run = subprocess.run([*command, "--schema", schema], env=environment, check=True, capture_output=True, timeout=120)
        assert "unit" in json.loads(run.stdout)


def schemathesis_fuzz():
    command = [
        os.path.join(os.path.dirname(sys.executable), "schemathesis"), "run", f"{root}/openapi.json", "--url", root, "--max-examples", "20",
        "--checks", "not_a_server_error,content_type_conformance,response_schema_conformance", "--seed", "1",
        "--exclude-path-regex", "^/v1/streams$|^/debug/", "--request-timeout", "30",
    ]
    run = subprocess.run(command, capture_output=True, text=True, timeout=900)
    assert run.returncode == 0, run.stdout[-6000:] + run.stderr[-2000:]


for check in (litellm_client, langchain_client, instructor_client, llm_client, schemathesis_fuzz):
    if len(sys.argv) > 3 and check.__name__ not in sys.argv[3:]:
        continue
    check()
    print(f"ok {check.__name__}", flush=True)
