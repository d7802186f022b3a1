// tools: the page at `/` of `kpd serve`: one conversation, streamed. It is one text, fetches nothing but this server's own
// paths, and puts what the model says into the page as text, never as HTML.
#include "serve_openai.h"

namespace kpd::tool {
namespace {

constexpr const char* kPage = R"html(<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width,initial-scale=1">
<title>kpd</title><link rel="icon" href="data:,">
<style>
:root{color-scheme:light dark;--bg:#fbfbfa;--fg:#1c1d1f;--soft:#6b6f76;--line:#dcdee2;--card:#fff;--mine:#e6effc;--accent:#1b5fc1}
@media(prefers-color-scheme:dark){:root{--bg:#16181b;--fg:#e8e9eb;--soft:#9aa0a8;--line:#32363c;--card:#1f2226;--mine:#20344f;--accent:#7fb0f5}}
*{box-sizing:border-box}
body{margin:0;height:100dvh;display:flex;flex-direction:column;background:var(--bg);color:var(--fg);font:16px/1.5 system-ui,sans-serif}
header,form{display:flex;gap:.75rem;align-items:center;width:100%;max-width:52rem;margin:0 auto;padding:.75rem 1rem}
header{border-bottom:1px solid var(--line)}
h1{font-size:1rem;margin:0;flex:1;min-width:6rem;overflow:hidden;text-overflow:ellipsis;white-space:nowrap}
#figures{color:var(--soft);font-size:.8rem;text-align:right}
main{flex:1;overflow-y:auto}
#talk{max-width:52rem;margin:0 auto;padding:1rem;display:flex;flex-direction:column;gap:.75rem}
.turn{padding:.6rem .9rem;border:1px solid var(--line);border-radius:.75rem;background:var(--card);white-space:pre-wrap;overflow-wrap:anywhere;max-width:88%;align-self:flex-start}
.turn.user{background:var(--mine);border-color:transparent;align-self:flex-end}
.turn.error{border-color:#c0392b}
.turn.note{color:var(--soft);border-style:dashed}
.turn:empty::after{content:"…";color:var(--soft)}
form{align-items:flex-end;border-top:1px solid var(--line)}
textarea{flex:1;min-width:0;resize:none;height:2.9rem;max-height:12rem}
textarea,button{font:inherit;color:inherit;border:1px solid var(--line);border-radius:.6rem;padding:.6rem .8rem;background:var(--card)}
button{cursor:pointer}
#send{background:var(--accent);border-color:var(--accent);color:var(--bg)}
:focus-visible{outline:2px solid var(--accent);outline-offset:1px}
</style></head><body>
<header><h1 id="model">kpd</h1><div id="figures" aria-live="polite"></div><button id="clear" type="button">New</button></header>
<main><div id="talk" role="log" aria-label="Conversation"></div></main>
<form id="form"><textarea id="text" aria-label="Message" placeholder="Write a message" autofocus></textarea><button id="send">Send</button></form>
<script>
"use strict";
const $ = id => document.getElementById(id);
let messages = [], key = "", running = null;
const headers = () => key ? {"Authorization": "Bearer " + key} : {};
async function ask(path, options = {}) {
  for (;;) {
    const reply = await fetch(path, {...options, headers: {...headers(), ...options.headers}});
    if (reply.status !== 401) return reply;
    const given = prompt("This server asks for a key");
    if (!given) return reply;
    key = given;
  }
}
function turn(role, text) {
  const element = document.createElement("div");
  element.className = "turn " + role;
  element.textContent = text;
  $("talk").append(element);
  element.scrollIntoView({block: "end"});
  return element;
}
const mib = text => (Number(text) / 1048576).toFixed(0) + " MiB";
async function memory() {
  const text = await (await ask("/metrics")).text();
  const value = name => (text.match(new RegExp("^kpd_" + name + " (\\S+)$", "m")) || [])[1] || 0;
  return `weights ${mib(value("model_bytes"))}, cache ${mib(value("cache_bytes"))}`;
}
// "New" may come while an answer does: the conversation and the run that it belongs to are kept.
async function answer() {
  const mine = messages, run = running = new AbortController();
  $("send").textContent = "Stop";
  const element = turn("assistant", "");
  let text = "", tokens = 0, first = 0, failed = "", nothing = "(an empty answer)";
  try {
    const reply = await ask("/v1/chat/completions", {method: "POST", signal: run.signal, headers: {"Content-Type": "application/json"},
      body: JSON.stringify({messages: mine, stream: true, stream_options: {include_usage: true}})});
    if (!reply.ok) throw new Error((await reply.json()).error.message);
    const reader = reply.body.pipeThrough(new TextDecoderStream()).getReader();
    for (let rest = "";;) {
      const {done, value} = await reader.read();
      if (done) break;
      const lines = (rest + value).split("\n\n");
      rest = lines.pop();
      for (const line of lines) {
        if (!line.startsWith("data: {")) continue;
        const chunk = JSON.parse(line.slice(6));
        if (chunk.error) throw new Error(chunk.error.message);
        if (chunk.usage) tokens = chunk.usage.completion_tokens;
        const piece = chunk.choices.length ? chunk.choices[0].delta.content || "" : "";
        if (!piece) continue;
        first = first || performance.now();
        text += piece;
        element.textContent = text;
        element.scrollIntoView({block: "end"});
      }
    }
  } catch (error) {
    if (error.name === "AbortError") nothing = "(stopped)"; else failed = error.message;
  }
  const seconds = (performance.now() - first) / 1000;
  if (failed) { element.className = "turn error"; element.textContent = text + (text ? "\n" : "") + failed; }
  else if (!text) { element.className += " note"; element.textContent = nothing; }
  if (text) mine.push({role: "assistant", content: text}); else mine.pop();
  if (running !== run) return;
  running = null;
  $("send").textContent = "Send";
  const speed = tokens > 1 ? ((tokens - 1) / seconds).toFixed(1) + " tokens/s, " : "";
  try { $("figures").textContent = speed + await memory(); } catch { $("figures").textContent = ""; }
}
$("form").onsubmit = event => {
  event.preventDefault();
  if (running) return running.abort();
  const text = $("text").value.trim();
  if (!text) return;
  $("text").value = "";
  messages.push({role: "user", content: text});
  turn("user", text);
  answer();
};
$("text").onkeydown = event => {
  if (event.key === "Enter" && !event.shiftKey && !event.isComposing) { event.preventDefault(); if (!running) $("form").requestSubmit(); }
};
$("clear").onclick = () => { if (running) running.abort(); running = null; $("send").textContent = "Send"; messages = []; $("talk").textContent = ""; $("text").focus(); };
(async () => {
  const list = await (await ask("/v1/models")).json();
  if (list.data) { $("model").textContent = document.title = list.data[0].id; $("figures").textContent = await memory(); }
})();
</script></body></html>
)html";

}  // namespace

HttpReply serve_page(const Service&, const HttpRequest&) {
  HttpReply reply;
  reply.type = "text/html; charset=utf-8";
  reply.body = kPage;
  reply.headers.emplace(
      "Content-Security-Policy",
      "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; connect-src 'self'; img-src "
      "data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'");
  reply.headers.emplace("X-Content-Type-Options", "nosniff");
  return reply;
}

}  // namespace kpd::tool
