// package: a foreign program that uses kpd::comm. Without mpirun MPI has one rank, this one.
#include <cstdio>
#include <span>
#include <vector>

#include <kpd/comm/mpi.h>
#include <kpd/gradient/aggregate.h>

int main() {
  using namespace kpd::gradient;
  const auto exchange = kpd::comm::make_mpi();
  const Manifest manifest = {{"x", kpd::DType::kFloat32, {1000}}};
  std::vector<float> x(1000, 2.5f), mean(1000);
  Averager averager(*exchange, manifest, Codec::parse("float32"), RunSecret::from_seed(1));
  const kpd::TensorView view{std::span<const float>(x)};
  const std::span<float> out(mean);
  averager.average(0, {&view, 1}, {&out, 1});
  std::printf("rank %d of %d\n", exchange->rank(), exchange->size());
  return mean == x ? 0 : 1;
}
