// llm: where the bytes of a new file's tensors come from.
#include "llm/tensor_copy.h"

#include <algorithm>
#include <cmath>
#include <unordered_set>

#include "kpd/base/error.h"
#include "kpd/base/memory.h"
#include "kpd/quant/blocks.h"

namespace kpd::llm {
namespace {

// The matrices of the network that a stored one holds, from above.
std::vector<TensorRole> roles_within(TensorRole role) {
  if (role == TensorRole::kQkv) return {TensorRole::kQuery, TensorRole::kKey, TensorRole::kValue};
  if (role == TensorRole::kGateUp) return {TensorRole::kGate, TensorRole::kUp};
  return {role};
}

class Planner {
 public:
  Planner(const Checkpoint::Parts& from, const ModelDescription& target, const TensorTable& table, std::string_view what)
      : from_(from), d_(from.description), target_(target), table_(table), what_(what) {}

  std::vector<TensorCopy> plan() {
    std::vector<TensorCopy> copies;
    for (const TensorSpec& spec : table_.specs()) {
      if (follows_from_configuration(spec.role) || !make(spec)) continue;
      copies.push_back(std::move(copy_));
    }
    refuse_left_out();
    return copies;
  }

 private:
  const io::WeightEntry* source(TensorRole role, size_t layer, TensorPart part) {
    const TensorSpec* spec = from_.table.find(role, layer, part);
    const io::WeightEntry* entry = spec == nullptr ? nullptr : from_.weights.find(spec->name);
    if (entry != nullptr) used_.insert(entry);
    return entry;
  }

  // A network's matrix in the checkpoint, alone or within a larger one.
  TensorPiece piece(TensorRole role, size_t layer, TensorPart part) {
    const LayerDescription& shape = d_.layers.front();
    const uint64_t n_q = shape.query_width(), n_kv = shape.key_width(), n_ff = shape.d_ff;
    if (part == TensorPart::kWeight && d_.fused_qkv &&
        (role == TensorRole::kQuery || role == TensorRole::kKey || role == TensorRole::kValue)) {
      const io::WeightEntry* e = source(TensorRole::kQkv, layer, part);
      if (role == TensorRole::kQuery) return {e, 0, n_q};
      return role == TensorRole::kKey ? TensorPiece{e, n_q, n_kv} : TensorPiece{e, n_q + n_kv, n_kv};
    }
    if (part == TensorPart::kWeight && d_.fused_gate_up && (role == TensorRole::kGate || role == TensorRole::kUp))
      return {source(TensorRole::kGateUp, layer, part), role == TensorRole::kGate ? 0 : n_ff, n_ff};
    const io::WeightEntry* e = source(role, layer, part);
    return {e, 0, e == nullptr ? 0 : e->shape[0]};
  }

  bool make(const TensorSpec& spec) {
    copy_ = {.name = spec.name, .shape = spec.shape};
    for (const TensorRole role : roles_within(spec.role)) {
      TensorPiece p = piece(role, spec.layer, spec.part);
      // A head that the new file needs though the network's is its embedding.
      if (p.from == nullptr && role == TensorRole::kHead && spec.needed && d_.tied_head)
        p = piece(TensorRole::kEmbedding, 0, spec.part);
      if (p.from == nullptr) {
        if (!spec.needed) return false;
        fail(ErrorCode::kUnsupported, from_.weights.name(), ": ", what_, " needs the tensor ", spec.name,
             ", which this model lacks");
      }
      if (spec.heads && d_.interleaved_qk != target_.interleaved_qk)
        p.order = target_.interleaved_qk ? HeadOrder::kToInterleaved : HeadOrder::kToHalves;
      copy_.pieces.push_back(p);
    }
    if (spec.norm) copy_.add = (d_.norm_plus_one ? 1.0f : 0.0f) - (target_.norm_plus_one ? 1.0f : 0.0f);
    return true;
  }

  // Factors of the rotation are no copies: the configuration says them, or has them written.
  static bool follows_from_configuration(TensorRole role) {
    return role == TensorRole::kRopeFactors || role == TensorRole::kRopeShort || role == TensorRole::kRopeLong;
  }

  void refuse_left_out() const {
    for (const TensorSpec& spec : from_.table.specs()) {
      if (follows_from_configuration(spec.role)) continue;
      const io::WeightEntry* entry = from_.weights.find(spec.name);
      if (entry == nullptr || used_.contains(entry)) continue;
      fail(ErrorCode::kUnsupported, from_.weights.name(), ": ", what_, " has no name for the tensor ", spec.name);
    }
  }

  const Checkpoint::Parts& from_;
  const ModelDescription &d_, &target_;
  const TensorTable& table_;
  std::string_view what_;
  TensorCopy copy_;
  std::unordered_set<const io::WeightEntry*> used_;
};

// The stored row that becomes row `row` of the new order.
uint64_t row_from(uint64_t row, HeadOrder order, uint64_t head_dim) {
  const uint64_t in_head = row % head_dim, half = head_dim / 2;
  if (order == HeadOrder::kToHalves) return row - in_head + 2 * (in_head % half) + in_head / half;
  if (order == HeadOrder::kToInterleaved) return row - in_head + in_head % 2 * half + in_head / 2;
  return row;
}

constexpr float kLargestHalf = 65504;

void check_range(std::span<const float> values, const TensorCopy& copy, const std::string& file) {
  if (copy.type != BlockType::kF16) return;
  const auto over =
      std::find_if(values.begin(), values.end(), [](float v) { return std::isfinite(v) && std::fabs(v) > kLargestHalf; });
  if (over == values.end()) return;
  fail(ErrorCode::kUnsupported, file, ": the tensor ", copy.name, " holds ", *over, ", which F16 does not; expected at most ",
       kLargestHalf, ", or another type");
}

// Rows of a piece, some at once; buffers are kept from piece to piece.
class PieceCopier {
 public:
  PieceCopier(const Checkpoint::Parts& from, const TensorCopy& copy, const std::function<void(std::span<const uint8_t>)>& write)
      : from_(from), copy_(copy), write_(write) {}

  void copy(const TensorPiece& piece) {
    const BlockTypeInfo& info = block_type_info(piece.from->type);
    const uint64_t columns = piece.from->shape.size() > 1 ? piece.from->shape[1] : 1;
    const uint64_t row_bytes = columns / info.block_values * info.block_bytes;
    const uint64_t head_dim = from_.description.layers.front().key_dim;
    uint64_t step = std::max<uint64_t>(kChunkValues / std::max<uint64_t>(columns, 1), 1);
    if (piece.order != HeadOrder::kSame) step = round_up(step, head_dim);
    for (uint64_t row = 0; row < piece.rows; row += step) {
      const uint64_t n = std::min(step, piece.rows - row);
      stored_.resize(n * row_bytes);
      from_.weights.read(piece.from->bytes.data() + (piece.first + row) * row_bytes, stored_);
      if (piece.order != HeadOrder::kSame) reorder(piece.order, n, row_bytes, head_dim);
      convert(piece.from->type, n * columns);
    }
    from_.weights.drop_pages(*piece.from);
  }

 private:
  static constexpr uint64_t kChunkValues = uint64_t{1} << 18;

  void reorder(HeadOrder order, uint64_t n, uint64_t row_bytes, uint64_t head_dim) {
    ordered_.resize(stored_.size());
    for (uint64_t r = 0; r < n; ++r)
      std::copy_n(stored_.data() + row_from(r, order, head_dim) * row_bytes, row_bytes, ordered_.data() + r * row_bytes);
    stored_.swap(ordered_);
  }

  void convert(BlockType type, uint64_t count) {
    if (type == copy_.type && copy_.add == 0) return write_(stored_);
    values_.resize(count);
    quant::dequantize_blocks(type, stored_, 0, values_);
    if (copy_.add != 0) {
      for (float& v : values_) v += copy_.add;
    }
    check_range(values_, copy_, from_.weights.name());
    made_.resize(count * block_type_info(copy_.type).block_bytes);
    quant::quantize_blocks(copy_.type, values_, made_);
    write_(made_);
  }

  const Checkpoint::Parts& from_;
  const TensorCopy& copy_;
  const std::function<void(std::span<const uint8_t>)>& write_;
  std::vector<uint8_t> stored_, ordered_, made_;
  std::vector<float> values_;
};

}  // namespace

std::vector<TensorCopy> plan_copies(const Checkpoint::Parts& from, const ModelDescription& target, const TensorTable& table,
                                    std::string_view what) {
  return Planner(from, target, table, what).plan();
}

uint64_t copied_bytes(const TensorCopy& copy) {
  if (copy.record != nullptr) return copy.record->bytes.size();
  uint64_t count = 1;
  for (const uint64_t n : copy.shape) count *= n;
  return count * block_type_info(copy.type).block_bytes;
}

void copy_tensor(const Checkpoint::Parts& from, const TensorCopy& copy,
                 const std::function<void(std::span<const uint8_t>)>& write) {
  if (copy.record != nullptr) {
    std::vector<uint8_t> bytes(copy.record->bytes.size());
    if (!bytes.empty()) from.weights.read(copy.record->bytes.data(), bytes);
    return write(bytes);
  }
  if (!copy.values.empty()) {
    std::vector<uint8_t> bytes(copied_bytes(copy));
    quant::quantize_blocks(copy.type, copy.values, bytes);
    return write(bytes);
  }
  PieceCopier copier(from, copy, write);
  for (const TensorPiece& piece : copy.pieces) copier.copy(piece);
}

}  // namespace kpd::llm
