// gradient: see units.h.
#include "gradient/units.h"

#include <algorithm>
#include <bit>
#include <cfloat>

#include "gradient/eden.h"
#include "gradient/baselines.h"
#include "kernels/sums.h"
#include "kpd/gradient/stream_info.h"

namespace kpd::gradient {

uint8_t rounds_by_size(const WireParams& params, uint64_t count) {
  constexpr uint64_t kLong = 4096;
  const uint64_t block = std::min(count, uint64_t{1} << params.log2_block);
  if (block < 128) return 5;
  if (block < 512) return 4;
  if (block < kLong || count <= kLong || params.method == kDriveId || params.method == kDrivePlusId) return 3;
  return 2;
}

bool rotates(uint8_t method) {
  return method == kEdenId || method == kDriveId || method == kDrivePlusId || method == kHadamardSqId || method == kKashinSqId;
}

WireParams raw_params() { return {.method = kFloat32Id, .log2_block = kDefaultLog2Block, .rate = 32u << 16}; }

WireParams exact_params(DType dtype) {
  return {.method = kExactId,
          .log2_block = kDefaultLog2Block,
          .rate = static_cast<uint32_t>(dtype_bytes(dtype)) << 19,
          .param = static_cast<uint32_t>(dtype)};
}

WireParams resolve_record(const WireParams& record, uint64_t count) {
  WireParams p = record;
  p.flags &= static_cast<uint16_t>(~kFlagJoin);
  if (takes_fixed_code(p, count)) {
    p.flags &= static_cast<uint16_t>(~kFlagEntropy);
    p.param = 0;
  }
  if (rotates(p.method) && p.rounds == 0) {
    p.rounds = rounds_by_size(p, count);
    p.flags |= kFlagSizedRounds;
  }
  return p;
}

bool is_joined(const WireParams& record, DType dtype, uint64_t count) {
  return (record.flags & kFlagJoin) != 0 && !dtype_is_exact(dtype) && count >= kMinCodedElements &&
         count < uint64_t{1} << record.log2_block;
}

void Units::add_unit(uint32_t tensor, uint64_t count, uint8_t record, const WireParams& params, CodecCache& codecs) {
  Unit u;
  u.tensor = tensor;
  u.count = count;
  u.record = record;
  u.params = params;
  u.codec = codecs.get(params);
  u.first_piece = static_cast<uint32_t>(pieces_.size());
  list_.push_back(std::move(u));
}

void Units::build(const Manifest& manifest, const CodecTable& table, CodecCache& codecs) {
  list_.clear();
  pieces_.clear();
  unit_of_.clear();
  piece_of_.clear();
  joined_.assign(table.codecs.size(), {});
  const auto for_each_tensor = [&](const auto& fn) {
    size_t i = 0;
    for (const CodecRun& run : table.runs) {
      for (uint64_t k = 0; k < run.tensors; ++k, ++i) fn(static_cast<uint32_t>(i), run.codec, manifest[i].count());
    }
  };
  for_each_tensor([&](uint32_t i, uint8_t codec, uint64_t count) {
    if (!is_joined(table.codecs[codec], manifest[i].dtype, count)) return;
    joined_[codec].count += count;
    ++joined_[codec].members;
  });
  for_each_tensor([&](uint32_t i, uint8_t codec, uint64_t count) {
    const WireParams& record = table.codecs[codec];
    const DType dtype = manifest[i].dtype;
    if (!is_joined(record, dtype, count)) {
      const bool raw = count < kMinCodedElements;
      add_unit(i, count, codec,
               dtype_is_exact(dtype) ? exact_params(dtype) : (raw ? raw_params() : resolve_record(record, count)), codecs);
      unit_of_.push_back(static_cast<uint32_t>(list_.size() - 1));
      piece_of_.push_back(static_cast<uint32_t>(pieces_.size()));
      pieces_.push_back({i, 0, count});
      return;
    }
    Joined& j = joined_[codec];
    if (j.placed == 0) {  // the pieces of a unit lie together, so all get their places now
      j.unit = static_cast<uint32_t>(list_.size());
      add_unit(i, j.count, codec, resolve_record(record, j.count), codecs);
      list_.back().n_pieces = j.members;
      pieces_.resize(pieces_.size() + j.members);
      j.count = 0;
    }
    const uint32_t piece = list_[j.unit].first_piece + j.placed++;
    pieces_[piece] = {i, j.count, count};
    j.count += count;
    unit_of_.push_back(j.unit);
    piece_of_.push_back(piece);
  });
}

uint64_t scatter(const Units& units, const Unit& unit, const SegmentShape& shape, std::span<const float> values, float weight,
                 bool accumulate, std::span<const std::span<float>> dst) {
  uint64_t saturated = 0;
  const double largest = std::bit_cast<float>(kernels::magnitude(values.data(), values.size()).max_abs_bits);
  const bool fits = largest * std::fabs(static_cast<double>(weight)) < 0x1p126;
  units.for_each_piece(unit, shape, [&](uint32_t tensor, uint64_t first, uint64_t from, uint64_t n) {
    float* const out = dst[tensor].data() + first;
    const float* const in = values.data() + from;
    if (!accumulate) {
      std::copy_n(in, n, out);
    } else if (fits) {
      for (uint64_t i = 0; i < n; ++i) out[i] += weight * in[i];
    } else {
      for (uint64_t i = 0; i < n; ++i) out[i] = limited(in[i], weight, true, out[i], saturated);
    }
  });
  return saturated;
}

uint64_t decode_into(const Units& units, const Unit& unit, const SegmentShape& shape, std::span<const uint8_t> bytes,
                     const TensorKeys& keys, float weight, bool accumulate, std::span<const std::span<float>> dst,
                     Scratch& scratch) {
  if (unit.n_pieces == 1) {
    const std::span<float> out = dst[unit.tensor];
    if (unit.params.method == kExactId && out.empty()) return 0;
    return unit.codec->decode(bytes, shape, keys, weight, accumulate, out.subspan(shape.first_element, shape.elements),
                              scratch);
  }
  if (scratch.unscaled.size() < shape.elements) scratch.unscaled.resize(shape.elements);
  const std::span<float> values(scratch.unscaled.data(), shape.elements);
  const uint64_t saturated = unit.codec->decode(bytes, shape, keys, 1.0f, false, values, scratch);
  return saturated + scatter(units, unit, shape, values, weight, accumulate, dst);
}

}  // namespace kpd::gradient
