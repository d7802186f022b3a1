// comm: the MPI engine (component comm; Open MPI). The ranks are those of MPI_COMM_WORLD.
#pragma once

#include <memory>

#include "kpd/comm/exchange.h"

namespace kpd::comm {

// Starts MPI; at most once in a process. All MPI calls are made by one thread of the engine, which moves messages while the
// caller computes. Where every rank destroys its Exchange in order, MPI is finalized, which waits for all ranks, for
// `finish_timeout` and at most as long again. One that is destroyed by an exception, with messages that nobody takes, or whose
// wait is over, leaves MPI as it is; when its process ends, mpirun ends the other ranks. A message has at most 2^31 - 1 bytes,
// whatever the limits say: MPI counts with an int. Throws Error(kInternal) if MPI cannot start.
std::unique_ptr<Exchange> make_mpi(const ExchangeLimits& limits = {}, Milliseconds finish_timeout = Milliseconds(60000));

}  // namespace kpd::comm
