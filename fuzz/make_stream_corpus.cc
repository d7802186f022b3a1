// fuzz: makes the seeds of stream_fuzz with the real encoder: a file and a message for every kind of method, and streams with
// an extension, of unknown length, of several segments, of zeros.  make_stream_corpus DIR
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <string>

#include "gradient/stream_format.h"
#include "kpd/base/hash.h"
#include "kpd/base/rng.h"
#include "kpd/gradient/message.h"
#include "kpd/gradient/packets.h"

namespace {

using namespace kpd;
using namespace kpd::gradient;

std::vector<float> numbers(uint64_t n) {
  CounterRng rng(3, n);
  std::vector<float> x(n);
  for (float& v : x) v = static_cast<float>(rng.next_normal());
  return x;
}

std::vector<uint8_t> encode(const Manifest& manifest, const std::string& spec, bool message, bool zeros = false) {
  Encoder encoder(manifest, Codec::parse(spec), RunSecret::from_seed(7));
  std::vector<std::vector<float>> data;
  std::vector<TensorView> views;
  for (const TensorInfo& t : manifest) data.push_back(zeros ? std::vector<float>(t.count()) : numbers(2 * t.count()));
  for (size_t i = 0; i < data.size(); ++i) {
    const bool exact = dtype_is_exact(manifest[i].dtype);
    views.emplace_back(data[i].data(), manifest[i].count(), exact ? manifest[i].dtype : DType::kFloat32);
  }
  std::vector<uint8_t> bytes(encoder.max_bytes());
  bytes.resize(message ? encoder.encode_message(views, {11, 12, 13, 14, 15}, bytes) : encoder.encode_file(views, 5, bytes));
  return bytes;
}

void seal(std::vector<uint8_t>& b) {
  const size_t body = b.size() - kChecksumBytes;
  if ((b[6] & kFlagStreamed) == 0) store_u64(b.data() + 16, b.size());
  store_u32(b.data() + body, crc32({b.data(), body}));
}

void write(const std::string& folder, std::string name, const std::vector<uint8_t>& bytes) {
  for (char& c : name) {
    if (c == ':' || c == ',' || c == '=') c = '_';
  }
  std::ofstream out(folder + "/" + name, std::ios::binary);
  out.write(reinterpret_cast<const char*>(bytes.data()), static_cast<std::streamsize>(bytes.size()));
  if (!out) throw std::runtime_error("cannot write " + folder + "/" + name);
}

void append(std::vector<uint8_t>& out, std::span<const uint8_t> part, int length_bytes) {
  for (int i = 0; i < length_bytes; ++i) out.push_back(static_cast<uint8_t>(part.size() >> (8 * i)));
  out.insert(out.end(), part.begin(), part.end());
}

void write_packets(const std::string& folder) {
  const Manifest manifest = {{"a", DType::kFloat32, {64}}, {"b", DType::kBFloat16, {4200}}, {"c", DType::kFloat32, {3}}};
  for (const char* spec : {"eden:bits=1", "eden:bits=0.05,block=64", "eden:bits=2.5,block=1024", "eden:code=entropy,bits=0.3",
                           "eden:code=entropy,bits=1,block=256", "eden:code=entropy,bits=5"}) {
    const PacketSet set = packetize(encode(manifest, spec, true), manifest, RunSecret::from_seed(7), 64);
    std::vector<uint8_t> out;
    append(out, set.control, 4);
    for (size_t i = 0; i < set.packets.size(); ++i) {
      if (set.packets.size() < 8 || i % 4 != 1) append(out, set.packets[i], 2);
    }
    write(folder, spec, out);
  }
}

void write_streams(const std::string& folder) {
  const Manifest small = {{"a", DType::kFloat32, {64}},
                          {"b", DType::kBFloat16, {10, 13}},
                          {"c", DType::kFloat32, {3}},
                          {"d", DType::kFloat16, {0}}};
  const Manifest one = {{"x", DType::kFloat32, {70}}};
  const char* const specs[] = {"eden:bits=1,block=64",
                               "eden:bits=0.1",
                               "eden:bits=2.5,scale=biased",
                               "eden:bits=5,rounds=1",
                               "eden:bits=8,scale=norm",
                               "eden:bits=2,allocate=energy,block=64",
                               "eden:code=entropy,bits=0.25",
                               "eden:code=entropy,bits=1,block=64",
                               "eden:code=entropy,bits=3",
                               "eden:code=entropy,bits=8",
                               "eden:code=entropy,dither=shared,bits=1,block=64",
                               "eden:code=entropy,dither=shared,bits=3",
                               "eden:code=entropy,dither=shared,bits=6",
                               "drive",
                               "drive+:scale=biased",
                               "sq:bits=0.3",
                               "sq:bits=2.3,block=64",
                               "hadamard-sq:bits=0.3",
                               "hadamard-sq:bits=2",
                               "kashin-sq:bits=0.4",
                               "kashin-sq:bits=3",
                               "qsgd:bits=1",
                               "qsgd:bits=4",
                               "qsgd:bits=8,block=64",
                               "qsgd:bits=2,norm=max,code=fixed",
                               "qsgd:bits=4,norm=max,code=fixed,block=64",
                               "terngrad:block=64",
                               "randk:bits=1",
                               "float32",
                               "bf16"};
  for (const char* spec : specs) {
    write(folder, std::string("file_") + spec, encode(one, spec, false));
    write(folder, std::string("message_") + spec, encode(small, spec, true));
  }
  write(folder, "file_four", encode(small, "eden:bits=2", false));
  write(folder, "file_empty", encode({}, "eden", false));
  write(folder, "file_zeros", encode(one, "eden:code=entropy,bits=2", false, true));
  const Manifest segments = {{"long", DType::kFloat32, {4200}}};
  write(folder, "file_segments_fixed", encode(segments, "eden:bits=0.05,block=64", false));
  write(folder, "file_segments_entropy", encode(segments, "eden:code=entropy,bits=0.05,block=64", false));
  write(folder, "file_segments_zero", encode(segments, "qsgd:bits=1,block=64", false, true));
  std::vector<uint8_t> b = encode(one, "eden:bits=1", false);
  const uint32_t header = load_u32(b.data() + 8);
  const uint8_t extension[] = {7, 0, 3, 0, 0, 0, 'a', 'b', 'c'};
  b.insert(b.begin() + header, std::begin(extension), std::end(extension));
  store_u32(b.data() + 8, header + sizeof(extension));
  seal(b);
  write(folder, "file_extension", b);
  b = encode(one, "eden:bits=1", false);
  b[6] |= kFlagStreamed;
  store_u64(b.data() + 16, kUnknownLength);
  seal(b);
  write(folder, "file_streamed", b);
  const Manifest joined = {{"a", DType::kFloat32, {70}}, {"n", DType::kInt64, {}}, {"b", DType::kFloat32, {99}}};
  for (const char* spec : {"eden:bits=1", "eden:bits=5,code=entropy", "drive", "kashin-sq:bits=1"}) {
    write(folder, std::string("file_joined_") + spec, encode(joined, spec, false));
  }
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fprintf(stderr, "usage: make_stream_corpus DIR\n");
    return 2;
  }
  try {
    const std::string folder = argv[1];
    for (const char* part : {"/stream", "/packets"}) std::filesystem::create_directories(folder + part);
    write_streams(folder + "/stream");
    write_packets(folder + "/packets");
  } catch (const std::exception& e) {
    std::fprintf(stderr, "make_stream_corpus: %s\n", e.what());
    return 1;
  }
  return 0;
}
