// tools: the trials of `kpd mean`. A trial is a round: every client encodes its vector, the server decodes and averages.
//
// One client's vector is in memory at a time. Sums over coordinates go by fixed chunks and sums over clients by their number,
// so that no figure depends on the number of threads.
#include <algorithm>
#include <cmath>
#include <limits>

#include "channel.h"
#include "files.h"
#include "kpd/base/error.h"
#include "kpd/base/threads.h"
#include "mean/mean.h"
#include "progress.h"

namespace kpd::tool {
namespace {

constexpr size_t kChunk = size_t{1} << 16;
constexpr uint64_t kMaxSumBytes = uint64_t{1} << 28;     // of the codecs that share a pass over the clients
constexpr uint64_t kMaxWorkerBytes = uint64_t{1} << 31;  // of all workers when trials run side by side

struct Sums {
  double error2 = 0, norm2 = 0;
};

size_t chunks(size_t n) { return (n + kChunk - 1) / kChunk; }

// Squares summed in four lanes, a fixed order that the compiler can vectorize.
template <class Term>
double sum_squares(size_t begin, size_t end, const Term& term) {
  double lanes[4] = {0, 0, 0, 0};
  size_t i = begin;
  for (; i + 4 <= end; i += 4) {
    for (size_t j = 0; j < 4; ++j) {
      const double v = term(i + j);
      lanes[j] += v * v;
    }
  }
  for (; i < end; ++i) lanes[0] += term(i) * term(i);
  return (lanes[0] + lanes[1]) + (lanes[2] + lanes[3]);
}

template <class Term>
double sum_squares_of(size_t n, int threads, const Term& term) {
  std::vector<double> parts(chunks(n));
  parallel_for(parts.size(), threads,
               [&](size_t c, int) { parts[c] = sum_squares(c * kChunk, std::min(n, (c + 1) * kChunk), term); });
  double total = 0;
  for (const double part : parts) total += part;
  return total;
}

// Long ones lie in a file (kpd/io/scratch.h).
template <class T>
class Vector {
 public:
  Vector() = default;
  explicit Vector(size_t n)
      : memory_(std::make_shared<io::ScratchMemory>(n * sizeof(T), scratch_folder())), values_(memory_->as<T>()) {}
  size_t size() const { return values_.size(); }
  T& operator[](size_t i) const { return values_[i]; }
  std::span<T> span() const { return values_; }
  void fill_zero(size_t n) {
    if (size() != n) *this = Vector(n);
    std::fill(values_.begin(), values_.end(), T{0});
  }
  std::shared_ptr<io::ScratchMemory> take() {
    values_ = {};
    return std::move(memory_);
  }

 private:
  std::shared_ptr<io::ScratchMemory> memory_;
  std::span<T> values_;
};

// What one codec accumulates during a trial.
struct CodecSums {
  // Of the clients of whose messages something arrived.
  double error2 = 0, norm2 = 0, limit2 = 0, weight = 0;
  double weighted_error2 = 0;  // sum of weight^2 |decoded - true|^2
  uint64_t clients = 0;
  Vector<double> mean_error;  // weighted sum of decoded - true
  Vector<double> mean;        // weighted sum of decoded, with keep_mean
};

// Runs whole trials for a group of codecs. Thread-compatible; `threads` are used inside.
class TrialRunner {
 public:
  TrialRunner(const MeanPlan& plan, size_t first_codec, size_t n_codecs, int threads)
      : plan_(plan), first_(first_codec), threads_(threads), reader_(plan.source->reader()), x_(plan.dim), received_(plan.dim) {
    for (size_t k = 0; k < n_codecs; ++k) channels_.push_back(make_channel(plan, plan.codecs[first_ + k], threads));
    sums_.resize(n_codecs);
  }

  // Counts go to counts[k]; the trial's ratios to figures[first + k] at index `trial`.
  void run(uint64_t trial, std::span<CodecFigures> counts, std::span<CodecFigures> figures, Progress& progress) {
    for (CodecSums& sums : sums_) {
      sums.error2 = sums.norm2 = sums.limit2 = sums.weight = sums.weighted_error2 = 0;
      sums.clients = 0;
      sums.mean_error.fill_zero(plan_.dim);
      if (plan_.keep_mean) sums.mean.fill_zero(plan_.dim);
    }
    reader_->start_trial(trial, threads_);
    for (uint64_t client = 0; client < plan_.clients; ++client) {
      reader_->load(client, x_.span(), threads_);
      const double norm2 = sum_squares_of(x_.size(), threads_, [&](size_t i) { return double{x_[i]}; });
      for (size_t k = 0; k < channels_.size(); ++k) {
        send(k, trial, client, norm2, counts[k]);
        progress.tick();
      }
    }
    for (size_t k = 0; k < channels_.size(); ++k) finish(k, trial, figures[first_ + k]);
  }

 private:
  void send(size_t k, uint64_t trial, uint64_t client, double norm2, CodecFigures& counts) {
    try {
      if (!channels_[k]->send(trial, client, x_.span(), received_.span(), counts)) return;
    } catch (const Error& e) {
      fail(e.code(), plan_.source->client_name(client), ": ", e.what());
    }
    CodecSums& sums = sums_[k];
    const double weight = plan_.weights[client];
    sums.norm2 += norm2;
    sums.limit2 += channels_[k]->limit_vnmse() * norm2;
    sums.weight += weight;
    sums.clients += 1;
    const double error2 = sum_squares_of(x_.size(), threads_, [&](size_t i) { return double{received_[i]} - double{x_[i]}; });
    sums.error2 += error2;
    sums.weighted_error2 += weight * weight * error2;
    parallel_for(chunks(x_.size()), threads_, [&](size_t c, int) {
      const size_t end = std::min(x_.size(), (c + 1) * kChunk);
      for (size_t i = c * kChunk; i < end; ++i) sums.mean_error[i] += weight * (double{received_[i]} - double{x_[i]});
      if (plan_.keep_mean) {
        for (size_t i = c * kChunk; i < end; ++i) sums.mean[i] += weight * received_[i];
      }
    });
  }

  void finish(size_t k, uint64_t trial, CodecFigures& figures) {
    CodecSums& sums = sums_[k];
    if (sums.weight == 0) {
      figures.vnmse[trial] = figures.nmse[trial] = figures.limit[trial] = figures.ratio[trial] =
          std::numeric_limits<double>::quiet_NaN();
      if (plan_.keep_mean) fail(ErrorCode::kCorruptData, "no message arrived, so there is no mean");
      return;
    }
    // The mean is over those that arrived. (Where all do, their weights sum to 1.)
    const double scale = plan_.loss ? 1 / sums.weight : 1;
    const double mean_error2 = sum_squares_of(x_.size(), threads_, [&](size_t i) { return scale * sums.mean_error[i]; });
    // All clients zero: a codec that keeps them exact has made no error.
    const auto ratio = [](double a, double b) { return a == 0 ? 0.0 : a / b; };
    figures.vnmse[trial] = ratio(sums.error2, sums.norm2);
    figures.nmse[trial] = ratio(mean_error2, sums.norm2 / static_cast<double>(sums.clients));
    figures.ratio[trial] = sums.weighted_error2 > 0 ? mean_error2 / (scale * scale * sums.weighted_error2)
                                                    : std::numeric_limits<double>::quiet_NaN();
    figures.limit[trial] = sums.norm2 > 0 ? sums.limit2 / sums.norm2 : channels_[k]->limit_vnmse();
    if (!plan_.keep_mean) return;
    for (double& v : sums.mean.span()) v *= scale;
    figures.mean = sums.mean.take();
  }

  const MeanPlan& plan_;
  size_t first_;
  int threads_;
  std::unique_ptr<ClientReader> reader_;
  Vector<float> x_, received_;
  std::vector<std::unique_ptr<Channel>> channels_;
  std::vector<CodecSums> sums_;
};

void add_counts(const CodecFigures& from, CodecFigures& to) {
  to.wire_bytes += from.wire_bytes;
  to.elements += from.elements;
  to.packet_overhead_bytes += from.packet_overhead_bytes;
  to.packets += from.packets;
  to.packets_lost += from.packets_lost;
  to.messages += from.messages;
  to.messages_lost += from.messages_lost;
  to.groups_lost += from.groups_lost;
  to.saturated += from.saturated;
}

void run_group(const MeanPlan& plan, size_t first, size_t n, std::span<CodecFigures> figures, Progress& progress) {
  const uint64_t worker_bytes = plan.dim * (16 + 12 * n);
  const auto threads = static_cast<uint64_t>(plan.threads);
  // Many trials: one a thread. Few or large ones: the threads share a trial. The figures are the same.
  const bool side_by_side = plan.trials >= 2 * threads && worker_bytes * threads <= kMaxWorkerBytes;
  const int workers = side_by_side ? plan.threads : 1;
  const int inner = side_by_side ? 1 : plan.threads;
  std::vector<std::unique_ptr<TrialRunner>> runners(static_cast<size_t>(workers));
  std::vector<std::vector<CodecFigures>> counts(runners.size(), std::vector<CodecFigures>(n));
  const auto run = [&](size_t trial, int worker) {
    auto& runner = runners[static_cast<size_t>(worker)];
    if (!runner) runner = std::make_unique<TrialRunner>(plan, first, n, inner);
    runner->run(trial, counts[static_cast<size_t>(worker)], figures, progress);
  };
  if (side_by_side) {
    parallel_for(plan.trials, plan.threads, run);
  } else {
    for (uint64_t trial = 0; trial < plan.trials; ++trial) run(trial, 0);
  }
  for (const auto& worker : counts) {
    for (size_t k = 0; k < n; ++k) add_counts(worker[k], figures[first + k]);
  }
}

}  // namespace

std::vector<CodecFigures> run_trials(const MeanPlan& plan) {
  std::vector<CodecFigures> figures(plan.codecs.size());
  for (CodecFigures& f : figures) {
    f.vnmse.resize(plan.trials);
    f.nmse.resize(plan.trials);
    f.limit.resize(plan.trials);
    f.ratio.resize(plan.trials);
  }
  Progress progress("mean", plan.codecs.size() * plan.trials * plan.clients, "vectors");
  // Codecs share the making of the clients' vectors as far as their sums fit.
  const size_t group = std::clamp<uint64_t>(kMaxSumBytes / (8 * plan.dim), 1, plan.codecs.size());
  for (size_t first = 0; first < plan.codecs.size(); first += group) {
    run_group(plan, first, std::min(group, plan.codecs.size() - first), figures, progress);
  }
  return figures;
}

Estimate estimate(std::span<const double> trials) {
  Estimate result;
  const auto n = static_cast<double>(std::count_if(trials.begin(), trials.end(), [](double v) { return !std::isnan(v); }));
  for (const double v : trials) result.mean += std::isnan(v) ? 0 : v / n;
  if (n == 0) result.mean = std::numeric_limits<double>::quiet_NaN();
  if (n < 2) return result;
  double squares = 0;
  for (const double v : trials) squares += std::isnan(v) ? 0 : (v - result.mean) * (v - result.mean);
  result.standard_error = std::sqrt(squares / (n - 1) / n);
  return result;
}

}  // namespace kpd::tool
