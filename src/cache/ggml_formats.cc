// cache: see ggml_formats.h.
#include "cache/ggml_formats.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>

#include "cache/float_formats.h"
#include "kernels/hadamard.h"
#include "kpd/base/bytes.h"
#include "kpd/base/error.h"
#include "kpd/quant/blocks.h"

namespace kpd::cache {
namespace {

// What llama.cpp's options take, in the order of its help.
struct Type {
  std::string_view name;
  BlockType type;
};
constexpr Type kTypes[] = {{"f32", BlockType::kF32},       {"f16", BlockType::kF16},   {"bf16", BlockType::kBF16},
                           {"q8_0", BlockType::kQ8_0},     {"q4_0", BlockType::kQ4_0}, {"q4_1", BlockType::kQ4_1},
                           {"iq4_nl", BlockType::kIQ4_NL}, {"q5_0", BlockType::kQ5_0}, {"q5_1", BlockType::kQ5_1}};
constexpr auto kTypeNames = [] {
  std::array<std::string_view, std::size(kTypes)> names{};
  for (size_t i = 0; i < names.size(); ++i) names[i] = kTypes[i].name;
  return names;
}();
constexpr uint16_t kHalfNan = 0x7e00;

bool is_plain(BlockType type) { return block_type_info(type).block_values == 1; }

// H / sqrt(turn) of every `turn` values: symmetric, its own inverse.
void turn_rows(float* rows, size_t n_values, size_t turn) {
  const kernels::HadamardEdge norm{nullptr, 0, static_cast<float>(1 / std::sqrt(static_cast<double>(turn)))};
  kernels::fwht_rows(rows, n_values / turn, turn, turn, {}, norm);
}

// What keys and values share: 64 rows of blocks.
template <class Base>
class RowFormat : public Base {
 public:
  RowFormat(BlockType type, size_t width, size_t turn)
      : type_(type),
        width_(width),
        turn_(turn),
        row_bytes_(width / block_type_info(type).block_values * block_type_info(type).block_bytes) {}

  size_t part_bytes(PartState /*state*/) const override { return kBlockTokens * row_bytes_; }
  void append(uint8_t* open, size_t slot, const float* row) const override {
    std::span<const float> values(row, width_);
    if (turn_ > 0) {
      thread_local std::vector<float> turned;
      turned.assign(row, row + width_);
      turn_rows(turned.data(), width_, turn_);
      values = turned;
    }
    uint8_t* const bytes = open + slot * row_bytes_;
    quant::quantize_blocks(type_, values, {bytes, row_bytes_});
    if (!is_plain(type_)) mark_nonfinite(values, bytes);
  }
  void seal(const uint8_t* open, uint8_t* sealed, size_t /*first_token*/) const override {
    std::memcpy(sealed, open, part_bytes(PartState::kOpen));
  }
  void read(ConstPart part, size_t first, size_t n, float* rows) const override {
    decode(part, first, n, rows);
    if (turn_ > 0) turn_rows(rows, n * width_, turn_);
  }
  void move(const uint8_t* from, size_t from_slot, uint8_t* to, size_t to_slot) const override {
    std::memmove(to + to_slot * row_bytes_, from + from_slot * row_bytes_, row_bytes_);
  }
  size_t saved_bytes(PartState /*state*/, size_t n) const override { return n * row_bytes_; }
  void save(ConstPart part, size_t n, uint8_t* bytes) const override { std::memcpy(bytes, part.data, n * row_bytes_); }
  void load(PartState /*state*/, std::span<const uint8_t> bytes, size_t n, uint8_t* part) const override {
    std::memcpy(part, bytes.data(), n * row_bytes_);
  }

 protected:
  // As stored: turned.
  void decode(ConstPart part, size_t first, size_t n, float* rows) const {
    quant::dequantize_blocks(type_, {part.data + first * row_bytes_, n * row_bytes_}, 0, {rows, n * width_});
  }

  BlockType type_;
  size_t width_, turn_, row_bytes_;

 private:
  // ggml's codes have no NaN: a block with one would decode to numbers that look right.
  void mark_nonfinite(std::span<const float> row, uint8_t* bytes) const {
    const BlockTypeInfo& info = block_type_info(type_);
    for (size_t b = 0; b < row.size() / info.block_values; ++b) {
      const auto block = row.subspan(b * info.block_values, info.block_values);
      if (!std::all_of(block.begin(), block.end(), [](float v) { return std::isfinite(v); }))
        store_u16(bytes + b * info.block_bytes, kHalfNan);
    }
  }
};

class GgmlKeys final : public RowFormat<KeyFormat> {
 public:
  using RowFormat::RowFormat;

  void prepare(float* queries, size_t n_rows) const override {
    if (turn_ > 0) turn_rows(queries, n_rows * width_, turn_);
  }
  void scores(const float* queries, size_t n_rows, ConstPart part, const uint8_t* /*next*/, float* scores,
              FormatScratch& scratch) const override {
    scratch.widened.resize(2 * kBlockTokens * width_);
    float* const rows = scratch.widened.data();
    float* const columns = rows + kBlockTokens * width_;
    decode(part, 0, kBlockTokens, rows);
    for (size_t t = 0; t < kBlockTokens; ++t) {
      for (size_t d = 0; d < width_; ++d) columns[d * kBlockTokens + t] = rows[t * width_ + d];
    }
    kernels::matmul(queries, columns, scores, scores_shape(n_rows, width_));
  }
};

class GgmlValues final : public RowFormat<ValueFormat> {
 public:
  using RowFormat::RowFormat;

  void add_weighted(const float* weights, size_t n_rows, ConstPart part, const uint8_t* /*next*/, float* sums,
                    FormatScratch& scratch) const override {
    scratch.widened.resize(kBlockTokens * width_);
    decode(part, 0, kBlockTokens, scratch.widened.data());
    kernels::matmul(weights, scratch.widened.data(), sums, sums_shape(n_rows, width_));
  }
  void finish(float* sums, size_t n_rows) const override {
    if (turn_ > 0) turn_rows(sums, n_rows * width_, turn_);
  }
};

void check_width(BlockType type, size_t width, const char* side) {
  const BlockTypeInfo& info = block_type_info(type);
  if (width % info.block_values != 0)
    fail(ErrorCode::kUnsupported, side, " of ", width, " numbers a head cannot be stored as ", info.name, ", in blocks of ",
         info.block_values);
}

enum class Rotate : uint8_t { kAuto, kNone, kHadamard };

// The length of a side's transforms: of keys the largest power of two that divides the width, of values 64.
size_t turn_of(Rotate rotate, BlockType type, size_t width, bool keys) {
  if (rotate == Rotate::kNone || (rotate == Rotate::kAuto && (is_plain(type) || width % kTurnedWidth != 0))) return 0;
  if (width % kTurnedWidth != 0)
    fail(ErrorCode::kUnsupported, "rotate=hadamard: heads of ", width, " numbers, expected a multiple of ", kTurnedWidth);
  return keys ? size_t{1} << std::countr_zero(width) : kTurnedWidth;
}

LayerFormats make(BlockType k, BlockType v, Rotate rotate, const Layer& layer) {
  const size_t turn_keys = turn_of(rotate, k, layer.key_width, true),
               turn_values = turn_of(rotate, v, layer.value_width, false);
  LayerFormats formats;
  formats.keys =
      is_plain(k) && turn_keys == 0 ? float_keys(float_dtype(k), layer.key_width) : ggml_keys(k, layer.key_width, turn_keys);
  formats.values = is_plain(v) && turn_values == 0 ? float_values(float_dtype(v), layer.value_width)
                                                   : ggml_values(v, layer.value_width, turn_values);
  return formats;
}

}  // namespace

std::unique_ptr<KeyFormat> ggml_keys(BlockType type, size_t width, size_t turn) {
  check_width(type, width, "keys");
  return std::make_unique<GgmlKeys>(type, width, turn);
}

std::unique_ptr<ValueFormat> ggml_values(BlockType type, size_t width, size_t turn) {
  check_width(type, width, "values");
  return std::make_unique<GgmlValues>(type, width, turn);
}

LayerFormats ggml_formats_of(const Spec& spec, const Layer& layer) {
  const auto it = std::find_if(std::begin(kTypes), std::end(kTypes), [&](const Type& t) { return t.name == spec.method(); });
  return make(it->type, it->type, Rotate::kAuto, layer);
}

LayerFormats ggml_formats(const Spec& spec, const Layer& layer) {
  static constexpr std::string_view kRotations[] = {"auto", "none", "hadamard"};
  const size_t f16 = 1;
  const BlockType k = kTypes[spec.choice("k", f16, kTypeNames)].type, v = kTypes[spec.choice("v", f16, kTypeNames)].type;
  return make(k, v, static_cast<Rotate>(spec.choice("rotate", 0, kRotations)), layer);
}

}  // namespace kpd::cache
