// tools: `kpd serve`, a language model behind OpenAI's HTTP interface.
#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <future>
#include <memory>
#include <thread>

#include "chat_options.h"
#include "cli.h"
#include "commands.h"
#include "kpd/base/error.h"
#include "kpd/llm/sampling_defaults.h"
#include "model_options.h"
#include "say.h"
#include "serve/access.h"
#include "serve/front.h"
#include "signals.h"

namespace kpd::tool {
namespace {

struct ServeArgs {
  CommonOptions common;
  ModelArgs which;
  ModelOptions model;
  AccessOptions access;
  ChatArgs templates;
  CacheOptions cache;
  std::string path, host, port, ctx, parallel, max_queue, timeout, cache_ram, name;
  bool log = false;
};

// What the command line says by itself, checked before a model is read. No context: the model's.
llm::SchedulerOptions scheduler_options(const ServeArgs& args) {
  llm::SchedulerOptions o;
  if (!args.ctx.empty()) o.context = parse_context(args.ctx, 2);
  o.n_slots = parse_count("--parallel", args.parallel.empty() ? "4" : args.parallel, 1, 256);
  o.max_queue = parse_count("--max-queue", args.max_queue.empty() ? "256" : args.max_queue, 0, 1 << 16);
  o.chunk = args.model.chunk();
  o.cache = args.cache.spec();
  o.kept_bytes = parse_count("--cache-ram", args.cache_ram.empty() ? "1024" : args.cache_ram, 0, uint64_t{1} << 24) << 20;
  return o;
}

// SIGTERM is how a server is told to end: that it did is no failure.
int exit_of_signal() { return interrupt_signal() == SIGTERM ? kExitOk : kExitInterrupt; }

std::string model_name(const ServeArgs& args) {
  if (!args.name.empty()) return args.name;
  namespace fs = std::filesystem;
  fs::path path = fs::absolute(args.path).lexically_normal();
  if (!path.has_filename()) path = path.parent_path();
  return path.extension() == ".gguf" ? path.stem().string() : path.filename().string();
}

// Runs `work` on a thread of its own, so that Ctrl-C and SIGTERM end the program while it goes on: it has nothing to tidy up.
template <class Work>
auto unless_interrupted(HttpServer& http, const Work& work) {
  std::packaged_task<decltype(work())()> task(work);
  auto result = task.get_future();
  std::thread thread(std::move(task));
  while (result.wait_for(std::chrono::milliseconds(20)) != std::future_status::ready && !interrupted()) {
  }
  if (interrupted()) {
    http.stop();
    std::_Exit(exit_of_signal());
  }
  thread.join();
  return result.get();
}

// Everything behind the port. What it refers to, it holds.
struct Serving {
  Serving(LoadedModel model, const llm::SchedulerOptions& options)
      : tokenizer(std::move(model.tokenizer)),
        model_bytes(model.model.memory_bytes()),
        scheduler(std::move(model.model), tokenizer, options),
        service{scheduler, tokenizer} {}

  llm::SamplingDefaults sampling;  // where a request says nothing
  text::Tokenizer tokenizer;
  uint64_t model_bytes;
  llm::Scheduler scheduler;
  Service service;
};

std::unique_ptr<Serving> load(const ServeArgs& args, llm::SchedulerOptions& options, int threads) {
  OpenedModel opened = open_model(args.path);
  llm::SamplingDefaults sampling = llm::sampling_defaults(args.path, opened.weights.gguf().get());
  std::optional<text::ChatTemplate> chat;
  std::string no_chat;
  try {
    chat = choose_template(args.templates, opened.tokenizer);
  } catch (const Error& e) {
    if (!args.templates.template_text.empty()) throw;
    no_chat = e.what();
    say("note: no chat: {}\n", e.what());
  }
  LoadedModel loaded = load_model(std::move(opened), args.model.arithmetic(llm::Arithmetic::kFast), threads);
  options.context = context_or_default(options.context, loaded.model.description());
  note_long_context(options.context, loaded.model.description());
  auto serving = std::make_unique<Serving>(std::move(loaded), options);
  serving->sampling = std::move(sampling);
  serving->service.chat = std::move(chat);
  serving->service.no_chat = std::move(no_chat);
  return serving;
}

void announce(const ServeArgs& args, const Serving& serving, const llm::SchedulerOptions& options, const std::string& host,
              int port) {
  say("cache of keys and values: {} when full ({}, {} x {} tokens, and up to {} MiB of earlier conversations: --cache-ram)\n",
      binary_size(serving.scheduler.stats().cache_capacity_bytes), options.cache, options.n_slots, options.context,
      options.kept_bytes >> 20);
  say("sampling, where a request says nothing: {}\n", serving.sampling.text());
  if (!serving.sampling.ignored.empty())
    say("note: the model's files ask for {}, which kpd does not do\n", serving.sampling.ignored);
  if (!is_loopback(host) && serving.service.api_keys.empty())
    say("note: {} can be reached by others and no key is needed (--api-key-file, --api-key)\n", host);
  if (is_loopback(host) && serving.service.api_keys.empty() &&
      std::count(args.access.origins.begin(), args.access.origins.end(), "*") > 0)
    say("note: every page that a browser here shows may use this server (--cors-origin *) and no key is needed\n");
  say("{} on http://{}:{}/v1 for OpenAI's clients and on http://{}:{}/ for people, {} requests at once, {} tokens each; Ctrl-C "
      "ends\n",
      serving.service.model, in_url(host), port, in_url(host), port, options.n_slots, options.context);
}

int run_serve(ServeArgs& args) {
  args.path = args.which.model();
  const std::vector<std::string> keys = read_keys(args.access);
  const std::string host = args.host.empty() ? "127.0.0.1" : args.host;
  const auto port = static_cast<int>(parse_count("--port", args.port.empty() ? "8080" : args.port, 0, 65535));
  const auto timeout = static_cast<int>(parse_count("--timeout", args.timeout.empty() ? "600" : args.timeout, 1, 86400));
  llm::SchedulerOptions options = scheduler_options(args);
  const text::ChatOptions chat_options = args.templates.options();
  const int threads = args.common.threads();
  const DeferInterrupt defer(true);
  HttpLimits limits;
  limits.hosts = host_names(host, args.access.allowed_hosts);
  limits.origins = read_origins(args.access.origins);
  // Each waiting request holds a connection; some more can still be told that the queue is full.
  limits.connections = std::min<size_t>(options.n_slots + options.max_queue + 32, 1024);
  // The port is taken before the model is read: a port in use is said at once, and who asks meanwhile is told to wait.
  std::unique_ptr<Serving> serving;
  Front front;
  HttpServer http(limits);  // ends before what it answers from
  const int bound = http.bind(host, port);
  add_routes(http, front, model_name(args));
  if (args.log) http.on_done([](const HttpRecord& record) { say("{}", log_line(record, std::chrono::system_clock::now())); });
  http.start();
  serving = unless_interrupted(http, [&] { return load(args, options, threads); });
  Service& service = serving->service;
  service.model = model_name(args);
  service.created =
      std::chrono::duration_cast<std::chrono::seconds>(std::chrono::system_clock::now().time_since_epoch()).count();
  service.model_bytes = serving->model_bytes;
  service.sampling = serving->sampling.options;
  service.timeout_seconds = timeout;
  service.max_requests = options.n_slots + options.max_queue;
  service.api_keys = keys;
  service.chat_options = chat_options;
  service.special_in_content = args.templates.special_in_content;
  front.service.store(&service);
  announce(args, *serving, options, host, bound);
  while (!interrupted() && http.failure().empty()) std::this_thread::sleep_for(std::chrono::milliseconds(50));
  serving->scheduler.stop();
  http.stop();
  const llm::SchedulerStats stats = serving->scheduler.stats();
  say("{} answers, {} tokens; {} cancelled\n", stats.finished, stats.tokens, stats.cancelled);
  if (!http.failure().empty()) fail(ErrorCode::kIo, http.failure());
  return exit_of_signal();
}

}  // namespace

Command serve_command() {
  return {
      "serve",
      "answer OpenAI's HTTP interface with a language model",
      {"kpd serve MODEL.gguf --port 8080 --parallel 4"},
      [](CLI::App& app) {
        auto args = std::make_shared<ServeArgs>();
        args->which.add(app);
        add(app, "--host", args->host, "ADDRESS", "where to listen (default 127.0.0.1: this machine alone)");
        add(app, "--allowed-host", args->access.allowed_hosts, "NAME",
            "what requests may call this server beside localhost and --host, behind a proxy (may be given several times)");
        add(app, "--cors-origin", args->access.origins, "SITE",
            "site whose pages may use this server, as https://chat.example; *: all (may be given several times)");
        add(app, "--port", args->port, "N", "port (default 8080; 0: any that is free)");
        add(app, "-c,--ctx", args->ctx, "N", "tokens of each prompt and answer (default: the model's, at most 8192)");
        add(app, "--parallel", args->parallel, "N", "requests computed at once (default 4)");
        add(app, "--max-queue", args->max_queue, "N", "requests that may wait (default 256); more are rejected with 503");
        add(app, "--timeout", args->timeout, "S", "seconds without a token until a request is given up (default 600)");
        CLI::Option* key =
            add(app, "--api-key", args->access.key, "KEY",
                "reject requests without this key; other users of the machine see it, so rather the next, or KPD_API_KEY");
        CLI::Option* key_file = add(app, "--api-key-file", args->access.key_file, "FILE", "keys, one a line; each opens");
        add(app, "--log", args->log, "a line on stderr for each request");
        add(app, "--name", args->name, "TEXT", "the model's name for clients (default: the file's)");
        args->templates.add_options(app);
        add(app, "--cache-ram", args->cache_ram, "MIB",
            "memory for conversations that no slot holds any more, so that they go on without being read again (default 1024)");
        args->cache.add(app);
        args->model.add_arithmetic(app, "fast");
        args->model.add_chunk(app);
        args->common.add_threads(app);
        return [args, key, key_file] {
          args->access.has_key = was_given(key);
          args->access.has_key_file = was_given(key_file);
          return run_serve(*args);
        };
      }};
}

}  // namespace kpd::tool
