// llm: from files to a model: finds every tensor that the description asks for, checks its shape, and lays the matrices out one
// by one, giving back the mapped pages of each before the next is read.
#include <algorithm>
#include <filesystem>
#include <unordered_set>

#include "kpd/base/error.h"
#include "kpd/base/hash.h"
#include "kpd/base/threads.h"
#include "kpd/io/file.h"
#include "kpd/io/gguf.h"
#include "kpd/quant/blocks.h"
#include "llm/families.h"
#include "llm/known_names.h"
#include "llm/model_parts.h"
#include "llm/weight_names.h"

namespace kpd::llm {
namespace {

std::string shape_text(std::span<const uint64_t> shape) {
  std::string text = "[";
  for (size_t i = 0; i < shape.size(); ++i) text += str(i > 0 ? ", " : "", shape[i]);
  return text + "]";
}

class Loader {
 public:
  Loader(Model::Parts& parts, bool gguf, const LoadOptions& options)
      : parts_(parts),
        d_(parts.description),
        gguf_(gguf),
        options_(options),
        naming_{.gguf = gguf, .post_norms = d_.post_norms, .shared_mlp = d_.shared_mlp} {
    find_prefixes(parts.weights, naming_);
  }

  void load() {
    read_rope_factors();
    parts_.embedding = source(TensorRole::kEmbedding, 0, d_.n_vocabulary, d_.d_model);
    if (parts_.arithmetic == Arithmetic::kFast) copy_embedding();
    parts_.final_norm = norm(TensorRole::kFinalNorm, 0, d_.d_model);
    parts_.layers.resize(d_.layers.size());
    for (size_t i = 0; i < d_.layers.size(); ++i) load_layer(i);
    for (size_t i = 0; i < parts_.layers_of_cache.size(); ++i) parts_.layers[parts_.layers_of_cache[i]].cache_layer = i;
    const bool own_head = entry(TensorRole::kHead, 0, ".weight") != nullptr;
    if (!own_head && !d_.tied_head) missing(TensorRole::kHead, 0, ".weight");
    parts_.description.tied_head = !own_head;
    add(parts_.head, d_.layers.size(), LinearSite::kHead, own_head ? TensorRole::kHead : TensorRole::kEmbedding, 0,
        d_.n_vocabulary, d_.d_model, {}, {});
    if (!formats_.empty()) parts_.fingerprint = changed_fingerprint(parts_.fingerprint, formats_);
    pass_over_left_out();
    refuse_unused();
  }

 private:
  std::string name(TensorRole role, size_t layer, const char* suffix) const {
    return tensor_name(role, layer, naming_) + suffix;
  }
  const io::WeightEntry* entry(TensorRole role, size_t layer, const char* suffix) const {
    return parts_.weights.find(name(role, layer, suffix));
  }

  [[noreturn]] void missing(TensorRole role, size_t layer, const char* suffix) const {
    for (const io::SafetensorsRecord& other : parts_.weights.others()) {
      if (other.name != name(role, layer, suffix)) continue;
      fail(ErrorCode::kUnsupported, parts_.weights.name(), ": the tensor ", other.name, " has the type ", other.type,
           ", expected F32, F16 or BF16");
    }
    fail(ErrorCode::kCorruptData, parts_.weights.name(), ": the tensor ", name(role, layer, suffix), " is missing; the family ",
         d_.family, " needs it");
  }

  const io::WeightEntry& find(TensorRole role, size_t layer, const char* suffix, std::vector<uint64_t> shape) {
    const io::WeightEntry* found = entry(role, layer, suffix);
    if (found == nullptr) missing(role, layer, suffix);
    used_.insert(found);
    if (found->shape != shape) {
      fail(ErrorCode::kCorruptData, parts_.weights.name(), ": the tensor ", found->name, " has the shape ",
           shape_text(found->shape), ", expected ", shape_text(shape));
    }
    return *found;
  }

  std::vector<float> floats(const io::WeightEntry& e) const {
    const size_t block = block_type_info(e.type).block_values;
    std::vector<float> values(e.count());
    if (values.size() % block != 0)
      fail(ErrorCode::kCorruptData, parts_.weights.name(), ": the tensor ", e.name, " is not whole blocks");
    quant::dequantize_blocks(e.type, e.bytes, 0, values);
    return values;
  }

  std::vector<float> norm(TensorRole role, size_t layer, size_t n) {
    std::vector<float> w = floats(find(role, layer, ".weight", {n}));
    if (d_.norm_plus_one) {
      for (float& v : w) v += 1;
    }
    return w;
  }

  weight::MatrixSource source(TensorRole role, size_t layer, size_t n_out, size_t n_in) {
    const io::WeightEntry& e = find(role, layer, ".weight", {n_out, n_in});
    if (n_in % block_type_info(e.type).block_values != 0) {
      fail(ErrorCode::kCorruptData, parts_.weights.name(), ": the tensor ", e.name, " has rows of ", n_in,
           " values, not whole blocks");
    }
    weight::MatrixSource s;
    s.n_out = n_out;
    s.n_in = n_in;
    s.parts = {{std::string(weight::MatrixSource::kWeight),
                {e.name, e.type, n_out, n_in, e.bytes.data(),
                 [&w = parts_.weights](const uint8_t* from, std::span<uint8_t> to) { w.read(from, to); }}}};
    return s;
  }

  void copy_embedding() {
    weight::StoredTensor& table = parts_.embedding.parts[0].tensor;
    parts_.embedding_bytes.resize(table.n_rows * table.row_bytes());
    table.read(table.bytes, parts_.embedding_bytes);
    table.bytes = parts_.embedding_bytes.data();
    table.read = nullptr;
  }

  // Which rows of a stored matrix, in which order (weight::MatrixSource).
  struct Rows {
    size_t first = 0, n_stored = 0;  // 0: as many as are asked for
    size_t pair_width = 0;
  };

  // Lays a matrix out as the next of a group. `layer` is the model's index, `source_layer` the file's.
  void add(weight::Linear& group, size_t layer, LinearSite site, TensorRole role, size_t source_layer, size_t n_out,
           size_t n_in, const Rows& rows, std::vector<float> bias) {
    weight::MatrixSource s = source(role, source_layer, rows.n_stored == 0 ? n_out : rows.n_stored, n_in);
    s.n_out = n_out;
    s.first_row = rows.first;
    s.pair_width = rows.pair_width;
    std::string spec = options_.weight_format ? options_.weight_format(layer, site, group.size()) : std::string();
    if (spec.empty()) {
      spec = weight::usual_format(s, parts_.arithmetic);
    } else {
      formats_ += str(' ', layer, ' ', linear_site_name(site), ' ', group.size(), ' ', spec, ';');
    }
    group.add(weight::make_matrix(spec, s, parts_.n_threads), std::move(bias));
    if (parts_.arithmetic == Arithmetic::kFast) parts_.weights.drop_pages(*entry(role, source_layer, ".weight"));
    if (options_.on_progress) options_.on_progress(n_out * s.weight().row_bytes());
  }

  // GGUF has no key that says whether there is one.
  std::vector<float> bias(TensorRole role, size_t layer, size_t n, bool wanted, size_t pair_width = 0) {
    if (!wanted && (!gguf_ || entry(role, layer, ".bias") == nullptr)) return {};
    std::vector<float> b = floats(find(role, layer, ".bias", {n}));
    weight::MatrixSource order;  // of the rows that it belongs to
    order.pair_width = pair_width;
    std::vector<float> ordered(n);
    for (size_t o = 0; o < n; ++o) ordered[o] = b[order.stored_row(o)];
    return ordered;
  }

  void load_layer(size_t index) {
    if (d_.layers[index].has_attention()) load_attention(index);
    if (d_.layers[index].has_mlp()) load_mlp(index);
  }

  void load_attention(size_t index) {
    const LayerDescription& d = d_.layers[index];
    LayerParts& layer = parts_.layers[index];
    const size_t i = d.source, n_in = d_.d_model;
    if (d_.pre_norms) layer.attention_norm = norm(TensorRole::kAttentionNorm, i, n_in);
    if (d_.qk_norm) {
      layer.query_norm = norm(TensorRole::kQueryNorm, i, d_.qk_norm_whole ? d.query_width() : d.key_dim);
      layer.key_norm = norm(TensorRole::kKeyNorm, i, d_.qk_norm_whole ? d.key_width() : d.key_dim);
    }
    if (d_.post_norms) layer.post_attention_norm = norm(TensorRole::kPostAttentionNorm, i, n_in);
    const size_t q = d.query_width(), k = d.key_width(), v = d.value_width(), all = q + k + v;
    const auto read = [&](TensorRole role, size_t n, const Rows& rows, std::vector<float> bias) {
      add(layer.qkv, index, LinearSite::kQkv, role, i, n, n_in, rows, std::move(bias));
    };
    if (d_.fused_qkv) {
      read(TensorRole::kQkv, q, {0, all, 0}, {});
      read(TensorRole::kQkv, k, {q, all, 0}, {});
      read(TensorRole::kQkv, v, {q + k, all, 0}, {});
    } else {
      const size_t pairs = d_.interleaved_qk ? d.key_dim : 0;
      read(TensorRole::kQuery, q, {0, 0, pairs}, bias(TensorRole::kQuery, i, q, d_.qkv_bias, pairs));
      read(TensorRole::kKey, k, {0, 0, pairs}, bias(TensorRole::kKey, i, k, d_.qkv_bias, pairs));
      read(TensorRole::kValue, v, {}, bias(TensorRole::kValue, i, v, d_.qkv_bias));
    }
    add(layer.output, index, LinearSite::kOutput, TensorRole::kOutput, i, n_in, d.attended_width(), {},
        bias(TensorRole::kOutput, i, n_in, d_.o_bias));
  }

  void load_mlp(size_t index) {
    const LayerDescription& d = d_.layers[index];
    LayerParts& layer = parts_.layers[index];
    const size_t i = d.source, n_in = d_.d_model, n = d.d_ff;
    if (d_.pre_norms) layer.mlp_norm = norm(TensorRole::kMlpNorm, i, n_in);
    if (d_.post_norms) layer.post_mlp_norm = norm(TensorRole::kPostMlpNorm, i, n_in);
    const auto read = [&](TensorRole role, const Rows& rows, std::vector<float> bias) {
      add(layer.gate_up, index, LinearSite::kGateUp, role, i, n, n_in, rows, std::move(bias));
    };
    if (d_.fused_gate_up) {
      read(TensorRole::kGateUp, {0, 2 * n, 0}, {});
      read(TensorRole::kGateUp, {n, 2 * n, 0}, {});
    } else {
      read(TensorRole::kGate, {}, bias(TensorRole::kGate, i, n, d_.mlp_bias));
      read(TensorRole::kUp, {}, bias(TensorRole::kUp, i, n, d_.mlp_bias));
    }
    add(layer.down, index, LinearSite::kDown, TensorRole::kDown, i, n_in, n, {}, bias(TensorRole::kDown, i, n_in, d_.mlp_bias));
  }

  // What the file has for layers, and halves of layers, that the description was told to leave out.
  void pass_over_left_out() {
    constexpr TensorRole kAttention[] = {TensorRole::kAttentionNorm, TensorRole::kQuery,   TensorRole::kKey,
                                         TensorRole::kValue,         TensorRole::kQkv,     TensorRole::kOutput,
                                         TensorRole::kQueryNorm,     TensorRole::kKeyNorm, TensorRole::kPostAttentionNorm};
    constexpr TensorRole kMlp[] = {TensorRole::kMlpNorm, TensorRole::kGate, TensorRole::kUp,
                                   TensorRole::kGateUp,  TensorRole::kDown, TensorRole::kPostMlpNorm};
    const auto pass_over = [&](size_t source, std::span<const TensorRole> roles) {
      for (const TensorRole role : roles) {
        for (const char* suffix : {".weight", ".bias"}) passed_over_.insert(entry(role, source, suffix));
      }
    };
    const std::span<const LayerDescription> layers = d_.layers;
    for (size_t source = 0; source < d_.n_file_layers; ++source) {
      const auto is_read = [&](bool (LayerDescription::*half)() const) {
        return std::any_of(layers.begin(), layers.end(),
                           [&](const LayerDescription& layer) { return layer.source == source && (layer.*half)(); });
      };
      if (!is_read(&LayerDescription::has_attention)) pass_over(source, kAttention);
      if (!is_read(&LayerDescription::has_mlp)) pass_over(source, kMlp);
    }
  }

  // A tensor that nothing reads belongs to a model that computes more than this one.
  void refuse_unused() {
    const auto refuse = [&](const std::string& tensor, std::span<const uint64_t> shape) {
      if (is_harmless_tensor(tensor)) return;
      fail(ErrorCode::kUnsupported, parts_.weights.name(), ": the tensor ", tensor, " ", shape_text(shape),
           " is none that a model of the family ", d_.family, " of ", d_.n_file_layers,
           " layers has here; kpd would leave it out");
    };
    for (const io::WeightEntry& e : parts_.weights.tensors()) {
      if (!used_.contains(&e)) {
        if (!passed_over_.contains(&e)) refuse(e.name, e.shape);
        continue;
      }
      parts_.n_parameters += e.count();
      parts_.file_bytes += e.bytes.size();
    }
    for (const io::SafetensorsRecord& other : parts_.weights.others()) refuse(other.name, other.shape);
  }

  // GGUF keeps the stretching of llama3 and longrope as tensors.
  void read_rope_factors() {
    if (!gguf_ || d_.ropes.empty()) return;
    RopeDescription& rope = parts_.description.ropes[0];
    if (const io::WeightEntry* e = entry(TensorRole::kRopeFactors, 0, ".weight");
        e != nullptr && rope.kind != RopeKind::kLongRope) {
      rope.short_factor = floats(find(TensorRole::kRopeFactors, 0, ".weight", {rope.n_rotated / 2}));
    }
    if (entry(TensorRole::kRopeLong, 0, ".weight") != nullptr) {
      rope.kind = RopeKind::kLongRope;
      rope.long_factor = floats(find(TensorRole::kRopeLong, 0, ".weight", {rope.n_rotated / 2}));
      rope.short_factor = floats(find(TensorRole::kRopeShort, 0, ".weight", {rope.n_rotated / 2}));
    } else if (rope.kind == RopeKind::kLongRope) {
      missing(TensorRole::kRopeLong, 0, ".weight");
    }
  }

  Model::Parts& parts_;
  const ModelDescription& d_;
  bool gguf_;
  const LoadOptions& options_;
  NamingScheme naming_;
  std::unordered_set<const io::WeightEntry*> used_, passed_over_;
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

std::string config_path(const io::Weights& weights) {
  namespace fs = std::filesystem;
  std::error_code ignored;
  const fs::path file = fs::path(weights.name()) / "config.json";
  return fs::is_directory(weights.name(), ignored) && fs::exists(file, ignored) ? file.string() : std::string();
}

}  // namespace

std::string changed_fingerprint(const std::string& fingerprint, std::string_view text) {
  std::string all = fingerprint;
  all += text;
  const auto digest = sha256({reinterpret_cast<const uint8_t*>(all.data()), all.size()});
  return hex(std::span(digest).first(16));
}

std::optional<ModelDescription> describe_weights(const io::Weights& weights) {
  std::optional<ModelDescription> d;
  if (weights.gguf()) {
    d = describe_gguf(*weights.gguf());
  } else if (const std::string file = config_path(weights); !file.empty()) {
    const io::MappedFile mapped = io::map_file(file);
    d = describe_config(mapped.text(), file);
  }
  if (!d) return d;
  NamingScheme naming{.gguf = weights.gguf() != nullptr, .post_norms = d->post_norms, .shared_mlp = d->shared_mlp};
  find_prefixes(weights, naming);
  if (weights.find(tensor_name(TensorRole::kHead, 0, naming) + ".weight") != nullptr) d->tied_head = false;
  return d;
}

Model Model::load(const std::string& path, const LoadOptions& options) {
  // Those that no kernel reads may belong to what a model has beside its text half.
  return load(io::Weights::open(path, options.limits, io::OtherTensors::kKeep), options);
}

Model Model::load(io::Weights weights, const LoadOptions& options) {
  auto parts = std::make_unique<Parts>(std::move(weights));
  const auto metadata = parts->weights.release_gguf();  // tens of thousands of texts: not kept
  // What was opened decides: a GGUF file has its own names and shapes, also beside the config.json that it was made from.
  const bool gguf = metadata != nullptr;
  std::string configuration;
  if (gguf) {
    parts->description = describe_gguf(*metadata);
    configuration = gguf_configuration(*metadata);
  } else {
    const std::string file = config_path(parts->weights);
    if (file.empty()) {
      fail(ErrorCode::kIo, parts->weights.name(),
           ": not a model that kpd reads: expected a GGUF file, or a folder with config.json and model.safetensors");
    }
    const io::MappedFile mapped = io::map_file(file);
    configuration = mapped.text();
    parts->description = describe_config(configuration, file);
  }
  if (options.edit_layers) configuration += edit_layers(parts->description, options, parts->weights.name());
  parts->layers_of_cache = llm::layers_of_cache(parts->description);
  parts->arithmetic = options.arithmetic;
  parts->n_threads = options.n_threads > 0 ? options.n_threads : hardware_threads();
  parts->fingerprint = make_fingerprint(configuration, parts->weights.tensors());
  Loader(*parts, gguf, options).load();
  return Model(std::move(parts));
}

}  // namespace kpd::llm
