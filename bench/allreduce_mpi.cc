// bench: MPI_Allreduce of float32, what `kpd mean --comm mpi` is compared with.
//
//   mpirun -n 2 bench_allreduce_mpi DIM [TRIALS]      one JSON line from rank 0: median seconds
#define OMPI_SKIP_MPICXX 1
#define MPICH_SKIP_MPICXX 1
#include <mpi.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <vector>

int main(int argc, char** argv) {
  const long dim = argc > 1 ? std::atol(argv[1]) : 1 << 24, trials = argc > 2 ? std::atol(argv[2]) : 3;
  if (dim < 1 || dim > (1 << 30) || trials < 1) return 2;
  MPI_Init(&argc, &argv);
  int rank = 0, ranks = 1;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  std::vector<float> x(static_cast<size_t>(dim), 1.0f), sum(static_cast<size_t>(dim));
  std::vector<double> seconds;
  for (long t = 0; t < trials; ++t) {
    MPI_Barrier(MPI_COMM_WORLD);
    const double start = MPI_Wtime();
    MPI_Allreduce(x.data(), sum.data(), static_cast<int>(dim), MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
    seconds.push_back(MPI_Wtime() - start);
  }
  std::sort(seconds.begin(), seconds.end());
  if (rank == 0) {
    std::printf("{\"codec\":\"MPI_Allreduce\",\"comm\":\"mpi\",\"ranks\":%d,\"rank\":0,\"dim\":%ld,\"seconds\":%.6f}\n", ranks,
                dim, seconds[seconds.size() / 2]);
  }
  MPI_Finalize();
  return sum[0] == static_cast<float>(ranks) ? 0 : 1;
}
