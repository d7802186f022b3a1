// tests: ranks as threads that average one model's worth of normal numbers.
#pragma once

#include <cstring>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "gradient/round_trip.h"
#include "kpd/base/error.h"
#include "kpd/base/hash.h"
#include "kpd/comm/inprocess.h"
#include "kpd/gradient/aggregate.h"

namespace kpd::gradient::testing {

struct Model {
  std::vector<std::vector<float>> tensors;
  std::vector<TensorView> views() const {
    std::vector<TensorView> v;
    for (const auto& t : tensors) v.emplace_back(std::span<const float>(t));
    return v;
  }
  std::vector<std::span<float>> spans() {
    std::vector<std::span<float>> v;
    for (auto& t : tensors) v.emplace_back(t);
    return v;
  }
};

inline const Manifest kManifest = {
    {"a", DType::kFloat32, {60, 1000}}, {"bias", DType::kFloat32, {7}}, {"b", DType::kFloat32, {10001}}};

inline Model model_of(int rank) {
  Model m;
  for (size_t i = 0; i < kManifest.size(); ++i) {
    m.tensors.push_back(normal_vector(kManifest[i].count(), 100 * static_cast<uint64_t>(rank) + i));
  }
  return m;
}

struct Outcome {
  Model mean;
  AverageReport report;
  std::string error;
};

// One average of `ranks` ranks, each a thread; weights 1, 2, 3, ...
inline std::vector<Outcome> average(int ranks, const std::string& codec, AverageOptions options, uint64_t rounds = 1,
                                    const std::function<void(int, AverageOptions&, Manifest&)>& change = {}) {
  auto group = comm::make_inprocess_group(ranks);
  std::vector<Outcome> outcomes(static_cast<size_t>(ranks));
  std::vector<std::thread> threads;
  for (int r = 0; r < ranks; ++r) {
    threads.emplace_back([&, r] {
      Outcome& out = outcomes[static_cast<size_t>(r)];
      AverageOptions own = options;
      Manifest manifest = kManifest;
      own.weight = static_cast<uint64_t>(r) + 1;
      own.run = 5;
      if (change) change(r, own, manifest);
      const Model x = model_of(r);
      out.mean = model_of(r);
      try {
        Averager averager(*group[static_cast<size_t>(r)], manifest, Codec::parse(codec), RunSecret::from_seed(3), own);
        for (uint64_t round = 0; round < rounds; ++round) {
          out.report = averager.average(round, x.views(), out.mean.spans());
        }
      } catch (const Error& e) {
        out.error = e.what();
        group[static_cast<size_t>(r)].reset();
      }
    });
  }
  for (std::thread& t : threads) t.join();
  return outcomes;
}

inline uint64_t hash_of(const Model& m) {
  uint64_t hash = 0;
  for (const auto& t : m.tensors) {
    hash = hash * 31 + hash64({reinterpret_cast<const uint8_t*>(t.data()), t.size() * 4});
  }
  return hash;
}

inline double nmse(const Model& got, int ranks) {
  double error = 0, norm = 0, total = 0;
  std::vector<Model> x;
  for (int r = 0; r < ranks; ++r) {
    x.push_back(model_of(r));
    total += r + 1;
  }
  for (size_t t = 0; t < kManifest.size(); ++t) {
    for (size_t i = 0; i < got.tensors[t].size(); ++i) {
      double mean = 0;
      for (int r = 0; r < ranks; ++r) {
        const double v = x[static_cast<size_t>(r)].tensors[t][i];
        mean += (r + 1) / total * v;
        norm += v * v / ranks;
      }
      error += (got.tensors[t][i] - mean) * (got.tensors[t][i] - mean);
    }
  }
  return error / norm;
}

}  // namespace kpd::gradient::testing
