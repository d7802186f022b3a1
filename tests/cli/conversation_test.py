#!/usr/bin/env python3
"""`kpd generate --chat` at a terminal: turns, commands, Ctrl-C, line editing, a full context; and without one."""
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import time

from run_cli_tests import Skip, run_cases
from terminal import BACKSPACE, CTRL_A, CTRL_C, CTRL_D, CTRL_E, LEFT, UP, Terminal

FOLDER = pathlib.Path(__file__).resolve().parent.parent / "golden" / "models" / "chat"
GGUF = FOLDER / "model.gguf"
ANSWERED = json.loads((FOLDER / "expected.json").read_text())[3]
GREEDY = ["--chat", "--arithmetic", "exact", "--temperature", "0"]
PROMPT = r"(\n|\x1b\[\?2004h)> "  # libedit's with what asks for pastes to be marked
ENDLESS = ["--ignore-eos", "--context-shift", "--max-tokens", 2**24]


def converse(t, *args, **options):
    """Greedy unless `args` have a temperature."""
    defaults = GREEDY[:-2] if "--temperature" in args else GREEDY
    return Terminal([t.program, "generate", GGUF, *defaults, *map(str, args)], t.folder, **options)


def needs_editing(terminal):
    greeting = terminal.expect(r"/help lists [^\r\n]*").group()
    if "cannot be edited" in greeting:
        raise Skip("built without libedit")


def answer(t, message, *args):
    """What one prompt is answered, and its size."""
    row = json.loads(t.run("generate", GGUF, *GREEDY, "--max-tokens", 12, "--prompt", message, "--json", *args).stdout)
    return row["text"], row["prompt_tokens"]


def json_turns(t, *keys, options=()):
    """Types each of `keys` at a prompt of its own of a conversation with --json; returns the turns."""
    with open(t.path("turns.jsonl"), "w") as out, converse(t, "--json", "--max-tokens", 12, *options, stdout=out) as terminal:
        needs_editing(terminal)
        for key in keys:
            terminal.expect(PROMPT)
            terminal.send(key)
        terminal.expect(PROMPT)
        terminal.send(CTRL_D)
        assert terminal.end() == 0, terminal.text
    return [json.loads(line) for line in t.path("turns.jsonl").read_text().splitlines()]


def case_turns_and_commands(t):
    with converse(t, "--max-tokens", len(ANSWERED["ids"])) as terminal:
        terminal.expect(PROMPT)
        terminal.send(ANSWERED["prompt"] + "\r")
        terminal.expect(ANSWERED["text"].strip().split("\n")[0].replace("(", r"\(").replace(")", r"\)"))
        terminal.expect(PROMPT)
        for line, shown in (("/help", r"/clear .*/system TEXT .*/help .*/exit "), ("/hlep", r"there is no /hlep, did you mean /help\? /help lists"),
                            ("/system Be brief.", r"system message is set"), ("/system", r"no system message"), ("/clear", r"forgotten")):
            terminal.send(line + "\r")
            terminal.expect(shown)
            terminal.expect(PROMPT)
        terminal.send("/exit\r")
        assert terminal.end() == 0, terminal.text


def case_clear_and_system_are_what_a_new_conversation_is(t):
    first, _ = answer(t, "And then?")
    said, with_system = answer(t, "And then?", "--system", "Be brief.")
    turns = json_turns(t, *(line + "\r" for line in ("Hello", "/clear", "And then?", "/clear", "/system Be brief.", "And then?")))
    assert turns[1]["text"] == first and turns[2]["text"] == said, (turns, first, said)
    # The cache held what the system message shares with the turn before.
    assert 0 < turns[2]["prompt_tokens"] <= with_system, turns


def case_ctrl_c_stops_the_answer_and_a_second_one_leaves(t):
    with converse(t, *ENDLESS) as terminal:
        for _ in range(2):
            terminal.expect(PROMPT)
            terminal.send("Hello\r")
            terminal.expect(r"\n.{200}")  # an answer that does not end
            terminal.send(CTRL_C)
            terminal.expect(r"\nstopped\r")
        terminal.expect(PROMPT)
        terminal.send(CTRL_C)
        assert terminal.end() == 130, terminal.text


def case_ctrl_c_at_the_prompt(t):
    with converse(t) as terminal:
        terminal.expect(PROMPT)
        terminal.send(CTRL_C)
        terminal.expect(r"Ctrl-C again or Ctrl-D leaves")
        terminal.expect(PROMPT)
        terminal.send("/help\r")  # anything else, and two are two in a row again
        terminal.expect(r"/exit")
        terminal.expect(PROMPT)
        terminal.send(CTRL_C)
        terminal.expect(r"Ctrl-C again")
        terminal.expect(PROMPT)
        terminal.send(CTRL_C)
        assert terminal.end() == 130, terminal.text


def case_an_end_by_force_leaves_the_terminal_as_it_was(t):
    for _ in range(5):
        with converse(t) as terminal:
            terminal.expect(PROMPT)
            while terminal.process.poll() is None:  # many at once: one of them finds that the one before was not yet seen
                terminal.signal(signal.SIGINT)
                time.sleep(.001)
            assert terminal.end() == 130, terminal.text  # looks at the terminal too


def case_ctrl_c_drops_a_line(t):
    with converse(t) as terminal:
        needs_editing(terminal)
        terminal.expect(PROMPT)
        for _ in range(2):
            terminal.send("some words")
            terminal.expect("words")
            terminal.send(CTRL_C)
            terminal.expect(PROMPT)
        terminal.send(CTRL_D)
        assert terminal.end() == 0 and "Ctrl-C again" not in terminal.text, terminal.text


def case_sigterm_leaves_at_the_prompt_and_in_an_answer(t):
    for message in ("", "Hello\r"):
        with converse(t, *ENDLESS) as terminal:
            terminal.expect(PROMPT)
            terminal.send(message)
            if message:
                terminal.expect(r"\n.{200}")
            terminal.signal(signal.SIGTERM)
            assert terminal.end() == 130, terminal.text


def case_a_closed_terminal_ends_it(t):
    terminal = converse(t)
    terminal.expect(PROMPT)
    os.close(terminal.screen)
    assert terminal.process.wait(timeout=60) in (0, 130)  # the end of what is typed, or SIGHUP: what comes first


def case_a_prompt_is_stopped_while_it_is_read(t):
    with converse(t, "--ctx", 2**20) as terminal:
        needs_editing(terminal)
        terminal.expect(PROMPT)
        terminal.send(b"\x1b[200~" + b"wxyz" * 50000 + b"\x1b[201~\r")
        terminal.expect(r"prompt: \d[\d.]*( k)?/\d+ k tokens, [\d.]+( k)? a second, [\d:]+( s)? left")
        terminal.send(CTRL_C)
        terminal.expect(r"stopped before the answer began: the message is forgotten")
        terminal.expect(PROMPT)
        terminal.send(CTRL_D)
        assert terminal.end() == 0, terminal.text[-500:]


def case_lines_are_edited(t):
    keys = {"The work\r": "The work",
            b"The wXork" + LEFT * 3 + BACKSPACE + b"\r": "The work",
            b"work" + CTRL_A + b"The " + CTRL_E + b"s\r": "The works",
            "caf\u00e9\u4f60".encode() + BACKSPACE + b"s\r": "caf\u00e9s",
            "na\u00efve \U0001f600\r": "na\u00efve \U0001f600",
            "one \\\rtwo\r": "one \ntwo",
            b"\x1b[200~one\rtwo\nthree\n\x1b[201~\r": "one\ntwo\nthree",
            b" /help\r": " /help",
            "/usr/bin/env\r": "/usr/bin/env"}
    for typed, meant in keys.items():
        turn, = json_turns(t, typed)
        assert (turn["text"], turn["prompt_tokens"]) == answer(t, meant), (typed, meant, turn)


def case_history_calls_lines_back(t):
    first, again = json_turns(t, b"The work\r", UP + b"\r")
    alone, = json_turns(t, b"The work\r")
    assert first["text"] == alone["text"] and again["prompt_tokens"] > 0, (first, again)
    with converse(t) as terminal:
        needs_editing(terminal)
        terminal.expect(PROMPT)
        terminal.send(b"/help\r")
        terminal.expect(r"begins with a blank")
        terminal.expect(PROMPT)
        terminal.send(UP + b"\r")
        terminal.expect(r"/help.*begins with a blank")


def case_keys_that_mean_nothing_do_no_harm(t):
    odd = b"\x1b[99~\x1bOP\x1b\x1b[1;9Z\x00\x1d\x1e\xff\xc3(\xed\xa0\x80\x7f\x7f\x7f\x7f\x7f\x7f"
    with converse(t) as terminal:
        terminal.expect(PROMPT)
        terminal.send(odd)
        terminal.send(b"\x15/help\r")
        terminal.expect(r"begins with a blank")
        terminal.expect(PROMPT)
        terminal.send(b"/exit\r")
        assert terminal.end() == 0, terminal.text


def case_a_very_long_line_comes_whole(t):
    text = "".join(chr(ord("a") + i * i % 26) for i in range(6000))
    with converse(t) as terminal:
        needs_editing(terminal)
        terminal.expect(PROMPT)
        terminal.send(text + "\r")
        n = int(terminal.expect(r"the prompt has (\d+) tokens, the context of 256 has to hold the answer too \(--ctx\): the message was not sent").group(1))
        terminal.expect(PROMPT)
        terminal.send("/exit\r")
        assert terminal.end() == 0
    done = t.run("generate", GGUF, *GREEDY, "--prompt", text, exit=2, err=rf"the prompt has {n} tokens, the context of 256 has to hold the answer too")
    assert "laid out" not in done.stderr, done.stderr


def case_a_full_context_drops_the_oldest_turns(t):
    with converse(t, "--max-tokens", 8, "--ctx", 128, "--ignore-eos") as terminal:
        for _ in range(6):
            terminal.expect(PROMPT)
            terminal.send("The licence is for the work\r")
            terminal.expect(r"\r\n")
        terminal.expect(PROMPT)
        dropped = [int(n or 1) for n in re.findall(r"the context of 128 tokens is full: the oldest (?:turn is|(\d+) turns are) forgotten", terminal.text)]
        assert dropped and sum(dropped) < 6, terminal.text
        terminal.send(CTRL_D)
        assert terminal.end() == 0


def case_turns_draw_new_numbers(t):
    hot = ["--temperature", "2", "--top-k", "0", "--top-p", "1", "--min-p", "0", "--seed", "7"]
    lines = [line + "\r" for line in ("Hello", "/clear", "Hello", "/clear", "Hello")]
    a, b = (json_turns(t, *lines, options=hot) for _ in range(2))
    assert [turn["text"] for turn in a] == [turn["text"] for turn in b], (a, b)
    assert len({turn["text"] for turn in a}) == 3, a


def case_what_ended_an_answer_by_length(t):
    for args, ended in ((["--max-tokens", 5], r"ended by length: --max-tokens 5\b"),
                        (["--ctx", 64], r"ended by length: the full context of 64 tokens \(--ctx\)")):
        with converse(t, "--ignore-eos", *args) as terminal:
            terminal.expect(PROMPT)
            terminal.send("Hello\r")
            terminal.expect(ended)
        t.run("generate", GGUF, *GREEDY, "--ignore-eos", *args, "--prompt", "Hello", err=ended)


def case_standard_input_without_a_terminal_is_one_prompt(t):
    text = ANSWERED["prompt"] + "\nSecond line.\n\nThird."
    expected, tokens = answer(t, text)
    for given in (text, text + "\n", text.replace("\n", "\r\n") + "\r\n"):
        for args in ([], ["--prompt-file", "-"], ["--prompt-file", "/dev/stdin"]):
            done = t.run("generate", GGUF, *GREEDY, "--max-tokens", 12, "--json", *args, input=given)
            row = json.loads(done.stdout)
            assert (row["text"], row["prompt_tokens"]) == (expected, tokens), (given, args, row)
    plain = json.loads(t.run("generate", GGUF, *GREEDY[1:], "--json", input="The work").stdout)
    assert plain["text"] == json.loads(t.run("generate", GGUF, *GREEDY[1:], "--json", "--prompt", "The work").stdout)["text"]
    t.run("generate", GGUF, "--chat", input="", exit=2, err=r"a prompt is required: .*standard input, which is empty")
    # A file that is no terminal either.
    t.path("p.txt").write_bytes(text.replace("\n", "\r\n").encode())
    done = t.run("generate", GGUF, *GREEDY, "--max-tokens", 12, "--json", "--prompt-file", "p.txt")
    assert json.loads(done.stdout)["text"] == expected, done


def case_a_closed_or_full_standard_output_ends_it(t):
    for stdout in ("/dev/full", None):
        out = open(stdout, "w") if stdout else subprocess.PIPE
        process = subprocess.Popen([t.program, "generate", str(GGUF), "--prompt", "The", "--temperature", "0", *map(str, ENDLESS)], stdout=out,
                                   stderr=subprocess.PIPE, cwd=t.folder)
        if stdout is None:
            process.stdout.close()
        err = process.communicate(timeout=60)[1].decode()
        if stdout:
            assert process.returncode == 1 and "cannot write to standard output" in err.splitlines()[-1], (process.returncode, err)
        else:
            assert process.returncode == -signal.SIGPIPE, (process.returncode, err)


def case_no_template_is_said_before_the_load(t):
    shutil.copytree(FOLDER, t.path("hf"))
    for path in t.path("hf").iterdir():
        if path.name in ("model.gguf", "chat_template.jinja"):
            path.unlink()
    config = json.loads(t.path("hf/tokenizer_config.json").read_text())
    config.pop("chat_template", None)
    t.path("hf/tokenizer_config.json").write_text(json.dumps(config))
    done = t.run("generate", "hf", "--chat", "--prompt", "a", exit=3, err=r"no chat template.*--chat-template")
    assert "laid out" not in done.stderr, done.stderr
    with Terminal([t.program, "generate", "hf", "--chat"], t.folder) as terminal:
        terminal.expect(r"--chat-template")
        assert terminal.end() == 3 and "laid out" not in terminal.text, terminal.text
    t.run("generate", "hf", "--chat", "--prompt", "a", "--chat-template", "chatml", "--temperature", "0", "--max-tokens", "2")


if __name__ == "__main__":
    run_cases(globals())
