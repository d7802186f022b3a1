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
#include "kpd/llm/checkpoint.h"
#include "kpd/llm/model_description.h"
#include "kpd/text/tokenizer.h"
#include "kpd/weight/format.h"

namespace kpd::llm {

using cache::KvCache;
using cache::SequenceId;
using CacheBatch = cache::Batch;
using weight::Arithmetic;
using weight::arithmetic_name;

// The tokens that one sequence adds in a step, and which of them want logits.
struct BatchPart {
  SequenceId sequence = 0;
  std::vector<text::TokenId> tokens;
  std::vector<int32_t> positions;  // empty: those that follow what the cache holds; from 0 on, below the largest int32_t
  enum class Want { kNone, kLast, kList, kAll } want = Want::kLast;
  std::vector<uint32_t> rows;  // of kList: indices into tokens, ascending, each once
};

// The plan (KvCache::set_plan) of a sequence that is expected to reach n_positions: rotations that depend on the context
// (dynamic, longrope) are those of it from the first token on, so that a prompt read in chunks is the prompt read at once.
// Without one they are those of what has been reached. evaluate(), run_task(), generate() and the scheduler plan what they
// need.
cache::Plan plan_context(size_t n_positions);
size_t planned_context(const cache::Plan& plan);

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
  std::vector<size_t> contexts;    // positions that the row's sequence reaches in this batch, or has planned
  std::vector<uint32_t> wanted;    // rows that want logits
  std::vector<RopeAngles> angles;  // of each of the description's ropes
  CacheBatch cache;
};

// The linear groups of a layer, by what they read.
enum class LinearSite { kQkv, kOutput, kGateUp, kDown, kHead };
const char* linear_site_name(LinearSite site);

// Sees the input x [n_rows, n_in] of every linear group: calibration and pruning live on it.
using Tap = std::function<void(size_t layer, LinearSite site, const float* x, size_t n_rows, size_t n_in)>;

// The spec of a matrix's format, "" for the usual one.
using WeightFormat = std::function<std::string(size_t layer, LinearSite site, size_t i)>;

struct LoadOptions {
  enum class Layers {
    kAll,       // laid out when the model is loaded
    kOnDemand,  // when they run: see Model::load_layer()
  };
  Arithmetic arithmetic = Arithmetic::kFast;
  int n_threads = 0;  // <= 0: all
  Limits limits;
  // Called with the layers of the file (ModelDescription::layers) before anything is loaded: it may leave some out, repeat or
  // move them, or take a half of one away. Tensors of a layer or half that is left out are passed over. May be empty.
  std::function<void(std::vector<LayerDescription>&)> edit_layers{};
  // The format (kpd/weight/format.h) of matrix i of a layer's group, a spec; "": what the arithmetic calls for. May be empty.
  // Called by the loading thread, once for each matrix in the order of Tap, the head's with the number of layers.
  WeightFormat weight_format{};
  // Called by the loading thread with the bytes of the file that the matrix just laid out has there; may be empty. What it
  // throws ends the loading.
  std::function<void(uint64_t bytes)> on_progress{};
  Layers layers = Layers::kAll;
};

// Immutable but for its workspace and replace(): one forward pass at a time. Movable; one that was moved from can only be
// destroyed or assigned to.
class Model {
 public:
  // A GGUF file, or a Hugging Face folder with config.json. Throws Error naming file, tensor and what was expected: an unknown
  // architecture, a missing tensor, a wrong shape.
  static Model load(const std::string& path, const LoadOptions& options = {});
  static Model load(io::Weights weights, const LoadOptions& options = {});  // opened already; options.limits are not asked
  static Model load(Checkpoint checkpoint, const LoadOptions& options = {});
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
  std::span<const size_t> layers_of_cache() const;  // layers_of_cache(description())
  // cache::make_cache() for these layers; `others` are those with another spec, as cache::layer_specs() has them ("0,29=f32"),
  // numbered as the cache numbers them.
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

  // Of a model with layers on demand: a layer is laid out when it runs and dropped behind it, unless it was loaded before; the
  // head is laid out some rows at a time. Results are those of the whole model, bit for bit. Both throw Error(kInvalidArgument)
  // for a layer that the model lacks, and for a model that holds all layers.
  void load_layer(size_t index);
  void drop_layer(size_t index);

  void set_tap(Tap tap);
  // Puts a matrix in the place of the i-th of a layer's group (of the head: layer = layers.size(), i = 0); its bias stays, and
  // what reads the embedding is not the head. The fingerprint changes with it. Throws Error(kInvalidArgument), and has changed
  // nothing then, for a place that there is not and for a matrix of another shape.
  void replace(size_t layer, LinearSite site, size_t i, std::unique_ptr<weight::Matrix> matrix);
  // Rotates keys [n, key_dim] of one head of `layer` by a number of positions (KvCache::evict), by the frequencies of a
  // context: what the sequence has planned or, if it reached farther, that.
  void rerotate(size_t layer, float* keys, size_t n, int32_t by, size_t context) const;

  struct Parts;  // of the implementation

 private:
  explicit Model(std::unique_ptr<Parts> parts);
  std::unique_ptr<Parts> parts_;
};

}  // namespace kpd::llm
