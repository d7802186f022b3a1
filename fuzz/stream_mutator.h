// fuzz: changes gradient streams where it hurts and then seals them again, so that hostile content gets past the checksum.
//
// A stream is changed as bytes, as fields of header and codec table, or in the structure of a payload; afterwards everything
// that is checked before the checksum (magic, version, lengths) is mostly made right, and lengths inside that the change broke
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
#include "kpd/base/crc32.h"
#include "kpd/gradient/stream_info.h"
#include "kpd/quant/gaussian_step.h"
#include "manifests.h"

extern "C" size_t LLVMFuzzerMutate(uint8_t* data, size_t size, size_t max_size);

namespace kpd::gradient::fuzz {

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

  // A stream that was decoded: what damage to damage has made unreadable is given up for one of the last of them.
  void keep(std::span<const uint8_t> stream) {
    if (kept_.size() < kKept) kept_.emplace_back();
    kept_[n_kept_++ % kKept].assign(stream.begin(), stream.end());
  }

  // Makes right what is compared before the payload is looked at.
  void seal(std::vector<uint8_t>& b) {
    if (b.size() < kFileHeaderBytes + kChecksumBytes) return;
    const bool message = (b[6] & kFlagMessage) != 0 && b.size() >= kMessageHeaderBytes + kChecksumBytes;
    std::memcpy(b.data(), kMagic, 4);
    b[4] = kFormatMajor;
    const uint64_t mac =
        message && b.size() >= kMessageHeaderBytes + kMacBytes + kChecksumBytes ? b[6] & kFlagAuthenticated : 0;
    b[6] = static_cast<uint8_t>((b[6] & kFlagStreamed) | (message ? kFlagMessage : 0) | mac);
    b[7] = 0;
    const uint32_t fixed = static_cast<uint32_t>(message ? kMessageHeaderBytes + (mac != 0 ? kMacBytes : 0) : kFileHeaderBytes);
    const uint32_t most = static_cast<uint32_t>(b.size() - kChecksumBytes);
    store_u32(b.data() + 8, std::clamp(load_u32(b.data() + 8), fixed, most));
    store_u32(b.data() + 12, std::min(load_u32(b.data() + 12), static_cast<uint32_t>(b.size() / kLeastManifestEntry)));
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

  // The segments of a unit.
  struct Place {
    size_t at = 0, bytes = 0;
    Unit unit;
  };

  void change() {
    find_units(bytes_);
    if (places_.empty() && !kept_.empty() && below(16) != 0) {
      const std::vector<uint8_t>& other = kept_[below(static_cast<uint32_t>(kept_.size()))];
      if (other.size() <= max_size_) bytes_ = other;
      find_units(bytes_);
    }
    if (places_.empty() || below(16) == 0) return change_bytes(0, bytes_.size());
    const uint32_t index = below(static_cast<uint32_t>(places_.size()));
    const Place p = places_[index];
    old_size_ = bytes_.size();
    switch (below(13)) {
      case 0:
        return change_header();
      case 1:
        return add_extension();
      case 2:
        change_head();
        return below(2) == 0 ? void() : fit_payload(index);
      case 3:
        return drop_or_repeat(p);
      case 4:
      case 5:
      case 6:
        change_record();
        return below(4) == 0 ? void() : fit_payload(index);
      case 7:
        change_table();
        return below(4) == 0 ? void() : fit_payload(index);
      case 8:
        return change_scale(p);
      case 9:
        return fill_payload(p);
      default:
        change_payload(p);
        return below(4) == 0 ? void() : fit_payload(index);
    }
  }

  // As far as the stream can be read: codec table and units.
  void find_units(const std::vector<uint8_t>& bytes) {
    places_.clear();
    table_.codecs.clear();
    std::vector<uint8_t> copy = bytes;
    seal(copy);
    try {
      ByteReader r(copy);
      const StreamInfo info = read_header(r, copy, Limits{});
      const Manifest& tensors = info.is_file ? info.manifest : manifest();
      table_at_ = r.offset();
      read_codec_table(r, tensors.size(), table_);
      table_bytes_ = r.offset() - table_at_;
      units_.build(tensors, table_, codecs_);
      for (const Unit& unit : units_) {
        if (places_.size() == 8) break;
        places_.push_back({r.offset(), 0, unit});
        find_segments(r, unit, Limits{}, spans_);
        places_.back().bytes = r.offset() - places_.back().at;
      }
    } catch (const Error&) {
    }
    if (!places_.empty() && places_.back().bytes == 0 && places_.back().at + kChecksumBytes < bytes.size()) {
      places_.back().bytes = bytes.size() - kChecksumBytes - places_.back().at;
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

  // Ids of a message, in place; ids, manifest and extensions of a file.
  void change_head() {
    const size_t end = std::min<size_t>(bytes_.size() - kChecksumBytes, table_at_);
    if ((bytes_[6] & kFlagMessage) != 0) {
      if (below(4) != 0) return change_bytes(end, 0);  // as an extension
      bytes_[24 + below(static_cast<uint32_t>(end - 24))] ^= static_cast<uint8_t>(1u << below(8));
      return;
    }
    const size_t before = bytes_.size();
    const size_t first = below(4) == 0 ? 24 : std::min<size_t>(kFileHeaderBytes + below(64), end - 1);
    change_bytes(first, below(2) == 0 ? end - first : std::min<size_t>(end - first, 1 + below(8)));
    store_u32(bytes_.data() + 8, static_cast<uint32_t>(table_at_ + bytes_.size() - before));
  }

  void change_header() {
    switch (below(6)) {
      case 4:
        bytes_[6] = static_cast<uint8_t>(bytes_[6] ^ kFlagAuthenticated);
        break;
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
        bytes_[24 + below(static_cast<uint32_t>(table_at_ - 24))] = static_cast<uint8_t>(below(256));
    }
  }

  void add_extension() {
    const size_t at = table_at_;
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
    const bool file = (bytes_[6] & kFlagMessage) == 0;
    if (file && below(2) == 0) store_u32(bytes_.data() + 12, load_u32(bytes_.data() + 12) + (repeat ? 1u : ~0u));
  }

  // Number of codecs, runs of tensors.
  void change_table() {
    const size_t runs = table_at_ + 2 + kRecordBytes * table_.codecs.size();
    const size_t end = table_at_ + table_bytes_;
    if (end > bytes_.size() || runs >= end) return;
    switch (below(4)) {
      case 0:
        return store_u16(bytes_.data() + table_at_, static_cast<uint16_t>(below(8) == 0 ? rng_() : below(4)));
      case 1: {  // a codec like another
        const size_t at = table_at_ + 2 + kRecordBytes * below(static_cast<uint32_t>(table_.codecs.size()));
        const auto first = bytes_.begin() + static_cast<ptrdiff_t>(at);
        const std::vector<uint8_t> record(first, first + kRecordBytes);
        replace(runs, end - runs, make_runs(static_cast<uint32_t>(table_.codecs.size() + 1)));
        replace(runs, 0, record);
        store_u16(bytes_.data() + table_at_, static_cast<uint16_t>(table_.codecs.size() + 1));
        if (below(8) != 0) bytes_[runs + 1] = static_cast<uint8_t>(6 + below(9));  // of another block
        return;
      }
      case 2:
        return replace(runs, end - runs, make_runs(static_cast<uint32_t>(table_.codecs.size())));
      default:
        return change_bytes(runs, end - runs);
    }
  }

  std::vector<uint8_t> make_runs(uint32_t codecs) {
    std::vector<uint8_t> runs;
    uint32_t codec = 0;  // each at least once, if there are tensors enough
    for (uint32_t left = load_u32(bytes_.data() + 12) % 256; left > 0; ++codec) {
      const uint32_t run = codec + 1 == codecs && below(2) == 0 ? left : 1 + below(std::max(1u, left / codecs));
      const uint32_t any = below(16) == 0 ? codecs : below(codecs);
      runs.insert(runs.end(), {static_cast<uint8_t>(codec < codecs ? codec : any), static_cast<uint8_t>(run & 127)});
      left -= run;
    }
    return runs;
  }

  void change_record() {
    static constexpr uint32_t kRates[] = {
        0,      1,      3276,   3277,   6554,   32768,     65535,     65536,           65537,     98304,
        104858, 131072, 196608, 524288, 524289, 16u << 16, 32u << 16, (32u << 16) + 1, 0xffffffff};
    // Steps around the bounds, where raw bits and classes change, and of round rates.
    static constexpr uint32_t kParams[] = {
        0,     1,      2,      3,      8,      127,     128,     129,      4095,     4096,           4097,
        57671, 115343, 115344, 524287, 524288, 1500000, 2500000, 1u << 22, 8u << 20, (8u << 20) + 1, 0xffffffff};
    if (table_.codecs.empty()) return;
    const size_t at = table_at_ + 2 + kRecordBytes * below(static_cast<uint32_t>(table_.codecs.size()));
    if (at + kRecordBytes > bytes_.size()) return;
    uint8_t* const b = bytes_.data() + at;
    switch (below(7)) {
      case 0:
        b[0] = static_cast<uint8_t>(below(13));
        if (b[0] != 8) return;
        store_u32(b + 10, 1u << below(8));
        if (below(2) == 0) make_fixed_qsgd(b);
        return;
      case 1:
        b[1] = static_cast<uint8_t>(below(8) == 0 ? below(256) : 6 + below(9));
        return;
      case 2:
        b[2] = static_cast<uint8_t>(below(8));
        return;
      case 3:
        b[3] = static_cast<uint8_t>(below(4));
        return;
      case 4:
        return store_u16(b + 4, static_cast<uint16_t>(below(8) == 0 ? rng_() : below(8) | (below(2) == 0 ? kFlagJoin : 0)));
      case 5:
        return store_u32(b + 6, pick(kRates));
      default:
        return store_u32(b + 10, below(16) == 0 ? static_cast<uint32_t>(rng_() % (9u << 20)) : pick(kParams));
    }
  }

  void make_fixed_qsgd(uint8_t* record) {
    const uint32_t bits = 2 + below(7);
    store_u16(record + 4, static_cast<uint16_t>(kFlagFixedCode | (below(2) == 0 ? kFlagMaxNorm : 0)));
    store_u32(record + 6, bits << 16);
    store_u32(record + 10, (1u << (bits - 1)) - 1);
  }

  void change_payload(const Place& p) {
    if (p.bytes == 0) return;
    const size_t first = below(static_cast<uint32_t>(p.bytes));
    change_bytes(p.at + first, below(2) == 0 ? p.bytes - first : std::min<size_t>(p.bytes - first, 1 + below(16)));
  }

  void fill_payload(const Place& p) {
    if (p.bytes == 0) return;
    const size_t first = below(static_cast<uint32_t>(p.bytes));
    const uint32_t kind = below(4);
    for (size_t i = p.at + first; i < p.at + p.bytes && i < bytes_.size(); ++i) {
      bytes_[i] = kind == 0 ? 0 : kind == 1 ? 255 : static_cast<uint8_t>(rng_());
    }
  }

  // A scale word (eden) or float (baselines) of the first segment.
  void change_scale(const Place& p) {
    static constexpr uint32_t kWords[] = {0,          1,          4,          0x7fffff,   1u << 23,   0xffffffff,
                                          0xfffffffc, 255u << 23, 383u << 23, 384u << 23, 0x7f800000, 0xff800000,
                                          0x7fc00000, 0x7f7fffff, 0xff7fffff, 0x3f800000, 0xbf800000, 0x80000000};
    if (p.unit.count == 0) return;
    const uint32_t n = p.unit.segment(0).n_blocks;
    const size_t at = p.at + (p.unit.codec->fixed_size() ? 0 : 4) + 4 * below(2 * n);
    if (at + 4 + kChecksumBytes > bytes_.size()) return;
    store_u32(bytes_.data() + at, below(3) == 0 ? static_cast<uint32_t>(rng_()) : pick(kWords));
  }

  // Makes the only segment's length agree with the bytes that are there, or the bytes with the length that is asked for.
  void fit_payload(size_t index) {
    const size_t behind = index + 1 < places_.size() ? places_[index + 1].at : old_size_ - kChecksumBytes;
    const size_t end = behind + bytes_.size() - old_size_;  // the change was before this, so what follows only moved
    find_units(bytes_);
    if (index >= places_.size()) return;
    const size_t at = places_[index].at;
    const Unit unit = places_[index].unit;
    if (unit.count == 0 || unit.count > 32768 || unit.segments() != 1) return;
    if (end < at || end > bytes_.size() - kChecksumBytes) return;
    const SegmentShape shape = unit.segment(0);
    if (!unit.codec->fixed_size()) {
      if (end - at < 4) return;
      store_u32(bytes_.data() + at, static_cast<uint32_t>(end - at - 4));
      if ((unit.params.flags & kFlagEntropy) != 0) fit_flush(at + 4, end, unit.params, shape);
      return;
    }
    std::vector<uint8_t> part(bytes_.begin() + static_cast<ptrdiff_t>(at), bytes_.begin() + static_cast<ptrdiff_t>(end));
    const auto grow = [&](uint64_t size) {
      while (part.size() < size) part.push_back(static_cast<uint8_t>(rng_()));
    };
    const uint64_t head = unit.codec->head_bytes(shape);
    grow(head);
    const uint64_t want = unit.codec->length_from_head(std::span<const uint8_t>(part).first(head), shape);
    if (at + want + kChecksumBytes > max_size_) return;
    grow(want);
    part.resize(want);
    replace(at, end - at, part);
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

  static constexpr size_t kKept = 256;
  std::vector<std::vector<uint8_t>> kept_;
  size_t n_kept_ = 0;
  uint64_t hash_;
  std::minstd_rand rng_;
  size_t max_size_ = 0, old_size_ = 0;
  std::vector<uint8_t> bytes_;
  size_t table_at_ = 0, table_bytes_ = 0;
  CodecTable table_;
  Units units_;
  std::vector<Place> places_;
  std::vector<std::span<const uint8_t>> spans_;
  CodecCache codecs_;
};

}  // namespace kpd::gradient::fuzz
