// llm: a sequence of a plain cache as bytes and back (docs/format/kv_cache.md).
#include <cstring>

#include "kpd/base/bytes.h"
#include "kpd/base/error.h"
#include "kpd/base/crc32.h"
#include "llm/float_cache.h"

namespace kpd::llm {
namespace {

constexpr std::string_view kMagic = "KPDKV001";
constexpr size_t kTextBytes = 96;  // of the fingerprint, at most

void put_text(std::vector<uint8_t>& out, std::string_view text) {
  out.push_back(static_cast<uint8_t>(text.size()));
  out.insert(out.end(), text.begin(), text.end());
}

void put_u32(std::vector<uint8_t>& out, uint32_t v) {
  uint8_t bytes[4];
  store_u32(bytes, v);
  out.insert(out.end(), bytes, bytes + 4);
}

std::string read_text(ByteReader& reader, const char* what) {
  const auto bytes = reader.take(reader.u8(what), what);
  return {bytes.begin(), bytes.end()};
}

void check_same(std::string_view found, std::string_view expected, const char* what, std::string_view name) {
  if (found != expected) fail(ErrorCode::kMismatch, name, ": saved with the ", what, " ", found, ", expected ", expected);
}

}  // namespace

std::vector<uint8_t> FloatCache::save(SequenceId sequence, std::string_view fingerprint) const {
  if (fingerprint.size() > kTextBytes)
    fail(ErrorCode::kInvalidArgument, "a fingerprint of ", fingerprint.size(), " bytes, at most ", kTextBytes);
  const auto it = sequences_.find(sequence);
  const size_t length = it == sequences_.end() ? 0 : it->second.length;
  std::vector<uint8_t> out(kMagic.begin(), kMagic.end());
  put_text(out, spec());
  put_text(out, fingerprint);
  put_u32(out, static_cast<uint32_t>(layers_.size()));
  for (const CacheLayer& layer : layers_) {
    put_u32(out, static_cast<uint32_t>(layer.n_kv_heads));
    put_u32(out, static_cast<uint32_t>(layer.head_dim));
  }
  put_u32(out, static_cast<uint32_t>(length));
  for (size_t i = 0; i < length; ++i) put_u32(out, static_cast<uint32_t>(it->second.positions[i]));
  const size_t width = dtype_bytes(dtype_);
  std::vector<float> keys, values;
  for (size_t layer = 0; layer < layers_.size() && length > 0; ++layer) {
    const size_t n = length * layers_[layer].head_dim;
    keys.resize(n);
    values.resize(n);
    for (size_t head = 0; head < layers_[layer].n_kv_heads; ++head) {
      read_tokens(it->second, layer, head, 0, length, keys.data(), values.data());
      const size_t at = out.size();
      out.resize(at + 2 * n * width);
      store_floats(keys, dtype_, out.data() + at);
      store_floats(values, dtype_, out.data() + at + n * width);
    }
  }
  put_u32(out, crc32(out));
  return out;
}

void FloatCache::load(SequenceId sequence, std::span<const uint8_t> bytes, std::string_view fingerprint,
                      std::string_view name) {
  ByteReader reader(bytes, name);
  const auto magic = reader.take(kMagic.size(), "the magic text");
  if (std::memcmp(magic.data(), kMagic.data(), kMagic.size()) != 0)
    fail(ErrorCode::kCorruptData, name, ": byte 0: not a saved cache of kpd");
  check_same(read_text(reader, "the method"), spec(), "method", name);
  check_same(read_text(reader, "the fingerprint"), fingerprint, "model", name);
  const uint32_t n_layers = reader.u32("the number of layers");
  if (n_layers != layers_.size()) reader.corrupt(n_layers, " layers, expected ", layers_.size());
  size_t token_bytes = sizeof(int32_t);
  for (const CacheLayer& layer : layers_) {
    const uint32_t heads = reader.u32("the heads of a layer"), dim = reader.u32("the width of a head");
    if (heads != layer.n_kv_heads || dim != layer.head_dim)
      reader.corrupt(heads, " heads of ", dim, ", expected ", layer.n_kv_heads, " of ", layer.head_dim);
    token_bytes += 2 * layer.n_kv_heads * layer.head_dim * dtype_bytes(dtype_);
  }
  const uint32_t length = reader.u32("the number of tokens");
  if (reader.remaining() < 4 || (reader.remaining() - 4) % token_bytes != 0 ||
      (reader.remaining() - 4) / token_bytes != length) {
    reader.corrupt(reader.remaining(), " bytes are left for ", length, " tokens, expected ", token_bytes,
                   " each and a checksum of 4");
  }
  if (crc32(bytes.first(bytes.size() - 4)) != load_u32(bytes.data() + bytes.size() - 4))
    reader.corrupt("the checksum is wrong");
  std::vector<int32_t> positions(length);
  int32_t last = -1;
  for (int32_t& position : positions) {
    position = static_cast<int32_t>(reader.u32("a position"));
    if (position <= last) reader.corrupt("position ", position, " does not follow ", last);
    last = position;
  }
  if (last > kMaxPosition) reader.corrupt("position ", last, ", expected at most ", kMaxPosition);
  crop(sequence, 0);
  if (length == 0) return;
  begin({{{sequence, positions}}});
  Sequence& s = sequences_[sequence];
  const size_t width = dtype_bytes(dtype_);
  std::vector<float> keys, values;
  for (size_t layer = 0; layer < layers_.size(); ++layer) {
    const size_t n = length * layers_[layer].head_dim;
    keys.resize(n);
    values.resize(n);
    for (size_t head = 0; head < layers_[layer].n_kv_heads; ++head) {
      // The bytes may be unaligned: they are copied before they are read as numbers.
      std::vector<uint8_t> raw;
      for (std::vector<float>* dst : {&keys, &values}) {
        const auto part = reader.take(n * width, "keys and values");
        raw.assign(part.begin(), part.end());
        load_floats({raw.data(), n, dtype_}, 0, *dst);
      }
      write_tokens(s, layer, head, 0, length, keys.data(), values.data());
    }
  }
  commit();
}

}  // namespace kpd::llm
