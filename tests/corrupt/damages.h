// tests: the list of damages (damage.h), one a kind.
#pragma once

#include <cmath>
#include <limits>

#include "corrupt/damage.h"

namespace kpd::gradient::testing {

namespace detail {

constexpr ErrorCode kCorrupt = ErrorCode::kCorruptData, kLimit = ErrorCode::kLimitExceeded, kUnknown = ErrorCode::kUnsupported;

class List {
 public:
  explicit List(std::string spec) : spec_(std::move(spec)) {}
  // The stream of the list's spec after `change`, sealed.
  template <class Change>
  void add(const std::string& name, ErrorCode code, const std::string& part, const Change& change) {
    Bytes b = encode_stream(spec_);
    change(b);
    seal(b);
    damages.push_back({name, std::move(b), code, part});
  }
  // As it is, not sealed.
  void raw(const std::string& name, ErrorCode code, const std::string& part, Bytes b) {
    damages.push_back({name, std::move(b), code, part});
  }
  void with(std::string spec) { spec_ = std::move(spec); }
  std::vector<Damage> damages;

 private:
  std::string spec_;
};

inline Bytes cut(Bytes b, size_t n) {
  b.resize(n);
  return b;
}

inline void insert(Bytes& b, size_t at, const Bytes& what) {
  b.insert(b.begin() + static_cast<ptrdiff_t>(at), what.begin(), what.end());
}
inline void erase(Bytes& b, size_t at, size_t n) {
  b.erase(b.begin() + static_cast<ptrdiff_t>(at), b.begin() + static_cast<ptrdiff_t>(at + n));
}
// An extension behind the manifest.
inline void extend_header(Bytes& b, const Bytes& extension) {
  const size_t at = table_at(b);
  insert(b, at, extension);
  store_u32(b.data() + 8, static_cast<uint32_t>(at + extension.size()));
}

}  // namespace detail

inline std::vector<Damage> frame_damages() {
  using namespace detail;
  List l("eden:bits=1");
  const Bytes good = encode_stream("eden:bits=1");
  l.raw("empty", kCorrupt, "byte 0: expected 4 bytes of magic", {});
  l.raw("three_bytes", kCorrupt, "byte 0: expected 4 bytes of magic", cut(good, 3));
  l.raw("only_magic", kCorrupt, "byte 4: expected 1 byte of major version", cut(good, 4));
  l.raw("cut_in_header", kCorrupt, "byte 16: expected 8 bytes of total length", cut(good, 20));
  l.raw("cut_in_payload", kCorrupt, "byte 16: the header says", cut(good, good.size() - 6));
  Bytes b = good;
  b.push_back(0);
  l.raw("extended", kCorrupt, "byte 16: the header says", b);
  b = good;
  b[payload_at(b) + 5] ^= 16;
  l.raw("payload_bit", kCorrupt, str("byte ", good.size() - 4, ": checksum mismatch"), b);
  b = good;
  b.back() ^= 128;
  l.raw("checksum_bit", kCorrupt, "checksum mismatch", b);
  b = good;
  b[6] |= kFlagStreamed;
  l.raw("streamed_with_length", kCorrupt, "byte 16: the header says", b);

  l.add("magic", kCorrupt, "byte 0: not a kpd gradient stream", [](Bytes& s) { s[3] = 'H'; });
  l.add("major_version", kUnknown, "byte 4: format version 1.0, this program reads 2.x", [](Bytes& s) { s[4] = 1; });
  l.add("header_flag", kCorrupt, "unknown header flags 16", [](Bytes& s) { s[6] |= 16; });
  l.add("file_with_mac", kCorrupt, "header flags 8: a file has no MAC field", [](Bytes& s) { s[6] |= 8; });
  l.add("packet_control", kUnknown, "byte 6: the control part of a packetized message", [](Bytes& s) { s[6] |= 4; });
  l.add("header_short", kCorrupt, "byte 8: header length 31", [](Bytes& s) { store_u32(s.data() + 8, 31); });
  l.add("header_beyond", kCorrupt, "byte 8: header length 1000000 does not fit a stream of",
        [](Bytes& s) { store_u32(s.data() + 8, 1000000); });
  l.add("header_all_ones", kLimit, "byte 8: a header of 4294967295 bytes, the limit is",
        [](Bytes& s) { store_u32(s.data() + 8, ~0u); });
  l.add("header_within_manifest", kCorrupt, "byte 8: header length 56, but the manifest ends at 61",
        [](Bytes& s) { store_u32(s.data() + 8, 56); });
  l.add("header_takes_table", kCorrupt, "byte 61: header extension cut short", [](Bytes& s) { store_u32(s.data() + 8, 66); });
  l.add("tensors_all_ones", kLimit, "byte 12: 4294967295 tensors, the limit is 1048576",
        [](Bytes& s) { store_u32(s.data() + 12, ~0u); });
  l.add("manifest_bomb", kCorrupt, "byte 12: 1000000 tensors do not fit a header of 61 bytes",
        [](Bytes& s) { store_u32(s.data() + 12, 1000000); });
  l.add("one_tensor_too_many", kCorrupt, "byte ", [](Bytes& s) { store_u32(s.data() + 12, 2); });
  l.add("no_tensor", kCorrupt, "byte ", [](Bytes& s) { store_u32(s.data() + 12, 0); });
  l.add("tensor_missing", kCorrupt, "byte 48: 1 codecs for 0 tensors", [](Bytes& s) {
    store_u32(s.data() + 12, 0);
    erase(s, 48, 13);
    store_u32(s.data() + 8, 48);
  });

  l.add("name_length", kLimit, "byte 48: name of tensor 0 has 65535 bytes, the limit is 4096",
        [](Bytes& s) { store_u16(s.data() + 48, 65535); });
  l.add("name_beyond", kCorrupt, "byte 50: expected 4096 bytes of tensor name",
        [](Bytes& s) { store_u16(s.data() + 48, 4096); });
  l.add("manifest_dtype", kCorrupt, "dtype 15 of tensor 'x', expected 0 to 14", [](Bytes& s) { s[51] = 15; });
  l.add("dimensions", kLimit, "byte 52: tensor 'x' has 17 dimensions, the limit is 16", [](Bytes& s) { s[52] = 17; });
  l.add("dimensions_beyond", kCorrupt, "bytes of dimension", [](Bytes& s) { s[52] = 16; });
  l.add("shape_2_60", kLimit, "tensor 'x' has more than 68719476736 elements",
        [](Bytes& s) { store_u64(s.data() + 53, 1ull << 60); });
  l.add("shape_wraps", kLimit, "tensor 'x' has more than 68719476736 elements", [](Bytes& s) {
    s[52] = 2;
    store_u64(s.data() + 53, 1ull << 35);
    insert(s, 61, Bytes(8));
    store_u64(s.data() + 61, 1ull << 29);
    store_u32(s.data() + 8, 69);
  });
  l.add("shape_grown", kCorrupt, "byte 93: the tensors end here", [](Bytes& s) { store_u64(s.data() + 53, 80); });
  l.add("name_with_newline", kCorrupt, "byte 54: name of tensor 0 is not UTF-8 without control characters", [](Bytes& s) {
    s = encode_stream("eden:bits=1", false, kElements, "a.b.");
    s[51] = '\n';
    s[53] = 27;
  });

  {
    const std::vector<float> x(2 * kElements);
    const TensorView views[] = {std::span<const float>(x).first(kElements), std::span<const float>(x).last(kElements)};
    Encoder e({{"x", DType::kFloat32, {kElements}}, {"y", DType::kFloat32, {kElements}}}, Codec::parse("eden"), RunSecret{});
    Bytes two(e.max_bytes());
    two.resize(e.encode_file(views, 1, two));
    two[48 + 13 + 2] = 'x';
    seal(two);
    l.raw("same_name_twice", kCorrupt, "two tensors are named 'x'", two);
  }

  l.add("extension_critical", kUnknown, "byte 61: critical extension 32769", [](Bytes& s) {
    extend_header(s, {1, 0x80, 2, 0, 0, 0, 0, 0});
  });
  l.add("extension_beyond", kCorrupt, "byte 67: header extension of 4294967295 bytes", [](Bytes& s) {
    extend_header(s, {100, 0, 255, 255, 255, 255, 0, 0});
  });
  l.add("extension_cut", kCorrupt, "byte 69: header extension cut short", [](Bytes& s) {
    extend_header(s, {100, 0, 2, 0, 0, 0, 0, 0, 100, 0, 0});
  });
  return std::move(l.damages);
}

// A file of three tensors of 70 numbers with these codecs and runs.
inline Bytes table_stream(const std::vector<std::string>& codecs, const Bytes& runs) {
  Bytes b(kFileHeaderBytes);
  std::copy(std::begin(kMagic), std::end(kMagic), b.begin());
  b[4] = kFormatMajor;
  for (const char name : {'a', 'b', 'c'}) b.insert(b.end(), {1, 0, static_cast<uint8_t>(name), 0, 1, 70, 0, 0, 0, 0, 0, 0, 0});
  store_u32(b.data() + 8, static_cast<uint32_t>(b.size()));
  store_u32(b.data() + 12, 3);
  CodecTable table;
  for (const std::string& spec : codecs) table.codecs.push_back(Codec::parse(spec).params());
  const size_t at = b.size();
  b.resize(at + codec_table_bytes(table));
  ByteWriter w(std::span<uint8_t>(b).subspan(at));
  write_codec_table(w, table);
  b.insert(b.end(), runs.begin(), runs.end());
  b.resize(b.size() + 3 * 4 * 70 + kChecksumBytes);
  seal(b);
  return b;
}

// The manifest ends at byte 87; with two codecs the first run stands at byte 117.
inline std::vector<Damage> table_damages() {
  using namespace detail;
  List l("float32");
  const std::vector<std::string> two = {"float32", "eden:bits=1,join=0"};
  const auto runs = [&](const std::string& name, const std::string& part, const std::vector<std::string>& codecs,
                        const Bytes& b) { l.raw(name, kCorrupt, part, table_stream(codecs, b)); };
  runs("table_no_codec", "byte 87: no codec for 3 tensors", {}, {});
  runs("table_more_codecs_than_tensors", "byte 87: 4 codecs for 3 tensors", {"float32", "bf16", "drive", "sq"}, {0, 3});
  runs("table_same_codec_twice", "byte 103: codec 1 is that of another number too", {"float32", "float32"}, {0, 1, 1, 2});
  runs("table_codec_unused", "byte 103: codec 1 is that of no tensor", two, {0, 3});
  runs("table_first_codec_unused", "byte 89: codec 0 is that of no tensor", two, {1, 3});
  runs("table_run_of_0", "byte 118: a run of 0 tensors, expected 1 to 3", two, {0, 0, 1, 3});
  runs("table_run_beyond", "byte 118: a run of 4 tensors, expected 1 to 3", two, {0, 4});
  runs("table_second_run_beyond", "byte 120: a run of 3 tensors, expected 1 to 2", two, {0, 1, 1, 3});
  runs("table_run_of_2_62", "expected 1 to 3", two, {0, 255, 255, 255, 255, 255, 255, 255, 255, 0x7f});
  runs("table_run_never_ends", "byte 118: the length of a run of tensors is not written in the fewest bytes", two,
       Bytes(12, 255));
  l.damages.back().bytes[117] = 0;
  seal(l.damages.back().bytes);
  runs("table_run_padded", "byte 118: the length of a run of tensors is not written in the fewest bytes", two, {0, 0x83, 0});
  runs("table_codec_beyond", "byte 117: tensor 0 has codec 2, there are 2", two, {2, 1, 0, 2});
  l.raw("table_cut", kCorrupt, "byte 87: ", [] {  // the checksum is taken for it
    Bytes b = table_stream({"float32"}, {0, 3});
    b.resize(87 + kChecksumBytes);
    seal(b);
    return b;
  }());
  l.raw("table_runs_cut", kCorrupt, "byte 105: ", [] {
    Bytes b = table_stream({"float32"}, {0, 1, 0, 1});
    b.resize(105 + kChecksumBytes);
    b[103] = 0, b[104] = 1;
    seal(b);
    return b;
  }());
  return std::move(l.damages);
}

inline std::vector<Damage> record_damages() {
  using namespace detail;
  List l("eden:bits=1");
  const auto u8 = [&](const std::string& name, ErrorCode code, const std::string& part, size_t at, uint8_t v) {
    l.add(name, code, part, [=](Bytes& s) { s[record_at(s) + at] = v; });
  };
  const auto u16 = [&](const std::string& name, ErrorCode code, const std::string& part, uint16_t v) {
    l.add(name, code, part, [=](Bytes& s) { store_u16(s.data() + record_at(s) + 4, v); });
  };
  const auto u32 = [&](const std::string& name, ErrorCode code, const std::string& part, size_t at, uint32_t v) {
    l.add(name, code, part, [=](Bytes& s) { store_u32(s.data() + record_at(s) + at, v); });
  };
  const auto count = [&](const std::string& name, ErrorCode code, const std::string& part, uint64_t v) {
    l.add(name, code, part, [=](Bytes& s) { store_u64(s.data() + kFileHeaderBytes + 5, v); });
  };
  count("count_2_36", kCorrupt, "byte 79: a tensor of 68719476736 elements needs at least", 1ull << 36);
  count("count_grown", kCorrupt, "bytes of segment", 700);
  count("count_few", kCorrupt, "byte 79: a tensor of 10 elements needs at least 40 bytes", 10);
  count("count_zero", kCorrupt, "the tensors end here", 0);
  u8("method", kUnknown, "byte 63: codec 0: method id 200 is not known", 0, 200);
  u8("method_exact", kCorrupt, "byte 63: codec 0: method 11 is chosen by a tensor's type", 0, 11);
  u8("block_5", kCorrupt, "log2 of the block is 5", 1, 5);
  u8("block_15", kCorrupt, "log2 of the block is 15, expected 6 to 14", 1, 15);
  u8("block_255", kCorrupt, "log2 of the block is 255", 1, 255);
  u8("rounds_7", kCorrupt, "rounds 7, expected 1 to 6", 2, 7);
  u8("rounds_255", kCorrupt, "rounds 255, expected 1 to 6", 2, 255);
  u8("scale_kind", kCorrupt, "scale kind 3, expected 0 to 2", 3, 3);
  u16("codec_flag_8", kCorrupt, "unknown flags 8", 8);  // in memory only
  u16("codec_flag_256", kCorrupt, "unknown flags 256", 256);
  u16("dither_alone", kCorrupt, "dither without an entropy code", kFlagDither);
  u16("allocate_with_entropy", kCorrupt, "a rate per block with an entropy code", kFlagEntropy | kFlagAllocate);
  u32("rate_0", kCorrupt, "rate 0, expected 3277 to 524288", 6, 0);
  u32("rate_below", kCorrupt, "rate 3276, expected 3277 to 524288", 6, 3276);
  u32("rate_huge", kCorrupt, "rate 4294967295, expected 3277 to 524288", 6, ~0u);
  u32("rate_8_bits", kCorrupt, "bytes of segment", 6, 8u << 16);  // valid, but the bytes are not there
  u32("parameter", kCorrupt, "parameter 1, expected 0", 10, 1);
  l.with("eden:code=entropy,bits=1");
  u32("step_below", kCorrupt, "step 4095, expected 4096 to 8388608", 10, 4095);
  u32("step_beyond", kCorrupt, "step 8388609, expected 4096 to 8388608", 10, (8u << 20) + 1);
  u8("entropy_block_13", kCorrupt, "log2 of the block 13, expected 6 to 12", 1, 13);
  l.with("eden:code=entropy,dither=shared,bits=1");
  u8("dither_biased", kCorrupt, "dither with a scale that is not unbiased", 3, 1);
  u16("dither_joins", kCorrupt, "only methods with a rotation of one client's own join",
      kFlagEntropy | kFlagDither | kFlagJoin);
  l.with("sq:bits=1");
  u16("baseline_flags", kCorrupt, "sq: flags 1, expected 0", 1);
  u16("sq_joins", kCorrupt, "flags 16: only methods with a rotation", kFlagJoin);
  u8("baseline_rounds", kCorrupt, "sq: rounds 1, expected 0", 2, 1);
  u32("baseline_rate", kCorrupt, "sq: rate 524289, expected 1 to 524288", 6, (8u << 16) + 1);
  l.with("qsgd:bits=2");
  u32("qsgd_no_level", kCorrupt, "qsgd: parameter 0, expected 1 to 128", 10, 0);
  u32("qsgd_levels", kCorrupt, "qsgd: parameter 129, expected 1 to 128", 10, 129);
  l.with("kashin-sq:bits=2");
  u32("kashin_iterations", kCorrupt, "kashin-sq: parameter 4294967295, expected 1 to 8", 10, ~0u);
  l.with("randk:bits=2");
  u32("randk_rate", kCorrupt, "randk: rate 2097153, expected 1 to 2097152", 6, (32u << 16) + 1);
  return std::move(l.damages);
}

inline std::vector<Damage> payload_damages() {
  using namespace detail;
  List l("eden:bits=1");
  const auto word = [&](const std::string& name, ErrorCode code, const std::string& part, size_t at, uint32_t v) {
    l.add(name, code, part, [=](Bytes& s) { store_u32(s.data() + payload_at(s) + at, v); });
  };
  l.add("payload_short", kCorrupt, "byte 79: expected 13 bytes of segment, ", [](Bytes& s) { erase(s, payload_at(s), 5); });
  l.add("payload_long", kCorrupt, "the tensors end here", [](Bytes& s) { insert(s, payload_at(s), {1}); });
  l.add("record_cut", kCorrupt, "byte 69: expected 4 bytes of rate, 0 left", [](Bytes& s) { s.resize(record_at(s) + 2 + 4); });
  word("scale_without_exponent", kCorrupt, "tensor 0, segment at byte 79: byte 0: scale word 4 has no exponent", 0, 4);
  word("rounds_without_scale", kCorrupt, "byte 0: scale word 1 has no exponent", 0, 1);
  word("three_rounds_of_five", kCorrupt, "byte 0: a block asks for three rounds, the record has 5", 0, 256u << 23 | 1);
  word("codes_of_a_zero_block", kCorrupt, "byte 83: the tensors end here", 0, 0);
  for (const char* spec : {"drive", "drive+", "sq:bits=2", "hadamard-sq:bits=2", "kashin-sq:bits=2", "terngrad"}) {
    l.with(spec);
    l.add(str("codes_of_a_zero_block_", std::string(spec).substr(0, std::string(spec).find(':'))), kCorrupt,
          "the tensors end here",
          [](Bytes& b) { std::fill_n(b.begin() + static_cast<ptrdiff_t>(payload_at(b)), 8, uint8_t{0}); });
  }
  l.with("randk:bits=8");
  word("codes_of_a_zero_block_randk", kCorrupt, "byte 83: the tensors end here", 0, 0x80000000u);
  l.with("eden:bits=1,rounds=2");
  word("three_rounds_of_explicit", kCorrupt, "byte 0: a block asks for three rounds, the record has 2", 0, 256u << 23 | 1);
  l.with("eden:bits=1");

  l.with("eden:bits=2,allocate=energy,block=64");
  const auto rate = [&](const std::string& name, const std::string& part, uint8_t v) {
    l.add(name, kCorrupt, part, [=](Bytes& s) { s[payload_at(s) + 8] = v; });
  };
  rate("block_rate_0", "byte 4: rate of block 0 is 0, expected 1 to 160", 0);
  rate("block_rate_255", "byte 4: rate of block 0 is 255, expected 1 to 160", 255);
  rate("block_rate_161", "byte 4: rate of block 0 is 161, expected 1 to 160", 161);
  rate("block_rate_more", "byte 5: block 0 needs 72 bytes, 18 are left", 160);
  rate("block_rate_less", "bytes too many in an eden segment", 1);
  word("allocate_length_0", kCorrupt, "segment of 0 bytes claims 70 elements", 0, 0);
  word("allocate_length_4", kCorrupt, "the tensors end here", 0, 4);
  l.add("allocate_head_cut", kCorrupt, "byte 0: eden segment of 4 bytes, expected at least 5", [](Bytes& s) {
    store_u32(s.data() + payload_at(s), 4);
    s.resize(payload_at(s) + 8 + kChecksumBytes);
  });

  l.with("eden:code=entropy,bits=5");
  word("segment_length_all_ones", kCorrupt, "segment of 4294967295 bytes, at most ", 0, ~0u);
  l.add("segment_length_more", kCorrupt, "the tensors end here", [](Bytes& s) { s[payload_at(s)] += 1; });
  l.add("segment_length_less", kCorrupt, "the tensors end here", [](Bytes& s) { s[payload_at(s)] -= 1; });
  word("entropy_scale", kCorrupt, "byte 0: scale word 8388607 has no exponent", 4, (1u << 23) - 1);
  word("flush_length_all_ones", kCorrupt, "byte 8: rANS flush of 4294967295 bytes", 8, ~0u);
  word("flush_length_0", kCorrupt, "byte 8: expected 32 bytes of rANS states", 8, 0);
  word("flush_length_odd", kCorrupt, "a whole number of words", 8, 33);
  l.raw("flush_only_states", kCorrupt, "expected 32 bytes of rANS states", entropy_stream({.flush = Bytes(30, 1)}));
  l.raw("state_low", kCorrupt, "byte 8: a rANS state is below 65536", entropy_stream({.flush = Bytes(40, 0)}));
  Bytes flush = flush_of(0);
  flush.resize(flush.size() - 2);
  l.raw("flush_words_missing", kCorrupt, "the rANS words end before the last symbol", entropy_stream({.flush = flush}));
  flush = flush_of(0);
  flush.push_back(1);
  flush.push_back(1);
  l.raw("flush_words_left", kCorrupt, "rANS words are left after the last symbol", entropy_stream({.flush = flush}));
  flush = flush_of(0);
  flush[1] ^= 1;
  l.raw("state_never_ends", kCorrupt, "byte ", entropy_stream({.flush = flush}));
  l.raw("states_full_no_words", kCorrupt, "byte ", entropy_stream({.flush = Bytes(32, 255)}));
  l.raw("escape_missing", kCorrupt, "escape", entropy_stream({.flush = flush_of(2), .escapes = {9}}));
  l.raw("escape_too_many", kCorrupt, "bytes after the last escape",
        entropy_stream({.flush = flush_of(2), .escapes = {9, -9, 9}}));
  l.raw("flush_of_no_block", kCorrupt, "byte ", entropy_stream({.word = 0, .flush = flush_of(0)}));
  l.with("eden:code=entropy,dither=shared,bits=2");
  l.add("dither_rounds", kCorrupt, "byte 0: a dithered block asks for a rotation of its own",
        [](Bytes& s) { s[payload_at(s) + 4] |= 1; });

  const auto number = [&](const std::string& spec, const std::string& name, size_t at, float v, const std::string& part) {
    l.with(spec);
    word(name, kCorrupt, part, at, std::bit_cast<uint32_t>(v));
  };
  constexpr float kNan = std::numeric_limits<float>::quiet_NaN(), kInf = std::numeric_limits<float>::infinity();
  number("drive", "drive_nan", 0, kNan, "segment at byte 79: byte 0: the scale is not finite");
  number("drive", "drive_negative", 0, -1, "byte 0: the scale is negative");
  number("drive+", "drive_plus_inf", 4, kInf, "byte 4: the high centroid is not finite");
  number("drive+", "drive_plus_order", 0, FLT_MAX, "byte 0: the low centroid exceeds the high one");
  number("sq:bits=2", "sq_nan", 0, -kNan, "byte 0: the smallest value is not finite");
  number("hadamard-sq:bits=2", "hadamard_inf", 4, -kInf, "byte 4: the largest value is not finite");
  number("kashin-sq:bits=2", "kashin_order", 0, 1e30f, "byte 0: the smallest value exceeds the largest");
  number("terngrad", "terngrad_inf", 0, kInf, "byte 0: the largest magnitude is not finite");
  number("qsgd:bits=2", "qsgd_nan", 4, kNan, "byte 0: the norm is not finite");
  number("randk:bits=8", "randk_nan", 8, kNan, "byte 8: the element is not finite");
  l.with("terngrad");
  l.add("terngrad_digit", kCorrupt, "byte 4: ternary byte 255, expected at most 242",
        [](Bytes& s) { s[payload_at(s) + 4] = 255; });
  l.with("drive");
  l.add("padding_bits", kCorrupt, "bits beyond the last code are set, expected zero",
        [](Bytes& s) { s[s.size() - 5] |= 0x80; });
  l.with("qsgd:bits=4");
  l.add("qsgd_codes_end", kCorrupt, "the bits end before the last value", [](Bytes& s) {
    std::fill(s.begin() + static_cast<ptrdiff_t>(payload_at(s) + 8), s.end(), uint8_t{0});
    erase(s, payload_at(s) + 8, 4);
    store_u32(s.data() + payload_at(s), 8);
    s.resize(payload_at(s) + 4 + 8 + kChecksumBytes);
  });
  l.add("qsgd_elias_never_ends", kCorrupt, "byte ",
        [](Bytes& s) { std::fill(s.begin() + static_cast<ptrdiff_t>(payload_at(s) + 8), s.end(), uint8_t{255}); });
  return std::move(l.damages);
}

}  // namespace kpd::gradient::testing
