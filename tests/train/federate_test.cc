// tests: federated training on a toy task: learning, repetition, resumption, clients that drop out.
#include "kpd/train/federate.h"

#include <gtest/gtest.h>

#include <atomic>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <functional>

#include <unistd.h>

#include "kpd/base/error.h"
#include "toy_task.h"
#include "train/checkpoint.h"

namespace kpd::train {
namespace {

class Folder {
 public:
  Folder() {
    static std::atomic<int> number{0};
    path_ = std::filesystem::path(testing::TempDir()) /
            ("kpd_federate_test_" + std::to_string(::getpid()) + "_" + std::to_string(number++));
    std::filesystem::create_directory(path_);
  }
  ~Folder() { std::filesystem::remove_all(path_); }
  std::string file(const char* name) const { return (path_ / name).string(); }

 private:
  std::filesystem::path path_;
};

std::string message_of(const std::function<void()>& fn, ErrorCode expected) {
  try {
    fn();
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), expected) << e.what();
    return e.what();
  }
  ADD_FAILURE() << "nothing was thrown";
  return "";
}

void expect_same_run(const CodecResult& a, const CodecResult& b) {
  EXPECT_EQ(a.codec, b.codec);
  EXPECT_EQ(a.rounds, b.rounds);
  EXPECT_EQ(a.model, b.model);  // bit for bit: no value is NaN
  EXPECT_EQ(a.uplink_bytes, b.uplink_bytes);
  EXPECT_EQ(a.downlink_bytes, b.downlink_bytes);
  EXPECT_EQ(a.clients_ok, b.clients_ok);
  EXPECT_EQ(a.dropped, b.dropped);
  EXPECT_EQ(a.update_vnmse, b.update_vnmse);
}

TEST(Federate, LearnsWithFloatsAndWithOneBit) {
  const ToyTask task;
  FederateOptions options = toy_options();
  options.codecs = {"float32", "eden:bits=1"};
  options.rounds = 20;
  std::vector<Evaluation> seen;
  FederateCallbacks callbacks;
  callbacks.on_evaluation = [&](const Evaluation& e) { seen.push_back(e); };
  const FederateResult result = federate(task, options, callbacks);
  ASSERT_EQ(result.codecs.size(), 2u);
  EXPECT_FALSE(result.stopped);
  const CodecResult &floats = result.codecs[0], &eden = result.codecs[1];
  EXPECT_GT(floats.final_accuracy, 0.9);
  EXPECT_GT(eden.final_accuracy, floats.final_accuracy - 0.05);
  // Evaluations after rounds 4, 8, 11...20 of each.
  EXPECT_EQ(seen.size(), 2 * 12u);
  EXPECT_EQ(floats.evaluations.size(), 12u);
  EXPECT_EQ(floats.evaluations[0].round, 4u);
  double sum = 0;
  for (size_t i = 2; i < 12; ++i) sum += floats.evaluations[i].accuracy;
  EXPECT_DOUBLE_EQ(floats.final_accuracy, sum / 10);
  // 260 numbers a message: floats cost more than their 4 bytes, 256 of 260 numbers at one bit cost far less.
  EXPECT_EQ(floats.float32_bytes, 20u * 5 * 260 * 4);
  EXPECT_GT(floats.uplink_bytes, floats.float32_bytes);
  EXPECT_EQ(floats.update_vnmse, 0);
  EXPECT_GT(eden.ratio(), 5);
  EXPECT_GT(eden.update_vnmse, 0.3);
  EXPECT_LT(eden.update_vnmse, 0.9);
  EXPECT_EQ(eden.clients_ok, 100u);
  EXPECT_EQ(eden.evaluations.back().uplink_bytes, eden.uplink_bytes);
}

TEST(Federate, ThreadsAndRepetitionChangeNothing) {
  const ToyTask task;
  FederateOptions options = toy_options();
  options.codecs = {"eden:bits=2"};
  const FederateResult one = federate(task, options);
  options.threads = 3;
  expect_same_run(one.codecs[0], federate(task, options).codecs[0]);
  options.seed = 4;
  EXPECT_NE(one.codecs[0].model, federate(task, options).codecs[0].model);
}

TEST(Federate, EveryCodecStartsFromTheSameModelAndClients) {
  const ToyTask task;
  FederateOptions options = toy_options();
  options.codecs = {"eden:bits=1", "float32"};
  const FederateResult both = federate(task, options);
  options.codecs = {"float32"};
  expect_same_run(both.codecs[1], federate(task, options).codecs[0]);
}

struct ResumeCase {
  const char* name;
  void (*change)(FederateOptions&);
};
class FederateResume : public testing::TestWithParam<ResumeCase> {};

TEST_P(FederateResume, TwoRoundsAndTwoMoreEqualFour) {
  const Folder folder;
  const ToyTask task;
  FederateOptions options = toy_options();
  options.codecs = {"eden:bits=1", "float32"};
  options.rounds = 4;
  GetParam().change(options);
  const FederateResult straight = federate(task, options);
  options.checkpoint = folder.file("run.ckpt");
  options.rounds = 2;
  federate(task, options);
  options.rounds = 4;
  options.resume = true;
  const FederateResult resumed = federate(task, options);
  ASSERT_EQ(resumed.codecs.size(), straight.codecs.size());
  for (size_t i = 0; i < straight.codecs.size(); ++i) expect_same_run(straight.codecs[i], resumed.codecs[i]);
}

INSTANTIATE_TEST_SUITE_P(All, FederateResume,
                         testing::Values(ResumeCase{"adam", [](FederateOptions&) {}},
                                         ResumeCase{"sgd", [](FederateOptions& o) { o.server = Server::kSgd; }},
                                         ResumeCase{"momentum",
                                                    [](FederateOptions& o) {
                                                      o.server = Server::kSgd;
                                                      o.server_momentum = 0.9;
                                                    }},
                                         ResumeCase{"drop_and_clip",
                                                    [](FederateOptions& o) {
                                                      o.drop = 0.3;
                                                      o.clip = 0.1;
                                                      o.sampling = Sampling::kWeighted;
                                                      o.weights = Weights::kUniform;
                                                      o.local_epochs = 2;
                                                    }},
                                         ResumeCase{"downlink", [](FederateOptions& o) { o.downlink = "eden:bits=2"; }}),
                         [](const auto& test) { return test.param.name; });

TEST(Federate, StopLeavesACheckpointThatContinuesWithTheSameBits) {
  const Folder folder;
  const ToyTask task;
  FederateOptions options = toy_options();
  options.codecs = {"eden:bits=1", "eden:bits=2"};
  options.rounds = 5;
  const FederateResult straight = federate(task, options);
  options.checkpoint = folder.file("run.ckpt");
  // Stop at ever later steps, until a run comes through.
  int stops = 0;
  for (;; ++stops) {
    std::atomic<int> polls{0};
    FederateCallbacks callbacks;
    callbacks.stopped = [&] { return ++polls > 37; };
    options.resume = stops > 0;
    const FederateResult result = federate(task, options, callbacks);
    ASSERT_LT(stops, 100);
    if (result.stopped) continue;
    ASSERT_EQ(result.codecs.size(), 2u);
    for (size_t i = 0; i < 2; ++i) {
      expect_same_run(straight.codecs[i], result.codecs[i]);
      EXPECT_EQ(straight.codecs[i].evaluations.size(), result.codecs[i].evaluations.size());
      EXPECT_EQ(straight.codecs[i].final_accuracy, result.codecs[i].final_accuracy);
    }
    break;
  }
  EXPECT_GT(stops, 3);
}

TEST(Federate, ResumeRefusesOtherSettingsAndWarnsOfAnotherMachine) {
  const Folder folder;
  ToyTask task;
  FederateOptions options = toy_options();
  options.rounds = 2;
  options.checkpoint = folder.file("run.ckpt");
  federate(task, options);
  EXPECT_EQ(checkpoint_seed(options.checkpoint), 3u);
  options.resume = true;
  options.rounds = 3;

  FederateOptions other = options;
  other.seed = 99;
  const std::string text = message_of([&] { federate(task, other); }, ErrorCode::kMismatch);
  EXPECT_NE(text.find("seed 3, not 99"), std::string::npos) << text;
  other = options;
  other.rounds = 1;
  message_of([&] { federate(task, other); }, ErrorCode::kMismatch);
  other = options;
  other.codecs = {"eden:bits=1"};
  message_of([&] { federate(task, other); }, ErrorCode::kMismatch);
  const ToyTask other_data(804);
  message_of([&] { federate(other_data, options); }, ErrorCode::kMismatch);

  std::vector<std::string> warnings;
  FederateCallbacks callbacks;
  callbacks.on_warning = [&](const std::string& warning) { warnings.push_back(warning); };
  federate(task, options, callbacks);
  EXPECT_TRUE(warnings.empty());
  task.machine = "another";
  options.threads = 2;
  federate(task, options, callbacks);
  ASSERT_EQ(warnings.size(), 1u) << "threads change no result";
  EXPECT_NE(warnings[0].find("machine toy"), std::string::npos);
}

TEST(Federate, ResumeRefusesACheckpointOfWrongSizes) {
  const Folder folder;
  const ToyTask task;
  FederateOptions options = toy_options();
  options.rounds = 2;
  options.checkpoint = folder.file("run.ckpt");
  federate(task, options);
  const Checkpoint good = read_checkpoint(options.checkpoint);
  options.resume = true;
  for (int damage = 0; damage < 5; ++damage) {
    Checkpoint bad = good;
    RunState& run = bad.runs[0];
    if (damage == 0) run.model.pop_back();
    if (damage == 1) run.server.second.pop_back();
    if (damage == 2) run.heard = {1};
    if (damage == 3) run.codec = "eden:bits=1";
    if (damage == 4) run.downlink_rounds = {1, 2};
    write_checkpoint(options.checkpoint, bad);
    message_of([&] { federate(task, options); }, ErrorCode::kCorruptData);
  }
  options.checkpoint = folder.file("absent.ckpt");
  message_of([&] { federate(task, options); }, ErrorCode::kIo);
}

TEST(Federate, DroppedClientsSendNothing) {
  const ToyTask task;
  FederateOptions options = toy_options();
  const CodecResult all = federate(task, options).codecs[0];
  options.drop = 0.5;
  const CodecResult half = federate(task, options).codecs[0];
  EXPECT_EQ(half.dropped + half.clients_ok, 60u);
  EXPECT_GT(half.dropped, 15u);
  EXPECT_LT(half.dropped, 45u);
  EXPECT_EQ(half.uplink_bytes, all.uplink_bytes / 60 * half.clients_ok);
  EXPECT_EQ(half.downlink_bytes, all.downlink_bytes);
  options.drop = 1;
  const CodecResult none = federate(task, options).codecs[0];
  EXPECT_EQ(none.clients_ok, 0u);
  EXPECT_EQ(none.uplink_bytes, 0u);
  EXPECT_EQ(none.ratio(), 0);
}

TEST(Federate, AClientThatDivergesIsRefusedAndTheOthersGoOn) {
  ToyTask task;
  task.diverges_on = 17;
  FederateOptions options = toy_options();
  options.codecs = {"eden:bits=1"};
  options.clients_per_round = 20;  // so its owner takes part every round
  const CodecResult result = federate(task, options).codecs[0];
  EXPECT_EQ(result.refused, 12u);
  EXPECT_EQ(result.clients_ok, 12u * 19);
  for (const float v : result.model) ASSERT_TRUE(std::isfinite(v));
  EXPECT_GT(result.final_accuracy, 0.8);
}

TEST(Federate, ClipBoundsTheUpdates) {
  const ToyTask task;
  FederateOptions options = toy_options();
  options.rounds = 1;
  double longest = 0;
  FederateCallbacks callbacks;
  callbacks.on_update = [&](const ClientUpdate& update) {
    double norm2 = 0;
    for (const float v : update.difference) norm2 += static_cast<double>(v) * v;
    longest = std::max(longest, std::sqrt(norm2));
  };
  federate(task, options, callbacks);
  EXPECT_GT(longest, 0.1);
  options.clip = 0.05;
  longest = 0;
  federate(task, options, callbacks);
  EXPECT_LE(longest, 0.05 * (1 + 1e-6));
  EXPECT_GT(longest, 0.049);
}

TEST(Federate, TheServerAveragesWhatTheClientsSent) {
  const ToyTask task;
  FederateOptions options = toy_options();
  options.rounds = 1;
  options.server = Server::kSgd;
  options.server_lr = 1;
  std::vector<double> sum(260);
  std::vector<uint64_t> clients;
  FederateCallbacks callbacks;
  callbacks.on_update = [&](const ClientUpdate& update) {
    EXPECT_EQ(update.examples, 40u);
    for (size_t i = 0; i < sum.size(); ++i) sum[i] += update.difference[i];
    clients.push_back(update.client);
  };
  const std::vector<float> after = federate(task, options, callbacks).codecs[0].model;
  EXPECT_EQ(clients.size(), 5u);
  options.drop = 1;
  const std::vector<float> before = federate(task, options).codecs[0].model;
  for (size_t i = 0; i < sum.size(); ++i) EXPECT_NEAR(after[i] - before[i], sum[i] / 5, 1e-6);
}

TEST(Federate, CompressedDownlinkTrainsAndIsCountedWithWhatAbsentClientsMissed) {
  const ToyTask task;
  FederateOptions options = toy_options();
  options.rounds = 20;
  const CodecResult plain = federate(task, options).codecs[0];
  options.downlink = "bf16";
  const CodecResult half = federate(task, options).codecs[0];
  EXPECT_NEAR(static_cast<double>(half.downlink_bytes), 0.5 * static_cast<double>(plain.downlink_bytes),
              0.15 * static_cast<double>(plain.downlink_bytes));
  EXPECT_GT(half.final_accuracy, plain.final_accuracy - 0.03);

  options.downlink = "eden:bits=4";
  options.clients_per_round = 20;  // nobody is ever absent
  const CodecResult present = federate(task, options).codecs[0];
  EXPECT_GT(present.final_accuracy, plain.final_accuracy - 0.03);
  EXPECT_LT(present.downlink_bytes * 2, plain.downlink_bytes * 4);
  options.clients_per_round = 5;
  const CodecResult absent = federate(task, options).codecs[0];
  // A quarter of the clients a round, but they catch up.
  EXPECT_GT(absent.downlink_bytes, present.downlink_bytes / 4);
  EXPECT_LT(absent.downlink_bytes, plain.downlink_bytes * 2);
  EXPECT_GT(absent.final_accuracy, plain.final_accuracy - 0.03);
}

// At half a bit scale=biased shortens every update to a third and less.
TEST(Federate, ErrorFeedbackMakesUpForBias) {
  const ToyTask task;
  FederateOptions options = toy_options();
  options.rounds = 20;
  options.error_feedback = true;
  options.codecs = {"float32", "eden:bits=0.5,scale=biased"};
  const FederateResult kept = federate(task, options);
  EXPECT_GT(kept.codecs[1].final_accuracy, kept.codecs[0].final_accuracy - 0.05);
  // What loses nothing keeps nothing; and threads decide nothing.
  options.threads = 3;
  EXPECT_EQ(federate(task, options).codecs[1].model, kept.codecs[1].model);
  options.error_feedback = false;
  options.codecs = {"float32"};
  EXPECT_EQ(federate(task, options).codecs[0].model, kept.codecs[0].model);
  options.error_feedback = true;
  options.codecs = {"eden:bits=0.1"};
  EXPECT_NE(message_of([&] { check_options(options); }, ErrorCode::kInvalidArgument)
                .find("codec: error feedback: what eden:bits=0.1"),
            std::string::npos);
  options.codecs = {"drive:scale=biased"};
  check_options(options);
  options.checkpoint = "x";
  EXPECT_NE(message_of([&] { check_options(options); }, ErrorCode::kInvalidArgument).find("error-feedback: "),
            std::string::npos);
}

TEST(Federate, RefusesToCountSizesTwice) {
  FederateOptions options = toy_options();
  options.sampling = Sampling::kWeighted;
  EXPECT_NE(message_of([&] { check_options(options); }, ErrorCode::kInvalidArgument).find("counts sizes twice"),
            std::string::npos);
  options.weights = Weights::kUniform;
  check_options(options);
}

TEST(Federate, RefusesWhatCannotTrain) {
  FederateOptions options = toy_options();
  options.codecs = {"eden:bits=1,scale=biased"};
  EXPECT_NE(message_of([&] { check_options(options); }, ErrorCode::kInvalidArgument).find("error feedback"), std::string::npos);
  options = toy_options();
  options.downlink = "eden:bits=0.1";
  EXPECT_NE(message_of([&] { check_options(options); }, ErrorCode::kInvalidArgument).find("without end"), std::string::npos);
  options.downlink = "eden:bits=0.1,scale=biased";
  check_options(options);
  options = toy_options();
  options.codecs = {"float32", "float32"};
  message_of([&] { check_options(options); }, ErrorCode::kInvalidArgument);
  options.codecs = {};
  message_of([&] { check_options(options); }, ErrorCode::kInvalidArgument);
}

TEST(Federate, RefusesOptionsOutOfRangeByName) {
  const std::pair<const char*, void (*)(FederateOptions&)> cases[] = {
      {"rounds", [](FederateOptions& o) { o.rounds = 0; }},
      {"clients-per-round", [](FederateOptions& o) { o.clients_per_round = 21; }},
      {"alpha", [](FederateOptions& o) { o.alpha = NAN; }},
      {"drop", [](FederateOptions& o) { o.drop = 1.5; }},
      {"batch", [](FederateOptions& o) { o.batch = 0; }},
      {"server-beta2", [](FederateOptions& o) { o.server_beta2 = 1; }},
      {"clip", [](FederateOptions& o) { o.clip = -1; }},
      {"eval-every", [](FederateOptions& o) { o.eval_every = 0; }},
      {"threads", [](FederateOptions& o) { o.threads = 0; }},
      {"resume", [](FederateOptions& o) { o.resume = true; }},
  };
  for (const auto& [name, change] : cases) {
    FederateOptions options = toy_options();
    change(options);
    EXPECT_EQ(message_of([&] { check_options(options); }, ErrorCode::kInvalidArgument).rfind(name, 0), 0u) << name;
  }
  const ToyTask task;
  FederateOptions options = toy_options();
  options.clients = 21;
  EXPECT_NE(message_of([&] { federate(task, options); }, ErrorCode::kInvalidArgument).find("840"), std::string::npos);
}

}  // namespace
}  // namespace kpd::train
