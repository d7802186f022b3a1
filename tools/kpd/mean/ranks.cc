// tools: `kpd mean --comm`: the mean of the ranks' vectors over an engine, with its time by stage; see mean.h.
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <limits>
#include <mutex>
#include <thread>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "files.h"
#include "kpd/base/bytes.h"
#include "kpd/base/cpu.h"
#include "kpd/base/error.h"
#include "kpd/base/hash.h"
#include "kpd/gradient/aggregate.h"
#include "mean/mean.h"
#include "table.h"

namespace kpd::tool {
namespace {

using comm::Exchange;
using gradient::AverageReport;
using Json = nlohmann::ordered_json;

// Tags of the tool's own messages, far from those of gradient.
enum Tag : uint32_t { kReady = 1u << 20, kStart, kAsk, kExact, kError, kLine };
constexpr size_t kPiece = size_t{1} << 18;  // numbers of an exact vector sent at once

double median(std::vector<double> v) {
  std::sort(v.begin(), v.end());
  const size_t n = v.size();
  return n % 2 == 1 ? v[n / 2] : (v[n / 2 - 1] + v[n / 2]) / 2;
}

// What a rank measured with one codec.
struct RankFigures {
  std::vector<double> encode, exchange, decode, total, nmse;
  uint64_t sent_bytes = 0;
  uint64_t allgather_bytes = 0;  // that this rank would send with it (sra)
  AverageReport last;
  std::string replica_hash;  // of the last mean; empty without one
};

double number_of(const Json& line, const char* key) {
  const auto found = line.find(key);
  return found != line.end() && found->is_number() ? found->get<double>() : std::numeric_limits<double>::quiet_NaN();
}

Table rank_table(const std::string& lines) {
  Table table({{"codec", "codec", {}, {}, true, 0, 18},
               {"rank", "rank"},
               {"bytes_per_rank", "sent", "bytes"},
               {"nmse", "nmse", {}, kNmseLegend},
               {"seconds_encode", "encode", "s"},
               {"seconds_exchange", "exchange", "s"},
               {"seconds_decode", "decode", "s"},
               {"seconds", "total", "s", "of an average, median over trials"},
               {"replica_hash", "replica hash", {}, "of the mean a rank has", true}});
  for (const std::string& text : split(lines, '\n')) {
    if (text.empty()) continue;
    const Json line = Json::parse(text, nullptr, false);
    if (!line.is_object()) fail(ErrorCode::kCorruptData, "the figures of a rank: expected a JSON object");
    const auto words = [&](const char* key) {
      return line.contains(key) && line[key].is_string() ? Cell(line[key].get<std::string>()) : Cell("-", std::string());
    };
    table.add({words("codec"), fixed_cell(number_of(line, "rank"), 0), fixed_cell(number_of(line, "bytes_per_rank"), 0),
               significant_cell(number_of(line, "nmse"), 5), fixed_cell(number_of(line, "seconds_encode"), 4),
               fixed_cell(number_of(line, "seconds_exchange"), 4), fixed_cell(number_of(line, "seconds_decode"), 4),
               fixed_cell(number_of(line, "seconds"), 4), words("replica_hash")});
  }
  return table;
}

class Rank {
 public:
  Rank(Exchange& exchange, const RankPlan& plan, comm::Milliseconds timeout)
      : exchange_(exchange), plan_(plan), timeout_(timeout), rank_(exchange.rank()), ranks_(exchange.size()) {
    if (!plan.weights.empty() && plan.weights.size() != static_cast<size_t>(ranks_))
      usage("--weights: ", plan.weights.size(), " weights for ", ranks_, " ranks");
    load();
  }

  RankFigures measure(size_t codec) {
    gradient::AverageOptions options;
    options.pattern = gradient::parse_pattern(plan_.pattern);
    options.second = plan_.second;
    options.run = plan_.seed;
    options.weight = weight(rank_);
    options.threads = plan_.threads;
    options.timeout = timeout_;
    gradient::Averager averager(exchange_, manifest_, plan_.codecs[codec], gradient::RunSecret::from_seed(plan_.seed), options);
    RankFigures figures;
    std::vector<float> mean(x_.size());
    for (uint64_t trial = 0; trial < plan_.trials; ++trial) {
      meet();
      const AverageReport report =
          averager.average(trial, tensor_views(manifest_, x_), tensor_spans(manifest_, std::span(mean)));
      figures.encode.push_back(report.clock.seconds_encode);
      figures.exchange.push_back(report.clock.seconds_exchange);
      figures.decode.push_back(report.clock.seconds_decode);
      figures.total.push_back(report.seconds_total);
      figures.sent_bytes = report.sent_bytes;
      measure_error(report, mean, figures);
      figures.last = report;
    }
    if (options.pattern == gradient::Pattern::kSra) figures.allgather_bytes = allgather_bytes(codec);
    if (figures.last.has_mean) {
      const std::span bytes(reinterpret_cast<const uint8_t*>(mean.data()), mean.size() * sizeof(float));
      figures.replica_hash = hex(sha256(bytes)).substr(0, 16);
      if (!plan_.out.empty() && rank_ == 0) note_limited(plan_.out, write_tensors(plan_.out, manifest_, mean, plan_.existing));
    }
    return figures;
  }

  std::string json(size_t codec, const RankFigures& f) const {
    Json o;
    o["codec"] = plan_.codec_texts[codec];
    o["bits"] = plan_.codecs[codec].bits();
    o["dim"] = x_.size();
    o["comm"] = exchange_.engine();
    o["pattern"] = plan_.pattern;
    o["ranks"] = ranks_;
    o["rank"] = rank_;
    o["trials"] = plan_.trials;
    const std::optional<Estimate> nmse = f.nmse.empty() ? std::nullopt : std::optional(estimate(f.nmse));
    o["nmse"] = nmse ? Json(nmse->mean) : Json();
    o["nmse_stderr"] = nmse && nmse->standard_error ? Json(*nmse->standard_error) : Json();
    o["bytes_per_rank"] = f.sent_bytes;
    if (plan_.pattern == "sra") {
      o["second_bits"] = f.last.second_bits;
      o["allgather_bytes_per_rank"] = f.allgather_bytes;
    }
    o["seconds"] = median(f.total);
    o["seconds_encode"] = median(f.encode);
    o["seconds_exchange"] = median(f.exchange);
    o["seconds_decode"] = median(f.decode);
    o["replica_hash"] = f.replica_hash.empty() ? Json() : Json(f.replica_hash);
    if (!f.last.verdicts.empty()) {
      o["ranks_in_mean"] = f.last.ranks;
      Json refused = Json::array();
      for (size_t r = 0; r < f.last.verdicts.size(); ++r) {
        const gradient::Verdict& v = f.last.verdicts[r];
        if (!v.accepted()) refused.push_back({{"rank", r}, {"refusal", refusal_name(v.refusal)}, {"reason", v.reason}});
      }
      o["refused"] = refused;
    }
    o["threads"] = plan_.threads;
    o["isa"] = active_isa();
    o["seed"] = plan_.seed;
    return o.dump() + "\n";
  }

  // What the table's columns do not say, a line each.
  std::string notes(size_t codec, const RankFigures& f) const {
    std::string text;
    for (size_t r = 0; r < f.last.verdicts.size(); ++r) {
      const gradient::Verdict& v = f.last.verdicts[r];
      if (!v.accepted())
        text += fmt::format("{}: rank {} is not in the mean: {}: {}\n", plan_.codec_texts[codec], r, refusal_name(v.refusal),
                            v.reason);
    }
    if (static_cast<double>(f.sent_bytes) > .9 * static_cast<double>(f.allgather_bytes) && f.allgather_bytes > 0) {
      text += wrapped(fmt::format("{}: allgather would send {} bytes a rank, with less error: it is cheaper with so few ranks "
                                  "and bits",
                                  plan_.codec_texts[codec], f.allgather_bytes)) +
              "\n";
    }
    return text;
  }

  // A table is printed by rank 0 from the lines that --json would print, in the order of the ranks; `notes` stand below it.
  void print_table(std::string lines, const std::string& notes) {
    if (rank_ != 0) {
      exchange_.send(0, kLine, {lines.begin(), lines.end()});
      return;
    }
    for (int r = 1; r < ranks_; ++r) {
      const std::vector<uint8_t> line = receive(r, kLine, /*may_be_gone=*/true);
      lines.append(line.begin(), line.end());
    }
    if (plan_.format != Format::kCsv) {
      fmt::print(
          "{}\n{}",
          wrapped(fmt::format("mean of {} vectors of {} numbers over {}, {}, {} trial{}, seed {}", ranks_, x_.size(),
                              exchange_.engine(), plan_.pattern, plan_.trials, plan_.trials == 1 ? "" : "s", plan_.seed)),
          plan_.format == Format::kMarkdown ? "\n" : "");
    }
    fmt::print("{}", rank_table(lines).render(plan_.format));
    fmt::print(plan_.format == Format::kCsv ? stderr : stdout, "{}", notes);
  }

  void finish() {
    if (!exchange_.flush(timeout_)) fail(ErrorCode::kIo, "rank ", rank_, ": what was sent did not leave within the time-out");
  }

 private:
  // One message of the whole to every other rank.
  uint64_t allgather_bytes(size_t codec) const {
    gradient::Encoder encoder(manifest_, plan_.codecs[codec], gradient::RunSecret::from_seed(plan_.seed),
                              {.threads = plan_.threads});
    std::vector<uint8_t> message(encoder.max_bytes());
    return static_cast<uint64_t>(ranks_ - 1) * encoder.encode_message(tensor_views(manifest_, x_), {}, message);
  }

  uint64_t weight(int r) const { return plan_.weights.empty() ? 1 : plan_.weights[static_cast<size_t>(r)]; }

  void load() {
    if (plan_.synthetic) {
      manifest_ = {{"x", DType::kFloat32, {plan_.dim}}};
      x_.resize(plan_.dim);
      make_synthetic(rank_, x_);
      return;
    }
    if (plan_.files.size() != 1 && plan_.files.size() != static_cast<size_t>(ranks_)) {
      usage("FILE...: ", plan_.files.size(), " files for ", ranks_,
            " ranks; give one a rank, or one name in which {rank} stands");
    }
    std::string path = plan_.files[plan_.files.size() == 1 ? 0 : static_cast<size_t>(rank_)];
    if (const size_t at = path.find("{rank}"); at != std::string::npos) path.replace(at, 6, std::to_string(rank_));
    const auto source = file_source({path});
    manifest_ = source->manifest();
    if (!plan_.out.empty()) check_holds("--out", plan_.out, manifest_);
    x_.resize(element_count(manifest_));
    const auto reader = source->reader();
    reader->start_trial(0, plan_.threads);
    reader->load(0, x_, plan_.threads);
  }

  // One vector a rank for all codecs and trials: a trial has rotations of its own.
  void make_synthetic(int rank, std::span<float> dst) {
    gradient::SyntheticClients clients(*plan_.synthetic, plan_.dim);
    clients.start_trial(0, plan_.threads);
    clients.client(static_cast<uint64_t>(rank), dst, plan_.threads);
  }

  // `may_be_gone`: nothing comes from a rank without which the mean goes on.
  std::vector<uint8_t> receive(int from, uint32_t tag, bool may_be_gone = false) {
    std::vector<uint8_t> bytes;
    const comm::Delivery d = exchange_.receive(from, tag, bytes, timeout_);
    if (d != comm::Delivery::kReceived && may_be_gone && gone(from)) return {};
    if (d == comm::Delivery::kLost) fail(ErrorCode::kIo, "rank ", from, " was lost");
    if (d == comm::Delivery::kTimedOut)
      fail(ErrorCode::kIo, "rank ", from, " did not answer within ", static_cast<double>(timeout_.count()) / 1000, " s");
    return bytes;
  }

  // True if rank r is no longer there. Only gather goes on without it.
  bool gone(int r) const { return plan_.pattern == "gather" && exchange_.lost(r); }

  // All ranks start together, so that waiting for a late one is not counted as exchange.
  void meet() {
    if (rank_ != 0) {
      exchange_.send(0, kReady, {});
      receive(0, kStart);
      return;
    }
    for (int r = 1; r < ranks_; ++r) receive(r, kReady, /*may_be_gone=*/true);
    for (int r = 1; r < ranks_; ++r) exchange_.send(r, kStart, {});
  }

  // Against the exact mean of those that are in it, by rank 0, which tells the others: outside of all that is timed.
  void measure_error(const AverageReport& report, std::span<const float> mean, RankFigures& figures) {
    if (rank_ != 0) {
      if (receive(0, kAsk) == std::vector<uint8_t>{1}) send_exact();
      const std::vector<uint8_t> b = receive(0, kError);
      if (b.size() == 8 && report.has_mean) figures.nmse.push_back(std::bit_cast<double>(load_u64(b.data())));
      return;
    }
    std::vector<bool> in(static_cast<size_t>(ranks_), true);
    for (size_t r = 0; r < report.verdicts.size(); ++r) in[r] = report.verdicts[r].accepted();
    const bool stale = in != exact_in_;
    for (int r = 1; r < ranks_; ++r) exchange_.send(r, kAsk, {static_cast<uint8_t>(stale && !plan_.synthetic ? 1 : 0)});
    if (stale) find_exact(in);
    double error2 = 0;
    for (size_t i = 0; i < exact_.size(); ++i) {
      const double e = static_cast<double>(mean[i]) - exact_[i];
      error2 += e * e;
    }
    const double nmse = average_norm2_ > 0 ? error2 / average_norm2_ : error2;
    if (report.has_mean && exact_known_) figures.nmse.push_back(nmse);
    for (int r = 1; r < ranks_; ++r) {
      std::vector<uint8_t> b(8);
      store_u64(b.data(), std::bit_cast<uint64_t>(nmse));
      exchange_.send(r, kError, std::move(b));
    }
  }

  // exact_ = the mean of the vectors of the ranks that are in it.
  void find_exact(const std::vector<bool>& in) {
    exact_in_ = in;
    exact_known_ = true;
    exact_.assign(x_.size(), 0.0);
    double norm2 = 0, total = 0, n = 0;
    std::vector<float> x = x_;
    for (int r = 0; r < ranks_; ++r) {
      if (r > 0 && plan_.synthetic) make_synthetic(r, x);
      if (r > 0 && !plan_.synthetic) {
        if (gone(r)) {
          exact_known_ = exact_known_ && !in[static_cast<size_t>(r)];  // what it sent before it was lost is in the mean
          continue;
        }
        receive_exact(r, x);
      }
      if (!in[static_cast<size_t>(r)]) continue;
      const auto w = static_cast<double>(weight(r));
      for (size_t i = 0; i < x.size(); ++i) {
        exact_[i] += w * x[i];
        norm2 += static_cast<double>(x[i]) * x[i];
      }
      total += w;
      n += 1;
    }
    for (double& v : exact_) v /= total;
    average_norm2_ = norm2 / n;
  }

  void send_exact() {
    for (size_t at = 0; at < x_.size(); at += kPiece) {
      const auto* first = reinterpret_cast<const uint8_t*>(x_.data() + at);
      exchange_.send(0, kExact, {first, first + 4 * std::min(kPiece, x_.size() - at)});
    }
  }
  void receive_exact(int from, std::span<float> dst) {
    for (size_t at = 0; at < dst.size(); at += kPiece) {
      const std::vector<uint8_t> b = receive(from, kExact);
      const size_t want = 4 * std::min(kPiece, dst.size() - at);
      if (b.size() != want)
        fail(ErrorCode::kCorruptData, "rank ", from, ": ", b.size(), " bytes of its vector, expected ", want);
      std::memcpy(dst.data() + at, b.data(), want);
    }
  }

  Exchange& exchange_;
  const RankPlan& plan_;
  const comm::Milliseconds timeout_;
  const int rank_, ranks_;
  gradient::Manifest manifest_;
  std::vector<float> x_;
  // Rank 0 only: the exact mean of the ranks that were in the last average, kept while they stay the same.
  std::vector<bool> exact_in_;
  bool exact_known_ = false;
  std::vector<double> exact_;
  double average_norm2_ = 0;
};

void run_rank(Exchange& exchange, const RankPlan& plan, comm::Milliseconds timeout) {
  static std::mutex print_mutex;
  Rank rank(exchange, plan, timeout);
  std::string lines, notes;
  for (size_t k = 0; k < plan.codecs.size(); ++k) {
    const RankFigures figures = rank.measure(k);
    const std::string line = rank.json(k, figures);
    if (!plan.json) {
      lines += line;
      notes += rank.notes(k, figures);
      continue;
    }
    const std::lock_guard lock(print_mutex);
    std::fwrite(line.data(), 1, line.size(), stdout);
    std::fflush(stdout);
  }
  if (!plan.json) rank.print_table(lines, notes);
  rank.finish();
}

}  // namespace

int run_ranks(const RankPlan& plan, const EngineOptions& engine) {
  std::vector<std::unique_ptr<Exchange>> own = open_engine(engine);
  if (own.size() == 1) {
    run_rank(*own[0], plan, engine.wait());
    return kExitOk;
  }
  std::exception_ptr first_error;  // those of other ranks follow from it
  std::mutex error_mutex;
  std::vector<std::thread> threads;
  for (size_t r = 0; r < own.size(); ++r) {
    threads.emplace_back([&, r] {
      try {
        run_rank(*own[r], plan, engine.wait());
      } catch (...) {
        {
          const std::lock_guard lock(error_mutex);
          if (!first_error) first_error = std::current_exception();
        }
        own[r].reset();  // lost to the others, which then end too
      }
    });
  }
  for (std::thread& t : threads) t.join();
  if (first_error) std::rethrow_exception(first_error);
  return kExitOk;
}

}  // namespace kpd::tool
