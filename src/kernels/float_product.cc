// kernels: float weight products with Highway (float_product.h).
//
// The inner loop multiplies one column of a tile (16 outputs) with R rows' values, R x 16 accumulators in registers. Many rows
// go in blocks of columns and groups of tiles, so that weights stay in the first two caches and activations are fetched once a
// group.
#include "base/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/float_product.cc"
#include <hwy/foreach_target.h>  // must come before highway.h
#include <hwy/cache_control.h>
#include <hwy/highway.h>

#include <algorithm>
#include <cstring>

#include "kernels/float_product.h"
#include "kernels/widen_f16-inl.h"
#include "kpd/base/memory.h"

#ifndef KPD_FLOAT_PRODUCT_BLOCKS_
#define KPD_FLOAT_PRODUCT_BLOCKS_
namespace kpd::kernels {
inline constexpr size_t kManyRows = 13;      // from here on work goes in blocks
inline constexpr size_t kColumnBlock = 256;  // of a float32 tile: 16 KiB
inline constexpr size_t kTileGroup = 8;
float* float_product_scratch();
}  // namespace kpd::kernels
#endif

HWY_BEFORE_NAMESPACE();
namespace kpd::kernels {
namespace HWY_NAMESPACE {

#if !KPD_TARGET_IS_SCALAR

namespace hn = hwy::HWY_NAMESPACE;

using DTile = hn::CappedTag<float, kFloatTileOutputs>;
using VTile = hn::Vec<DTile>;
inline constexpr size_t kTileLanes = hn::MaxLanes(DTile());
inline constexpr size_t kTileVecs = kFloatTileOutputs / kTileLanes;

// Rows whose accumulators fit in the registers beside a column of the tile.
#if HWY_TARGET == HWY_SSE4
inline constexpr size_t kMaxRows = 2;
#elif HWY_TARGET == HWY_AVX2 || !HWY_ARCH_X86
inline constexpr size_t kMaxRows = 6;
#else
inline constexpr size_t kMaxRows = 12;
#endif

inline constexpr size_t kPrefetchBytes = 2048;

HWY_INLINE VTile load_weights(const float* p) { return hn::LoadU(DTile(), p); }
HWY_INLINE VTile load_weights(const hwy::float16_t* p) { return widen_f16(DTile(), reinterpret_cast<const uint16_t*>(p)); }
HWY_INLINE VTile load_weights(const hwy::bfloat16_t* p) {
  return hn::PromoteTo(DTile(), hn::LoadU(hn::Rebind<hwy::bfloat16_t, DTile>(), p));
}

struct Rows {
  const float* x;
  size_t x_stride;
  float* out;
  size_t out_stride, outputs;
};

HWY_INLINE void load_sums(const Rows& rows, size_t r, VTile* acc) {
  HWY_ALIGN float values[kFloatTileOutputs] = {};
  const float* src = rows.out + r * rows.out_stride;
  if (rows.outputs < kFloatTileOutputs) {
    std::memcpy(values, src, rows.outputs * sizeof(float));
    src = values;
  }
  for (size_t v = 0; v < kTileVecs; ++v) acc[v] = hn::LoadU(DTile(), src + v * kTileLanes);
}

HWY_INLINE void store_sums(const Rows& rows, size_t r, const VTile* acc) {
  HWY_ALIGN float values[kFloatTileOutputs];
  float* dst = rows.out + r * rows.out_stride;
  float* to = rows.outputs < kFloatTileOutputs ? values : dst;
  for (size_t v = 0; v < kTileVecs; ++v) hn::StoreU(acc[v], DTile(), to + v * kTileLanes);
  if (rows.outputs < kFloatTileOutputs) std::memcpy(dst, values, rows.outputs * sizeof(float));
}

// R rows against n columns of a tile; the sums go on from `out` unless `first`. A float in memory is the float in the register,
// so blocks of columns do not change bits.
template <size_t R, class T>
HWY_NOINLINE void columns(const T* w, size_t n, const Rows& rows, bool first) {
  const DTile d;
  VTile acc[R][kTileVecs];
  for (size_t r = 0; r < R; ++r) {
    for (size_t v = 0; v < kTileVecs; ++v) acc[r][v] = hn::Zero(d);
    if (!first) load_sums(rows, r, acc[r]);
  }
  const float* x = rows.x;
  for (size_t i = 0; i < n; ++i, w += kFloatTileOutputs, ++x) {
    hwy::Prefetch(w + kPrefetchBytes / sizeof(T));
    VTile column[kTileVecs];
    for (size_t v = 0; v < kTileVecs; ++v) column[v] = load_weights(w + v * kTileLanes);
    for (size_t r = 0; r < R; ++r) {
      const VTile value = hn::Set(d, x[r * rows.x_stride]);
      for (size_t v = 0; v < kTileVecs; ++v) acc[r][v] = hn::MulAdd(column[v], value, acc[r][v]);
    }
  }
  for (size_t r = 0; r < R; ++r) store_sums(rows, r, acc[r]);
}

template <size_t R, class T>
HWY_INLINE size_t take_rows(const T* w, size_t n, Rows* rows, size_t n_rows, bool first) {
  for (; n_rows >= R; n_rows -= R) {
    columns<R>(w, n, *rows, first);
    rows->x += R * rows->x_stride;
    rows->out += R * rows->out_stride;
  }
  return n_rows;
}

template <class T>
void tile_columns(const T* w, size_t n, Rows rows, size_t n_rows, bool first) {
  n_rows = take_rows<kMaxRows>(w, n, &rows, n_rows, first);
  if constexpr (kMaxRows > 4) n_rows = take_rows<4>(w, n, &rows, n_rows, first);
  if constexpr (kMaxRows > 2) n_rows = take_rows<2>(w, n, &rows, n_rows, first);
  take_rows<1>(w, n, &rows, n_rows, first);
}

struct Problem {
  FloatMatrix w;
  const float* x;
  size_t x_stride, n_rows;
  float* out;
  size_t out_stride;

  Rows rows(size_t tile, size_t first_row, size_t column) const {
    return {x + first_row * x_stride + column, x_stride, out + first_row * out_stride + tile * kFloatTileOutputs, out_stride,
            std::min(kFloatTileOutputs, w.n_out - tile * kFloatTileOutputs)};
  }
};

template <class T>
void widen(const T* src, size_t n_columns, float* dst) {
  for (size_t i = 0; i < n_columns * kFloatTileOutputs; i += kTileLanes) hn::StoreU(load_weights(src + i), DTile(), dst + i);
}

// Many rows. 16-bit weights become floats once for all of them.
template <class T>
void many_rows(const Problem& p, size_t tile_begin, size_t tile_end) {
  float* const scratch = sizeof(T) == sizeof(float) ? nullptr : float_product_scratch();
  const T* weights = reinterpret_cast<const T*>(p.w.bytes);
  for (size_t group = tile_begin; group < tile_end; group += kTileGroup) {
    const size_t n_tiles = std::min(kTileGroup, tile_end - group);
    for (size_t column = 0; column < p.w.n_in; column += kColumnBlock) {
      const size_t n = std::min(kColumnBlock, p.w.n_in - column);
      const float* panels[kTileGroup];
      for (size_t t = 0; t < n_tiles; ++t) {
        const T* panel = weights + ((group + t) * p.w.n_in + column) * kFloatTileOutputs;
        if constexpr (sizeof(T) == sizeof(float)) {
          panels[t] = panel;
        } else {
          panels[t] = scratch + t * kColumnBlock * kFloatTileOutputs;
          widen(panel, n, scratch + t * kColumnBlock * kFloatTileOutputs);
        }
      }
      for (size_t r = 0; r < p.n_rows; r += kMaxRows) {
        for (size_t t = 0; t < n_tiles; ++t) {
          tile_columns(panels[t], n, p.rows(group + t, r, column), std::min(kMaxRows, p.n_rows - r), column == 0);
        }
      }
    }
  }
}

template <class T>
void float_tiles(const Problem& p, size_t tile_begin, size_t tile_end) {
  if (p.n_rows >= kManyRows && p.w.n_in > 0) return many_rows<T>(p, tile_begin, tile_end);
  const T* weights = reinterpret_cast<const T*>(p.w.bytes);
  for (size_t t = tile_begin; t < tile_end; ++t) {
    tile_columns(weights + t * p.w.n_in * kFloatTileOutputs, p.w.n_in, p.rows(t, 0, 0), p.n_rows, true);
  }
}

void float_product(const FloatMatrix& w, const float* x, size_t x_stride, size_t n_rows, size_t tile_begin, size_t tile_end,
                   float* out, size_t out_stride) {
  const Problem p = {w, x, x_stride, n_rows, out, out_stride};
  switch (w.dtype) {
    case DType::kFloat32:
      return float_tiles<float>(p, tile_begin, tile_end);
    case DType::kFloat16:
      return float_tiles<hwy::float16_t>(p, tile_begin, tile_end);
    case DType::kBFloat16:
      return float_tiles<hwy::bfloat16_t>(p, tile_begin, tile_end);
    default:
      return;  // no weights are of another type
  }
}

// Four rows of four values, transposed in registers.
HWY_INLINE void transpose_4x4(const float* rows, size_t row_stride, float* tile) {
  const hn::FixedTag<float, 4> d;
  const hn::FixedTag<double, 2> dd;
  const auto r0 = hn::LoadU(d, rows), r1 = hn::LoadU(d, rows + row_stride);
  const auto r2 = hn::LoadU(d, rows + 2 * row_stride), r3 = hn::LoadU(d, rows + 3 * row_stride);
  const auto low01 = hn::BitCast(dd, hn::InterleaveLower(d, r0, r1)), low23 = hn::BitCast(dd, hn::InterleaveLower(d, r2, r3));
  const auto high01 = hn::BitCast(dd, hn::InterleaveUpper(d, r0, r1)), high23 = hn::BitCast(dd, hn::InterleaveUpper(d, r2, r3));
  hn::StoreU(hn::BitCast(d, hn::InterleaveLower(dd, low01, low23)), d, tile);
  hn::StoreU(hn::BitCast(d, hn::InterleaveUpper(dd, low01, low23)), d, tile + kFloatTileOutputs);
  hn::StoreU(hn::BitCast(d, hn::InterleaveLower(dd, high01, high23)), d, tile + 2 * kFloatTileOutputs);
  hn::StoreU(hn::BitCast(d, hn::InterleaveUpper(dd, high01, high23)), d, tile + 3 * kFloatTileOutputs);
}

void pack_float_tile(const float* rows, size_t row_stride, size_t outputs, size_t n_in, float* tile) {
  const size_t full = outputs == kFloatTileOutputs ? n_in / 4 * 4 : 0;
  for (size_t i = 0; i < full; i += 4) {
    for (size_t o = 0; o < kFloatTileOutputs; o += 4) {
      transpose_4x4(rows + o * row_stride + i, row_stride, tile + i * kFloatTileOutputs + o);
    }
  }
  scalar::pack_float_tile(rows + full, row_stride, outputs, n_in - full, tile + full * kFloatTileOutputs);
}
#endif  // !KPD_TARGET_IS_SCALAR
}  // namespace HWY_NAMESPACE
}  // namespace kpd::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace kpd::kernels {
KPD_DISPATCH(pack_float_tile);
KPD_DISPATCH(float_product);

// Allocated outside the targets' regions, once a thread.
float* float_product_scratch() {
  thread_local AlignedBuffer<float> scratch;
  scratch.resize(kTileGroup * kColumnBlock * kFloatTileOutputs);
  return scratch.data();
}
}  // namespace kpd::kernels
#endif
