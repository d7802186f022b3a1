// io: .npy. The header is a Python literal {'descr': '<f4', 'fortran_order': False, 'shape': (3, 4), }; a small parser of
// exactly that reads it, nothing is evaluated.
#include "kpd/io/npy.h"

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
    fail(ErrorCode::kCorruptData, name_, ": byte ", base_offset_ + pos, ": ", args...);
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
      fail(ErrorCode::kUnsupported, name_, ": byte ", base_offset_ + pos_,
           ": a structured array, expected float32 ('<f4') or float16 ('<f2'); save one field with .astype('<f4')");
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
        fail(ErrorCode::kLimitExceeded, name_, ": byte ", base_offset_ + pos_, ": more than ", limits_.max_dims, " dimensions");
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

DType dtype_of(const std::string& descr, std::string_view name) {
  if (descr == "<f4") return DType::kFloat32;
  if (descr == "<f2") return DType::kFloat16;
  fail(ErrorCode::kUnsupported, name, ": elements of type '", printable(descr),
       "', expected float32 ('<f4') or float16 ('<f2'); convert with numpy: np.save(path, a.astype('<f4'))");
}

}  // namespace

bool looks_like_npy(std::span<const uint8_t> bytes) {
  return bytes.size() >= sizeof(kMagic) && std::memcmp(bytes.data(), kMagic, sizeof(kMagic)) == 0;
}

TensorEntry parse_npy(std::span<const uint8_t> bytes, std::string_view name, const Limits& limits) {
  const std::string file = printable_path(name);
  ByteReader reader(bytes, file);
  if (!looks_like_npy(bytes)) reader.corrupt("expected the magic bytes of .npy (93 4e 55 4d 50 59)");
  reader.skip(sizeof(kMagic), "magic");
  const uint8_t major = reader.u8("version");
  const uint8_t minor = reader.u8("version");
  if (major < 1 || major > 3 || minor != 0) {
    reader.throw_at(static_cast<int>(ErrorCode::kUnsupported), 6,
                    str(".npy version ", major, ".", minor, ", expected 1.0, 2.0 or 3.0"));
  }
  const uint64_t header_bytes = major == 1 ? reader.u16("header length") : reader.u32("header length");
  if (header_bytes > limits.max_header_bytes) {
    fail(ErrorCode::kLimitExceeded, file, ": byte 8: header of ", header_bytes, " bytes, the limit is ",
         limits.max_header_bytes);
  }
  const uint64_t header_at = reader.offset();
  const NpyHeader header = HeaderParser(reader.take(header_bytes, "header"), file, header_at, limits).parse();

  TensorEntry entry;
  entry.dtype = dtype_of(header.descr, file);
  if (header.fortran_order) {
    fail(ErrorCode::kUnsupported, file,
         ": Fortran order, expected C order; convert with numpy: np.save(path, np.ascontiguousarray(a))");
  }
  entry.count = element_count(header.shape, limits, file);
  entry.shape = header.shape;
  const uint64_t item_bytes = dtype_bytes(entry.dtype);
  if (reader.remaining() % item_bytes != 0 || reader.remaining() / item_bytes != entry.count) {
    reader.corrupt(reader.remaining(), " bytes of data, expected ", entry.count, " elements of ", item_bytes, " bytes");
  }
  if (reader.offset() % item_bytes != 0) {
    fail(ErrorCode::kUnsupported, file, ": byte ", reader.offset(),
         ": data not aligned to its elements; save it again with numpy");
  }
  entry.data = reader.take(reader.remaining(), "data").data();
  return entry;
}

std::vector<uint8_t> npy_header(DType dtype, std::span<const uint64_t> shape) {
  if (dtype == DType::kBFloat16) {
    fail(ErrorCode::kInvalidArgument, ".npy has no bfloat16, expected float32 or float16 (.safetensors has it)");
  }
  std::string text = str("{'descr': '", dtype == DType::kFloat32 ? "<f4" : "<f2", "', 'fortran_order': False, 'shape': (");
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
