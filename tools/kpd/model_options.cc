#include "model_options.h"

#include <array>
#include <chrono>
#include <filesystem>

#include <fmt/format.h>

namespace kpd::tool {

void ModelOptions::add_arithmetic(CLI::App& app, const char* otherwise) {
  add(app, "--arithmetic", arithmetic_text, "NAME",
      fmt::format("exact: float activations, dequantized weights; fast: 8-bit activations, whole-number products (default {})",
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

llm::Tokenizer load_tokenizer(const std::string& path, const io::GgufMetadata* gguf) {
  namespace fs = std::filesystem;
  std::error_code ignored;
  if (gguf == nullptr || fs::exists(fs::path(path) / "tokenizer.json", ignored)) return llm::Tokenizer::from_directory(path);
  return llm::Tokenizer::from_gguf(*gguf);
}

LoadedModel load_model(const std::string& path, llm::Arithmetic arithmetic, int threads) {
  const auto start = std::chrono::steady_clock::now();
  io::Weights weights = io::Weights::open(path);
  const std::shared_ptr<const io::GgufMetadata> gguf = weights.gguf();
  llm::Model model = llm::Model::load(std::move(weights), {.arithmetic = arithmetic, .n_threads = threads, .limits = {}});
  llm::Tokenizer tokenizer = load_tokenizer(path, gguf.get());
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  for (const std::string& note : tokenizer.notes()) fmt::print(stderr, "note: {}: {}\n", path, note);
  const double mib = 1024.0 * 1024.0;
  fmt::print(stderr,
             "{}: {}, {} layers, {:.1f} M parameters; {:.1f} MiB in the file, {:.1f} MiB laid out in memory; {} arithmetic, {} "
             "threads; {:.2f} s\n",
             path, model.description().family, model.description().n_layers, static_cast<double>(model.n_parameters()) / 1e6,
             static_cast<double>(model.file_bytes()) / mib, static_cast<double>(model.memory_bytes()) / mib,
             llm::arithmetic_name(arithmetic), threads, seconds);
  return {std::move(model), std::move(tokenizer), seconds};
}

}  // namespace kpd::tool
