// fuzz: the server's round (include/kpd/gradient/aggregator.h). A message goes to an aggregator between two good ones; the ids
// it should carry are mostly its own, so that its content is looked at.
//
// A finding is a refused message that left a trace in the sum or in the next one's verdict, an accepted one whose norm is
// beyond the limit or not that of what it decodes to (above it, where values saturate), or anything thrown.
#include <array>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "kpd/gradient/aggregator.h"
#include "kpd/gradient/decoder.h"
#include "stream_mutator.h"

namespace {

using namespace kpd;
using namespace kpd::gradient;
using Bytes = std::vector<uint8_t>;

using fuzz::manifest;
constexpr double kMaxNorm = 1e6;
constexpr uint64_t kMaxWeight = 1000;

struct Counts {
  uint64_t inputs = 0, accepted = 0, refused[kRefusals] = {};
  ~Counts() {
    std::fprintf(stderr, "aggregator_fuzz: %llu inputs, %llu accepted", static_cast<unsigned long long>(inputs),
                 static_cast<unsigned long long>(accepted));
    for (int i = 1; i < kRefusals; ++i) {
      if (refused[i] != 0)
        std::fprintf(stderr, ", %llu %s", static_cast<unsigned long long>(refused[i]),
                     std::string(refusal_name(static_cast<Refusal>(i))).c_str());
    }
    std::fputc('\n', stderr);
  }
};
Counts counts;

[[noreturn]] void finding(const char* what) {
  std::fprintf(stderr, "finding: %s\n", what);
  std::abort();
}

struct Server {
  std::vector<float> a = std::vector<float>(64), b = std::vector<float>(130), c = std::vector<float>(3), d,
                     e = std::vector<float>(5);
  std::span<float> all[5] = {a, b, c, d, e};
  Aggregator aggregator{manifest(), RunSecret::from_seed(7), options()};

  static AggregatorOptions options() {
    AggregatorOptions o;
    o.max_weight = kMaxWeight;
    o.max_norm = kMaxNorm;
    return o;
  }
  Bytes sum() const {
    Bytes bytes;
    for (const std::span<float> s : all) {
      const auto* first = reinterpret_cast<const uint8_t*>(s.data());
      bytes.insert(bytes.end(), first, first + s.size_bytes());
    }
    return bytes;
  }
};

// A good message of the `n`-th client after that of the round that `ids` names; the last one of each n is kept, as inputs
// mostly name the same round.
const Bytes& good_message(MessageIds ids, uint64_t n) {
  struct Kept {
    std::array<uint64_t, 4> ids;
    Bytes message;
  };
  static Kept kept[3];
  Kept& k = kept[n];
  const std::array named{ids.run, ids.round, ids.client, ids.base_model_hash};
  if (!k.message.empty() && k.ids == named) return k.message;
  static Encoder encoder(manifest(), Codec::parse("eden:bits=2,block=64"), RunSecret::from_seed(7));
  static std::vector<float> a(64, 1.0f), b(130, -2.0f), c(3, 3.0f), d;
  ids.client += n;
  ids.weight = 1;
  static const int16_t e[5] = {1, -2, 3, -4, 5};
  const TensorView views[] = {{std::span<const float>(a)},
                              {b.data(), 130, DType::kFloat32},
                              {std::span<const float>(c)},
                              {std::span<const float>(d)},
                              {e, 5, DType::kInt16}};
  k.message.resize(encoder.max_bytes());
  k.message.resize(encoder.encode_message(views, ids, k.message));
  k.ids = named;
  return k.message;
}

fuzz::StreamMutator& mutator() {
  static fuzz::StreamMutator m(manifest_hash(manifest()));
  return m;
}

void check_accepted(const Verdict& v, std::span<const uint8_t> message, const MessageIds& ids) {
  if (!(v.norm <= kMaxNorm) || v.weight == 0 || v.weight > kMaxWeight) finding("accepted beyond the limits");
  static Server other;
  static Decoder decoder(manifest(), RunSecret::from_seed(7));
  DecodeReport report;
  decoder.decode(message, ids, other.all, &report);
  double norm2 = 0;
  for (const std::span<float> s : other.all) {
    for (const float x : s) norm2 += static_cast<double>(x) * x;
  }
  // Rotations keep the norm but for rounding; a tiny vector may lose digits to the float range. Where decoding limits values to
  // the float range, what is left of them is shorter.
  const double norm = std::sqrt(norm2), margin = 1e-3 * v.norm + 1e-30;
  if (!(norm <= v.norm + margin) || !(norm >= v.norm - margin || report.saturated > 0)) {
    std::fprintf(stderr, "norm of the codes %.9g, of the decoded vector %.9g\n", v.norm, norm);
    finding("the norm is not that of the decoded vector");
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static Server server;
  counts.inputs++;
  const Bytes message(data, data + size);
  MessageIds ids{11, 12, 13, 14, 1};
  if (size >= kMessageHeaderBytes && (message.back() & 7) != 0) {
    ids.run = load_u64(data + 32);
    ids.round = load_u64(data + 40);
    ids.client = load_u64(data + 48);
    ids.base_model_hash = load_u64(data + 56);
  }
  server.aggregator.begin_round(ids, server.all);
  if (!server.aggregator.add(ids.client + 1, good_message(ids, 1)).accepted()) finding("a good message is refused");
  const Bytes before = server.sum();
  const Verdict v = server.aggregator.add(ids.client, message);
  if (v.accepted()) {
    counts.accepted++;
    mutator().keep(message);
    check_accepted(v, message, ids);
    if (server.aggregator.add(ids.client, message).refusal != Refusal::kTwice) finding("accepted twice");
  } else {
    counts.refused[static_cast<size_t>(v.refusal)]++;
    if (v.reason.empty() || v.reason.find('\n') != std::string::npos) finding("a refusal without one line of reason");
    if (server.sum() != before) finding("a refused message left a trace");
  }
  if (!server.aggregator.add(ids.client + 2, good_message(ids, 2)).accepted()) finding("a good message is refused");
  if (!server.aggregator.finish_round()) finding("a round without anyone");
  return 0;
}

extern "C" size_t LLVMFuzzerCustomMutator(uint8_t* data, size_t size, size_t max_size, unsigned seed) {
  return mutator().mutate(data, size, max_size, seed);
}
