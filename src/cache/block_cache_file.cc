// cache: a sequence of a block cache as bytes and back (docs/format/kv_cache.md, version 2).
#include <algorithm>
#include <cstring>

#include "cache/block_cache.h"
#include "kpd/base/bytes.h"
#include "kpd/base/crc32.h"
#include "kpd/base/error.h"

namespace kpd::cache {
namespace {

constexpr std::string_view kMagic = "KPDKV002";
constexpr size_t kNameBytes = 5;          // of the magic text, before its version
constexpr size_t kFingerprintBytes = 96;  // at most
constexpr uint8_t kOpenBit = 1, kSealedBit = 2;

using Sequence = Sequences::Sequence;

class Writer {
 public:
  void text(std::string_view text) { bytes_.insert(bytes_.end(), text.begin(), text.end()); }
  void u8(size_t v) { bytes_.push_back(static_cast<uint8_t>(v)); }
  void u16(size_t v) { store_u16(add(2), static_cast<uint16_t>(v)); }
  void u32(size_t v) { store_u32(add(4), static_cast<uint32_t>(v)); }
  void u64(uint64_t v) { store_u64(add(8), v); }
  uint8_t* add(size_t n) {
    bytes_.resize(bytes_.size() + n);
    return bytes_.data() + bytes_.size() - n;
  }
  std::vector<uint8_t> finish() {
    u32(crc32(bytes_));
    return std::move(bytes_);
  }

 private:
  std::vector<uint8_t> bytes_;
};

// Which parts a layer's block b has.
uint8_t parts_of(const Sequences::Table& table, size_t b) {
  return static_cast<uint8_t>((table.open[b] == kNoBlock ? 0 : kOpenBit) | (b < table.sealed.size() ? kSealedBit : 0));
}

size_t tokens_in(size_t length, size_t b) { return std::min(kBlockTokens, length - b * kBlockTokens); }

// fn(head, b, state, n tokens) for every part of a layer in the file's order.
template <class Fn>
void for_parts(size_t n_kv_heads, size_t length, std::span<const uint8_t> parts, const Fn& fn) {
  for (size_t head = 0; head < n_kv_heads; ++head) {
    for (size_t b = 0; b < blocks_for(length); ++b) {
      if ((parts[b] & kOpenBit) != 0) fn(head, b, PartState::kOpen, tokens_in(length, b));
      if ((parts[b] & kSealedBit) != 0) fn(head, b, PartState::kSealed, tokens_in(length, b));
    }
  }
}

void check_same(std::string_view found, std::string_view expected, const std::string& what, std::string_view name) {
  if (found != expected) fail(ErrorCode::kMismatch, name, ": saved with the ", what, " ", found, ", expected ", expected);
}

std::string read_text(ByteReader& reader, size_t n, const char* what) {
  const auto bytes = reader.take(n, what);
  return {bytes.begin(), bytes.end()};
}

void read_version(ByteReader& reader) {
  const std::string magic = read_text(reader, kMagic.size(), "the magic text");
  if (magic == kMagic) return;
  const std::string version = magic.substr(kNameBytes);
  if (magic.compare(0, kNameBytes, kMagic, 0, kNameBytes) != 0 || version.find_first_not_of("0123456789") != std::string::npos)
    fail(ErrorCode::kCorruptData, reader.name(), ": byte 0: not a saved cache of kpd");
  fail(ErrorCode::kUnsupported, reader.name(), ": a saved cache of version ", version, ", this kpd reads ",
       kMagic.substr(kNameBytes), " only; let the model read the text again");
}

// What stands before the parts.
struct Head {
  Plan plan;
  bool exact = true;
  std::vector<int32_t> positions;
  std::vector<std::span<const uint8_t>> parts;  // of each layer: of each block
};

void read_layer(ByteReader& reader, const Layer& layer, const std::string& spec, size_t index) {
  const uint32_t heads = reader.u32("the heads of a layer"), keys = reader.u32("the width of a key"),
                 values = reader.u32("the width of a value");
  const std::string found = read_text(reader, reader.u16("the length of a layer's spec"), "a layer's spec");
  check_same(found, spec, str("method of layer ", index), reader.name());
  if (heads != layer.n_kv_heads || keys != layer.key_width || values != layer.value_width) {
    reader.corrupt("layer ", index, " has ", heads, " heads of ", keys, " and ", values, ", expected ", layer.n_kv_heads,
                   " of ", layer.key_width, " and ", layer.value_width);
  }
}

// Blocks of a layer: a format that never seals has open parts alone; else what is complete is sealed, the tail is open.
void check_parts(const ByteReader& reader, std::span<const uint8_t> parts, size_t length, bool seals) {
  for (size_t b = 0; b < parts.size(); ++b) {
    const bool complete = (b + 1) * kBlockTokens <= length;
    const bool sealed = (parts[b] & kSealedBit) != 0, open = (parts[b] & kOpenBit) != 0;
    if (parts[b] > (kOpenBit | kSealedBit) || sealed != (seals && complete) || (!open && !sealed))
      reader.corrupt("block ", b, " of ", length, " tokens has parts ", parts[b]);
  }
}

// Reads `length` positions, which are there.
std::vector<int32_t> read_positions(ByteReader& reader, size_t length) {
  std::vector<int32_t> positions(length);
  int32_t last = -1;
  for (int32_t& position : positions) {
    position = static_cast<int32_t>(reader.u32("a position"));
    if (position <= last) reader.corrupt("position ", position, " does not follow ", last);
    last = position;
  }
  if (last > kMaxPosition) reader.corrupt("position ", last, ", expected at most ", kMaxPosition);
  return positions;
}

}  // namespace

std::vector<uint8_t> BlockCache::save(SequenceId sequence, std::string_view fingerprint) const {
  if (fingerprint.size() > kFingerprintBytes)
    fail(ErrorCode::kInvalidArgument, "a fingerprint of ", fingerprint.size(), " bytes, at most ", kFingerprintBytes);
  const Sequence* s = store_.sequences.find(sequence);
  const size_t length = s == nullptr ? 0 : s->length;
  Writer out;
  out.text(kMagic);
  out.u8(fingerprint.size());
  out.text(fingerprint);
  out.u32(layers_.size());
  for (size_t i = 0; i < layers_.size(); ++i) {
    for (const size_t n : {layers_[i].n_kv_heads, layers_[i].key_width, layers_[i].value_width}) out.u32(n);
    out.u16(spec(i).size());
    out.text(spec(i));
  }
  for (const uint64_t word : plan(sequence).words) out.u64(word);
  out.u8(s == nullptr || s->exact ? 1 : 0);
  out.u32(length);
  for (size_t i = 0; i < length; ++i) out.u32(static_cast<uint32_t>(s->positions[i]));
  std::vector<std::vector<uint8_t>> parts(layers_.size());
  for (size_t layer = 0; layer < layers_.size(); ++layer) {
    for (size_t b = 0; b < blocks_for(length); ++b) {
      parts[layer].push_back(parts_of(s->tables[store_.group_of(layer)], b));
      out.u8(parts[layer].back());
    }
  }
  for (size_t layer = 0; layer < layers_.size(); ++layer) {
    const LayerFormats& formats = store_.group(layer).formats;
    for_parts(layers_[layer].n_kv_heads, length, parts[layer], [&](size_t head, size_t b, PartState state, size_t n) {
      formats.keys->save(store_.keys(*s, layer, head, b, state), n, out.add(formats.keys->saved_bytes(state, n)));
      formats.values->save(store_.values(*s, layer, head, b, state), n, out.add(formats.values->saved_bytes(state, n)));
    });
  }
  return out.finish();
}

namespace {

// Everything is checked here, before anything is changed.
Head read_head(ByteReader& reader, std::span<const uint8_t> bytes, std::string_view fingerprint, const BlockStore& store,
               std::span<const Layer> layers) {
  read_version(reader);
  check_same(read_text(reader, reader.u8("the length of the fingerprint"), "the fingerprint"), fingerprint, "model",
             reader.name());
  const uint32_t n_layers = reader.u32("the number of layers");
  if (n_layers != layers.size()) reader.corrupt(n_layers, " layers, expected ", layers.size());
  for (size_t i = 0; i < layers.size(); ++i) read_layer(reader, layers[i], store.group(i).spec, i);
  Head head;
  for (uint64_t& word : head.plan.words) word = reader.u64("the plan");
  const uint8_t exact = reader.u8("whether it is exact");
  if (exact > 1) reader.corrupt(exact, ", expected 1 for an exact sequence, or 0");
  head.exact = exact == 1;
  const size_t length = reader.u32("the number of tokens");
  if (reader.remaining() / sizeof(int32_t) < length)
    reader.corrupt(reader.remaining(), " bytes are left for the positions of ", length, " tokens");
  if (crc32(bytes.first(bytes.size() - 4)) != load_u32(bytes.data() + bytes.size() - 4))
    reader.corrupt("the checksum is wrong");
  head.positions = read_positions(reader, length);
  for (size_t i = 0; i < layers.size(); ++i) {
    head.parts.push_back(reader.take(blocks_for(length), "the parts of a layer's blocks"));
    check_parts(reader, head.parts[i], length, store.group(i).formats.sealing.seals());
    for (size_t j = 0; j < i; ++j) {
      if (store.group_of(i) == store.group_of(j) &&
          !std::equal(head.parts[i].begin(), head.parts[i].end(), head.parts[j].begin()))
        reader.corrupt("layers ", j, " and ", i, " are alike, but have other parts");
    }
  }
  return head;
}

}  // namespace

void BlockCache::load(SequenceId sequence, std::span<const uint8_t> bytes, std::string_view fingerprint,
                      std::string_view name) {
  ByteReader reader(bytes, name);
  Head head = read_head(reader, bytes, fingerprint, store_, layers_);
  const size_t length = head.positions.size();
  // What lies in each part, in order: keys, values.
  std::vector<std::span<const uint8_t>> stored;
  for (size_t layer = 0; layer < layers_.size(); ++layer) {
    const LayerFormats& formats = store_.group(layer).formats;
    for_parts(layers_[layer].n_kv_heads, length, head.parts[layer], [&](size_t, size_t, PartState state, size_t n) {
      for (const Format* format :
           {static_cast<const Format*>(formats.keys.get()), static_cast<const Format*>(formats.values.get())}) {
        stored.push_back(reader.take(format->saved_bytes(state, n), "keys and values"));
        if (!format->can_load(state, stored.back(), n)) reader.corrupt("a block of layer ", layer, " is none of its method");
      }
    });
  }
  if (reader.remaining() != 4) reader.corrupt(reader.remaining(), " bytes are left, expected a checksum of 4");
  std::vector<std::vector<bool>> has_open(store_.sequences.groups().size(), std::vector<bool>(blocks_for(length), true));
  for (size_t layer = 0; layer < layers_.size(); ++layer) {
    for (size_t b = 0; b < blocks_for(length); ++b)
      has_open[store_.group_of(layer)][b] = (head.parts[layer][b] & kOpenBit) != 0;
  }
  Sequence& s = store_.sequences.restore(sequence, std::move(head.positions), has_open);
  s.plan = head.plan;
  s.exact = head.exact;
  auto next = stored.begin();
  for (size_t layer = 0; layer < layers_.size(); ++layer) {
    const LayerFormats& formats = store_.group(layer).formats;
    for_parts(layers_[layer].n_kv_heads, length, head.parts[layer], [&](size_t kv_head, size_t b, PartState state, size_t n) {
      formats.keys->load(state, *next++, n, store_.keys_to_write(s, layer, kv_head, b, state));
      formats.values->load(state, *next++, n, store_.values_to_write(s, layer, kv_head, b, state));
    });
  }
}

}  // namespace kpd::cache
