// io: the numbers of GGUF that reader and writer share.
#pragma once

#include <cstdint>
#include <string_view>

namespace kpd::io {

constexpr std::string_view kGgufMagic = "GGUF";
constexpr std::string_view kAlignmentKey = "general.alignment";
constexpr uint32_t kDefaultAlignment = 32;
// A mapping is aligned to pages; more than a huge page asks for nothing that a reader could give.
constexpr uint64_t kMinAlignment = 8, kMaxAlignment = uint64_t{1} << 21;
constexpr uint32_t kMaxDims = 4;
constexpr uint64_t kMinPairBytes = 8 + 4 + 1;            // length of the key, type, value
constexpr uint64_t kMinTensorBytes = 8 + 4 + 0 + 4 + 8;  // length of the name, dimensions, type, offset

enum class GgufType : uint32_t {
  kUint8 = 0,
  kInt8 = 1,
  kUint16 = 2,
  kInt16 = 3,
  kUint32 = 4,
  kInt32 = 5,
  kFloat32 = 6,
  kBool = 7,
  kString = 8,
  kArray = 9,
  kUint64 = 10,
  kInt64 = 11,
  kFloat64 = 12,
};

enum class GgufKind { kUnsigned, kSigned, kReal, kBool, kText, kArray };

constexpr GgufKind kind_of(GgufType type) {
  switch (type) {
    case GgufType::kUint8:
    case GgufType::kUint16:
    case GgufType::kUint32:
    case GgufType::kUint64:
      return GgufKind::kUnsigned;
    case GgufType::kInt8:
    case GgufType::kInt16:
    case GgufType::kInt32:
    case GgufType::kInt64:
      return GgufKind::kSigned;
    case GgufType::kFloat32:
    case GgufType::kFloat64:
      return GgufKind::kReal;
    case GgufType::kBool:
      return GgufKind::kBool;
    case GgufType::kString:
      return GgufKind::kText;
    case GgufType::kArray:
      break;
  }
  return GgufKind::kArray;
}

// The fewest bytes that an item takes in the file: a text is its length at least.
constexpr uint64_t min_item_bytes(GgufType type) {
  switch (type) {
    case GgufType::kUint8:
    case GgufType::kInt8:
    case GgufType::kBool:
      return 1;
    case GgufType::kUint16:
    case GgufType::kInt16:
      return 2;
    case GgufType::kUint32:
    case GgufType::kInt32:
    case GgufType::kFloat32:
      return 4;
    default:
      return 8;
  }
}

}  // namespace kpd::io
