// tools: the options of every command that loads a language model, and how such a model is loaded and announced.
#pragma once

#include <string>
#include <vector>

#include "cli.h"
#include "kpd/io/gguf.h"
#include "kpd/io/weights.h"
#include "kpd/llm/model.h"

namespace kpd::tool {

inline constexpr const char* kModelHelp = "GGUF file or Hugging Face folder";

// MODEL, first of what stands without an option's name, or behind -m.
struct ModelArgs {
  std::vector<std::string> words, named;  // without a name; behind -m

  void add(CLI::App& app, const std::string& more = "");
  // All of them: of commands that take several models and nothing else.
  std::vector<std::string> models() const;
  // The one model; what stands behind it, at most `n_more` words, in `more`. Throws UsageError for none and for words too many,
  // of which `what` says what they would be.
  std::string model(std::vector<std::string>& more, size_t n_more, const char* what) const;
  std::string model() const;
};

struct ModelOptions {
  std::string arithmetic_text, chunk_text;

  void add_arithmetic(CLI::App& app, const char* otherwise);
  void add_chunk(CLI::App& app);
  llm::Arithmetic arithmetic(llm::Arithmetic otherwise) const;
  size_t chunk() const;  // tokens of a prompt per step
};

// What a model's files say before its weights are laid out: all that can be refused is refused here.
struct OpenedModel {
  std::string path;
  io::Weights weights;
  text::Tokenizer tokenizer;
  llm::ModelDescription description;
  double seconds = 0;  // that opening took
};

struct LoadedModel {
  llm::Model model;
  text::Tokenizer tokenizer;
  double seconds = 0;
};

// The tokenizer of a GGUF file, or of a folder: tokenizer.json where there is one, else the GGUF metadata's.
text::Tokenizer load_tokenizer(const std::string& path, const io::GgufMetadata* gguf);

OpenedModel open_model(const std::string& path);
// Lays the weights out, with progress, and says on stderr what was loaded.
LoadedModel load_model(OpenedModel opened, llm::Arithmetic arithmetic, int threads);
LoadedModel load_model(const std::string& path, llm::Arithmetic arithmetic, int threads);

// Names of caches, for help texts.
inline constexpr const char* kCacheNames = "f16, bf16, f32, ggml's q8_0, q5_1, q5_0, q4_1, q4_0, iq4_nl, or ggml:k=TYPE,v=TYPE";
// The cache of keys and values of a command: --kv, or llama.cpp's two options for the two sides.
struct CacheOptions {
  std::string kv, k, v;
  void add(CLI::App& app);
  // f16 where nothing is given. Throws UsageError for what is no cache.
  std::string spec() const;
};
// --kv-layer as far as it can be judged without a model; with one, the number of its layers is known. Throws UsageError.
void check_kv_layers(const std::string& kv, const std::vector<std::string>& layers);
void check_kv_layers(const std::string& kv, const std::vector<std::string>& layers, const llm::Model& model);
// "f16 (0,29=f32)", as results name it.
std::string kv_text(const std::string& kv, const std::vector<std::string>& layers);
// --ctx as a number of tokens, at most llm::kMaxContext. Throws UsageError.
size_t parse_context(const std::string& text, size_t least);
// --ctx (0: not given) where all of the model's is too much: then at most 8192.
size_t context_or_default(size_t given, const llm::ModelDescription& description);
void note_long_context(size_t context, const llm::ModelDescription& description);

// "12.5 MiB", "3.42 GiB".
std::string binary_size(uint64_t bytes);

}  // namespace kpd::tool
