// tests: checkpoints of federated training: every field, every cut, every flipped byte.
#include "train/checkpoint.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>

#include "base/expect_error.h"
#include "kpd/base/bytes.h"
#include "kpd/base/error.h"
#include "kpd/base/crc32.h"

namespace kpd::train {
namespace {

Checkpoint example() {
  Checkpoint checkpoint;
  checkpoint.settings = {{"task", "toy"}, {"seed", "5"}};
  checkpoint.environment = {{"threads", "2"}};
  RunState run;
  run.codec = "eden:bits=1";
  run.round = 3;
  run.model = {1.5f, -0.0f, 3e-40f};
  run.server = {2, {0.5f, 1, 2}, {4, 5, 6}};
  run.client_model = {1, 2, 3};
  run.downlink_rounds = {100, 101, 102};
  run.heard = {0, 3};
  run.uplink_bytes = 1;
  run.downlink_bytes = 2;
  run.messages = 3;
  run.downloads = 4;
  run.clients_ok = 5;
  run.dropped = 6;
  run.refused = 7;
  run.norm2 = 0.25;
  run.error2 = 0.125;
  run.seconds = 9;
  run.evaluations = {{"eden:bits=1", 3, 0.5, 1.25, 10, 20, 30, 40, 50, 60}};
  checkpoint.runs = {run, run};
  checkpoint.runs[1].codec = "float32";
  checkpoint.runs[1].evaluations.clear();
  return checkpoint;
}

std::vector<uint8_t> seal(std::vector<uint8_t> bytes) {
  store_u32(bytes.data() + bytes.size() - 4, crc32(std::span(bytes).first(bytes.size() - 4)));
  return bytes;
}

ErrorCode code_of(const std::vector<uint8_t>& bytes) {
  try {
    parse_checkpoint(bytes, "file");
  } catch (const Error& e) {
    EXPECT_EQ(std::string(e.what()).rfind("file: byte ", 0), 0u) << e.what();
    return e.code();
  }
  return ErrorCode{};
}

TEST(Checkpoint, RoundTripKeepsEveryField) {
  const Checkpoint back = parse_checkpoint(serialise_checkpoint(example()), "file");
  EXPECT_EQ(back.settings, example().settings);
  EXPECT_EQ(back.environment, example().environment);
  ASSERT_EQ(back.runs.size(), 2u);
  const RunState& run = back.runs[0];
  EXPECT_EQ(run.model[2], 3e-40f);
  EXPECT_TRUE(std::signbit(run.model[1]));
  EXPECT_EQ(run.server.second, example().runs[0].server.second);
  EXPECT_EQ(run.heard, example().runs[0].heard);
  EXPECT_EQ(run.evaluations.at(0).refused, 50u);
  EXPECT_EQ(run.evaluations.at(0).codec, "") << "its text would be stored once an evaluation";
  // What is not compared by name above is compared as bytes.
  EXPECT_EQ(serialise_checkpoint(back), serialise_checkpoint(example()));
}

TEST(Checkpoint, EveryCutIsRefused) {
  const auto whole = serialise_checkpoint(example());
  for (size_t n = 0; n < whole.size(); ++n) {
    EXPECT_EQ(code_of({whole.begin(), whole.begin() + static_cast<std::ptrdiff_t>(n)}), ErrorCode::kCorruptData) << n;
  }
  auto longer = whole;
  longer.push_back(0);
  EXPECT_EQ(code_of(longer), ErrorCode::kCorruptData);
}

TEST(Checkpoint, EveryFlippedByteIsRefused) {
  const auto whole = serialise_checkpoint(example());
  for (size_t i = 0; i < whole.size(); ++i) {
    auto bad = whole;
    bad[i] ^= 0x40;
    EXPECT_NE(code_of(bad), ErrorCode{}) << i;
  }
}

// Valid checksum, hostile inside: every aligned and unaligned 8 bytes replaced by a huge count must be refused or harmless,
// never allocated.
TEST(Checkpoint, HugeCountsUnderAValidChecksumAllocateNothing) {
  const auto whole = serialise_checkpoint(example());
  size_t refused = 0;
  for (size_t i = 10; i + 12 <= whole.size(); ++i) {
    for (const uint64_t huge : {~uint64_t{0}, uint64_t{1} << 60, uint64_t{1} << 40}) {
      auto bad = whole;
      store_u64(bad.data() + i, huge);
      try {
        parse_checkpoint(seal(bad), "file");
      } catch (const Error& e) {
        EXPECT_EQ(e.code(), ErrorCode::kCorruptData) << i;
        ++refused;
      }
    }
  }
  EXPECT_GT(refused, whole.size());
}

// Errors show a checkpoint's texts.
TEST(Checkpoint, ControlCharactersInATextAreRefused) {
  Checkpoint checkpoint = example();
  checkpoint.environment[0].second += "\x1b[2J";
  EXPECT_EQ(code_of(serialise_checkpoint(checkpoint)), ErrorCode::kCorruptData);
}

TEST(Checkpoint, AnotherVersionIsUnsupported) {
  auto bytes = serialise_checkpoint(example());
  bytes[8] = 2;
  EXPECT_EQ(code_of(seal(bytes)), ErrorCode::kUnsupported);
}

TEST(Checkpoint, FilesAreWrittenWholeAndReadBack) {
  const std::string path = (std::filesystem::path(::testing::TempDir()) / "kpd_checkpoint_test.ckpt").string();
  write_checkpoint(path, example());
  EXPECT_EQ(serialise_checkpoint(read_checkpoint(path)), serialise_checkpoint(example()));
  std::filesystem::remove(path);
  try {
    read_checkpoint(path);
    FAIL();
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ErrorCode::kIo);
  }
  EXPECT_KPD_ERROR(kIo, "/nonexistent/folder/file", write_checkpoint("/nonexistent/folder/file", example()));
}

}  // namespace
}  // namespace kpd::train
