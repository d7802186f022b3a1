// kernels: ggml's weight blocks to the tiles of int_product.h.
//
// A tile is 16 outputs and all columns; its blocks of 32 columns follow each other. A block begins with the 16 outputs' scales
// and goes on with codes in groups of four columns, so that a vector of 32-bit lanes holds four columns of as many outputs and
// sums stay in their output's lane:
//
//   Q4*     64-byte chunk j < 4, byte 4 o + c: column 8 j + c of output o in the low nibble, column 8 j + 4 + c in the high one
//   Q8      64-byte chunk g < 8, byte 4 o + c: column 4 g + c
//   Q6K     four chunks of low nibbles as Q4; then two chunks h < 2 with bits 2k.. of byte 4 o + c: the two high bits of column
//           16 h + 4 k + c
//   Q5*     four chunks of low nibbles as Q4; then one with bit g < 8 of byte 4 o + c: the high bit of column 4 g + c
//   Q2K     two chunks of two bits a code, as the high bits of Q6K
//   Q3K     the same, then one chunk of third bits as the high bits of Q5*
//
//   kQ4, kQ4Table, kQ5, kQ8   16 x f16 d | codes
//   kQ4Min, kQ5Min       16 x f16 d | 16 x f16 m | codes
//   kQ4K, kQ5K           header of 256 columns 16 x f16 d | 16 x f16 dmin; a block 16 x u8 sc | 16 x u8 mc | codes
//   kQ4TableK            header of 256 columns 16 x f16 d; a block 16 x i8 sc | codes
//   kQ3K, kQ6K           header of 256 columns 16 x f16 d; a block 16 x i8 sc (columns 0-15) | 16 x i8 sc (16-31) | codes
//   kQ2K                 header as kQ4K; a block 16 x u8 (sc in the low nibble, mc in the high one; columns 0-15) | 16 x u8
//   (16-31) | codes
#include <algorithm>
#include <cstring>

#include "kernels/int_product.h"
#include "kpd/base/error.h"

namespace kpd::kernels {
namespace {

// What one block of 32 columns of one output holds; codes as the layout wants them (Q8: two's complement).
struct OutputBlock {
  uint8_t codes[kBlockCols] = {};
  uint8_t scales[4] = {};  // f16 d, f16 m; or 8-bit codes of the super-block's
};

void nibbles(const uint8_t* src, uint8_t* codes) {
  for (size_t i = 0; i < 16; ++i) {
    codes[i] = src[i] & 15;
    codes[i + 16] = src[i] >> 4;
  }
}

OutputBlock q2_k_block(const uint8_t* super, size_t b) {
  OutputBlock block;
  const uint8_t* q = super + 16 + b / 4 * 32;
  for (size_t i = 0; i < kBlockCols; ++i) block.codes[i] = (q[i] >> (b % 4 * 2)) & 3;
  std::memcpy(block.scales, super + 2 * b, 2);
  return block;
}

void add_high_bits(const uint8_t* src, uint8_t* codes) {
  for (size_t i = 0; i < kBlockCols; ++i) codes[i] = static_cast<uint8_t>(codes[i] | ((src[i / 8] >> (i % 8)) & 1) << 4);
}

// Q4_K and Q5_K, which has the fifth bits before the nibbles.
OutputBlock q45_k_block(const uint8_t* super, size_t b, bool five_bits) {
  OutputBlock block;
  const uint8_t* s = super + 4;
  if (b < 4) {
    block.scales[0] = s[b] & 63;
    block.scales[1] = s[b + 4] & 63;
  } else {
    block.scales[0] = static_cast<uint8_t>((s[b + 4] & 15) | (s[b - 4] >> 6) << 4);
    block.scales[1] = static_cast<uint8_t>((s[b + 4] >> 4) | (s[b] >> 6) << 4);
  }
  const uint8_t* high = super + 16;
  const uint8_t* q = super + (five_bits ? 48 : 16) + b / 2 * 32;
  for (size_t i = 0; i < kBlockCols; ++i) {
    const int low = b % 2 == 0 ? q[i] & 15 : q[i] >> 4;
    block.codes[i] = static_cast<uint8_t>(five_bits ? low | ((high[i] >> b) & 1) << 4 : low);
  }
  return block;
}

OutputBlock q6_k_block(const uint8_t* super, size_t b) {
  OutputBlock block;
  const size_t half = b / 4, quarter = b % 4;
  const uint8_t* low = super + half * 64 + quarter % 2 * 32;
  const uint8_t* high = super + 128 + half * 32;
  for (size_t i = 0; i < kBlockCols; ++i) {
    const int l = quarter < 2 ? low[i] & 15 : low[i] >> 4;
    block.codes[i] = static_cast<uint8_t>(l | ((high[i] >> (2 * quarter)) & 3) << 4);
  }
  block.scales[0] = super[192 + 2 * b];
  block.scales[1] = super[192 + 2 * b + 1];
  return block;
}

// Weights are codes less 4; scales are stored less 32.
OutputBlock q3_k_block(const uint8_t* super, size_t b) {
  OutputBlock block;
  const uint8_t* high = super;
  const uint8_t* low = super + 32 + b / 4 * 32;
  const uint8_t* s = super + 96;
  for (size_t i = 0; i < kBlockCols; ++i) {
    block.codes[i] = static_cast<uint8_t>(((low[i] >> (b % 4 * 2)) & 3) + ((high[i] >> b) & 1) * 4);
  }
  for (size_t h = 0; h < 2; ++h) {
    const size_t j = 2 * b + h;
    const int scale = (j < 8 ? s[j] & 15 : s[j - 8] >> 4) | ((s[8 + j % 4] >> (j / 4 * 2)) & 3) << 4;
    block.scales[h] = static_cast<uint8_t>(scale - 32);
  }
  return block;
}

OutputBlock iq4_xs_block(const uint8_t* super, size_t b) {
  OutputBlock block;
  const int high = (super[2 + b / 4] >> (b % 4 * 2)) & 3, low = (super[4 + b / 2] >> (b % 2 * 4)) & 15;
  block.scales[0] = static_cast<uint8_t>((low | high << 4) - 32);
  nibbles(super + 8 + 16 * b, block.codes);
  return block;
}

// Columns 32 b.. of a row of blocks.
OutputBlock read_block(BlockType type, const uint8_t* row, size_t b) {
  OutputBlock block;
  switch (type) {
    case BlockType::kQ4_1:
      std::memcpy(block.scales, row + b * 20, 4);
      nibbles(row + b * 20 + 4, block.codes);
      return block;
    case BlockType::kQ8_0:
      std::memcpy(block.scales, row + b * 34, 2);
      std::memcpy(block.codes, row + b * 34 + 2, kBlockCols);
      return block;
    case BlockType::kQ5_0:
      std::memcpy(block.scales, row + b * 22, 2);
      nibbles(row + b * 22 + 6, block.codes);
      add_high_bits(row + b * 22 + 2, block.codes);
      return block;
    case BlockType::kQ5_1:
      std::memcpy(block.scales, row + b * 24, 4);
      nibbles(row + b * 24 + 8, block.codes);
      add_high_bits(row + b * 24 + 4, block.codes);
      return block;
    case BlockType::kQ2_K:
      return q2_k_block(row + b / 8 * 84, b % 8);
    case BlockType::kQ3_K:
      return q3_k_block(row + b / 8 * 110, b % 8);
    case BlockType::kQ4_K:
      return q45_k_block(row + b / 8 * 144, b % 8, false);
    case BlockType::kQ5_K:
      return q45_k_block(row + b / 8 * 176, b % 8, true);
    case BlockType::kIQ4_XS:
      return iq4_xs_block(row + b / 8 * 136, b % 8);
    case BlockType::kQ6_K:
      return q6_k_block(row + b / 8 * 210, b % 8);
    default:  // Q4_0 and IQ4_NL
      std::memcpy(block.scales, row + b * 18, 2);
      nibbles(row + b * 18 + 2, block.codes);
      return block;
  }
}

uint32_t load32(const uint8_t* p) {
  uint32_t v;
  std::memcpy(&v, p, 4);
  return v;
}

void store_nibbles(const uint8_t* codes, size_t output, uint8_t* dst) {
  for (size_t j = 0; j < 4; ++j) {
    const uint32_t word = (load32(codes + 8 * j) & 0x0f0f0f0fu) | (load32(codes + 8 * j + 4) & 0x0f0f0f0fu) << 4;
    std::memcpy(dst + 64 * j + 4 * output, &word, 4);
  }
}

// Bit kBit of every code.
template <size_t kBit>
void store_one_bit(const uint8_t* codes, size_t output, uint8_t* dst) {
  uint32_t word = 0;
  for (size_t g = 0; g < 8; ++g) word |= (load32(codes + 4 * g) >> kBit & 0x01010101u) << g;
  std::memcpy(dst + 4 * output, &word, 4);
}

// Bits kBit and kBit + 1 of every code.
template <size_t kBit>
void store_two_bits(const uint8_t* codes, size_t output, uint8_t* dst) {
  for (size_t h = 0; h < 2; ++h) {
    uint32_t word = 0;
    for (size_t k = 0; k < 4; ++k) word |= (load32(codes + 16 * h + 4 * k) >> kBit & 0x03030303u) << (2 * k);
    std::memcpy(dst + 64 * h + 4 * output, &word, 4);
  }
}

// The 16 outputs' scales; returns their bytes.
size_t write_scales(IntLayout layout, const OutputBlock& block, size_t output, uint8_t* dst) {
  switch (layout) {
    case IntLayout::kQ4TableK:
      dst[output] = block.scales[0];
      return 16;
    case IntLayout::kQ2K:
    case IntLayout::kQ3K:
    case IntLayout::kQ4K:
    case IntLayout::kQ5K:
    case IntLayout::kQ6K:
      dst[output] = block.scales[0];
      dst[16 + output] = block.scales[1];
      return 32;
    default:
      std::memcpy(dst + 2 * output, block.scales, 2);
      if (layout != IntLayout::kQ4Min && layout != IntLayout::kQ5Min) return 32;
      std::memcpy(dst + 32 + 2 * output, block.scales + 2, 2);
      return 64;
  }
}

void write_block(IntLayout layout, const OutputBlock& block, size_t output, uint8_t* dst) {
  dst += write_scales(layout, block, output, dst);
  if (layout == IntLayout::kQ8) {
    for (size_t g = 0; g < 8; ++g) std::memcpy(dst + 64 * g + 4 * output, block.codes + 4 * g, 4);
    return;
  }
  if (layout == IntLayout::kQ2K || layout == IntLayout::kQ3K) {
    store_two_bits<0>(block.codes, output, dst);
    if (layout == IntLayout::kQ3K) store_one_bit<2>(block.codes, output, dst + 128);
    return;
  }
  store_nibbles(block.codes, output, dst);
  if (layout == IntLayout::kQ5 || layout == IntLayout::kQ5Min || layout == IntLayout::kQ5K) {
    store_one_bit<4>(block.codes, output, dst + 256);
  } else if (layout == IntLayout::kQ6K) {
    store_two_bits<4>(block.codes, output, dst + 256);
  }
}

// The f16 scales that 256 columns of one output share.
void write_header(BlockType type, const uint8_t* row, size_t super, size_t output, uint8_t* dst) {
  const uint8_t* src = row + super * block_type_info(type).block_bytes;
  switch (type) {
    case BlockType::kQ2_K:
      std::memcpy(dst + 2 * output, src + 80, 2);
      std::memcpy(dst + 32 + 2 * output, src + 82, 2);
      return;
    case BlockType::kQ4_K:
    case BlockType::kQ5_K:
      std::memcpy(dst + 2 * output, src, 2);
      std::memcpy(dst + 32 + 2 * output, src + 2, 2);
      return;
    case BlockType::kQ3_K:
      std::memcpy(dst + 2 * output, src + 108, 2);
      return;
    case BlockType::kQ6_K:
      std::memcpy(dst + 2 * output, src + 208, 2);
      return;
    case BlockType::kIQ4_XS:
      std::memcpy(dst + 2 * output, src, 2);
      return;
    default:
      return;
  }
}

}  // namespace

void Int8Buffer::resize(size_t rows, size_t cols) {
  if (cols % kBlockCols != 0) fail(ErrorCode::kInvalidArgument, cols, " columns: expected a multiple of ", kBlockCols);
  n_rows = rows;
  n_cols = cols;
  codes.resize(rows * cols);
  scales.resize(rows * cols / kBlockCols);
  sums.resize(rows * cols / 16);
  scaled_sums.resize(rows * cols / kBlockCols);
}

std::optional<IntLayout> int_layout(BlockType type) {
  switch (type) {
    case BlockType::kQ4_0:
      return IntLayout::kQ4;
    case BlockType::kQ4_1:
      return IntLayout::kQ4Min;
    case BlockType::kIQ4_NL:
      return IntLayout::kQ4Table;
    case BlockType::kQ4_K:
      return IntLayout::kQ4K;
    case BlockType::kIQ4_XS:
      return IntLayout::kQ4TableK;
    case BlockType::kQ5_0:
      return IntLayout::kQ5;
    case BlockType::kQ5_1:
      return IntLayout::kQ5Min;
    case BlockType::kQ5_K:
      return IntLayout::kQ5K;
    case BlockType::kQ2_K:
      return IntLayout::kQ2K;
    case BlockType::kQ3_K:
      return IntLayout::kQ3K;
    case BlockType::kQ6_K:
      return IntLayout::kQ6K;
    case BlockType::kQ8_0:
      return IntLayout::kQ8;
    default:
      return std::nullopt;
  }
}

size_t tile_bytes(IntLayout layout, size_t n_in) {
  const IntLayoutInfo info = int_layout_info(layout);
  if (n_in % (kBlockCols * info.super_blocks) != 0) {
    fail(ErrorCode::kInvalidArgument, n_in, " columns: expected a multiple of ", kBlockCols * info.super_blocks);
  }
  return n_in / (kBlockCols * info.super_blocks) * (info.header_bytes + info.super_blocks * info.block_bytes);
}

size_t packed_bytes(IntLayout layout, size_t n_out, size_t n_in) {
  return (n_out + kTileOutputs - 1) / kTileOutputs * tile_bytes(layout, n_in);
}

void pack_tiles(BlockType type, std::span<const uint8_t> src, size_t n_out, size_t n_in, size_t tile_begin, size_t tile_end,
                std::span<uint8_t> dst) {
  const BlockTypeInfo& type_info = block_type_info(type);
  const std::optional<IntLayout> layout = int_layout(type);
  if (!layout) fail(ErrorCode::kUnsupported, type_info.name, " weights: no integer product");
  const IntLayoutInfo info = int_layout_info(*layout);
  const size_t stride = tile_bytes(*layout, n_in), row_bytes = n_in / type_info.block_values * type_info.block_bytes;
  const size_t n_tiles = (n_out + kTileOutputs - 1) / kTileOutputs;
  if (src.size() != n_out * row_bytes || dst.size() != n_tiles * stride || tile_begin > tile_end || tile_end > n_tiles) {
    fail(ErrorCode::kInvalidArgument, "packing ", n_out, " x ", n_in, " ", type_info.name, " weights: ", src.size(), " and ",
         dst.size(), " bytes, expected ", n_out * row_bytes, " and ", n_tiles * stride);
  }
  for (size_t t = tile_begin; t < tile_end; ++t) {
    uint8_t* tile = dst.data() + t * stride;
    const size_t outputs = std::min(kTileOutputs, n_out - t * kTileOutputs);
    if (outputs < kTileOutputs) std::memset(tile, 0, stride);
    for (size_t o = 0; o < outputs; ++o) {
      const uint8_t* row = src.data() + (t * kTileOutputs + o) * row_bytes;
      uint8_t* block = tile;
      for (size_t b = 0; b < n_in / kBlockCols; ++b, block += info.block_bytes) {
        if (b % info.super_blocks == 0) {
          write_header(type, row, b / info.super_blocks, o, block);
          block += info.header_bytes;
        }
        write_block(*layout, read_block(type, row, b), o, block);
      }
    }
  }
}

}  // namespace kpd::kernels
