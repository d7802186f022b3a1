#!/usr/bin/env python3
"""`kpd serve` and clients as they come from PyPI, unchanged: the openai package, lm-evaluation-harness, curl.

scripts/get_clients.sh puts the packages into build/clients-venv; what is missing there skips its case.
"""
import json
import os
import re
import shutil
import subprocess

from run_cli_tests import HERE, Skip, run_cases
from serve_test import MODEL, serving

VENV = HERE.parent.parent / "build/clients-venv"
PYTHON = VENV / "bin/python"
ITEMS = [("The river rose after the rain and", 2, ["the bread was late.", "a letter sang.", "the bridge was closed.", "seven is odd."]),
         ("She opened the old box. In it she", 0, ["found a map.", "flew to the moon.", "boiled an hour.", "was a window."]),
         ("To boil an egg, put it", 1, ["under the garden.", "into hot water for some minutes.", "on the letter.", "beside a song."]),
         ("He lost his key, so he", 3, ["ate the door.", "is a lake.", "rained.", "called a friend and waited outside."]),
         ("In winter the lake", 0, ["freezes.", "reads.", "lends money.", "is a verb."]),
         ("A dog saw the ball and", 1, ["wrote a bill.", "ran after it.", "is made of tin.", "voted twice."]),
         ("The train was full, so they", 2, ["drank it.", "planted snow.", "stood all the way.", "are blue."]),
         ("Before the concert the hall", 0, ["filled slowly.", "sneezed.", "was an onion.", "swam home."])]
TASK = """task: items
dataset_path: json
dataset_kwargs:
  data_files: {{validation: {data}}}
output_type: multiple_choice
validation_split: validation
test_split: validation
doc_to_text: "{{{{ctx}}}}"
doc_to_target: label
doc_to_choice: "endings"
metric_list:
  - {{metric: acc, aggregation: mean, higher_is_better: true}}
  - {{metric: acc_norm, aggregation: mean, higher_is_better: true}}
"""


def python_with(package):
    if not PYTHON.exists() or subprocess.run([PYTHON, "-c", f"import {package}"], capture_output=True, check=False).returncode != 0:
        raise Skip(f"{package} is not installed (scripts/get_clients.sh)")
    return PYTHON


def run(command, folder, **environment):
    offline = {"HF_HUB_OFFLINE": "1", "HF_DATASETS_OFFLINE": "1", "HOME": str(folder)}
    done = subprocess.run([str(part) for part in command], capture_output=True, text=True, timeout=200, cwd=folder,
                          env=dict(os.environ, **offline, **environment), check=False)
    assert done.returncode == 0, f"{command}: exit {done.returncode}\n{done.stdout}\n{done.stderr[-3000:]}"
    return done.stdout


OPENAI = """
import json, sys, openai
client = openai.OpenAI(base_url=sys.argv[1], api_key="secret", max_retries=0)
messages = [{"role": "user", "content": "hello"}]
out = {"models": [m.id for m in client.models.list()]}
whole = client.chat.completions.create(model="any", messages=messages, max_tokens=8, temperature=0, logprobs=True, top_logprobs=2)
out["chat"] = whole.choices[0].message.content
out["usage"] = whole.usage.completion_tokens
out["logprobs"] = len(whole.choices[0].logprobs.content)
parts = client.chat.completions.create(model="any", messages=messages, max_tokens=8, temperature=0, stream=True, stream_options={"include_usage": True})
chunks = list(parts)
out["streamed"] = "".join(c.choices[0].delta.content or "" for c in chunks if c.choices)
out["stream_usage"] = chunks[-1].usage.completion_tokens
out["asks_for_nothing"] = client.chat.completions.create(model="any", messages=[dict(messages[0], name="me"), *messages], max_tokens=1, temperature=0, n=1,
    tool_choice="auto", parallel_tool_calls=True, store=False, metadata={"a": "b"}, user="u", service_tier="auto", response_format={"type": "text"},
    presence_penalty=0.5, frequency_penalty=0.5, logit_bias={sys.argv[2]: 100}).choices[0].message.content
out["text"] = client.completions.create(model="any", prompt=["ab", "abc"], max_tokens=4, temperature=0, n=2).choices[3].text
out["text_streamed"] = "".join(c.choices[0].text for c in client.completions.create(model="any", prompt="abc", max_tokens=4, temperature=0, stream=True))
try:
    client.chat.completions.create(model="any", messages=messages, tools=[{"type": "function", "function": {"name": "f"}}])
except openai.BadRequestError as error:
    out["refused"] = error.param
try:
    openai.OpenAI(base_url=sys.argv[1], api_key="wrong", max_retries=0).models.list()
except openai.AuthenticationError as error:
    out["key"] = error.code
print(json.dumps(out))
"""


def case_the_openai_package(t):
    python = python_with("openai")
    with serving(t, key="secret") as s:
        token = s.post("/tokenize", {"prompt": "a"})["tokens"][0]
        out = json.loads(run([python, "-c", OPENAI, f"http://127.0.0.1:{s.port}/v1", str(token)], t.folder))
        assert out["models"] == ["chat"] and out["chat"] == out["streamed"] and out["chat"], out
        assert out["usage"] == out["stream_usage"] == out["logprobs"] == 8, out
        assert out["text"] == out["text_streamed"], out
        assert out["asks_for_nothing"] == "a", out
        assert out["refused"] == "tools" and out["key"] == "invalid_api_key", out


def case_lm_eval_scores_as_kpd_eval_does(t):
    python = python_with("lm_eval")
    t.path("items.jsonl").write_text("".join(json.dumps({"ctx": c, "label": r, "endings": e}) + "\n" for c, r, e in ITEMS))
    t.path("items.yaml").write_text(TASK.format(data=t.path("items.jsonl")))
    t.path("items.txt").write_text("".join("\n".join([c, str(r), *e]) + "\n" for c, r, e in ITEMS))
    with serving(t, "--kv", "f32") as s:
        run([python, "-m", "lm_eval", "run", "--model", "local-completions", "--tasks", "items", "--include_path", t.folder, "--batch_size", 4,
             "--model_args", f"model=chat,base_url=http://127.0.0.1:{s.port}/v1/completions,num_concurrent=8,tokenizer_backend=remote,max_retries=1",
             "--log_samples", "--output_path", "out"], t.folder)
    samples = [json.loads(line) for line in next(t.path("out").rglob("samples_items_*.jsonl")).read_text().splitlines()]
    done = t.run("eval", MODEL, "--task", "hellaswag", "--data", t.path("items.txt"), "--arithmetic", "exact", "--items", "--json")
    ours = json.loads(done.stdout.splitlines()[0])
    assert len(samples) == len(ITEMS) == len(ours["scores"]), done.stdout
    for sample in samples:
        item, right = ours["scores"][sample["doc_id"]], ITEMS[sample["doc_id"]][1]
        theirs = [float(score) for [[score, _]] in sample["resps"]]
        assert all(abs(a - b) < 2e-3 for a, b in zip(theirs, item["log_likelihoods"])), (theirs, item)
        assert sample["acc"] == (item["pick"] == right) and sample["acc_norm"] == (item["pick_norm"] == right), (sample, item)


ANSWERS = """task: answers
dataset_path: json
dataset_kwargs:
  data_files: {{validation: {data}}}
output_type: generate_until
validation_split: validation
test_split: validation
doc_to_text: "{{{{ctx}}}}"
doc_to_target: "{{{{endings[label]}}}}"
generation_kwargs: {{until: ["\\n\\n"], do_sample: false, temperature: 0.0, max_gen_toks: 12}}
metric_list:
  - {{metric: exact_match, aggregation: mean, higher_is_better: true}}
"""


def lm_evals():
    """The environments in which `import lm_eval` gives each installed version, by its number."""
    python_with("lm_eval")
    found = {}
    for folder in (None, *sorted(VENV.glob("lm-eval-*"))):
        environment = {} if folder is None else {"PYTHONPATH": str(folder)}
        done = subprocess.run([PYTHON, "-c", "import importlib.metadata as m; print(m.version('lm_eval'))"], capture_output=True, text=True,
                              env=dict(os.environ, **environment), check=False)
        if done.returncode == 0:
            found[done.stdout.strip()] = environment
    if len(found) < 2:
        raise Skip("one version of lm-eval is installed, two are wanted: scripts/get_clients.sh lm-eval@0.4.11")
    return found


def case_lm_eval_chats_in_two_versions(t):
    t.path("items.jsonl").write_text("".join(json.dumps({"ctx": c, "label": r, "endings": e}) + "\n" for c, r, e in ITEMS))
    t.path("answers.yaml").write_text(ANSWERS.format(data=t.path("items.jsonl")))
    for version, environment in lm_evals().items():
        with serving(t, key="secret") as s:
            run([PYTHON, "-m", "lm_eval", "--model", "local-chat-completions", "--tasks", "answers", "--include_path", t.folder, "--apply_chat_template",
                 "--system_instruction", "Be brief.", "--model_args",
                 f"model=chat,base_url=http://127.0.0.1:{s.port}/v1/chat/completions,num_concurrent=4,max_retries=1", "--log_samples",
                 "--output_path", version], t.folder, OPENAI_API_KEY="secret", **environment)
            samples = [json.loads(line) for line in next(t.path(version).rglob("samples_answers_*.jsonl")).read_text().splitlines()]
            assert len(samples) == len(ITEMS), version
            for sample in samples:
                messages = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": ITEMS[sample["doc_id"]][0]}]
                reply = s.post("/v1/chat/completions", {"messages": messages, "max_tokens": 12, "temperature": 0, "stop": ["\n\n"]})
                assert sample["resps"] == [[reply["choices"][0]["message"]["content"]]], (version, sample, reply)


def case_curl(t):
    if shutil.which("curl") is None:
        raise Skip("curl is not installed")
    with serving(t) as s:
        url = f"http://127.0.0.1:{s.port}/v1/completions"
        body = json.dumps({"prompt": "abc", "max_tokens": 8, "temperature": 0})
        text = json.loads(run(["curl", "-sS", url, "-d", body], t.folder))["choices"][0]["text"]
        streamed = run(["curl", "-sSN", url, "-H", "Content-Type: application/json", "-d", body[:-1] + ', "stream": true}'], t.folder)
        pieces = [json.loads(line[6:])["choices"][0]["text"] for line in re.findall(r"^data: \{.*", streamed, re.M)]
        assert "".join(pieces) == text and streamed.endswith("data: [DONE]\n\n"), streamed


if __name__ == "__main__":
    run_cases(globals())
