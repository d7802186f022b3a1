// tests: the exchange's contract on its reference engine, ranks as threads.
#include "kpd/comm/inprocess.h"

#include <gtest/gtest.h>

#include <atomic>
#include <thread>

#include "comm/inbox.h"
#include "kpd/base/error.h"

namespace kpd::comm {
namespace {

using Bytes = std::vector<uint8_t>;
constexpr Milliseconds kLong{5000}, kShort{20};

TEST(InProcess, DeliversInOrderByRankAndTag) {
  auto group = make_inprocess_group(3);
  std::thread one([&] {
    for (uint8_t i = 0; i < 10; ++i) {
      group[1]->send(0, 7, {i, 1});
      group[1]->send(0, 8, {i, 2});
    }
  });
  std::thread two([&] {
    for (uint8_t i = 0; i < 10; ++i) group[2]->send(0, 7, {i, 3});
  });
  Bytes b;
  for (uint8_t i = 0; i < 10; ++i) {
    ASSERT_EQ(group[0]->receive(2, 7, b, kLong), Delivery::kReceived);
    EXPECT_EQ(b, (Bytes{i, 3}));
    ASSERT_EQ(group[0]->receive(1, 8, b, kLong), Delivery::kReceived);
    EXPECT_EQ(b, (Bytes{i, 2}));
    ASSERT_EQ(group[0]->receive(1, 7, b, kLong), Delivery::kReceived);
    EXPECT_EQ(b, (Bytes{i, 1}));
  }
  one.join();
  two.join();
  EXPECT_EQ(group[0]->traffic().received_messages, 30u);
  EXPECT_EQ(group[0]->traffic().received_bytes, 60u);
  EXPECT_EQ(group[1]->traffic().sent_messages, 20u);
}

TEST(InProcess, TimesOutAndLeavesTheBufferAlone) {
  auto group = make_inprocess_group(2);
  Bytes b{9};
  EXPECT_EQ(group[0]->receive(1, 1, b, kShort), Delivery::kTimedOut);
  EXPECT_EQ(b, Bytes{9});
  group[1]->send(0, 1, {});
  EXPECT_EQ(group[0]->receive(1, 1, b, kLong), Delivery::kReceived);
  EXPECT_TRUE(b.empty());
}

TEST(InProcess, WhatALostRankSentIsStillDelivered) {
  auto group = make_inprocess_group(2);
  group[1]->send(0, 1, {5});
  group[1].reset();
  Bytes b;
  EXPECT_EQ(group[0]->receive(1, 1, b, kLong), Delivery::kReceived);
  EXPECT_EQ(group[0]->receive(1, 1, b, kLong), Delivery::kLost);
  EXPECT_TRUE(group[0]->lost(1));
  group[0]->send(1, 1, {1});  // vanishes
  EXPECT_TRUE(group[0]->flush(kShort));
}

TEST(InProcess, RefusesWhatItsContractExcludes) {
  auto group = make_inprocess_group(2, {.max_message_bytes = 4});
  const auto code = [](const auto& call) {
    try {
      call();
    } catch (const Error& e) {
      return e.code();
    }
    return ErrorCode::kInternal;
  };
  Bytes b;
  EXPECT_EQ(code([&] { group[0]->send(0, 1, {}); }), ErrorCode::kInvalidArgument);
  EXPECT_EQ(code([&] { group[0]->send(2, 1, {}); }), ErrorCode::kInvalidArgument);
  EXPECT_EQ(code([&] { group[0]->send(1, 1u << 30, {}); }), ErrorCode::kInvalidArgument);
  EXPECT_EQ(code([&] { group[0]->receive(-1, 1, b, kShort); }), ErrorCode::kInvalidArgument);
  EXPECT_EQ(code([&] { group[0]->send(1, 1, Bytes(5)); }), ErrorCode::kLimitExceeded);
  EXPECT_EQ(code([&] { make_inprocess_group(0); }), ErrorCode::kInvalidArgument);
}

// Only what comes from elsewhere needs a limit.
TEST(InProcess, TakesMessagesOfAnyLength) {
  const ExchangeLimits strict;
  auto group = make_inprocess_group(2);
  Bytes huge;
  huge.resize(strict.max_message_bytes + 1);
  group[1]->send(0, 1, std::move(huge));
  Bytes b;
  ASSERT_EQ(group[0]->receive(1, 1, b, kLong), Delivery::kReceived);
  EXPECT_EQ(b.size(), strict.max_message_bytes + 1);
}

TEST(Inbox, ReadsAheadUpToItsLimitAndAlwaysWhatIsWaitedFor) {
  Inbox inbox(3, {.max_message_bytes = 100, .max_waiting_bytes = 10});
  ASSERT_TRUE(inbox.try_reserve(1, 7));  // counts before a byte of it is here
  EXPECT_FALSE(inbox.try_reserve(2, 4));
  EXPECT_TRUE(inbox.try_reserve(2, 3));
  inbox.release(2, 3);  // it did not come
  inbox.deliver(1, 1, Bytes(7));
  Bytes b;
  std::thread reader([&] { EXPECT_EQ(inbox.receive(2, 1, b, kLong), Delivery::kReceived); });
  EXPECT_TRUE(inbox.reserve(2, 50));  // because receive() waits for rank 2
  EXPECT_FALSE(inbox.try_reserve(1, 1));
  inbox.deliver(2, 1, Bytes(50));
  reader.join();
  EXPECT_EQ(b.size(), 50u);
  EXPECT_FALSE(inbox.try_reserve(2, 4));
  ASSERT_EQ(inbox.receive(1, 1, b, kLong), Delivery::kReceived);
  EXPECT_TRUE(inbox.try_reserve(2, 10));
  std::thread waiter([&] { EXPECT_FALSE(inbox.reserve(1, 1)); });
  inbox.close();
  waiter.join();
}

// A message that is ready, but was not read for lack of room, is not late.
TEST(Inbox, WaitsForWhatItHeldBack) {
  Inbox inbox(3, {.max_message_bytes = 100, .max_waiting_bytes = 10});
  inbox.put(1, 1, Bytes(10));
  std::atomic<bool> held_back{false};
  std::thread engine([&] {
    held_back = !inbox.try_reserve(2, 5);
    ASSERT_TRUE(inbox.reserve(2, 5));
    std::this_thread::sleep_for(kShort);  // it travels
    inbox.deliver(2, 1, Bytes(5));
  });
  while (!held_back) std::this_thread::yield();
  Bytes b;
  EXPECT_EQ(inbox.receive(2, 1, b, Milliseconds(0)), Delivery::kReceived);
  engine.join();
  EXPECT_EQ(inbox.receive(2, 1, b, Milliseconds(0)), Delivery::kTimedOut);
}

// A rank whose messages of two tags were held back, and the one asked for is the second.
TEST(Inbox, WaitsForWhatStandsBehindWhatItHeldBack) {
  Inbox inbox(3, {.max_message_bytes = 100, .max_waiting_bytes = 10});
  inbox.put(1, 1, Bytes(10));
  std::atomic<bool> held_back{false};
  std::thread engine([&] {
    held_back = !inbox.try_reserve(2, 5);
    for (const uint32_t tag : {7u, 8u}) {
      ASSERT_TRUE(inbox.reserve(2, 5));
      inbox.deliver(2, tag, Bytes(5));
    }
  });
  while (!held_back) std::this_thread::yield();
  Bytes b;
  EXPECT_EQ(inbox.receive(2, 8, b, Milliseconds(0)), Delivery::kReceived);
  engine.join();
}

// A sender gets rid of a message beyond the limit while another rank is waited for.
TEST(Inbox, AnEmptyInboxTakesAMessageOfAnySize) {
  Inbox inbox(3, {.max_message_bytes = 100, .max_waiting_bytes = 10});
  EXPECT_TRUE(inbox.try_reserve(1, 50));
  EXPECT_FALSE(inbox.try_reserve(2, 1));
  inbox.release(1, 50);
  EXPECT_TRUE(inbox.try_reserve(2, 1));
}

TEST(InProcess, WaitsForEverIfAsked) {
  auto group = make_inprocess_group(2);
  std::thread one([&] {
    std::this_thread::sleep_for(kShort);
    group[1]->send(0, 1, {5});
  });
  Bytes b;
  EXPECT_EQ(group[0]->receive(1, 1, b, Milliseconds::max()), Delivery::kReceived);
  one.join();
}

}  // namespace
}  // namespace kpd::comm
