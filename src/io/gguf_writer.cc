// io: writing GGUF version 3. Numbers take the 32 bits that readers of GGUF expect of them, and 64 where 32 do not hold them.
#include <algorithm>
#include <bit>
#include <limits>
#include <utility>

#include "kpd/base/bytes.h"
#include "kpd/base/error.h"
#include "kpd/io/gguf.h"
#include "kpd/io/tensor_entry.h"
#include "io/gguf_format.h"
#include "io/gguf_header.h"
#include "io/text.h"

namespace kpd::io {
namespace {

constexpr size_t kMaxKeyBytes = 65535;      // docs/gguf.md
constexpr size_t kMaxTensorNameBytes = 63;  // ggml keeps 64 with the final 0

class HeaderBytes {
 public:
  std::vector<uint8_t> out;

  void u8(uint8_t v) { out.push_back(v); }
  void u32(uint32_t v) {
    out.resize(out.size() + 4);
    store_u32(out.data() + out.size() - 4, v);
  }
  void u64(uint64_t v) {
    out.resize(out.size() + 8);
    store_u64(out.data() + out.size() - 8, v);
  }
  void text(std::string_view v) {
    u64(v.size());
    out.insert(out.end(), v.begin(), v.end());
  }
  void type(GgufType v) { u32(static_cast<uint32_t>(v)); }
  void pad(size_t alignment) { out.resize((out.size() + alignment - 1) / alignment * alignment); }

  void value(const GgufValue& v) {
    std::visit([&](const auto& x) { typed(x); }, v);
  }

 private:
  // The width that holds a value: 32 or 64 bits.
  static GgufType type_of(uint64_t v) { return std::in_range<uint32_t>(v) ? GgufType::kUint32 : GgufType::kUint64; }
  static GgufType type_of(int64_t v) { return std::in_range<int32_t>(v) ? GgufType::kInt32 : GgufType::kInt64; }
  static GgufType type_of(double v) {
    // Beyond float's range the conversion itself would be undefined.
    const bool large = v - v == 0 && (v > std::numeric_limits<float>::max() || v < std::numeric_limits<float>::lowest());
    const bool held = v != v || (!large && static_cast<double>(static_cast<float>(v)) == v);
    return held ? GgufType::kFloat32 : GgufType::kFloat64;
  }
  static GgufType type_of(bool) { return GgufType::kBool; }
  static GgufType type_of(const std::string&) { return GgufType::kString; }

  // The same of an array: what holds every item.
  template <class T>
  static GgufType item_type(const std::vector<T>& items) {
    GgufType type = type_of(T{});
    for (const T& item : items) {
      if (const GgufType t = type_of(item); min_item_bytes(t) > min_item_bytes(type)) type = t;
    }
    return type;
  }

  void number(uint64_t bits, GgufType t) {
    if (min_item_bytes(t) == 8) {
      u64(bits);
    } else {
      u32(static_cast<uint32_t>(bits));
    }
  }
  void item(uint64_t v, GgufType t) { number(v, t); }
  void item(int64_t v, GgufType t) { number(static_cast<uint64_t>(v), t); }
  void item(double v, GgufType t) {
    number(t == GgufType::kFloat64 ? std::bit_cast<uint64_t>(v) : std::bit_cast<uint32_t>(static_cast<float>(v)), t);
  }
  void item(bool v, GgufType) { u8(v ? 1 : 0); }
  void item(const std::string& v, GgufType) { text(v); }

  template <class T>
  void typed(const T& v) {
    const GgufType t = type_of(v);
    type(t);
    item(v, t);
  }
  template <class T>
  void typed(const std::vector<T>& items) {
    const GgufType t = item_type(items);
    type(GgufType::kArray);
    type(t);
    u64(items.size());
    for (const T& v : items) item(v, t);
  }
};

void check_unique(std::vector<std::string_view> names, const char* what) {
  std::sort(names.begin(), names.end());
  const auto twice = std::adjacent_find(names.begin(), names.end());
  if (twice != names.end()) fail(ErrorCode::kInvalidArgument, "two ", what, " are named '", printable(*twice), "'");
}

void check_tensor(const GgufTensor& t) {
  const std::string where = str("tensor '", printable(t.name), "'");
  if (t.name.size() > kMaxTensorNameBytes) {
    fail(ErrorCode::kInvalidArgument, where, " has a name of ", t.name.size(), " bytes, expected at most ", kMaxTensorNameBytes,
         " for GGUF");
  }
  if (t.shape.size() > kMaxDims) {
    fail(ErrorCode::kInvalidArgument, where, " has ", t.shape.size(), " dimensions, expected at most ", kMaxDims, " for GGUF");
  }
  const BlockTypeInfo& info = block_type_info(t.type);
  const uint64_t row = t.shape.empty() ? 1 : t.shape.back();
  if (row % info.block_values != 0) {
    fail(ErrorCode::kInvalidArgument, where, " has rows of ", row, " values, expected a multiple of ", info.block_values,
         " for ", info.name);
  }
}

uint64_t count_of(const GgufTensor& t) {
  Limits limits;
  limits.max_elements = UINT64_MAX / 4;  // what we hold may be written; only its consistency is checked
  return element_count(t.shape, limits, str("tensor '", printable(t.name), "'"));
}

}  // namespace

uint64_t gguf_tensor_bytes(const GgufTensor& t) {
  const BlockTypeInfo& info = block_type_info(t.type);
  return count_of(t) / info.block_values * info.block_bytes;
}

std::vector<uint8_t> gguf_header(const GgufMetadata& metadata, std::span<const GgufTensor> tensors) {
  std::vector<std::string_view> keys, names;
  for (const auto& [key, value] : metadata.values) {
    if (key.size() > kMaxKeyBytes) {
      fail(ErrorCode::kInvalidArgument, "key '", printable(key), "' has ", key.size(), " bytes, expected at most ",
           kMaxKeyBytes, " for GGUF");
    }
    // That of the file the metadata came from; this one has the default.
    if (key != kAlignmentKey) keys.push_back(key);
  }
  for (const GgufTensor& t : tensors) {
    check_tensor(t);
    names.push_back(t.name);
  }
  check_unique(keys, "keys");
  check_unique(names, "tensors");

  HeaderBytes header;
  for (const char c : kGgufMagic) header.u8(static_cast<uint8_t>(c));
  header.u32(3);
  header.u64(tensors.size());
  header.u64(keys.size());
  for (const auto& [key, value] : metadata.values) {
    if (key == kAlignmentKey) continue;
    header.text(key);
    header.value(value);
  }
  uint64_t offset = 0;
  for (const GgufTensor& t : tensors) {
    header.text(t.name);
    header.u32(static_cast<uint32_t>(t.shape.size()));
    for (auto dim = t.shape.rbegin(); dim != t.shape.rend(); ++dim) header.u64(*dim);
    header.u32(static_cast<uint32_t>(t.type));
    header.u64(offset);
    offset += (gguf_tensor_bytes(t) + kDefaultAlignment - 1) / kDefaultAlignment * kDefaultAlignment;
  }
  header.pad(kDefaultAlignment);
  return std::move(header.out);
}

void save_gguf(const std::string& path, const GgufMetadata& metadata, std::span<const WeightEntry> tensors) {
  std::vector<GgufTensor> planned;
  for (const WeightEntry& t : tensors) {
    planned.push_back({t.name, t.type, t.shape});
    check_tensor(planned.back());
    if (t.bytes.size() == gguf_tensor_bytes(planned.back())) continue;
    fail(ErrorCode::kInvalidArgument, "tensor '", printable(t.name), "' has ", t.bytes.size(), " bytes, expected those of ",
         count_of(planned.back()), " values as ", block_type_info(t.type).name);
  }
  GgufWriter writer(path, metadata, std::move(planned));
  for (const WeightEntry& t : tensors) writer.write(t.bytes);
  writer.commit();
}

}  // namespace kpd::io
