// tests: a scheduler that gets no memory. In turn every allocation of its thread fails: the request that is concerned ends, as
// failed or whole, the process lives, and the next request is answered as if nothing had been. This program replaces operator
// new.
#include <gtest/gtest.h>

#include <atomic>

#include "base/replaced_new.h"
#include "kpd/base/error.h"
#include "kpd/llm/scheduler.h"
#include "text/tokenizer_fixture.h"

namespace {

std::atomic<int64_t> g_until_failure{-1};  // allocations of the scheduler's thread before one fails; below 0: none will
thread_local bool t_spared = false;        // this thread's never fail

}  // namespace

void kpd::testing::before_allocation() {
  if (!t_spared && g_until_failure.load() >= 0 && g_until_failure.fetch_sub(1) == 0) throw std::bad_alloc();
}

namespace kpd::llm {
namespace {

Model load() {
  return Model::load(str(KPD_TESTS_DIR, "/golden/models/llama"),
                     {.arithmetic = Arithmetic::kExact, .n_threads = 1, .limits = {}});
}

// Prompts of one kind go on from one another, those of different kinds share nothing.
Request request(size_t kind, size_t n_prompt) {
  Request r;
  for (size_t i = 0; i < n_prompt; ++i)
    r.prompt.push_back(static_cast<text::TokenId>((7 * i + 13 * kind + i * i * (kind + 1)) % 90));
  r.max_tokens = 6;
  r.ignore_eos = true;
  r.top_logprobs = 2;
  r.stop = {"never written, and longer than what a string holds in itself"};
  r.sampling.repeat_penalty = 1.1;
  r.sampling.frequency_penalty = 0.1;
  return r;
}

struct Answer {
  std::string text, error;
};

Answer answer_to(Scheduler& scheduler, Request r, int64_t allocations_until_failure) {
  const auto ticket = scheduler.submit([&] {
    g_until_failure.store(allocations_until_failure);
    return std::move(r);
  }());
  Answer answer;
  std::vector<Piece> pieces;
  while (ticket->next(pieces, std::chrono::milliseconds(1000))) {
    for (const Piece& piece : pieces) answer.text += piece.text;
  }
  answer.error = ticket->result().error;
  g_until_failure.store(-1);
  return answer;
}

TEST(SchedulerMemory, AFailedAllocationEndsNoMoreThanItsRequest) {
  t_spared = true;
  const text::Tokenizer tokenizer = testing::character_tokenizer();
  SchedulerOptions options{.n_slots = 1, .context = 160, .chunk = 32, .cache = "f32"};
  options.kept_bytes = 1 << 20;
  std::vector<std::string> expected;
  {
    Scheduler scheduler(load(), tokenizer, options);
    for (size_t kind = 0; kind < 3; ++kind) expected.push_back(answer_to(scheduler, request(kind, 100), -1).text);
  }
  size_t n_failed = 0, n_whole = 0;
  Scheduler scheduler(load(), tokenizer, options);
  for (int64_t at = 0; n_whole < 8; ++at) {
    ASSERT_LT(at, 2000);
    const size_t kind = static_cast<size_t>(at) % 3;
    const Answer answer = answer_to(scheduler, request(kind, 100), at);
    if (answer.error.empty()) {
      ++n_whole;
      EXPECT_EQ(answer.text, expected[kind]) << at;
    } else {
      ++n_failed;
      n_whole = 0;
    }
    const size_t next = (kind + 1) % 3;
    const Answer after = answer_to(scheduler, request(next, 100), -1);
    EXPECT_EQ(after.error, "") << at;
    EXPECT_EQ(after.text, expected[next]) << at;
  }
  EXPECT_GT(n_failed, 20u);
  EXPECT_EQ(scheduler.stats().failed, n_failed);
}

}  // namespace
}  // namespace kpd::llm
