// tests: block formats against the files in tests/golden/blocks, which the gguf package wrote, bit for bit.
#include "kpd/quant/blocks.h"

#include <array>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <limits>
#include <string>
#include <vector>

#include "base/expect_error.h"
#include "kpd/base/dtype.h"

namespace kpd::quant {
namespace {

constexpr BlockType kWritten[] = {BlockType::kF32,  BlockType::kF16,  BlockType::kBF16, BlockType::kQ8_0,  BlockType::kQ4_0,
                                  BlockType::kQ4_1, BlockType::kQ5_0, BlockType::kQ5_1, BlockType::kIQ4_NL};

std::vector<uint8_t> golden(const std::string& name) {
  std::ifstream in(std::filesystem::path(KPD_TESTS_DIR) / "golden" / "blocks" / name, std::ios::binary);
  EXPECT_TRUE(in.good()) << name;
  return {std::istreambuf_iterator<char>(in), {}};
}

std::vector<float> golden_floats(const std::string& name) {
  const std::vector<uint8_t> bytes = golden(name);
  std::vector<float> values(bytes.size() / sizeof(float));
  if (!values.empty()) std::memcpy(values.data(), bytes.data(), bytes.size());
  return values;
}

TEST(Blocks, DecodesAsGguf) {
  for (const BlockTypeInfo& info : block_types()) {
    SCOPED_TRACE(info.name);
    const std::vector<uint8_t> blocks = golden(std::string(info.name) + ".blocks");
    const std::vector<float> expected = golden_floats(std::string(info.name) + ".floats");
    ASSERT_EQ(expected.size(), 1024u);
    std::vector<float> values(expected.size());
    dequantize_blocks(info.type, blocks, 0, values);
    for (size_t i = 0; i < values.size(); ++i) {
      ASSERT_EQ(std::bit_cast<uint32_t>(values[i]), std::bit_cast<uint32_t>(expected[i])) << "value " << i;
    }
  }
}

TEST(Blocks, DecodesAnyBlocksOfARow) {
  for (const BlockTypeInfo& info : block_types()) {
    SCOPED_TRACE(info.name);
    const std::vector<uint8_t> blocks = golden(std::string(info.name) + ".blocks");
    const std::vector<float> expected = golden_floats(std::string(info.name) + ".floats");
    for (const size_t first : {size_t{0}, size_t{256}, size_t{768}, size_t{1024}}) {
      for (size_t n = 0; first + n <= 1024; n += 256) {
        std::vector<float> values(n + 2, 7.0f);
        dequantize_blocks(info.type, blocks, first, std::span<float>(values).subspan(1, n));
        EXPECT_EQ(n > 0 ? std::memcmp(values.data() + 1, expected.data() + first, n * sizeof(float)) : 0, 0);
        EXPECT_EQ(values.front(), 7.0f);
        EXPECT_EQ(values.back(), 7.0f);
      }
    }
  }
}

TEST(Blocks, EncodesAsGguf) {
  const std::vector<float> input = golden_floats("input.floats");
  ASSERT_GT(input.size(), 1024u);
  for (const BlockType type : kWritten) {
    const BlockTypeInfo& info = block_type_info(type);
    SCOPED_TRACE(info.name);
    const std::vector<uint8_t> expected = golden(std::string(info.name) + ".quantized");
    ASSERT_EQ(expected.size(), input.size() / info.block_values * info.block_bytes);
    std::vector<uint8_t> blocks(expected.size());
    quantize_blocks(type, input, blocks);
    for (size_t i = 0; i < blocks.size(); ++i) {
      ASSERT_EQ(blocks[i], expected[i]) << "block " << i / info.block_bytes << " byte " << i % info.block_bytes;
    }
  }
}

// What ggml leaves to the machine gives the same here on every one, and under the sanitizers nothing undefined.
TEST(Blocks, EncodesWhatIsNotFinite) {
  constexpr float kInf = std::numeric_limits<float>::infinity(), kNan = std::numeric_limits<float>::quiet_NaN();
  for (const BlockType type : kWritten) {
    const BlockTypeInfo& info = block_type_info(type);
    for (const float odd : {kInf, -kInf, kNan, 1e-45f, -1e-39f, std::numeric_limits<float>::max()}) {
      std::array<float, 32> values{};
      values[3] = odd;
      values[4] = -odd / 2;
      std::vector<uint8_t> blocks(32 / info.block_values * info.block_bytes);
      EXPECT_NO_THROW(quantize_blocks(type, values, blocks)) << info.name << " " << odd;
    }
  }
}

// d = 0 / -8, whatever the zeros' signs, as ggml has it.
TEST(Blocks, EncodesZeros) {
  for (const float zero : {0.0f, -0.0f}) {
    const std::vector<float> values(32, zero);
    std::vector<uint8_t> block(18);
    quantize_blocks(BlockType::kQ4_0, values, block);
    std::vector<uint8_t> expected(18, 0x88);
    expected[0] = 0;
    expected[1] = 0x80;
    EXPECT_EQ(block, expected);
  }
}

TEST(Blocks, EncodedValuesAreNear) {
  const std::vector<float> input = golden_floats("input.floats");
  std::vector<float> near(1024);
  std::vector<uint8_t> blocks(1024 / 32 * 34);
  quantize_blocks(BlockType::kQ8_0, std::span<const float>(input).first(1024), blocks);
  dequantize_blocks(BlockType::kQ8_0, blocks, 0, near);
  for (size_t i = 0; i < 1024; ++i) EXPECT_NEAR(near[i], input[i], 0.03);
}

TEST(Blocks, RefusesSizesThatDoNotFit) {
  std::vector<uint8_t> bytes(2 * 144);
  std::vector<float> values(512);
  const std::span<float> all(values);
  const auto decode = [&](size_t n_bytes, uint64_t first, size_t n) {
    dequantize_blocks(BlockType::kQ4_K, std::span<const uint8_t>(bytes).first(n_bytes), first, all.first(n));
  };
  EXPECT_NO_THROW(decode(288, 0, 512));
  EXPECT_KPD_ERROR(kInvalidArgument, "287 bytes of Q4_K, expected whole blocks of 256 values in 144 bytes",
                   decode(287, 0, 256));
  EXPECT_KPD_ERROR(kInvalidArgument, "expected whole blocks", decode(288, 32, 256));
  EXPECT_KPD_ERROR(kInvalidArgument, "expected whole blocks", decode(288, 0, 255));
  EXPECT_KPD_ERROR(kInvalidArgument, "values 256 to 768 asked of a row of 512", decode(288, 256, 512));
  EXPECT_KPD_ERROR(kInvalidArgument, "asked of a row of 512", decode(288, uint64_t{0} - 256, 256));
  const auto encode = [&](BlockType type, size_t n, size_t n_bytes) {
    quantize_blocks(type, all.first(n), std::span<uint8_t>(bytes).first(n_bytes));
  };
  EXPECT_KPD_ERROR(kInvalidArgument, "33 values into 34 bytes of Q8_0", encode(BlockType::kQ8_0, 33, 34));
  EXPECT_KPD_ERROR(kInvalidArgument, "64 values into 34 bytes of Q8_0", encode(BlockType::kQ8_0, 64, 34));
  EXPECT_KPD_ERROR(kInvalidArgument, "32 values into 35 bytes of Q8_0", encode(BlockType::kQ8_0, 32, 35));
  EXPECT_KPD_ERROR(kUnsupported, "values cannot be written as Q6_K, expected one of F32, F16",
                   encode(BlockType::kQ6_K, 256, 210));
}

}  // namespace
}  // namespace kpd::quant
