// tests: frozen streams. This version must write the same bytes and read the same values as the files of this folder.
//
//   golden_golden_test                            compares
//   KPD_GOLDEN_RECORD=1 golden_golden_test        writes streams/*.kpdg and golden.txt anew (README.md says when that is
//   allowed)
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <regex>
#include <sstream>

#include "golden/golden_cases.h"
#include "kpd/base/bytes.h"
#include "kpd/base/cpu.h"
#include "kpd/base/hash.h"
#include "kpd/base/crc32.h"
#include "kpd/gradient/message.h"
#include "kpd/gradient/stream_info.h"
#include "kpd/gradient/file_decoder.h"
#include "kpd/gradient/decoder.h"
#include "kpd/gradient/packets.h"
#include "kpd/quant/gaussian_step.h"
#include "kpd/quant/lloyd_max.h"

namespace kpd::gradient::golden {
namespace {

const std::filesystem::path kFolder = std::filesystem::path(KPD_TESTS_DIR) / "golden";
const std::filesystem::path kPage = std::filesystem::path(KPD_TESTS_DIR) / ".." / "docs" / "format" / "gradient.md";

float value_of(Fill fill, uint64_t i, uint64_t tensor, uint64_t count) {
  const uint64_t mixed = (7919 * i * i + 104729 * i + 15485863 * tensor + 12345) % 65521;
  const float a = static_cast<float>(static_cast<int>(mixed) - 32760);
  switch (fill) {
    case Fill::kMix:
      return std::ldexp(a, -12 - static_cast<int>(i % 5));
    case Fill::kFalling:
      return std::ldexp(a, -12 - static_cast<int>(i / 512));
    case Fill::kSparse:
      return i == 0 ? 1.0f : i == 1 ? 253.0f / 256 : 0.0f;
    case Fill::kSpike:
      return i == count / 2 ? -3.0f : 0.0f;
    case Fill::kZero:
      return 0.0f;
    case Fill::kTiny:
      return std::ldexp(a, -149);
    case Fill::kHuge:
      return std::ldexp(a, 112);
  }
  return 0.0f;
}

// Elements of an exact type: bytes of which none is NaN in any.
std::vector<uint8_t> make_exact_input(const GoldenTensor& t, uint64_t index) {
  std::vector<uint8_t> bytes(t.count * dtype_bytes(static_cast<DType>(t.dtype)));
  for (uint64_t i = 0; i < bytes.size(); ++i) {
    bytes[i] = static_cast<uint8_t>(((7919 * i * i + 104729 * i + 15485863 * index + 12345) % 65521) & 0xf7);
    if ((bytes[i] & 0x7c) == 0x7c) bytes[i] ^= 0x40;
  }
  return bytes;
}

// A tensor's values in its source type.
std::vector<uint8_t> make_input(const GoldenTensor& t, uint64_t index) {
  if (dtype_is_exact(static_cast<DType>(t.dtype))) return make_exact_input(t, index);
  std::vector<float> x(t.count);
  for (uint64_t i = 0; i < t.count; ++i) x[i] = value_of(t.fill, i, index, t.count);
  const DType dtype = static_cast<DType>(t.dtype);
  std::vector<uint8_t> bytes(t.count * dtype_bytes(dtype));
  store_floats(x, dtype, bytes.data());
  return bytes;
}

Manifest manifest_of(const GoldenCase& c) {
  Manifest m;
  for (size_t t = 0; t < c.tensors.size(); ++t) {
    const uint64_t n = c.tensors[t].count;
    // An odd or short tensor is a vector, an even one a matrix.
    const std::vector<uint64_t> shape = n % 2 == 0 && n > 100 ? std::vector<uint64_t>{n / 2, 2} : std::vector<uint64_t>{n};
    m.push_back({"layer" + std::to_string(t) + ".weight", static_cast<DType>(c.tensors[t].dtype), shape});
  }
  return m;
}

MessageIds message_ids() {
  MessageIds ids;
  ids.run = 7;
  ids.round = 3;
  ids.client = 11;
  ids.base_model_hash = 0x0123456789abcdef;
  ids.weight = 60;
  return ids;
}

void seal(std::vector<uint8_t>& stream) {
  const std::span<uint8_t> all(stream);
  store_u64(stream.data() + 16, stream.size());
  store_u32(stream.data() + stream.size() - 4, crc32(all.first(stream.size() - 4)));
}

std::vector<uint8_t> make_streamed(Encoder& encoder, const std::vector<TensorView>& views) {
  std::vector<uint8_t> stream, chunk(encoder.max_chunk_bytes());
  encoder.begin_stream(views, message_ids());
  while (const uint64_t n = encoder.next_chunk(chunk))
    stream.insert(stream.end(), chunk.begin(), chunk.begin() + static_cast<ptrdiff_t>(n));
  return stream;
}

std::vector<uint8_t> make_packets(const std::vector<uint8_t>& message, const Manifest& manifest) {
  const PacketSet set = packetize(message, manifest, RunSecret::from_seed(kSecretSeed), 64);
  std::vector<std::vector<uint8_t>> parts = {set.control};
  for (size_t p = 0; p < set.packets.size(); ++p) {
    if (p % 3 != 1) parts.push_back(set.packets[p]);
  }
  std::vector<uint8_t> out(4);
  store_u32(out.data(), static_cast<uint32_t>(parts.size()));
  for (const auto& part : parts) {
    out.resize(out.size() + 4);
    store_u32(out.data() + out.size() - 4, static_cast<uint32_t>(part.size()));
    out.insert(out.end(), part.begin(), part.end());
  }
  return out;
}

std::vector<uint8_t> make_stream(const GoldenCase& c) {
  const Manifest manifest = manifest_of(c);
  std::vector<std::vector<uint8_t>> inputs;
  std::vector<TensorView> views;
  for (size_t t = 0; t < c.tensors.size(); ++t) inputs.push_back(make_input(c.tensors[t], t));
  for (size_t t = 0; t < c.tensors.size(); ++t) {
    views.emplace_back(inputs[t].data(), c.tensors[t].count, static_cast<DType>(c.tensors[t].dtype));
  }
  Encoder encoder(manifest, Codec::parse(c.spec), RunSecret::from_seed(kSecretSeed), {});
  std::vector<uint8_t> stream(encoder.max_bytes());
  if (c.edit == Edit::kStreamed) return make_streamed(encoder, views);
  stream.resize(c.message ? encoder.encode_message(views, message_ids(), stream) : encoder.encode_file(views, c.seed, stream));
  if (c.edit == Edit::kPackets) return make_packets(stream, manifest);
  const uint32_t header_bytes = load_u32(stream.data() + 8);
  if (c.edit == Edit::kExtension) {
    // Type 0x1234, not critical, 5 bytes.
    const uint8_t extension[11] = {0x34, 0x12, 5, 0, 0, 0, 1, 2, 3, 4, 5};
    stream.insert(stream.begin() + header_bytes, extension, extension + sizeof(extension));
    store_u32(stream.data() + 8, header_bytes + static_cast<uint32_t>(sizeof(extension)));
    seal(stream);
  }
  return stream;
}

// All decoded values, tensor after tensor, as bytes.
std::vector<uint8_t> decode(const GoldenCase& c, const std::vector<uint8_t>& stream) {
  std::vector<std::vector<float>> values;
  std::vector<std::span<float>> spans;
  for (const GoldenTensor& t : c.tensors) values.emplace_back(t.count);
  for (auto& v : values) spans.emplace_back(v);
  if (c.edit == Edit::kPackets) {
    ByteReader r(stream);
    std::vector<std::span<const uint8_t>> parts(r.u32("parts"));
    for (auto& part : parts) part = r.take(r.u32("length"), "part");
    PacketDecoder decoder(manifest_of(c), RunSecret::from_seed(kSecretSeed));
    decoder.decode_add(parts[0], std::span(parts).subspan(1), message_ids(), 1.0f, spans);
  } else if (c.message) {
    Decoder decoder(manifest_of(c), RunSecret::from_seed(kSecretSeed));
    decoder.decode(stream, message_ids(), spans);
  } else {
    const StreamInfo info = read_stream_info(stream, c.name);
    for (size_t t = 0; t < spans.size(); ++t) decode_file_tensor(stream, info, t, spans[t]);
  }
  std::vector<uint8_t> bytes;
  for (const auto& v : values) {
    for (const float x : v) {
      bytes.resize(bytes.size() + 4);
      ByteWriter(std::span(bytes).last(4)).f32(x);
    }
  }
  return bytes;
}

std::filesystem::path path_of(const GoldenCase& c) {
  return kFolder / "streams" / (c.name + (c.edit == Edit::kPackets ? ".packets" : ".kpdg"));
}

std::vector<uint8_t> read_file(const std::filesystem::path& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

struct Listed {
  std::string stream_hash, values_hash;
};
std::map<std::string, Listed> read_list() {
  std::ifstream in(kFolder / "golden.txt");
  std::map<std::string, Listed> list;
  for (std::string line; std::getline(in, line);) {
    std::istringstream words(line);
    std::string name;
    Listed l;
    if (line.empty() || line[0] == '#' || !(words >> name >> l.stream_hash >> l.values_hash)) continue;
    list[name] = l;
  }
  return list;
}

template <class T>
std::string hash_of(const std::vector<T>& table) {
  std::vector<uint8_t> bytes(table.size() * sizeof(T));
  ByteWriter w(bytes);
  for (const T v : table) {
    if constexpr (sizeof(T) == 4) {
      w.f32(v);
    } else {
      w.u16(v);
    }
  }
  return hex(sha256(bytes));
}

// The tables that decide bytes, a line each (page, section 14).
std::string describe_tables() {
  std::ostringstream out;
  out << "# lloyd: bits, SHA-256 of the float32 levels, of the float32 thresholds\n";
  for (int bits = 1; bits <= quant::kMaxLloydBits; ++bits) {
    const quant::LloydMax& t = quant::lloyd_max(bits);
    out << "lloyd " << bits << ' ' << hash_of(t.float_levels) << ' ' << hash_of(t.float_thresholds) << '\n';
  }
  out << "# step: bits, dither, parameter, raw bits, classes, E, index bias, N, SHA-256 of the u16 frequencies, of the float32 "
         "values\n";
  for (const bool dither : {false, true}) {
    for (const double bits : {.1, .25, .5, 1.0, 1.5, 2.0, 3.0, 4.0, 8.0}) {
      if (dither && bits < 1) continue;
      const uint32_t parameter = quant::step_for_bits(bits, dither);
      const auto t = quant::gaussian_step(parameter, dither);
      out << "step " << bits << ' ' << dither << ' ' << parameter << ' ' << t->raw_bits << ' ' << t->n_classes << ' '
          << t->escape_symbol << ' ' << t->index_bias << ' ' << t->n_indices << ' ' << hash_of(t->frequencies) << ' '
          << hash_of(t->values) << '\n';
    }
  }
  return out.str();
}

std::string read_text(const std::filesystem::path& path) {
  std::ifstream in(path);
  return {std::istreambuf_iterator<char>(in), {}};
}

std::string counts_of(const GoldenCase& c) {
  std::string out;
  for (const GoldenTensor& t : c.tensors) out += str(out.empty() ? "" : ",", t.count, ":", t.dtype);
  return out;
}

bool recording() { return std::getenv("KPD_GOLDEN_RECORD") != nullptr; }

TEST(Golden, Record) {
  if (!recording()) GTEST_SKIP() << "KPD_GOLDEN_RECORD is not set";
  std::filesystem::create_directories(kFolder / "streams");
  for (const auto& old : std::filesystem::directory_iterator(kFolder / "streams")) std::filesystem::remove(old);
  std::ofstream list(kFolder / "golden.txt");
  list << "# name, SHA-256 of the stream, SHA-256 of all decoded float32 values, seed of the run secret (- for a file), "
          "count:dtype of a message's tensors (- for a file), spec\n";
  for (const GoldenCase& c : golden_cases()) {
    const std::vector<uint8_t> stream = make_stream(c);
    std::ofstream(path_of(c), std::ios::binary)
        .write(reinterpret_cast<const char*>(stream.data()), static_cast<std::streamsize>(stream.size()));
    list << c.name << ' ' << hex(sha256(stream)) << ' ' << hex(sha256(decode(c, stream))) << ' '
         << (c.message ? std::to_string(kSecretSeed) : "-") << ' ' << (c.message ? counts_of(c) : "-") << ' ' << c.spec << '\n';
  }
  std::ofstream(kFolder / "tables.txt") << describe_tables();
}

TEST(Golden, TablesAreTheFrozenOnesAndStandOnThePage) {
  const std::string tables = read_text(kFolder / "tables.txt"), page = read_text(kPage);
  EXPECT_EQ(describe_tables(), tables);
  const std::regex hash("[0-9a-f]{64}");
  int n = 0;
  for (std::sregex_iterator it(tables.begin(), tables.end(), hash), end; it != end; ++it, ++n) {
    EXPECT_NE(page.find(it->str()), std::string::npos) << it->str() << " is not in docs/format/gradient.md";
  }
  EXPECT_EQ(n, 2 * (8 + 9 + 6));
}

// Section 15 of the page shows streams/worked.kpdg: lines "    OFFSET  HEX HEX ...  meaning".
TEST(Golden, ThePageShowsTheWorkedStream) {
  const std::string page = read_text(kPage);
  const std::regex line("    ([0-9a-f]{4})  ((?:[0-9a-f]{2} )+) *[^\n]*");
  std::string shown;
  for (std::sregex_iterator it(page.begin(), page.end(), line), end; it != end; ++it) {
    EXPECT_EQ(std::stoul((*it)[1].str(), nullptr, 16), shown.size() / 2) << it->str();
    for (const char c : (*it)[2].str()) {
      if (c != ' ') shown += c;
    }
  }
  EXPECT_EQ(shown, hex(read_file(kFolder / "streams" / "worked.kpdg")));
}

TEST(Golden, EveryCaseIsListedAndEveryFileIsACase) {
  const auto list = read_list();
  size_t files = 0;
  for ([[maybe_unused]] const auto& file : std::filesystem::directory_iterator(kFolder / "streams")) ++files;
  EXPECT_EQ(list.size(), golden_cases().size());
  EXPECT_EQ(files, golden_cases().size());
  for (const GoldenCase& c : golden_cases()) {
    ASSERT_TRUE(list.contains(c.name)) << c.name;
    EXPECT_EQ(hex(sha256(read_file(path_of(c)))), list.at(c.name).stream_hash) << c.name;
  }
}

TEST(Golden, EncodesToTheFrozenBytes) {
  const std::string before = active_isa();
  for (const std::string& isa : available_isas()) {
    set_isa(isa);
    for (const GoldenCase& c : golden_cases()) {
      const std::vector<uint8_t> frozen = read_file(path_of(c)), now = make_stream(c);
      if (now == frozen) continue;
      const auto differ = std::mismatch(now.begin(), now.end(), frozen.begin(), frozen.end()).first - now.begin();
      ADD_FAILURE() << c.name << " (" << c.spec << ", " << isa << "): " << now.size() << " bytes, frozen " << frozen.size()
                    << ", first difference at byte " << differ;
    }
  }
  set_isa(before);
}

TEST(Golden, DecodesToTheFrozenValues) {
  const auto list = read_list();
  const std::string before = active_isa();
  for (const std::string& isa : available_isas()) {
    set_isa(isa);
    for (const GoldenCase& c : golden_cases()) {
      EXPECT_EQ(hex(sha256(decode(c, read_file(path_of(c))))), list.at(c.name).values_hash) << c.name << " " << isa;
    }
  }
  set_isa(before);
}

// What was decoded is what was encoded, within the codec's own error: guards against freezing nonsense.
TEST(Golden, DecodedValuesResembleTheInput) {
  for (const GoldenCase& c : golden_cases()) {
    if (c.edit == Edit::kPackets || c.name.find("edges") != std::string::npos || c.name == "exact") {
      continue;
    }
    const std::vector<uint8_t> decoded = decode(c, read_file(path_of(c)));
    ByteReader r(decoded);
    double error2 = 0, norm2 = 0;
    for (size_t t = 0; t < c.tensors.size(); ++t) {
      for (uint64_t i = 0; i < c.tensors[t].count; ++i) {
        const double x = value_of(c.tensors[t].fill, i, t, c.tensors[t].count), d = static_cast<double>(r.f32("value")) - x;
        norm2 += x * x;
        error2 += d * d;
      }
    }
    const double limit = Codec::parse(c.spec).limit_vnmse();
    // The means of few thousand coordinates; terngrad and kashin-sq state no limit.
    EXPECT_LE(error2, (std::isfinite(limit) ? 1.6 * limit + 1e-4 : 20.0) * norm2) << c.name;
  }
}

}  // namespace
}  // namespace kpd::gradient::golden
