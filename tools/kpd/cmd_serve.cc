// tools: `kpd serve`, a language model behind OpenAI's HTTP interface.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <thread>

#include <fmt/format.h>

#include "cli.h"
#include "commands.h"
#include "http_request.h"
#include "kpd/base/error.h"
#include "model_options.h"
#include "serve_openai.h"
#include "signals.h"

namespace kpd::tool {
namespace {

struct ServeArgs {
  CommonOptions common;
  ModelOptions model;
  std::string path, host, port, ctx, parallel, api_key, max_queue, timeout, kv, chat_template, name;
  std::vector<std::string> allowed_hosts;
  bool has_key = false;
};

// What the command line says by itself, checked before a model is read. No context: the model's.
llm::SchedulerOptions scheduler_options(const ServeArgs& args) {
  llm::SchedulerOptions o;
  if (!args.ctx.empty()) o.context = parse_count("--ctx", args.ctx, 2, 1 << 24);
  o.n_slots = parse_count("--parallel", args.parallel.empty() ? "4" : args.parallel, 1, 256);
  o.max_queue = parse_count("--max-queue", args.max_queue.empty() ? "256" : args.max_queue, 0, 1 << 16);
  o.chunk = args.model.chunk();
  o.cache = args.kv.empty() ? "f16" : args.kv;
  as_usage("--kv", [&] { return llm::make_cache(o.cache, {}, 1, 1); });
  return o;
}

// A request's silence about sampling means what the model's own configuration asks for, and else OpenAI's temperature of 1.
llm::SamplingOptions default_sampling(const std::string& path) {
  llm::SamplingOptions o;
  o.temperature = 1;
  std::error_code ignored;
  return std::filesystem::is_directory(path, ignored) ? llm::sampling_of_folder(path, o) : o;
}

std::string model_name(const ServeArgs& args) {
  if (!args.name.empty()) return args.name;
  namespace fs = std::filesystem;
  fs::path path = fs::absolute(args.path).lexically_normal();
  if (!path.has_filename()) path = path.parent_path();
  return path.extension() == ".gguf" ? path.stem().string() : path.filename().string();
}

void find_chat_family(std::optional<llm::ChatFamily> given, Service& service) {
  service.family = given;
  if (given) return;
  try {
    service.family = llm::recognise_chat_template(service.tokenizer.chat_template());
  } catch (const Error& e) {
    service.no_chat = e.what();
    fmt::print(stderr, "note: no chat: {} (--chat-template)\n", e.what());
  }
}

bool is_loopback(const std::string& host) { return host == "localhost" || host == "::1" || host.starts_with("127."); }

// What requests may call a server on `host`. One that all the network can reach has names that it does not know.
std::vector<std::string> host_names(const std::string& host, const std::vector<std::string>& allowed) {
  if (!is_loopback(host) && allowed.empty()) return {};
  std::vector<std::string> names{"localhost", "127.0.0.1", "[::1]"};
  names.push_back(host_name(host.find(':') == std::string::npos ? host : "[" + host + "]"));
  for (std::string name : allowed) {
    if (std::count(name.begin(), name.end(), ':') > 1 && !name.starts_with('[')) name = "[" + name + "]";
    if (name.empty() || name.find_first_of("/@ ") != std::string::npos || host_name(name).size() != name.size())
      usage("--allowed-host: expected a name or an address without a port, not '", name, "'");
    names.push_back(host_name(name));
  }
  return names;
}

// What a client can put into a header as it is.
void check_key(const std::string& key) {
  const auto visible = [](char c) { return c > ' ' && c < 0x7F; };
  if (key.empty() || !std::all_of(key.begin(), key.end(), visible))
    usage("--api-key: expected visible ASCII characters, no spaces, at least one");
}

HttpReply failure(int status, const std::string& text) {
  if (!text.empty()) return ApiError(status, text).reply();
  switch (status) {
    case 404:
      return ApiError(404, "there is no such path; see /v1/models, /v1/completions, /v1/chat/completions").reply();
    case 405:
      return ApiError(405, "the path does not take this method").reply();
    default:
      return ApiError(status, status < 500 ? "not a valid HTTP request" : "internal error").reply();
  }
}

void add_routes(HttpServer& http, const Service& service) {
  http.on_error(failure);
  http.get("/", guarded(service, serve_page, true));  // it asks for the key itself
  http.get("/health", guarded(service, serve_health, true));
  http.get("/v1/models", guarded(service, serve_models));
  http.get("/v1/models/" + service.model, guarded(service, [](const Service& s, const HttpRequest&) {
             return json_reply({{"id", s.model}, {"object", "model"}, {"created", s.created}, {"owned_by", "kpd"}});
           }));
  http.get("/metrics", guarded(service, serve_metrics));
  http.get("/tokenizer_info", guarded(service, serve_tokenizer_info));
  http.post("/tokenize", guarded(service, serve_tokenize));
  http.post("/detokenize", guarded(service, serve_detokenize));
  http.post("/v1/completions", guarded(service, serve_completions));
  http.post("/v1/chat/completions", guarded(service, serve_chat));
}

int run_serve(const ServeArgs& args) {
  if (args.path.empty()) usage("MODEL is required: a GGUF file or a Hugging Face folder");
  if (args.has_key) check_key(args.api_key);
  const std::string host = args.host.empty() ? "127.0.0.1" : args.host;
  const auto port = static_cast<int>(parse_count("--port", args.port.empty() ? "8080" : args.port, 0, 65535));
  const auto timeout = static_cast<int>(parse_count("--timeout", args.timeout.empty() ? "600" : args.timeout, 1, 86400));
  llm::SchedulerOptions options = scheduler_options(args);
  std::optional<llm::ChatFamily> family;
  if (!args.chat_template.empty()) family = as_usage("--chat-template", [&] { return llm::chat_family(args.chat_template); });
  const DeferInterrupt defer(true);
  HttpLimits limits;
  limits.hosts = host_names(host, args.allowed_hosts);
  // Each waiting request holds a connection; some more can still be told that the queue is full.
  limits.connections = std::min<size_t>(options.n_slots + options.max_queue + 32, 1024);
  // The port is taken before the model is read: a port in use is said at once.
  HttpServer http(limits);
  const int bound = http.bind(host, port);
  LoadedModel loaded = load_model(args.path, args.model.arithmetic(llm::Arithmetic::kFast), args.common.threads());
  const size_t trained = loaded.model.description().max_context;
  if (options.context == 0) options.context = std::min<size_t>(trained, 8192);
  if (options.context > trained)
    fmt::print(stderr, "note: --ctx {} is more than the {} that the model was trained for\n", options.context, trained);
  const uint64_t model_bytes = loaded.model.memory_bytes();
  llm::Scheduler scheduler(std::move(loaded.model), loaded.tokenizer, options);
  Service service{scheduler, loaded.tokenizer};
  service.model = model_name(args);
  service.created =
      std::chrono::duration_cast<std::chrono::seconds>(std::chrono::system_clock::now().time_since_epoch()).count();
  service.model_bytes = model_bytes;
  service.sampling = default_sampling(args.path);
  service.timeout_seconds = timeout;
  service.max_requests = options.n_slots + options.max_queue;
  service.api_key = args.api_key;
  find_chat_family(family, service);
  add_routes(http, service);
  http.start();
  if (!is_loopback(host) && args.api_key.empty())
    fmt::print(stderr, "note: {} can be reached by others and no --api-key is set\n", host);
  fmt::print(stderr, "{} on http://{}:{}/v1, {} requests at once, {} tokens each; Ctrl-C ends\n", service.model, host, bound,
             options.n_slots, options.context);
  while (!interrupted() && http.failure().empty()) std::this_thread::sleep_for(std::chrono::milliseconds(50));
  scheduler.stop();
  http.stop();
  const llm::SchedulerStats stats = scheduler.stats();
  fmt::print(stderr, "{} answers, {} tokens; {} cancelled\n", stats.finished, stats.tokens, stats.cancelled);
  if (!http.failure().empty()) fail(ErrorCode::kIo, http.failure());
  return kExitInterrupt;
}

}  // namespace

Command serve_command() {
  return {"serve",
          "answer OpenAI's HTTP interface with a language model",
          {"kpd serve MODEL.gguf --port 8080 --parallel 4"},
          [](CLI::App& app) {
            auto args = std::make_shared<ServeArgs>();
            add_positional(app, "MODEL", args->path, "GGUF file or Hugging Face folder");
            add(app, "--host", args->host, "ADDRESS", "where to listen (default 127.0.0.1: this machine alone)");
            add(app, "--allowed-host", args->allowed_hosts, "NAME",
                "what requests may call this server beside localhost and --host, behind a proxy (may be given several times)");
            add(app, "--port", args->port, "N", "port (default 8080; 0: any that is free)");
            add(app, "--ctx", args->ctx, "N", "tokens of each prompt and answer (default: the model's, at most 8192)");
            add(app, "--parallel", args->parallel, "N", "requests computed at once (default 4)");
            add(app, "--max-queue", args->max_queue, "N", "requests that may wait (default 256); more are refused with 503");
            add(app, "--timeout", args->timeout, "S", "seconds until an unfinished request is given up (default 600)");
            CLI::Option* key = add(app, "--api-key", args->api_key, "KEY", "refuse requests without this key");
            add(app, "--name", args->name, "TEXT", "the model's name for clients (default: the file's)");
            add(app, "--chat-template", args->chat_template, "NAME",
                "chatml, llama2, llama3, mistral, gemma, phi3 or qwen (default: recognised)");
            add(app, "--kv", args->kv, "SPEC", "cache of keys and values: f16 (default), bf16, f32");
            args->model.add_arithmetic(app, "fast");
            args->model.add_chunk(app);
            args->common.add_threads(app);
            return [args, key] {
              args->has_key = was_given(key);
              return run_serve(*args);
            };
          }};
}

}  // namespace kpd::tool
