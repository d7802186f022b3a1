// tests: damaged GGUF files. Each kind gives exactly one kpd::Error that names the file, the place and what was expected.
// tests/corrupt/gguf holds each kind as a frozen file: what was refused once stays refused.
#include <filesystem>
#include <fstream>
#include <iterator>
#include <set>

#include "base/expect_error.h"
#include "io/gguf_damages.h"
#include "kpd/io/gguf.h"

namespace kpd::io {
namespace {

using testing::GgufBytes;
using testing::GgufDamage;
using Bytes = std::vector<uint8_t>;

std::vector<GgufDamage> all_damages() {
  std::vector<GgufDamage> all = testing::gguf_header_damages();
  for (GgufDamage& d : testing::gguf_value_damages()) all.push_back(std::move(d));
  for (GgufDamage& d : testing::gguf_tensor_damages()) all.push_back(std::move(d));
  return all;
}

void check_wording(const Error& e) {
  const std::string text = e.what();
  EXPECT_EQ(text.rfind("hostile.gguf: ", 0), 0u) << text;
  EXPECT_EQ(text.find('\n'), std::string::npos) << text;
  EXPECT_LT(text.size(), 300u) << text;
  EXPECT_TRUE(e.code() == ErrorCode::kCorruptData || e.code() == ErrorCode::kUnsupported ||
              e.code() == ErrorCode::kLimitExceeded)
      << text;
}

// True if the file is accepted, and then every tensor lies within it; a refusal must be well worded.
bool accepted(const Bytes& bytes) {
  try {
    const GgufFile file = parse_gguf(bytes, "hostile.gguf");
    for (const WeightEntry& t : file.tensors) {
      EXPECT_GE(t.bytes.data(), bytes.data());
      EXPECT_LE(t.bytes.data() + t.bytes.size(), bytes.data() + bytes.size());
    }
    return true;
  } catch (const Error& e) {
    check_wording(e);
    return false;
  }
}

void expect_damage(const GgufDamage& d, const Bytes& bytes) {
  SCOPED_TRACE(d.name);
  try {
    (void)parse_gguf(bytes, "hostile.gguf");
    ADD_FAILURE() << "accepted, expected: " << d.part;
  } catch (const Error& e) {
    check_wording(e);
    EXPECT_EQ(std::string(error_code_name(e.code())), error_code_name(d.code)) << e.what();
    EXPECT_NE(std::string(e.what()).find(d.part), std::string::npos) << "text: " << e.what() << "\nexpected part: " << d.part;
  }
}

std::filesystem::path frozen_folder() { return std::filesystem::path(KPD_TESTS_DIR) / "corrupt" / "gguf"; }
bool is_frozen(const GgufDamage& d) { return d.name[0] != '~'; }

Bytes read_bytes(const std::filesystem::path& path) {
  std::ifstream in(path, std::ios::binary);
  EXPECT_TRUE(in.good()) << path;
  return {std::istreambuf_iterator<char>(in), {}};
}

TEST(GgufCorrupt, EveryKindOfDamage) {
  for (const GgufDamage& d : all_damages()) expect_damage(d, d.bytes);
}

TEST(GgufCorrupt, FrozenFilesStayRefused) {
  std::set<std::string> names;
  for (const GgufDamage& d : all_damages()) {
    if (!is_frozen(d)) continue;
    EXPECT_TRUE(names.insert(d.name + ".gguf").second) << "two damages are named " << d.name;
    expect_damage(d, read_bytes(frozen_folder() / (d.name + ".gguf")));
  }
  for (const auto& entry : std::filesystem::directory_iterator(frozen_folder())) {
    EXPECT_EQ(names.count(entry.path().filename().string()), 1u) << entry.path() << " is in no list";
  }
}

// Writes tests/corrupt/gguf; run by hand after a new kind was added: --gtest_also_run_disabled_tests --gtest_filter='*Record*'
TEST(GgufCorrupt, DISABLED_Record) {
  std::filesystem::create_directories(frozen_folder());
  for (const GgufDamage& d : all_damages()) {
    const std::filesystem::path path = frozen_folder() / (d.name + ".gguf");
    if (!is_frozen(d) || std::filesystem::exists(path)) continue;
    std::ofstream out(path, std::ios::binary);
    out.write(reinterpret_cast<const char*>(d.bytes.data()), static_cast<std::streamsize>(d.bytes.size()));
  }
}

TEST(GgufCorrupt, EveryTruncation) {
  const Bytes good = testing::sound_gguf();
  EXPECT_TRUE(accepted(good));
  for (size_t n = 0; n < good.size(); ++n) EXPECT_FALSE(accepted({good.begin(), good.begin() + static_cast<long>(n)})) << n;
  // Padding and more may follow: files differ in it.
  Bytes longer = good;
  longer.resize(longer.size() + 100, 0xff);
  EXPECT_TRUE(accepted(longer));
}

TEST(GgufCorrupt, EveryByteChanged) {
  const Bytes good = testing::sound_gguf();
  for (size_t i = 0; i < good.size(); ++i) {
    for (int change = 1; change < 256; ++change) {
      Bytes b = good;
      b[i] = static_cast<uint8_t>(b[i] ^ change);
      (void)accepted(b);
    }
  }
}

TEST(GgufCorrupt, LimitsOfTheCaller) {
  const Bytes good = testing::sound_gguf();
  Limits limits;
  const auto parse = [&] { (void)parse_gguf(good, "hostile.gguf", limits); };
  EXPECT_NO_THROW(parse());
  limits.max_tensors = 2;
  EXPECT_KPD_ERROR(kLimitExceeded, "byte 8: 3 tensors, the limit is 2", parse());
  limits = {};
  limits.max_elements = 63;
  EXPECT_KPD_ERROR(kLimitExceeded, "tensor 'w': more elements in the shape than the limit of 63", parse());
  limits = {};
  limits.max_total_elements = 70;
  EXPECT_KPD_ERROR(kLimitExceeded, "more than 70 elements in all tensors", parse());
  limits = {};
  limits.max_name_bytes = 19;
  EXPECT_KPD_ERROR(kLimitExceeded, "key: 20 bytes, the limit is 19", parse());
  limits = {};
  for (limits.max_header_bytes = 0; limits.max_header_bytes < 220; ++limits.max_header_bytes) {
    if (limits.max_header_bytes >= testing::sound_gguf_head().out.size()) {
      EXPECT_NO_THROW(parse());
    } else {
      EXPECT_KPD_ERROR(kLimitExceeded, str("more bytes than the limit of ", limits.max_header_bytes), parse());
    }
  }
  EXPECT_GT(limits.max_header_bytes, testing::sound_gguf_head().out.size());
}

}  // namespace
}  // namespace kpd::io
