// comm: the engine whose ranks are threads of one process. For experiments, tests and as the reference of the other engines.
#pragma once

#include <memory>
#include <vector>

#include "kpd/comm/exchange.h"

namespace kpd::comm {

// A group of `size` ranks (1 to 4096); element r is rank r's, to be used by one thread. A rank whose Exchange is destroyed is
// lost to the others. By default a message may have any length: its bytes are in this process's memory already. Throws
// Error(kInvalidArgument).
std::vector<std::unique_ptr<Exchange>> make_inprocess_group(int size,
                                                            const ExchangeLimits& limits = {.max_message_bytes = ~uint64_t{0}});

}  // namespace kpd::comm
