// llm: the forward pass. It knows neither how weights are stored (kpd/weight) nor how keys and values are
// (kpd/cache/kv_cache.h).
#include "kpd/llm/model.h"

#include <algorithm>
#include <cmath>

#include "kernels/llm_ops.h"
#include "kpd/base/error.h"
#include "kpd/base/threads.h"
#include "kpd/quant/blocks.h"
#include "llm/model_parts.h"

namespace kpd::llm {
namespace {

// fn(row) for every row; few rows are not worth a thread's waking.
template <class Fn>
void for_rows(size_t n_rows, int n_threads, const Fn& fn) {
  constexpr size_t kRows = 8;
  if (n_rows <= kRows) {
    for (size_t r = 0; r < n_rows; ++r) fn(r);
    return;
  }
  parallel_for((n_rows + kRows - 1) / kRows, n_threads, [&](size_t task, int) {
    for (size_t r = task * kRows; r < std::min(n_rows, (task + 1) * kRows); ++r) fn(r);
  });
}

void check_token(const ModelDescription& d, text::TokenId token) {
  if (token < 0 || static_cast<size_t>(token) >= d.n_vocabulary)
    fail(ErrorCode::kInvalidArgument, "token ", token, " is beyond the vocabulary of ", d.n_vocabulary);
}

void check_layer(const ModelDescription& d, size_t index) {
  if (index >= d.layers.size()) fail(ErrorCode::kInvalidArgument, "layer ", index, ", the model has ", d.layers.size());
}

// A cache of other shapes would be read and written where it has nothing.
void check_cache(const ModelDescription& d, std::span<const size_t> layers_of_cache, const KvCache& cache) {
  const std::span<const cache::Layer> layers = cache.layers();
  if (layers.size() != layers_of_cache.size()) {
    fail(ErrorCode::kInvalidArgument, "the cache was made for another model: it has ", layers.size(), " layers, expected ",
         layers_of_cache.size());
  }
  for (size_t i = 0; i < layers.size(); ++i) {
    const cache::Layer& layer = layers[i];
    const LayerDescription& expected = d.layers[layers_of_cache[i]];
    if (layer.n_kv_heads != expected.n_kv_heads || layer.key_width != expected.key_dim ||
        layer.value_width != expected.value_dim) {
      fail(ErrorCode::kInvalidArgument, "the cache was made for another model: layer ", i, " has ", layer.n_kv_heads,
           " heads of ", layer.key_width, ", expected ", expected.n_kv_heads, " of ", expected.key_dim);
    }
    const size_t window = expected.window;
    if (layer.window != 0 && (window == 0 || window > layer.window)) {
      fail(ErrorCode::kInvalidArgument, "the cache was made for another model: layer ", i, " may forget what is ", layer.window,
           " tokens back");
    }
  }
}

void make_angles(const RopeDescription& rope, const BatchRows& rows, RopeTable& table, RopeAngles& angles) {
  const size_t half = rope.n_rotated / 2, n_rows = rows.positions.size();
  angles.cosines.resize(n_rows * half);
  angles.sines.resize(n_rows * half);
  for (size_t r = 0; r < n_rows; ++r) {
    const RopeFrequencies& frequencies = table.at(rope, rows.contexts[r]);
    for (size_t i = 0; i < half; ++i) {
      // The angle is a float product, as in transformers; its cosine is rounded once.
      const double angle = static_cast<float>(rows.positions[r]) * frequencies.radians[i];
      angles.cosines[r * half + i] = static_cast<float>(std::cos(angle)) * frequencies.attention_factor;
      angles.sines[r * half + i] = static_cast<float>(std::sin(angle)) * frequencies.attention_factor;
    }
  }
}

// Rows of the part that want logits; its first row is `first`.
void add_wanted(const BatchPart& part, size_t first, std::vector<uint32_t>& wanted) {
  const size_t n = part.tokens.size();
  if (part.want == BatchPart::Want::kList) {
    for (size_t least = 0; const uint32_t i : part.rows) {
      if (i >= n) fail(ErrorCode::kInvalidArgument, "sequence ", part.sequence, ": logits of row ", i, " of ", n);
      if (i < least)
        fail(ErrorCode::kInvalidArgument, "sequence ", part.sequence, ": rows ", least - 1, ", ", i, " do not ascend");
      least = i + size_t{1};
      wanted.push_back(static_cast<uint32_t>(first) + i);
    }
    return;
  }
  for (size_t i = 0; i < n; ++i) {
    if (part.want == BatchPart::Want::kAll || (part.want == BatchPart::Want::kLast && i + 1 == n))
      wanted.push_back(static_cast<uint32_t>(first + i));
  }
}

// The batch in rows; what `rows` and `tables` have room for is not allocated again.
void lay_out(const Model::Parts& p, std::span<const BatchPart> batch, const KvCache& cache, BatchRows& rows,
             std::vector<RopeTable>& tables) {
  const ModelDescription& d = p.description;
  check_cache(d, p.layers_of_cache, cache);
  size_t n_rows = 0;
  for (const BatchPart& part : batch) n_rows += part.tokens.size();
  rows.tokens.clear();
  rows.positions.clear();
  rows.contexts.clear();
  rows.wanted.clear();
  rows.cache.parts.clear();
  rows.positions.reserve(n_rows);  // the cache's spans point into it
  for (const BatchPart& part : batch) {
    const size_t first = rows.tokens.size(), n = part.tokens.size();
    if (!part.positions.empty() && part.positions.size() != n) {
      fail(ErrorCode::kInvalidArgument, "sequence ", part.sequence, ": ", part.positions.size(), " positions for ", n,
           " tokens");
    }
    const int32_t next = cache.next_position(part.sequence);
    for (size_t i = 0; i < n; ++i) {
      check_token(d, part.tokens[i]);
      rows.tokens.push_back(part.tokens[i]);
      const int64_t position = part.positions.empty() ? int64_t{next} + static_cast<int64_t>(i) : part.positions[i];
      if (position < 0 || position > cache::kMaxPosition)
        fail(ErrorCode::kInvalidArgument, "sequence ", part.sequence, ": there is no position ", position);
      rows.positions.push_back(static_cast<int32_t>(position));
    }
    const size_t reached = n == 0 ? 0 : static_cast<size_t>(rows.positions.back()) + 1;
    rows.contexts.insert(rows.contexts.end(), n, std::max(reached, planned_context(cache.plan(part.sequence))));
    rows.cache.parts.push_back({part.sequence, std::span(rows.positions.data() + first, n)});
    add_wanted(part, first, rows.wanted);
  }
  if (rows.tokens.empty()) fail(ErrorCode::kInvalidArgument, "a batch without tokens");
  rows.angles.resize(d.ropes.size());
  tables.resize(d.ropes.size());
  for (size_t i = 0; i < d.ropes.size(); ++i) make_angles(d.ropes[i], rows, tables[i], rows.angles[i]);
}

}  // namespace

cache::Plan plan_context(size_t n_positions) { return {{n_positions, 0}}; }
size_t planned_context(const cache::Plan& plan) { return plan.words[0]; }

const RopeFrequencies& RopeTable::at(const RopeDescription& rope, size_t context) {
  context = rope_context(rope, context);
  for (const Entry& entry : entries_) {
    if (entry.context == context) return entry.frequencies;
  }
  if (entries_.size() < kEntries) {
    entries_.emplace_back();
    next_ = entries_.size() - 1;
  }
  Entry& entry = entries_[next_];
  next_ = (next_ + 1) % kEntries;
  entry = {context, rope_frequencies(rope, context)};
  return entry.frequencies;
}

const char* linear_site_name(LinearSite site) {
  switch (site) {
    case LinearSite::kQkv:
      return "qkv";
    case LinearSite::kOutput:
      return "output";
    case LinearSite::kGateUp:
      return "gate_up";
    case LinearSite::kDown:
      return "down";
    case LinearSite::kHead:
      return "head";
  }
  return "?";
}

namespace {

weight::Linear& group_of(Model::Parts& parts, size_t layer, LinearSite site) {
  if (site == LinearSite::kHead) {
    if (layer != parts.layers.size()) {
      fail(ErrorCode::kInvalidArgument, "the head stands behind the layers, at ", parts.layers.size(), ", not at ", layer);
    }
    return parts.head;
  }
  check_layer(parts.description, layer);
  LayerParts& of = parts.layers[layer];
  return site == LinearSite::kQkv      ? of.qkv
         : site == LinearSite::kOutput ? of.output
         : site == LinearSite::kGateUp ? of.gate_up
                                       : of.down;
}

}  // namespace

Model::Model(std::unique_ptr<Parts> parts) : parts_(std::move(parts)) {}
Model::Model(Model&&) noexcept = default;
Model& Model::operator=(Model&&) noexcept = default;
Model::~Model() = default;

const ModelDescription& Model::description() const { return parts_->description; }
Arithmetic Model::arithmetic() const { return parts_->arithmetic; }
int Model::n_threads() const { return parts_->n_threads; }
uint64_t Model::file_bytes() const { return parts_->file_bytes; }
const std::string& Model::fingerprint() const { return parts_->fingerprint; }
void Model::set_tap(Tap tap) { parts_->tap = std::move(tap); }

uint64_t Model::memory_bytes() const {
  uint64_t sum = parts_->head.bytes() + parts_->embedding_bytes.size();
  for (const LayerParts& layer : parts_->layers)
    sum += layer.qkv.bytes() + layer.output.bytes() + layer.gate_up.bytes() + layer.down.bytes();
  return sum;
}

uint64_t Model::n_parameters() const { return parts_->n_parameters; }

std::vector<cache::Layer> Model::cache_layers() const {
  std::vector<cache::Layer> layers;
  for (const size_t index : parts_->layers_of_cache) {
    const LayerDescription& layer = parts_->description.layers[index];
    layers.push_back({layer.n_kv_heads, layer.key_dim, layer.value_dim, layer.window});
  }
  return layers;
}

std::unique_ptr<KvCache> Model::make_cache(std::string_view spec, size_t capacity, std::span<const std::string> others) const {
  const std::vector<cache::Layer> layers = cache_layers();
  return cache::make_cache(cache::layer_specs(spec, others, layers.size()), layers, capacity, parts_->n_threads);
}

BatchRows Model::plan(std::span<const BatchPart> batch, const KvCache& cache) const {
  BatchRows rows;
  std::vector<RopeTable> tables;
  lay_out(*parts_, batch, cache, rows, tables);
  return rows;
}

std::span<const size_t> Model::layers_of_cache() const { return parts_->layers_of_cache; }

void Model::embed(std::span<const text::TokenId> tokens, float* hidden) const {
  const ModelDescription& d = parts_->description;
  const weight::StoredTensor& table = parts_->embedding.weight();
  thread_local std::vector<uint8_t> stored;
  for (size_t r = 0; r < tokens.size(); ++r) {
    check_token(d, tokens[r]);
    float* row = hidden + r * d.d_model;
    const uint8_t* bytes = nullptr;
    parts_->embedding.gather(static_cast<size_t>(tokens[r]), 1, stored, &bytes);
    quant::dequantize_blocks(table.type, {bytes, table.row_bytes()}, 0, {row, d.d_model});
    if (d.embedding_scale != 1) kernels::scale(row, d.d_model, d.embedding_scale);
  }
}

namespace {

// The two halves of a layer: hidden += output(attention(norm(hidden))), hidden += down(act(gate) * up) of norm(hidden).
class LayerRun {
 public:
  LayerRun(Model::Parts& parts, size_t index, const BatchRows& rows, float* hidden)
      : p_(parts),
        d_(parts.description),
        shape_(d_.layers[index]),
        layer_(parts.layers[index]),
        index_(index),
        rows_(rows),
        hidden_(hidden),
        n_(rows.tokens.size()) {}

  void attention(KvCache& cache) {
    const float* normed = norm_rows(layer_.attention_norm);
    float* q = p_.workspace.floats(kQuerySlot, n_ * shape_.query_width());
    float* k = p_.workspace.floats(kKeySlot, n_ * shape_.key_width());
    float* v = p_.workspace.floats(kValueSlot, n_ * shape_.value_width());
    run(LinearSite::kQkv, layer_.qkv, normed, d_.d_model, {q, k, v});
    turn(q, shape_.n_heads, layer_.query_norm);
    turn(k, shape_.n_kv_heads, layer_.key_norm);
    if (d_.temperature_scale != 0) heat(q, shape_.query_width());
    float* attended = p_.workspace.floats(kAttended, n_ * shape_.attended_width());
    cache.attend(layer_.cache_layer, q, k, v, attended,
                 {shape_.n_heads, d_.attention_scale, d_.attention_softcap, shape_.window});
    float* result = p_.workspace.floats(kResult, n_ * d_.d_model);
    run(LinearSite::kOutput, layer_.output, attended, shape_.attended_width(), {result});
    add_rows(result, layer_.post_attention_norm);
  }

  void mlp() {
    const size_t d_ff = shape_.d_ff;
    const float* normed = norm_rows(layer_.mlp_norm);
    float* gate = p_.workspace.floats(kGateSlot, n_ * d_ff);
    float* up = p_.workspace.floats(kUpSlot, n_ * d_ff);
    run(LinearSite::kGateUp, layer_.gate_up, normed, d_.d_model, {gate, up});
    for_rows(n_, p_.n_threads, [&](size_t r) {
      float* g = gate + r * d_ff;
      const auto multiply = d_.activation == Activation::kSilu ? kernels::silu_multiply : kernels::gelu_tanh_multiply;
      multiply(g, up + r * d_ff, d_ff, g);
    });
    float* result = p_.workspace.floats(kResult, n_ * d_.d_model);
    run(LinearSite::kDown, layer_.down, gate, d_ff, {result});
    add_rows(result, layer_.post_mlp_norm);
  }

 private:
  // The rows themselves where the family norms none.
  const float* norm_rows(const std::vector<float>& weight) {
    if (weight.empty()) return hidden_;
    float* normed = p_.workspace.floats(kNormed, n_ * d_.d_model);
    for_rows(n_, p_.n_threads, [&](size_t r) {
      kernels::rms_norm(hidden_ + r * d_.d_model, weight.data(), d_.d_model, d_.norm_eps, normed + r * d_.d_model);
    });
    return normed;
  }

  void run(LinearSite site, const weight::Linear& group, const float* x, size_t n_in, std::initializer_list<float*> outs) {
    if (p_.tap) p_.tap(index_, site, x, n_, n_in);
    group.run(x, n_, std::span<float* const>(outs.begin(), outs.size()), p_.workspace, p_.n_threads);
  }

  // Queries of later positions count for more: one factor for each run of temperature_length positions.
  void heat(float* q, size_t n_q) {
    for (size_t r = 0; r < n_; ++r) {
      const auto runs = static_cast<size_t>(rows_.positions[r]) / d_.temperature_length;
      if (runs == 0) continue;
      kernels::scale(q + r * n_q, n_q, 1 + d_.temperature_scale * std::log(1 + static_cast<float>(runs)));
    }
  }

  // Norm of each head or of all, where the family has it, then the rotation.
  void turn(float* x, size_t n_heads, const std::vector<float>& norm) {
    const int rope = shape_.rope;
    const size_t dim = shape_.key_dim;
    const RopeAngles* angles = rope < 0 ? nullptr : &rows_.angles[static_cast<size_t>(rope)];
    const size_t half = rope < 0 ? 0 : d_.ropes[static_cast<size_t>(rope)].n_rotated / 2;
    const bool whole = d_.qk_norm_whole, by_head = !norm.empty() && !whole;
    for_rows(n_, p_.n_threads, [&](size_t r) {
      float* row = x + r * n_heads * dim;
      if (whole) kernels::rms_norm(row, norm.data(), n_heads * dim, d_.norm_eps, row);
      for (size_t h = 0; h < n_heads; ++h) {
        float* head = row + h * dim;
        if (by_head) kernels::rms_norm(head, norm.data(), dim, d_.norm_eps, head);
        if (angles != nullptr)
          kernels::rotate_halves(head, angles->cosines.data() + r * half, angles->sines.data() + r * half, half);
      }
    });
  }

  void add_rows(float* result, const std::vector<float>& post_norm) {
    for_rows(n_, p_.n_threads, [&](size_t r) {
      float* row = result + r * d_.d_model;
      if (!post_norm.empty()) kernels::rms_norm(row, post_norm.data(), d_.d_model, d_.norm_eps, row);
      if (d_.residual_scale != 1) kernels::scale(row, d_.d_model, d_.residual_scale);
      kernels::add(hidden_ + r * d_.d_model, row, d_.d_model);
    });
  }

  Model::Parts& p_;
  const ModelDescription& d_;
  const LayerDescription& shape_;
  const LayerParts& layer_;
  size_t index_;
  const BatchRows& rows_;
  float* hidden_;
  size_t n_;
};

}  // namespace

void Model::layer(size_t index, const BatchRows& rows, float* hidden, KvCache& cache) {
  check_layer(parts_->description, index);
  const bool passing = !is_loaded(parts_->layers[index]);
  if (passing) load_layer(index);
  LayerRun run(*parts_, index, rows, hidden);
  if (parts_->description.layers[index].has_attention()) run.attention(cache);
  if (parts_->description.layers[index].has_mlp()) run.mlp();
  if (passing) drop_layer(index);
}

void Model::head(const float* hidden, size_t n_rows, float* logits) {
  Parts& p = *parts_;
  const ModelDescription& d = p.description;
  float* normed = p.workspace.floats(kNormed, n_rows * d.d_model);
  for_rows(n_rows, p.n_threads, [&](size_t r) {
    kernels::rms_norm(hidden + r * d.d_model, p.final_norm.data(), d.d_model, d.norm_eps, normed + r * d.d_model);
  });
  if (p.tap) p.tap(d.layers.size(), LinearSite::kHead, normed, n_rows, d.d_model);
  if (p.on_demand) {
    run_stored_head(p, normed, n_rows, logits);
  } else {
    float* const outs[] = {logits};
    p.head.run(normed, n_rows, outs, p.workspace, p.n_threads);
  }
  if (d.logit_scale != 1)
    for_rows(n_rows, p.n_threads,
             [&](size_t r) { kernels::scale(logits + r * d.n_vocabulary, d.n_vocabulary, d.logit_scale); });
  if (d.logit_softcap > 0) {
    for_rows(n_rows, p.n_threads,
             [&](size_t r) { kernels::soft_cap(logits + r * d.n_vocabulary, d.n_vocabulary, d.logit_softcap); });
  }
}

std::span<const float> Model::forward(std::span<const BatchPart> batch, KvCache& cache) {
  Parts& p = *parts_;
  const ModelDescription& d = p.description;
  BatchRows& rows = p.rows;
  lay_out(p, batch, cache, rows, p.rope_tables);
  cache.begin(rows.cache);
  float* hidden = p.workspace.floats(kHidden, rows.tokens.size() * d.d_model);
  embed(rows.tokens, hidden);
  for (size_t i = 0; i < d.layers.size(); ++i) layer(i, rows, hidden, cache);
  cache.commit();
  const size_t n = rows.wanted.size();
  if (n == 0) return {};
  // The rows wanted move to the front: ascending, so none is overwritten before it is read.
  for (size_t i = 0; i < n; ++i) std::copy_n(hidden + rows.wanted[i] * d.d_model, d.d_model, hidden + i * d.d_model);
  float* logits = p.workspace.floats(kLogits, n * d.n_vocabulary);
  head(hidden, n, logits);
  return {logits, n * d.n_vocabulary};
}

void Model::replace(size_t layer, LinearSite site, size_t i, std::unique_ptr<weight::Matrix> matrix) {
  Parts& p = *parts_;
  weight::Linear& group = group_of(p, layer, site);
  group.replace(i, std::move(matrix));
  // What the matrix makes of one input tells it from others.
  std::vector<float> input(group.matrix(i).n_in());
  for (size_t c = 0; c < input.size(); ++c) input[c] = static_cast<float>(c * 40503 % 65521) / 32768 - 1;
  std::vector<std::vector<float>> results(group.size());
  std::vector<float*> outs;
  for (size_t m = 0; m < group.size(); ++m) {
    results[m].resize(group.matrix(m).n_out());
    outs.push_back(results[m].data());
  }
  group.run(input.data(), 1, outs, p.workspace, p.n_threads);
  std::string text = str(layer, ' ', linear_site_name(site), ' ', i, ' ', group.matrix(i).format(), ' ');
  text.append(reinterpret_cast<const char*>(results[i].data()), results[i].size() * sizeof(float));
  p.fingerprint = changed_fingerprint(p.fingerprint, text);
}

void Model::rerotate(size_t layer, float* keys, size_t n, int32_t by, size_t context) const {
  const ModelDescription& d = parts_->description;
  check_layer(d, layer);
  const int index = d.layers[layer].rope;
  if (index < 0) return;
  const RopeDescription& rope = d.ropes[static_cast<size_t>(index)];
  const size_t half = rope.n_rotated / 2, dim = d.layers[layer].key_dim;
  const RopeFrequencies frequencies = rope_frequencies(rope, std::max<size_t>(context, 1));
  std::vector<float> cosines(half), sines(half);
  for (size_t i = 0; i < half; ++i) {
    const double angle = static_cast<double>(by) * static_cast<double>(frequencies.radians[i]);
    cosines[i] = static_cast<float>(std::cos(angle));
    sines[i] = static_cast<float>(std::sin(angle));
  }
  for (size_t i = 0; i < n; ++i) kernels::rotate_halves(keys + i * dim, cosines.data(), sines.data(), half);
}

}  // namespace kpd::llm
