// comm: the MPI engine (component comm; Open MPI). The ranks are those of MPI_COMM_WORLD.
#pragma once

#include <memory>

#include "kpd/comm/exchange.h"

namespace kpd::comm {

// Starts MPI; at most once in a process. All MPI calls are made by one thread of the engine, which moves messages while the
// caller computes. Where every rank destroys its Exchange in order, MPI is finalized, which waits for all ranks. One that is
// destroyed by an exception, or with messages that nobody takes, leaves MPI as it is; when its process ends, mpirun ends the
// other ranks. Throws Error(kInternal) if MPI cannot start.
std::unique_ptr<Exchange> make_mpi(const ExchangeLimits& limits = {});

}  // namespace kpd::comm
