// train: who holds which examples and who takes part in a round. Torch-free. Every draw is named by seed, purpose, round and
// client, so that no state has to be kept between rounds.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "kpd/train/federate.h"

namespace kpd::train {

// What a draw is for. Numbers are part of what makes a run repeatable; never renumber.
enum class Draw : uint32_t { kInit = 1, kSplit = 2, kSample = 3, kDrop = 4, kOrder = 5, kDropout = 6, kRunId = 7, kSecret = 8 };

// 64 bits from Philox at counter (a, b, draw) under key `seed`; a < 2^56.
uint64_t derive_seed(uint64_t seed, Draw draw, uint64_t a = 0, uint64_t b = 0);

// Fisher-Yates.
void shuffle(std::span<uint32_t> items, CounterRng& random);

// Label split of Hsu, Qi and Brown (2019): every client draws class shares from Dirichlet(alpha) and then `per_client` examples
// by these shares from what is left. No example is given twice. Throws Error(kInvalidArgument) if clients * per_client exceeds
// the examples.
std::vector<std::vector<uint32_t>> dirichlet_split(std::span<const uint8_t> labels, uint32_t classes, uint64_t clients,
                                                   uint64_t per_client, double alpha, uint64_t seed);

// `count` different clients in ascending order, count <= sizes.size().
std::vector<uint32_t> sample_clients(std::span<const uint64_t> sizes, uint64_t count, Sampling sampling, uint64_t seed,
                                     uint64_t round);

}  // namespace kpd::train
