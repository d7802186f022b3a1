// fuzz: io's IDX reader, plain and gzip. Anything thrown but kpd::Error is a finding.
//
// The input's first byte chooses whether the rest is compressed before it is read: without that hardly any input would pass
// gzip's checksum.
#include <zlib.h>

#include <cstddef>
#include <cstdint>
#include <vector>

#include "kpd/base/error.h"
#include "kpd/io/idx.h"

namespace {

std::vector<uint8_t> gzip(const uint8_t* data, size_t size) {
  std::vector<uint8_t> out(compressBound(size) + 64);
  z_stream stream{};
  if (deflateInit2(&stream, 1, Z_DEFLATED, 15 + 16, 1, Z_DEFAULT_STRATEGY) != Z_OK) __builtin_trap();
  stream.next_in = const_cast<Bytef*>(data);
  stream.avail_in = static_cast<uInt>(size);
  stream.next_out = out.data();
  stream.avail_out = static_cast<uInt>(out.size());
  if (deflate(&stream, Z_FINISH) != Z_STREAM_END) __builtin_trap();
  out.resize(stream.total_out);
  deflateEnd(&stream);
  return out;
}

void read(std::span<const uint8_t> bytes) {
  try {
    const kpd::io::IdxArray array = kpd::io::parse_idx(bytes, "input-idx");
    uint64_t count = 1;
    for (const uint64_t dim : array.shape) count *= dim;
    if (count != array.data.size()) __builtin_trap();
  } catch (const kpd::Error&) {
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  if (data[0] % 2 == 0) {
    read({data + 1, size - 1});
  } else {
    read(gzip(data + 1, size - 1));
  }
  return 0;
}
