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
import time

from run_cli_tests import Skip, run_cases
from serve_test import MODEL, serving

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
        if self.session is None:
            target = self.call("Target.createTarget", url="about:blank")["targetId"]
            self.session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
            for domain in ("Page", "Runtime", "Log"):
                self.call(domain + ".enable")
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=760, deviceScaleFactor=1, mobile=width < 500)
        self.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])
        self.call("Page.navigate", url=url)
        self.until("document.readyState === 'complete' && document.title !== 'kpd'")

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
