// tools: `kpd plan`, how many bytes a language model needs in each format and what holds it, before anything is downloaded or
// loaded. Weights and cache are counted, not the activations of a step (a few MB).
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <filesystem>
#include <memory>
#include <optional>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "cli.h"
#include "commands.h"
#include "files.h"
#include "kpd/io/file.h"
#include "kpd/io/gguf.h"
#include "kpd/io/weights.h"
#include "kpd/llm/model_description.h"

namespace kpd::tool {
namespace {

namespace fs = std::filesystem;

struct PlanArgs {
  CommonOptions common;
  std::string model, params, ctx, batch, memory;
};

// Bits of a weight in a matrix; block formats with their scales.
struct WeightFormat {
  const char* name;
  double bits;
};
constexpr std::array<WeightFormat, 6> kWeightFormats = {
    {{"f32", 32}, {"bf16", 16}, {"q8_0", 8.5}, {"q4_1", 5}, {"q4_0", 4.5}, {"2 bits", 2}}};

struct CacheFormat {
  const char* name;
  uint64_t value_bytes;
};
constexpr std::array<CacheFormat, 2> kCacheFormats = {{{"f32", 4}, {"f16", 2}}};

struct Subject {
  std::string name;
  double in_matrices = 0, others = 0;  // parameters; the others (norms, biases) stay f32 or as they are
  std::optional<double> stored_bytes;  // of a model whose weights are here
  std::optional<llm::ModelDescription> description;
};

struct Memory {
  std::string name;
  double unit_bytes = 0;
  uint64_t units = 1;
  double bytes() const { return unit_bytes * static_cast<double>(units); }
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

// "80GB", "24GiB", "80GBx8".
Memory parse_memory(const std::string& text) {
  struct Unit {
    std::string_view name;
    double bytes;
  };
  constexpr std::array<Unit, 6> kUnits = {
      {{"TiB", 0x1p40}, {"GiB", 0x1p30}, {"MiB", 0x1p20}, {"TB", 1e12}, {"GB", 1e9}, {"MB", 1e6}}};
  Memory memory{text, 0, 1};
  const size_t x = text.find('x');
  const std::string one = text.substr(0, x);
  if (x != std::string::npos) memory.units = parse_count("--memory", text.substr(x + 1), 1, 1 << 20);
  for (const Unit& unit : kUnits) {
    if (!one.ends_with(unit.name)) continue;
    memory.unit_bytes = parse_real("--memory", one.substr(0, one.size() - unit.name.size()), 1e-3, 1e9) * unit.bytes;
    return memory;
  }
  usage("--memory ", text, ": expected a size such as 80GB or 24GiB, or 80GBx8 for eight of them");
}

Memory this_machine() {
  return {"this machine", static_cast<double>(sysconf(_SC_PHYS_PAGES)) * static_cast<double>(sysconf(_SC_PAGE_SIZE)), 1};
}

// Parameters that the description implies.
void count_parameters(const llm::ModelDescription& d, Subject& subject) {
  const auto real = [](size_t n) { return static_cast<double>(n); };
  const double q = real(d.n_heads * d.head_dim), kv = real(d.n_kv_heads * d.head_dim), width = real(d.d_model);
  const double mlp = real(d.d_ff), layers = real(d.n_layers);
  subject.in_matrices = real(d.n_vocabulary) * width * (d.tied_head ? 1 : 2) + layers * width * (2 * q + 2 * kv + 3 * mlp);
  double per_layer = width * ((d.pre_norms ? 2 : 0) + (d.post_norms ? 2 : 0));
  if (d.qk_norm) per_layer += d.qk_norm_whole ? q + kv : 2 * real(d.head_dim);
  if (d.qkv_bias) per_layer += q + 2 * kv;
  if (d.o_bias) per_layer += width;
  if (d.mlp_bias) per_layer += 2 * mlp + width;
  subject.others = layers * per_layer + width;
}

void count_stored(const io::Weights& weights, Subject& subject) {
  subject.stored_bytes = static_cast<double>(weights.bytes());
  for (const io::WeightEntry& tensor : weights.tensors()) {
    (tensor.shape.size() > 1 ? subject.in_matrices : subject.others) += static_cast<double>(tensor.count());
  }
}

llm::ModelDescription read_config(const std::string& path) {
  const io::MappedFile file = map_input(path);
  return llm::describe_config({reinterpret_cast<const char*>(file.bytes().data()), file.bytes().size()}, path);
}

Subject read_subject(const PlanArgs& args) {
  Subject subject;
  if (!args.params.empty()) {
    subject.name = args.params + " parameters";
    subject.in_matrices = parse_parameters(args.params);
    return subject;
  }
  subject.name = args.model;
  if (fs::path(args.model).extension() == ".json") {
    subject.description = read_config(args.model);
    count_parameters(*subject.description, subject);
    return subject;
  }
  const io::Weights weights = io::Weights::open(args.model);
  subject.description = llm::describe_weights(weights);
  count_stored(weights, subject);
  return subject;
}

// Values of keys and values that one sequence of ctx tokens keeps: kpd's caches grow by blocks of 64 tokens and keep all of
// them, in layers with a window too.
double cache_values(const llm::ModelDescription& d, uint64_t ctx) {
  const double tokens = static_cast<double>((ctx + 63) / 64 * 64);
  return 2 * static_cast<double>(d.n_layers * d.n_kv_heads * d.head_dim) * tokens;
}

// What people have: one machine of a common size, or 80 GB accelerators.
std::string holds(double bytes) {
  constexpr std::array<uint32_t, 15> kCommon = {4, 8, 12, 16, 24, 32, 48, 64, 80, 96, 128, 192, 256, 512, 1024};
  const auto accelerators = static_cast<uint64_t>(std::ceil(bytes / 80e9));
  const std::string several = accelerators <= 8 ? fmt::format("{} x 80 GB", accelerators)
                                                : fmt::format("{} nodes of 8 x 80 GB", (accelerators + 7) / 8);
  for (const uint32_t size : kCommon) {
    if (bytes <= size * 1e9) return fmt::format("{} GB", size) + (accelerators > 1 ? ", or " + several : "");
  }
  return several;
}

struct Row {
  std::string name;
  double bits = 0, bytes = 0, total = 0;
  bool fits = false;
  uint64_t units = 0;  // of the memory stated
};

std::vector<Row> weight_rows(const Subject& subject, double cache_bytes, const Memory& memory) {
  std::vector<Row> rows;
  const double parameters = subject.in_matrices + subject.others;
  if (subject.stored_bytes)
    rows.push_back({"as stored", 8 * *subject.stored_bytes / std::max(parameters, 1.0), *subject.stored_bytes});
  for (const WeightFormat& format : kWeightFormats) {
    const double bytes = (subject.in_matrices * format.bits + subject.others * std::min(32.0, std::max(format.bits, 16.0))) / 8;
    rows.push_back({format.name, format.bits, bytes});
  }
  for (Row& row : rows) {
    row.total = row.bytes + cache_bytes;
    row.fits = row.total <= memory.bytes();
    row.units = static_cast<uint64_t>(std::ceil(row.total / memory.unit_bytes));
  }
  return rows;
}

nlohmann::ordered_json to_json(const Subject& subject, const std::vector<Row>& rows, const Memory& memory, uint64_t ctx,
                               uint64_t batch) {
  nlohmann::ordered_json object = {{"model", subject.name},
                                   {"parameters", subject.in_matrices + subject.others},
                                   {"ctx", ctx},
                                   {"batch", batch},
                                   {"memory", {{"name", memory.name}, {"bytes", memory.bytes()}, {"units", memory.units}}}};
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
  for (const CacheFormat& format : kCacheFormats) {
    const double one = cache_values(*subject.description, ctx) * static_cast<double>(format.value_bytes);
    object["caches"].push_back({{"kv", format.name}, {"bytes", one * static_cast<double>(batch)}, {"bytes_per_sequence", one}});
  }
  return object;
}

std::string size_text(double bytes) {
  const bool large = bytes >= 1e9;
  return fmt::format("{:.4g} {} = {:.4g} {}", bytes / (large ? 1e9 : 1e6), large ? "GB" : "MB",
                     bytes / (large ? 0x1p30 : 0x1p20), large ? "GiB" : "MiB");
}

void print_text(const Subject& subject, const std::vector<Row>& rows, const Memory& memory, uint64_t ctx, uint64_t batch) {
  fmt::print("{}: {:.4g} parameters; memory: {}, {}\n", subject.name, subject.in_matrices + subject.others, memory.name,
             size_text(memory.bytes()));
  if (subject.description) {
    fmt::print("cache of keys and values, {} x {} tokens\n", batch, ctx);
    for (const CacheFormat& format : kCacheFormats) {
      const double one = cache_values(*subject.description, ctx) * static_cast<double>(format.value_bytes);
      fmt::print("  {:<10} {}\n", format.name, size_text(one * static_cast<double>(batch)));
    }
  } else {
    fmt::print("the cache is not counted: a number of parameters does not tell it, a config.json does\n");
  }
  fmt::print("weights{}\n", subject.description ? " (the last columns with the f16 cache)" : "");
  for (const Row& row : rows) {
    const std::string verdict = row.fits           ? "fits"
                                : memory.units > 1 ? fmt::format("does not fit: {} needed", row.units)
                                                   : std::string("does not fit");
    fmt::print("  {:<10} {:>6.3g} bits  {:<26} {:<14} held by {}\n", row.name, row.bits, size_text(row.bytes), verdict,
               holds(row.total));
  }
}

int run_plan(const PlanArgs& args) {
  if (args.model.empty() == args.params.empty()) usage("give either MODEL (a model or its config.json) or --params N");
  const uint64_t batch = args.batch.empty() ? 1 : parse_count("--batch", args.batch, 1, 1 << 20);
  const uint64_t given_ctx = args.ctx.empty() ? 0 : parse_count("--ctx", args.ctx, 1, 1 << 30);
  const Memory memory = args.memory.empty() ? this_machine() : parse_memory(args.memory);
  const Subject subject = read_subject(args);
  const uint64_t ctx = given_ctx > 0 ? given_ctx : subject.description ? subject.description->max_context : 0;
  const double cache = subject.description ? cache_values(*subject.description, ctx) * 2 * static_cast<double>(batch) : 0.0;
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
            add_positional(app, "MODEL", args->model, "GGUF file, Hugging Face folder, or a config.json alone");
            add(app, "--params", args->params, "N", "instead of MODEL: a number of parameters (340B, 1.7B, 135M)");
            add(app, "--ctx", args->ctx, "N", "tokens of each sequence in the cache (default: what the model was trained for)");
            add(app, "--batch", args->batch, "B", "sequences at once (default 1)");
            add(app, "--memory", args->memory, "SIZE", "80GB, 24GiB, 80GBx8 (default: this machine's memory)");
            args->common.add_json(app);
            return [args] { return run_plan(*args); };
          }};
}

}  // namespace kpd::tool
