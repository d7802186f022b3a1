// tools: the engines of kpd-mpi (engines.h).
#include "engines.h"
#include "kpd/comm/mpi.h"

namespace kpd::tool {

bool has_other_engine(const std::string& name) { return name == "mpi"; }
std::unique_ptr<comm::Exchange> open_other_engine(const EngineOptions& options, const Place&) {
  return comm::make_mpi({}, options.end_wait());
}

}  // namespace kpd::tool
