// A model's file is cut while the model is in use: exact arithmetic, which reads weights where they lie, throws and goes on
// once the file is whole again; fast arithmetic reads nothing of it any more.
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "base/expect_error.h"
#include "kpd/base/error.h"
#include "kpd/io/file.h"
#include "kpd/llm/linear.h"
#include "kpd/llm/model.h"

namespace kpd::llm {
namespace {

namespace fs = std::filesystem;

std::vector<float> logits(Model& model) {
  const auto cache = model.make_cache("f32", 64);
  std::vector<BatchPart> batch(1);
  batch[0].tokens = {97, 98, 200, 3};
  const auto got = model.forward(batch, *cache);
  return {got.begin(), got.end()};
}

TEST(CutModel, ExactThrowsAndFastGoesOn) {
  const fs::path folder = fs::temp_directory_path() / ("kpd-cut-model-" + std::to_string(getpid()));
  for (const char* name : {"model.safetensors", "model.gguf"}) {
    for (const Arithmetic arithmetic : {Arithmetic::kExact, Arithmetic::kFast}) {
      fs::create_directories(folder);
      const fs::path source = fs::path(KPD_TESTS_DIR) / "golden/models/chat";
      fs::copy_file(source / "config.json", folder / "config.json", fs::copy_options::overwrite_existing);
      fs::copy_file(source / name, folder / name, fs::copy_options::overwrite_existing);
      const std::string path = std::string(name) == "model.gguf" ? (folder / name).string() : folder.string();
      Model model = Model::load(path, {.arithmetic = arithmetic, .n_threads = 2, .limits = {}});
      const std::vector<float> before = logits(model);
      const auto whole = io::map_file((source / name).string());
      for (const size_t share : {3, 2}) {
        fs::resize_file(folder / name, whole.bytes().size() * (share - 1) / share);
        if (arithmetic == Arithmetic::kFast) {
          EXPECT_EQ(logits(model), before) << name;
        } else {
          SCOPED_TRACE(name);
          EXPECT_KPD_ERROR(kIo, "became shorter while it was in use", logits(model));
        }
      }
      std::ofstream(folder / name, std::ios::in | std::ios::out | std::ios::binary)
          .write(reinterpret_cast<const char*>(whole.bytes().data()), static_cast<std::streamsize>(whole.bytes().size()));
      EXPECT_EQ(logits(model), before) << name;
      fs::remove_all(folder);
    }
  }
}

TEST(WeightSource, GathersRowsInAnyOrder) {
  constexpr size_t kRows = 100, kBytes = 32 * sizeof(float);
  std::vector<uint8_t> memory(kRows * kBytes);
  for (size_t i = 0; i < memory.size(); ++i) memory[i] = static_cast<uint8_t>(i / kBytes * 10 + i % 7);
  size_t n_reads = 0;
  const auto read = [&](const uint8_t* from, std::span<uint8_t> to) {
    ++n_reads;
    std::copy_n(from, to.size(), to.begin());
  };
  const std::vector<size_t> order = {4, 0, 1, 2, 5, 3};
  WeightSource source{"w", BlockType::kF32, 32, {}, {}};
  for (const size_t row : order) source.rows.push_back(memory.data() + row * kBytes);
  ASSERT_EQ(source.row_bytes(), kBytes);
  std::vector<const uint8_t*> at(kRows);
  std::vector<uint8_t> copies;
  const auto check = [&](size_t first, size_t n) {
    source.gather(first, n, copies, at.data());
    for (size_t i = 0; i < n; ++i) {
      EXPECT_TRUE(std::equal(at[i], at[i] + kBytes, memory.data() + order[first + i] * kBytes)) << first << " " << i;
    }
  };
  check(0, 6);
  EXPECT_EQ(at[1], memory.data()) << "memory is not copied";
  EXPECT_TRUE(copies.empty());
  source.read = read;
  check(0, 6);
  EXPECT_EQ(n_reads, 1u) << "rows that lie near each other are read at once";
  check(1, 3);
  check(5, 1);
  EXPECT_EQ(n_reads, 3u);
  // Far from each other: each by itself, and nothing of what lies between.
  WeightSource sparse{"w", BlockType::kF32, 32, {memory.data() + 99 * kBytes, memory.data()}, read};
  sparse.gather(0, 2, copies, at.data());
  EXPECT_EQ(n_reads, 5u);
  EXPECT_TRUE(std::equal(at[0], at[0] + kBytes, memory.data() + 99 * kBytes));
}

}  // namespace
}  // namespace kpd::llm
