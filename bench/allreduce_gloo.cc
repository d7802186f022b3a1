// bench: c10d's Gloo allreduce of float32, what `kpd mean --comm gloo` is compared with.
//
//   bench_allreduce_gloo RANK RANKS STORE_HOST PORT ADDRESS DIM [TRIALS]      one JSON line a rank: median seconds
#define USE_C10D_GLOO 1
#include <ATen/ops/ones.h>
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <vector>

#include "kpd/base/clock.h"

int main(int argc, char** argv) {
  if (argc < 7) return 2;
  const int rank = std::atoi(argv[1]), ranks = std::atoi(argv[2]);
  const long dim = std::atol(argv[6]), trials = argc > 7 ? std::atol(argv[7]) : 3;
  c10d::TCPStoreOptions at;
  at.port = static_cast<uint16_t>(std::atoi(argv[4]));
  at.isServer = rank == 0;
  at.numWorkers = static_cast<size_t>(ranks);
  const auto store = c10::make_intrusive<c10d::TCPStore>(argv[3], at);
  const auto options = c10d::ProcessGroupGloo::Options::create(std::chrono::minutes(5));
  options->devices.push_back(c10d::ProcessGroupGloo::createDeviceForHostname(argv[5]));
  const auto group = c10::make_intrusive<c10d::ProcessGroupGloo>(store, rank, ranks, options);
  std::vector<double> seconds;
  bool right = true;
  for (long t = 0; t < trials; ++t) {
    std::vector<at::Tensor> x = {at::ones({dim})};
    group->barrier()->wait();
    const auto start = kpd::Clock::now();
    group->allreduce(x)->wait();
    seconds.push_back(kpd::seconds_since(start));
    right = right && x[0][0].item<float>() == static_cast<float>(ranks);
  }
  group->barrier()->wait();
  std::sort(seconds.begin(), seconds.end());
  std::printf("{\"codec\":\"gloo allreduce\",\"comm\":\"gloo\",\"ranks\":%d,\"rank\":%d,\"dim\":%ld,\"seconds\":%.6f}\n", ranks,
              rank, dim, seconds[seconds.size() / 2]);
  return right ? 0 : 1;
}
