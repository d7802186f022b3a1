#!/usr/bin/env python3
"""The page of `kpd serve` in headless Chromium: a conversation, what the model says stays text, narrow and wide, light and dark, the key.

Chromium is driven over a pipe (its DevTools protocol, messages of JSON that end in a zero byte), so nothing but the standard library is
needed. KPD_SCREENSHOTS=FOLDER keeps what it shows as PNG.
"""
import base64
import contextlib
import json
import os
import pathlib
import select
import shutil
import signal
import subprocess
import threading
import time

from run_cli_tests import Skip, run_cases
from serve_life_test import ask, held_while_loading
from serve_test import serving

DONE = "running === null && document.querySelectorAll('.turn').length % 2 === 0 && document.querySelector('.turn:empty') === null"
# The model's context is 256 tokens: a drawn answer that fills it would leave no room for the next message, and an empty one ends the talk.
SHORT_ANSWERS = """const plain = fetch; window.fetch = (path, options) => plain(path, !options.body ? options :
  {...options, body: JSON.stringify({...JSON.parse(options.body), max_tokens: 20, seed: 1})}); null"""


class Browser:
    """One page of a Chromium that runs as a child."""

    def __init__(self, to, back):
        self.to, self.back = to, back
        self.waiting, self.number, self.session = b"", 0, None
        self.problems = []  # exceptions, and what the console says
        self.prompts = []   # what prompt() asked; answered with `key`
        self.key = ""

    def open(self, url, width=1100, scheme="light"):
        self.go(url, width, scheme)
        self.until("document.title !== 'kpd'")

    def go(self, url, width=1100, scheme="light"):
        if self.session is None:
            target = self.call("Target.createTarget", url="about:blank")["targetId"]
            self.session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
            for domain in ("Page", "Runtime", "Log"):
                self.call(domain + ".enable")
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=760, deviceScaleFactor=1, mobile=width < 500)
        self.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])
        self.call("Page.navigate", url=url)
        self.until("document.readyState === 'complete'")

    def send(self, method, params):
        self.number += 1
        message = {"id": self.number, "method": method, "params": params}
        if self.session:
            message["sessionId"] = self.session
        os.write(self.to, json.dumps(message).encode() + b"\0")
        return self.number

    def call(self, method, **params):
        wanted = self.send(method, params)
        while True:
            reply = self.receive()
            if reply.get("id") == wanted:
                assert "error" not in reply, (method, reply)
                return reply["result"]
            self.hear(reply)

    def hear(self, event):
        name, params = event.get("method"), event.get("params", {})
        if name == "Runtime.exceptionThrown":
            self.problems.append(params["exceptionDetails"])
        elif name == "Log.entryAdded":
            self.problems.append(params["entry"])
        elif name == "Page.javascriptDialogOpening":
            self.prompts.append(params["message"])
            # Nothing waits for its reply.
            self.send("Page.handleJavaScriptDialog", {"accept": bool(self.key), "promptText": self.key})

    def receive(self, seconds=60):
        deadline = time.monotonic() + seconds
        while b"\0" not in self.waiting:
            ready, _, _ = select.select([self.back], [], [], max(0, deadline - time.monotonic()))
            assert ready, "Chromium does not answer"
            data = os.read(self.back, 1 << 16)
            assert data, "Chromium has ended"
            self.waiting += data
        message, self.waiting = self.waiting.split(b"\0", 1)
        return json.loads(message)

    def value(self, expression):
        result = self.call("Runtime.evaluate", expression=expression, returnByValue=True)
        assert "exceptionDetails" not in result, (expression, result)
        return result["result"].get("value")

    def until(self, expression, seconds=60):
        deadline = time.monotonic() + seconds
        while not self.value(expression):
            assert time.monotonic() < deadline, (expression, self.value("document.body.innerText"), self.problems)
            time.sleep(0.05)

    def say(self, text):
        self.value(f"document.getElementById('text').value = {json.dumps(text)}")
        self.value("document.getElementById('form').requestSubmit()")

    def screenshot(self, name):
        data = base64.b64decode(self.call("Page.captureScreenshot")["data"])
        assert data.startswith(b"\x89PNG") and len(data) > 2000
        if os.environ.get("KPD_SCREENSHOTS"):
            (pathlib.Path(os.environ["KPD_SCREENSHOTS"]) / f"{name}.png").write_bytes(data)


@contextlib.contextmanager
def browsing(t):
    chromium = shutil.which("chromium")
    if chromium is None:
        raise Skip("chromium is not installed")
    to_read, to = os.pipe()
    back, back_write = os.pipe()

    def take_pipes():  # Chromium reads from 3 and writes to 4
        source = os.dup(to_read), os.dup(back_write)
        os.dup2(source[0], 3)
        os.dup2(source[1], 4)

    process = subprocess.Popen(
        [chromium, "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run", "--remote-debugging-pipe",
         "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1", f"--user-data-dir={t.path('profile')}"],
        preexec_fn=take_pipes, close_fds=False, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True)
    os.close(to_read)
    os.close(back_write)
    try:
        yield Browser(to, back)
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        os.close(to)
        os.close(back)


def case_a_conversation(t):
    with serving(t, "--name", "small") as s, browsing(t) as page:
        for name, width, scheme in (("desktop_light", 1100, "light"), ("phone_dark", 390, "dark")):
            page.open(f"http://127.0.0.1:{s.port}/", width, scheme)
            page.value(SHORT_ANSWERS)
            assert page.value("document.title") == "small"
            background = page.value("getComputedStyle(document.body).backgroundColor")
            assert (sum(int(part) for part in background[4:-1].split(",")) > 600) == (scheme == "light"), background
            hostile = "hello <b id=injected>you</b> <img src=x onerror=alert(1)>"
            page.say(hostile)
            page.until(DONE)
            turns = page.value("[...document.querySelectorAll('.turn')].map(t => [t.className, t.textContent])")
            assert turns[0] == ["turn user", hostile], turns
            assert turns[1][0] == "turn assistant" and turns[1][1], turns
            assert page.value("document.getElementById('injected') === null")
            assert page.value("messages.map(m => m.role)") == ["user", "assistant"]
            page.until("document.getElementById('figures').textContent.includes('MiB')")  # comes after the answer
            figures = page.value("document.getElementById('figures').textContent")
            assert "MiB" in figures and "weights" in figures and "cache" in figures, figures
            page.say("and again")
            page.until("document.querySelectorAll('.turn').length == 4 && " + DONE)
            assert page.value("document.documentElement.scrollWidth <= innerWidth"), "it scrolls sideways"
            assert page.value("document.getElementById('model').offsetWidth >= 90"), "no room for the model's name"
            page.screenshot(name)
            page.value("document.getElementById('clear').click()")
            assert page.value("messages.length") == 0 and page.value("document.querySelectorAll('.turn').length") == 0
        assert page.problems == [], page.problems
        assert page.value("performance.getEntriesByType('resource').every(r => new URL(r.name).origin === location.origin)")


def case_stop_ends_an_answer(t):
    with serving(t, "--chunk", "1") as s, browsing(t) as page:
        page.open(f"http://127.0.0.1:{s.port}/")
        # The form's second use, while the first answer runs, is a stop: the server cancels and the page is ready again.
        page.value("document.getElementById('text').value = 'x'; const f = document.getElementById('form'); f.requestSubmit(); f.requestSubmit()")
        page.until(DONE)
        assert page.value("messages.length") == 2 or "(stopped)" in page.value("document.getElementById('talk').textContent")
        s.wait_until_idle()
        page.say("still there")
        page.until(DONE)


def case_a_new_conversation_has_nothing_of_the_old(t):
    with serving(t) as s, browsing(t) as page:
        page.open(f"http://127.0.0.1:{s.port}/")
        # The answer comes in two parts; "New" is used, and a message sent, between them.
        page.value("""const events = text => new TextEncoder().encode("data: " + JSON.stringify({choices: [{delta: {content: text}}]}) + "\\n\\n");
          let asked = []; window.fetch = async (path, options) => {
            if (!options || !options.body) return new Response("");
            asked.push(JSON.parse(options.body).messages);
            let stream; const body = new ReadableStream({start: c => { stream = c; }});
            (window.streams = window.streams || []).push(stream);
            options.signal.addEventListener("abort", () => stream.error(new DOMException("", "AbortError")));
            stream.enqueue(events("part"));
            return new Response(body);
          }; null""")
        page.say("old")
        page.until("document.querySelector('.turn.assistant')?.textContent === 'part'")
        page.value("document.getElementById('clear').click(); null")
        page.say("new")
        page.until("document.querySelector('.turn.assistant')?.textContent === 'part' && streams.length === 2")
        page.value("streams[1].enqueue(events(' two')); streams[1].close(); null")
        page.until("running === null")
        assert page.value("asked.map(list => list.map(m => m.content))") == [["old"], ["new"]]
        assert page.value("messages.map(m => m.content)") == ["new", "part two"]
        assert page.value("document.querySelectorAll('.turn').length") == 2
        assert page.value("document.getElementById('send').textContent") == "Send"


# Answers that the test writes itself, event by event: say(id, text) adds to the one whose request was the id-th.
STAGED = """window.asked = []; window.streams = []; const coder = new TextEncoder(), real = window.fetch;
window.fetch = async (path, options) => {
  if (!options || !options.body) return real(path, options);
  asked.push(JSON.parse(options.body));
  return new Response(new ReadableStream({start: c => { streams.push(c); }}));
};
window.event = (i, delta) => streams[i].enqueue(coder.encode("data: " + JSON.stringify({choices: [{delta}]}) + "\\n\\n"));
window.end = i => { streams[i].enqueue(coder.encode("data: [DONE]\\n\\n")); streams[i].close(); }; null"""


def case_system_prompt_and_sampling_are_sent(t):
    with serving(t) as s, browsing(t) as page:
        page.open(f"http://127.0.0.1:{s.port}/")
        page.value(STAGED)
        assert page.value("document.getElementById('settings').hidden")
        page.value("document.getElementById('tune').click()")
        assert not page.value("document.getElementById('settings').hidden")
        page.until("document.getElementById('temperature').placeholder !== ''")  # the model's own
        defaults = s.get("/props")["default_generation_settings"]["params"]
        assert float(page.value("document.getElementById('temperature').placeholder")) == defaults["temperature"]
        page.screenshot("settings")
        page.say("plain")
        page.until("streams.length === 1")
        page.value("event(0, {content: 'one'}); end(0); null")
        page.until(DONE)
        for name, text in (("system", "You are brief."), ("temperature", "0,5"), ("top_k", "7"), ("top_p", ".9"), ("max_tokens", "12"), ("seed", "3")):
            page.value(f"document.getElementById('{name}').value = {json.dumps(text)}")
        page.say("again")
        page.until("streams.length === 2")
        page.value("event(1, {content: 'two'}); end(1); null")
        page.until(DONE)
        first, second = page.value("asked")
        assert set(first) == {"messages", "stream", "stream_options"} and [m["role"] for m in first["messages"]] == ["user"], first
        assert second["messages"] == [{"role": "system", "content": "You are brief."}, {"role": "user", "content": "plain"},
                                      {"role": "assistant", "content": "one"}, {"role": "user", "content": "again"}], second
        assert {k: v for k, v in second.items() if k not in first} == {"temperature": 0.5, "top_k": 7, "top_p": 0.9, "max_tokens": 12, "seed": 3}, second
        page.value("document.getElementById('top_k').value = 'many'")
        page.say("wrong")
        page.until("document.querySelector('.turn.error') !== null")
        assert "Top-k" in page.value("document.querySelector('.turn.error').textContent")
        assert page.value("asked.length") == 2 and page.problems == [], page.problems
    with serving(t) as s, browsing(t) as page:  # and the server takes them
        page.open(f"http://127.0.0.1:{s.port}/")
        for name, text in (("system", "Be brief."), ("temperature", "1.5"), ("top_k", "5"), ("min_p", "0.01"), ("repeat_penalty", "1.1"), ("max_tokens", "9"), ("seed", "1")):
            page.value(f"document.getElementById('{name}').value = {json.dumps(text)}")
        page.say("hello")
        page.until(DONE)
        assert page.value("document.querySelector('.turn.error') === null"), page.value("document.body.innerText")


def case_code_stands_in_blocks(t):
    with serving(t) as s, browsing(t) as page:
        page.open(f"http://127.0.0.1:{s.port}/")
        page.value(STAGED)
        page.say("code")
        page.until("streams.length === 1")
        pieces = ["Here:\n\n``", "`python\nif a <", " b:\n    print('<b>&amp;</b>')\n", "```\nand\n~~~~\nx = 1\n```\ny\n", "~~~~\ndone. ", "`inline` and ``` in a line\n```\nopen"]
        texts = lambda: page.value("[...document.querySelectorAll('.assistant > *, .assistant')].length")
        assert texts() == 1
        for piece in pieces:
            page.value(f"event(0, {{content: {json.dumps(piece)}}}); null")
        page.until("document.querySelectorAll('.assistant figure').length === 3 && document.querySelectorAll('.assistant pre')[2].textContent === 'open'")
        page.value("end(0); null")
        page.until(DONE)
        blocks = page.value("[...document.querySelectorAll('.assistant pre')].map(p => p.textContent)")
        assert blocks == ["if a < b:\n    print('<b>&amp;</b>')", "x = 1\n```\ny", "open"], blocks
        languages = page.value("[...document.querySelectorAll('.assistant figcaption')].map(c => c.firstChild.textContent)")
        assert languages == ["python", "", ""], languages
        plain = page.value("[...document.querySelector('.assistant').childNodes].filter(n => n.nodeType === 3).map(n => n.data)")
        assert plain == ["Here:\n", "and", "done. `inline` and ``` in a line"], plain
        assert page.value("document.querySelector('.assistant b') === null")
        assert page.value("messages[1].content") == "".join(pieces), "what is sent back is the answer as it came"
        assert page.value("document.documentElement.scrollWidth <= innerWidth")
        page.value("event; navigator.clipboard.writeText = async text => { window.copied = text; }; document.querySelector('.assistant figcaption button').click(); null")
        page.until("window.copied === document.querySelector('.assistant pre').textContent")
        page.screenshot("code")


def case_thoughts_are_folded(t):
    with serving(t) as s, browsing(t) as page:
        page.open(f"http://127.0.0.1:{s.port}/")
        page.value(STAGED)
        page.say("think")
        page.until("streams.length === 1")
        page.value("event(0, {reasoning_content: 'Hmm, '}); event(0, {reasoning_content: 'so.'}); event(0, {content: 'Yes.'}); end(0); null")
        page.until(DONE)
        assert page.value("document.querySelector('.assistant details').lastChild.data") == "Hmm, so."
        assert page.value("document.querySelector('.assistant details').open") is False
        assert page.value("document.querySelector('.assistant').lastChild.data") == "Yes."
        assert page.value("messages.map(m => m.content)") == ["think", "Yes."], "thoughts are not sent back"


def case_a_reader_is_not_pulled_down(t):
    with serving(t) as s, browsing(t) as page:
        page.open(f"http://127.0.0.1:{s.port}/")
        page.value(STAGED)
        page.say("long")
        page.until("streams.length === 1")
        at_end = "(m => m.scrollHeight - m.scrollTop - m.clientHeight < 3)(document.querySelector('main'))"
        lines = "event(0, {content: 'a line\\n'.repeat(60)}); null"
        page.value(lines)
        page.until(f"document.querySelector('.assistant').textContent.length > 300 && {at_end}")  # who is at the end is kept there
        page.value(lines)
        page.until(f"document.querySelector('.assistant').textContent.length > 700 && {at_end}")
        assert page.value("document.getElementById('down').hidden")
        page.value("document.querySelector('main').scrollTop = 100; null")
        page.until("document.getElementById('down').hidden === false")
        page.value(lines)
        page.until("document.querySelector('.assistant').textContent.length > 1100")
        assert page.value("document.querySelector('main').scrollTop") == 100
        page.screenshot("reading")
        page.value("document.getElementById('down').click()")
        page.until(f"{at_end} && document.getElementById('down').hidden")
        page.value(lines + "; end(0); null")
        page.until(f"{DONE} && {at_end}")


def case_the_page_waits_for_the_model(t):
    with held_while_loading(t) as (process, port, to_read), browsing(t) as page:
        assert ask(port, "/")[0] == 200
        page.go(f"http://127.0.0.1:{port}/")
        page.until("document.getElementById('figures').textContent.includes('still loading')")
        threading.Thread(target=lambda: [None for _ in iter(lambda: os.read(to_read, 65536), b"")], daemon=True).start()
        page.until("document.title === 'chat' && document.getElementById('figures').textContent.includes('weights')")
        process.terminate()
        process.wait(20)


def case_errors_are_shown(t):
    with serving(t) as s, browsing(t) as page:
        page.open(f"http://127.0.0.1:{s.port}/")
        page.say("y" * 4000)  # more than the context
        page.until("running === null && document.querySelector('.turn.error') !== null")
        text = page.value("document.querySelector('.turn.error').textContent")
        assert "256" in text, text
        assert page.value("messages.length") == 0, "a refused message stays in the conversation"


def case_the_key_is_asked_for(t):
    with serving(t, key="secret") as s, browsing(t) as page:
        page.key = "secret"
        page.open(f"http://127.0.0.1:{s.port}/")
        assert page.prompts and "key" in page.prompts[0], page.prompts
        page.say("hello")
        page.until(DONE)
        assert len(page.prompts) == 1, page.prompts
        assert page.value("document.cookie + JSON.stringify(localStorage)") == "{}", "the key is kept"


if __name__ == "__main__":
    run_cases(globals())
