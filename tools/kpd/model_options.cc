#include "model_options.h"

#include <algorithm>
#include <array>
#include <filesystem>

#include <fmt/format.h>

#include "kpd/base/clock.h"
#include "kpd/cache/kv_cache.h"
#include "kpd/llm/generate.h"
#include "progress.h"
#include "say.h"

namespace kpd::tool {
namespace {

namespace fs = std::filesystem;

}  // namespace

void ModelArgs::add(CLI::App& app, const std::string& more) {
  add_positional(app, "MODEL", words, kModelHelp + more);
  tool::add(app, "-m,--model", named, "MODEL", "MODEL by an option");
}

std::vector<std::string> ModelArgs::models() const {
  std::vector<std::string> all = words;
  all.insert(all.end(), named.begin(), named.end());
  if (all.empty()) usage("MODEL is required: a GGUF file or a Hugging Face folder");
  return all;
}

std::string ModelArgs::model(std::vector<std::string>& more, size_t n_more, const char* what) const {
  if (named.size() > 1) usage("--model ", named[1], ": one model, please; --model ", named[0], " was given already");
  more = words;
  std::string path;
  if (!named.empty()) {
    path = named[0];
  } else if (!more.empty()) {
    path = more[0];
    more.erase(more.begin());
  }
  if (path.empty()) usage("MODEL is required: a GGUF file or a Hugging Face folder");
  if (more.size() > n_more) usage("'", more[n_more], "': ", what);
  return path;
}

std::string ModelArgs::model() const {
  std::vector<std::string> none;
  return model(none, 0, "there is no more to give than MODEL");
}

void ModelOptions::add_arithmetic(CLI::App& app, const char* otherwise) {
  add(app, "--arithmetic", arithmetic_text, "NAME",
      fmt::format("exact: float activations, dequantized weights; fast: 8-bit activations, integer products (default {})",
                  otherwise));
}

void ModelOptions::add_chunk(CLI::App& app) {
  add(app, "--chunk", chunk_text, "N", "tokens of a prompt per step (default 512)");
}

llm::Arithmetic ModelOptions::arithmetic(llm::Arithmetic otherwise) const {
  if (arithmetic_text.empty()) return otherwise;
  constexpr std::array<std::string_view, 2> kNames = {"exact", "fast"};
  return parse_choice("--arithmetic", arithmetic_text, kNames) == 0 ? llm::Arithmetic::kExact : llm::Arithmetic::kFast;
}

size_t ModelOptions::chunk() const { return parse_count("--chunk", chunk_text.empty() ? "512" : chunk_text, 1, 1 << 20); }

text::Tokenizer load_tokenizer(const std::string& path, const io::GgufMetadata* gguf) {
  std::error_code ignored;
  if (gguf == nullptr || fs::exists(fs::path(path) / "tokenizer.json", ignored)) return text::Tokenizer::from_directory(path);
  return text::Tokenizer::from_gguf(*gguf);
}

OpenedModel open_model(const std::string& path) {
  const Clock::time_point start = Clock::now();
  const Progress progress("open", 0, "");
  io::Weights weights = io::Weights::open(path, {}, io::OtherTensors::kKeep);
  std::optional<llm::ModelDescription> description = llm::describe_weights(weights);
  if (!description) {
    fail(ErrorCode::kIo, path,
         ": not a model that kpd reads: expected a GGUF file, or a folder with config.json and model.safetensors");
  }
  text::Tokenizer tokenizer = load_tokenizer(path, weights.gguf().get());
  return {path, std::move(weights), std::move(tokenizer), *std::move(description), seconds_since(start)};
}

namespace {

llm::Model lay_out(io::Weights weights, llm::Arithmetic arithmetic, int threads) {
  Progress progress("load", weights.bytes(), "bytes");
  llm::LoadOptions options{.arithmetic = arithmetic, .n_threads = threads, .limits = {}, .on_progress = {}};
  options.on_progress = [&progress](uint64_t bytes) { progress.tick(bytes); };
  return llm::Model::load(std::move(weights), options);
}

}  // namespace

LoadedModel load_model(OpenedModel opened, llm::Arithmetic arithmetic, int threads) {
  const Clock::time_point start = Clock::now();
  llm::Model model = lay_out(std::move(opened.weights), arithmetic, threads);
  const double seconds = opened.seconds + seconds_since(start);
  for (const std::string& note : opened.tokenizer.notes()) say("note: {}: {}\n", opened.path, note);
  say("{}: {}, {} layers, {:.1f} M parameters; {} in the file, {} laid out in memory; {} arithmetic, {} thread{}; {:.2f} s\n",
      opened.path, model.description().family, model.description().layers.size(),
      static_cast<double>(model.n_parameters()) / 1e6, binary_size(model.file_bytes()), binary_size(model.memory_bytes()),
      llm::arithmetic_name(arithmetic), threads, threads == 1 ? "" : "s", seconds);
  return {std::move(model), std::move(opened.tokenizer), seconds};
}

LoadedModel load_model(const std::string& path, llm::Arithmetic arithmetic, int threads) {
  return load_model(open_model(path), arithmetic, threads);
}

void CacheOptions::add(CLI::App& app) {
  tool::add(app, "--kv", kv, "SPEC", str("cache of keys and values: ", kCacheNames, " (default f16)"));
  tool::add(app, "--cache-type-k", k, "TYPE", "keys alone (-ctk): with -ctv the same as --kv ggml:k=TYPE,v=TYPE");
  tool::add(app, "--cache-type-v", v, "TYPE", "values alone (-ctv); what is not given is f16");
}

std::string CacheOptions::spec() const {
  const bool sides = !k.empty() || !v.empty();
  if (sides && !kv.empty()) usage("--kv and --cache-type-", k.empty() ? "v" : "k", ": give one of them");
  std::string spec = sides ? str("ggml:k=", k.empty() ? "f16" : k, ",v=", v.empty() ? "f16" : v) : kv.empty() ? "f16" : kv;
  as_usage(sides ? "--cache-type" : "--kv", [&] { cache::check_spec(spec); });
  return spec;
}

namespace {

void check_kv_layers(const std::string& kv, const std::vector<std::string>& layers, size_t n_layers) {
  as_usage("--kv", [&] { cache::check_spec(kv); });
  as_usage("--kv-layer", [&] { return cache::layer_specs(kv, layers, n_layers); });
}

}  // namespace

void check_kv_layers(const std::string& kv, const std::vector<std::string>& layers) {
  constexpr size_t kMostLayers = 1 << 16;
  check_kv_layers(kv, layers, kMostLayers);
}

void check_kv_layers(const std::string& kv, const std::vector<std::string>& layers, const llm::Model& model) {
  check_kv_layers(kv, layers, model.description().layers.size());
}

std::string kv_text(const std::string& kv, const std::vector<std::string>& layers) {
  return layers.empty() ? kv : fmt::format("{} ({})", kv, fmt::join(layers, " "));
}

size_t parse_context(const std::string& text, size_t least) { return parse_count("--ctx", text, least, llm::kMaxContext); }

size_t context_or_default(size_t given, const llm::ModelDescription& description) {
  return given != 0 ? given : llm::usual_context(description);
}

void note_long_context(size_t context, const llm::ModelDescription& description) {
  if (context > description.max_context)
    say("note: --ctx {} is more than the {} that the model was trained for\n", context, description.max_context);
}

std::string binary_size(uint64_t bytes) {
  const auto value = static_cast<double>(bytes);
  if (bytes < uint64_t{1} << 20) return fmt::format("{:.1f} KiB", value / 0x1p10);
  return bytes < uint64_t{1} << 30 ? fmt::format("{:.1f} MiB", value / 0x1p20) : fmt::format("{:.2f} GiB", value / 0x1p30);
}

}  // namespace kpd::tool
