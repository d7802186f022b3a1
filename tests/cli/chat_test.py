#!/usr/bin/env python3
"""Chat templates of `kpd generate` and `kpd serve` on the tiny chat model: options, variables, thoughts, /apply-template."""
import json

from run_cli_tests import run_cases
from serve_test import MODEL, serving

ASK = {"messages": [{"role": "user", "content": "hi"}]}
THINKS = "{% for m in messages %}{{ m.role }}:{{ m.content }}{{ m.reasoning_content }};{% endfor %}" \
         "{% if add_generation_prompt %}{{ strftime_now('%d %b %Y') }} {{ enable_thinking }} {{ tone }}<think>\n{% endif %}"


def generate(t, *args, **expected):
    return t.run("generate", MODEL, "--chat", "--prompt", "hi", "--max-tokens", "2", "--temperature", "0", "--json", *args, **expected)


def case_a_template_from_a_file(t):
    t.path("a.jinja").write_bytes(b"{% if true %}\r\n{{ messages[0].content }}{% endif %}\r\n")
    assert json.loads(generate(t, "--chat-template", "a.jinja").stdout)["prompt_tokens"] == 2  # a token a byte
    t.path("bad.jinja").write_text("a\n{% if %}")
    generate(t, "--chat-template", "bad.jinja", exit=3, err=r"bad\.jinja: chat template, line 2, column 7: ")
    t.path("include.jinja").write_text("{% include 'x' %}")
    generate(t, "--chat-template", "include.jinja", exit=3, err=r"line 1, column 4: \{% include %\} is not supported")
    t.path("no.jinja").write_text("{{ raise_exception('not today') }}")
    generate(t, "--chat-template", "no.jinja", exit=3, err=r"the chat template rejected these messages: not today")
    generate(t, "--chat-template", "nowhere.jinja", exit=2, err=r"--chat-template nowhere\.jinja: expected a file, or one of chatml, ")


def case_options_of_chats_belong_to_chats(t):
    for option in (["--date", "2026-01-01"], ["--thinking", "on"], ["--special-in-content"], ["--chat-template", "chatml"]):
        t.run("generate", MODEL, "--prompt", "a", *option, exit=2, err=rf"{option[0]} belongs to --chat")
    generate(t, "--date", "2026-02-30", exit=2, err=r"--date: '2026-02-30' is no date, expected YYYY-MM-DD")
    generate(t, "--thinking", "maybe", exit=2, err=r"--thinking.*maybe")


def case_without_a_template_the_option_is_named_before_the_weights_are_read(t):
    folder = t.path("bare")
    folder.mkdir()
    for name in ("config.json", "tokenizer.json", "model.safetensors"):
        (folder / name).write_bytes((MODEL / name).read_bytes())
    done = t.run("generate", "bare", "--chat", "--prompt", "hi", exit=3, err=r"brings no chat template; name the one .*\) or a file \(--chat-template\)")
    assert "laid out" not in done.stderr, done.stderr
    t.run("generate", "bare", "--chat", "--prompt", "hi", "--max-tokens", "1", "--temperature", "0", "--chat-template", "chatml")


def case_control_tokens_in_a_message_stay_text(t):
    text = "a<|im_end|>b"
    plain, special = (json.loads(t.run("generate", MODEL, "--chat", "--prompt", text, "--max-tokens", "1", "--temperature", "0", "--json", *more).stdout)
                      for more in ([], ["--special-in-content"]))
    assert plain["prompt_tokens"] - special["prompt_tokens"] == len("<|im_end|>") - 1, (plain, special)


def case_a_prompt_without_an_answer(t):
    with serving(t) as s:
        assert s.post("/apply-template", ASK) == {"prompt": "<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n"}
        assert s.post("/apply-template", dict(ASK, add_generation_prompt=False)) == {"prompt": "<|im_start|>user\nhi<|im_end|>\n"}
        s.post("/apply-template", {}, 400)
        s.post("/apply-template", dict(ASK, nonsense=1), 400)


def case_variables_of_requests(t):
    t.path("thinks.jinja").write_text(THINKS)
    with serving(t, "--chat-template", t.path("thinks.jinja"), "--date", "2024-02-29", "--thinking", "on") as s:
        assert s.post("/apply-template", ASK)["prompt"] == "user:hi;29 Feb 2024 True <think>\n"
        body = dict(ASK, chat_template_kwargs={"enable_thinking": False, "tone": "calm"})
        assert s.post("/apply-template", body)["prompt"] == "user:hi;29 Feb 2024 False calm<think>\n"
        messages = [{"role": "assistant", "content": "a", "reasoning_content": "r"}, *ASK["messages"]]
        assert s.post("/apply-template", {"messages": messages})["prompt"].startswith("assistant:ar;user:hi;")
        s.post("/apply-template", dict(ASK, chat_template_kwargs=[1]), 400)
        s.post("/apply-template", dict(ASK, chat_template_kwargs={"messages": []}), 400)


def case_thoughts_that_the_template_opened(t):
    t.path("thinks.jinja").write_text(THINKS)
    with serving(t, "--chat-template", t.path("thinks.jinja")) as s:
        whole = s.chat(max_tokens=12)["choices"][0]["message"]
        assert whole["content"] == "" and whole["reasoning_content"].strip(), whole
        plain = s.chat(max_tokens=12, reasoning_format="none")["choices"][0]["message"]
        assert "reasoning_content" not in plain and plain["content"].strip() == whole["reasoning_content"], (plain, whole)
        deltas = [c["choices"][0]["delta"] for c in s.stream("/v1/chat/completions", dict(ASK, max_tokens=12)) if c["choices"]]
        assert not any(d.get("content") for d in deltas), deltas
        same = s.post("/v1/chat/completions", dict(ASK, max_tokens=12, temperature=0))["choices"][0]["message"]
        assert "".join(d.get("reasoning_content", "") for d in deltas) == same["reasoning_content"], (deltas, same)


if __name__ == "__main__":
    run_cases(globals())
