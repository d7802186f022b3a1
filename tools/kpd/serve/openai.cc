// tools: a request for text becomes one scheduler request a prompt and choice; their news become the reply.
#include "serve/openai.h"

#include <array>

#include <fmt/format.h>

#include "kpd/base/clock.h"
#include "kpd/base/error.h"
#include "kpd/base/rng.h"
#include "kpd/text/thoughts.h"
#include "serve/chat.h"
#include "serve/logprobs.h"

namespace kpd::tool {
namespace {

using Writer = std::function<bool(std::string_view)>;

constexpr std::chrono::seconds kCommentEvery{10};

// One of the answers being made.
struct Choice {
  std::shared_ptr<llm::Ticket> ticket;
  const Prompt* prompt = nullptr;
  std::string text;
  std::vector<llm::TokenScore> scores;
  std::unique_ptr<TextOffsets> offsets;        // of the answer's tokens
  bool opens_text = true;                      // no token of the answer has been given out
  std::optional<text::ThoughtSplitter> split;  // of a chat
  bool begun = false, over = false;
};

class Answering {
 public:
  Answering(const Service& service, TextQuery query, std::vector<Prompt> prompts, std::function<bool()> gone)
      : service_(service),
        query_(std::move(query)),
        prompts_(std::move(prompts)),
        gone_(std::move(gone)),
        id_(fmt::format("{}-{:016x}", query_.chat ? "chatcmpl" : "cmpl", os_entropy())),
        created_(std::chrono::duration_cast<std::chrono::seconds>(std::chrono::system_clock::now().time_since_epoch()).count()),
        patience_(service.timeout_seconds),
        comment_every_(query_.comment_seconds ? std::chrono::seconds(*query_.comment_seconds)
                                              : std::min<Clock::duration>(kCommentEvery, Clock::duration(patience_) / 4)),
        last_news_(Clock::now()),
        last_sent_(last_news_) {}
  ~Answering() { cancel(); }
  Answering(const Answering&) = delete;
  Answering& operator=(const Answering&) = delete;

  // Throws ApiError if one of them is refused; none is left running then.
  void submit(const std::string& client) {
    if (prompts_.size() * query_.n > service_.max_requests) {
      throw ApiError(400,
                     str(prompts_.size(), " prompts with ", query_.n, " completions each, at most ", service_.max_requests,
                         " completions fit in the queue"),
                     "prompt");
    }
    const size_t context = service_.scheduler.context();
    for (const Prompt& prompt : prompts_)
      check_prompt_fits(prompt.tokens.size(), context, query_.max_tokens.value_or(1) > 0, query_.chat ? "messages" : "prompt");
    uint64_t seed = query_.has_seed || query_.sampling.temperature == 0 ? query_.sampling.seed : os_entropy();
    for (const Prompt& prompt : prompts_) {
      for (size_t i = 0; i < query_.n; ++i) {
        llm::Request request;
        request.prompt = prompt.tokens;
        request.max_tokens = std::min(query_.max_tokens.value_or(query_.chat ? context : 16), context);
        request.stop = query_.stop;
        request.sampling = query_.sampling;
        request.sampling.seed = seed + i;
        request.ignore_eos = query_.ignore_eos;
        request.opens_text = query_.chat;
        request.score_prompt = query_.echo && query_.logprobs.has_value();
        request.top_logprobs = query_.logprobs;
        request.client = client;
        Choice choice;
        using Begin = text::ThoughtSplitter::Begin;
        choice.split.emplace(!query_.split_thoughts ? Begin::kOff : prompt.opens_thought ? Begin::kOpen : Begin::kUnopened);
        choice.ticket = submit_one(std::move(request));
        choice.prompt = &prompt;
        choice.offsets =
            std::make_unique<TextOffsets>(service_.tokenizer, true, false, query_.echo ? count_characters(prompt.text) : 0);
        choices_.push_back(std::move(choice));
      }
    }
  }

  // What the log says of it, once it is over.
  std::shared_ptr<const std::string> note() const { return note_; }

  HttpReply whole() {
    while (!all_over()) {
      if (gone_()) throw ApiError(499, "client closed the connection");
      for (size_t i = 0; i < choices_.size(); ++i) listen(i, nullptr);
    }
    Json list = Json::array();
    for (size_t i = 0; i < choices_.size(); ++i) {
      Choice& c = choices_[i];
      check(c);
      const Json logprobs = query_.logprobs ? logprobs_of(c, query_.echo) : Json();
      const std::string text = query_.echo ? c.prompt->text + c.text : c.text;
      Json choice = {{"index", i}};
      if (query_.chat) {
        choice["message"] = message(*c.split, text);
      } else {
        choice["text"] = text;
      }
      choice["logprobs"] = logprobs;
      choice["finish_reason"] = llm::finish_reason_name(c.ticket->result().reason);
      list.push_back(std::move(choice));
    }
    Json reply = envelope(false);
    reply["choices"] = std::move(list);
    reply["usage"] = usage();
    note_outcome();
    HttpReply http = json_reply(reply);
    http.note = note_;
    return http;
  }

  void stream(const Writer& write) {
    try {
      while (!all_over()) {
        for (size_t i = 0; i < choices_.size(); ++i) {
          if (!listen(i, &write)) return cancel();
        }
        if (gone_() || !keep_alive(write)) return cancel();
      }
      note_outcome();
      if (query_.include_usage) {
        Json chunk = envelope(true);
        chunk["choices"] = Json::array();
        chunk["usage"] = usage();
        if (!send(write, chunk)) return;
      }
    } catch (const ApiError& e) {
      cancel();
      if (!write("data: " + e.reply().body + "\n\n")) return;
    } catch (const std::exception&) {
      // The status has been sent: the client hears of it here or not at all.
      cancel();
      if (!write("data: " + ApiError(500, "internal error").reply().body + "\n\n")) return;
    }
    write("data: [DONE]\n\n");
  }

 private:
  std::shared_ptr<llm::Ticket> submit_one(llm::Request request) {
    try {
      return service_.scheduler.submit(std::move(request));
    } catch (const Error& e) {
      cancel();
      if (e.code() == ErrorCode::kLimitExceeded) throw ApiError(503, e.what(), "", "overloaded");
      throw ApiError(400, e.what(), query_.chat ? "messages" : "prompt");
    }
  }

  void cancel() {
    for (const Choice& c : choices_) c.ticket->cancel();
  }
  bool all_over() const {
    return std::all_of(choices_.begin(), choices_.end(), [](const Choice& c) { return c.over; });
  }

  static void check(const Choice& c) {
    const llm::RequestResult& result = c.ticket->result();
    if (!result.error.empty()) throw ApiError(500, result.error);
    if (result.reason == llm::FinishReason::kCancelled) throw ApiError(503, "the server is shutting down", "", "shutting_down");
  }

  // Takes the news of a choice; with `write` they go out as chunks. False: the client takes no more.
  bool listen(size_t index, const Writer* write) {
    Choice& c = choices_[index];
    if (c.over) return true;
    if (Clock::now() - last_news_ > patience_)
      throw ApiError(504, str("no token for ", service_.timeout_seconds, " s (--timeout)"), "", "timeout");
    std::vector<llm::Piece> pieces;
    const std::chrono::milliseconds slice(std::max<size_t>(100 / choices_.size(), 1));
    c.over = !c.ticket->next(pieces, slice);
    if (c.over || !pieces.empty()) last_news_ = Clock::now();
    if (write != nullptr && !c.begun && (c.over || !pieces.empty())) {
      if (c.over) check(c);
      c.begun = true;
      if (!open(index, *write)) return false;
    }
    for (llm::Piece& piece : pieces) {
      if (write == nullptr) c.text += piece.text;
      if (query_.logprobs && piece.score) c.scores.push_back(std::move(*piece.score));
      if (write == nullptr || (piece.text.empty() && c.scores.empty())) continue;
      if (!(query_.chat ? send_delta(index, c.split->push(piece.text), *write) : send_text(index, piece.text, *write)))
        return false;
    }
    if (!c.over || write == nullptr) return true;
    check(c);
    if (query_.chat && !send_delta(index, c.split->finish(), *write)) return false;
    return send_choice(index, query_.chat ? Json{{"delta", Json::object()}} : Json{{"text", ""}}, *write,
                       llm::finish_reason_name(c.ticket->result().reason));
  }

  // What comes before the first token: the role, or the prompt.
  bool open(size_t index, const Writer& write) {
    Choice& c = choices_[index];
    if (query_.chat) return send_choice(index, {{"delta", {{"role", "assistant"}, {"content", ""}}}}, write, nullptr);
    if (!query_.echo) return true;
    if (query_.logprobs && !c.over) {
      // Scores of the prompt are known with the first token, but the result is read only when the request is over.
      throw ApiError(500, "a scored prompt cannot be streamed");
    }
    return send_text(index, c.prompt->text, write);
  }

  bool send_text(size_t index, const std::string& text, const Writer& write) {
    return send_choice(index, {{"text", text}}, write, nullptr);
  }

  // Thoughts and text that a piece completed; nothing is sent for a piece that is held back, unless it brings scores.
  bool send_delta(size_t index, const text::ThoughtSplitter::Parts& parts, const Writer& write) {
    Json delta = Json::object();
    if (!parts.thought.empty()) delta["reasoning_content"] = parts.thought;
    if (!parts.text.empty() || (delta.empty() && !choices_[index].scores.empty())) delta["content"] = parts.text;
    return delta.empty() || send_choice(index, {{"delta", std::move(delta)}}, write, nullptr);
  }

  static Json message(text::ThoughtSplitter& split, const std::string& text) {
    text::ThoughtSplitter::Parts parts = split.push(text), rest = split.finish();
    Json out = {{"role", "assistant"}, {"content", parts.text + rest.text}, {"refusal", nullptr}};
    if (const std::string thought = parts.thought + rest.thought; !thought.empty()) out["reasoning_content"] = thought;
    return out;
  }

  bool send_choice(size_t index, Json what, const Writer& write, const char* finish_reason) {
    Choice& c = choices_[index];
    Json choice = {{"index", index}};
    choice.update(what);
    choice["logprobs"] = query_.logprobs && !c.scores.empty() ? logprobs_of(c, false) : Json();
    c.scores.clear();
    choice["finish_reason"] = finish_reason == nullptr ? Json() : Json(finish_reason);
    Json chunk = envelope(true);
    chunk["choices"] = Json::array({std::move(choice)});
    if (query_.include_usage) chunk["usage"] = nullptr;
    return send(write, chunk);
  }

  bool send(const Writer& write, const Json& chunk) {
    last_sent_ = Clock::now();
    return write("data: " + dump(chunk) + "\n\n");
  }

  // A comment, which clients pass over, while nothing else is to be said: proxies and clients end a connection that is silent
  // for long.
  bool keep_alive(const Writer& write) {
    const auto now = Clock::now();
    if (comment_every_.count() == 0 || now - last_sent_ < comment_every_) return true;
    last_sent_ = now;
    return write(": waiting\n\n");
  }

  void note_outcome() {
    const Json sums = usage();
    *note_ = fmt::format("{} prompt tokens, {} of them cached, {} tokens, ended by {}", sums["prompt_tokens"].get<size_t>(),
                         sums["prompt_tokens_details"]["cached_tokens"].get<size_t>(), sums["completion_tokens"].get<size_t>(),
                         llm::finish_reason_name(choices_.front().ticket->result().reason));
  }

  Json logprobs_of(Choice& c, bool with_prompt) {
    const text::Tokenizer& tokenizer = service_.tokenizer;
    if (query_.chat) return chat_logprobs(tokenizer, c.scores, c.opens_text);
    std::vector<llm::TokenScore> scores;
    std::vector<size_t> offsets;
    if (with_prompt) {
      scores = c.ticket->result().prompt_scores;
      TextOffsets of_prompt(tokenizer, false, true, 0);
      // What the tokenizer put before the client's text is not in it.
      for (size_t i = 0; i < scores.size(); ++i) offsets.push_back(i < c.prompt->n_added ? 0 : of_prompt.next(scores[i].token));
    }
    for (const llm::TokenScore& score : c.scores) offsets.push_back(c.offsets->next(score.token));
    scores.insert(scores.end(), c.scores.begin(), c.scores.end());
    return completion_logprobs(tokenizer, scores, offsets);
  }

  Json envelope(bool chunk) const {
    const char* object = !query_.chat ? "text_completion" : chunk ? "chat.completion.chunk" : "chat.completion";
    return {{"id", id_}, {"object", object}, {"created", created_}, {"model", service_.model}};
  }

  Json usage() const {
    size_t prompt = 0, cached = 0, tokens = 0;
    for (size_t i = 0; i < choices_.size(); ++i) {
      const llm::RequestResult& result = choices_[i].ticket->result();
      // A prompt counts once, however many answers it gets.
      if (i % query_.n == 0) prompt += result.prompt_tokens, cached += result.cached_tokens;
      tokens += result.tokens;
    }
    return {{"prompt_tokens", prompt},
            {"completion_tokens", tokens},
            {"total_tokens", prompt + tokens},
            {"prompt_tokens_details", {{"cached_tokens", cached}}}};
  }

  const Service& service_;
  TextQuery query_;
  std::vector<Prompt> prompts_;
  std::function<bool()> gone_;
  std::string id_;
  int64_t created_;
  std::chrono::seconds patience_;
  Clock::duration comment_every_;
  Clock::time_point last_news_, last_sent_;
  std::vector<Choice> choices_;
  std::shared_ptr<std::string> note_ = std::make_shared<std::string>();
};

HttpReply run(const Service& service, const HttpRequest& http, TextQuery query, std::vector<Prompt> prompts) {
  const bool stream = query.stream;
  auto answering = std::make_shared<Answering>(service, std::move(query), std::move(prompts), http.gone);
  answering->submit(http.client);
  if (!stream) return answering->whole();
  HttpReply reply;
  reply.type = "text/event-stream";
  reply.headers.emplace("Cache-Control", "no-cache");
  reply.headers.emplace("X-Accel-Buffering", "no");  // nginx would hold pieces back
  reply.note = answering->note();
  reply.stream = [answering](const Writer& write) { answering->stream(write); };
  return reply;
}

}  // namespace

HttpReply serve_completions(const Service& service, const HttpRequest& http) {
  const nlohmann::json body = parse_body(http.body);
  TextQuery query = read_query(body, false, service.sampling, service.scheduler.description().n_vocabulary);
  if (query.stream && query.echo && query.logprobs) throw ApiError(400, "'echo' with 'logprobs' cannot be streamed", "stream");
  return run(service, http, std::move(query), read_prompts(body, service.tokenizer, service.scheduler.context()));
}

HttpReply serve_chat(const Service& service, const HttpRequest& http) {
  const nlohmann::json body = parse_body(http.body);
  TextQuery query = read_query(body, true, service.sampling, service.scheduler.description().n_vocabulary);
  std::vector<Prompt> prompts;
  prompts.push_back(chat_prompt(service, body, query));
  return run(service, http, std::move(query), std::move(prompts));
}

}  // namespace kpd::tool
