// llm: from a checkpoint to a model: lays the matrices out one by one, giving back the mapped pages of each before the next is
// read; all of them, or those of a layer when it is asked for.
#include <algorithm>
#include <utility>

#include "kpd/base/error.h"
#include "kpd/base/hash.h"
#include "kpd/base/threads.h"
#include "kpd/io/gguf.h"
#include "kpd/quant/blocks.h"
#include "llm/checkpoint_parts.h"
#include "llm/model_parts.h"

namespace kpd::llm {
namespace {

class Loader {
 public:
  explicit Loader(Model::Parts& parts, std::function<void(uint64_t)> on_progress = {})
      : parts_(parts), d_(parts.description), on_progress_(std::move(on_progress)) {}

  void load() {
    parts_.embedding = source(TensorRole::kEmbedding, 0);
    if (parts_.arithmetic == Arithmetic::kFast && !parts_.on_demand) copy_embedding();
    parts_.final_norm = norm(TensorRole::kFinalNorm, 0);
    parts_.layers.resize(d_.n_layers);
    count_used();
    if (parts_.on_demand) return;
    for (size_t i = 0; i < d_.n_layers; ++i) load_layer(i);
    parts_.head.add(make(head_role(), 0), {});
  }

  // What is rows [first, first + n) of the head.
  std::unique_ptr<WeightMatrix> head_rows(size_t first, size_t n) { return make_rows(head_role(), 0, first, n, false); }

  void load_layer(size_t i) {
    LayerParts& layer = parts_.layers[i];
    if (d_.pre_norms) {
      layer.attention_norm = norm(TensorRole::kAttentionNorm, i);
      layer.mlp_norm = norm(TensorRole::kMlpNorm, i);
    }
    if (d_.qk_norm) {
      layer.query_norm = norm(TensorRole::kQueryNorm, i);
      layer.key_norm = norm(TensorRole::kKeyNorm, i);
    }
    if (d_.post_norms) {
      layer.post_attention_norm = norm(TensorRole::kPostAttentionNorm, i);
      layer.post_mlp_norm = norm(TensorRole::kPostMlpNorm, i);
    }
    load_inputs(i, layer);
    layer.output.add(make(TensorRole::kOutput, i), bias(TensorRole::kOutput, i));
    layer.down.add(make(TensorRole::kDown, i), bias(TensorRole::kDown, i));
  }

 private:
  const io::WeightEntry* entry(const TensorSpec& spec) const { return parts_.weights.find(spec.name); }
  const io::WeightEntry& entry(TensorRole role, size_t layer) const {
    const io::WeightEntry* found = entry(parts_.table.at(role, layer));
    if (found == nullptr) fail(ErrorCode::kInternal, "a tensor that was found is missing");
    return *found;
  }
  TensorRole head_role() const { return d_.tied_head ? TensorRole::kEmbedding : TensorRole::kHead; }

  std::vector<float> norm(TensorRole role, size_t layer) {
    std::vector<float> w = read_floats(parts_.weights, entry(role, layer));
    if (d_.norm_plus_one) {
      for (float& v : w) v += 1;
    }
    return w;
  }

  WeightSource source(TensorRole role, size_t layer) {
    const io::WeightEntry& e = entry(role, layer);
    const size_t n_out = e.shape[0], n_in = e.shape[1];
    WeightSource s{
        e.name, e.type, n_in, {}, [&w = parts_.weights](const uint8_t* from, std::span<uint8_t> to) { w.read(from, to); }};
    s.rows.resize(n_out);
    for (size_t o = 0; o < n_out; ++o) s.rows[o] = e.bytes.data() + o * s.row_bytes();
    return s;
  }

  void copy_embedding() {
    WeightSource& s = parts_.embedding;
    const size_t row_bytes = s.row_bytes();
    parts_.embedding_bytes.resize(s.rows.size() * row_bytes);
    if (s.rows.empty()) return;
    s.read(s.rows[0], parts_.embedding_bytes);
    for (size_t i = 0; i < s.rows.size(); ++i) s.rows[i] = parts_.embedding_bytes.data() + i * row_bytes;
    s.read = nullptr;
  }

  // Row of a head in a file whose rotation turns neighbours, for a row of a rotation of halves.
  size_t file_row(size_t row) const {
    const size_t in_head = row % d_.head_dim, half = d_.head_dim / 2;
    return row - in_head + 2 * (in_head % half) + in_head / half;
  }

  std::unique_ptr<WeightMatrix> make(TensorRole role, size_t layer) {
    const TensorSpec& spec = parts_.table.at(role, layer);
    return make_rows(role, layer, 0, spec.shape[0], spec.heads && d_.interleaved_qk);
  }

  // Lays out rows [first, first + n) of a stored matrix.
  std::unique_ptr<WeightMatrix> make_rows(TensorRole role, size_t layer, size_t first, size_t n, bool interleaved) {
    WeightSource s = source(role, layer);
    s.rows = {s.rows.begin() + static_cast<std::ptrdiff_t>(first), s.rows.begin() + static_cast<std::ptrdiff_t>(first + n)};
    if (interleaved) {
      const std::vector<const uint8_t*> stored = s.rows;
      for (size_t o = 0; o < n; ++o) s.rows[o] = stored[file_row(o)];
    }
    auto matrix = make_matrix(s, parts_.arithmetic, parts_.n_threads);
    if (parts_.arithmetic == Arithmetic::kFast) parts_.weights.drop_pages(entry(role, layer));
    if (on_progress_) on_progress_(s.rows.size() * s.row_bytes());
    return matrix;
  }

  std::vector<float> bias(TensorRole role, size_t layer) {
    const TensorSpec* spec = parts_.table.find(role, layer, TensorPart::kBias);
    const io::WeightEntry* found = spec == nullptr ? nullptr : entry(*spec);
    if (found == nullptr) return {};
    std::vector<float> b = read_floats(parts_.weights, *found);
    if (!spec->heads || !d_.interleaved_qk) return b;
    std::vector<float> ordered(b.size());
    for (size_t o = 0; o < b.size(); ++o) ordered[o] = b[file_row(o)];
    return ordered;
  }

  // The matrices that read what was normed.
  void load_inputs(size_t i, LayerParts& layer) {
    const size_t n_q = d_.n_heads * d_.head_dim, n_kv = d_.n_kv_heads * d_.head_dim;
    if (d_.fused_qkv) {
      layer.qkv.add(make_rows(TensorRole::kQkv, i, 0, n_q, false), {});
      layer.qkv.add(make_rows(TensorRole::kQkv, i, n_q, n_kv, false), {});
      layer.qkv.add(make_rows(TensorRole::kQkv, i, n_q + n_kv, n_kv, false), {});
    } else {
      for (const TensorRole role : {TensorRole::kQuery, TensorRole::kKey, TensorRole::kValue})
        layer.qkv.add(make(role, i), bias(role, i));
    }
    if (d_.fused_gate_up) {
      layer.gate_up.add(make_rows(TensorRole::kGateUp, i, 0, d_.d_ff, false), {});
      layer.gate_up.add(make_rows(TensorRole::kGateUp, i, d_.d_ff, d_.d_ff, false), {});
    } else {
      for (const TensorRole role : {TensorRole::kGate, TensorRole::kUp}) layer.gate_up.add(make(role, i), bias(role, i));
    }
  }

  void count_used() {
    for (const TensorSpec& spec : parts_.table.specs()) {
      const io::WeightEntry* found = entry(spec);
      if (found == nullptr) continue;
      parts_.n_parameters += found->count();
      parts_.file_bytes += found->bytes.size();
    }
  }

  Model::Parts& parts_;
  const ModelDescription& d_;
  std::function<void(uint64_t)> on_progress_;
};

// Of names, types, shapes and sixteen bytes of every tensor.
std::string make_fingerprint(const std::string& configuration, std::span<const io::WeightEntry> tensors) {
  std::string text = configuration;
  std::vector<const io::WeightEntry*> sorted;
  for (const io::WeightEntry& e : tensors) sorted.push_back(&e);
  std::sort(sorted.begin(), sorted.end(), [](const auto* a, const auto* b) { return a->name < b->name; });
  for (const io::WeightEntry* e : sorted) {
    text += str(e->name, ' ', block_type_info(e->type).name, ' ', shape_text(e->shape), ' ');
    const size_t n = std::min<size_t>(16, e->bytes.size());
    text += hex(e->bytes.subspan((e->bytes.size() - n) / 2, n));
  }
  const auto digest = sha256({reinterpret_cast<const uint8_t*>(text.data()), text.size()});
  return hex(std::span(digest).first(16));
}

std::string gguf_configuration(const io::GgufMetadata& metadata) {
  std::string text;
  for (const auto& [key, value] : metadata.values) {
    if (const auto* number = std::get_if<uint64_t>(&value)) text += str(key, '=', *number, ';');
    if (const auto* real = std::get_if<double>(&value)) text += str(key, '=', *real, ';');
    if (const auto* words = std::get_if<std::string>(&value)) text += str(key, '=', *words, ';');
  }
  return text;
}

}  // namespace

Model Model::load(const std::string& path, const LoadOptions& options) {
  return load(Checkpoint::open(path, options.limits), options);
}

Model Model::load(io::Weights weights, const LoadOptions& options) { return load(Checkpoint(std::move(weights)), options); }

Model Model::load(Checkpoint checkpoint, const LoadOptions& options) {
  Checkpoint::Parts& from = checkpoint.parts();
  const std::string configuration = from.gguf ? gguf_configuration(*from.metadata) : from.configuration;
  from.metadata.reset();  // tens of thousands of texts: not kept
  auto parts = std::make_unique<Parts>(std::move(from.weights));
  parts->description = std::move(from.description);
  parts->table = std::move(from.table);
  parts->arithmetic = options.arithmetic;
  parts->n_threads = options.n_threads > 0 ? options.n_threads : hardware_threads();
  parts->on_demand = options.layers == LoadOptions::Layers::kOnDemand;
  parts->fingerprint = make_fingerprint(configuration, parts->weights.tensors());
  Loader(*parts, options.on_progress).load();
  return Model(std::move(parts));
}

namespace {

void check_on_demand(const Model::Parts& parts, size_t index) {
  if (index >= parts.layers.size()) fail(ErrorCode::kInvalidArgument, "layer ", index, ", the model has ", parts.layers.size());
  if (!parts.on_demand)
    fail(ErrorCode::kInvalidArgument, "the model holds all its layers; it was not loaded with layers on demand");
}

}  // namespace

void Model::load_layer(size_t index) {
  check_on_demand(*parts_, index);
  if (!is_loaded(parts_->layers[index])) Loader(*parts_).load_layer(index);
}

void Model::drop_layer(size_t index) {
  check_on_demand(*parts_, index);
  parts_->layers[index] = {};
  for (const TensorSpec& spec : parts_->table.specs()) {
    const bool of_layer = spec.layer == index && spec.role >= TensorRole::kAttentionNorm;
    const io::WeightEntry* entry = of_layer ? parts_->weights.find(spec.name) : nullptr;
    if (entry != nullptr) parts_->weights.drop_pages(*entry);
  }
}

bool is_loaded(const LayerParts& layer) { return layer.output.size() > 0; }

void run_stored_head(Model::Parts& parts, const float* normed, size_t n_rows, float* logits) {
  const ModelDescription& d = parts.description;
  for (size_t first = 0; first < d.n_vocabulary; first += d.d_ff) {
    const size_t n = std::min(d.d_ff, d.n_vocabulary - first);
    LinearGroup piece;
    piece.add(Loader(parts).head_rows(first, n), {});
    float* const out[] = {parts.workspace.floats(kGateSlot, n_rows * n)};
    piece.run(normed, n_rows, out, parts.workspace, parts.n_threads);
    for (size_t r = 0; r < n_rows; ++r) std::copy_n(out[0] + r * n, n, logits + r * d.n_vocabulary + first);
  }
}

}  // namespace kpd::llm
