// tools: the speed of a codec in `kpd mean`. Gigabytes of float32 payload a second, counted once, beside memcpy of the same
// payload in the same run: encode, decode and memcpy take turns, every buffer is distinct and touched before, and the median of
// the turns counts. Vectors shorter than 2^20 numbers are measured as many messages that together hold as many.
#include <algorithm>
#include <chrono>
#include <cstring>

#include "channel.h"
#include "files.h"
#include "kpd/base/threads.h"
#include "mean.h"

namespace kpd::tool {
namespace {

constexpr uint64_t kMinNumbers = uint64_t{1} << 20;

template <class Fn>
double seconds_of(const Fn& fn) {
  const auto start = std::chrono::steady_clock::now();
  fn();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  const size_t n = values.size();
  return n % 2 == 1 ? values[n / 2] : 0.5 * (values[n / 2 - 1] + values[n / 2]);
}

void copy_parallel(std::span<const float> src, std::span<float> dst, int threads) {
  const auto parts = static_cast<size_t>(threads);
  parallel_for(parts, threads, [&](size_t part, int) {
    const size_t begin = src.size() * part / parts, end = src.size() * (part + 1) / parts;
    if (end > begin) std::memcpy(dst.data() + begin, src.data() + begin, (end - begin) * sizeof(float));
  });
}

}  // namespace

Speed measure_speed(const MeanPlan& plan, const gradient::Codec& codec) {
  const size_t dim = plan.dim;
  const size_t n_vectors = (kMinNumbers + dim - 1) / dim;
  const gradient::Manifest& manifest = plan.source->manifest();
  const auto secret = gradient::RunSecret::from_seed(plan.seed);
  gradient::Encoder encoder(manifest, codec, secret, {.threads = plan.threads});
  gradient::Decoder decoder(manifest, secret, {.threads = plan.threads, .limits = {}});

  std::vector<float> x(n_vectors * dim), decoded(n_vectors * dim), copied(n_vectors * dim);
  const auto reader = plan.source->reader();
  reader->start_trial(0, plan.threads);
  std::vector<std::vector<uint8_t>> messages(n_vectors, std::vector<uint8_t>(encoder.max_bytes()));
  std::vector<uint64_t> bytes(n_vectors);
  std::vector<std::vector<TensorView>> views;
  std::vector<std::vector<std::span<float>>> targets;
  for (size_t v = 0; v < n_vectors; ++v) {
    const auto part = std::span(x).subspan(v * dim, dim);
    reader->load(v % plan.clients, part, plan.threads);
    views.push_back(tensor_views(manifest, part));
    targets.push_back(tensor_spans<float>(manifest, std::span(decoded).subspan(v * dim, dim)));
  }
  const auto encode = [&] {
    for (size_t v = 0; v < n_vectors; ++v) bytes[v] = encoder.encode_message(views[v], message_ids(0, v), messages[v]);
  };
  const auto decode = [&] {
    for (size_t v = 0; v < n_vectors; ++v) {
      decoder.decode(std::span(messages[v]).first(bytes[v]), message_ids(0, v), targets[v]);
    }
  };
  const auto copy = [&] { copy_parallel(x, copied, plan.threads); };

  encode();
  decode();
  copy();
  std::vector<double> encode_s, decode_s, copy_s;
  for (int turn = 0; turn < plan.repeats; ++turn) {
    encode_s.push_back(seconds_of(encode));
    copy_s.push_back(seconds_of(copy));
    decode_s.push_back(seconds_of(decode));
  }
  const double gigabytes = 1e-9 * sizeof(float) * static_cast<double>(x.size());
  return {gigabytes / median(encode_s), gigabytes / median(decode_s), gigabytes / median(copy_s)};
}

}  // namespace kpd::tool
