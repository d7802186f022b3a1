// Slots ask the cache what of a sequence can be reused before they choose one or wait for one, and go on from what it left.
#include "llm/scheduler_slots.h"

#include <gtest/gtest.h>

#include <map>
#include <numeric>

#include "kpd/base/error.h"
#include "text/tokenizer_fixture.h"

namespace kpd::llm {
namespace {

// Holds nothing, and says of each sequence how many tokens can be reused, and by how many less it cuts than it was asked to.
class SomeCache final : public KvCache {
 public:
  std::map<SequenceId, size_t> most;
  size_t lost = 0;
  std::vector<std::string> calls;

  cache::Cut crop(SequenceId sequence, size_t length) override {
    calls.push_back(str("crop ", sequence, " to ", length));
    return {length - std::min(length, lost), true};
  }
  cache::Cut fork(SequenceId from, SequenceId to, size_t length) override {
    calls.push_back(str("fork ", from, " to ", to, ": ", length));
    return {length - std::min(length, lost), true};
  }
  size_t reusable(SequenceId sequence, size_t n) const override {
    const auto it = most.find(sequence);
    return it == most.end() ? n : std::min(n, it->second);
  }

  void begin(const CacheBatch& /*batch*/) override {}
  void commit() override {}
  size_t length(SequenceId /*s*/) const override { return 0; }
  int32_t next_position(SequenceId /*s*/) const override { return 0; }
  void evict(SequenceId /*s*/, size_t /*first*/, size_t /*n*/, const cache::KeyRotation* /*rotation*/) override {}
  cache::Plan plan(SequenceId /*s*/) const override { return {}; }
  void set_plan(SequenceId /*s*/, const cache::Plan& /*plan*/) override {}
  std::vector<uint8_t> save(SequenceId /*s*/, std::string_view /*fingerprint*/) const override { return {}; }
  void load(SequenceId /*s*/, std::span<const uint8_t> /*b*/, std::string_view /*f*/, std::string_view /*n*/) override {}
  std::span<const cache::Layer> layers() const override { return {}; }
  std::string spec(size_t /*layer*/) const override { return ""; }
  uint64_t bytes() const override { return 0; }
  uint64_t capacity_bytes() const override { return 0; }
  uint64_t bytes_for(size_t tokens) const override { return tokens; }
  size_t capacity() const override { return 0; }

 protected:
  void attend_rows(size_t /*layer*/, const float* /*q*/, const float* /*k*/, const float* /*v*/, float* /*out*/,
                   const cache::AttendOptions& /*options*/) override {}
  size_t pending_rows() const override { return 0; }
};

std::vector<text::TokenId> tokens_of(size_t n) {
  std::vector<text::TokenId> tokens(n);
  std::iota(tokens.begin(), tokens.end(), 0);
  return tokens;
}

Request request_of(size_t n) {
  Request r;
  r.prompt = tokens_of(n);
  return r;
}

TEST(Slots, TakeWhatCanBeReused) {
  for (const size_t most : {size_t{0}, size_t{64}, size_t{1000}}) {
    SomeCache cache;
    cache.most[0] = most;
    Slots slots(1, cache, 0);
    slots.all()[0].tokens = tokens_of(100);
    const size_t expected = std::min<size_t>(most, 100);
    EXPECT_EQ(slots.prepare(request_of(200)).tokens.size(), expected);
    EXPECT_EQ(cache.calls, std::vector<std::string>{str("crop 0 to ", expected)});
  }
}

// Less in common, but more of it can be reused.
TEST(Slots, ChooseTheSequenceOfWhichMostCanBeReused) {
  SomeCache cache;
  Slots slots(3, cache, 0);
  slots.all()[0].tokens = tokens_of(150);
  slots.all()[1].tokens = tokens_of(100);
  cache.most[0] = 40;
  const Slot& slot = slots.prepare(request_of(200));
  EXPECT_EQ(slot.id, 1u);
  EXPECT_EQ(slot.tokens.size(), 100u);
}

TEST(Slots, GoOnFromWhatIsLeft) {
  SomeCache cache;
  cache.lost = 20;
  Slots slots(2, cache, 0);
  slots.all()[0].tokens = tokens_of(100);
  EXPECT_EQ(slots.prepare(request_of(90)).tokens.size(), 69u);  // 89 were asked for
  slots.all()[0].tokens = tokens_of(400);
  slots.all()[1].tokens.clear();
  EXPECT_EQ(slots.prepare(request_of(90)).tokens.size(), 69u);  // a copy
  EXPECT_EQ(cache.calls.back(), "fork 0 to 1: 89");
}

TEST(Slots, WaitForWhatCanBeReused) {
  const text::Tokenizer tokenizer = testing::character_tokenizer();
  SomeCache cache;
  Slots slots(2, cache, 0);
  Slot& reading = slots.all()[0];
  reading.running = std::make_unique<Running>(tokenizer, request_of(90), std::make_shared<Ticket>());
  reading.tokens = tokens_of(10);
  EXPECT_TRUE(slots.worth_waiting(request_of(90)));
  cache.most[0] = 30;
  EXPECT_FALSE(slots.worth_waiting(request_of(90)));
}

}  // namespace
}  // namespace kpd::llm
