// tests: a token that is decoded allocates nothing once an answer of that size has been given: forward pass, attention, draw,
// text, stop texts, and the scheduler around them. This program counts every operator new.
#include <gtest/gtest.h>

#include <atomic>
#include <thread>

#include "base/replaced_new.h"
#include "kpd/base/error.h"
#include "kpd/llm/generate.h"
#include "kpd/llm/scheduler.h"
#include "text/tokenizer_fixture.h"

namespace {

std::atomic<uint64_t> g_allocations{0};

}  // namespace

void kpd::testing::before_allocation() { g_allocations.fetch_add(1, std::memory_order_relaxed); }

namespace kpd::llm {
namespace {

constexpr size_t kFirst = 4;  // tokens of an answer that may allocate

std::vector<SamplingOptions> samplings() {
  std::vector<SamplingOptions> all(4);
  all[1] = {.temperature = 1, .top_p = 0.9, .repeat_penalty = 1.2};
  all[2] = {.temperature = 0.8, .top_k = 20, .top_p = 0.95, .min_p = 0.05};
  all[3].temperature = 0.7;
  all[3].presence_penalty = 0.5;
  all[3].frequency_penalty = 0.1;
  all[3].logit_bias = {{5, -3.0f}};
  return all;
}

Model load(const std::string& name, Arithmetic arithmetic, int n_threads) {
  return Model::load(str(KPD_TESTS_DIR, "/golden/models/", name),
                     {.arithmetic = arithmetic, .n_threads = n_threads, .limits = {}});
}

// Allocations between token kFirst and the end of the third answer of a kind.
uint64_t steady_allocations(Model& model, const text::Tokenizer& tokenizer, KvCache& cache, const GenerateOptions& options,
                            const std::vector<text::TokenId>& prompt) {
  uint64_t before = 0;
  size_t n = 0;
  const std::function<bool(std::string_view)> on_text = [&](std::string_view) {
    if (++n == kFirst) before = g_allocations.load();
    return true;
  };
  uint64_t at_the_end = 0;
  for (int i = 0; i < 3; ++i) {
    cache.crop(0, 0);
    n = 0;
    const Generated g = generate(model, tokenizer, cache, 0, prompt, options, on_text);
    at_the_end = g_allocations.load();
    EXPECT_EQ(g.tokens, options.max_tokens);
  }
  return at_the_end - before;
}

TEST(Allocation, TheCounterCounts) {
  const uint64_t before = g_allocations.load();
  const std::vector<int> v(10, 1);
  ASSERT_EQ(v[3], 1);
  EXPECT_GE(g_allocations.load() - before, 1u);
}

TEST(Allocation, AnAnswerTokenByToken) {
  const text::Tokenizer tokenizer = testing::character_tokenizer();
  std::vector<text::TokenId> prompt(50);
  for (size_t i = 0; i < prompt.size(); ++i) prompt[i] = static_cast<text::TokenId>(3 + (i * i * 7 + i) % 90);
  for (const char* name : {"llama", "gemma3"}) {
    for (const Arithmetic arithmetic : {Arithmetic::kExact, Arithmetic::kFast}) {
      for (const int n_threads : {1, 2}) {
        Model model = load(name, arithmetic, n_threads);
        for (const char* kind : {"f32", "f16"}) {
          const auto cache = model.make_cache(kind, 1024);
          const std::vector<SamplingOptions> all = samplings();
          for (const SamplingOptions& sampling : std::span(all).first(n_threads == 1 ? all.size() : 1)) {
            GenerateOptions options;
            options.max_tokens = 20;  // beyond the end of a block of 64
            options.context = 1024;
            options.ignore_eos = true;
            options.stop = {"no such text", "\n\n\n\n"};
            options.sampling = sampling;
            // With several threads it is open when one of them meets its first share of a kind and grows its scratch.
            EXPECT_LE(steady_allocations(model, tokenizer, *cache, options, prompt), n_threads == 1 ? 0u : 20u)
                << name << ", " << arithmetic_name(arithmetic) << ", " << n_threads << " threads, " << kind << ", "
                << describe_sampling(sampling);
          }
        }
      }
    }
  }
}

// The chunks of a long sequence, shared among threads.
TEST(Allocation, AtDepth) {
  const text::Tokenizer tokenizer = testing::character_tokenizer();
  Model model = load("llama", Arithmetic::kFast, 2);
  const auto cache = model.make_cache("f16", 1024);
  GenerateOptions options;
  options.max_tokens = 20;
  options.context = 1024;
  options.ignore_eos = true;
  const std::vector<text::TokenId> prompt(600, 7);
  EXPECT_LE(steady_allocations(model, tokenizer, *cache, options, prompt), 20u);
}

// Decoders of every kind: byte-level, and SentencePiece's with its byte fallback.
TEST(Allocation, TextOfTokens) {
  for (const char* name : {"gpt2", "llama2", "gemma", "scored"}) {
    SCOPED_TRACE(name);
    const text::Tokenizer tokenizer = testing::load_tokenizer(name);
    text::TokenStream stream(tokenizer);
    StopFilter filter({"no such text"});
    std::string decoded, certain;
    const auto all = [&] {
      for (text::TokenId token = 0; token < static_cast<text::TokenId>(std::min<size_t>(tokenizer.vocabulary_size(), 400));
           ++token) {
        decoded.clear();
        certain.clear();
        stream.push(token, decoded);
        filter.push(decoded, certain);
      }
    };
    all();
    all();  // a run of bytes is collected in two buffers by turns
    const uint64_t before = g_allocations.load();
    all();
    EXPECT_EQ(g_allocations.load(), before);
  }
}

TEST(Allocation, TheSchedulersSteps) {
  const text::Tokenizer tokenizer = testing::character_tokenizer();
  for (const int n_threads : {1, 2}) {
    Scheduler scheduler(load("llama", Arithmetic::kFast, n_threads), tokenizer,
                        {.n_slots = 3, .context = 256, .chunk = 64, .max_queue = 8, .cache = "f16"});
    uint64_t spent = 0;
    for (int round = 0; round < 3; ++round) {
      std::vector<std::shared_ptr<Ticket>> tickets;
      for (size_t i = 0; i < 3; ++i) {
        Request r;
        r.prompt.assign(20, static_cast<text::TokenId>(10 + i));
        r.max_tokens = 200;
        r.ignore_eos = true;
        r.stop = {"no such text"};
        r.sampling = samplings()[i];
        tickets.push_back(scheduler.submit(std::move(r)));
      }
      // Only the scheduler's thread is at work between these two.
      const auto wait_for = [&](uint64_t tokens) {
        while (scheduler.stats().rows < tokens) std::this_thread::yield();
      };
      const auto rows_before = static_cast<uint64_t>(round) * (60 + 3 * 199);
      wait_for(rows_before + 60 + 3 * 60);
      const uint64_t before = g_allocations.load();
      wait_for(rows_before + 60 + 3 * 120);
      spent = g_allocations.load() - before;
      for (const auto& ticket : tickets) {
        std::vector<Piece> pieces;
        while (ticket->next(pieces, std::chrono::milliseconds::max())) {
        }
        EXPECT_EQ(ticket->result().tokens, 200u) << ticket->result().error;
      }
    }
    // The list of pieces that nobody took yet may double.
    EXPECT_LE(spent, n_threads == 1 ? 3u : 20u) << n_threads << " threads";
  }
}

}  // namespace
}  // namespace kpd::llm
