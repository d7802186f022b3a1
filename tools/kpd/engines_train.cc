// tools: the engines of kpd-train (engines.h).
#include "engines.h"

#include <cstdio>
#include <cstdlib>

#include <unistd.h>

#include "kpd/base/error.h"

#ifdef KPD_HAVE_MPI
#include "kpd/comm/mpi.h"
#endif
#ifdef KPD_HAVE_GLOO
#include "kpd/train/gloo.h"
#endif

namespace kpd::tool {

bool has_other_engine(const std::string& name) {
#ifdef KPD_HAVE_MPI
  if (name == "mpi") return true;
#endif
#ifdef KPD_HAVE_GLOO
  if (name == "gloo") return true;
#endif
  return false;
}

std::unique_ptr<comm::Exchange> open_other_engine([[maybe_unused]] const EngineOptions& options,
                                                  [[maybe_unused]] const Place& place) {
#ifdef KPD_HAVE_MPI
  if (options.comm == "mpi") return comm::make_mpi({}, options.end_wait());
#endif
#ifdef KPD_HAVE_GLOO
  train::GlooOptions gloo;
  gloo.rank = place.rank;
  gloo.size = place.ranks;
  gloo.store = place.store;
  gloo.store_is_served = place.store_is_served;
  gloo.address = options.address;
  gloo.timeout = options.wait();
  gloo.silence_torch = std::getenv("TORCH_CPP_LOG_LEVEL") == nullptr;
  try {
    return as_usage("--store", [&] { return train::make_gloo(gloo); });
  } catch (const Error&) {
    // A thread may still be waiting in torch: it must not run on while the program takes itself apart.
    on_exit(
        [](int status, void*) {
          std::fflush(nullptr);
          _exit(status);
        },
        nullptr);
    throw;
  }
#else
  return nullptr;
#endif
}

}  // namespace kpd::tool
