// llm: from a checkpoint to a model: lays the matrices out one by one, giving back the mapped pages of each before the next is
// read; all of them, or those of a layer when it is asked for.
#include <algorithm>
#include <unordered_set>
#include <utility>

#include "kpd/base/bytes.h"
#include "kpd/base/error.h"
#include "kpd/base/hash.h"
#include "kpd/base/threads.h"
#include "kpd/io/gguf.h"
#include "kpd/quant/blocks.h"
#include "llm/checkpoint_parts.h"
#include "llm/families.h"
#include "llm/model_parts.h"

namespace kpd::llm {
namespace {

class Loader {
 public:
  explicit Loader(Model::Parts& parts, std::function<void(uint64_t)> on_progress = {})
      : parts_(parts), d_(parts.description), weight_format_(parts.weight_format), on_progress_(std::move(on_progress)) {}

  void load() {
    parts_.embedding = source(TensorRole::kEmbedding, 0);
    if (parts_.arithmetic == Arithmetic::kFast && !parts_.on_demand) copy_embedding();
    parts_.final_norm = norm(TensorRole::kFinalNorm, 0);
    parts_.layers.resize(d_.layers.size());
    for (size_t i = 0; i < parts_.layers_of_cache.size(); ++i) parts_.layers[parts_.layers_of_cache[i]].cache_layer = i;
    count_used();
    if (parts_.on_demand) return;
    for (size_t i = 0; i < d_.layers.size(); ++i) load_layer(i);
    add(parts_.head, d_.layers.size(), LinearSite::kHead, head_role(), 0, source(head_role(), 0), {});
    if (!formats_.empty()) parts_.fingerprint = changed_fingerprint(parts_.fingerprint, formats_);
  }

  // Rows [first, first + n) of the head.
  std::unique_ptr<weight::Matrix> head_rows(size_t first, size_t n) {
    const weight::MatrixSource s = rows_of(head_role(), 0, first, n);
    return weight::make_matrix(weight::usual_format(s, parts_.arithmetic), s, parts_.n_threads);
  }

  void load_layer(size_t i) {
    const LayerDescription& shape = d_.layers[i];
    LayerParts& layer = parts_.layers[i];
    if (shape.has_attention()) load_attention(i, shape, layer);
    if (shape.has_mlp()) load_mlp(i, shape, layer);
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

  weight::MatrixSource source(TensorRole role, size_t layer) {
    const io::WeightEntry& e = entry(role, layer);
    weight::MatrixSource s;
    s.n_out = e.shape[0];
    s.n_in = e.shape[1];
    s.parts = {{std::string(weight::MatrixSource::kWeight),
                {e.name, e.type, s.n_out, s.n_in, e.bytes.data(),
                 [&w = parts_.weights](const uint8_t* from, std::span<uint8_t> to) { w.read(from, to); }}}};
    if (parts_.table.at(role, layer).heads && d_.interleaved_qk) s.pair_width = d_.layers[layer].key_dim;
    return s;
  }

  // Rows [first, first + n) of a stored matrix.
  weight::MatrixSource rows_of(TensorRole role, size_t layer, size_t first, size_t n) {
    weight::MatrixSource s = source(role, layer);
    s.first_row = first;
    s.n_out = n;
    return s;
  }

  void copy_embedding() {
    weight::StoredTensor& table = parts_.embedding.parts[0].tensor;
    parts_.embedding_bytes.resize(table.n_rows * table.row_bytes());
    table.read(table.bytes, parts_.embedding_bytes);
    table.bytes = parts_.embedding_bytes.data();
    table.read = nullptr;
  }

  // Lays a matrix out as the next of a group; `at` is the layer as taps and formats know it, `layer` as the table does.
  void add(weight::Linear& group, size_t at, LinearSite site, TensorRole role, size_t layer, const weight::MatrixSource& s,
           std::vector<float> bias) {
    std::string spec = weight_format_ ? weight_format_(at, site, group.size()) : std::string();
    if (spec.empty()) {
      spec = weight::usual_format(s, parts_.arithmetic);
    } else {
      formats_ += str(' ', at, ' ', linear_site_name(site), ' ', group.size(), ' ', spec, ';');
    }
    group.add(weight::make_matrix(spec, s, parts_.n_threads), std::move(bias));
    if (parts_.arithmetic == Arithmetic::kFast) parts_.weights.drop_pages(entry(role, layer));
    if (on_progress_) on_progress_(s.n_out * s.weight().row_bytes());
  }

  void add(weight::Linear& group, size_t layer, LinearSite site, TensorRole role) {
    add(group, layer, site, role, layer, source(role, layer), bias(role, layer));
  }

  std::vector<float> bias(TensorRole role, size_t layer) {
    const TensorSpec* spec = parts_.table.find(role, layer, TensorPart::kBias);
    const io::WeightEntry* found = spec == nullptr ? nullptr : entry(*spec);
    if (found == nullptr) return {};
    const std::vector<float> b = read_floats(parts_.weights, *found);
    const weight::MatrixSource order = source(role, layer);  // of the rows that it belongs to
    std::vector<float> ordered(b.size());
    for (size_t o = 0; o < b.size(); ++o) ordered[o] = b[order.stored_row(o)];
    return ordered;
  }

  void load_attention(size_t i, const LayerDescription& shape, LayerParts& layer) {
    if (d_.pre_norms) layer.attention_norm = norm(TensorRole::kAttentionNorm, i);
    if (d_.qk_norm) {
      layer.query_norm = norm(TensorRole::kQueryNorm, i);
      layer.key_norm = norm(TensorRole::kKeyNorm, i);
    }
    if (d_.post_norms) layer.post_attention_norm = norm(TensorRole::kPostAttentionNorm, i);
    const size_t q = shape.query_width(), k = shape.key_width(), v = shape.value_width();
    if (d_.fused_qkv) {
      for (const auto& [first, n] : {std::pair{size_t{0}, q}, {q, k}, {q + k, v}})
        add(layer.qkv, i, LinearSite::kQkv, TensorRole::kQkv, i, rows_of(TensorRole::kQkv, i, first, n), {});
    } else {
      for (const TensorRole role : {TensorRole::kQuery, TensorRole::kKey, TensorRole::kValue})
        add(layer.qkv, i, LinearSite::kQkv, role);
    }
    add(layer.output, i, LinearSite::kOutput, TensorRole::kOutput);
  }

  void load_mlp(size_t i, const LayerDescription& shape, LayerParts& layer) {
    if (d_.pre_norms) layer.mlp_norm = norm(TensorRole::kMlpNorm, i);
    if (d_.post_norms) layer.post_mlp_norm = norm(TensorRole::kPostMlpNorm, i);
    if (d_.fused_gate_up) {
      for (const size_t first : {size_t{0}, shape.d_ff})
        add(layer.gate_up, i, LinearSite::kGateUp, TensorRole::kGateUp, i, rows_of(TensorRole::kGateUp, i, first, shape.d_ff),
            {});
    } else {
      for (const TensorRole role : {TensorRole::kGate, TensorRole::kUp}) add(layer.gate_up, i, LinearSite::kGateUp, role);
    }
    add(layer.down, i, LinearSite::kDown, TensorRole::kDown);
  }

  // What several layers are made of counts once.
  void count_used() {
    std::unordered_set<const io::WeightEntry*> counted;
    for (const TensorSpec& spec : parts_.table.specs()) {
      const io::WeightEntry* found = entry(spec);
      if (found == nullptr || !counted.insert(found).second) continue;
      parts_.n_parameters += found->count();
      parts_.file_bytes += found->bytes.size();
    }
  }

  Model::Parts& parts_;
  const ModelDescription& d_;
  const WeightFormat& weight_format_;
  std::function<void(uint64_t)> on_progress_;
  std::string formats_;  // that weight_format chose
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
  return changed_fingerprint("", text);
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

// Edits them, and says how they differ from the file's: "" if they do not.
std::string edit_layers(ModelDescription& d, const LoadOptions& options, const std::string& file) {
  const std::vector<LayerDescription> before = d.layers;
  options.edit_layers(d.layers);
  check_description(d, file);
  std::string text;
  if (d.layers == before) return text;
  for (const LayerDescription& layer : d.layers) {
    text += str(" layer ", layer.source, ' ', static_cast<int>(layer.kind), ' ', layer.n_heads, ' ', layer.n_kv_heads, ' ',
                layer.key_dim, ' ', layer.value_dim, ' ', layer.d_ff, ' ', layer.window, ' ', layer.rope, ';');
  }
  return text;
}

// The checkpoint was checked as it is; this is what the edited layers ask of it.
void check_shapes(const TensorTable& table, const io::Weights& weights) {
  for (const TensorSpec& spec : table.specs()) {
    const io::WeightEntry* found = weights.find(spec.name);
    if (found != nullptr) check_shape(weights, *found, spec);
  }
}

}  // namespace

std::string changed_fingerprint(const std::string& fingerprint, std::string_view text) {
  std::string all = fingerprint;
  all += text;
  const auto digest = sha256(text_bytes(all));
  return hex(std::span(digest).first(16));
}

Model Model::load(const std::string& path, const LoadOptions& options) {
  return load(Checkpoint::open(path, options.limits), options);
}

Model Model::load(io::Weights weights, const LoadOptions& options) { return load(Checkpoint(std::move(weights)), options); }

Model Model::load(Checkpoint checkpoint, const LoadOptions& options) {
  Checkpoint::Parts& from = checkpoint.parts();
  std::string configuration = from.gguf ? gguf_configuration(*from.metadata) : from.configuration;
  from.metadata.reset();  // tens of thousands of texts: not kept
  auto parts = std::make_unique<Parts>(std::move(from.weights));
  parts->description = std::move(from.description);
  parts->table = std::move(from.table);
  if (options.edit_layers) {
    configuration += edit_layers(parts->description, options, parts->weights.name());
    parts->table = TensorTable(parts->description, parts->table.scheme());
    check_shapes(parts->table, parts->weights);
  }
  parts->layers_of_cache = llm::layers_of_cache(parts->description);
  parts->weight_format = options.weight_format;
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
  const size_t cache_layer = parts_->layers[index].cache_layer;
  parts_->layers[index] = {};
  parts_->layers[index].cache_layer = cache_layer;
  for (const TensorSpec& spec : parts_->table.specs()) {
    const bool of_layer = spec.layer == index && spec.role >= TensorRole::kAttentionNorm;
    const io::WeightEntry* entry = of_layer ? parts_->weights.find(spec.name) : nullptr;
    if (entry != nullptr) parts_->weights.drop_pages(*entry);
  }
}

bool is_loaded(const LayerParts& layer) { return layer.output.size() > 0 || layer.down.size() > 0; }

void run_stored_head(Model::Parts& parts, const float* normed, size_t n_rows, float* logits) {
  const ModelDescription& d = parts.description;
  const size_t most = d.layers.front().d_ff;
  for (size_t first = 0; first < d.n_vocabulary; first += most) {
    const size_t n = std::min(most, d.n_vocabulary - first);
    weight::Linear piece;
    piece.add(Loader(parts).head_rows(first, n), {});
    float* const out[] = {parts.workspace.floats(kGateSlot, n_rows * n)};
    piece.run(normed, n_rows, out, parts.workspace, parts.n_threads);
    for (size_t r = 0; r < n_rows; ++r) std::copy_n(out[0] + r * n, n, logits + r * d.n_vocabulary + first);
  }
}

}  // namespace kpd::llm
