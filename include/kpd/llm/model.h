// llm: a language model loaded from files: one forward pass for every family, over ragged batches.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "kpd/cache/kv_cache.h"
#include "kpd/io/weights.h"
#include "kpd/llm/linear.h"
#include "kpd/llm/model_description.h"
#include "kpd/text/tokenizer.h"

namespace kpd::llm {

using cache::KvCache;
using cache::SequenceId;
using CacheBatch = cache::Batch;

// The tokens that one sequence adds in a step, and which of them want logits.
struct BatchPart {
  SequenceId sequence = 0;
  std::vector<text::TokenId> tokens;
  std::vector<int32_t> positions;  // empty: those that follow what the cache holds; from 0 on, below the largest int32_t
  enum class Want { kNone, kLast, kList, kAll } want = Want::kLast;
  std::vector<uint32_t> rows;  // of kList: indices into tokens, ascending, each once
};

// Cosines and sines of one rope for rows of a batch, each [n_rows, n_rotated / 2].
struct RopeAngles {
  std::vector<float> cosines, sines;
};

// A batch laid out in rows, one per token. Movable: the spans of `cache` point into positions.
struct BatchRows {
  BatchRows() = default;
  BatchRows(BatchRows&&) noexcept = default;
  BatchRows& operator=(BatchRows&&) noexcept = default;
  BatchRows(const BatchRows&) = delete;
  BatchRows& operator=(const BatchRows&) = delete;

  std::vector<text::TokenId> tokens;
  std::vector<int32_t> positions;
  std::vector<int32_t> contexts;   // positions that the row's sequence reaches in this batch
  std::vector<uint32_t> wanted;    // rows that want logits
  std::vector<RopeAngles> angles;  // of each of the description's ropes
  CacheBatch cache;
};

// The linear groups of a layer, by what they read.
enum class LinearSite { kQkv, kOutput, kGateUp, kDown, kHead };
const char* linear_site_name(LinearSite site);

// Sees the input x [n_rows, n_in] of every linear group: calibration and pruning live on it.
using Tap = std::function<void(size_t layer, LinearSite site, const float* x, size_t n_rows, size_t n_in)>;

struct LoadOptions {
  Arithmetic arithmetic = Arithmetic::kFast;
  int n_threads = 0;  // <= 0: all
  Limits limits;
  // Called by the loading thread with the bytes of the file that the matrix just laid out has there; may be empty. What it
  // throws ends the loading.
  std::function<void(uint64_t bytes)> on_progress{};
};

// Immutable but for its workspace: one forward pass at a time. Movable; one that was moved from can only be destroyed or
// assigned to.
class Model {
 public:
  // A GGUF file, or a Hugging Face folder with config.json. Throws Error naming file, tensor and what was expected: an unknown
  // architecture, a missing tensor, a wrong shape.
  static Model load(const std::string& path, const LoadOptions& options = {});
  static Model load(io::Weights weights, const LoadOptions& options = {});  // opened already; options.limits are not asked
  Model(Model&&) noexcept;
  Model& operator=(Model&&) noexcept;
  ~Model();

  const ModelDescription& description() const;
  Arithmetic arithmetic() const;
  int n_threads() const;
  uint64_t file_bytes() const;    // of the tensors in the file
  uint64_t memory_bytes() const;  // of what was laid out anew
  uint64_t n_parameters() const;
  // Of config, rope, tensor names, types and sampled bytes: two models with the same fingerprint give the same keys and values.
  const std::string& fingerprint() const;

  std::vector<cache::Layer> cache_layers() const;
  // cache::make_cache() for these layers; `others` are those with another spec, as cache::layer_specs() has them ("0,29=f32").
  std::unique_ptr<KvCache> make_cache(std::string_view spec, size_t capacity, std::span<const std::string> others = {}) const;

  // One step for every part: logits [rows that want them, n_vocabulary] in order, valid until the next call. Prefill, decode
  // and verification of several tokens mix freely. The cache is committed at the end. Throws Error(kInvalidArgument) for a bad
  // batch or a cache made for layers of other shapes, before any work.
  std::span<const float> forward(std::span<const BatchPart> batch, KvCache& cache);

  // The same in pieces: rows = plan(batch, cache); cache.begin(rows.cache); embed; every layer; head of the rows wanted;
  // commit. hidden is [n_rows, d_model] over all tokens of the batch. All throw Error(kInvalidArgument) for tokens and layers
  // that the model lacks.
  BatchRows plan(std::span<const BatchPart> batch, const KvCache& cache) const;
  void embed(std::span<const text::TokenId> tokens, float* hidden) const;
  void layer(size_t index, const BatchRows& rows, float* hidden, KvCache& cache);
  // logits [n_rows, n_vocabulary] of rows of hidden (final norm included).
  void head(const float* hidden, size_t n_rows, float* logits);

  // The context that sequences are expected to reach: rotations that depend on it (dynamic, longrope) use it from the first
  // token on, so that a prompt read in chunks is the prompt read at once. 0 (default): what has been reached. evaluate(),
  // run_task(), generate() and the scheduler plan what they need, for as long as they run.
  void set_planned_context(size_t n_positions);
  size_t planned_context() const;
  void set_tap(Tap tap);
  // Rotates keys of `layer` by a number of positions (KvCache::evict): by the frequencies of the planned context or, if the
  // last forward() reached farther, of that one.
  void rerotate(size_t layer, float* keys, size_t n, int32_t by) const;

  struct Parts;  // of the implementation

 private:
  explicit Model(std::unique_ptr<Parts> parts);
  std::unique_ptr<Parts> parts_;
};

}  // namespace kpd::llm
