// io: IDX files. Big-endian: 0, 0, element type, number of dimensions, the dimensions as u32, the elements.
#include "kpd/io/idx.h"

#include <zlib.h>

#include <algorithm>

#include "kpd/base/bytes.h"
#include "kpd/base/error.h"
#include "kpd/io/file.h"
#include "kpd/io/tensor_entry.h"
#include "io/text.h"

namespace kpd::io {
namespace {

constexpr uint8_t kUnsignedByte = 0x08;
constexpr size_t kFixedBytes = 4;
// DEFLATE codes at most 258 bytes in two bits.
constexpr uint64_t kMaxInflateRatio = 1032;

uint64_t load_u32_big_endian(const uint8_t* p) {
  return (uint64_t{p[0]} << 24) | (uint64_t{p[1]} << 16) | (uint64_t{p[2]} << 8) | p[3];
}

// Number of dimensions from the first four bytes.
size_t check_fixed(std::span<const uint8_t> head, const std::string& file, const Limits& limits) {
  if (head[0] != 0 || head[1] != 0)
    fail_at(ErrorCode::kCorruptData, file, 0, "expected the two zero bytes that open an IDX file");
  if (head[2] != kUnsignedByte) {
    fail_at(ErrorCode::kUnsupported, file, 2, "IDX element type ", head[2], ", expected 8 (unsigned bytes)");
  }
  if (head[3] == 0) fail_at(ErrorCode::kCorruptData, file, 3, "no dimensions, expected at least 1");
  if (head[3] > limits.max_dims) {
    fail_at(ErrorCode::kLimitExceeded, file, 3, head[3], " dimensions, the limit is ", limits.max_dims);
  }
  return head[3];
}

std::vector<uint64_t> read_shape(std::span<const uint8_t> dims) {
  std::vector<uint64_t> shape(dims.size() / 4);
  for (size_t i = 0; i < shape.size(); ++i) shape[i] = load_u32_big_endian(dims.data() + 4 * i);
  return shape;
}

// zlib's inflater over a span; offsets in errors are of the compressed file.
class Inflater {
 public:
  Inflater(std::span<const uint8_t> bytes, const std::string& file) : bytes_(bytes), file_(file) {
    if (inflateInit2(&stream_, 15 + 16) != Z_OK) fail(ErrorCode::kOutOfMemory, file_, ": no memory to decompress");
  }
  ~Inflater() { inflateEnd(&stream_); }
  Inflater(const Inflater&) = delete;
  Inflater& operator=(const Inflater&) = delete;

  // Fills dst.
  void read(std::span<uint8_t> dst, const char* what) {
    if (step(dst) != dst.size()) corrupt("the compressed data ends within ", what);
  }
  // Checks that nothing more comes out and nothing more is there; the trailer's checksum is checked by zlib.
  void expect_end() {
    uint8_t extra;
    if (step({&extra, 1}) != 0) corrupt("more data than the dimensions give");
    if (!ended_) corrupt("the compressed data is cut off before its checksum");
    if (offset() != bytes_.size()) corrupt(bytes_.size() - offset(), " bytes after the end of the compressed data");
  }

 private:
  size_t offset() const { return consumed_ - stream_.avail_in; }
  template <class... Args>
  [[noreturn]] void corrupt(const Args&... args) const {
    fail_at(ErrorCode::kCorruptData, file_, offset(), args...);
  }

  // Bytes produced: dst.size() unless the data ends.
  size_t step(std::span<uint8_t> dst) {
    size_t done = 0;
    while (done < dst.size() && !ended_) {
      constexpr size_t kChunkBytes = size_t{1} << 30;  // zlib counts in 32 bits
      if (stream_.avail_in == 0) {
        const size_t n = std::min(bytes_.size() - consumed_, kChunkBytes);
        stream_.next_in = const_cast<Bytef*>(bytes_.data() + consumed_);
        stream_.avail_in = static_cast<uInt>(n);
        consumed_ += n;
      }
      const size_t want = std::min(dst.size() - done, kChunkBytes);
      stream_.next_out = dst.data() + done;
      stream_.avail_out = static_cast<uInt>(want);
      const int status = inflate(&stream_, Z_NO_FLUSH);
      done += want - stream_.avail_out;
      if (status == Z_STREAM_END) {
        ended_ = true;
      } else if (status == Z_MEM_ERROR) {
        fail(ErrorCode::kOutOfMemory, file_, ": no memory to decompress");
      } else if (status == Z_BUF_ERROR || (status == Z_OK && stream_.avail_out > 0 && consumed_ == bytes_.size())) {
        break;  // no input left
      } else if (status != Z_OK) {
        corrupt("invalid gzip data");
      }
    }
    return done;
  }

  std::span<const uint8_t> bytes_;
  const std::string& file_;
  z_stream stream_{};
  size_t consumed_ = 0;  // handed to zlib
  bool ended_ = false;
};

IdxArray parse_gzip(std::span<const uint8_t> bytes, const std::string& file, const Limits& limits) {
  Inflater inflater(bytes, file);
  uint8_t head[kFixedBytes];
  inflater.read(head, "the header");
  std::vector<uint8_t> dims(4 * check_fixed(head, file, limits));
  inflater.read(dims, "the dimensions");
  IdxArray array;
  array.shape = read_shape(dims);
  const uint64_t count = element_count(array.shape, limits, file);
  if (count / kMaxInflateRatio > bytes.size()) {
    fail_at(ErrorCode::kCorruptData, file, 0, "dimensions of ", count, " bytes, more than ", bytes.size(),
            " compressed bytes can hold");
  }
  array.data.resize(count);
  inflater.read(array.data, "the elements");
  inflater.expect_end();
  return array;
}

}  // namespace

IdxArray parse_idx(std::span<const uint8_t> bytes, std::string_view name, const Limits& limits) {
  const std::string file = printable_path(name);
  if (bytes.size() >= 2 && bytes[0] == 0x1f && bytes[1] == 0x8b) return parse_gzip(bytes, file, limits);
  ByteReader reader(bytes, file);
  const size_t n_dims = check_fixed(reader.take(kFixedBytes, "the IDX header"), file, limits);
  IdxArray array;
  array.shape = read_shape(reader.take(4 * n_dims, "the dimensions"));
  const uint64_t count = element_count(array.shape, limits, file);
  if (count != reader.remaining())
    reader.corrupt(reader.remaining(), " bytes of data, expected ", count, " from the dimensions");
  const auto data = reader.take(count, "the elements");
  array.data.assign(data.begin(), data.end());
  return array;
}

IdxArray load_idx(const std::string& path, const Limits& limits) {
  const MappedFile file = map_file(path);
  return parse_idx(file.bytes(), path, limits);
}

}  // namespace kpd::io
