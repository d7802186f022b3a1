// fuzz: makes the seeds of stream_fuzz and packets_fuzz with the real encoder: a file and a message for every kind of method,
// and streams of every other feature of the format.  make_stream_corpus DIR
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <string>

#include "gradient/stream_format.h"
#include "kpd/base/crc32.h"
#include "kpd/base/rng.h"
#include "kpd/gradient/message.h"
#include "kpd/gradient/packets.h"
#include "manifests.h"

namespace {

using namespace kpd;
using namespace kpd::gradient;
using fuzz::kIds;
using Bytes = std::vector<uint8_t>;

std::vector<float> numbers(uint64_t n) {
  CounterRng rng(3, n);
  std::vector<float> x(n);
  for (float& v : x) v = static_cast<float>(rng.next_normal());
  return x;
}

struct Input {
  std::vector<std::vector<float>> data;
  std::vector<TensorView> views;

  explicit Input(const Manifest& manifest, bool zeros = false) {
    for (const TensorInfo& t : manifest) data.push_back(zeros ? std::vector<float>(t.count()) : numbers(2 * t.count()));
    for (size_t i = 0; i < data.size(); ++i) {
      const bool exact = dtype_is_exact(manifest[i].dtype);
      views.emplace_back(data[i].data(), manifest[i].count(), exact ? manifest[i].dtype : DType::kFloat32);
    }
  }
};

Bytes encode(const Manifest& manifest, const CodecPolicy& policy, bool message, bool zeros = false,
             const EncodeOptions& options = {}, const FileIds& ids = 5) {
  Encoder encoder(manifest, policy, RunSecret::from_seed(7), options);
  const Input input(manifest, zeros);
  Bytes bytes(encoder.max_bytes());
  bytes.resize(message ? encoder.encode_message(input.views, kIds, bytes) : encoder.encode_file(input.views, ids, bytes));
  return bytes;
}
Bytes encode(const Manifest& manifest, const std::string& spec, bool message, bool zeros = false) {
  return encode(manifest, CodecPolicy(Codec::parse(spec)), message, zeros);
}

CodecPolicy policy_of(const std::vector<std::string>& texts) { return CodecPolicy::parse(texts); }

Bytes encode_streamed(const Manifest& manifest, const std::string& spec) {
  Encoder encoder(manifest, Codec::parse(spec), RunSecret::from_seed(7));
  const Input input(manifest);
  Bytes bytes, chunk(encoder.max_chunk_bytes());
  encoder.begin_stream(input.views, kIds);
  while (const uint64_t n = encoder.next_chunk(chunk)) {
    bytes.insert(bytes.end(), chunk.begin(), chunk.begin() + static_cast<ptrdiff_t>(n));
  }
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

void write_packets(const std::string& folder, const std::string& name, const Bytes& message, const Manifest& manifest) {
  const PacketSet set = packetize(message, manifest, RunSecret::from_seed(7), 64);
  Bytes out;
  append(out, set.control, 4);
  for (size_t i = 0; i < set.packets.size(); ++i) {
    if (set.packets.size() < 8 || i % 4 != 1) append(out, set.packets[i], 2);
  }
  write(folder, name, out);
}

void write_packets(const std::string& folder) {
  const Manifest& manifest = fuzz::packets_manifest();
  for (const char* spec : {"eden:bits=1", "eden:bits=0.05,block=64", "eden:bits=2.5,block=1024", "eden:code=entropy,bits=0.3",
                           "eden:code=entropy,bits=1,block=256", "eden:code=entropy,bits=5"}) {
    write_packets(folder, spec, encode(manifest, spec, true), manifest);
  }
  write_packets(folder, "policy", encode(manifest, policy_of({"b=eden:code=entropy,bits=0.2", "eden:bits=3"}), true), manifest);
  write_packets(folder, "joined", encode(manifest, "eden:bits=0.1,block=8192", true), manifest);
  write_packets(folder, "zeros", encode(manifest, "eden:bits=1", true, true), manifest);
  write_packets(folder, "authenticated", encode(manifest, Codec::parse("eden:bits=0.1"), true, false, {.authenticated = true}),
                manifest);
  for (const char* spec : {"eden:bits=1", "eden:bits=4", "eden:code=entropy,bits=4,block=64"}) {
    write_packets(folder, std::string("few_") + spec, encode(fuzz::few_manifest(), spec, true), fuzz::few_manifest());
  }
}

// Each type as a tensor short and long, so that every codec meets its values.
void write_types(const std::string& folder) {
  Manifest types;
  for (int t = 0; t < kDTypes; ++t) {
    types.push_back({str("s", t), static_cast<DType>(t), {2}});
    if (t < 5) types.push_back({str("l", t), static_cast<DType>(t), {65}});
  }
  write(folder, "file_types", encode(types, "eden:bits=1", false));
}

void write_tables(const std::string& folder) {
  const CodecPolicy policy = policy_of({"a=qsgd:bits=4,norm=max,code=fixed", "b*=eden:bits=2,code=entropy,block=64", "drive"});
  write(folder, "message_policy", encode(fuzz::manifest(), policy, true));
  Manifest many;
  for (int i = 0; i < 9; ++i) many.push_back({str(static_cast<char>('a' + i % 3), i), DType::kFloat32, {70}});
  write(folder, "file_policy", encode(many, policy, false));
  Manifest segments;  // a joined unit of two
  for (int i = 0; i < 80; ++i) segments.push_back({str(i), DType::kFloat32, {110}});
  write(folder, "file_joined_segments", encode(segments, "eden:bits=0.05,block=128", false));
}

void write_streams(const std::string& folder) {
  const Manifest& small = fuzz::manifest();
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
  const FileMetadata metadata = {{"format", "pt"}, {"note", "two\nlines, \u00e9"}, {"", ""}};
  write(folder, "file_metadata", encode(one, Codec::parse("eden:bits=1"), false, false, {.metadata = metadata}, {5, 6, 7}));
  write(folder, "message_authenticated", encode(small, Codec::parse("eden:bits=1"), true, false, {.authenticated = true}));
  write(folder, "message_streamed", encode_streamed(small, "eden:bits=2,code=entropy"));
  write(folder, "message_zeros", encode(small, "eden:bits=1", true, true));
  write_types(folder);
  write_tables(folder);
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
