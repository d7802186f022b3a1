// tools: the speed of a codec in `kpd mean`. Gigabytes of float32 payload a second, counted once, beside memcpy of the same
// payload in the same run: encode, decode and memcpy take turns, every buffer is distinct and touched before, and the median of
// the turns counts. Vectors shorter than 2^20 numbers are measured as many messages that together hold as many.
#include <algorithm>
#include <chrono>
#include <cstring>

#include "channel.h"
#include "files.h"
#include "kpd/base/threads.h"
#include "mean/mean.h"

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

// Messages of one codec: many short ones are spread over the threads, a long one uses them inside.
class Bench {
 public:
  Bench(const MeanPlan& plan, const gradient::CodecPolicy& codec)
      : threads_(plan.threads),
        dim_(plan.dim),
        n_((kMinNumbers + dim_ - 1) / dim_),
        x_(n_ * dim_),
        decoded_(x_.size()),
        copied_(x_.size()),
        bytes_(n_) {
    const gradient::Manifest& manifest = plan.source->manifest();
    const auto secret = gradient::RunSecret::from_seed(plan.seed);
    const bool spread = n_ >= static_cast<size_t>(threads_);
    const int inner = spread ? 1 : threads_;
    for (int worker = 0; worker < (spread ? threads_ : 1); ++worker) {
      encoders_.emplace_back(manifest, codec, secret, gradient::EncodeOptions{.threads = inner});
      decoders_.emplace_back(manifest, secret, gradient::DecodeOptions{.threads = inner, .limits = {}});
    }
    messages_.assign(n_, std::vector<uint8_t>(encoders_[0].max_bytes()));
    const auto reader = plan.source->reader();
    reader->start_trial(0, threads_);
    for (size_t v = 0; v < n_; ++v) {
      const auto part = std::span(x_).subspan(v * dim_, dim_);
      reader->load(v % plan.clients, part, threads_);
      views_.push_back(tensor_views(manifest, part));
      targets_.push_back(tensor_spans<float>(manifest, std::span(decoded_).subspan(v * dim_, dim_)));
    }
  }

  double gigabytes() const { return 1e-9 * sizeof(float) * static_cast<double>(x_.size()); }
  void encode() {
    each([&](size_t v, size_t worker) {
      bytes_[v] = encoders_[worker].encode_message(views_[v], message_ids(0, v), messages_[v]);
    });
  }
  void decode() {
    each([&](size_t v, size_t worker) {
      decoders_[worker].decode(std::span(messages_[v]).first(bytes_[v]), message_ids(0, v), targets_[v]);
    });
  }
  void copy() {
    const auto parts = static_cast<size_t>(threads_);
    parallel_for(parts, threads_, [&](size_t part, int) {
      const size_t begin = x_.size() * part / parts, end = x_.size() * (part + 1) / parts;
      if (end > begin) std::memcpy(copied_.data() + begin, x_.data() + begin, (end - begin) * sizeof(float));
    });
  }

 private:
  // On one worker the call is direct, so that the codec's own threads work.
  template <class Fn>
  void each(const Fn& fn) {
    if (encoders_.size() == 1) {
      for (size_t v = 0; v < n_; ++v) fn(v, 0);
    } else {
      parallel_for(n_, threads_, [&](size_t v, int worker) { fn(v, static_cast<size_t>(worker)); });
    }
  }

  int threads_;
  size_t dim_, n_;
  std::vector<float> x_, decoded_, copied_;
  std::vector<uint64_t> bytes_;
  std::vector<gradient::Encoder> encoders_;
  std::vector<gradient::Decoder> decoders_;
  std::vector<std::vector<uint8_t>> messages_;
  std::vector<std::vector<TensorView>> views_;
  std::vector<std::vector<std::span<float>>> targets_;
};

}  // namespace

Speed measure_speed(const MeanPlan& plan, const gradient::CodecPolicy& codec) {
  Bench bench(plan, codec);
  bench.encode();
  bench.decode();
  bench.copy();
  std::vector<double> encode_s, decode_s, copy_s;
  for (int turn = 0; turn < plan.repeats; ++turn) {
    encode_s.push_back(seconds_of([&] { bench.encode(); }));
    copy_s.push_back(seconds_of([&] { bench.copy(); }));
    decode_s.push_back(seconds_of([&] { bench.decode(); }));
  }
  return {bench.gigabytes() / median(encode_s), bench.gigabytes() / median(decode_s), bench.gigabytes() / median(copy_s)};
}

}  // namespace kpd::tool
