// tests: damaged gradient streams. Each kind of damage gives exactly one kpd::Error that names the stream, the byte and what
// was expected; nothing is written outside the caller's memory. streams/ holds each kind as a frozen file: what was refused
// once stays refused.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <set>

#include "base/expect_error.h"
#include "corrupt/damages.h"
#include "kpd/base/crc32.h"
#include "kpd/gradient/decoder.h"
#include "kpd/gradient/file_decoder.h"
#include "kpd/gradient/stream_info.h"

namespace kpd::gradient {
namespace {

using namespace testing;

const char* const kSpecs[] = {"eden:bits=1",
                              "eden:bits=0.1",
                              "eden:bits=2.5",
                              "eden:bits=2,allocate=energy",
                              "eden:code=entropy,bits=5",
                              "eden:code=entropy,bits=7",
                              "drive",
                              "drive+",
                              "sq:bits=0.3",
                              "hadamard-sq:bits=2.3",
                              "kashin-sq:bits=0.4",
                              "qsgd:bits=4",
                              "qsgd:bits=3,norm=max,code=fixed",
                              "terngrad",
                              "randk:bits=1",
                              "float32",
                              "bf16"};

std::vector<Damage> all_damages() {
  std::vector<Damage> all = frame_damages();
  for (Damage& d : table_damages()) all.push_back(std::move(d));
  for (Damage& d : record_damages()) all.push_back(std::move(d));
  for (Damage& d : payload_damages()) all.push_back(std::move(d));
  return all;
}

// One line that names the stream and the byte, and a code that is about data.
void check_wording(const Error& e) {
  const std::string text = e.what();
  EXPECT_EQ(text.rfind("hostile.kpdg: ", 0), 0u) << text;
  EXPECT_NE(text.find("byte "), std::string::npos) << text;
  EXPECT_EQ(text.find('\n'), std::string::npos) << text;
  EXPECT_LT(text.size(), 300u) << text;
  EXPECT_TRUE(e.code() == ErrorCode::kCorruptData || e.code() == ErrorCode::kUnsupported ||
              e.code() == ErrorCode::kLimitExceeded)
      << text;
}

// True if the stream is accepted; a refusal must be well worded.
bool accepted(std::span<const uint8_t> stream) {
  try {
    (void)read_all(stream);
    return true;
  } catch (const Error& e) {
    check_wording(e);
    return false;
  }
}

void expect_damage(const Damage& d, const Bytes& bytes) {
  SCOPED_TRACE(d.name);
  try {
    (void)read_all(bytes);
    ADD_FAILURE() << "accepted, expected: " << d.part;
  } catch (const Error& e) {
    check_wording(e);
    EXPECT_EQ(std::string(error_code_name(e.code())), error_code_name(d.code)) << e.what();
    EXPECT_NE(std::string(e.what()).find(d.part), std::string::npos) << "text: " << e.what() << "\nexpected part: " << d.part;
  }
}

std::filesystem::path frozen_folder() { return std::filesystem::path(KPD_TESTS_DIR) / "corrupt" / "streams"; }

Bytes read_bytes(const std::filesystem::path& path) {
  std::ifstream in(path, std::ios::binary);
  EXPECT_TRUE(in.good()) << path;
  return {std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
}

TEST(CorruptStreams, EveryKindOfDamage) {
  for (const Damage& d : all_damages()) expect_damage(d, d.bytes);
}

TEST(CorruptStreams, FrozenFilesStayRefused) {
  std::set<std::string> names;
  for (const Damage& d : all_damages()) {
    EXPECT_TRUE(names.insert(d.name + ".kpdg").second) << "two damages are named " << d.name;
    expect_damage(d, read_bytes(frozen_folder() / (d.name + ".kpdg")));
  }
  for (const auto& entry : std::filesystem::directory_iterator(frozen_folder())) {
    EXPECT_EQ(names.count(entry.path().filename().string()), 1u) << entry.path() << " is in no list";
  }
}

// Writes streams/; run by hand after a new kind was added: --gtest_also_run_disabled_tests --gtest_filter='*Record*'
TEST(CorruptStreams, DISABLED_Record) {
  std::filesystem::create_directories(frozen_folder());
  for (const Damage& d : all_damages()) {
    const std::filesystem::path path = frozen_folder() / (d.name + ".kpdg");
    if (std::filesystem::exists(path)) continue;
    std::ofstream out(path, std::ios::binary);
    out.write(reinterpret_cast<const char*>(d.bytes.data()), static_cast<std::streamsize>(d.bytes.size()));
  }
}

TEST(CorruptStreams, UndamagedStreamsAreRead) {
  for (const char* spec : kSpecs) {
    EXPECT_TRUE(accepted(encode_stream(spec))) << spec;
    EXPECT_TRUE(accepted(encode_stream(spec, true))) << spec;
  }
  EXPECT_EQ(read_all(entropy_stream({.flush = flush_of(2), .escapes = {9, -9}})).size(), kElements);
  Bytes b = encode_stream("eden:bits=2");
  const std::vector<float> values = read_all(b);
  // What is not critical is skipped; a newer minor version and a MAC are, too.
  detail::extend_header(b, {9, 0, 2, 0, 0, 0, 1, 2, 255, 0x7f, 0, 0, 0, 0});
  b[5] = 77;
  seal(b);
  EXPECT_EQ(read_all(b), values);
  EXPECT_EQ(read_stream_info(b).minor, 77);
  b[6] |= kFlagStreamed;
  seal(b);
  store_u64(b.data() + 16, kUnknownLength);
  store_u32(b.data() + b.size() - 4, crc32({b.data(), b.size() - 4}));
  EXPECT_EQ(read_all(b), values);
  Bytes message = encode_stream("eden:bits=2", true);
  message[6] |= kFlagAuthenticated;
  detail::insert(message, kMacOffset, Bytes(kMacBytes, 7));
  store_u32(message.data() + 8, kMessageHeaderBytes + kMacBytes);
  seal(message);
  EXPECT_TRUE(accepted(message));
}

TEST(CorruptStreams, EveryTruncationAndExtension) {
  for (const char* spec : kSpecs) {
    SCOPED_TRACE(spec);
    for (const bool message : {false, true}) {
      const Bytes good = encode_stream(spec, message);
      for (size_t n = 0; n < good.size(); ++n) {
        Bytes b(good.begin(), good.begin() + static_cast<ptrdiff_t>(n));
        EXPECT_FALSE(accepted(b)) << n;
        if (n < 24 + kChecksumBytes) continue;
        seal(b);
        EXPECT_FALSE(accepted(b)) << n << ", sealed";
      }
      Bytes longer = good;
      for (int i = 0; i < 9; ++i) {
        longer.push_back(static_cast<uint8_t>(i));
        EXPECT_FALSE(accepted(longer)) << i;
        Bytes sealed = longer;
        seal(sealed);
        EXPECT_FALSE(accepted(sealed)) << i << ", sealed";
      }
    }
  }
}

TEST(CorruptStreams, TheChecksumCatchesEveryFlippedBit) {
  for (const char* spec : {"eden:bits=1", "eden:code=entropy,bits=5", "float32"}) {
    for (const bool message : {false, true}) {
      Bytes b = encode_stream(spec, message);
      for (size_t i = 0; i < 8 * b.size(); ++i) {
        b[i / 8] ^= static_cast<uint8_t>(1u << (i % 8));
        EXPECT_FALSE(accepted(b)) << spec << " bit " << i;
        b[i / 8] ^= static_cast<uint8_t>(1u << (i % 8));
      }
    }
  }
}

// Sealed again after any one byte was changed: read or refused, and never a value that is not finite or a write beside the
// destination.
TEST(CorruptStreams, EveryByteChangedAndSealed) {
  constexpr float kGuard = 12345.0f;
  for (const char* spec : kSpecs) {
    SCOPED_TRACE(spec);
    const Bytes good = encode_stream(spec);
    const bool raw = std::string(spec) == "float32" || std::string(spec) == "bf16";  // carry what they are given
    std::vector<float> memory(kElements + 64);
    for (size_t i = 0; i + kChecksumBytes < good.size(); ++i) {
      for (const uint8_t change : {0x01, 0x80, 0xff}) {
        Bytes b = good;
        b[i] ^= change;
        seal(b);
        std::fill(memory.begin(), memory.end(), kGuard);
        const std::span<float> dst = std::span<float>(memory).subspan(32, kElements);
        try {
          const StreamInfo info = read_stream_info(b, "hostile.kpdg");
          if (info.tensors.size() != 1 || info.tensors[0].count != kElements || !info.is_file) continue;
          decode_file_tensor(b, info, 0, dst, 1, nullptr, "hostile.kpdg");
          for (const float v : dst) EXPECT_TRUE(raw || std::isfinite(v)) << i;
        } catch (const Error& e) {
          check_wording(e);
        }
        EXPECT_EQ(std::count(memory.begin(), memory.begin() + 32, kGuard), 32) << i;
        EXPECT_EQ(std::count(memory.end() - 32, memory.end(), kGuard), 32) << i;
      }
    }
  }
}

// Whatever is wrong outside the segments is found before anything of the caller's is touched.
TEST(CorruptStreams, NothingIsWrittenBeforeTheFrameIsChecked) {
  const Bytes good = encode_stream("eden:bits=1", true);
  Decoder d({{"x", DType::kFloat32, {kElements}}}, RunSecret::from_seed(7));
  std::vector<float> out(kElements, 3.0f);
  const std::span<float> dst(out);
  for (size_t i = 0; i + kChecksumBytes < good.size(); ++i) {
    Bytes b = good;
    b[i] ^= 0x5a;
    if (i % 2 != 0) seal(b);
    if (i >= payload_at(b) && i % 2 != 0) break;  // a code is a code
    try {
      d.decode_add(b, {1, 2, 3, 4, 5}, 1.0f, {&dst, 1});
      std::fill(out.begin(), out.end(), 3.0f);  // weight, MAC, dtype, minor version
    } catch (const Error&) {
      EXPECT_EQ(std::count(out.begin(), out.end(), 3.0f), static_cast<ptrdiff_t>(kElements)) << i;
    }
  }
}

TEST(CorruptStreams, LimitsAreTheCallersToLower) {
  const Bytes b = encode_stream("eden:bits=1");
  Limits l;
  l.max_elements = 69;
  EXPECT_KPD_ERROR(kLimitExceeded, "more than 69 elements", read_stream_info(b, "a", l));
  l = {};
  l.max_total_elements = 69;
  EXPECT_KPD_ERROR(kLimitExceeded, "more than 69 elements", read_stream_info(b, "a", l));
  l = {};
  l.max_tensors = 0;
  EXPECT_KPD_ERROR(kLimitExceeded, "1 tensors, the limit is 0", read_stream_info(b, "a", l));
  l = {};
  l.max_name_bytes = 0;
  EXPECT_KPD_ERROR(kLimitExceeded, "name of tensor 0 has 1 bytes, the limit is 0", read_stream_info(b, "a", l));
  l = {};
  l.max_dims = 0;
  EXPECT_KPD_ERROR(kLimitExceeded, "1 dimensions, the limit is 0", read_stream_info(b, "a", l));
  l = {};
  l.max_header_bytes = 60;
  EXPECT_KPD_ERROR(kLimitExceeded, "a header of 61 bytes, the limit is 60", read_stream_info(b, "a", l));
  l = {};
  l.max_elements_per_byte = 4;
  EXPECT_KPD_ERROR(kCorruptData, "segment of 13 bytes claims 70 elements", read_stream_info(b, "a", l));
}

// A stream that changes between inspection and decoding (a file that someone writes to) must not overrun the destination.
TEST(CorruptStreams, TheDestinationIsThatOfTheInspection) {
  const Bytes b = encode_stream("eden:bits=1"), other = encode_stream("eden:bits=1", false, 128);
  Bytes shorter = b;
  std::fill_n(shorter.begin() + static_cast<ptrdiff_t>(payload_at(b)), 4, uint8_t{0});  // a block of zeros
  const StreamInfo info = read_stream_info(b);
  std::vector<float> out(kElements);
  EXPECT_KPD_ERROR(kCorruptData, "at byte 92 when it was inspected", decode_file_tensor(shorter, info, 0, out));
  EXPECT_NO_THROW(decode_file_tensor(other, info, 0, out));  // as far as the numbers of the inspection go
  EXPECT_KPD_ERROR(kCorruptData, "left", decode_file_tensor(std::span(b).first(50), info, 0, out));
  EXPECT_KPD_ERROR(kInvalidArgument, "tensor 1 of 1", decode_file_tensor(b, info, 1, out));
  EXPECT_KPD_ERROR(kInvalidArgument, "69 floats given", decode_file_tensor(b, info, 0, std::span(out).first(69)));
}

TEST(CorruptStreams, AnyAlignment) {
  for (const char* spec : kSpecs) {
    const Bytes good = encode_stream(spec);
    const std::vector<float> values = read_all(good);
    for (size_t shift = 1; shift < 8; ++shift) {
      Bytes moved(good.size() + shift);
      std::copy(good.begin(), good.end(), moved.begin() + static_cast<ptrdiff_t>(shift));
      EXPECT_EQ(read_all(std::span<const uint8_t>(moved).subspan(shift)), values) << spec;
    }
  }
}

}  // namespace
}  // namespace kpd::gradient
