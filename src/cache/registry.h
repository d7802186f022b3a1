// cache: the table of methods. Private.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "cache/format.h"
#include "kpd/base/spec.h"

namespace kpd::cache {

// A method is formats of a layer in blocks, or, where it fits none, a cache of its own.
struct MethodRow {
  std::string_view name;
  std::span<const std::string_view> keys;  // that its spec takes
  LayerFormats (*formats)(const Spec& spec, const Layer& layer);
  // Not null: of all layers; such a method shares a cache with no other.
  std::unique_ptr<KvCache> (*own_cache)(const Spec& spec, std::span<const Layer> layers, size_t capacity, int n_threads);
};

std::span<const MethodRow> method_rows();

// make_cache() by a table that a test gives.
std::unique_ptr<KvCache> make_cache_of(std::span<const MethodRow> rows, std::span<const std::string> specs,
                                       std::span<const Layer> layers, size_t capacity, int n_threads);

}  // namespace kpd::cache
