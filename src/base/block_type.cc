// base: the table of block types. Sizes are those of ggml's structs (ggml-common.h): codes, then 16-bit scales, per block.
#include "kpd/base/block_type.h"

#include <algorithm>
#include <array>

#include "kpd/base/error.h"

namespace kpd {
namespace {

constexpr std::array<BlockTypeInfo, 15> kTypes = {{
    {BlockType::kF32, "F32", 1, 4},
    {BlockType::kF16, "F16", 1, 2},
    {BlockType::kQ4_0, "Q4_0", 32, 18},
    {BlockType::kQ4_1, "Q4_1", 32, 20},
    {BlockType::kQ5_0, "Q5_0", 32, 22},
    {BlockType::kQ5_1, "Q5_1", 32, 24},
    {BlockType::kQ8_0, "Q8_0", 32, 34},
    {BlockType::kQ2_K, "Q2_K", 256, 84},
    {BlockType::kQ3_K, "Q3_K", 256, 110},
    {BlockType::kQ4_K, "Q4_K", 256, 144},
    {BlockType::kQ5_K, "Q5_K", 256, 176},
    {BlockType::kQ6_K, "Q6_K", 256, 210},
    {BlockType::kIQ4_NL, "IQ4_NL", 32, 18},
    {BlockType::kIQ4_XS, "IQ4_XS", 256, 136},
    {BlockType::kBF16, "BF16", 1, 2},
}};

}  // namespace

std::span<const BlockTypeInfo> block_types() { return kTypes; }

const BlockTypeInfo* find_block_type(uint32_t ggml_number) {
  const auto* it = std::find_if(kTypes.begin(), kTypes.end(),
                                [&](const BlockTypeInfo& info) { return static_cast<uint32_t>(info.type) == ggml_number; });
  return it == kTypes.end() ? nullptr : &*it;
}

const BlockTypeInfo& block_type_info(BlockType type) {
  const BlockTypeInfo* info = find_block_type(static_cast<uint32_t>(type));
  if (info == nullptr) fail(ErrorCode::kInternal, "block type ", static_cast<uint32_t>(type), " is not in the table");
  return *info;
}

DType float_dtype(BlockType type) {
  return type == BlockType::kF32 ? DType::kFloat32 : type == BlockType::kF16 ? DType::kFloat16 : DType::kBFloat16;
}

}  // namespace kpd
