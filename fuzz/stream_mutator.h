// fuzz: changes gradient streams where it hurts and then seals them again, so that hostile content gets past the checksum.
//
// A stream is changed as bytes, as fields of header and records, or in the structure of a payload; afterwards everything that
// is checked before the checksum (magic, version, lengths) is mostly made right, and lengths inside that the change broke
// sometimes are.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <random>
#include <span>
#include <vector>

#include "gradient/eden.h"
#include "gradient/stream_format.h"
#include "kpd/base/hash.h"
#include "kpd/quant/gaussian_step.h"

extern "C" size_t LLVMFuzzerMutate(uint8_t* data, size_t size, size_t max_size);

namespace kpd::gradient::fuzz {

// Of the messages that the fuzzers' receivers expect.
inline const Manifest& manifest() {
  static const Manifest m = {{"a", DType::kFloat32, {64}},
                             {"b", DType::kBFloat16, {10, 13}},
                             {"c", DType::kFloat32, {3}},
                             {"d", DType::kFloat16, {0}}};
  return m;
}

class StreamMutator {
 public:
  // `hash` is the manifest hash that a message should carry.
  explicit StreamMutator(uint64_t hash) : hash_(hash) {}

  size_t mutate(uint8_t* data, size_t size, size_t max_size, unsigned seed) {
    rng_.seed(seed);
    codecs_.begin_message();
    bytes_.assign(data, data + size);
    max_size_ = max_size;
    change();
    if (bytes_.size() > max_size) bytes_.resize(max_size);
    if (below(64) != 0) seal(bytes_);
    std::memcpy(data, bytes_.data(), bytes_.size());
    return bytes_.size();
  }

  // Makes right what is compared before the payload is looked at.
  void seal(std::vector<uint8_t>& b) {
    if (b.size() < kFileHeaderBytes + kChecksumBytes) return;
    const bool message = (b[6] & kFlagMessage) != 0 && b.size() >= kMessageHeaderBytes + kChecksumBytes;
    std::memcpy(b.data(), kMagic, 4);
    b[4] = kFormatMajor;
    b[6] = static_cast<uint8_t>((b[6] & kFlagStreamed) | (message ? kFlagMessage : 0));
    b[7] = 0;
    const uint32_t fixed = message ? kMessageHeaderBytes : kFileHeaderBytes;
    const uint32_t most = static_cast<uint32_t>(b.size() - kChecksumBytes);
    store_u32(b.data() + 8, std::clamp(load_u32(b.data() + 8), fixed, most));
    store_u32(b.data() + 12, std::min(load_u32(b.data() + 12), static_cast<uint32_t>(b.size() / kRecordBytes)));
    store_u64(b.data() + 16, (b[6] & kFlagStreamed) != 0 ? kUnknownLength : b.size());
    if (message && below(32) != 0) store_u64(b.data() + 24, hash_);
    store_u32(b.data() + most, crc32({b.data(), most}));
  }

 private:
  uint32_t below(uint32_t n) { return static_cast<uint32_t>(rng_() % n); }
  template <class T, size_t N>
  T pick(const T (&list)[N]) {
    return list[below(N)];
  }

  struct Place {
    size_t at = 0, bytes = 0;  // record and payload
    TensorRecord record;
  };

  void change() {
    find_records();
    if (places_.empty() || below(16) == 0) return change_bytes(0, bytes_.size());
    const uint32_t index = below(static_cast<uint32_t>(places_.size()));
    const Place& p = places_[index];
    old_size_ = bytes_.size();
    switch (below(12)) {
      case 0:
        return change_header();
      case 1:
        return add_extension();
      case 2:
        return change_bytes(24, std::min<size_t>(bytes_.size() - kChecksumBytes, places_[0].at) - 24);
      case 3:
        return drop_or_repeat(p);
      case 4:
      case 5:
      case 6:
        change_record(p);
        return below(4) == 0 ? void() : fit_payload(index);
      case 7:
        return change_scale(p);
      case 8:
        return fill_payload(p);
      default:
        change_payload(p);
        return below(4) == 0 ? void() : fit_payload(index);
    }
  }

  // As far as the stream can be read.
  void find_records() {
    places_.clear();
    std::vector<uint8_t> copy = bytes_;
    seal(copy);
    try {
      ByteReader r(copy);
      uint32_t count = 0;
      read_header(r, copy, Limits{}, &count);
      for (uint32_t i = 0; i < count && i < 8; ++i) {
        Place p;
        p.at = r.offset();
        CheckedRecord c = read_record(r, i, Limits{}, codecs_);
        p.record = c.record;
        p.bytes = kRecordBytes;
        places_.push_back(p);
        find_segments(r, c.record, *c.codec, Limits{}, spans_);
        places_.back().bytes = r.offset() - p.at;
      }
    } catch (const Error&) {
    }
    if (!places_.empty() && places_.back().bytes == kRecordBytes &&
        places_.back().at + kRecordBytes + kChecksumBytes < bytes_.size()) {
      places_.back().bytes = bytes_.size() - kChecksumBytes - places_.back().at;
    }
  }

  // libFuzzer's own changes within [at, at + n), which may become longer or shorter.
  void change_bytes(size_t at, size_t n) {
    if (n > bytes_.size() || at > bytes_.size() - n) return;
    const size_t room = n + (max_size_ > bytes_.size() ? std::min<size_t>(max_size_ - bytes_.size(), 64) : 0);
    if (room == 0) return;
    std::vector<uint8_t> part(bytes_.begin() + static_cast<ptrdiff_t>(at), bytes_.begin() + static_cast<ptrdiff_t>(at + n));
    part.resize(room);
    part.resize(LLVMFuzzerMutate(part.data(), n, room));
    replace(at, n, part);
  }

  void replace(size_t at, size_t n, const std::vector<uint8_t>& with) {
    const auto first = bytes_.begin() + static_cast<ptrdiff_t>(at);
    bytes_.erase(first, first + static_cast<ptrdiff_t>(n));
    bytes_.insert(bytes_.begin() + static_cast<ptrdiff_t>(at), with.begin(), with.end());
  }

  void change_header() {
    switch (below(5)) {
      case 0:
        bytes_[6] = static_cast<uint8_t>(bytes_[6] ^ kFlagStreamed);
        break;
      case 1:
        store_u32(bytes_.data() + 8, load_u32(bytes_.data() + 8) + below(9) - 4);
        break;
      case 2:
        store_u32(bytes_.data() + 12, load_u32(bytes_.data() + 12) + below(3) - 1);
        break;
      case 3:
        bytes_[4 + below(4)] = static_cast<uint8_t>(below(256));
        break;
      default:
        bytes_[24 + below(static_cast<uint32_t>(places_[0].at - 24))] = static_cast<uint8_t>(below(256));
    }
  }

  void add_extension() {
    const size_t at = places_[0].at;
    std::vector<uint8_t> ext(kExtensionHeadBytes + below(12));
    store_u16(ext.data(), static_cast<uint16_t>(below(4) == 0 ? kCriticalExtension | below(8) : below(256)));
    store_u32(ext.data() + 2, static_cast<uint32_t>(below(4) == 0 ? rng_() : ext.size() - kExtensionHeadBytes));
    replace(at, 0, ext);
    store_u32(bytes_.data() + 8, static_cast<uint32_t>(at + ext.size()));
  }

  void drop_or_repeat(const Place& p) {
    const bool repeat = below(2) == 0;
    std::vector<uint8_t> part(bytes_.begin() + static_cast<ptrdiff_t>(p.at),
                              bytes_.begin() + static_cast<ptrdiff_t>(std::min(p.at + p.bytes, bytes_.size())));
    if (repeat) {
      replace(p.at, 0, part);
    } else {
      replace(p.at, part.size(), {});
    }
    if (below(2) == 0) store_u32(bytes_.data() + 12, load_u32(bytes_.data() + 12) + (repeat ? 1u : ~0u));
  }

  void change_record(const Place& p) {
    static constexpr uint64_t kCounts[] = {0,
                                           1,
                                           63,
                                           64,
                                           65,
                                           127,
                                           128,
                                           130,
                                           4095,
                                           4096,
                                           4097,
                                           4167,
                                           8191,
                                           8192,
                                           32767,
                                           1ull << 32,
                                           (1ull << 32) + 64,
                                           1ull << 36,
                                           (1ull << 36) + 1,
                                           1ull << 60,
                                           ~0ull};
    static constexpr uint32_t kRates[] = {
        0,      1,      3276,   3277,   6554,   32768,     65535,     65536,           65537,     98304,
        104858, 131072, 196608, 524288, 524289, 16u << 16, 32u << 16, (32u << 16) + 1, 0xffffffff};
    // Steps around the bounds, where raw bits and classes change, and of round rates.
    static constexpr uint32_t kParams[] = {
        0,     1,      2,      3,      8,      127,     128,     129,      4095,     4096,           4097,
        57671, 115343, 115344, 524287, 524288, 1500000, 2500000, 1u << 22, 8u << 20, (8u << 20) + 1, 0xffffffff};
    static constexpr int16_t kExponents[] = {0, 1, -1, 100, -100, 127, -149, 1023, 1024, 1025, -1024, -1025, 32767, -32768};
    uint8_t* const b = bytes_.data() + p.at;
    if (p.at + kRecordBytes > bytes_.size()) return;
    switch (below(10)) {
      case 0:
        return store_u64(b, pick(kCounts));
      case 1:
        b[8] = static_cast<uint8_t>(below(5));
        return;
      case 2:
        b[9] = static_cast<uint8_t>(below(12));
        if (b[9] == 8) store_u32(b + 20, 1u << below(8));
        return;
      case 3:
        b[10] = static_cast<uint8_t>(below(8) == 0 ? below(256) : 6 + below(9));
        return;
      case 4:
        b[11] = static_cast<uint8_t>(below(5));
        return;
      case 5:
        b[12] = static_cast<uint8_t>(below(4));
        return;
      case 6:
        b[13] = static_cast<uint8_t>(below(8) == 0 ? below(256) : below(8));
        return;
      case 7:
        return store_u16(b + 14, static_cast<uint16_t>(pick(kExponents)));
      case 8:
        return store_u32(b + 16, pick(kRates));
      default:
        return store_u32(b + 20, below(16) == 0 ? static_cast<uint32_t>(rng_() % (9u << 20)) : pick(kParams));
    }
  }

  void change_payload(const Place& p) {
    if (p.bytes <= kRecordBytes) return;
    const size_t n = p.bytes - kRecordBytes, first = below(static_cast<uint32_t>(n));
    change_bytes(p.at + kRecordBytes + first, below(2) == 0 ? n - first : std::min<size_t>(n - first, 1 + below(16)));
  }

  void fill_payload(const Place& p) {
    if (p.bytes <= kRecordBytes) return;
    const size_t n = p.bytes - kRecordBytes, first = below(static_cast<uint32_t>(n));
    const uint32_t kind = below(4);
    for (size_t i = p.at + kRecordBytes + first; i < p.at + p.bytes && i < bytes_.size(); ++i) {
      bytes_[i] = kind == 0 ? 0 : kind == 1 ? 255 : static_cast<uint8_t>(rng_());
    }
  }

  // A scale word (eden) or float (peers) of the first segment.
  void change_scale(const Place& p) {
    static constexpr uint32_t kWords[] = {0,          1,          4,          0x7fffff,   1u << 23,   0xffffffff,
                                          0xfffffffc, 255u << 23, 383u << 23, 384u << 23, 0x7f800000, 0xff800000,
                                          0x7fc00000, 0x7f7fffff, 0xff7fffff, 0x3f800000, 0xbf800000};
    const uint32_t block = 1u << std::min<uint32_t>(p.record.params.log2_block, 14);
    const uint32_t n = p.record.count < block ? 1 : static_cast<uint32_t>(std::min<uint64_t>(p.record.count / block, 64));
    const size_t skip = kRecordBytes + (variable(p.record.params) ? 4 : 0);
    const size_t at = p.at + skip + 4 * below(2 * n);
    if (at + 4 + kChecksumBytes > bytes_.size()) return;
    store_u32(bytes_.data() + at, below(3) == 0 ? static_cast<uint32_t>(rng_()) : pick(kWords));
  }

  static bool variable(const WireParams& p) {
    return p.method == 8 || (p.method == 2 && (p.flags & (kFlagEntropy | kFlagAllocate)) != 0);
  }

  // Makes the first segment's lengths agree with the bytes that are there, or the bytes with the length the record asks for.
  void fit_payload(size_t index) {
    const size_t at = places_[index].at;
    // The change was within this record's bytes, so what follows only moved.
    const size_t end =
        (index + 1 < places_.size() ? places_[index + 1].at : old_size_ - kChecksumBytes) + bytes_.size() - old_size_;
    try {
      if (at + kRecordBytes + kChecksumBytes > bytes_.size()) return;
      ByteReader r(std::span<const uint8_t>(bytes_).subspan(at));
      const CheckedRecord c = read_record(r, 0, Limits{}, codecs_);
      if (c.record.count == 0 || c.record.count > 32768) return;
      const size_t payload = at + kRecordBytes;
      if (end < payload || end > bytes_.size() - kChecksumBytes) return;
      const SegmentShape shape = segment_shape(c.record.count, 1u << c.record.params.log2_block, 0);
      if (c.codec->fixed_size()) {
        uint64_t want = 0;
        for (uint64_t i = 0; i < segment_count(c.record.count, shape.block); ++i) {
          want += c.codec->segment_bytes(segment_shape(c.record.count, shape.block, i));
        }
        if (payload + want + kChecksumBytes > max_size_) return;
        std::vector<uint8_t> part(bytes_.begin() + static_cast<ptrdiff_t>(payload),
                                  bytes_.begin() + static_cast<ptrdiff_t>(end));
        const size_t had = part.size();
        part.resize(want);
        for (size_t i = had; i < want; ++i) part[i] = static_cast<uint8_t>(rng_());
        replace(payload, end - payload, part);
        return;
      }
      if (segment_count(c.record.count, shape.block) != 1 || end - payload < 4) return;
      store_u32(bytes_.data() + payload, static_cast<uint32_t>(end - payload - 4));
      if ((c.record.params.flags & kFlagEntropy) != 0 && c.record.params.method == 2)
        fit_flush(payload + 4, end, c.record.params, shape);
    } catch (const Error&) {
    }
  }

  // The flush takes all that is left but a few escapes.
  void fit_flush(size_t at, size_t end, const WireParams& params, const SegmentShape& shape) {
    const uint64_t raw_bits =
        static_cast<uint64_t>(quant::gaussian_step(params.param, (params.flags & kFlagDither) != 0)->raw_bits);
    uint64_t where = at + uint64_t{4} * shape.n_blocks;
    for (uint32_t b = 0; b < shape.n_blocks && at + 4 * b + 4 <= end; ++b) {
      if (load_u32(bytes_.data() + at + 4 * b) != 0) where += raw_bits * ((shape.block_length(b) + 7) / 8);
    }
    if (where + 4 > end) return;
    const uint64_t left = end - where - 4, escapes = std::min<uint64_t>(left / 2, below(3) == 0 ? below(4) : 0);
    store_u32(bytes_.data() + where, static_cast<uint32_t>(left - 2 * escapes));
  }

  uint64_t hash_;
  std::minstd_rand rng_;
  size_t max_size_ = 0, old_size_ = 0;
  std::vector<uint8_t> bytes_;
  std::vector<Place> places_;
  std::vector<std::span<const uint8_t>> spans_;
  CodecCache codecs_;
};

}  // namespace kpd::gradient::fuzz
