// A file that becomes shorter while it is mapped: what is read by read() is an error, never a signal.
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <string>
#include <vector>

#include "base/expect_error.h"
#include "kpd/base/error.h"
#include "kpd/io/file.h"
#include "kpd/io/weights.h"

namespace kpd::io {
namespace {

namespace fs = std::filesystem;

class CutFile : public ::testing::Test {
 protected:
  CutFile() : path_(fs::temp_directory_path() / ("kpd-cut-" + std::to_string(getpid()))) {
    for (size_t i = 0; i < bytes_.size(); ++i) bytes_[i] = static_cast<uint8_t>(i * 7 + i / 256);
    write_file(path_, bytes_);
  }
  ~CutFile() override { fs::remove(path_); }

  std::string path_;
  std::vector<uint8_t> bytes_ = std::vector<uint8_t>(50000);
};

std::vector<uint8_t> read(const MappedFile& file, size_t offset, size_t n) {
  std::vector<uint8_t> to(n);
  file.read(offset, to);
  return to;
}

TEST_F(CutFile, ReadGivesTheBytesOfTheMapping) {
  for (const Handle handle : {Handle::kKeep, Handle::kClose}) {
    const MappedFile file = map_file(path_, handle);
    for (const size_t offset : {size_t{0}, size_t{1}, size_t{4095}, size_t{49999}, size_t{50000}}) {
      const size_t n = std::min<size_t>(5000, bytes_.size() - offset);
      const auto begin = bytes_.begin() + static_cast<std::ptrdiff_t>(offset);
      EXPECT_TRUE(std::ranges::equal(read(file, offset, n), std::span(begin, n))) << offset;
    }
    std::vector<uint8_t> to(2);
    EXPECT_KPD_ERROR(kInvalidArgument, "read beyond its 50000 bytes", file.read(49999, to));
    EXPECT_KPD_ERROR(kInvalidArgument, "read beyond its 50000 bytes", file.read(SIZE_MAX, to));
  }
}

TEST_F(CutFile, WhatIsGoneIsAnError) {
  MappedFile moved;
  {
    MappedFile file = map_file(path_, Handle::kKeep);
    moved = std::move(file);
  }
  fs::resize_file(path_, 20000);
  EXPECT_EQ(read(moved, 0, 20000).back(), bytes_[19999]);
  for (const size_t offset : {size_t{19999}, size_t{20000}, size_t{49000}}) {
    std::vector<uint8_t> to(100);
    try {
      moved.read(offset, to);
      FAIL() << "no error at " << offset;
    } catch (const Error& e) {
      EXPECT_EQ(e.code(), ErrorCode::kIo);
      EXPECT_NE(std::string(e.what()).find(path_), std::string::npos) << e.what();
      EXPECT_NE(std::string(e.what()).find("shorter"), std::string::npos) << e.what();
    }
  }
}

TEST_F(CutFile, WeightsAreReadSo) {
  const fs::path model = fs::path(KPD_TESTS_DIR) / "golden/models/chat/model.safetensors";
  fs::copy_file(model, path_ + ".safetensors", fs::copy_options::overwrite_existing);
  const Weights weights = Weights::open(path_ + ".safetensors");
  const WeightEntry& last = *std::max_element(weights.tensors().begin(), weights.tensors().end(),
                                              [](const auto& a, const auto& b) { return a.bytes.data() < b.bytes.data(); });
  std::vector<uint8_t> copy(last.bytes.size());
  weights.read(last.bytes.data(), copy);
  EXPECT_TRUE(std::ranges::equal(copy, last.bytes));
  SCOPED_TRACE("bytes of nobody");
  EXPECT_KPD_ERROR(kInvalidArgument, "none of its weights", weights.read(copy.data(), copy));
  fs::resize_file(path_ + ".safetensors", fs::file_size(model) / 2);
  EXPECT_KPD_ERROR(kIo, "became shorter", weights.read(last.bytes.data(), copy));
  fs::remove(path_ + ".safetensors");
}

}  // namespace
}  // namespace kpd::io
