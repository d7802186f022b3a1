// gradient: EDEN with entropy codes: a uniform step and rANS with the static tables of N(0,1) (EDEN section 4.3), and the
// subtractively dithered code whose rotation may be shared by all clients.
//
// A segment is the scale words of its blocks, the raw low bits of the indices of every non-zero block as bit planes, the length
// of the rANS flush (u32), the flush, and the escaped indices (i16 each) to the segment's end (docs/format/gradient.md, section
// "eden, code=entropy").
#include <algorithm>
#include <cmath>
#include <cstring>

#include "gradient/block_rotation.h"
#include "gradient/eden.h"
#include "gradient/eden_slices.h"
#include "kernels/hadamard.h"
#include "kernels/quantize.h"
#include "kernels/sums.h"
#include "kernels/uniform.h"
#include "kpd/base/bytes.h"
#include "kpd/coding/rans.h"
#include "kpd/quant/gaussian_step.h"

namespace kpd::gradient {
namespace {

using quant::GaussianStep;

inline constexpr size_t kSection = 128;     // coordinates that share a class of dither
inline constexpr size_t kMaxSections = 64;  // of the longest block, 8191
inline constexpr size_t kMaxClasses = 16;   // GaussianStep::n_classes

class EdenEntropy final : public SegmentCodec {
 public:
  explicit EdenEntropy(const WireParams& p) : params_(p), step_(quant::gaussian_step(p.param, (p.flags & kFlagDither) != 0)) {
    if (step_->n_classes > static_cast<int>(kMaxClasses))
      fail(ErrorCode::kInternal, "eden: ", step_->n_classes, " classes of dither");
    for (int c = 0; c < step_->n_classes; ++c) {
      encode_tables_.emplace_back(step_->class_frequencies(c));
      decode_tables_.emplace_back(step_->class_frequencies(c));
    }
    decoded_values_ = step_->values;
    decoded_values_.resize(size_t{step_->n_indices} + (size_t{1} << step_->raw_bits), 0.0f);  // an escape's is put in later
    if (has_constant_scale(p)) block_zq_ = step_->sphere_zq(1u << p.log2_block);
    max_level_ = 0;
    for (const float v : step_->values) max_level_ = std::max(max_level_, std::fabs(v));
    slice_code_ = {0, step_.get(), &encode_tables_[0], &decode_tables_[0]};
  }

  bool fixed_size() const override { return false; }
  bool detects_nonfinite() const override { return true; }

  uint64_t segment_bytes(const SegmentShape& shape) const override {
    uint64_t bytes = uint64_t{4} * shape.n_blocks + 4 + coding::rans_max_bytes(shape.elements);
    bytes += 2 * max_escapes(shape);
    for (uint32_t b = 0; b < shape.n_blocks; ++b) bytes += raw_bytes(shape.block_length(b));
    return bytes;
  }

  uint64_t encode(std::span<const float> x, const SegmentShape& shape, const TensorKeys& keys, std::span<uint8_t> dst,
                  Scratch& s, SegmentStats& stats) const override {
    if (s.bytes.size() < shape.elements) s.bytes.resize(shape.elements);
    Escapes escapes{s.escapes};
    s.escapes.clear();
    s.escapes.reserve(max_escapes(shape));
    uint64_t at = uint64_t{4} * shape.n_blocks, coded = 0;
    for (uint32_t b = 0; b < shape.n_blocks; ++b) {
      const std::span<const float> block = x.subspan(shape.block_offset(b), shape.block_length(b));
      uint8_t* const symbols = s.bytes.data() + coded;
      prefetch_block(x.data(), shape, b + 1);
      const uint32_t word = encode_block(block, shape, b, keys, symbols, dst.data() + at, s, stats, escapes);
      store_u32(dst.data() + 4 * b, word);
      if (word == 0) continue;
      coded += block.size();
      at += raw_bytes(block.size());
    }
    at = write_flush(shape, keys, std::span<const uint8_t>(s.bytes.data(), coded), dst, at);
    if (at + 2 * s.escapes.size() > dst.size()) fail(ErrorCode::kInternal, "eden: too many escapes");
    for (const int16_t e : s.escapes) {
      store_u16(dst.data() + at, static_cast<uint16_t>(e));
      at += 2;
    }
    return at;
  }

  uint64_t decode(std::span<const uint8_t> src, const SegmentShape& shape, const TensorKeys& keys, float weight,
                  bool accumulate, std::span<float> dst, Scratch& s) const override {
    return for_each_decoded_block(src, shape, keys, s, [&](uint32_t b, uint32_t word, std::span<float> y, double max_level) {
      const std::span<float> out = dst.subspan(shape.block_offset(b), shape.block_length(b));
      prefetch_block(dst.data(), shape, b + 1);
      if (word == 0) {
        if (!accumulate) std::fill(out.begin(), out.end(), 0.0f);
        return uint64_t{0};
      }
      double scale = scale_of_word(word);
      if (shape.received != nullptr) {
        clear_missing(*shape.received, b, y);
        scale *= shape.received->scale;
      }
      const BlockKey signs{keys.rotation, shape.first_block + b};
      const int rounds = three_rounds_of_word(word) ? 3 : params_.rounds;
      return unrotate_block(y, rounds, signs, scale, max_level, weight, accumulate, out.data(), s);
    });
  }

  double decoded_norm2(std::span<const uint8_t> src, const SegmentShape& shape, const TensorKeys& keys,
                       Scratch& s) const override {
    double sum = 0;
    for_each_decoded_block(src, shape, keys, s, [&](uint32_t, uint32_t word, std::span<float> y, double) {
      if (word == 0) return uint64_t{0};
      const double scale = scale_of_word(word);
      sum += scale * scale * kernels::dot(y.data(), y.data(), y.size());
      return uint64_t{0};
    });
    return sum;
  }

  // Sums in the rotated domain: acc += weight * S * q for a code with a shared rotation (dither); no inverse transform.
  void decode_rotated(std::span<const uint8_t> src, const SegmentShape& shape, const TensorKeys& keys, float weight,
                      std::span<float> acc, Scratch& s) const override {
    if (!dithers()) return SegmentCodec::decode_rotated(src, shape, keys, weight, acc, s);
    for_each_decoded_block(src, shape, keys, s, [&](uint32_t b, uint32_t word, std::span<float> y, double max_level) {
      if (word == 0) return uint64_t{0};
      const double factor = scale_of_word(word) * static_cast<double>(weight);
      // A sum cannot be saturated before its inverse transform, so it must stay far from the float range.
      if (!(std::fabs(factor) * max_level * static_cast<double>(y.size()) < 0x1p112)) {
        fail(ErrorCode::kUnsupported, "byte ", 4 * b, ": scale word ", word, " is too large for a sum of rotated codes");
      }
      kernels::flip_scale({y.data(), nullptr, static_cast<float>(factor)}, y.size(), acc.data() + shape.block_offset(b), true);
      return uint64_t{0};
    });
  }

  const SliceCode* slice_code() const override { return dithers() ? nullptr : &slice_code_; }

  void finish_rotated(const SegmentShape& shape, const TensorKeys& keys, std::span<float> acc, Scratch& s) const override {
    if (!dithers()) return SegmentCodec::finish_rotated(shape, keys, acc, s);
    for (uint32_t b = 0; b < shape.n_blocks; ++b) {
      const BlockKey signs{keys.rotation, shape.first_block + b};
      const BlockRotation rotation(shape.block_length(b), params_.rounds, signs, s.signs);
      rotation.inverse(acc.subspan(shape.block_offset(b), shape.block_length(b)));
    }
  }

 private:
  struct Escapes {
    std::vector<int16_t>& list;
  };

  uint64_t raw_bytes(uint64_t length) const { return static_cast<uint64_t>(step_->raw_bits) * kernels::plane_bytes(length); }
  bool dithers() const { return step_->dither; }
  // |z| > 4 happens at most n/16 times in a block of norm sqrt(n); twice that for rounding and dither.
  static uint64_t max_escapes(const SegmentShape& shape) { return shape.elements / 8 + uint64_t{16} * shape.n_blocks; }

  // With dither a block is cut into sections of kSection coordinates. All of a section draw their dither from one of n_classes
  // equal parts of its interval, chosen at random, so that over sections the dither is uniform and a run of symbols has one
  // table. Runs go by class, then by place.
  struct Section {
    uint32_t first = 0, n = 0;
    int table = 0;
  };
  struct Sections {
    Section list[kMaxSections];
    int n = 0;
  };
  void make_sections(const BlockKey& own, size_t length, Sections& out) const {
    uint32_t words[kMaxSections + 3];
    const size_t n = (length + kSection - 1) / kSection;
    random_words(own, Purpose::kWindow, 0, 0, std::span(words, (n + 3) / 4 * 4));
    uint8_t next[kMaxClasses + 1] = {};  // where the next section of a class goes
    for (size_t k = 0; k < n; ++k) ++next[class_of(words[k]) + 1];
    for (int c = 0; c < step_->n_classes; ++c) next[c + 1] = static_cast<uint8_t>(next[c + 1] + next[c]);
    for (size_t k = 0; k < n; ++k) {
      const int c = class_of(words[k]);
      const size_t first = k * kSection;
      out.list[next[c]++] = {static_cast<uint32_t>(first), static_cast<uint32_t>(std::min(kSection, length - first)), c};
    }
    out.n = static_cast<int>(n);
  }
  int class_of(uint32_t word) const {
    return static_cast<int>((uint64_t{word} * static_cast<uint64_t>(step_->n_classes)) >> 32);
  }

  // Dither of a block as fractions of the step: offset[i] = dither_i / step + 1/2 in (0, 1), an odd multiple of 2^-17 /
  // n_classes.
  void make_offsets(const BlockKey& own, const Sections& sections, size_t length, std::span<uint32_t> words,
                    float* offset) const {
    random_words(own, Purpose::kDither, 0, 0, words.first((length + 1) / 2));
    const float unit = 1.0f / (65536.0f * static_cast<float>(step_->n_classes));
    for (int k = 0; k < sections.n; ++k) {
      const Section& s = sections.list[k];
      const float base = static_cast<float>(s.table) / static_cast<float>(step_->n_classes) + unit / 2;
      kernels::dither_offsets(words.data() + s.first / 2, s.n, base, unit, offset + s.first);
    }
  }

  uint32_t encode_block(std::span<const float> x, const SegmentShape& shape, uint32_t b, const TensorKeys& keys,
                        uint8_t* symbols, uint8_t* raw, Scratch& s, SegmentStats& stats, Escapes& escapes) const {
    const size_t n = x.size();
    const kernels::Magnitude mag = kernels::magnitude(x.data(), n);
    if (mag.max_abs_bits >= 0x7f800000u) throw_nonfinite(x, shape.block_offset(b));
    if (mag.max_abs_bits == 0) return 0;
    s.rotated.resize(std::max(s.rotated.size(), n));
    s.extra.resize(std::max(s.extra.size(), 2 * n));
    s.symbols.resize(std::max(s.symbols.size(), n));
    s.words.resize(std::max(s.words.size(), (n + 7) / 2));
    const BlockKey signs{keys.rotation, shape.first_block + b}, own{keys.own, shape.first_block + b};
    const bool three_rounds = block_takes_three_rounds(params_, mag);
    const double u = rotate_block(x, mag.max_abs_bits, three_rounds ? 3 : params_.rounds, signs, s, s.rotated.data());
    const BlockResult result = dithers() ? quantize_dithered(n, u, mag.sum_squares, own, symbols, raw, s, escapes)
                                         : quantize_plain(n, u, mag.sum_squares, three_rounds, symbols, raw, s, escapes);
    stats.norm2 += result.x2;
    stats.error2 += result.error2;
    return result.word;
  }

  BlockResult quantize_plain(size_t n, double u, double x2, bool three_rounds, uint8_t* symbols, uint8_t* raw, Scratch& s,
                             Escapes& escapes) const {
    const double sigma = u * std::sqrt(x2 / static_cast<double>(n));
    int16_t* const index = reinterpret_cast<int16_t*>(s.symbols.data());
    kernels::quantize_uniform(s.rotated.data(), n, static_cast<float>(1.0 / (sigma * step_->step)), index);
    float* const values = s.extra.data();
    split(index, n, symbols, raw, values, s.symbols.data(), escapes);
    BlockSums sums;
    sums.x2 = sums.kept2 = x2;
    const kernels::Dots dots = kernels::dots(s.rotated.data(), values, n);
    sums.dot = dots.ab / u;
    sums.q2 = dots.bb;
    double scale = block_scale(params_.scale, sums);
    if (has_constant_scale(params_)) {
      const double zq = n == size_t{1} << params_.log2_block ? block_zq_ : step_->sphere_zq(static_cast<uint32_t>(n));
      scale = std::sqrt(x2 / static_cast<double>(n)) / zq;
    }
    const uint32_t word = make_scale_word(scale, three_rounds);
    return {word, x2, block_error(scale_of_word(word), sums)};
  }

  BlockResult quantize_dithered(size_t n, double u, double x2, const BlockKey& own, uint8_t* symbols, uint8_t* raw, Scratch& s,
                                Escapes& escapes) const {
    const uint32_t word = make_scale_word(std::sqrt(x2 / static_cast<double>(n)), false);
    const double scale = scale_of_word(word);
    int16_t* const index = reinterpret_cast<int16_t*>(s.symbols.data());
    float* const offset = s.extra.data() + n;
    Sections sections;
    make_sections(own, n, sections);
    make_offsets(own, sections, n, s.words.values(), offset);
    kernels::quantize_dithered(s.rotated.data(), offset, n, static_cast<float>(1.0 / (u * scale * step_->step)), index);
    float* const values = s.extra.data();
    split(index, n, symbols, raw, values, s.symbols.data(), escapes);
    kernels::subtract_dither(offset, n, step_->float_step, values);
    BlockSums sums;
    sums.x2 = x2;
    const kernels::Dots dots = kernels::dots(s.rotated.data(), values, n);
    sums.dot = dots.ab / u;
    sums.q2 = dots.bb;
    return {word, x2, block_error(scale, sums)};
  }

  // Indices -> coarse symbols, raw planes, escapes and reconstruction values. `u` may be the memory of `index`.
  void split(const int16_t* index, size_t n, uint8_t* symbols, uint8_t* raw, float* values, uint16_t* u,
             Escapes& escapes) const {
    if (step_->raw_bits == 0) {
      split_without_raw_bits(index, n, symbols, values, escapes);
      return;
    }
    const float* const table = step_->values.data();
    const uint32_t bias = static_cast<uint32_t>(step_->index_bias), limit = step_->n_indices;
    for (size_t i = 0; i < n; ++i) {
      const int16_t at = index[i];
      const uint32_t v = static_cast<uint32_t>(static_cast<int32_t>(at)) + bias;
      if (v < limit) [[likely]] {
        symbols[i] = static_cast<uint8_t>(v >> step_->raw_bits);
        values[i] = table[v];
        u[i] = static_cast<uint16_t>(v);
      } else {
        symbols[i] = static_cast<uint8_t>(step_->escape_symbol);
        values[i] = step_->midpoint(at);
        u[i] = 0;
        escapes.list.push_back(at);
      }
    }
    pack_low_bits(u, n, step_->raw_bits, raw);
  }

  void split_without_raw_bits(const int16_t* index, size_t n, uint8_t* symbols, float* values, Escapes& escapes) const {
    const uint8_t escape = static_cast<uint8_t>(step_->escape_symbol);
    kernels::uniform_symbols(index, n, step_->index_bias, escape, symbols);
    values_of_symbols(symbols, n, values);
    for (const uint8_t* at = symbols; (at = find(at, symbols + n, escape)) != symbols + n; ++at) {
      const size_t i = static_cast<size_t>(at - symbols);
      values[i] = step_->midpoint(index[i]);
      escapes.list.push_back(index[i]);
    }
  }

  // Decoded values where there are no raw bits; an escape's is put in later.
  void values_of_symbols(const uint8_t* symbols, size_t n, float* y) const {
    if (dithers()) return kernels::uniform_values(symbols, n, step_->index_bias, step_->float_step, y);
    kernels::symbol_values(symbols, n, decoded_values_.data(), decoded_values_.size(), y);
  }

  static const uint8_t* find(const uint8_t* first, const uint8_t* last, uint8_t wanted) {
    const void* const found = std::memchr(first, wanted, static_cast<size_t>(last - first));
    return found != nullptr ? static_cast<const uint8_t*>(found) : last;
  }

  // The flush of all symbols behind `at`, encoded from the end of dst and moved; returns the new end.
  uint64_t write_flush(const SegmentShape& shape, const TensorKeys& keys, std::span<const uint8_t> symbols,
                       std::span<uint8_t> dst, uint64_t at) const {
    const uint64_t head = at + 4;
    coding::RansEncoder encoder(dst.subspan(head));
    if (!dithers()) {
      encoder.encode(encode_tables_[0], symbols);
    } else {
      Sections sections;
      uint64_t end = symbols.size();
      for (uint32_t b = shape.n_blocks; b-- > 0;) {
        const uint32_t word = load_u32(dst.data() + 4 * b);
        if (word == 0) continue;
        const size_t length = shape.block_length(b);
        end -= length;
        make_sections({keys.own, shape.first_block + b}, length, sections);
        for (int k = sections.n - 1; k >= 0; --k) {
          const Section& s = sections.list[k];
          encoder.encode(encode_tables_[static_cast<size_t>(s.table)], symbols.subspan(end + s.first, s.n));
        }
      }
    }
    const std::span<const uint8_t> flush = encoder.finish();
    store_u32(dst.data() + at, static_cast<uint32_t>(flush.size()));
    std::memmove(dst.data() + head, flush.data(), flush.size());
    return head + flush.size();
  }

  // Parses a segment and calls fn(block, word, y, max_level) for each block in order; y is empty where word is 0. Returns the
  // sum of fn's results.
  template <class Fn>
  uint64_t for_each_decoded_block(std::span<const uint8_t> src, const SegmentShape& shape, const TensorKeys& keys, Scratch& s,
                                  const Fn& fn) const {
    ByteReader r(src, "segment");
    const std::span<const uint8_t> words = take(r, uint64_t{4} * shape.n_blocks, "scale words");
    uint64_t raw_total = 0, coded = 0;
    for (uint32_t b = 0; b < shape.n_blocks; ++b) {
      const uint32_t word = load_u32(words.data() + 4 * b);
      rounds_of_word(params_, word, uint64_t{4} * b);
      if (word == 0) continue;
      coded += shape.block_length(b);
      raw_total += raw_bytes(shape.block_length(b));
    }
    const std::span<const uint8_t> raw = take(r, raw_total, "raw bits");
    const uint32_t flush_bytes = load_u32(take(r, 4, "length of the rANS flush").data());
    const uint64_t flush_at = r.offset();
    const std::span<const uint8_t> flush = take(r, flush_bytes, "rANS flush");
    ByteReader escapes(src.subspan(r.offset()), "segment", r.offset());
    s.bytes.resize(std::max<size_t>(s.bytes.size(), coded));
    decode_symbols(flush, flush_at, words, shape, keys, std::span(s.bytes.data(), coded));
    uint64_t result = 0, symbol_at = 0, plane_at = 0;
    for (uint32_t b = 0; b < shape.n_blocks; ++b) {
      const uint32_t word = load_u32(words.data() + 4 * b);
      if (word == 0) {
        result += fn(b, 0, std::span<float>(), 0.0);
        continue;
      }
      const size_t n = shape.block_length(b);
      s.rotated.resize(std::max(s.rotated.size(), n));
      const std::span<float> y(s.rotated.data(), n);
      const float escape_max = join(s.bytes.data() + symbol_at, raw.data() + plane_at, y, s, escapes);
      if (dithers()) {
        s.extra.resize(std::max(s.extra.size(), n));
        s.words.resize(std::max(s.words.size(), (n + 7) / 2));
        const BlockKey own{keys.own, shape.first_block + b};
        Sections sections;
        make_sections(own, n, sections);
        make_offsets(own, sections, n, s.words.values(), s.extra.data());
        kernels::subtract_dither(s.extra.data(), n, step_->float_step, y.data());
      }
      result += fn(b, word, y, static_cast<double>(std::max(max_level_, escape_max) + step_->float_step));
      symbol_at += n;
      plane_at += raw_bytes(n);
    }
    if (!escapes.at_end())
      fail(ErrorCode::kCorruptData, "byte ", src.size() - escapes.remaining(), ": bytes after the last escape");
    return result;
  }

  static std::span<const uint8_t> take(ByteReader& r, uint64_t n, const char* what) {
    if (n > r.remaining()) {
      fail(ErrorCode::kCorruptData, "byte ", r.offset(), ": ", what, " of ", n, " bytes, ", r.remaining(), " are left");
    }
    return r.take(n, what);
  }

  void decode_symbols(std::span<const uint8_t> flush, uint64_t flush_at, std::span<const uint8_t> words,
                      const SegmentShape& shape, const TensorKeys& keys, std::span<uint8_t> symbols) const {
    coding::RansDecoder decoder(flush, flush_at);
    if (!dithers()) {
      decoder.decode(decode_tables_[0], symbols);
    } else {
      Sections sections;
      uint64_t at = 0;
      for (uint32_t b = 0; b < shape.n_blocks; ++b) {
        const uint32_t word = load_u32(words.data() + 4 * b);
        if (word == 0) continue;
        const size_t length = shape.block_length(b);
        make_sections({keys.own, shape.first_block + b}, length, sections);
        for (int k = 0; k < sections.n; ++k) {
          const Section& s = sections.list[k];
          decoder.decode(decode_tables_[static_cast<size_t>(s.table)], symbols.subspan(at + s.first, s.n));
        }
        at += length;
      }
    }
    decoder.finish();
  }

  // Symbols, raw bits and escapes -> reconstruction values; returns the largest |escape| value.
  float join(const uint8_t* symbols, const uint8_t* raw, std::span<float> y, Scratch& s, ByteReader& escapes) const {
    const float* const table = decoded_values_.data();
    const uint8_t escape = static_cast<uint8_t>(step_->escape_symbol);
    const size_t n = y.size();
    if (step_->raw_bits > 0) {
      s.symbols.resize(std::max(s.symbols.size(), n));
      uint8_t* const low = reinterpret_cast<uint8_t*>(s.symbols.data());
      unpack_low_bits(raw, n, step_->raw_bits, low);
      for (size_t i = 0; i < n; ++i) y[i] = table[static_cast<uint32_t>(symbols[i]) << step_->raw_bits | low[i]];
    } else {
      values_of_symbols(symbols, n, y.data());
    }
    float largest = 0;
    for (const uint8_t* at = symbols; (at = find(at, symbols + n, escape)) != symbols + n; ++at) {
      if (escapes.remaining() < 2) fail(ErrorCode::kCorruptData, "byte ", escapes.offset(), " of the escapes: one is missing");
      float& value = y[static_cast<size_t>(at - symbols)];
      value = step_->midpoint(escapes.i16("escaped index"));
      largest = std::max(largest, std::fabs(value));
    }
    return largest;
  }

  WireParams params_;
  std::shared_ptr<const GaussianStep> step_;
  double block_zq_ = 0;  // E[Z Q(Z)] of a whole block, where it makes the scale
  float max_level_ = 0;
  std::vector<float> decoded_values_;  // of symbol << raw_bits | raw
  std::vector<coding::RansEncodeTable> encode_tables_;
  std::vector<coding::RansDecodeTable> decode_tables_;
  SliceCode slice_code_;
};

}  // namespace

std::unique_ptr<SegmentCodec> make_eden_entropy(const WireParams& params) { return std::make_unique<EdenEntropy>(params); }

}  // namespace kpd::gradient
