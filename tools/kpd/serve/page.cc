// tools: the page at `/` of `kpd serve`: one conversation, streamed. It is one text, fetches nothing but this server's own
// paths, keeps nothing when it is closed, and puts what the model says into the page as text, never as HTML.
#include "serve/openai.h"

namespace kpd::tool {
namespace {

constexpr const char* kStyle = R"html(<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width,initial-scale=1">
<title>kpd</title><link rel="icon" href="data:,">
<style>
:root{color-scheme:light dark;--bg:#fbfbfa;--fg:#1c1d1f;--soft:#6b6f76;--line:#dcdee2;--card:#fff;--code:#f3f4f6;--mine:#e6effc;--accent:#1b5fc1}
@media(prefers-color-scheme:dark){:root{--bg:#16181b;--fg:#e8e9eb;--soft:#9aa0a8;--line:#32363c;--card:#1f2226;--code:#17191c;--mine:#20344f;--accent:#7fb0f5}}
*{box-sizing:border-box}
[hidden]{display:none!important}
body{margin:0;height:100dvh;display:flex;flex-direction:column;background:var(--bg);color:var(--fg);font:16px/1.5 system-ui,sans-serif}
header,form,#settings{width:100%;max-width:52rem;margin:0 auto;padding:.75rem 1rem}
header,form{display:flex;gap:.6rem;align-items:center}
header,#settings{border-bottom:1px solid var(--line)}
h1{font-size:1rem;margin:0;flex:1;min-width:6rem;overflow:hidden;text-overflow:ellipsis;white-space:nowrap}
#figures{color:var(--soft);font-size:.8rem;text-align:right}
#settings{display:grid;grid-template-columns:repeat(auto-fill,minmax(7rem,1fr));gap:.6rem;max-height:50dvh;overflow-y:auto}
label{display:flex;flex-direction:column;gap:.15rem;font-size:.8rem;color:var(--soft)}
label.wide{grid-column:1/-1}
main{flex:1;overflow-y:auto;overflow-x:hidden}
#talk{max-width:52rem;margin:0 auto;padding:1rem;display:flex;flex-direction:column;gap:.75rem}
.turn{padding:.6rem .9rem;border:1px solid var(--line);border-radius:.75rem;background:var(--card);white-space:pre-wrap;overflow-wrap:anywhere;max-width:88%;align-self:flex-start}
.turn.user{background:var(--mine);border-color:transparent;align-self:flex-end}
.turn.error{border-color:#c0392b}
.turn.note{color:var(--soft);border-style:dashed}
.turn:empty::after{content:"…";color:var(--soft)}
.thoughts{color:var(--soft);font-size:.9rem;margin-bottom:.4rem}
.thoughts summary{cursor:pointer}
figure{margin:.5rem 0;border:1px solid var(--line);border-radius:.5rem;background:var(--code);overflow:hidden;white-space:normal}
figcaption{display:flex;justify-content:space-between;align-items:center;padding:.1rem .2rem .1rem .7rem;font-size:.75rem;color:var(--soft);border-bottom:1px solid var(--line);min-height:1.7rem}
figcaption button{margin-left:auto;padding:.1rem .5rem;font-size:.75rem;border:none;background:none}
pre{margin:0;padding:.6rem .7rem;overflow-x:auto;font:.85rem/1.45 ui-monospace,monospace;white-space:pre;overflow-wrap:normal}
#down{position:fixed;bottom:5.2rem;left:50%;transform:translateX(-50%);box-shadow:0 1px 6px #0004;padding:.3rem .8rem;font-size:.85rem}
form{align-items:flex-end;border-top:1px solid var(--line)}
#text{flex:1;min-width:0;resize:none;height:2.9rem;max-height:12rem}
textarea,input,button{font:inherit;color:inherit;border:1px solid var(--line);border-radius:.6rem;padding:.6rem .8rem;background:var(--card)}
#settings textarea,#settings input{font-size:.9rem;padding:.35rem .5rem;border-radius:.4rem;width:100%;min-width:0}
#system{resize:vertical;height:3.6rem}
::placeholder{color:var(--soft);opacity:1}
button{cursor:pointer}
header button{padding:.35rem .7rem}
#send{background:var(--accent);border-color:var(--accent);color:var(--bg)}
@media(max-width:600px){header{flex-wrap:wrap}#figures{order:1;width:100%;text-align:left}}
:focus-visible{outline:2px solid var(--accent);outline-offset:1px}
</style></head><body>
<header><h1 id="model">kpd</h1><div id="figures" aria-live="polite"></div><button id="tune" type="button" aria-expanded="false" aria-controls="settings">Settings</button><button id="clear" type="button">New</button></header>
<section id="settings" aria-label="Settings" hidden>
<label class="wide">System prompt<textarea id="system" placeholder="none"></textarea></label>
<label>Temperature<input id="temperature" inputmode="decimal"></label>
<label>Top-k<input id="top_k" inputmode="numeric"></label>
<label>Top-p<input id="top_p" inputmode="decimal"></label>
<label>Min-p<input id="min_p" inputmode="decimal"></label>
<label>Repeat penalty<input id="repeat_penalty" inputmode="decimal"></label>
<label>Max tokens<input id="max_tokens" inputmode="numeric" placeholder="to the context"></label>
<label>Seed<input id="seed" inputmode="numeric" placeholder="a new one"></label>
</section>
<main><div id="talk" role="log" aria-label="Conversation"></div></main>
<button id="down" type="button" hidden>To the end</button>
<form id="form"><textarea id="text" aria-label="Message" placeholder="Write a message" autofocus></textarea><button id="send">Send</button></form>
)html";

constexpr const char* kScript = R"html(<script>
"use strict";
const $ = id => document.getElementById(id), main = document.querySelector("main");
let messages = [], key = "", running = null, follow = true;
const headers = () => key ? {"Authorization": "Bearer " + key} : {};
const sleep = ms => new Promise(done => setTimeout(done, ms));
async function ask(path, options = {}) {
  for (;;) {
    const reply = await fetch(path, {...options, headers: {...headers(), ...options.headers}});
    if (reply.status !== 401) return reply;
    const given = prompt("This server asks for a key");
    if (!given) return reply;
    key = given;
  }
}
// The page goes along with an answer only while its reader is at the end.
function atEnd() { return main.scrollHeight - main.scrollTop - main.clientHeight < 40; }
function keepUp() { if (follow) main.scrollTop = main.scrollHeight; $("down").hidden = follow; }
main.addEventListener("scroll", () => { follow = atEnd(); $("down").hidden = follow; });
$("down").onclick = () => { follow = true; keepUp(); };
// Text and fenced blocks of code in order; one that is still open counts.
function parts(text) {
  const found = [];
  let fence = "", language = "", lines = [];
  const flush = () => {
    if (fence || lines.join("\n")) found.push({code: fence !== "", language, text: lines.join("\n")});
    lines = [];
  };
  for (const line of text.split("\n")) {
    const mark = line.match(/^ {0,3}(`{3,}|~{3,})([^`]*)$/);
    if (mark && !fence) { flush(); [, fence, language] = mark; }
    else if (mark && mark[1].startsWith(fence) && !mark[2].trim()) { flush(); fence = language = ""; }
    else lines.push(line);
  }
  flush();
  return found;
}
function block(language) {
  const figure = document.createElement("figure"), caption = document.createElement("figcaption");
  caption.append(language.trim());
  if (navigator.clipboard) {
    const copy = document.createElement("button");
    copy.type = "button";
    copy.textContent = "Copy";
    copy.onclick = async () => { await navigator.clipboard.writeText(figure.lastChild.textContent); copy.textContent = "Copied"; await sleep(1500); copy.textContent = "Copy"; };
    caption.append(copy);
  }
  const pre = document.createElement("pre");
  pre.append("");
  figure.append(caption, pre);
  return figure;
}
// Only what has changed is touched, so that what a reader has selected stays so.
function show(element, text) {
  const before = element.querySelectorAll(":scope > details").length;
  parts(text).forEach((part, i) => {
    let node = element.childNodes[before + i];
    if (node && (node.nodeName === "FIGURE") !== part.code) { node.remove(); node = null; }
    if (!node) {
      node = part.code ? block(part.language) : document.createTextNode("");
      element.insertBefore(node, element.childNodes[before + i] || null);
    }
    const held = part.code ? node.lastChild.firstChild : node;
    if (part.text.startsWith(held.data)) held.appendData(part.text.slice(held.data.length)); else held.data = part.text;
  });
}
function showThoughts(element, text) {
  let details = element.querySelector(":scope > details");
  if (!details) {
    details = document.createElement("details");
    details.className = "thoughts";
    const summary = document.createElement("summary");
    summary.textContent = "Thoughts";
    details.append(summary, document.createTextNode(""));
    element.prepend(details);
  }
  details.lastChild.data = text;
}
function turn(role, text) {
  const element = document.createElement("div");
  element.className = "turn " + role;
  show(element, text);
  $("talk").append(element);
  follow = true;
  keepUp();
  return element;
}
const mib = text => (Number(text) / 1048576).toFixed(0) + " MiB";
async function memory() {
  const text = await (await ask("/metrics")).text();
  const value = name => (text.match(new RegExp("^kpd_" + name + " (\\S+)$", "m")) || [])[1] || 0;
  return `weights ${mib(value("model_bytes"))}, cache ${mib(value("cache_bytes"))}`;
}
// What stands in the settings; what is empty is left to the model.
function settings() {
  const given = {};
  for (const id of ["temperature", "top_k", "top_p", "min_p", "repeat_penalty", "max_tokens", "seed"]) {
    const text = $(id).value.trim().replace(",", ".");
    if (!text) continue;
    if (!Number.isFinite(Number(text))) throw new Error(`${$(id).parentNode.firstChild.data}: '${text}' is no number`);
    given[id] = Number(text);
  }
  return given;
}
// The events of a streamed reply.
async function* eventsOf(reply) {
  const reader = reply.body.pipeThrough(new TextDecoderStream()).getReader();
  for (let rest = "";;) {
    const {done, value} = await reader.read();
    if (done) return;
    const whole = (rest + value).split("\n\n");
    rest = whole.pop();
    for (const event of whole) if (event.startsWith("data: {")) yield JSON.parse(event.slice(6));
  }
}
// "New" may come while an answer does: the conversation and the run that it belongs to are kept.
async function answer() {
  const mine = messages, run = running = new AbortController();
  $("send").textContent = "Stop";
  const element = turn("assistant", "");
  let text = "", thoughts = "", tokens = 0, first = 0, failed = "", nothing = "(an empty answer)", drawn = 0;
  const draw = () => { drawn = 0; if (thoughts) showThoughts(element, thoughts); show(element, text); keepUp(); };
  try {
    const system = $("system").value.trim() ? [{role: "system", content: $("system").value}] : [];
    const body = {messages: [...system, ...mine], stream: true, stream_options: {include_usage: true}, ...settings()};
    const reply = await ask("/v1/chat/completions", {method: "POST", signal: run.signal, headers: {"Content-Type": "application/json"}, body: JSON.stringify(body)});
    if (!reply.ok) throw new Error((await reply.json()).error.message);
    for await (const chunk of eventsOf(reply)) {
      if (chunk.error) throw new Error(chunk.error.message);
      if (chunk.usage) tokens = chunk.usage.completion_tokens;
      const delta = chunk.choices.length ? chunk.choices[0].delta : {};
      if (!delta.content && !delta.reasoning_content) continue;
      first = first || performance.now();
      text += delta.content || "";
      thoughts += delta.reasoning_content || "";
      drawn = drawn || requestAnimationFrame(draw);
    }
  } catch (error) {
    if (error.name === "AbortError") nothing = "(stopped)"; else failed = error.message;
  }
  if (drawn) cancelAnimationFrame(drawn);
  const seconds = (performance.now() - first) / 1000;
  if (failed) { element.className = "turn error"; show(element, text + (text ? "\n" : "") + failed); }
  else if (!text) { element.className += " note"; if (thoughts) showThoughts(element, thoughts); show(element, nothing); }
  else draw();
  keepUp();
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
$("clear").onclick = () => { if (running) running.abort(); running = null; $("send").textContent = "Send"; messages = []; $("talk").textContent = ""; follow = true; keepUp(); $("text").focus(); };
$("tune").onclick = () => { const open = $("settings").hidden; $("settings").hidden = !open; $("tune").setAttribute("aria-expanded", open); keepUp(); };
(async () => {
  while ((await fetch("/health")).status === 503) { $("figures").textContent = "the model is being loaded"; await sleep(1000); }
  const list = await (await ask("/v1/models")).json();
  if (!list.data) return;
  $("model").textContent = document.title = list.data[0].id;
  const defaults = (await (await ask("/props")).json()).default_generation_settings.params;
  for (const id in defaults) if ($(id) && $(id).tagName === "INPUT") $(id).placeholder = $(id).placeholder || defaults[id];
  $("figures").textContent = await memory();
})();
</script></body></html>
)html";

}  // namespace

HttpReply serve_page() {
  HttpReply reply;
  reply.type = "text/html; charset=utf-8";
  reply.body = kStyle;
  reply.body += kScript;
  reply.headers.emplace(
      "Content-Security-Policy",
      "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; connect-src 'self'; img-src "
      "data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'");
  reply.headers.emplace("X-Content-Type-Options", "nosniff");
  return reply;
}

}  // namespace kpd::tool
