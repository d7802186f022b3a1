// io: reading GGUF (ggml, docs/gguf.md). One pass over header, metadata and tensor table; every count is compared with the
// bytes that are left and with the limits before anything is allocated.
#include "kpd/io/gguf.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <numeric>
#include <unordered_set>

#include "kpd/base/bytes.h"
#include "kpd/base/error.h"
#include "kpd/io/tensor_entry.h"
#include "io/gguf_format.h"
#include "io/text.h"

namespace kpd::io {
namespace {

std::string type_names() {
  std::string names;
  for (const BlockTypeInfo& info : block_types()) names += str(names.empty() ? "" : ", ", info.name);
  return names;
}

struct RawTensor {
  WeightEntry entry;  // without bytes
  uint64_t offset = 0, size_bytes = 0;
};

class GgufParser {
 public:
  // `file` must outlive the parser.
  GgufParser(std::span<const uint8_t> bytes, const std::string& file, const Limits& limits)
      : reader_(bytes, file), file_(file), limits_(limits) {}

  GgufFile result;

  void parse_header() {
    if (reader_.remaining() < kGgufMagic.size() || !looks_like_gguf(reader_.take(kGgufMagic.size(), "magic"))) {
      throw_at(ErrorCode::kCorruptData, 0, "expected the magic bytes of a GGUF file ('GGUF')");
    }
    const uint32_t version = reader_.u32("version");
    if (version != 0 && (version & 0xffff) == 0) {
      throw_at(ErrorCode::kUnsupported, 4, "a big-endian file, expected little-endian; convert it with gguf-convert-endian");
    }
    if (version != 2 && version != 3) throw_at(ErrorCode::kUnsupported, 4, "GGUF version ", version, ", expected 2 or 3");
    result.version = version;
    n_tensors_ = count(kMinTensorBytes, "tensors");
    n_values_ = count(kMinPairBytes, "metadata values");
  }

  void parse_metadata() {
    std::unordered_set<std::string_view> keys;
    for (uint64_t i = 0; i < n_values_; ++i) {
      const uint64_t at = reader_.offset();
      const std::string_view key = name("key");
      if (!keys.insert(key).second) corrupt_at(at, str("key '", printable(key), "' is given twice"));
      value_name_ = str("value of key '", printable(key), "'");
      result.metadata.values.emplace_back(key, value());
      if (key == kAlignmentKey) set_alignment(result.metadata.values.back().second);
      check_header_bytes(0, value_name_);
    }
  }

  void parse_tensors() {
    std::unordered_set<std::string_view> names;
    std::vector<RawTensor> raw;
    uint64_t total = 0;
    for (uint64_t i = 0; i < n_tensors_; ++i) {
      const uint64_t at = reader_.offset();
      const std::string_view tensor_name = name("name of a tensor");
      if (!names.insert(tensor_name).second) corrupt_at(at, str("tensor '", printable(tensor_name), "' is given twice"));
      raw.push_back(tensor(tensor_name));
      const uint64_t elements = raw.back().entry.count();
      if (elements > limits_.max_total_elements - total) {
        fail(ErrorCode::kLimitExceeded, file_, ": more than ", limits_.max_total_elements, " elements in all tensors");
      }
      total += elements;
      check_header_bytes(0, "tensor table");
    }
    place(raw);
  }

 private:
  template <class... Args>
  [[noreturn]] void throw_at(ErrorCode code, uint64_t at, const Args&... args) const {
    reader_.throw_at(code, at, args...);
  }
  [[noreturn]] void corrupt_at(uint64_t at, const std::string& text) const { throw_at(ErrorCode::kCorruptData, at, text); }

  // Metadata and tensor table up to here, and n bytes more, are within the limit.
  void check_header_bytes(uint64_t n, std::string_view what) const {
    if (reader_.offset() > limits_.max_header_bytes || n > limits_.max_header_bytes - reader_.offset()) {
      throw_at(ErrorCode::kLimitExceeded, reader_.offset(), what,
               ": metadata and tensor table have more bytes than the limit of ", limits_.max_header_bytes);
    }
  }

  uint64_t count(uint64_t min_bytes, const char* what) {
    const uint64_t at = reader_.offset(), n = reader_.u64(what);
    if (n > reader_.remaining() / min_bytes) {
      corrupt_at(at, str(n, " ", what, ", ", reader_.remaining(), " bytes left, expected at least ", min_bytes, " bytes each"));
    }
    if (n > limits_.max_tensors) throw_at(ErrorCode::kLimitExceeded, at, n, " ", what, ", the limit is ", limits_.max_tensors);
    return n;
  }

  std::string_view text(const std::string& what) {
    const uint64_t at = reader_.offset(), n = reader_.u64(what);
    if (n > reader_.remaining()) corrupt_at(at, str(what, ": a string of ", n, " bytes, ", reader_.remaining(), " left"));
    check_header_bytes(n, what);
    const auto bytes = reader_.take(n, what);
    return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
  }

  std::string_view name(const char* what) {
    const uint64_t at = reader_.offset();
    const std::string_view v = text(what);
    if (v.size() > limits_.max_name_bytes) {
      throw_at(ErrorCode::kLimitExceeded, at, what, ": ", v.size(), " bytes, the limit is ", limits_.max_name_bytes);
    }
    return v;
  }

  GgufType value_type() {
    const uint64_t at = reader_.offset();
    const uint32_t type = reader_.u32(value_name_);
    if (type > static_cast<uint32_t>(GgufType::kFloat64)) {
      corrupt_at(at, str(value_name_, ": type ", type, ", expected 0 to ", static_cast<uint32_t>(GgufType::kFloat64)));
    }
    return static_cast<GgufType>(type);
  }

  uint64_t unsigned_number(GgufType type) {
    switch (type) {
      case GgufType::kUint8:
        return reader_.u8(value_name_);
      case GgufType::kUint16:
        return reader_.u16(value_name_);
      case GgufType::kUint32:
        return reader_.u32(value_name_);
      default:
        return reader_.u64(value_name_);
    }
  }

  int64_t signed_number(GgufType type) {
    switch (type) {
      case GgufType::kInt8:
        return static_cast<int8_t>(reader_.u8(value_name_));
      case GgufType::kInt16:
        return reader_.i16(value_name_);
      case GgufType::kInt32:
        return static_cast<int32_t>(reader_.u32(value_name_));
      default:
        return static_cast<int64_t>(reader_.u64(value_name_));
    }
  }

  double real(GgufType type) {
    return type == GgufType::kFloat32 ? static_cast<double>(reader_.f32(value_name_)) : reader_.f64(value_name_);
  }

  bool boolean() {
    const uint64_t at = reader_.offset();
    const uint8_t v = reader_.u8(value_name_);
    if (v > 1) corrupt_at(at, str(value_name_, ": ", v, ", expected 0 or 1"));
    return v == 1;
  }

  GgufValue value() {
    const GgufType type = value_type();
    switch (kind_of(type)) {
      case GgufKind::kUnsigned:
        return GgufValue(std::in_place_type<uint64_t>, unsigned_number(type));
      case GgufKind::kSigned:
        return GgufValue(std::in_place_type<int64_t>, signed_number(type));
      case GgufKind::kReal:
        return GgufValue(std::in_place_type<double>, real(type));
      case GgufKind::kBool:
        return GgufValue(std::in_place_type<bool>, boolean());
      case GgufKind::kText:
        return GgufValue(std::in_place_type<std::string>, text(value_name_));
      case GgufKind::kArray:
        break;
    }
    return array();
  }

  template <class T, class Read>
  GgufValue items(uint64_t n, const Read& read) {
    std::vector<T> values;
    values.reserve(n);
    for (uint64_t i = 0; i < n; ++i) values.push_back(read());
    return GgufValue(std::in_place_type<std::vector<T>>, std::move(values));
  }

  GgufValue array() {
    const uint64_t type_at = reader_.offset();
    const GgufType type = value_type();
    const GgufKind kind = kind_of(type);
    if (kind == GgufKind::kArray) {
      throw_at(ErrorCode::kUnsupported, type_at, value_name_, ": an array of arrays, expected numbers, bools or strings");
    }
    const uint64_t at = reader_.offset(), n = reader_.u64(value_name_), item_bytes = min_item_bytes(type);
    if (n > reader_.remaining() / item_bytes) {
      corrupt_at(at, str(value_name_, ": ", n, " items, ", reader_.remaining(), " bytes left, expected at least ", item_bytes,
                         " each"));
    }
    check_header_bytes(n * item_bytes, value_name_);
    switch (kind) {
      case GgufKind::kUnsigned:
        return items<uint64_t>(n, [&] { return unsigned_number(type); });
      case GgufKind::kSigned:
        return items<int64_t>(n, [&] { return signed_number(type); });
      case GgufKind::kReal:
        return items<double>(n, [&] { return real(type); });
      case GgufKind::kBool:
        return items<bool>(n, [&] { return boolean(); });
      default:
        return items<std::string>(n, [&] { return std::string(text(value_name_)); });
    }
  }

  void set_alignment(const GgufValue& v) {
    const uint64_t* alignment = std::get_if<uint64_t>(&v);
    if (alignment == nullptr || !std::has_single_bit(*alignment) || *alignment < kMinAlignment || *alignment > kMaxAlignment) {
      fail(ErrorCode::kCorruptData, file_, ": key '", kAlignmentKey, "' is ",
           alignment != nullptr ? str(*alignment) : std::string("not an unsigned number"), ", expected a power of two from ",
           kMinAlignment, " to ", kMaxAlignment);
    }
    result.alignment = static_cast<uint32_t>(*alignment);
  }

  RawTensor tensor(std::string_view tensor_name) {
    const std::string where = str("tensor '", printable(tensor_name), "'");
    RawTensor raw;
    raw.entry.name = tensor_name;
    const uint64_t dims_at = reader_.offset();
    const uint32_t n_dims = reader_.u32(where);
    if (n_dims > kMaxDims) corrupt_at(dims_at, str(where, " has ", n_dims, " dimensions, expected at most ", kMaxDims));
    raw.entry.shape.resize(n_dims);
    for (uint32_t i = 0; i < n_dims; ++i) raw.entry.shape[n_dims - 1 - i] = reader_.u64(where);
    const uint64_t elements = element_count(raw.entry.shape, limits_, str(file_, ": byte ", dims_at, ": ", where));
    const uint64_t type_at = reader_.offset();
    const uint32_t type = reader_.u32(where);
    const BlockTypeInfo* info = find_block_type(type);
    if (info == nullptr) {
      throw_at(ErrorCode::kUnsupported, type_at, where, " is of ggml's type ", type, ", expected one of ", type_names());
    }
    raw.entry.type = info->type;
    const uint64_t row = n_dims > 0 ? raw.entry.shape.back() : 1;
    if (row % info->block_values != 0) {
      corrupt_at(dims_at,
                 str(where, " has rows of ", row, " values, expected a multiple of ", info->block_values, " for ", info->name));
    }
    raw.size_bytes = elements / info->block_values * info->block_bytes;
    const uint64_t offset_at = reader_.offset();
    raw.offset = reader_.u64(where);
    if (raw.offset % result.alignment != 0) {
      corrupt_at(offset_at, str(where, " lies at offset ", raw.offset, ", expected a multiple of ", result.alignment));
    }
    return raw;
  }

  // Points every entry at its bytes, once the table's end tells where the data begins.
  void place(std::vector<RawTensor>& raw) {
    const uint64_t table_end = reader_.offset();
    const uint64_t padding = (result.alignment - table_end % result.alignment) % result.alignment;
    reader_.skip(std::min<uint64_t>(padding, reader_.remaining()), "padding");
    const uint64_t data_at = reader_.offset();
    const auto data = reader_.take(reader_.remaining(), "data");
    std::vector<size_t> order(raw.size());
    std::iota(order.begin(), order.end(), size_t{0});
    std::sort(order.begin(), order.end(), [&](size_t a, size_t b) { return raw[a].offset < raw[b].offset; });
    const RawTensor* before = nullptr;
    for (const size_t i : order) {
      const RawTensor& t = raw[i];
      const std::string where = str("tensor '", printable(t.entry.name), "'");
      if (t.offset > data.size() || t.size_bytes > data.size() - t.offset) {
        corrupt_at(data_at, str(where, " has ", t.size_bytes, " bytes at offset ", t.offset, ", expected a range within ",
                                data.size(), " bytes of data"));
      }
      if (t.size_bytes == 0) continue;
      if (before != nullptr && t.offset - before->offset < before->size_bytes) {
        corrupt_at(data_at + t.offset, str(where, " begins within tensor '", printable(before->entry.name), "', which has ",
                                           before->size_bytes, " bytes at offset ", before->offset));
      }
      before = &t;
    }
    result.tensors.reserve(raw.size());
    for (RawTensor& t : raw) {
      t.entry.bytes = data.subspan(t.offset, t.size_bytes);
      result.tensors.push_back(std::move(t.entry));
    }
  }

  ByteReader reader_;
  const std::string& file_;
  const Limits& limits_;
  uint64_t n_tensors_ = 0, n_values_ = 0;
  std::string value_name_;  // for errors
};

}  // namespace

bool looks_like_gguf(std::span<const uint8_t> bytes) {
  return bytes.size() >= kGgufMagic.size() && std::memcmp(bytes.data(), kGgufMagic.data(), kGgufMagic.size()) == 0;
}

GgufFile parse_gguf(std::span<const uint8_t> bytes, std::string_view name, const Limits& limits) {
  const std::string file = printable_path(name);
  GgufParser parser(bytes, file, limits);
  parser.result.metadata.name = name;
  parser.parse_header();
  parser.parse_metadata();
  parser.parse_tensors();
  return std::move(parser.result);
}

GgufMetadata load_gguf_metadata(const std::string& path, const Limits& limits) {
  const MappedFile mapped = map_file(path);
  const std::string file = printable_path(path);
  GgufParser parser(mapped.bytes(), file, limits);
  parser.result.metadata.name = path;
  parser.parse_header();
  parser.parse_metadata();
  return std::move(parser.result.metadata);
}

}  // namespace kpd::io
