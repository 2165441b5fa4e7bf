"""EleutherAI's evaluation harness against a running server: python lm_eval_check.py BASE_URL.

Runs the two tasks of tests/clients/lm_eval as a user would (local-completions, the server's own tokenizer, no network), then computes
every score again from the server's prompt_logprobs and compares: bit for bit, since both are sums of the same numbers in the same order.
"""

import json
import os
import subprocess
import sys
import tempfile
import urllib.request
from pathlib import Path

base_url = sys.argv[1]
root = base_url.removesuffix("/v1")
tasks = Path(__file__).parent / "lm_eval"


def ask(path, body):
    request = urllib.request.Request(root + path, json.dumps(body).encode(), {"content-type": "application/json"})
    with urllib.request.urlopen(request) as answer:
        return json.load(answer)


def tokens(text):
    return ask("/tokenize", {"prompt": text, "add_special_tokens": False})["tokens"]


def evaluate(folder):
    """What the harness says: its scores, and what it was told for each document."""
    with urllib.request.urlopen(f"{base_url}/models") as answer:
        name = json.load(answer)["data"][0]["id"]
    model = f"model={name},base_url={base_url}/completions,tokenizer_backend=remote,num_concurrent=2,max_retries=1"
    command = [sys.executable, "-m", "lm_eval", "--model", "local-completions", "--model_args", model, "--tasks",
               "lockstep_knowledge,lockstep_going_on", "--include_path", str(tasks), "--log_samples", "--output_path", folder]
    offline = {"HF_HUB_OFFLINE": "1", "HF_DATASETS_OFFLINE": "1", "HF_HOME": folder}
    subprocess.run(command, cwd=tasks, env=os.environ | offline, check=True)
    scores = json.loads(next(Path(folder).rglob("results_*.json")).read_text())["results"]
    lines = {name: next(Path(folder).rglob(f"samples_{name}_*.jsonl")).read_text().splitlines() for name in scores}
    samples = {name: sorted(map(json.loads, found), key=lambda sample: sample["doc_id"]) for name, found in lines.items()}
    return scores, samples


def loglikelihood(context, continuation):
    """The sum of the continuation's logprobs after the context, and whether each of its tokens is the most likely one."""
    whole, before = tokens(context + continuation), tokens(context)
    answer = ask("/v1/completions", {"prompt": whole, "max_tokens": 0, "prompt_logprobs": 0})
    entries = answer["choices"][0]["prompt_logprobs"][len(before):]
    chosen = [entry[str(token)] for entry, token in zip(entries, whole[len(before):], strict=True)]
    return sum(entry["logprob"] for entry in chosen), all(entry["rank"] == 1 for entry in chosen)


def check_choices(score, samples):
    right = 0
    for sample in samples:
        doc = sample["doc"]
        context = f"Question: {doc['question']}\nAnswer:"
        own = [loglikelihood(context, " " + choice) for choice in doc["choices"]]
        # The harness writes what it was told as texts.
        told = [(float(value), str(greedy) == "True") for [[value, greedy]] in sample["resps"]]
        assert told == own, (doc["question"], told, own)
        right += max(range(len(own)), key=lambda i: own[i][0]) == doc["answer"]
    assert score["acc,none"] == right / len(samples), (score, right)
    print(f"lm-eval: {len(samples)} questions, {right} right, every loglikelihood equal to ours")


def check_texts(score, samples):
    right = 0
    for sample in samples:
        doc = sample["doc"]
        body = {"prompt": tokens(doc["prompt"]), "max_tokens": 12, "temperature": 0}
        text = ask("/v1/completions", body)["choices"][0]["text"]
        text = text.split(",")[0].split("\n")[0]
        assert sample["resps"] == [[text]], (doc, sample["resps"], text)
        right += text.lower() == doc["target"].lower()
    assert score["exact_match,none"] == right / len(samples), (score, right)
    print(f"lm-eval: {len(samples)} texts gone on with, {right} as expected, every one equal to ours")


with tempfile.TemporaryDirectory() as folder:
    scores, samples = evaluate(folder)
check_choices(scores["lockstep_knowledge"], samples["lockstep_knowledge"])
check_texts(scores["lockstep_going_on"], samples["lockstep_going_on"])
