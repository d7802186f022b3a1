// io: safetensors. The JSON header is read as a stream of events into a small state machine, so that nesting, unknown parts and
// duplicates are refused where they stand and nothing is built that the format does not have.
#include "kpd/io/safetensors.h"

#include <algorithm>
#include <cstring>
#include <nlohmann/json.hpp>
#include <numeric>

#include "kpd/base/bytes.h"
#include "kpd/base/error.h"
#include "kpd/io/file.h"
#include "io/json_events.h"
#include "io/saving.h"
#include "io/text.h"

namespace kpd::io {
namespace {

constexpr size_t kLengthBytes = 8;
constexpr std::string_view kMetadataKey = "__metadata__";

struct RawEntry {
  std::string name, dtype;
  std::vector<uint64_t> shape;
  uint64_t offsets[2] = {0, 0};
  int n_offsets = 0;
  bool has_dtype = false, has_shape = false, has_offsets = false;
};

// Events of nlohmann's SAX interface. Every refusal throws; `position` is where the lexer stands.
class HeaderEvents {
 public:
  HeaderEvents(std::string_view file, const Limits& limits, const size_t& position)
      : file_(file), limits_(limits), position_(position) {}

  std::vector<RawEntry> entries;
  Metadata metadata;

  bool null() { unexpected("null"); }
  bool boolean(bool) { unexpected("true or false"); }
  bool number_integer(int64_t v) { unexpected(str("number ", v)); }
  bool number_float(double, const std::string& text) { unexpected(str("number ", printable(text))); }
  bool binary(std::vector<uint8_t>&) { unexpected("binary data"); }

  bool number_unsigned(uint64_t v) {
    if (state_ == State::kShape) {
      if (entries.back().shape.size() == limits_.max_dims) limit(str("more than ", limits_.max_dims, " dimensions"));
      entries.back().shape.push_back(v);
    } else if (state_ == State::kOffsets && entries.back().n_offsets < 2) {
      entries.back().offsets[entries.back().n_offsets++] = v;
    } else {
      unexpected(str("number ", v));
    }
    return true;
  }

  bool string(std::string& v) {
    if (state_ == State::kMetadata) {
      metadata.back().second = v;
    } else if (state_ == State::kTensor && field_ == Field::kDtype) {
      entries.back().dtype = v;
    } else {
      unexpected(str("text '", printable(v), "'"));
    }
    return true;
  }

  bool start_object(size_t) {
    if (state_ == State::kStart) {
      state_ = State::kTop;
    } else if (state_ == State::kTop) {
      state_ = in_metadata_ ? State::kMetadata : State::kTensor;
      field_ = Field::kNone;
    } else {
      unexpected("an object");
    }
    return true;
  }

  bool key(std::string& v) {
    if (state_ == State::kTop) {
      top_key(v);
    } else if (state_ == State::kMetadata) {
      if (metadata.size() == limits_.max_tensors) limit(str("more than ", limits_.max_tensors, " metadata entries"));
      metadata.emplace_back(v, "");
    } else {
      tensor_key(v);
    }
    return true;
  }

  bool end_object() {
    if (state_ == State::kTensor) {
      const RawEntry& entry = entries.back();
      if (!entry.has_dtype || !entry.has_shape || !entry.has_offsets) {
        corrupt(str("tensor '", printable(entry.name), "' ends, expected dtype, shape and data_offsets"));
      }
    }
    state_ = state_ == State::kTop ? State::kEnd : State::kTop;
    return true;
  }

  bool start_array(size_t) {
    if (state_ != State::kTensor || (field_ != Field::kShape && field_ != Field::kOffsets)) unexpected("an array");
    state_ = field_ == Field::kShape ? State::kShape : State::kOffsets;
    return true;
  }

  bool end_array() {
    if (state_ == State::kOffsets && entries.back().n_offsets != 2) corrupt("expected two numbers in data_offsets");
    state_ = State::kTensor;
    return true;
  }

  bool parse_error(size_t position, const std::string&, const nlohmann::json::exception&) {
    fail_at(ErrorCode::kCorruptData, file_, kLengthBytes + (position > 0 ? position - 1 : 0),
            "the header is not valid JSON here");
  }

 private:
  enum class State { kStart, kTop, kMetadata, kTensor, kShape, kOffsets, kEnd };
  enum class Field { kNone, kDtype, kShape, kOffsets };

  [[noreturn]] void corrupt(const std::string& text) const {
    fail_at(ErrorCode::kCorruptData, file_, kLengthBytes + position_, text);
  }
  [[noreturn]] void limit(const std::string& text) const {
    fail_at(ErrorCode::kLimitExceeded, file_, kLengthBytes + position_, text);
  }
  [[noreturn]] void unexpected(const std::string& what) const {
    const char* expected = state_ == State::kStart                 ? "an object"
                           : state_ == State::kTop && in_metadata_ ? "an object of strings for __metadata__"
                           : state_ == State::kTop                 ? "an object with dtype, shape and data_offsets"
                           : state_ == State::kMetadata            ? "text"
                           : state_ == State::kShape               ? "dimensions of 0 or more"
                           : state_ == State::kOffsets             ? "two offsets of 0 or more"
                           : field_ == Field::kDtype               ? "the name of a type"
                                                                   : "an array of integers";
    corrupt(str(what, " in the header, expected ", expected));
  }

  void top_key(const std::string& v) {
    in_metadata_ = v == kMetadataKey;
    if (in_metadata_) {
      if (std::exchange(has_metadata_, true)) corrupt("__metadata__ is given twice");
      return;
    }
    if (v.size() > limits_.max_name_bytes) {
      limit(str("a name of ", v.size(), " bytes, the limit is ", limits_.max_name_bytes));
    }
    if (entries.size() == limits_.max_tensors) limit(str("more than ", limits_.max_tensors, " tensors"));
    entries.emplace_back().name = v;
  }

  void tensor_key(const std::string& v) {
    RawEntry& entry = entries.back();
    bool again = false;
    if (v == "dtype") {
      field_ = Field::kDtype;
      again = std::exchange(entry.has_dtype, true);
    } else if (v == "shape") {
      field_ = Field::kShape;
      again = std::exchange(entry.has_shape, true);
    } else if (v == "data_offsets") {
      field_ = Field::kOffsets;
      again = std::exchange(entry.has_offsets, true);
    } else {
      corrupt(str("key '", printable(v), "', expected dtype, shape and data_offsets"));
    }
    if (again) corrupt(str("key '", v, "' of tensor '", printable(entry.name), "' is given twice"));
  }

  std::string_view file_;
  const Limits& limits_;
  const size_t& position_;
  State state_ = State::kStart;
  Field field_ = Field::kNone;
  bool in_metadata_ = false, has_metadata_ = false;
};

// In the order of DType.
constexpr std::string_view kDTypeNames[kDTypes] = {"F32", "BF16", "F16", "F64", "I8",   "I16",     "I32",    "I64",
                                                   "U8",  "U16",  "U32", "U64", "BOOL", "F8_E4M3", "F8_E5M2"};

std::optional<DType> known_dtype(std::string_view name) {
  const auto* known = std::find(std::begin(kDTypeNames), std::end(kDTypeNames), name);
  if (known == std::end(kDTypeNames)) return std::nullopt;
  return static_cast<DType>(known - std::begin(kDTypeNames));
}

DType dtype_of(const RawEntry& entry, std::string_view file) {
  if (const std::optional<DType> known = known_dtype(entry.dtype)) return *known;
  std::string names;
  for (const std::string_view name : kDTypeNames) names += str(names.empty() ? "" : ", ", name);
  fail(ErrorCode::kUnsupported, file, ": tensor '", printable(entry.name), "' has elements of type '", printable(entry.dtype),
       "', expected one of ", names);
}

std::string_view safetensors_dtype(DType t) { return kDTypeNames[static_cast<size_t>(t)]; }

void check_names(const std::vector<RawEntry>& entries, std::string_view file) {
  std::vector<std::string_view> names;
  names.reserve(entries.size());
  for (const RawEntry& entry : entries) names.push_back(entry.name);
  std::sort(names.begin(), names.end());
  const auto twice = std::adjacent_find(names.begin(), names.end());
  if (twice != names.end()) fail(ErrorCode::kCorruptData, file, ": tensor '", printable(*twice), "' is given twice");
}

// Every byte of the data belongs to exactly one tensor.
void check_coverage(const std::vector<RawEntry>& entries, uint64_t data_at, uint64_t data_bytes, std::string_view file) {
  std::vector<size_t> order(entries.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::sort(order.begin(), order.end(), [&](size_t a, size_t b) {
    return std::pair(entries[a].offsets[0], entries[a].offsets[1]) < std::pair(entries[b].offsets[0], entries[b].offsets[1]);
  });
  uint64_t covered = 0;
  for (const size_t i : order) {
    const auto [begin, end] = std::pair(entries[i].offsets[0], entries[i].offsets[1]);
    if (begin != covered) {
      fail_at(ErrorCode::kCorruptData, file, data_at + covered, "tensor '", printable(entries[i].name), "' begins at offset ",
              begin, ", expected ", covered, begin < covered ? " (it overlaps another)" : " (bytes that belong to none)");
    }
    covered = end;
  }
  if (covered != data_bytes) {
    fail_at(ErrorCode::kCorruptData, file, data_at + covered, data_bytes - covered,
            " bytes of data that belong to no tensor, expected the end");
  }
}

// The header, parsed, and the data behind it.
struct Header {
  std::string file;  // for errors
  std::vector<RawEntry> entries;
  Metadata metadata;
  std::span<const uint8_t> data;
  uint64_t data_at = 0;
};

SafetensorsRecord make_record(const RawEntry& raw, const Header& header, const Limits& limits) {
  SafetensorsRecord record{raw.name, raw.dtype, known_dtype(raw.dtype), raw.shape, {}};
  const std::string where = str(header.file, ": tensor '", printable(raw.name), "'");
  const uint64_t count = element_count(raw.shape, limits, where);
  const auto [begin, end] = std::pair(raw.offsets[0], raw.offsets[1]);
  if (begin > end || end > header.data.size()) {
    fail(ErrorCode::kCorruptData, where, " lies at offsets ", begin, " to ", end, ", expected a range within ",
         header.data.size(), " bytes of data");
  }
  const uint64_t item_bytes = record.dtype ? dtype_bytes(*record.dtype) : 1;
  if (record.dtype && ((end - begin) % item_bytes != 0 || (end - begin) / item_bytes != count)) {
    fail(ErrorCode::kCorruptData, where, " has ", end - begin, " bytes at byte ", header.data_at + begin, ", expected ", count,
         " elements of ", item_bytes, " bytes");
  }
  record.bytes = header.data.subspan(begin, end - begin);
  return record;
}

std::string quote(std::string_view v) {
  try {
    return nlohmann::json(v).dump();
  } catch (const nlohmann::json::exception&) {
    fail(ErrorCode::kInvalidArgument, "'", printable(v), "' is not UTF-8, which .safetensors needs");
  }
}

void check_names_for_writing(std::span<const TensorEntry> tensors) {
  std::vector<std::string_view> names;
  names.reserve(tensors.size());
  for (const TensorEntry& tensor : tensors) names.push_back(tensor.name);
  std::sort(names.begin(), names.end());
  const auto twice = std::adjacent_find(names.begin(), names.end());
  if (twice != names.end()) fail(ErrorCode::kInvalidArgument, "two tensors are named '", printable(*twice), "'");
  if (std::binary_search(names.begin(), names.end(), kMetadataKey)) {
    fail(ErrorCode::kInvalidArgument, "a tensor is named ", kMetadataKey, ", which .safetensors reserves");
  }
}

}  // namespace

bool looks_like_safetensors(std::span<const uint8_t> bytes) {
  if (bytes.size() < kLengthBytes + 2) return false;
  const uint64_t header_bytes = load_u64(bytes.data());
  return header_bytes >= 2 && header_bytes <= bytes.size() - kLengthBytes && bytes[kLengthBytes] == '{';
}

uint64_t SafetensorsRecord::count() const {
  uint64_t n = 1;
  for (const uint64_t dim : shape) n *= dim;
  return n;
}

namespace {

Header read_header(std::span<const uint8_t> bytes, std::string_view name, const Limits& limits) {
  const std::string file = printable_path(name);
  ByteReader reader(bytes, file);
  const uint64_t header_bytes = reader.u64("header length");
  if (header_bytes > reader.remaining()) {
    reader.throw_at(ErrorCode::kCorruptData, 0, "header of ", header_bytes, " bytes, ", reader.remaining(),
                    " left (is this a .safetensors file?)");
  }
  if (header_bytes > limits.max_header_bytes) {
    fail_at(ErrorCode::kLimitExceeded, file, 0, "header of ", header_bytes, " bytes, the limit is ", limits.max_header_bytes);
  }
  const auto header = reader.take(header_bytes, "header");
  if (header.empty() || header[0] != '{') reader.throw_at(ErrorCode::kCorruptData, kLengthBytes, "expected '{'");

  size_t position = 0;
  HeaderEvents events(file, limits, position);
  read_json(header, position, events);

  const uint64_t data_at = reader.offset();
  const auto data = reader.take(reader.remaining(), "data");
  check_names(events.entries, file);
  return {file, std::move(events.entries), std::move(events.metadata), data, data_at};
}

std::vector<SafetensorsRecord> make_records(const Header& header, const Limits& limits) {
  std::vector<SafetensorsRecord> records;
  records.reserve(header.entries.size());
  uint64_t total = 0;
  for (const RawEntry& raw : header.entries) {
    records.push_back(make_record(raw, header, limits));
    // The data bound only the counts of types that we know.
    total += std::min(records.back().count(), ~total);
  }
  if (total > limits.max_total_elements) {
    fail(ErrorCode::kLimitExceeded, header.file, ": ", total, " elements, the limit is ", limits.max_total_elements);
  }
  check_coverage(header.entries, header.data_at, header.data.size(), header.file);
  return records;
}

}  // namespace

std::vector<SafetensorsRecord> list_safetensors(std::span<const uint8_t> bytes, std::string_view name, const Limits& limits) {
  return make_records(read_header(bytes, name, limits), limits);
}

SafetensorsFile parse_safetensors(std::span<const uint8_t> bytes, std::string_view name, const Limits& limits) {
  Header header = read_header(bytes, name, limits);
  for (const RawEntry& raw : header.entries) (void)dtype_of(raw, header.file);
  std::vector<SafetensorsRecord> records = make_records(header, limits);
  SafetensorsFile result;
  result.metadata = std::move(header.metadata);
  result.tensors.reserve(records.size());
  for (SafetensorsRecord& r : records) {
    const uint64_t count = r.count();
    result.tensors.push_back({std::move(r.name), *r.dtype, std::move(r.shape), r.bytes.data(), count});
  }
  return result;
}

std::vector<uint8_t> safetensors_header(std::span<const TensorEntry> tensors, const Metadata& metadata,
                                        std::vector<size_t>& data_order) {
  check_names_for_writing(tensors);
  data_order.resize(tensors.size());
  std::iota(data_order.begin(), data_order.end(), size_t{0});
  std::stable_sort(data_order.begin(), data_order.end(),
                   [&](size_t a, size_t b) { return dtype_bytes(tensors[a].dtype) > dtype_bytes(tensors[b].dtype); });
  std::vector<uint64_t> begin(tensors.size());
  uint64_t offset = 0;
  for (const size_t i : data_order) {
    begin[i] = offset;
    offset += tensors[i].count * dtype_bytes(tensors[i].dtype);
  }

  // Put together by hand around the library's escaping: its ordered objects search all keys at every insertion.
  std::string text = "{";
  if (!metadata.empty()) {
    text += str(quote(kMetadataKey), ":{");
    for (size_t i = 0; i < metadata.size(); ++i) {
      text += str(i == 0 ? "" : ",", quote(metadata[i].first), ":", quote(metadata[i].second));
    }
    text += "}";
  }
  for (size_t i = 0; i < tensors.size(); ++i) {
    const TensorEntry& tensor = tensors[i];
    text += str(text.size() > 1 ? "," : "", quote(tensor.name), ":{\"dtype\":\"", safetensors_dtype(tensor.dtype),
                "\",\"shape\":[");
    for (size_t d = 0; d < tensor.shape.size(); ++d) text += str(d == 0 ? "" : ",", tensor.shape[d]);
    text += str("],\"data_offsets\":[", begin[i], ",", begin[i] + tensor.count * dtype_bytes(tensor.dtype), "]}");
  }
  text += "}";
  text.append((8 - text.size() % 8) % 8, ' ');

  std::vector<uint8_t> out(kLengthBytes + text.size());
  ByteWriter writer(out);
  writer.u64(text.size());
  writer.text(text);
  return out;
}

void save_safetensors(const std::string& path, std::span<const TensorEntry> tensors, const Metadata& metadata) {
  for (const TensorEntry& tensor : tensors) check_for_saving(path, tensor);
  std::vector<size_t> order;
  const std::vector<uint8_t> header = safetensors_header(tensors, metadata, order);
  AtomicFile file(path);
  file.write(header);
  for (const size_t i : order) {
    file.write({static_cast<const uint8_t*>(tensors[i].data), tensors[i].count * dtype_bytes(tensors[i].dtype)});
  }
  file.commit();
}

}  // namespace kpd::io
