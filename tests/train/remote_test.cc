// tests: federated training over an engine: the same numbers as in one process, and a server that goes on without failing
// ranks.
#include <gtest/gtest.h>

#include <mutex>
#include <thread>

#include "base/expect_error.h"
#include "kpd/base/bytes.h"
#include "kpd/base/crc32.h"
#include "kpd/comm/inprocess.h"
#include "kpd/train/federate.h"
#include "toy_task.h"
#include "train/codec_run.h"

namespace kpd::train {
namespace {

FederateOptions remote_options() {
  FederateOptions options = toy_options();
  options.codecs = {"eden:bits=2,block=64", "float32"};
  options.rounds = 6;
  options.eval_every = 3;
  return options;
}

// What a rank does instead of training; default: train.
using RankBody = std::function<void(int rank, comm::Exchange& exchange, const ToyTask& task)>;

struct Outcome {
  FederateResult result;
  std::vector<std::string> warnings;
};

Outcome run(const FederateOptions& options, int ranks, const RankBody& body = {}, const ServerOptions& server = {}) {
  auto group = comm::make_inprocess_group(ranks);
  const ToyTask task;
  std::vector<std::thread> threads;
  for (int r = 1; r < ranks; ++r) {
    threads.emplace_back([&, r] {
      comm::Exchange& exchange = *group[static_cast<size_t>(r)];
      body ? body(r, exchange, task) : federate_rank(task, options, {}, exchange);
      group[static_cast<size_t>(r)].reset();
    });
  }
  Outcome outcome;
  FederateCallbacks callbacks;
  callbacks.on_warning = [&](const std::string& text) { outcome.warnings.push_back(text); };
  outcome.result = federate_server(task, options, callbacks, *group[0], server);
  for (std::thread& t : threads) t.join();
  return outcome;
}

// Passes on all but the weight of a rank's messages, which it multiplies.
class Rogue final : public comm::Exchange {
 public:
  explicit Rogue(comm::Exchange& under) : under_(under) {}
  std::string_view engine() const override { return under_.engine(); }
  int rank() const override { return under_.rank(); }
  int size() const override { return under_.size(); }
  void send(int to, uint32_t tag, std::vector<uint8_t> bytes) override {
    if (tag >= kUpdateTag) {
      store_u64(bytes.data() + 64, 1000000 * load_u64(bytes.data() + 64));
      const size_t body = bytes.size() - 4;
      store_u32(bytes.data() + body, crc32(std::span(bytes).first(body)));
    }
    under_.send(to, tag, std::move(bytes));
  }
  comm::Delivery receive(int from, uint32_t tag, std::vector<uint8_t>& bytes, comm::Milliseconds timeout) override {
    return under_.receive(from, tag, bytes, timeout);
  }
  bool lost(int peer) const override { return under_.lost(peer); }
  bool flush(comm::Milliseconds timeout) override { return under_.flush(timeout); }
  comm::Traffic traffic() const override { return under_.traffic(); }

 private:
  comm::Exchange& under_;
};

void expect_equal(const FederateResult& a, const FederateResult& b) {
  ASSERT_EQ(a.codecs.size(), b.codecs.size());
  for (size_t i = 0; i < a.codecs.size(); ++i) {
    EXPECT_EQ(a.codecs[i].model, b.codecs[i].model) << a.codecs[i].codec;
    EXPECT_EQ(a.codecs[i].uplink_bytes, b.codecs[i].uplink_bytes);
    EXPECT_EQ(a.codecs[i].downlink_bytes, b.codecs[i].downlink_bytes);
    EXPECT_EQ(a.codecs[i].final_accuracy, b.codecs[i].final_accuracy);
    EXPECT_EQ(a.codecs[i].dropped, b.codecs[i].dropped);
  }
}

TEST(Remote, NumbersAreThoseOfOneProcess) {
  for (const char* downlink : {"float32", "eden:bits=4,block=64"}) {
    FederateOptions options = remote_options();
    options.downlink = downlink;
    options.drop = .2;
    const ToyTask task;
    const FederateResult local = federate(task, options);
    for (const int ranks : {2, 4}) {
      const Outcome remote = run(options, ranks);
      expect_equal(local, remote.result);
      EXPECT_TRUE(remote.warnings.empty());
    }
    EXPECT_GT(local.codecs[0].dropped, 0u);
  }
}

// Its clients are trained by the others: no number changes.
TEST(Remote, ALostRanksClientsAreDealtOutAgain) {
  const Outcome o = run(remote_options(), 3, [](int rank, comm::Exchange& exchange, const ToyTask& task) {
    if (rank == 1) return federate_rank(task, remote_options(), {}, exchange);
    FederateCallbacks callbacks;
    std::atomic<int> steps{0};
    callbacks.stopped = [&] { return ++steps > 20; };
    EXPECT_KPD_ERROR(kCancelled, "interrupted", federate_rank(task, remote_options(), callbacks, exchange));
  });
  ASSERT_EQ(o.result.codecs.size(), 2u);
  EXPECT_EQ(o.result.codecs[1].rounds, 6u);
  expect_equal(federate(ToyTask(), remote_options()), o.result);
  ASSERT_EQ(o.warnings.size(), 1u);
  EXPECT_NE(o.warnings[0].find(": rank 2 is gone: "), std::string::npos) << o.warnings[0];
  EXPECT_NE(o.warnings[0].find(" of its clients are dealt out again"), std::string::npos) << o.warnings[0];
}

// Rank 2 stands still in the middle of a round, until the server has given it up and beyond: one time-out is waited, once; then
// it gets no clients until all that it owed has come, and then some again. No number changes.
TEST(Remote, ASilentRankCostsOneTimeOutAndComesBack) {
  FederateOptions options = remote_options();
  options.codecs = {"eden:bits=2,block=64"};
  options.downlink = "eden:bits=4,block=64";  // so that the rank has to be told the clients' model when it comes back
  options.rounds = 24;
  options.eval_every = 1;
  ServerOptions server;
  server.timeout = comm::Milliseconds(800);  // a busy machine's other rank answers within it
  auto group = comm::make_inprocess_group(3);
  const ToyTask task;
  std::atomic<int> steps{0}, steps_before{0};
  std::atomic<bool> given_up{false};
  std::thread well([&] { federate_rank(task, options, {}, *group[1], server); });
  std::thread slow([&] {
    FederateCallbacks callbacks;
    callbacks.stopped = [&] {
      if (++steps != 20) return false;
      while (!given_up) std::this_thread::sleep_for(std::chrono::milliseconds(5));
      std::this_thread::sleep_for(std::chrono::milliseconds(200));
      return false;
    };
    federate_rank(task, options, callbacks, *group[2], server);
  });
  std::vector<std::string> warnings;
  FederateCallbacks callbacks;
  callbacks.on_warning = [&](const std::string& text) {
    warnings.push_back(text);
    given_up = true;
  };
  callbacks.on_evaluation = [&](const Evaluation&) { std::this_thread::sleep_for(std::chrono::milliseconds(50)); };
  const FederateResult result = federate_server(task, options, callbacks, *group[0], server);
  steps_before = steps.load();
  well.join();
  slow.join();
  expect_equal(federate(task, options), result);
  ASSERT_EQ(warnings.size(), 2u);
  EXPECT_NE(warnings[0].find(": rank 2 sent nothing in time: "), std::string::npos) << warnings[0];
  EXPECT_NE(warnings[1].find(": rank 2 answers again"), std::string::npos) << warnings[1];
  EXPECT_GT(steps_before.load(), 40);  // it took part after it had come back
}

// Nobody is left who could train a silent rank's clients: they count as dropped, and the rank is asked again.
TEST(Remote, TheOnlyRankIsAskedAgain) {
  FederateOptions options = remote_options();
  options.codecs = {"float32"};
  ServerOptions server;
  server.timeout = comm::Milliseconds(700);
  std::atomic<int> steps{0};
  const Outcome o = run(
      options, 2,
      [&](int, comm::Exchange& exchange, const ToyTask& task) {
        FederateCallbacks callbacks;
        callbacks.stopped = [&] {
          if (++steps == 30) std::this_thread::sleep_for(std::chrono::milliseconds(1050));
          return false;
        };
        federate_rank(task, options, callbacks, exchange, server);
      },
      server);
  const CodecResult& r = o.result.codecs.at(0);
  EXPECT_EQ(r.rounds, 6u);
  EXPECT_GT(r.dropped, 0u);
  EXPECT_LE(r.dropped, 10u);
  EXPECT_EQ(r.dropped + r.clients_ok, 30u);
}

// One of the ranks says that its clients weigh a million times what they do.
TEST(Remote, AWeightThatIsNotTheClientsIsRefused) {
  FederateOptions options = remote_options();
  options.codecs = {"float32"};
  options.rounds = 1;
  const Outcome o = run(options, 3, [&](int rank, comm::Exchange& exchange, const ToyTask& task) {
    if (rank == 1) return federate_rank(task, options, {}, exchange);
    Rogue rogue(exchange);
    federate_rank(task, options, {}, rogue);
  });
  EXPECT_EQ(o.result.codecs[0].refused, 2u);
  EXPECT_EQ(o.result.codecs[0].clients_ok, 3u);
  ASSERT_EQ(o.warnings.size(), 2u);
  EXPECT_NE(o.warnings[0].find("of rank 2: refused: the message has weight 40000000, expected 40"), std::string::npos)
      << o.warnings[0];
}

TEST(Remote, AHostileRankIsRefusedAndNamed) {
  FederateOptions options = remote_options();
  options.codecs = {"eden:bits=2,block=64"};
  options.rounds = 3;
  const Outcome o = run(options, 3, [&](int rank, comm::Exchange& exchange, const ToyTask& task) {
    if (rank == 1) return federate_rank(task, options, {}, exchange);
    // Greets by the book, by echoing the server's greeting, then sends garbage for both its clients of every round.
    std::vector<uint8_t> message;
    ASSERT_EQ(exchange.receive(0, kControlTag, message, comm::Milliseconds(5000)), comm::Delivery::kReceived);
    exchange.send(0, kControlTag, message);
    constexpr uint8_t kRound = 3, kEnd = 5;
    do {
      ASSERT_EQ(exchange.receive(0, kControlTag, message, comm::Milliseconds(5000)), comm::Delivery::kReceived);
      if (message[4] != kRound) continue;
      for (uint32_t slot : {1u, 3u}) exchange.send(0, kUpdateTag + slot, std::vector<uint8_t>(300, 0x4b));
    } while (message[4] != kEnd);
  });
  const CodecResult& r = o.result.codecs[0];
  EXPECT_EQ(r.clients_ok, 9u);
  EXPECT_EQ(r.refused, 6u);
  EXPECT_EQ(r.dropped, 0u);
  ASSERT_FALSE(o.warnings.empty());
  EXPECT_NE(o.warnings[0].find("of rank 2: refused: "), std::string::npos) << o.warnings[0];
}

TEST(Remote, UpdatesLongerThanTheLimitAreRefusedAndTheModelStays) {
  FederateOptions options = remote_options();
  options.codecs = {"float32"};
  options.rounds = 2;
  ServerOptions server;
  server.max_norm = 1e-9;
  const Outcome o = run(options, 2, {}, server);
  EXPECT_EQ(o.result.codecs[0].refused, 10u);
  EXPECT_EQ(o.result.codecs[0].clients_ok, 0u);
  options.rounds = 1;
  EXPECT_EQ(run(options, 2, {}, server).result.codecs[0].model, o.result.codecs[0].model);
  EXPECT_NE(o.warnings[0].find("norm"), std::string::npos) << o.warnings[0];
}

TEST(Remote, OtherOptionsAreNamed) {
  auto group = comm::make_inprocess_group(2);
  const ToyTask task;
  std::thread rank([&] {
    FederateOptions other = remote_options();
    other.batch = 11;
    EXPECT_KPD_ERROR(kMismatch, "rank 0 was started with other options", federate_rank(task, other, {}, *group[1]));
  });
  EXPECT_KPD_ERROR(kMismatch, "rank 1 was started with other options", federate_server(task, remote_options(), {}, *group[0]));
  rank.join();
  auto alone = comm::make_inprocess_group(1);
  EXPECT_KPD_ERROR(kInvalidArgument, "2 ranks or more", federate_server(task, remote_options(), {}, *alone[0]));
}

// A test of the model takes the server longer than its ranks would wait for a silent one.
TEST(Remote, RanksWaitForAServerThatShowsLife) {
  auto group = comm::make_inprocess_group(2);
  FederateOptions options = remote_options();
  options.codecs = {"float32"};
  options.rounds = 2;
  options.eval_every = 1;
  ServerOptions server;
  server.timeout = comm::Milliseconds(300);
  const ToyTask task;
  std::thread rank([&] { federate_rank(task, options, {}, *group[1], server); });
  FederateCallbacks callbacks;
  callbacks.on_evaluation = [](const Evaluation&) { std::this_thread::sleep_for(std::chrono::milliseconds(1500)); };
  const FederateResult result = federate_server(task, options, callbacks, *group[0], server);
  rank.join();
  EXPECT_EQ(result.codecs.at(0).rounds, 2u);
}

// Its rounds would all be played without a client.
TEST(Remote, AServerWithoutRanksFails) {
  auto group = comm::make_inprocess_group(2);
  const ToyTask task;
  std::thread rank([&] {
    FederateCallbacks callbacks;
    std::atomic<int> steps{0};
    callbacks.stopped = [&] { return ++steps > 20; };
    EXPECT_KPD_ERROR(kCancelled, "interrupted", federate_rank(task, remote_options(), callbacks, *group[1]));
    group[1].reset();
  });
  EXPECT_KPD_ERROR(kIo, "no rank that trains is left", federate_server(task, remote_options(), {}, *group[0]));
  rank.join();
}

// Ctrl-C reaches all ranks of a machine: the clients that did not answer for it are no part of a round.
TEST(Remote, AStopAbandonsTheRound) {
  FederateOptions options = remote_options();
  options.codecs = {"eden:bits=2,block=64"};
  options.checkpoint = ::testing::TempDir() + "remote_stop.checkpoint";
  const ToyTask task;
  const FederateResult straight = federate(task, remote_options());
  std::atomic<bool> stopped{false};
  for (const bool resume : {false, true}) {
    auto group = comm::make_inprocess_group(2);
    options.resume = resume;
    std::thread rank([&] {
      FederateCallbacks callbacks;
      std::atomic<int> steps{0};
      callbacks.stopped = [&] {
        if (!resume && ++steps > 45) stopped = true;
        return stopped.load();
      };
      try {
        federate_rank(task, options, callbacks, *group[1]);
      } catch (const Error& e) {
        EXPECT_EQ(e.code(), ErrorCode::kCancelled);
      }
      group[1].reset();
    });
    FederateCallbacks callbacks;
    callbacks.stopped = [&] { return stopped.load(); };
    const FederateResult result = federate_server(task, options, callbacks, *group[0]);
    rank.join();
    EXPECT_EQ(result.stopped, !resume);
    EXPECT_EQ(result.codecs.at(0).dropped, 0u);
    if (resume) {
      EXPECT_EQ(result.codecs.at(0).model, straight.codecs.at(0).model);
    } else {
      EXPECT_LT(result.codecs.at(0).rounds, options.rounds);
    }
    stopped = false;
  }
}

}  // namespace
}  // namespace kpd::train
