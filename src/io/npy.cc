// io: .npy. The header is a Python literal {'descr': '<f4', 'fortran_order': False, 'shape': (3, 4), }; a small parser of
// exactly that reads it, nothing is evaluated.
#include "kpd/io/npy.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "kpd/base/bytes.h"
#include "kpd/base/error.h"
#include "kpd/io/file.h"
#include "io/saving.h"
#include "io/text.h"

namespace kpd::io {
namespace {

constexpr uint8_t kMagic[6] = {0x93, 'N', 'U', 'M', 'P', 'Y'};

struct NpyHeader {
  std::string descr;
  bool fortran_order = false;
  std::vector<uint64_t> shape;
};

class HeaderParser {
 public:
  HeaderParser(std::span<const uint8_t> text, std::string_view name, uint64_t base_offset, const Limits& limits)
      : text_(reinterpret_cast<const char*>(text.data()), text.size()),
        name_(name),
        base_offset_(base_offset),
        limits_(limits) {}

  NpyHeader parse() {
    NpyHeader header;
    bool has_descr = false, has_order = false, has_shape = false;
    expect('{');
    while (!accept('}')) {
      const size_t key_at = skip_space();
      const std::string key = quoted();
      expect(':');
      if (key == "descr" && !std::exchange(has_descr, true)) {
        header.descr = descr();
      } else if (key == "fortran_order" && !std::exchange(has_order, true)) {
        header.fortran_order = boolean();
      } else if (key == "shape" && !std::exchange(has_shape, true)) {
        header.shape = shape();
      } else {
        corrupt_at(key_at, "key '", printable(key), "', expected descr, fortran_order and shape, each once");
      }
      if (!accept(',')) {
        expect('}');
        break;
      }
    }
    if (skip_space() != text_.size()) corrupt_at(pos_, "text after the header's '}', expected spaces and a line end");
    if (!has_descr || !has_order || !has_shape) {
      corrupt_at(text_.size(), "the header ends, expected keys descr, fortran_order and shape");
    }
    return header;
  }

 private:
  template <class... Args>
  [[noreturn]] void corrupt_at(size_t pos, const Args&... args) const {
    fail_at(ErrorCode::kCorruptData, name_, base_offset_ + pos, args...);
  }

  size_t skip_space() {
    while (pos_ < text_.size() && std::strchr(" \t\r\n", text_[pos_]) != nullptr && text_[pos_] != '\0') ++pos_;
    return pos_;
  }
  bool accept(char c) {
    skip_space();
    if (pos_ >= text_.size() || text_[pos_] != c) return false;
    ++pos_;
    return true;
  }
  void expect(char c) {
    if (!accept(c)) corrupt_at(pos_, "expected '", c, "' in the header");
  }

  std::string quoted() {
    skip_space();
    const char quote = pos_ < text_.size() ? text_[pos_] : '\0';
    if (quote != '\'' && quote != '"') corrupt_at(pos_, "expected a quoted word in the header");
    const size_t end = text_.find(quote, pos_ + 1);
    if (end == std::string_view::npos) corrupt_at(pos_, "quote not closed in the header");
    const std::string word(text_.substr(pos_ + 1, end - pos_ - 1));
    if (word.size() > 64 || word.find('\\') != std::string::npos) corrupt_at(pos_, "unexpected word in the header");
    pos_ = end + 1;
    return word;
  }

  std::string descr() {
    skip_space();
    if (pos_ < text_.size() && text_[pos_] == '[') {
      fail_at(ErrorCode::kUnsupported, name_, base_offset_ + pos_,
              "a structured array, expected one of numbers; save one field with .astype('<f4')");
    }
    return quoted();
  }

  bool boolean() {
    skip_space();
    for (const bool v : {false, true}) {
      const std::string_view word = v ? "True" : "False";
      if (text_.substr(pos_, word.size()) == word) {
        pos_ += word.size();
        return v;
      }
    }
    corrupt_at(pos_, "expected True or False for fortran_order");
  }

  std::vector<uint64_t> shape() {
    std::vector<uint64_t> dims;
    expect('(');
    while (!accept(')')) {
      if (dims.size() == limits_.max_dims) {
        fail_at(ErrorCode::kLimitExceeded, name_, base_offset_ + pos_, "more than ", limits_.max_dims, " dimensions");
      }
      dims.push_back(dimension());
      if (!accept(',')) {
        expect(')');
        break;
      }
    }
    return dims;
  }

  uint64_t dimension() {
    const size_t begin = skip_space();
    uint64_t v = 0;
    while (pos_ < text_.size() && text_[pos_] >= '0' && text_[pos_] <= '9') {
      const uint64_t digit = static_cast<uint64_t>(text_[pos_] - '0');
      if (v > (UINT64_MAX - digit) / 10) corrupt_at(begin, "dimension beyond 64 bits");
      v = v * 10 + digit;
      ++pos_;
    }
    if (pos_ == begin) corrupt_at(begin, "expected a dimension of 0 or more");
    if (pos_ < text_.size() && text_[pos_] == 'L') ++pos_;  // as Python 2 wrote them
    return v;
  }

  std::string_view text_;
  std::string_view name_;
  uint64_t base_offset_;
  const Limits& limits_;
  size_t pos_ = 0;
};

constexpr std::pair<std::string_view, DType> kDescriptions[] = {
    {"f4", DType::kFloat32}, {"f2", DType::kFloat16}, {"f8", DType::kFloat64}, {"V2", DType::kBFloat16}, {"i1", DType::kInt8},
    {"i2", DType::kInt16},   {"i4", DType::kInt32},   {"i8", DType::kInt64},   {"u1", DType::kUInt8},    {"u2", DType::kUInt16},
    {"u4", DType::kUInt32},  {"u8", DType::kUInt64},  {"b1", DType::kBool}};

DType dtype_of(const std::string& descr, std::string_view name) {
  if (descr == "bfloat16") return DType::kBFloat16;
  const bool has_order = descr.size() == 3 && std::string_view("<>|=").find(descr[0]) != std::string_view::npos;
  for (const auto& [description, dtype] : kDescriptions) {
    // '|' is the order of what has none: single bytes and V.
    const bool orderless = dtype_bytes(dtype) == 1 || description[0] == 'V';
    if (has_order && descr.substr(1) == description && (orderless || descr[0] == '<' || descr[0] == '>')) return dtype;
  }
  fail(ErrorCode::kUnsupported, name, ": elements of type '", printable(descr),
       "', expected real numbers of 1 to 8 bytes, e.g. float32 ('<f4'); convert with numpy: np.save(path, a.astype('<f4'))");
}

// Elements of T bytes from the order of `src` into C order. In C order the last index runs fastest; `index` counts.
template <size_t T>
void reorder(const NpyArray& array, uint8_t* dst) {
  const std::vector<uint64_t>& shape = array.entry.shape;
  const auto* src = static_cast<const uint8_t*>(array.entry.data);
  std::vector<uint64_t> stride(shape.size(), 1), index(shape.size(), 0);
  for (size_t d = 1; d < shape.size(); ++d) stride[d] = stride[d - 1] * shape[d - 1];
  uint64_t at = 0;
  for (uint64_t i = 0; i < array.entry.count; ++i) {
    const uint8_t* from = src + T * (array.fortran_order ? at : i);
    for (size_t b = 0; b < T; ++b) dst[T * i + b] = from[array.swapped ? T - 1 - b : b];
    for (size_t d = shape.size(); d-- > 0;) {
      at += stride[d];
      if (++index[d] < shape[d]) break;
      at -= stride[d] * shape[d];
      index[d] = 0;
    }
  }
}

}  // namespace

bool looks_like_npy(std::span<const uint8_t> bytes) {
  return bytes.size() >= sizeof(kMagic) && std::memcmp(bytes.data(), kMagic, sizeof(kMagic)) == 0;
}

NpyArray read_npy(std::span<const uint8_t> bytes, std::string_view name, const Limits& limits) {
  const std::string file = printable_path(name);
  ByteReader reader(bytes, file);
  if (!looks_like_npy(bytes)) reader.corrupt("expected the magic bytes of .npy (93 4e 55 4d 50 59)");
  reader.skip(sizeof(kMagic), "magic");
  const uint8_t major = reader.u8("version");
  const uint8_t minor = reader.u8("version");
  if (major < 1 || major > 3 || minor != 0) {
    reader.throw_at(ErrorCode::kUnsupported, 6, ".npy version ", major, ".", minor, ", expected 1.0, 2.0 or 3.0");
  }
  const uint64_t header_bytes = major == 1 ? reader.u16("header length") : reader.u32("header length");
  if (header_bytes > limits.max_header_bytes) {
    fail_at(ErrorCode::kLimitExceeded, file, 8, "header of ", header_bytes, " bytes, the limit is ", limits.max_header_bytes);
  }
  const uint64_t header_at = reader.offset();
  const NpyHeader header = HeaderParser(reader.take(header_bytes, "header"), file, header_at, limits).parse();

  NpyArray array;
  TensorEntry& entry = array.entry;
  entry.dtype = dtype_of(header.descr, file);
  const uint64_t item_bytes = dtype_bytes(entry.dtype);
  array.swapped = header.descr[0] == '>' && item_bytes > 1 && entry.dtype != DType::kBFloat16;
  array.void_bfloat16 = entry.dtype == DType::kBFloat16;
  entry.count = element_count(header.shape, limits, file);
  entry.shape = header.shape;
  // With one dimension, or one element, both orders are the same.
  const auto longer = std::count_if(entry.shape.begin(), entry.shape.end(), [](uint64_t d) { return d != 1; });
  array.fortran_order = header.fortran_order && longer > 1;
  if (reader.remaining() % item_bytes != 0 || reader.remaining() / item_bytes != entry.count) {
    reader.corrupt(reader.remaining(), " bytes of data, expected ", entry.count, " elements of ", item_bytes, " bytes");
  }
  entry.data = reader.take(reader.remaining(), "data").data();
  return array;
}

void copy_native(const NpyArray& array, std::span<uint8_t> dst) {
  const size_t item_bytes = dtype_bytes(array.entry.dtype);
  if (dst.size() != array.entry.count * item_bytes) {
    fail(ErrorCode::kInvalidArgument, dst.size(), " bytes of room for ", array.entry.count, " elements of ", item_bytes);
  }
  if (item_bytes == 1) reorder<1>(array, dst.data());
  if (item_bytes == 2) reorder<2>(array, dst.data());
  if (item_bytes == 4) reorder<4>(array, dst.data());
  if (item_bytes == 8) reorder<8>(array, dst.data());
}

std::string npy_note(const NpyArray& array) {
  std::string text;
  const auto add = [&](const char* what) { text += str(text.empty() ? "" : ", ", what); };
  if (array.swapped) add("big-endian elements were read as such");
  if (array.fortran_order) add("Fortran order was read as such");
  if (array.void_bfloat16) add("elements of two bytes without a type ('<V2') were taken for bfloat16");
  return text;
}

TensorEntry parse_npy(std::span<const uint8_t> bytes, std::string_view name, const Limits& limits) {
  NpyArray array = read_npy(bytes, name, limits);
  if (array.swapped || array.fortran_order) {
    fail(ErrorCode::kUnsupported, printable_path(name), array.swapped ? ": big-endian" : ": Fortran order",
         ", expected little-endian elements in C order; convert with numpy: np.save(path, np.ascontiguousarray(a, '<f4'))");
  }
  return std::move(array.entry);
}

std::vector<uint8_t> npy_header(DType dtype, std::span<const uint64_t> shape) {
  const auto known = std::find_if(std::begin(kDescriptions), std::end(kDescriptions),
                                  [&](const auto& d) { return d.second == dtype && d.first[0] != 'V'; });
  if (known == std::end(kDescriptions)) {
    fail(ErrorCode::kInvalidArgument, ".npy has no ", dtype_name(dtype), ", expected float32 or float16 (.safetensors has it)");
  }
  std::string text =
      str("{'descr': '", dtype_bytes(dtype) == 1 ? "|" : "<", known->first, "', 'fortran_order': False, 'shape': (");
  for (size_t i = 0; i < shape.size(); ++i) text += str(i == 0 ? "" : ", ", shape[i]);
  text += shape.size() == 1 ? ",), }" : "), }";
  constexpr size_t kPrefixBytes = 10;
  while ((kPrefixBytes + text.size() + 1) % 64 != 0) text += ' ';
  text += '\n';
  if (text.size() > 0xffff) fail(ErrorCode::kInvalidArgument, shape.size(), " dimensions do not fit a .npy header");

  std::vector<uint8_t> out(kPrefixBytes + text.size());
  ByteWriter writer(out);
  writer.bytes(kMagic);
  writer.u8(1);
  writer.u8(0);
  writer.u16(static_cast<uint16_t>(text.size()));
  writer.text(text);
  return out;
}

void save_npy(const std::string& path, const TensorEntry& tensor) {
  check_for_saving(path, tensor);
  const std::vector<uint8_t> header = npy_header(tensor.dtype, tensor.shape);
  AtomicFile file(path);
  file.write(header);
  file.write({static_cast<const uint8_t*>(tensor.data), tensor.count * dtype_bytes(tensor.dtype)});
  file.commit();
}

}  // namespace kpd::io
