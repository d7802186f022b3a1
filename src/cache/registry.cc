// cache: the table of methods, and how a cache is made of its rows.
#include "cache/registry.h"

#include <algorithm>

#include "cache/block_cache.h"
#include "cache/float_formats.h"
#include "cache/ggml_formats.h"
#include "kpd/base/error.h"

namespace kpd::cache {
namespace {

template <DType kType>
LayerFormats plain(const Spec& /*spec*/, const Layer& layer) {
  return float_formats(kType, layer);
}

// Of a head that every method takes.
constexpr size_t kAnyWidth = 64;

constexpr MethodRow kRows[] = {
    {"f32", {}, plain<DType::kFloat32>, nullptr},   {"f16", {}, plain<DType::kFloat16>, nullptr},
    {"bf16", {}, plain<DType::kBFloat16>, nullptr}, {"q8_0", {}, ggml_formats_of, nullptr},
    {"q4_0", {}, ggml_formats_of, nullptr},         {"q4_1", {}, ggml_formats_of, nullptr},
    {"iq4_nl", {}, ggml_formats_of, nullptr},       {"q5_0", {}, ggml_formats_of, nullptr},
    {"q5_1", {}, ggml_formats_of, nullptr},         {"ggml", kGgmlKeys, ggml_formats, nullptr},
};

const MethodRow& find(std::span<const MethodRow> rows, const Spec& spec) {
  const auto it = std::find_if(rows.begin(), rows.end(), [&](const MethodRow& row) { return row.name == spec.method(); });
  if (it == rows.end()) {
    std::string names;
    for (const MethodRow& row : rows) names += str(names.empty() ? "" : ", ", row.name);
    fail(ErrorCode::kInvalidArgument, "the cache method '", spec.method().substr(0, 60), "' is unknown; there are ", names);
  }
  spec.check_keys(it->keys);
  return *it;
}

// The group of layer i: of the first layer that is alike, or a new one.
size_t group_for(std::vector<StoreGroup>& groups, const MethodRow& row, const Spec& spec, const Layer& layer) {
  for (size_t g = 0; g < groups.size(); ++g) {
    if (groups[g].shape == layer && groups[g].spec == spec.text()) return g;
  }
  groups.push_back({layer, spec.text(), row.formats(spec, layer)});
  return groups.size() - 1;
}

}  // namespace

std::span<const MethodRow> method_rows() { return kRows; }

std::span<const std::string_view> method_names() {
  static const std::vector<std::string_view> names = [] {
    std::vector<std::string_view> all;
    for (const MethodRow& row : kRows) all.push_back(row.name);
    return all;
  }();
  return names;
}

bool method_takes_keys(std::string_view name) {
  return std::any_of(std::begin(kRows), std::end(kRows),
                     [&](const MethodRow& row) { return row.name == name && !row.keys.empty(); });
}

void check_spec(std::string_view spec) {
  (void)make_cache(spec, std::vector<Layer>{{1, kAnyWidth, kAnyWidth, 0}}, kBlockTokens, 1);
}

std::unique_ptr<KvCache> make_cache_of(std::span<const MethodRow> rows, std::span<const std::string> specs,
                                       std::span<const Layer> layers, size_t capacity, int n_threads) {
  if (capacity > kMaxCacheTokens)
    fail(ErrorCode::kInvalidArgument, "a cache of ", capacity, " tokens, expected at most ", kMaxCacheTokens);
  if (specs.size() != layers.size()) fail(ErrorCode::kInvalidArgument, specs.size(), " specs for ", layers.size(), " layers");
  std::vector<StoreGroup> groups;
  std::vector<size_t> group_of;
  for (size_t i = 0; i < layers.size(); ++i) {
    const Spec spec = Spec::parse(specs[i]);
    const MethodRow& row = find(rows, spec);
    if (row.own_cache != nullptr) {
      for (const std::string& other : specs) {
        if (other != specs[i]) fail(ErrorCode::kInvalidArgument, specs[i], " and ", other, " cannot share a cache");
      }
      return row.own_cache(spec, layers, capacity, n_threads);
    }
    group_of.push_back(group_for(groups, row, spec, layers[i]));
  }
  return std::make_unique<BlockCache>(std::move(groups), std::move(group_of), layers, capacity, n_threads);
}

std::unique_ptr<KvCache> make_cache(std::span<const std::string> specs, std::span<const Layer> layers, size_t capacity,
                                    int n_threads) {
  return make_cache_of(method_rows(), specs, layers, capacity, n_threads);
}

std::unique_ptr<KvCache> make_cache(std::string_view spec, std::span<const Layer> layers, size_t capacity, int n_threads) {
  if (layers.empty()) (void)find(method_rows(), Spec::parse(spec));
  return make_cache(std::vector<std::string>(layers.size(), std::string(spec)), layers, capacity, n_threads);
}

}  // namespace kpd::cache
