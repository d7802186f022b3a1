// tools: `kpd federate`, training on compressed updates of many clients, in one process or with the ranks of an engine.
#include <cstdio>
#include <filesystem>
#include <functional>
#include <limits>
#include <memory>
#include <mutex>
#include <thread>
#include <tuple>

#include <fmt/format.h>
#include <malloc.h>

#include "cli.h"
#include "codec_options.h"
#include "commands.h"
#include "engines.h"
#include "federate_plot.h"
#include "federate_report.h"
#include "files.h"
#include "kpd/io/safetensors.h"
#include "kpd/train/char_lstm.h"
#include "kpd/train/federate.h"
#include "kpd/train/image_cnn.h"
#include "progress.h"
#include "signals.h"

namespace kpd::tool {
namespace {

constexpr uint64_t kMaxCount = uint64_t{1} << 32;
constexpr int kRoundTimeout = 600;

// Keeps the memory of freed tensors. By default glibc gives it back after every layer, and the next one has its pages filled
// with zeros again: a tenth of the time of a round of fashion-cnn on two Zen 1 cores (23.0 and 22.1 s to 20.4 and 20.6 s for
// three).
void keep_freed_memory() {
  mallopt(M_MMAP_THRESHOLD, 1 << 30);
  mallopt(M_TRIM_THRESHOLD, 1 << 30);
  mallopt(M_TOP_PAD, 64 << 20);
}

struct FederateArgs {
  CommonOptions common;
  std::string task = "fashion-cnn", data;
  std::vector<std::string> codecs;
  std::string rounds, clients, examples_per_client, alpha, clients_per_round, local_epochs, batch, client_lr;
  std::string server = "adam", server_lr, beta1, beta2, eps, momentum, sampling = "uniform", weights;
  std::string drop, clip, downlink = "float32", eval_every, save_updates, plot, checkpoint, max_norm;
  bool resume = false, error_feedback = false, force = false;
  EngineOptions engine;
};

// Numbers whose ranges train::check_options knows.
void read_count(const char* option, const std::string& text, uint64_t& value) {
  if (!text.empty()) value = parse_count(option, text, 0, kMaxCount);
}
void read_real(const char* option, const std::string& text, double& value) {
  if (!text.empty())
    value = parse_real(option, text, std::numeric_limits<double>::lowest(), std::numeric_limits<double>::max());
}

constexpr std::string_view kTasks[] = {"fashion-cnn", "emnist-cnn", "shakespeare-lstm"};

// The hyper-parameters of EDEN's experiments (Vargaftik et al., ICML 2022, appendix); the clients' rate for Fashion-MNIST,
// which the paper does not have, is tuned on float32 (docs/results/federated.md).
void set_task_defaults(const FederateArgs& args, train::FederateOptions& options) {
  const size_t task = parse_choice("--task", args.task, kTasks);
  if (task == 0) {
    options.client_lr = .1;
    return;
  }
  if (args.data.empty()) {
    usage("--task ", args.task, " needs --data ",
          task == 1 ? "DIR, a folder with the four IDX files of an EMNIST split"
                    : "FILE, a JSON line {\"client\": ..., \"text\": ...} a speaking role");
  }
  if (task == 1) return;
  for (const auto& [option, value] : {std::pair{"--clients", &args.clients}, std::pair{"--alpha", &args.alpha},
                                      std::pair{"--examples-per-client", &args.examples_per_client}}) {
    if (!value->empty()) usage(option, " does not belong to --task ", args.task, ": its clients are the roles");
  }
  options.clients = kMaxCount;  // counted when they are read
  options.batch = 4;
  options.client_lr = 1;
  options.server_lr = .01;
  options.server_eps = 1e-3;
}

std::unique_ptr<train::Task> load_task(const FederateArgs& args) {
  if (args.task == kTasks[2]) return train::make_char_lstm(args.task, train::load_text_data(args.data));
  return train::make_image_cnn(args.task, train::load_image_data(args.data.empty() ? train::kFashionMnistFolder : args.data));
}

train::FederateOptions parse_options(const FederateArgs& args) {
  constexpr std::string_view kServers[] = {"sgd", "adam"}, kSamplings[] = {"uniform", "weighted"},
                             kWeights[] = {"examples", "uniform"};
  train::FederateOptions options;
  set_task_defaults(args, options);
  for (const gradient::CodecPolicy& policy : parse_codecs(args.codecs)) options.codecs.push_back(policy.text());
  read_count("--rounds", args.rounds, options.rounds);
  read_count("--clients", args.clients, options.clients);
  read_count("--examples-per-client", args.examples_per_client, options.examples_per_client);
  read_real("--alpha", args.alpha, options.alpha);
  read_count("--clients-per-round", args.clients_per_round, options.clients_per_round);
  read_count("--local-epochs", args.local_epochs, options.local_epochs);
  read_count("--batch", args.batch, options.batch);
  read_real("--client-lr", args.client_lr, options.client_lr);
  options.server = static_cast<train::Server>(parse_choice("--server", args.server, kServers));
  const bool sgd = options.server == train::Server::kSgd;
  for (const auto& [option, value, of_sgd] :
       {std::tuple{"--server-beta1", &args.beta1, false}, std::tuple{"--server-beta2", &args.beta2, false},
        std::tuple{"--server-eps", &args.eps, false}, std::tuple{"--server-momentum", &args.momentum, true}}) {
    if (!value->empty() && of_sgd != sgd) usage(option, " belongs to --server ", of_sgd ? "sgd" : "adam");
  }
  if (options.server == train::Server::kSgd) options.server_lr = 1;
  read_real("--server-lr", args.server_lr, options.server_lr);
  read_real("--server-beta1", args.beta1, options.server_beta1);
  read_real("--server-beta2", args.beta2, options.server_beta2);
  read_real("--server-eps", args.eps, options.server_eps);
  read_real("--server-momentum", args.momentum, options.server_momentum);
  options.sampling = static_cast<train::Sampling>(parse_choice("--sampling", args.sampling, kSamplings));
  // Sampling and weights by size would count sizes twice.
  const std::string weights = options.sampling == train::Sampling::kWeighted ? "uniform" : "examples";  // sizes count once
  options.weights = train::Weights(parse_choice("--weights", args.weights.empty() ? weights : args.weights, kWeights));
  options.error_feedback = args.error_feedback;
  read_real("--drop", args.drop, options.drop);
  read_real("--clip", args.clip, options.clip);
  options.downlink = args.downlink;
  read_count("--eval-every", args.eval_every, options.eval_every);
  // Ranks on one machine share its processors.
  options.threads = args.engine.used() && args.common.threads_text.empty() ? 1 : args.common.threads();
  options.checkpoint = args.checkpoint;
  options.resume = args.resume;
  if (args.resume && args.checkpoint.empty()) usage("--resume needs --checkpoint FILE to continue from");
  if (options.downlink != "float32" && options.downlink != "bf16") {
    as_usage("--downlink", [&] { return gradient::Codec::parse(options.downlink); });
  }
  try {
    train::check_options(options);
  } catch (const Error& e) {
    if (e.code() == ErrorCode::kInvalidArgument) usage("--", e.what());
    throw;
  }
  return options;
}

// The updates of the last round, one .safetensors a client.
class UpdateFolder {
 public:
  UpdateFolder(const std::string& path, const gradient::Manifest& manifest) : path_(path), manifest_(manifest) {
    std::error_code error;
    std::filesystem::create_directories(path, error);
    if (error || !std::filesystem::is_directory(path)) {
      fail(ErrorCode::kIo, "--save-updates ", path, ": ", error ? error.message() : std::string("not a folder"));
    }
  }

  // Before the training: that files can be made there, and that those of an earlier run may be replaced.
  static void check(const std::string& path, bool force) {
    std::error_code error;
    if (std::filesystem::is_directory(path, error)) {
      if (!force && !updates_in(path).empty())
        usage("--save-updates ", path, ": holds updates of an earlier run; --force replaces them");
    } else {
      std::filesystem::create_directories(path, error);
      if (error) fail(ErrorCode::kIo, "--save-updates ", path, ": ", error.message());
    }
    try {
      const io::AtomicFile probe((std::filesystem::path(path) / "client-000000.safetensors").string());
    } catch (const Error& e) {
      fail(e.code(), "--save-updates ", e.what());
    }
  }

  void save(const train::ClientUpdate& update, uint64_t round) {
    if (!cleared_) remove_old();
    cleared_ = true;
    std::vector<io::TensorEntry> entries;
    size_t offset = 0;
    for (const gradient::TensorInfo& info : manifest_) {
      entries.push_back({info.name, DType::kFloat32, info.shape, update.difference.data() + offset, info.count()});
      offset += info.count();
    }
    const std::string name = fmt::format("client-{:06}.safetensors", update.client);
    io::save_safetensors((std::filesystem::path(path_) / name).string(), entries,
                         {{"round", std::to_string(round)},
                          {"client", std::to_string(update.client)},
                          {"examples", std::to_string(update.examples)}});
    ++saved_;
  }
  uint64_t saved() const { return saved_; }

 private:
  static std::vector<std::filesystem::path> updates_in(const std::string& folder) {
    std::vector<std::filesystem::path> found;
    for (const auto& item : std::filesystem::directory_iterator(folder)) {
      const std::string name = item.path().filename().string();
      const bool ours = name.size() == 25 && name.starts_with("client-") && name.ends_with(".safetensors") &&
                        name.substr(7, 6).find_first_not_of("0123456789") == std::string::npos;
      if (ours) found.push_back(item.path());
    }
    return found;
  }

  // Those of an earlier run would be averaged with the new ones.
  void remove_old() const {
    std::error_code ignored;
    for (const std::filesystem::path& path : updates_in(path_)) std::filesystem::remove(path, ignored);
  }

  std::string path_;
  const gradient::Manifest& manifest_;
  uint64_t saved_ = 0;
  bool cleared_ = false;
};

int stop(const FederateArgs& args) {
  if (args.checkpoint.empty()) fail(ErrorCode::kCancelled, "interrupted; without --checkpoint FILE nothing was kept");
  fail(ErrorCode::kCancelled, "interrupted; ", args.checkpoint,
       " holds all complete rounds: continue with the same options and --resume");
}

uint64_t seed_of(const FederateArgs& args) {
  if (!args.common.seed_text.empty()) return args.common.seed();
  if (args.engine.used()) return 1;  // all ranks need the same
  return args.resume ? train::checkpoint_seed(args.checkpoint) : args.common.seed();
}

train::ServerOptions server_options(const FederateArgs& args) {
  train::ServerOptions server;
  server.timeout = args.engine.wait();
  if (!args.max_norm.empty()) server.max_norm = parse_real("--max-norm", args.max_norm, 1e-30, 1e30);
  return server;
}

// The ranks of this process that train; the server is the caller's. `warn` hears why one ends early, from its thread.
class TrainingRanks {
 public:
  TrainingRanks(std::vector<std::unique_ptr<comm::Exchange>> ranks, const train::Task& task,
                const train::FederateOptions& options, const train::ServerOptions& server,
                const std::function<void(const std::string&)>& warn) {
    for (std::unique_ptr<comm::Exchange>& one : ranks) {
      threads_.emplace_back([rank = std::move(one), &task, &options, server, &warn]() mutable {
        try {
          train::FederateCallbacks callbacks;
          callbacks.stopped = [] { return interrupted(); };
          train::federate_rank(task, options, callbacks, *rank, server);
        } catch (const std::exception& e) {
          // What the loss of the server means to a rank is nobody's news.
          if (!interrupted() && !rank->lost(0)) warn(str("rank ", rank->rank(), ": ", e.what()));
        }
        rank.reset();
      });
    }
  }
  ~TrainingRanks() {
    for (std::thread& t : threads_) t.join();
  }

 private:
  std::vector<std::thread> threads_;
};

void check_engine_options(const FederateArgs& args) {
  if (args.engine.used()) {
    choose_engine_program(args.engine, "federate");
    if (args.error_feedback) usage("--error-feedback does not belong to --comm: what clients keep does not follow them");
    if (!args.save_updates.empty())
      usage("--save-updates does not belong to --comm: the server sees what updates decode to only");
    server_options(args);
    return;
  }
  args.engine.refuse_others();
  if (!args.max_norm.empty()) usage("--max-norm belongs to --comm ENGINE");
}

// Hours of training must not end at a name.
void check_outputs(const FederateArgs& args, std::optional<io::FileLock>& lock) {
  if (!args.save_updates.empty()) UpdateFolder::check(args.save_updates, args.force);
  if (!args.plot.empty()) {
    check_plot(args.plot);
    check_writable("--plot", args.plot);
  }
  if (args.checkpoint.empty()) return;
  check_writable("--checkpoint", args.checkpoint);
  // Of two runs with one new checkpoint the second would replace what the first has written.
  lock.emplace(args.checkpoint);
  std::error_code ignored;
  if (!args.resume && std::filesystem::is_regular_file(args.checkpoint, ignored))
    usage("--checkpoint ", args.checkpoint, ": the file is there already; continue it with --resume, or remove it");
}

// The number of clients that the data has, or has room for.
void fit_clients(const FederateArgs& args, const train::Task& task, train::FederateOptions& options) {
  const uint64_t examples = task.train_labels().size();
  if (!task.own_clients().empty()) {
    options.clients = task.own_clients().size();
    if (options.clients_per_round > options.clients)
      usage("--clients-per-round ", options.clients_per_round, ": ", args.data, " has ", options.clients, " clients");
  } else if (options.clients > examples / options.examples_per_client) {
    usage("--clients ", options.clients, ": the data has ", examples, " training images, enough for ",
          examples / options.examples_per_client, " clients of ", options.examples_per_client);
  }
}

// What is shown and saved while a run goes on. It outlives the callbacks that it gives.
class Watch {
 public:
  Watch(FederateReport& report, std::optional<UpdateFolder>& updates, uint64_t rounds)
      : report_(report), updates_(updates), rounds_(rounds) {}

  void clear() {
    const std::lock_guard lock(mutex_);
    if (progress_) progress_->clear();
  }
  void warn(const std::string& text) {
    clear();
    fmt::print(stderr, "kpd federate: warning: {}\n", text);
  }
  train::FederateCallbacks callbacks() {
    train::FederateCallbacks callbacks;
    callbacks.on_start = [this](uint64_t total) {
      const std::lock_guard lock(mutex_);
      progress_.emplace("federate", total, "clients");
    };
    callbacks.on_progress = [this](uint64_t units) { progress_->tick(units); };
    callbacks.on_evaluation = [this](const train::Evaluation& e) { clear(), report_.evaluation(e); };
    callbacks.on_codec_done = [this](const train::CodecResult& r) { clear(), report_.codec_done(r); };
    callbacks.on_warning = [this](const std::string& text) { warn(text); };
    if (updates_) callbacks.on_update = [this](const train::ClientUpdate& u) { updates_->save(u, rounds_); };
    callbacks.stopped = [] { return interrupted(); };
    return callbacks;
  }

 private:
  FederateReport& report_;
  std::optional<UpdateFolder>& updates_;
  uint64_t rounds_;
  std::optional<Progress> progress_;
  std::mutex mutex_;  // ranks of this process may warn before there is a progress
};

int run_federate(const FederateArgs& args) {
  check_engine_options(args);
  const Format format = args.common.format();
  train::FederateOptions options = parse_options(args);
  // Where ranks are processes only the server writes, and has the folders.
  const bool one_process = !args.engine.used() || args.engine.comm == "inprocess";
  std::optional<io::FileLock> checkpoint_lock;
  if (one_process) check_outputs(args, checkpoint_lock);
  keep_freed_memory();
  options.seed = seed_of(args);
  const auto task = load_task(args);
  fit_clients(args, *task, options);
  if (one_process) note_idle_patterns(parse_codecs(args.codecs).front(), task->manifest());  // all have the same patterns
  std::optional<UpdateFolder> updates;
  if (!args.save_updates.empty()) updates.emplace(args.save_updates, task->manifest());

  FederateReport report(options, args.task, args.engine.comm, args.common.json, format);
  Watch watch(report, updates, options.rounds);
  const train::FederateCallbacks callbacks = watch.callbacks();

  const auto finish = [&](const train::FederateResult& result) {
    watch.clear();
    if (result.stopped) return stop(args);
    report.summary(result.codecs);
    if (!args.plot.empty()) {
      plot_accuracy(args.plot,
                    fmt::format("{}, {} clients a round, seed {}", args.task, options.clients_per_round, options.seed),
                    result.codecs);
      report.wrote(args.plot);
    }
    if (updates) report.wrote(str(args.save_updates, ": ", updates->saved(), " updates of round ", options.rounds));
    if (!args.checkpoint.empty()) report.wrote(args.checkpoint);
    return static_cast<int>(kExitOk);
  };
  const DeferInterrupt defer(true);
  if (!args.engine.used()) {
    report.header(*task);
    return finish(train::federate(*task, options, callbacks));
  }

  const train::ServerOptions server = server_options(args);
  std::vector<std::unique_ptr<comm::Exchange>> ranks = open_engine(args.engine);
  std::unique_ptr<comm::Exchange> first = std::move(ranks[0]);
  if (first->size() < 2) usage("--comm ", args.engine.comm, ": 2 ranks or more are needed, a server and one that trains");
  if (first->rank() != 0) {
    train::FederateCallbacks quiet;
    quiet.stopped = callbacks.stopped;
    train::federate_rank(*task, options, quiet, *first, server);
    return kExitOk;
  }
  if (!one_process) check_outputs(args, checkpoint_lock);
  report.header(*task);
  ranks.erase(ranks.begin());
  const std::function<void(const std::string&)> warn = [&](const std::string& text) { watch.warn(text); };
  const TrainingRanks training(std::move(ranks), *task, options, server, warn);
  // Ends before the ranks of this process, which wait for it; by unwinding if the server fails, which tells MPI not to wait for
  // ranks that wait for it; and after the results are out, for a late rank may keep it waiting.
  const std::unique_ptr<comm::Exchange> own = std::move(first);
  return finish(train::federate_server(*task, options, callbacks, *own, server));
}

void add_training_options(CLI::App& app, FederateArgs& args) {
  add(app, "--rounds", args.rounds, "R", "rounds for each codec (default 100)");
  add(app, "--clients", args.clients, "N", "clients that hold data (default 300)");
  add(app, "--examples-per-client", args.examples_per_client, "N", "images of each (default 200)");
  add(app, "--alpha", args.alpha, "A", "of the Dirichlet split by class; small: few classes a client (default 0.3)");
  add(app, "--clients-per-round", args.clients_per_round, "N", "clients that train in a round (default 10)");
  add(app, "--local-epochs", args.local_epochs, "N", "passes over a client's examples in a round (default 1)");
  add(app, "--batch", args.batch, "N", "examples in a step of a client (default 20; shakespeare-lstm: 4)");
  add(app, "--client-lr", args.client_lr, "LR",
      "rate of the clients' SGD (default 0.1; emnist-cnn: 0.0316; shakespeare-lstm: 1)");
  add(app, "--server", args.server, "sgd|adam", "the server's optimizer (default adam)");
  add(app, "--server-lr", args.server_lr, "LR",
      "its rate (default 0.00316 for adam, 0.01 with shakespeare-lstm; 1 for sgd: plain averaging)");
  add(app, "--server-beta1", args.beta1, "B", "of adam (default 0.9)");
  add(app, "--server-beta2", args.beta2, "B", "of adam (default 0.99)");
  add(app, "--server-eps", args.eps, "E", "of adam (default 1e-4; shakespeare-lstm: 1e-3)");
  add(app, "--server-momentum", args.momentum, "M", "of sgd (default 0)");
  add(app, "--sampling", args.sampling, "uniform|weighted", "how clients are drawn; weighted: by their number of examples");
  add(app, "--weights", args.weights, "examples|uniform", "of updates (default examples; uniform with --sampling weighted)");
  add(app, "--error-feedback", args.error_feedback,
      "clients send what their last message lost, for scale=biased; 4 bytes of memory a parameter and client; not with --comm");
  add(app, "--drop", args.drop, "P", "probability that a client vanishes after it got the model (default 0)");
  add(app, "--clip", args.clip, "NORM", "shorten longer updates to this L2 norm before encoding");
}

void add_options(CLI::App& app, FederateArgs& args) {
  add(app, "--task", args.task, "NAME",
      "fashion-cnn (default) and emnist-cnn: the EMNIST network of EDEN's experiments; shakespeare-lstm: their text network");
  add(app, "--data", args.data, "PATH",
      "a folder of images in IDX form (Fashion-MNIST, MNIST, EMNIST; .gz or not; default: Debian's dataset-fashion-mnist), or "
      "a file of roles, a JSON line {\"client\": ..., \"text\": ...} each");
  add(app, "--codec", args.codecs, "SPEC",
      str("of the clients' updates (default eden:bits=1; `kpd codecs` lists them); may be repeated: one run each; ",
          kPatternHelp));
  add(app, "--downlink", args.downlink, "SPEC",
      "float32 (default) or bf16: the whole model; another codec: the difference, with what it lost sent again");
  add_training_options(app, args);
  add(app, "--eval-every", args.eval_every, "N", "rounds between tests (default 5; and after each of the last 10)");
  add(app, "--save-updates", args.save_updates, "DIR",
      "write the updates of the first codec's last round, one .safetensors a client; not with --comm");
  add(app, "--force", args.force, "let --save-updates replace the updates of an earlier run");
  add(app, "--plot", args.plot, "FILE.png", "draw accuracy over rounds and megabytes (gnuplot)");
  add(app, "--checkpoint", args.checkpoint, "FILE",
      "keep the state there at every test and on Ctrl-C; a file that exists needs --resume");
  args.engine.default_timeout = kRoundTimeout;
  args.engine.add(app);
  add(app, "--max-norm", args.max_norm, "NORM", "with --comm: reject an update of more than this L2 norm before coding");
  add(app, "--resume", args.resume,
      "continue from --checkpoint, with the same bits; --rounds, --eval-every, --threads, --json, --plot and --max-norm may "
      "differ");
  args.common.add_seed(app, "; with --comm 1, for all ranks need the same; with --resume but no --comm the checkpoint's");
  args.common.add_threads(app);
  args.common.add_json(app);
  args.common.add_format(app, ": a row a codec");
}

}  // namespace

Command federate_command() {
  return {"federate",
          "train a network on compressed updates of many clients",
          {"kpd federate --task fashion-cnn --codec eden:bits=1 --rounds 1 --clients-per-round 4 --seed 1"},
          [](CLI::App& app) {
            auto args = std::make_shared<FederateArgs>();
            add_options(app, *args);
            return [args] { return run_federate(*args); };
          }};
}

}  // namespace kpd::tool
