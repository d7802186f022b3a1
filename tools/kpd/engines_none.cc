// tools: the engines of kpd: inprocess alone (engines.h).
#include "engines.h"

namespace kpd::tool {

bool has_other_engine(const std::string&) { return false; }
std::unique_ptr<comm::Exchange> open_other_engine(const EngineOptions&, const Place&) { return nullptr; }

}  // namespace kpd::tool
