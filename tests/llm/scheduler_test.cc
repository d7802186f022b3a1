// The scheduler against generate(): whatever is batched beside a request, it gets what it would get alone.
#include "kpd/llm/scheduler.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <limits>
#include <type_traits>

#include "kpd/base/error.h"
#include "kpd/io/tensors.h"
#include "io/temp_folder.h"

namespace kpd::llm {
namespace {

const std::string kModel = std::string(KPD_TESTS_DIR) + "/golden/models/llama";
constexpr size_t kContext = 96;
constexpr std::chrono::milliseconds kWait{20000};

// The 96 tokens of the golden model as printable characters, the last an end of text that is never drawn from here.
// `incomplete` is the first byte of a character of two instead.
text::Tokenizer characters(text::TokenId incomplete = -1) {
  std::string vocabulary = R"("Ġ":0)";
  for (char c = '!'; c <= '~'; ++c) {
    const std::string escaped = c - ' ' == incomplete   ? "\u00c3"
                                : c == '"' || c == '\\' ? std::string("\\") + c
                                                        : std::string(1, c);
    vocabulary += ",\"" + escaped + "\":" + std::to_string(c - ' ');
  }
  const std::string text =
      R"({"version":"1.0","added_tokens":[{"id":95,"content":"<|end|>","single_word":false,"lstrip":false,"rstrip":false,)"
      R"("normalized":false,"special":true}],"normalizer":null,"pre_tokenizer":{"type":"ByteLevel","add_prefix_space":false,)"
      R"("trim_offsets":true,"use_regex":false},"post_processor":null,"decoder":{"type":"ByteLevel","add_prefix_space":false,)"
      R"("trim_offsets":true,"use_regex":false},"model":{"type":"BPE","dropout":null,"unk_token":null,)"
      R"("continuing_subword_prefix":null,"end_of_word_suffix":null,"fuse_unk":false,"byte_fallback":false,"vocab":{)" +
      vocabulary + R"(,"<|end|>":95},"merges":[]}})";
  return text::Tokenizer::from_json(text, R"({"eos_token":"<|end|>"})", "characters");
}

Model load() { return Model::load(kModel, {.arithmetic = Arithmetic::kExact, .n_threads = 1, .limits = {}}); }

Request request(const text::Tokenizer& tokenizer, const std::string& prompt, size_t max_tokens) {
  Request r;
  r.prompt = tokenizer.encode(prompt);
  r.max_tokens = max_tokens;
  return r;
}

struct Answer {
  std::string text;
  std::vector<TokenScore> scores;
  RequestResult result;
};

Answer collect(Ticket& ticket) {
  Answer answer;
  std::vector<Piece> pieces;
  const auto deadline = std::chrono::steady_clock::now() + kWait;
  while (ticket.next(pieces, std::chrono::milliseconds(100))) {
    for (Piece& piece : pieces) {
      answer.text += piece.text;
      if (piece.score) answer.scores.push_back(*piece.score);
    }
    if (std::chrono::steady_clock::now() > deadline) {
      ADD_FAILURE() << "no end";
      break;
    }
  }
  answer.result = ticket.result();
  return answer;
}

Generated alone(const text::Tokenizer& tokenizer, const Request& r) {
  Model model = load();
  model.set_planned_context(kContext);
  const auto cache = model.make_cache("f32", kContext);
  GenerateOptions options;
  options.max_tokens = r.max_tokens;
  options.context = kContext;
  options.stop = r.stop;
  options.sampling = r.sampling;
  return generate(model, tokenizer, *cache, 0, r.prompt, options, [](std::string_view) { return true; });
}

// It keeps a reference to its tokenizer: a temporary one would be gone.
static_assert(std::is_constructible_v<Scheduler, Model, text::Tokenizer&, SchedulerOptions>);
static_assert(std::is_constructible_v<Scheduler, Model, const text::Tokenizer&, SchedulerOptions>);
static_assert(!std::is_constructible_v<Scheduler, Model, text::Tokenizer, SchedulerOptions>);
static_assert(!std::is_constructible_v<Scheduler, Model, const text::Tokenizer, SchedulerOptions>);

SchedulerOptions options(size_t n_slots, size_t chunk = 16, size_t max_queue = 64) {
  return {.n_slots = n_slots, .context = kContext, .chunk = chunk, .max_queue = max_queue, .cache = "f32"};
}

TEST(Scheduler, RequestsBesideEachOtherGetWhatTheyGetAlone) {
  const text::Tokenizer tokenizer = characters();
  std::vector<Request> requests;
  for (int i = 0; i < 12; ++i) {
    std::string prompt;
    for (int j = 0; j < 3 + 5 * i; ++j) prompt += static_cast<char>('a' + (7 * i + j * j) % 26);
    requests.push_back(request(tokenizer, prompt, static_cast<size_t>(4 + 3 * (i % 5))));
    if (i % 3 == 1) requests.back().sampling = {.temperature = 0.8, .top_k = 20, .seed = static_cast<uint64_t>(i)};
    if (i % 4 == 2) requests.back().sampling.repeat_penalty = 1.3;
  }
  for (const size_t chunk : {1, 7, 512}) {
    Scheduler scheduler(load(), tokenizer, options(3, chunk));
    std::vector<std::shared_ptr<Ticket>> tickets;
    for (const Request& r : requests) tickets.push_back(scheduler.submit(r));
    for (size_t i = 0; i < requests.size(); ++i) {
      const Answer answer = collect(*tickets[i]);
      const Generated expected = alone(tokenizer, requests[i]);
      EXPECT_EQ(answer.text, expected.text) << "request " << i << ", chunk " << chunk;
      EXPECT_EQ(answer.result.tokens, expected.tokens);
      EXPECT_EQ(answer.result.reason, expected.reason);
      EXPECT_EQ(answer.result.error, "");
    }
    EXPECT_EQ(scheduler.stats().finished, requests.size());
  }
}

TEST(Scheduler, ABeginningThatASlotHoldsIsNotReadAgain) {
  const text::Tokenizer tokenizer = characters();
  Scheduler scheduler(load(), tokenizer, options(2));
  const std::string start = "the quick brown fox jumps over the lazy dog ";
  const Request first = request(tokenizer, start + "once", 6), second = request(tokenizer, start + "twice", 6);
  EXPECT_EQ(collect(*scheduler.submit(first)).result.cached_tokens, 0u);
  const Answer answer = collect(*scheduler.submit(second));
  EXPECT_EQ(answer.result.cached_tokens, start.size());
  EXPECT_EQ(answer.text, alone(tokenizer, second).text);
  const Answer again = collect(*scheduler.submit(first));
  EXPECT_EQ(again.result.cached_tokens, start.size());
  EXPECT_EQ(again.text, alone(tokenizer, first).text);
}

// One request after the other, each with its conversation so far.
struct Talk {
  explicit Talk(char name) : text(40, name) {}
  std::string text;
};

Answer ask(Scheduler& scheduler, const text::Tokenizer& tokenizer, Talk& talk, const std::string& question) {
  talk.text += question;
  const Request r = request(tokenizer, talk.text, 4);
  const Answer answer = collect(*scheduler.submit(r));
  EXPECT_EQ(answer.text, alone(tokenizer, r).text);
  talk.text += answer.text;
  return answer;
}

TEST(Scheduler, ConversationsBeyondTheSlotsAreKept) {
  const text::Tokenizer tokenizer = characters();
  for (const size_t n_slots : {1, 4}) {
    SchedulerOptions o = options(n_slots);
    o.kept_bytes = uint64_t{1} << 30;
    Scheduler scheduler(load(), tokenizer, o);
    std::vector<Talk> talks;
    for (char name = 'a'; name < 'f'; ++name) talks.emplace_back(name);
    for (const char* question : {" one?", " two?", " three?"}) {
      for (Talk& talk : talks) {
        const size_t before = talk.text.size();
        const Answer answer = ask(scheduler, tokenizer, talk, question);
        // All but the last token of the answer before.
        EXPECT_EQ(answer.result.cached_tokens, before == 40 ? 0 : before - 1) << n_slots << " slots, " << talk.text;
      }
    }
    EXPECT_GE(scheduler.stats().kept, 5 - n_slots);
  }
}

TEST(Scheduler, TheLeastRecentlyUsedIsDroppedFirst) {
  const text::Tokenizer tokenizer = characters();
  SchedulerOptions o = options(1);
  const uint64_t block = load().make_cache("f32", 64)->bytes_for(64);
  o.kept_bytes = 2 * block;  // two conversations of up to 64 tokens beside the slot's
  Scheduler scheduler(load(), tokenizer, o);
  Talk a('a'), b('b'), c('c'), d('d');
  for (Talk* talk : {&a, &b, &c}) ask(scheduler, tokenizer, *talk, "?");
  EXPECT_EQ(scheduler.stats().kept, 2u);
  EXPECT_EQ(scheduler.stats().kept_bytes, 2 * block);
  EXPECT_GT(ask(scheduler, tokenizer, a, "?").result.cached_tokens, 40u);  // a in the slot, b and c kept
  ask(scheduler, tokenizer, d, "?");                                       // b has to go
  EXPECT_GT(ask(scheduler, tokenizer, c, "?").result.cached_tokens, 40u);
  EXPECT_GT(ask(scheduler, tokenizer, a, "?").result.cached_tokens, 40u);
  EXPECT_EQ(ask(scheduler, tokenizer, b, "?").result.cached_tokens, 0u);
  const SchedulerStats stats = scheduler.stats();
  EXPECT_LE(stats.kept_bytes, o.kept_bytes);
  EXPECT_LE(stats.cache_bytes, (2 + 2) * block) << "a slot's 96 tokens and what is kept";
}

TEST(Scheduler, NothingIsKeptUnlessAskedFor) {
  const text::Tokenizer tokenizer = characters();
  Scheduler scheduler(load(), tokenizer, options(1));
  Talk a('a'), b('b');
  ask(scheduler, tokenizer, a, "?");
  ask(scheduler, tokenizer, b, "?");
  EXPECT_EQ(ask(scheduler, tokenizer, a, "?").result.cached_tokens, 0u);
  EXPECT_EQ(scheduler.stats().kept, 0u);
}

// A long beginning in common: the slot that has it is taken, and what it went on with is not lost.
TEST(Scheduler, WhatASlotGoesOnWithIsKeptWhenItsBeginningIsTaken) {
  const text::Tokenizer tokenizer = characters();
  SchedulerOptions o = options(1);
  o.kept_bytes = uint64_t{1} << 30;
  Scheduler scheduler(load(), tokenizer, o);
  const std::string start(30, 's');
  const Request first = request(tokenizer, start + std::string(34, 'x'), 4), second = request(tokenizer, start + "y", 4);
  collect(*scheduler.submit(first));
  const Answer answer = collect(*scheduler.submit(second));
  EXPECT_EQ(answer.result.cached_tokens, start.size());
  EXPECT_EQ(answer.text, alone(tokenizer, second).text);
  const Answer again = collect(*scheduler.submit(first));
  EXPECT_EQ(again.result.cached_tokens, first.prompt.size() - 1);
  EXPECT_EQ(again.text, alone(tokenizer, first).text);
}

TEST(Scheduler, RequestsThatBeginAlikeAreReadOnce) {
  const text::Tokenizer tokenizer = characters();
  Scheduler scheduler(load(), tokenizer, options(4, 512));
  const std::string start(60, 'x');
  std::vector<Request> requests;
  std::vector<std::shared_ptr<Ticket>> tickets;
  for (const char* end : {"a", "bc", "def", "ghij"}) requests.push_back(request(tokenizer, start + end, 5));
  for (const Request& r : requests) tickets.push_back(scheduler.submit(r));
  for (size_t i = 0; i < requests.size(); ++i) EXPECT_EQ(collect(*tickets[i]).text, alone(tokenizer, requests[i]).text);
  EXPECT_EQ(scheduler.stats().cached_tokens, 3 * start.size());
}

std::vector<float> prompt_logprobs(const std::vector<text::TokenId>& prompt) {
  Model model = load();
  model.set_planned_context(kContext);
  const auto cache = model.make_cache("f32", kContext);
  const BatchPart batch[] = {{0, prompt, {}, BatchPart::Want::kAll, {}}};
  const auto logits = model.forward(batch, *cache);
  const size_t n = model.description().n_vocabulary;
  std::vector<float> scores;
  for (size_t t = 1; t < prompt.size(); ++t) {
    const float* row = logits.data() + (t - 1) * n;
    double sum = 0;
    for (size_t i = 0; i < n; ++i) sum += std::exp(static_cast<double>(row[i]));
    scores.push_back(static_cast<float>(static_cast<double>(row[prompt[t]]) - std::log(sum)));
  }
  return scores;
}

TEST(Scheduler, ScoresOfAPromptAreTheModels) {
  const text::Tokenizer tokenizer = characters();
  Scheduler scheduler(load(), tokenizer, options(2, 10));
  const std::string start = "a context that the endings have in common";
  for (const char* end : {" one", " two", " one and more", ""}) {
    for (const size_t max_tokens : {0, 1}) {
      Request r = request(tokenizer, start + end, max_tokens);
      r.score_prompt = true;
      r.top_logprobs = 2;
      const Answer answer = collect(*scheduler.submit(r));
      const std::vector<float> expected = prompt_logprobs(r.prompt);
      const std::vector<TokenScore>& scores = answer.result.prompt_scores;
      ASSERT_EQ(scores.size(), r.prompt.size());
      EXPECT_EQ(scores[0].logprob, TokenScore::kUnknown);
      for (size_t t = 1; t < scores.size(); ++t) {
        EXPECT_EQ(scores[t].token, r.prompt[t]);
        EXPECT_NEAR(scores[t].logprob, expected[t - 1], 1e-4) << "token " << t << end;
        ASSERT_EQ(scores[t].top.size(), 2u);
        EXPECT_GE(scores[t].top[0].second, scores[t].top[1].second);
      }
      EXPECT_EQ(answer.scores.size(), max_tokens);
      // The likeliest token was taken: the two floats are one.
      if (max_tokens > 0) {
        EXPECT_EQ(answer.scores[0].logprob, answer.scores[0].top[0].second);
      }
    }
  }
  EXPECT_GT(scheduler.stats().cached_tokens, 0u);
}

TEST(Scheduler, AStopTextEndsTheAnswerBeforeIt) {
  const text::Tokenizer tokenizer = characters();
  Request r = request(tokenizer, "stop here", 24);
  r.ignore_eos = false;
  const std::string whole = alone(tokenizer, r).text;
  ASSERT_GT(whole.size(), 6u);
  r.stop = {whole.substr(4, 2)};
  Scheduler scheduler(load(), tokenizer, options(1));
  const Answer answer = collect(*scheduler.submit(r));
  EXPECT_EQ(answer.text, whole.substr(0, whole.find(r.stop[0])));
  EXPECT_EQ(answer.result.reason, FinishReason::kStop);
}

// The end of an answer that stops within a character, while text before it is held back for a stop text.
TEST(Scheduler, WhatTheLastTokenHeldBackComesLast) {
  Request r = request(characters(), "a held end", 12);
  r.sampling.temperature = 3;
  std::vector<text::TokenId> ids;
  const auto is_new = [&](text::TokenId id) { return id < 95 && std::count(ids.begin(), ids.end(), id) == 1; };
  while (ids.empty() || !is_new(ids.back())) {
    ++r.sampling.seed;
    ids = alone(characters(), r).token_ids;
    ASSERT_LT(r.sampling.seed, 100u) << "no answer ends with a token that it did not have before";
  }
  const text::Tokenizer tokenizer = characters(ids.back());
  const std::string kUnknown = "\xEF\xBF\xBD";
  const std::string whole = alone(tokenizer, r).text, held = whole.substr(whole.size() - kUnknown.size() - 2, 2);
  ASSERT_TRUE(whole.ends_with(held + kUnknown)) << whole;
  Scheduler scheduler(load(), tokenizer, options(1));
  const auto expect = [&](const std::string& stop, const std::string& text, FinishReason reason) {
    r.stop = {stop};
    const Answer answer = collect(*scheduler.submit(r));
    EXPECT_EQ(answer.text, text);
    EXPECT_EQ(answer.result.reason, reason);
    const Generated generated = alone(tokenizer, r);
    EXPECT_EQ(generated.text, text);
    EXPECT_EQ(generated.reason, reason);
  };
  expect(held + "zz", whole, FinishReason::kLength);
  expect(held + kUnknown + "zz", whole, FinishReason::kLength);
  expect(held + kUnknown, whole.substr(0, whole.size() - kUnknown.size() - 2), FinishReason::kStop);
}

class DamagedModel : public testing::TempFolder {
 protected:
  // A model that reads `token` as NaN. Its head is a matrix of its own: what never reads the token is not harmed.
  Model load_damaged(text::TokenId token) const {
    const std::string source = std::string(KPD_TESTS_DIR) + "/golden/models/qwen3/";
    std::filesystem::copy_file(source + "config.json", path("config.json"));
    const io::TensorFile file = io::load_tensors(source + "model.safetensors");
    std::vector<io::TensorEntry> tensors = file.tensors;
    std::vector<float> embedding;
    for (io::TensorEntry& e : tensors) {
      if (e.name != "model.embed_tokens.weight") continue;
      embedding.resize(e.count);
      load_floats(e.view(), 0, embedding);
      embedding[static_cast<size_t>(token) * e.shape[1]] = std::numeric_limits<float>::quiet_NaN();
      e.dtype = DType::kFloat32;
      e.data = embedding.data();
    }
    EXPECT_FALSE(embedding.empty());
    io::save_tensors(path("model.safetensors"), tensors);
    return Model::load(folder_, {.arithmetic = Arithmetic::kExact, .n_threads = 1, .limits = {}});
  }
};

TEST_F(DamagedModel, FailsTheRequestsThatMeetTheDamageAndNoOther) {
  const text::Tokenizer tokenizer = characters();
  Scheduler scheduler(load_damaged(tokenizer.encode("}")[0]), tokenizer, options(3, 512));
  std::vector<std::shared_ptr<Ticket>> tickets;
  for (const char* prompt : {"a good one", "a b}d one", "another good one", "}"})
    tickets.push_back(scheduler.submit(request(tokenizer, prompt, 1)));
  for (size_t i = 0; i < tickets.size(); ++i) {
    const Answer answer = collect(*tickets[i]);
    const bool good = i % 2 == 0;
    EXPECT_EQ(answer.result.tokens, good ? 1u : 0u) << i;
    EXPECT_EQ(answer.result.error.find("the logit NaN") == std::string::npos, good) << i << ": " << answer.result.error;
  }
  EXPECT_EQ(scheduler.stats().failed, 2u);
  // Nothing is left of what failed.
  const Answer answer = collect(*scheduler.submit(request(tokenizer, "a b", 1)));
  EXPECT_EQ(answer.result.error, "");
  EXPECT_EQ(answer.result.tokens, 1u);
  EXPECT_EQ(scheduler.stats().finished, 3u);
  Request scored = request(tokenizer, "a b}d one", 0);
  scored.score_prompt = true;
  scored.top_logprobs = 1;
  EXPECT_NE(collect(*scheduler.submit(scored)).result.error.find("a log-probability that is no number"), std::string::npos);
  scored.prompt = tokenizer.encode("a b");
  EXPECT_EQ(collect(*scheduler.submit(scored)).result.error, "") << "nor of what was scored";
}

TEST(Scheduler, CancellationFreesTheSlotAndTheQueue) {
  const text::Tokenizer tokenizer = characters();
  Scheduler scheduler(load(), tokenizer, options(1, 1));
  const auto endless = scheduler.submit(request(tokenizer, std::string(80, 'k'), 1000));
  const auto waits = scheduler.submit(request(tokenizer, "waits", 3));
  const auto last = scheduler.submit(request(tokenizer, "last", 3));
  waits->cancel();
  endless->cancel();
  EXPECT_EQ(collect(*endless).result.reason, FinishReason::kCancelled);
  EXPECT_EQ(collect(*waits).result.reason, FinishReason::kCancelled);
  EXPECT_EQ(collect(*last).result.reason, FinishReason::kLength);
  EXPECT_EQ(scheduler.stats().cancelled, 2u);
}

TEST(Scheduler, AWaitWithoutEndIsOne) {
  const text::Tokenizer tokenizer = characters();
  Scheduler scheduler(load(), tokenizer, options(1, 1));
  const auto ticket = scheduler.submit(request(tokenizer, std::string(60, 'w'), 4));
  std::vector<Piece> pieces;
  size_t n = 0;
  for (; ticket->next(pieces, std::chrono::milliseconds::max()); ++n) ASSERT_FALSE(pieces.empty()) << "woken without news";
  EXPECT_GE(n, 1u);
  EXPECT_EQ(ticket->result().tokens, 4u);
  EXPECT_FALSE(ticket->next(pieces, std::chrono::milliseconds::min()));
}

TEST(Scheduler, AQueueWithoutEndRefusesNothing) {
  const text::Tokenizer tokenizer = characters();
  Scheduler scheduler(load(), tokenizer, options(2, 1, std::numeric_limits<size_t>::max()));
  std::vector<std::shared_ptr<Ticket>> tickets;
  for (int i = 0; i < 12; ++i) tickets.push_back(scheduler.submit(request(tokenizer, std::string(20, 'q'), 1)));
  for (const auto& ticket : tickets) EXPECT_EQ(collect(*ticket).result.tokens, 1u);
  EXPECT_EQ(scheduler.stats().refused, 0u);
}

TEST(Scheduler, AFullQueueRefuses) {
  const text::Tokenizer tokenizer = characters();
  Scheduler scheduler(load(), tokenizer, options(1, 1, 2));
  std::vector<std::shared_ptr<Ticket>> tickets;
  size_t refused = 0;
  for (int i = 0; i < 12; ++i) {
    try {
      tickets.push_back(scheduler.submit(request(tokenizer, std::string(80, static_cast<char>('a' + i)), 2)));
    } catch (const Error& e) {
      EXPECT_EQ(e.code(), ErrorCode::kLimitExceeded);
      ++refused;
    }
  }
  EXPECT_GT(refused, 0u);
  EXPECT_EQ(scheduler.stats().refused, refused);
  for (const auto& ticket : tickets) EXPECT_EQ(collect(*ticket).result.tokens, 2u);
}

TEST(Scheduler, RefusesWhatMakesNoSense) {
  const text::Tokenizer tokenizer = characters();
  Scheduler scheduler(load(), tokenizer, options(1));
  const auto code = [&](const Request& r) {
    try {
      scheduler.submit(r);
    } catch (const Error& e) {
      return e.code();
    }
    return ErrorCode::kInternal;
  };
  EXPECT_EQ(code(request(tokenizer, "", 1)), ErrorCode::kInvalidArgument);
  EXPECT_EQ(code(request(tokenizer, std::string(kContext, 'a'), 1)), ErrorCode::kInvalidArgument);
  Request beyond = request(tokenizer, "a", 1);
  beyond.prompt = {96};
  EXPECT_EQ(code(beyond), ErrorCode::kInvalidArgument);
  Request biased = request(tokenizer, "a", 1);
  biased.sampling.logit_bias = {{96, 1.0f}};
  EXPECT_EQ(code(biased), ErrorCode::kInvalidArgument);
  Request hot = request(tokenizer, "a", 1);
  hot.sampling.temperature = -1;
  EXPECT_EQ(code(hot), ErrorCode::kInvalidArgument);
  scheduler.stop();
  EXPECT_EQ(code(request(tokenizer, "a", 1)), ErrorCode::kLimitExceeded);
}

TEST(Scheduler, AFullContextEndsTheAnswer) {
  const text::Tokenizer tokenizer = characters();
  Scheduler scheduler(load(), tokenizer, options(1));
  Request r = request(tokenizer, std::string(kContext - 4, 'z'), 50);
  r.ignore_eos = true;
  const Answer answer = collect(*scheduler.submit(r));
  EXPECT_EQ(answer.result.reason, FinishReason::kLength);
  EXPECT_EQ(answer.result.tokens, 5u);
}

}  // namespace
}  // namespace kpd::llm
