// gradient: see encode_plan.h.
#include "gradient/encode_plan.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>

#include "gradient/allocate.h"
#include "gradient/baselines.h"
#include "gradient/stream_format.h"
#include "kernels/sums.h"
#include "kpd/base/error.h"
#include "kpd/base/threads.h"

namespace kpd::gradient {

EncodePlan::EncodePlan(Manifest manifest, CodecPolicy policy, const EncodeOptions& options)
    : manifest_(std::move(manifest)), policy_(std::move(policy)), options_(options) {
  check_manifest(manifest_);
  for (const TensorInfo& t : manifest_) wanted_.push_back(policy_.of(t.name).params());
  passes_.assign(manifest_.size(), 0);
  passed_ = passes_;
  scratch_.resize(static_cast<size_t>(options_.threads));
  plan();
  bound();
}

uint8_t EncodePlan::table_index(const WireParams& record) {
  const auto found = std::find(table_.codecs.begin(), table_.codecs.end(), record);
  if (found != table_.codecs.end()) return static_cast<uint8_t>(found - table_.codecs.begin());
  if (table_.codecs.size() == kMaxTableCodecs) {
    fail(ErrorCode::kLimitExceeded, "more than ", kMaxTableCodecs, " different codecs for one model");
  }
  table_.codecs.push_back(record);
  return static_cast<uint8_t>(table_.codecs.size() - 1);
}

// Codecs in the order in which tensors use them, the longest runs.
void EncodePlan::assign_codecs() {
  table_.codecs.clear();
  table_.runs.clear();
  for (size_t i = 0; i < manifest_.size(); ++i) {
    const uint8_t codec = table_index(passes_[i] != 0 ? raw_params() : wanted_[i]);
    if (table_.runs.empty() || table_.runs.back().codec != codec) table_.runs.push_back({codec, 0});
    ++table_.runs.back().tensors;
  }
}

void EncodePlan::plan() {
  assign_codecs();
  codecs_.begin_message();
  units_.build(manifest_, table_, codecs_);
  jobs_.clear();
  unit_reports_.clear();
  for (uint32_t u = 0; u < units_.size(); ++u) {
    const Unit& unit = units_[u];
    for (uint64_t i = 0; i < unit.segments(); ++i) {
      Job j;
      j.unit = u;
      j.shape = unit.segment(i);
      j.max_bytes = unit.codec->segment_bytes(j.shape);
      jobs_.push_back(j);
    }
    unit_reports_.push_back({.tensor = unit.tensor, .members = unit.n_pieces, .params = unit.params, .elements = unit.count});
  }
  keys_.resize(units_.size());
}

namespace {

// Of a joined unit with fewer members: 64 blocks and a tail may be left where there were 65.
SegmentShape longest_segment(const Unit& unit) {
  SegmentShape shape = unit.segment(0);
  shape.elements = std::min<uint64_t>(unit.count, (kBlocksPerSegment + 1) * uint64_t{unit.block()} - 1);
  return shape;
}

}  // namespace

// nonfinite=pass may turn any tensor into float32, and a joined unit without some of its members takes no more bytes than it.
void EncodePlan::bound() {
  const bool may_pass = options_.nonfinite == NonFinite::kPass;
  most_table_bytes_ = codec_table_bytes(table_);
  if (may_pass) most_table_bytes_ = 2 + kRecordBytes * (table_.codecs.size() + 1) + 2 * manifest_.size();
  most_bytes_ = most_table_bytes_;
  most_segment_bytes_ = 0;
  std::vector<uint64_t> of_unit(units_.size());
  for (const Job& j : jobs_) {
    of_unit[j.unit] += j.max_bytes + 4;
    most_segment_bytes_ = std::max(most_segment_bytes_, j.max_bytes + 4);
  }
  for (size_t u = 0; u < units_.size(); ++u) {
    const Unit& unit = units_[u];
    uint64_t most = of_unit[u];
    if (may_pass && unit.params.method != kExactId && unit.count > 0) {
      const uint64_t raw = 4 * unit.count;
      most = unit.n_pieces > 1 ? most + raw : std::max(most, raw);
      most_segment_bytes_ = std::max(most_segment_bytes_, unit.codec->segment_bytes(longest_segment(unit)) + 4);
      const uint64_t raw_segment = segment_shape(unit.count, 1u << raw_params().log2_block, 0).elements;
      most_segment_bytes_ = std::max(most_segment_bytes_, 4 * raw_segment);
    }
    most_bytes_ += most;
  }
}

bool EncodePlan::allocates(const Unit& unit, size_t codec) {
  return (unit.params.flags & kFlagAllocate) != 0 && unit.record == codec;
}

void EncodePlan::measure_energies(std::span<const TensorView> tensors, size_t codec) {
  lengths_.clear();
  job_blocks_.clear();
  for (const Job& j : jobs_) {
    job_blocks_.push_back(lengths_.size());
    if (!allocates(units_[j.unit], codec)) continue;
    for (uint32_t b = 0; b < j.shape.n_blocks; ++b) lengths_.push_back(j.shape.block_length(b));
  }
  energies_.resize(lengths_.size());
  const auto measure_one = [&](size_t i, int worker) {
    const Job& job = jobs_[i];
    if (!allocates(units_[job.unit], codec)) return;
    AlignedBuffer<float>& values = scratch_[static_cast<size_t>(worker)].input;
    if (values.size() < job.shape.elements) values.resize(job.shape.elements);
    gather(job, tensors, std::span(values.data(), job.shape.elements));
    for (uint32_t b = 0; b < job.shape.n_blocks; ++b) {
      const std::span<float> block(values.data() + job.shape.block_offset(b), job.shape.block_length(b));
      kernels::Magnitude m = kernels::magnitude(block.data(), block.size());
      if (m.max_abs_bits >= 0x7f800000u) {
        zero_nonfinite(block);  // as encoding will, where it does not refuse
        m = kernels::magnitude(block.data(), block.size());
      }
      energies_[job_blocks_[i] + b] = m.sum_squares;
    }
  };
  parallel_for(jobs_.size(), options_.threads, std::cref(measure_one));
}

// A double that no float can hold is an error whatever becomes of values that are not finite.
void EncodePlan::check_range(uint32_t tensor, const TensorView& view, uint64_t element) const {
  if (view.dtype != DType::kFloat64) return;
  double v;
  std::memcpy(&v, static_cast<const uint8_t*>(view.data) + 8 * element, 8);
  if (!std::isfinite(v)) return;
  fail(ErrorCode::kInvalidArgument, "tensor '", manifest_[tensor].name, "': element ", element, " is ", v,
       ", beyond the range of float32, as which float64 is coded");
}

void EncodePlan::pass_nonfinite(std::span<const TensorView> tensors) {
  float buffer[4096];
  for (uint32_t i = 0; i < tensors.size(); ++i) {
    passes_[i] = 0;
    if (dtype_is_exact(manifest_[i].dtype)) continue;
    uint64_t bad = 0;
    for (uint64_t at = 0; at < tensors[i].count; at += 4096) {
      const std::span<float> part(buffer, std::min<uint64_t>(4096, tensors[i].count - at));
      load_floats(tensors[i], at, part);
      for (size_t k = 0; k < part.size(); ++k) {
        if (std::isfinite(part[k])) continue;
        check_range(i, tensors[i], at + k);
        ++bad;
      }
    }
    nonfinite_ += bad;
    // One too short to be coded is float32 already.
    passes_[i] = bad > 0 && tensors[i].count >= kMinCodedElements ? 1 : 0;
  }
  if (passes_ == passed_) return;
  passed_.clear();  // unless plan() returns there is none
  plan();
  passed_ = passes_;
}

void EncodePlan::prepare(std::span<const TensorView> tensors, uint64_t manifest_hash, const MessageIds& ids,
                         const RunSecret& secret) {
  check_sources(manifest_, tensors);
  nonfinite_ = 0;
  if (options_.nonfinite == NonFinite::kPass) pass_nonfinite(tensors);
  for (size_t u = 0; u < units_.size(); ++u) {
    keys_[u] = tensor_keys(secret, manifest_hash, ids, units_[u].tensor, units_[u].params);
  }
  rates_.resize(std::max(rates_.size(), table_.codecs.size()));
  for (size_t c = 0; c < table_.codecs.size(); ++c) {
    if ((table_.codecs[c].flags & kFlagAllocate) == 0) continue;
    measure_energies(tensors, c);
    allocate_rates(energies_, lengths_, table_.codecs[c], rates_[c]);
    for (size_t i = 0; i < jobs_.size(); ++i) {
      if (allocates(units_[jobs_[i].unit], c)) jobs_[i].shape.block_rates = rates_[c].data() + job_blocks_[i];
    }
  }
}

void EncodePlan::gather(const Job& job, std::span<const TensorView> tensors, std::span<float> x) const {
  units_.for_each_piece(units_[job.unit], job.shape, [&](uint32_t tensor, uint64_t first, uint64_t to, uint64_t n) {
    load_floats(tensors[tensor], first, x.subspan(to, n));
  });
}

void EncodePlan::refuse(const Job& job, std::span<const TensorView> tensors, uint64_t index) const {
  units_.for_each_piece(units_[job.unit], job.shape, [&](uint32_t tensor, uint64_t first, uint64_t to, uint64_t n) {
    if (index < to || index >= to + n) return;
    check_range(tensor, tensors[tensor], first + index - to);
    fail(ErrorCode::kInvalidArgument, "tensor '", manifest_[tensor].name, "': element ", first + index - to, " is not finite");
  });
  fail(ErrorCode::kInternal, "encode: element ", index, " of no tensor");
}

// nonfinite=zero: returns how many values of x became 0.
uint64_t EncodePlan::take_nonfinite(const Job& job, std::span<const TensorView> tensors, std::span<float> x) const {
  units_.for_each_piece(units_[job.unit], job.shape, [&](uint32_t tensor, uint64_t first, uint64_t to, uint64_t n) {
    if (tensors[tensor].dtype != DType::kFloat64) return;
    for (uint64_t i = 0; i < n; ++i) {
      if (!std::isfinite(x[to + i])) check_range(tensor, tensors[tensor], first + i);
    }
  });
  return zero_nonfinite(x);
}

void EncodePlan::encode_exact(Job& job, const TensorView& tensor, std::span<uint8_t> dst) const {
  const size_t bytes = dtype_bytes(tensor.dtype);
  job.bytes = job.shape.elements * bytes;
  const auto* first = static_cast<const uint8_t*>(tensor.data) + job.shape.first_element * bytes;
  copy_exact({first, static_cast<size_t>(job.bytes)}, bytes, dst.data());
}

void EncodePlan::encode(Job& job, std::span<const TensorView> tensors, std::span<uint8_t> dst, Scratch& s) const {
  const Unit& unit = units_[job.unit];
  const SegmentShape& shape = job.shape;
  job.stats = {};
  if (unit.params.method == kExactId) return encode_exact(job, tensors[unit.tensor], dst);
  std::span<const float> x;
  const auto copy_in = [&] {
    if (s.input.size() < shape.elements) s.input.resize(shape.elements);
    const std::span<float> values(s.input.data(), shape.elements);
    gather(job, tensors, values);
    x = values;
    return values;
  };
  const TensorView& only = tensors[unit.tensor];
  const bool in_place =
      unit.n_pieces == 1 && only.dtype == DType::kFloat32 && reinterpret_cast<uintptr_t>(only.data) % alignof(float) == 0;
  if (in_place) {
    x = {static_cast<const float*>(only.data) + shape.first_element, static_cast<size_t>(shape.elements)};
  } else {
    copy_in();
  }
  const bool raw = unit.params.method == kFloat32Id;  // carries anything
  if (!unit.codec->detects_nonfinite() && !(raw && options_.nonfinite == NonFinite::kPass)) {
    const auto bad = std::find_if(x.begin(), x.end(), [](float v) { return !std::isfinite(v); });
    if (bad != x.end()) {
      if (options_.nonfinite != NonFinite::kZero) refuse(job, tensors, static_cast<uint64_t>(bad - x.begin()));
      job.stats.nonfinite = take_nonfinite(job, tensors, copy_in());
    }
  }
  const TensorKeys& k = keys_[job.unit];
  try {
    job.bytes = unit.codec->encode(x, shape, k, dst, s, job.stats);
  } catch (const NonFiniteInput& e) {
    if (options_.nonfinite != NonFinite::kZero) refuse(job, tensors, e.index);
    job.stats = {};
    job.stats.nonfinite = take_nonfinite(job, tensors, copy_in());
    job.bytes = unit.codec->encode(x, shape, k, dst, s, job.stats);
  }
}

void EncodePlan::report(uint64_t stream_bytes, EncodeReport& report) const {
  report = {};
  report.stream_bytes = stream_bytes;
  report.nonfinite = nonfinite_;
  for (const Unit& u : units_) {
    report.elements += u.count;
    if (u.params.method == kExactId) report.exact_elements += u.count;
  }
  for (const Job& j : jobs_) {
    const uint8_t method = units_[j.unit].params.method;
    (method == kExactId ? report.exact_bytes : method == kFloat32Id ? report.raw_bytes : report.coded_bytes) += j.bytes;
    report.blocks += j.shape.n_blocks;
    if (std::isfinite(j.stats.norm2)) {
      report.norm2 += j.stats.norm2;
      report.error2 += j.stats.error2;
    }
    report.nonfinite += j.stats.nonfinite;
  }
}

std::span<const UnitReport> EncodePlan::unit_reports() {
  for (UnitReport& r : unit_reports_) r.bytes = 0, r.norm2 = r.error2 = 0;
  for (const Job& j : jobs_) {
    UnitReport& r = unit_reports_[j.unit];
    r.bytes += j.bytes + (has_length(j) ? 4 : 0);
    if (!std::isfinite(j.stats.norm2)) continue;
    r.norm2 += j.stats.norm2;
    r.error2 += j.stats.error2;
  }
  return unit_reports_;
}

}  // namespace kpd::gradient
