// train: Dirichlet split and client sampling; see client_split.h.
#include "train/client_split.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "kpd/base/error.h"

namespace kpd::train {

uint64_t derive_seed(uint64_t seed, Draw draw, uint64_t a, uint64_t b) {
  const PhiloxCounter counter = {static_cast<uint32_t>(a), static_cast<uint32_t>(b), static_cast<uint32_t>(b >> 32),
                                 (static_cast<uint32_t>(draw) << 24) ^ static_cast<uint32_t>(a >> 32)};
  const PhiloxCounter words = philox4x32(counter, {static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32)});
  return words[0] | (uint64_t{words[1]} << 32);
}

void shuffle(std::span<uint32_t> items, CounterRng& random) {
  for (size_t i = items.size(); i > 1; --i) std::swap(items[i - 1], items[random.next_below(i)]);
}

namespace {

// Index drawn in proportion to shares[k], of those with something left in pools[k].
size_t draw_class(std::span<const double> shares, const std::vector<std::vector<uint32_t>>& pools, CounterRng& random) {
  double total = 0;
  uint64_t left = 0;
  for (size_t k = 0; k < pools.size(); ++k) {
    if (!pools[k].empty()) total += shares[k];
    left += pools[k].size();
  }
  if (total > 0) {
    double u = random.next_double() * total;
    size_t last = 0;
    for (size_t k = 0; k < pools.size(); ++k) {
      if (pools[k].empty() || shares[k] <= 0) continue;
      last = k;
      u -= shares[k];
      if (u < 0) return k;
    }
    return last;  // rounding
  }
  // None of the client's classes is left: any example.
  uint64_t index = random.next_below(left);
  size_t k = 0;
  while (index >= pools[k].size()) index -= pools[k++].size();
  return k;
}

}  // namespace

std::vector<std::vector<uint32_t>> dirichlet_split(std::span<const uint8_t> labels, uint32_t classes, uint64_t clients,
                                                   uint64_t per_client, double alpha, uint64_t seed) {
  if (per_client == 0 || clients > labels.size() / per_client) {
    fail(ErrorCode::kInvalidArgument, "clients: ", clients, " clients of ", per_client, " examples need ", clients * per_client,
         ", the data has ", labels.size());
  }
  CounterRng random(derive_seed(seed, Draw::kSplit));
  std::vector<std::vector<uint32_t>> pools(classes);
  for (size_t i = 0; i < labels.size(); ++i) pools.at(labels[i]).push_back(static_cast<uint32_t>(i));
  for (auto& pool : pools) shuffle(pool, random);
  std::vector<std::vector<uint32_t>> split(clients);
  std::vector<double> shares(classes);
  for (auto& client : split) {
    // A share is Gamma(alpha) over their sum; draw_class() does not need the division.
    for (double& share : shares) share = random.next_gamma(alpha);
    client.reserve(per_client);
    while (client.size() < per_client) {
      auto& pool = pools[draw_class(shares, pools, random)];
      client.push_back(pool.back());
      pool.pop_back();
    }
  }
  return split;
}

std::vector<uint32_t> sample_clients(std::span<const uint64_t> sizes, uint64_t count, Sampling sampling, uint64_t seed,
                                     uint64_t round) {
  CounterRng random(derive_seed(seed, Draw::kSample, round));
  std::vector<uint32_t> ids(sizes.size());
  std::iota(ids.begin(), ids.end(), 0u);
  uint64_t total = std::accumulate(sizes.begin(), sizes.end(), uint64_t{0});
  for (uint64_t i = 0; i < count; ++i) {
    uint64_t pick = i;
    if (sampling == Sampling::kUniform || total == 0) {
      pick += random.next_below(ids.size() - i);
    } else {
      uint64_t at = random.next_below(total);
      while (at >= sizes[ids[pick]]) at -= sizes[ids[pick++]];
    }
    std::swap(ids[i], ids[pick]);
    total -= sizes[ids[i]];
  }
  ids.resize(count);
  std::sort(ids.begin(), ids.end());
  return ids;
}

}  // namespace kpd::train
