// train: federated training, codec after codec, with checkpoints; see include/kpd/train/federate.h.
#include "kpd/train/federate.h"

#include <algorithm>
#include <charconv>
#include <cmath>

#include "kpd/base/bytes.h"
#include "kpd/base/error.h"
#include "kpd/base/hash.h"
#include "kpd/base/limits.h"
#include "kpd/gradient/codec.h"
#include "kpd/gradient/codec_policy.h"
#include "kpd/gradient/feedback.h"
#include "kpd/gradient/stream_info.h"
#include "train/codec_run.h"
#include "train/remote.h"

namespace kpd::train {
namespace {

constexpr uint64_t kMax = uint64_t{1} << 32;

void check_range(const char* name, double value, double min, double max) {
  if (!(value >= min && value <= max)) {
    fail(ErrorCode::kInvalidArgument, name, ": ", value, ", expected a number from ", min, " to ", max);
  }
}
void check_count(const char* name, uint64_t value, uint64_t min, uint64_t max) {
  if (value < min || value > max) {
    fail(ErrorCode::kInvalidArgument, name, ": ", value, ", expected an integer from ", min, " to ", max);
  }
}

void check_uplink(const std::string& text, bool feedback) {
  const gradient::CodecPolicy policy = uplink_policy(text);
  const auto check = [&](const gradient::Codec& codec) {
    try {
      if (feedback) return gradient::check_feedback(codec);
    } catch (const Error& e) {
      fail(e.code(), "codec: ", e.what());
    }
    if (codec.params().scale != gradient::ScaleKind::kBiased) return;
    fail(ErrorCode::kInvalidArgument, "codec: ", text,
         ": scale=biased shrinks every update by the same factor, which no number of clients averages away; use scale=unbiased "
         "(the default), or error feedback");
  };
  check(policy.base);
  for (const auto& [pattern, codec] : policy.by_name) check(codec);
}

void check_downlink(const std::string& text) {
  if (text == "float32" || text == "bf16") return;
  const gradient::Codec codec = gradient::Codec::parse(text);
  const bool least_error = codec.params().scale == gradient::ScaleKind::kBiased;
  if (!least_error && !(codec.limit_vnmse() < 1)) {
    fail(ErrorCode::kInvalidArgument, "downlink: ", text,
         ": what this codec loses of a difference is sent again with the next one, and an error of ",
         std::round(100 * codec.limit_vnmse()) / 100,
         " of the difference (below 1 is needed) would grow without end. Use more bits, or scale=biased, which the residual "
         "makes up for");
  }
}

std::string text_of(double value) {
  char buffer[64];
  const auto [end, error] = std::to_chars(buffer, buffer + sizeof buffer, value);
  return error == std::errc() ? std::string(buffer, end) : std::string();
}

// All that decides a run's numbers, by option name.
Pairs settings_of(const Task& task, const FederateOptions& o) {
  std::string codecs;
  for (const std::string& codec : o.codecs) codecs += (codecs.empty() ? "" : " ") + codec;
  return {{"task", task.name()},
          {"data", str(task.data_hash())},
          {"codec", codecs},
          {"seed", str(o.seed)},
          {"clients", str(o.clients)},
          {"examples-per-client", str(o.examples_per_client)},
          {"alpha", text_of(o.alpha)},
          {"clients-per-round", str(o.clients_per_round)},
          {"local-epochs", str(o.local_epochs)},
          {"batch", str(o.batch)},
          {"client-lr", text_of(o.client_lr)},
          {"server", o.server == Server::kAdam ? "adam" : "sgd"},
          {"server-lr", text_of(o.server_lr)},
          {"server-beta1", text_of(o.server_beta1)},
          {"server-beta2", text_of(o.server_beta2)},
          {"server-eps", text_of(o.server_eps)},
          {"server-momentum", text_of(o.server_momentum)},
          {"sampling", o.sampling == Sampling::kUniform ? "uniform" : "weighted"},
          {"weights", o.weights == Weights::kExamples ? "examples" : "uniform"},
          {"drop", text_of(o.drop)},
          {"clip", text_of(o.clip)},
          {"downlink", o.downlink}};
}

uint64_t settings_hash(const Task& task, const FederateOptions& options) {
  std::string text;
  for (const auto& [name, value] : settings_of(task, options)) text += name + "=" + value + "\n";
  return hash64(text_bytes(text));
}

// Names and values of `now`, compared with what a checkpoint says; calls differs(name, then, now).
template <class Fn>
void compare(const Pairs& then, const Pairs& now, Fn&& differs) {
  for (const auto& pair : now) {
    const auto found = std::find_if(then.begin(), then.end(), [&](const auto& other) { return other.first == pair.first; });
    const std::string before = found == then.end() ? "(absent)" : found->second;
    if (before != pair.second) differs(pair.first, before, pair.second);
  }
}

std::vector<RunState> load_runs(const Task& task, const FederateOptions& options, const FederateCallbacks& callbacks) {
  Checkpoint checkpoint = read_checkpoint(options.checkpoint);
  compare(checkpoint.settings, settings_of(task, options), [&](const auto& name, const auto& then, const auto& now) {
    fail(ErrorCode::kMismatch, options.checkpoint, ": was made with ", name, " ", then, ", not ", now,
         "; continue it with the same options (only rounds, threads, max-norm and what is printed may differ)");
  });
  compare(checkpoint.environment, task.environment(), [&](const auto& name, const auto& then, const auto& now) {
    if (!callbacks.on_warning) return;
    callbacks.on_warning(str(options.checkpoint, ": was made with ", name, " ", then, ", this is ", now,
                             "; the run continues, but not with the same bits as without a stop"));
  });
  if (checkpoint.runs.size() > options.codecs.size()) {
    fail(ErrorCode::kCorruptData, options.checkpoint, ": holds ", checkpoint.runs.size(), " runs of ", options.codecs.size(),
         " codecs");
  }
  for (size_t i = 0; i < checkpoint.runs.size(); ++i) {
    const RunState& run = checkpoint.runs[i];
    if (run.codec != options.codecs[i] || run.model.empty()) {
      fail(ErrorCode::kCorruptData, options.checkpoint, ": run ", i + 1, " is not one of codec ", options.codecs[i]);
    }
    if (run.round > options.rounds) {
      fail(ErrorCode::kMismatch, options.checkpoint, ": codec ", run.codec, " has done ", run.round, " rounds, more than the ",
           options.rounds, " asked for");
    }
  }
  for (RunState& run : checkpoint.runs) {
    for (Evaluation& e : run.evaluations) e.codec = run.codec;
  }
  return std::move(checkpoint.runs);
}

CodecResult result_of(const RunState& run, uint64_t parameters, uint64_t rounds) {
  CodecResult result;
  result.codec = run.codec;
  result.rounds = run.round;
  result.evaluations = run.evaluations;
  result.uplink_bytes = run.uplink_bytes;
  result.downlink_bytes = run.downlink_bytes;
  result.float32_bytes = 4 * parameters * run.messages;
  result.float32_total_bytes = 4 * parameters * (run.messages + run.downloads);
  result.clients_ok = run.clients_ok;
  result.dropped = run.dropped;
  result.refused = run.refused;
  result.update_vnmse = run.norm2 > 0 ? run.error2 / run.norm2 : 0;
  result.seconds = run.seconds;
  result.model = run.model;
  double sum = 0, sum2 = 0, n = 0;
  for (const Evaluation& e : run.evaluations) {
    if (e.round + kFinalRounds <= rounds) continue;
    sum += e.accuracy;
    sum2 += e.accuracy * e.accuracy;
    n += 1;
  }
  if (n > 0) result.final_accuracy = sum / n;
  if (n > 1) result.final_accuracy_stderr = std::sqrt(std::max(0.0, (sum2 - sum * sum / n) / (n - 1) / n));
  return result;
}

class Loop {
 public:
  // `remote` null: everything in this process.
  Loop(const Task& task, const FederateOptions& options, const FederateCallbacks& callbacks, RemoteRanks* remote)
      : task_(task), options_(options), callbacks_(callbacks), remote_(remote), federation_(task, options) {
    if (options.resume) runs_ = load_runs(task, options, callbacks);
    if (callbacks.on_update && !runs_.empty() && runs_[0].round == options.rounds) {
      fail(ErrorCode::kMismatch, options.checkpoint, ": the last round of codec ", runs_[0].codec,
           " was played before; its updates were not kept and cannot be handed out");
    }
  }

  FederateResult play() {
    uint64_t done = 0;
    for (const RunState& run : runs_) done += run.round;
    if (callbacks_.on_start)
      callbacks_.on_start((options_.rounds * options_.codecs.size() - done) * options_.clients_per_round);
    FederateResult result;
    for (size_t i = 0; i < options_.codecs.size() && !result.stopped; ++i) {
      if (i == runs_.size()) runs_.emplace_back();
      result.stopped = !play_codec(i);
      result.codecs.push_back(result_of(runs_[i], federation_.parameters, options_.rounds));
      if (!result.stopped && callbacks_.on_codec_done) callbacks_.on_codec_done(result.codecs.back());
    }
    return result;
  }

 private:
  bool due(const RunState& run) const {
    if (run.round == 0 || (!run.evaluations.empty() && run.evaluations.back().round == run.round)) return false;
    return run.round % options_.eval_every == 0 || run.round + kFinalRounds > options_.rounds;
  }

  // False if stopped; the checkpoint then holds the last complete round.
  bool play_codec(size_t index) {
    RunState& state = runs_[index];
    CodecRun run(federation_, options_.codecs[index], state, callbacks_);
    if (remote_) remote_->begin_run(index, state.round, run.client_model());
    for (;;) {
      if (due(state)) {
        if (!run.evaluate()) break;
        if (callbacks_.on_evaluation) callbacks_.on_evaluation(state.evaluations.back());
        save();
      }
      if (state.round == options_.rounds) return true;
      if (!(remote_ ? remote_->play(run) : run.play_round())) break;
      if (index == 0 && state.round == options_.rounds) run.report_updates();
    }
    save();
    const bool stopped = callbacks_.stopped && callbacks_.stopped();
    if (remote_ && !stopped && remote_->all_lost()) {
      fail(ErrorCode::kIo, "round ", state.round + 1, " of codec ", state.codec, ": no rank that trains is left",
           options_.checkpoint.empty() ? "" : "; " + options_.checkpoint + " holds all complete rounds");
    }
    return false;
  }

  void save() const {
    if (options_.checkpoint.empty()) return;
    write_checkpoint(options_.checkpoint, {settings_of(task_, options_), task_.environment(), runs_});
  }

  const Task& task_;
  const FederateOptions& options_;
  const FederateCallbacks& callbacks_;
  RemoteRanks* const remote_;
  Federation federation_;
  std::vector<RunState> runs_;
};

}  // namespace

void check_options(const FederateOptions& o) {
  if (o.codecs.empty()) fail(ErrorCode::kInvalidArgument, "codec: at least one is needed");
  size_t text_bytes = 0;
  for (const std::string& codec : o.codecs) text_bytes += codec.size() + 1;
  if (text_bytes > Limits{}.max_name_bytes) {  // they are one text in a checkpoint
    fail(ErrorCode::kInvalidArgument, "codec: ", o.codecs.size(), " codecs of ", text_bytes, " bytes, at most ",
         Limits{}.max_name_bytes, " together");
  }
  for (size_t i = 0; i < o.codecs.size(); ++i) {
    check_uplink(o.codecs[i], o.error_feedback);
    if (std::find(o.codecs.begin(), o.codecs.begin() + static_cast<std::ptrdiff_t>(i), o.codecs[i]) !=
        o.codecs.begin() + static_cast<std::ptrdiff_t>(i)) {
      fail(ErrorCode::kInvalidArgument, "codec: ", o.codecs[i], " is given twice");
    }
  }
  check_downlink(o.downlink);
  if (o.sampling == Sampling::kWeighted && o.weights == Weights::kExamples) {
    fail(ErrorCode::kInvalidArgument,
         "weights: examples with weighted sampling counts sizes twice: a client with more examples "
         "comes more often and weighs more. Use weights uniform, or sampling uniform");
  }
  if (o.error_feedback && !o.checkpoint.empty())
    fail(ErrorCode::kInvalidArgument, "error-feedback: what the clients keep is in no checkpoint; leave out one of the two");
  check_count("rounds", o.rounds, 1, kMax);
  check_count("clients", o.clients, 1, kMax);
  check_count("examples-per-client", o.examples_per_client, 1, kMax);
  check_range("alpha", o.alpha, 1e-3, 1e6);
  check_count("clients-per-round", o.clients_per_round, 1, o.clients);
  check_count("local-epochs", o.local_epochs, 1, kMax);
  check_count("batch", o.batch, 1, kMax);
  check_range("client-lr", o.client_lr, 0, 1e6);
  check_range("server-lr", o.server_lr, 0, 1e6);
  check_range("server-beta1", o.server_beta1, 0, 0.999999);
  check_range("server-beta2", o.server_beta2, 0, 0.999999);
  check_range("server-eps", o.server_eps, 1e-12, 1e6);
  check_range("server-momentum", o.server_momentum, 0, 0.999999);
  check_range("drop", o.drop, 0, 1);
  check_range("clip", o.clip, 0, 1e30);
  check_count("eval-every", o.eval_every, 1, kMax);
  check_range("threads", o.threads, 1, 1024);
  if (o.resume && o.checkpoint.empty()) fail(ErrorCode::kInvalidArgument, "resume: needs a checkpoint to continue from");
}

uint64_t checkpoint_seed(const std::string& path) {
  const Checkpoint checkpoint = read_checkpoint(path);
  for (const auto& [name, value] : checkpoint.settings) {
    uint64_t seed = 0;
    const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), seed);
    if (name == "seed" && error == std::errc() && end == value.data() + value.size()) return seed;
  }
  fail(ErrorCode::kCorruptData, path, ": the settings name no seed");
}

FederateResult federate(const Task& task, const FederateOptions& options, const FederateCallbacks& callbacks) {
  check_options(options);
  return Loop(task, options, callbacks, nullptr).play();
}

// A client is trained by a rank here, by another there.
static void check_remote(const FederateOptions& options) {
  if (options.error_feedback)
    fail(ErrorCode::kInvalidArgument, "error-feedback: what a client keeps does not follow it from rank to rank");
}

FederateResult federate_server(const Task& task, const FederateOptions& options, const FederateCallbacks& callbacks,
                               comm::Exchange& exchange, const ServerOptions& server) {
  check_options(options);
  check_remote(options);
  RemoteRanks remote(exchange, server, settings_hash(task, options));
  remote.greet();
  FederateResult result = Loop(task, options, callbacks, &remote).play();
  remote.end();
  return result;
}

void federate_rank(const Task& task, const FederateOptions& options, const FederateCallbacks& callbacks,
                   comm::Exchange& exchange, const ServerOptions& server) {
  check_options(options);
  check_remote(options);
  Federation federation(task, options);
  follow(federation, callbacks, exchange, server, settings_hash(task, options));
}

}  // namespace kpd::train
