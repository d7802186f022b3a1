// tests: the Shakespeare network: its size, its examples, and that it learns.
#include "kpd/train/char_lstm.h"

#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <fstream>

#include <unistd.h>

#include "base/expect_error.h"
#include "kpd/train/federate.h"

namespace kpd::train {
namespace {

class RolesFile {
 public:
  explicit RolesFile(const std::string& content)
      : path_((std::filesystem::path(::testing::TempDir()) / ("kpd_roles_" + std::to_string(::getpid()) + ".jsonl")).string()) {
    std::ofstream(path_, std::ios::binary) << content;
  }
  ~RolesFile() { std::filesystem::remove(path_); }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

std::string role(const std::string& name, const std::string& text) {
  return R"({"client": ")" + name + R"(", "text": ")" + text + "\"}\n";
}

std::string repeated(const std::string& text, int times) {
  std::string all;
  for (int i = 0; i < times; ++i) all += text;
  return all;
}

TextData small_data() {
  const RolesFile file(role("A", repeated("abcdefgh ", 60)) + role("B", repeated("to be or not ", 30)) +
                       role("C", "short text."));
  return load_text_data(file.path());
}

TEST(TextData, RolesAreClientsAndTheLastFifthIsTest) {
  const TextData data = small_data();
  ASSERT_EQ(data.clients.size(), 3u);
  // A: 540 characters, 432 for training: bos + 432 + eos in pieces of 80 = 6 examples; B: 312 + 2 -> 4; C: 9 + 2 -> 1.
  EXPECT_EQ(data.clients[0].size(), 6u);
  EXPECT_EQ(data.clients[1].size(), 4u);
  EXPECT_EQ(data.clients[2].size(), 1u);
  EXPECT_EQ(data.train_examples(), 11u);
  EXPECT_EQ(data.test_examples(), 2u + 1u + 1u);
  const uint8_t* const first = data.train.data();
  EXPECT_EQ(first[0], kBos);
  EXPECT_EQ(first[1], symbol_of('a'));
  EXPECT_EQ(first[kSequence], first[kSequence + 1]);  // examples overlap in one symbol
  const uint8_t* const last = data.train.data() + uint64_t{data.clients[2][0]} * (kSequence + 1);
  EXPECT_EQ(last[10], kEos);
  EXPECT_EQ(last[11], kPad);
}

TEST(TextData, SymbolsAreThe86CharactersAndOneForTheRest) {
  std::vector<bool> seen(kSymbols, false);
  int known = 0;
  for (int c = 0; c < 256; ++c) {
    const uint8_t s = symbol_of(static_cast<char>(c));
    ASSERT_LT(s, kSymbols);
    if (s == kOov) continue;
    EXPECT_FALSE(seen[s]);
    seen[s] = true;
    ++known;
  }
  EXPECT_EQ(known, 86);
  EXPECT_EQ(symbol_of('\t'), kOov);
}

TEST(TextData, TestExamplesAreThinnedEvenly) {
  const RolesFile file(role("A", repeated("abcdefgh ", 1000)));
  EXPECT_EQ(load_text_data(file.path()).test_examples(), 23u);
  EXPECT_EQ(load_text_data(file.path(), 5).test_examples(), 5u);
}

TEST(TextData, WrongFilesAreNamedWithTheLine) {
  EXPECT_KPD_ERROR(kIo, "/nowhere/roles.jsonl: cannot be read", load_text_data("/nowhere/roles.jsonl"));
  EXPECT_KPD_ERROR(kCorruptData, "holds no role", load_text_data(RolesFile("").path()));
  for (const char* bad : {"{", "[1]", R"({"client": "A"})", R"({"client": "A", "text": 5})"}) {
    const RolesFile file(role("A", "fine") + bad);
    EXPECT_KPD_ERROR(kCorruptData, ": line 2: expected a JSON object", load_text_data(file.path()));
  }
}

TEST(CharLstm, HasThePapersNumberOfParameters) {
  const auto task = make_char_lstm("shakespeare-lstm", small_data());
  uint64_t count = 0;
  for (const auto& info : task->manifest()) count += info.count();
  EXPECT_EQ(count, 820522u);
}

TEST(CharLstm, StartsAsKerasDoesAndLearns) {
  const auto task = make_char_lstm("shakespeare-lstm", small_data());
  const auto worker = task->make_worker();
  task->initialise(1, worker->parameters());
  const TestSum before = worker->evaluate(0, task->test_examples());
  EXPECT_NEAR(before.loss / static_cast<double>(before.examples), std::log(90.0), .1);
  // Real characters only: 108 + 2 - 1, 78 + 1 and 2 + 1 targets.
  EXPECT_EQ(before.examples, 109u + 79u + 3u);
  CounterRng unused(1);
  std::vector<uint32_t> all(11);
  for (uint32_t i = 0; i < 11; ++i) all[i] = i;
  double first = 0, last = 0;
  for (int i = 0; i < 6; ++i) {
    last = worker->step(all, 1.0f, unused);
    if (i == 0) first = last;
  }
  EXPECT_LT(last, .9 * first);
  // The same steps give the same bits.
  const std::vector<float> trained(worker->parameters().begin(), worker->parameters().end());
  const auto other = task->make_worker();
  task->initialise(1, other->parameters());
  for (int i = 0; i < 6; ++i) other->step(all, 1.0f, unused);
  EXPECT_TRUE(std::equal(trained.begin(), trained.end(), other->parameters().begin()));
}

TEST(CharLstm, IsTrainedByItsOwnClients) {
  const auto task = make_char_lstm("shakespeare-lstm", small_data());
  FederateOptions options;
  options.codecs = {"eden:bits=4"};
  options.rounds = 1;
  options.clients = 3;
  options.clients_per_round = 2;
  options.batch = 4;
  const FederateResult result = federate(*task, options);
  EXPECT_EQ(result.codecs[0].clients_ok, 2u);
  options.clients = 4;
  EXPECT_KPD_ERROR(kInvalidArgument, "the data of task shakespeare-lstm has 3", federate(*task, options));
}

}  // namespace
}  // namespace kpd::train
