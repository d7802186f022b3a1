// tests: one GGUF file a kind of damage, with the error that it must give. Frozen in tests/corrupt/gguf.
#pragma once

#include <string>
#include <vector>

#include "io/gguf_bytes.h"
#include "kpd/base/bytes.h"
#include "kpd/base/error.h"

namespace kpd::testing {

struct GgufDamage {
  std::string name;
  std::vector<uint8_t> bytes;
  ErrorCode code;
  std::string part;  // of the error's text
};

// A sound file to damage: two values, three tensors.
inline GgufBytes sound_gguf_head() {
  GgufBytes b(3, 2);
  b.key("general.architecture", 8).text("llama").array("list", 4, 3).number(1u).number(2u).number(3u);
  b.tensor("w", {32, 2}, 8, 0).tensor("v", {4}, 0, 96).tensor("h", {3}, 1, 128);
  return b;
}
inline std::vector<uint8_t> sound_gguf() { return sound_gguf_head().data(134); }

inline std::vector<GgufDamage> gguf_header_damages() {
  using enum ErrorCode;
  std::vector<GgufDamage> all;
  const auto add = [&](const char* name, std::vector<uint8_t> bytes, ErrorCode code, std::string part) {
    all.push_back({name, std::move(bytes), code, std::move(part)});
  };
  const auto with = [&](size_t at, uint64_t v, size_t n) {
    std::vector<uint8_t> b = sound_gguf();
    for (size_t i = 0; i < n; ++i) b[at + i] = static_cast<uint8_t>(v >> (8 * i));
    return b;
  };
  const std::vector<uint8_t> good = sound_gguf();
  add("empty", {}, kCorruptData, "byte 0: expected the magic bytes of a GGUF file");
  add("magic_cut", {'G', 'G', 'U'}, kCorruptData, "byte 0: expected the magic bytes");
  add("magic", with(3, 'X', 1), kCorruptData, "byte 0: expected the magic bytes");
  add("version_cut", {'G', 'G', 'U', 'F', 3}, kCorruptData, "byte 4: expected 4 bytes of version, 1 left");
  add("version_0", with(4, 0, 4), kUnsupported, "byte 4: GGUF version 0, expected 2 or 3");
  add("version_1", with(4, 1, 4), kUnsupported, "byte 4: GGUF version 1, expected 2 or 3");
  add("version_4", with(4, 4, 4), kUnsupported, "byte 4: GGUF version 4, expected 2 or 3");
  add("big_endian", with(4, 0x03000000, 4), kUnsupported, "byte 4: a big-endian file, expected little-endian");
  add("counts_cut", {good.begin(), good.begin() + 20}, kCorruptData, "byte 8: 3 tensors, 4 bytes left, expected at least 24");
  add("tensors_more", with(8, 4, 8), kCorruptData, "tensor");
  add("tensors_2_32", with(8, uint64_t{1} << 32, 8), kCorruptData, "4294967296 tensors");
  add("tensors_all_ones", with(8, UINT64_MAX, 8), kCorruptData, "byte 8: 18446744073709551615 tensors");
  add("values_more", with(16, 3, 8), kCorruptData, "byte ");
  add("values_all_ones", with(16, UINT64_MAX, 8), kCorruptData, "byte 16: 18446744073709551615 metadata values");
  add("values_2_60", with(16, uint64_t{1} << 60, 8), kCorruptData, "expected at least 13 bytes each");
  add("key_all_ones", with(24, UINT64_MAX, 8), kCorruptData, "byte 24: key: a string of 18446744073709551615 bytes");
  add("key_2_40", with(24, uint64_t{1} << 40, 8), kCorruptData, "byte 24: key: a string of 1099511627776 bytes");
  GgufBytes many((1 << 20) + 1, 0);
  many.out.resize(24 + 24 * ((1 << 20) + 1));
  // Not frozen as a file: it must be large to get past the comparison with the bytes that are left.
  add("~tensors_beyond", many.out, kLimitExceeded, "byte 8: 1048577 tensors, the limit is 1048576");
  return all;
}

inline std::vector<GgufDamage> gguf_value_damages() {
  using enum ErrorCode;
  std::vector<GgufDamage> all;
  const auto add = [&](const char* name, const GgufBytes& b, ErrorCode code, std::string part) {
    all.push_back({name, b.data(64), code, std::move(part)});
  };
  const auto one = [] { return GgufBytes(0, 1); };
  add("value_type_13", one().key("k", 13).number(uint64_t{0}), kCorruptData,
      "byte 33: value of key 'k': type 13, expected 0 to 12");
  add("value_type_all_ones", one().key("k", UINT32_MAX), kCorruptData, "type 4294967295, expected 0 to 12");
  add("bool_2", one().key("k", 7).number(uint8_t{2}), kCorruptData, "byte 37: value of key 'k': 2, expected 0 or 1");
  add("bool_array_255", one().array("k", 7, 2).number(uint8_t{1}).number(uint8_t{255}), kCorruptData, "255, expected 0 or 1");
  add("text_all_ones", one().key("k", 8).number(UINT64_MAX), kCorruptData,
      "byte 37: value of key 'k': a string of 18446744073709551615 bytes");
  add("array_nested", one().array("k", 9, 1).number(4u).number(uint64_t{0}), kUnsupported,
      "value of key 'k': an array of arrays");
  add("array_type_99", one().array("k", 99, 1), kCorruptData, "type 99, expected 0 to 12");
  add("array_all_ones", one().array("k", 0, UINT64_MAX), kCorruptData, "18446744073709551615 items");
  add("array_2_61_words", one().array("k", 10, uint64_t{1} << 61), kCorruptData, "items");
  add("array_of_texts_2_32", one().array("k", 8, uint64_t{1} << 32), kCorruptData, "4294967296 items");
  add("array_one_too_many", one().array("k", 0, 97), kCorruptData, "97 items");
  add("array_text_beyond", one().array("k", 8, 2).text("a").number(uint64_t{1} << 20), kCorruptData,
      "a string of 1048576 bytes");
  GgufBytes twice(0, 2);
  twice.key("k", 0).number(uint8_t{1}).key("k", 0).number(uint8_t{1});
  add("key_twice", twice, kCorruptData, "byte 38: key 'k' is given twice");
  add("key_long", one().key(std::string(5000, 'k'), 0).number(uint8_t{1}), kLimitExceeded,
      "key: 5000 bytes, the limit is 4096");
  add("key_with_newline", one().key("a\nb\x1b[31m", 77), kCorruptData, "value of key 'a?b?[31m': type 77");
  for (const uint32_t v : {0u, 4u, 24u, 33u, 1u << 22, 1u << 31}) {
    add(str("alignment_", v).c_str(), one().key("general.alignment", 4).number(v), kCorruptData,
        str("key 'general.alignment' is ", v, ", expected a power of two from 8"));
  }
  add("alignment_text", one().key("general.alignment", 8).text("32"), kCorruptData,
      "key 'general.alignment' is not an unsigned");
  add("alignment_signed", one().key("general.alignment", 5).number(-32), kCorruptData, "is not an unsigned number");
  return all;
}

inline std::vector<GgufDamage> gguf_tensor_damages() {
  using enum ErrorCode;
  std::vector<GgufDamage> all;
  const auto add = [&](const char* name, const GgufBytes& b, ErrorCode code, std::string part, size_t data_bytes = 128) {
    all.push_back({name, b.data(data_bytes), code, std::move(part)});
  };
  const auto one = [](const std::vector<uint64_t>& dims, uint32_t type, uint64_t offset) {
    GgufBytes b(1, 0);
    b.tensor("w", dims, type, offset);
    return b;
  };
  const auto two = [](uint64_t a, uint64_t b_at, const char* second = "b") {
    GgufBytes b(2, 0);
    b.tensor("a", {8}, 0, a).tensor(second, {16}, 0, b_at);
    return b;
  };
  add("dims_5", one({1, 1, 1, 1, 1}, 0, 0), kCorruptData, "byte 33: tensor 'w' has 5 dimensions, expected at most 4");
  GgufBytes dims(1, 0);
  dims.text("w").number(UINT32_MAX);
  add("dims_all_ones", dims, kCorruptData, "has 4294967295 dimensions");
  add("dims_cut", GgufBytes(1, 0).text("w").number(4u).number(uint64_t{1}), kCorruptData, "tensor 'w'", 0);
  add("elements_overflow", one({1ull << 32, 1ull << 32}, 0, 0), kLimitExceeded, "tensor 'w': more elements in the shape");
  add("elements_overflow_zero", one({1ull << 32, 0, 1ull << 32}, 0, 0), kLimitExceeded, "more elements in the shape");
  add("elements_2_63", one({1ull << 63}, 0, 0), kLimitExceeded, "more elements in the shape");
  add("elements_beyond_file", one({1ull << 36}, 0, 0), kCorruptData, "has 274877906944 bytes at offset 0");
  add("row_31", one({31, 2}, 2, 0), kCorruptData, "has rows of 31 values, expected a multiple of 32 for Q4_0");
  add("row_128", one({128}, 12, 0), kCorruptData, "has rows of 128 values, expected a multiple of 256 for Q4_K");
  add("row_scalar", one({}, 8, 0), kCorruptData, "has rows of 1 values, expected a multiple of 32 for Q8_0");
  add("type_4", one({32}, 4, 0), kUnsupported, "byte 45: tensor 'w' is of ggml's type 4, expected one of F32, F16, Q4_0");
  add("type_i32", one({32}, 26, 0), kUnsupported, "is of ggml's type 26, expected one of");
  add("type_all_ones", one({32}, UINT32_MAX, 0), kUnsupported, "is of ggml's type 4294967295");
  add("offset_odd", one({8}, 0, 1), kCorruptData, "byte 49: tensor 'w' lies at offset 1, expected a multiple of 32");
  add("offset_16", one({8}, 0, 16), kCorruptData, "lies at offset 16, expected a multiple of 32");
  add("offset_beyond", one({8}, 0, 160), kCorruptData, "has 32 bytes at offset 160, expected a range within 128 bytes of data");
  add("offset_end", one({8}, 0, 128), kCorruptData, "has 32 bytes at offset 128, expected a range within 128 bytes");
  add("offset_all_ones", one({8}, 0, UINT64_MAX - 31), kCorruptData, "at offset 18446744073709551584");
  add("data_cut", one({33}, 0, 0), kCorruptData, "has 132 bytes at offset 0, expected a range within 128 bytes");
  add("data_missing", one({8}, 0, 0), kCorruptData, "expected a range within 0 bytes", 0);
  add("overlap", two(0, 0), kCorruptData, "begins within tensor '");
  add("overlap_part", two(32, 0), kCorruptData, "tensor 'a' begins within tensor 'b', which has 64 bytes at offset 0");
  add("name_twice", two(0, 32, "a"), kCorruptData, "tensor 'a' is given twice");
  add("name_long", GgufBytes(1, 0).tensor(std::string(4097, 'n'), {8}, 0, 0), kLimitExceeded,
      "name of a tensor: 4097 bytes, the limit is 4096");
  add("name_all_ones", GgufBytes(1, 0).number(UINT64_MAX).number(0u).number(0u).number(uint64_t{0}), kCorruptData,
      "name of a tensor: a string of 18446744073709551615 bytes");
  add("name_with_newline", GgufBytes(1, 0).tensor("a\nb", {8}, 99, 0), kUnsupported, "tensor 'a?b' is of ggml's type 99");
  GgufBytes wide(1, 1);
  wide.key("general.alignment", 4).number(4096u).tensor("w", {8}, 0, 32);
  add("offset_below_alignment", wide, kCorruptData, "lies at offset 32, expected a multiple of 4096");
  GgufBytes padding(1, 1);
  padding.key("general.alignment", 4).number(4096u).tensor("w", {8}, 0, 0);
  add("padding_cut", padding, kCorruptData, "expected a range within 0 bytes");
  return all;
}

}  // namespace kpd::testing
