// tools: `kpd plan`, how many bytes a language model needs in each format and what holds it, before anything is downloaded or
// loaded. Weights, cache and what the system needs are counted, not the activations of a step (some MB).
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <memory>
#include <optional>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "cli.h"
#include "commands.h"
#include "files.h"
#include "kpd/base/block_type.h"
#include "kpd/base/error.h"
#include "kpd/io/file.h"
#include "kpd/io/gguf.h"
#include "kpd/io/weights.h"
#include "kpd/cache/kv_cache.h"
#include "kpd/llm/model_description.h"
#include "model_options.h"
#include "quant_mixes.h"

namespace kpd::tool {
namespace {

namespace fs = std::filesystem;

struct PlanArgs {
  CommonOptions common;
  ModelArgs which;
  std::string model, params, ctx, batch, memory, system;
};

constexpr std::string_view kCache = "f16";  // of the columns that count weights and cache together
constexpr double kSystemBytes = 1e9;        // of a machine or an accelerator about which nothing else is known

struct Subject {
  std::string name;
  double parameters = 0;
  std::optional<double> stored_bytes;  // of a model whose weights are here
  std::optional<llm::ModelDescription> description;
  NetworkShape shape;     // the model's, or that of a model like it
  const char* like = "";  // the name of that one
};

struct Memory {
  std::string name;
  double unit_bytes = 0;
  uint64_t units = 1;
  double system_bytes = kSystemBytes;  // of each unit: what others need
  double bytes() const { return unit_bytes * static_cast<double>(units); }
  double free_bytes() const { return std::max(unit_bytes - system_bytes, 0.0) * static_cast<double>(units); }
  uint64_t units_for(double needed) const {
    return static_cast<uint64_t>(std::ceil(needed / std::max(unit_bytes - system_bytes, 1.0)));
  }
};

// "340B", "1.7B", "135M" or a plain number.
double parse_parameters(const std::string& text) {
  double factor = 1;
  std::string number = text;
  if (!number.empty()) {
    constexpr std::string_view kSuffixes = "KMBT";
    const size_t i = kSuffixes.find(static_cast<char>(std::toupper(static_cast<unsigned char>(number.back()))));
    if (i != std::string_view::npos) {
      factor = std::pow(1000.0, static_cast<double>(i + 1));
      number.pop_back();
    }
  }
  const double value = as_usage("--params", [&] {
    try {
      return parse_real("--params", number, 1e-9, 1e18);
    } catch (const UsageError&) {
      usage("--params ", text, ": expected a number of parameters, such as 340B, 1.7B or 135M");
    }
  });
  return std::round(value * factor);
}

// "80GB", "24GiB".
double parse_size(const char* option, const std::string& text, const std::string& whole, const char* more) {
  struct Unit {
    std::string_view name;
    double bytes;
  };
  constexpr std::array<Unit, 6> kUnits = {
      {{"TiB", 0x1p40}, {"GiB", 0x1p30}, {"MiB", 0x1p20}, {"TB", 1e12}, {"GB", 1e9}, {"MB", 1e6}}};
  for (const Unit& unit : kUnits) {
    if (text.ends_with(unit.name))
      return parse_real(option, text.substr(0, text.size() - unit.name.size()), 0, 1e9) * unit.bytes;
  }
  usage(option, " ", whole, ": expected a size such as 80GB or 24GiB", more);
}

// "80GB", "24GiB", "80GBx8".
Memory parse_memory(const std::string& text) {
  Memory memory{text};
  const size_t x = text.find('x');
  if (x != std::string::npos) memory.units = parse_count("--memory", text.substr(x + 1), 1, 1 << 20);
  memory.unit_bytes = parse_size("--memory", text.substr(0, x), text, ", or 80GBx8 for eight of them");
  return memory;
}

// The first number behind `key` in a file of the system.
std::optional<double> number_in(const char* path, std::string_view key) {
  std::ifstream in(path);
  for (std::string line; std::getline(in, line);) {
    if (!line.starts_with(key)) continue;
    double value = 0;
    if (std::sscanf(line.c_str() + key.size(), "%lf", &value) == 1) return value;
  }
  return std::nullopt;
}

// A container's limit counts as the machine's memory.
Memory this_machine() {
  Memory memory{"this machine", static_cast<double>(sysconf(_SC_PHYS_PAGES)) * static_cast<double>(sysconf(_SC_PAGE_SIZE))};
  const auto total = number_in("/proc/meminfo", "MemTotal:"), available = number_in("/proc/meminfo", "MemAvailable:");
  if (total && available) memory.system_bytes = std::max(*total - *available, 0.0) * 1024;
  for (const char* limit : {"/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"}) {
    const auto bytes = number_in(limit, "");
    if (!bytes || *bytes <= 0 || *bytes >= memory.unit_bytes) continue;
    memory.name = "this container";
    memory.unit_bytes = *bytes;
  }
  return memory;
}

// What many models look like, for a bare number of parameters.
llm::ModelDescription like_llama(bool large) {
  llm::ModelDescription d;
  llm::LayerDescription layer;
  layer.n_heads = large ? 64 : 32;
  layer.n_kv_heads = 8;
  layer.key_dim = layer.value_dim = 128;
  layer.d_ff = large ? 28672 : 14336;
  d.layers.assign(large ? 80 : 32, layer);
  d.d_model = large ? 8192 : 4096;
  d.n_vocabulary = 128256;
  return d;
}

llm::ModelDescription read_config(const std::string& path) {
  const io::MappedFile file = map_input(path);
  return llm::describe_config(file.text(), path);
}

Subject read_subject(const PlanArgs& args) {
  Subject subject;
  if (!args.params.empty()) {
    subject.name = args.params + " parameters";
    subject.parameters = parse_parameters(args.params);
    const bool large = subject.parameters >= 25e9;
    subject.like = large ? "Llama 3.1 70B" : "Llama 3.1 8B";
    subject.shape = network_shape(like_llama(large));
    return subject;
  }
  subject.name = args.model;
  if (fs::path(args.model).extension() == ".json") {
    subject.description = read_config(args.model);
  } else {
    const io::Weights weights = io::Weights::open(args.model, {}, io::OtherTensors::kKeep);
    subject.description = llm::describe_weights(weights);
    subject.stored_bytes = static_cast<double>(weights.bytes());
    for (const io::WeightEntry& tensor : weights.tensors()) subject.parameters += static_cast<double>(tensor.count());
  }
  if (!subject.description) {
    subject.like = "Llama 3.1 8B";
    subject.shape = network_shape(like_llama(false));
    return subject;
  }
  subject.shape = network_shape(*subject.description);
  if (!subject.stored_bytes)
    subject.parameters = static_cast<double>(subject.shape.matrix_values() + subject.shape.other_values);
  return subject;
}

// What kpd's cache holds of one sequence of ctx tokens when it is full. `windows`: what would be needed of it, if layers with a
// sliding window kept that alone.
double cache_bytes(const llm::ModelDescription& d, std::string_view kv, uint64_t ctx, bool windows = false) {
  double bytes = 0;
  for (const size_t i : llm::layers_of_cache(d)) {
    const llm::LayerDescription& described = d.layers[i];
    const cache::Layer layer[] = {{described.n_kv_heads, described.key_dim, described.value_dim, described.window}};
    const uint64_t tokens = windows && described.window > 0 ? std::min<uint64_t>(ctx, described.window) : ctx;
    bytes += static_cast<double>(cache::make_cache(kv, layer, tokens, 1)->capacity_bytes());
  }
  return bytes;
}

// Every cache that needs no keys and takes the model's heads, with cache_bytes().
std::vector<std::pair<std::string_view, double>> caches_of(const llm::ModelDescription& d, uint64_t ctx) {
  std::vector<std::pair<std::string_view, double>> caches;
  for (const std::string_view kv : cache::method_names()) {
    if (cache::method_takes_keys(kv)) continue;
    try {
      caches.emplace_back(kv, cache_bytes(d, kv, ctx));
    } catch (const Error& e) {
      if (e.code() != ErrorCode::kUnsupported) throw;
    }
  }
  return caches;
}

size_t windowed_layers(const llm::ModelDescription& d) {
  return static_cast<size_t>(
      std::count_if(d.layers.begin(), d.layers.end(), [](const auto& layer) { return layer.window > 0; }));
}

// What people have: one machine of a common size, or 80 GB accelerators. Something of each is the system's.
std::string holds(double bytes) {
  constexpr std::array<uint32_t, 15> kCommon = {4, 8, 12, 16, 24, 32, 48, 64, 80, 96, 128, 192, 256, 512, 1024};
  const auto accelerators = static_cast<uint64_t>(std::ceil(bytes / (80e9 - kSystemBytes)));
  const std::string several = accelerators <= 8 ? fmt::format("{} x 80 GB", accelerators)
                                                : fmt::format("{} nodes of 8 x 80 GB", (accelerators + 7) / 8);
  for (const uint32_t size : kCommon) {
    if (bytes <= size * 1e9 - kSystemBytes) return fmt::format("{} GB", size) + (accelerators > 1 ? ", or " + several : "");
  }
  return several;
}

struct Row {
  std::string name;
  double bits = 0, bytes = 0, total = 0;  // total: with the cache
  bool fits = false;
  uint64_t units = 0;  // of the memory stated
};

// Bytes of `subject` in a mix: those of its matrices, or as many bits a weight as a model like it has.
double bytes_in(std::string_view mix, const Subject& subject) {
  const auto values = static_cast<double>(subject.shape.matrix_values() + subject.shape.other_values);
  if (subject.description) return static_cast<double>(mix_bytes(mix, subject.shape));
  // Plain floats are as wide in every matrix and everywhere else.
  const auto types = block_types();
  const auto plain = std::find_if(types.begin(), types.end(),
                                  [&](const BlockTypeInfo& type) { return type.block_values == 1 && type.name == mix; });
  const double bytes = plain != types.end() ? static_cast<double>(plain->block_bytes)
                                            : static_cast<double>(mix_bytes(mix, subject.shape)) / values;
  return subject.parameters * bytes;
}

std::vector<Row> weight_rows(const Subject& subject, double cache, const Memory& memory) {
  std::vector<Row> rows;
  const double values = subject.description ? static_cast<double>(subject.shape.matrix_values() + subject.shape.other_values)
                                            : subject.parameters;
  if (subject.stored_bytes)
    rows.push_back({"as stored", 8 * *subject.stored_bytes / std::max(subject.parameters, 1.0), *subject.stored_bytes});
  for (const std::string_view mix : mix_names()) {
    const double bytes = bytes_in(mix, subject);
    rows.push_back({std::string(mix), 8 * bytes / std::max(values, 1.0), bytes});
  }
  const double others = subject.description ? static_cast<double>(subject.shape.other_values) : 0;
  rows.push_back({"2 bits", 2, ((values - others) * 2 + others * 16) / 8});
  for (Row& row : rows) {
    row.total = row.bytes + cache;
    row.fits = row.total <= memory.free_bytes();
    row.units = memory.units_for(row.total);
  }
  return rows;
}

nlohmann::ordered_json to_json(const Subject& subject, const std::vector<Row>& rows, const Memory& memory, uint64_t ctx,
                               uint64_t batch) {
  nlohmann::ordered_json object = {
      {"model", subject.name},
      {"parameters", subject.parameters},
      {"ctx", ctx},
      {"batch", batch},
      {"memory",
       {{"name", memory.name}, {"bytes", memory.bytes()}, {"units", memory.units}, {"system_bytes", memory.system_bytes}}}};
  object["weights"] = nlohmann::ordered_json::array();
  for (const Row& row : rows) {
    object["weights"].push_back({{"format", row.name},
                                 {"bits", row.bits},
                                 {"bytes", row.bytes},
                                 {"bytes_with_cache", row.total},
                                 {"fits", row.fits},
                                 {"units_needed", row.units},
                                 {"held_by", holds(row.total)}});
  }
  object["caches"] = nlohmann::ordered_json::array();
  if (!subject.description) return object;
  for (const auto& [kv, one] : caches_of(*subject.description, ctx)) {
    object["caches"].push_back(
        {{"kv", kv},
         {"bytes", one * static_cast<double>(batch)},
         {"bytes_per_sequence", one},
         {"bytes_in_windows", cache_bytes(*subject.description, kv, ctx, true) * static_cast<double>(batch)}});
  }
  return object;
}

std::string size_text(double bytes) {
  const bool large = bytes >= 1e9;
  return fmt::format("{:.4g} {} = {:.4g} {}", bytes / (large ? 1e9 : 1e6), large ? "GB" : "MB",
                     bytes / (large ? 0x1p30 : 0x1p20), large ? "GiB" : "MiB");
}

std::string parameters_text(double n) {
  return n >= 1e9 ? fmt::format("{:.4g} B", n / 1e9) : n >= 1e6 ? fmt::format("{:.4g} M", n / 1e6) : fmt::format("{:.0f}", n);
}

void print_caches(const llm::ModelDescription& d, uint64_t ctx, uint64_t batch) {
  fmt::print("cache of keys and values, {} x {} tokens\n", batch, ctx);
  const auto sequences = static_cast<double>(batch);
  for (const auto& [kv, one] : caches_of(d, ctx)) fmt::print("  {:<10} {}\n", kv, size_text(one * sequences));
  if (const size_t n = windowed_layers(d); n > 0)
    fmt::print("  {} of {} layers see a sliding window only; kpd keeps all of them whole (windows alone: {} in {})\n", n,
               d.layers.size(), size_text(cache_bytes(d, kCache, ctx, true) * sequences), kCache);
}

void print_text(const Subject& subject, const std::vector<Row>& rows, const Memory& memory, uint64_t ctx, uint64_t batch) {
  const std::string counted = subject.description ? str(": ", parameters_text(subject.parameters), " parameters") : "";
  fmt::print("{}{}; memory: {}, {}, of which the system has {}{}\n", subject.name, counted, memory.name,
             size_text(memory.bytes()), size_text(memory.system_bytes), memory.units > 1 ? " in each" : "");
  if (subject.description) {
    print_caches(*subject.description, ctx, batch);
  } else {
    fmt::print("the cache is not counted: a number of parameters does not tell it, a config.json does\n");
  }
  fmt::print("weights{}{}\n",
             subject.description ? fmt::format(" (the last columns with the {} cache and the system)", kCache) : "",
             *subject.like != 0 ? fmt::format(" (mixes as of {}; the last columns with the system)", subject.like) : "");
  for (const Row& row : rows) {
    const std::string verdict = row.fits           ? "fits"
                                : memory.units > 1 ? fmt::format("does not fit: {} needed", row.units)
                                                   : std::string("does not fit");
    fmt::print("  {:<10} {:>6.3g} bits  {:<26} {:<14} held by {}\n", row.name, row.bits, size_text(row.bytes), verdict,
               holds(row.total));
  }
}

int run_plan(PlanArgs& args) {
  if (!args.which.words.empty() || !args.which.named.empty()) args.model = args.which.model();
  if (args.model.empty() == args.params.empty()) usage("give either MODEL (a model or its config.json) or --params N");
  const uint64_t batch = args.batch.empty() ? 1 : parse_count("--batch", args.batch, 1, 1 << 20);
  const uint64_t given_ctx = args.ctx.empty() ? 0 : parse_context(args.ctx, 1);
  Memory memory = args.memory.empty() ? this_machine() : parse_memory(args.memory);
  if (!args.system.empty()) memory.system_bytes = parse_size("--system", args.system, args.system, "");
  const Subject subject = read_subject(args);
  const uint64_t ctx = given_ctx > 0 ? given_ctx : subject.description ? subject.description->max_context : 0;
  const double cache = subject.description ? cache_bytes(*subject.description, kCache, ctx) * static_cast<double>(batch) : 0.0;
  const std::vector<Row> rows = weight_rows(subject, cache, memory);
  if (args.common.json) {
    fmt::print(
        "{}\n",
        to_json(subject, rows, memory, ctx, batch).dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace));
  } else {
    print_text(subject, rows, memory, ctx, batch);
  }
  return kExitOk;
}

}  // namespace

Command plan_command() {
  return {"plan",
          "bytes of a language model's weights and cache, and what holds them",
          {"kpd plan MODEL.gguf --ctx 2048 --batch 8", "kpd plan --params 340B --memory 80GBx8"},
          [](CLI::App& app) {
            auto args = std::make_shared<PlanArgs>();
            args->which.add(app, ", or a config.json alone");
            add(app, "--params", args->params, "N", "instead of MODEL: a number of parameters (340B, 1.7B, 135M)");
            add(app, "-c,--ctx", args->ctx, "N",
                "tokens of each sequence in the cache (default: what the model was trained for)");
            add(app, "--batch", args->batch, "B", "sequences at once (default 1)");
            add(app, "--memory", args->memory, "SIZE", "80GB, 24GiB, 80GBx8 (default: this machine's memory)");
            add(app, "--system", args->system, "SIZE",
                "of that memory, or of each of several, what the system needs (default 1GB; of this machine what is in use)");
            args->common.add_json(app);
            return [args] { return run_plan(*args); };
          }};
}

}  // namespace kpd::tool
