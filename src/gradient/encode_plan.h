// gradient: what an encoder does for a manifest, segment by segment: which unit has which codec, how its elements are gathered,
// what becomes of values that are not finite. Private; the bytes around segments are message.cc's.
#pragma once

#include <span>
#include <vector>

#include "gradient/units.h"
#include "kpd/gradient/message.h"

namespace kpd::gradient {

struct Job {
  uint32_t unit = 0;
  SegmentShape shape;
  uint64_t offset = 0;  // in dst: where the segment (after its length, if one travels) is encoded
  uint64_t max_bytes = 0;
  uint64_t bytes = 0;  // written
  SegmentStats stats;
};

class EncodePlan {
 public:
  EncodePlan(Manifest manifest, CodecPolicy policy, const EncodeOptions& options);

  const Manifest& manifest() const { return manifest_; }
  const CodecPolicy& policy() const { return policy_; }
  const CodecTable& table() const { return table_; }
  const Units& units() const { return units_; }
  std::vector<Job>& jobs() { return jobs_; }  // in stream order
  bool has_length(const Job& job) const { return !units_[job.unit].codec->fixed_size(); }
  // Upper bounds whatever is encoded: of codec table, lengths and segments; of the table alone; of one segment and its length.
  uint64_t most_bytes() const { return most_bytes_; }
  uint64_t most_table_bytes() const { return most_table_bytes_; }
  uint64_t most_segment_bytes() const { return most_segment_bytes_; }

  // Before the segments of a stream: its codecs (nonfinite=pass), keys and rates.
  void prepare(std::span<const TensorView> tensors, uint64_t manifest_hash, const MessageIds& ids, const RunSecret& secret);
  // Fills job.bytes and job.stats. Thread-safe for different jobs and scratches.
  void encode(Job& job, std::span<const TensorView> tensors, std::span<uint8_t> dst, Scratch& scratch) const;
  // After the last segment.
  void report(uint64_t stream_bytes, EncodeReport& report) const;
  std::span<const UnitReport> unit_reports();
  std::vector<Scratch>& scratch() { return scratch_; }

 private:
  void assign_codecs();
  void plan();
  void bound();
  uint8_t table_index(const WireParams& record);
  void pass_nonfinite(std::span<const TensorView> tensors);
  void measure_energies(std::span<const TensorView> tensors, size_t codec);
  void gather(const Job& job, std::span<const TensorView> tensors, std::span<float> x) const;
  void encode_exact(Job& job, const TensorView& tensor, std::span<uint8_t> dst) const;
  uint64_t take_nonfinite(const Job& job, std::span<const TensorView> tensors, std::span<float> x) const;
  [[noreturn]] void refuse(const Job& job, std::span<const TensorView> tensors, uint64_t index) const;
  void check_range(uint32_t tensor, const TensorView& view, uint64_t element) const;
  static bool allocates(const Unit& unit, size_t codec);

  Manifest manifest_;
  CodecPolicy policy_;
  EncodeOptions options_;
  std::vector<WireParams> wanted_;        // the policy's record of every tensor
  std::vector<uint8_t> passes_, passed_;  // nonfinite=pass: tensors that travel as float32, in this stream and the last
  CodecTable table_;
  Units units_;
  CodecCache codecs_;
  std::vector<Job> jobs_;
  std::vector<TensorKeys> keys_;  // a unit
  std::vector<Scratch> scratch_;
  std::vector<UnitReport> unit_reports_;
  uint64_t most_bytes_ = 0, most_table_bytes_ = 0, most_segment_bytes_ = 0;
  uint64_t nonfinite_ = 0;  // elements that nonfinite=pass found
  // kFlagAllocate, of one codec of the table after the other.
  std::vector<double> energies_;
  std::vector<uint32_t> lengths_;
  std::vector<size_t> job_blocks_;
  std::vector<std::vector<uint8_t>> rates_;  // a codec
};

}  // namespace kpd::gradient
