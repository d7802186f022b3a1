// train: the Gloo engine: c10d's TCP transport from the torch package, as torchrun starts it. Ranks are processes, on one
// machine or many; a rank that dies is lost to the others, which go on.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "kpd/comm/exchange.h"

namespace kpd::train {

struct GlooOptions {
  int rank = 0, size = 1;
  // Where the ranks find each other: "tcp:HOST:PORT" (rank 0 answers there; with `store_is_served` somebody else does, as
  // torchrun's agent; an IPv6 address in brackets) or "file:PATH" (a file that all ranks see and that did not exist before).
  std::string store;
  bool store_is_served = false;
  std::string address;                // of this host, to be reached by the others; empty: what its name resolves to
  comm::Milliseconds timeout{60000};  // to find each other, all steps together
  comm::ExchangeLimits limits;
  // No lines of torch's own on stderr, of which a failed connection has dozens; for the whole process, whose std::cerr becomes
  // silent.
  bool silence_torch = false;
};

// Waits until all ranks are there. Throws Error(kInvalidArgument) for options that make no sense, Error(kIo) if the ranks do
// not find each other; a thread may then still wait in torch, in which no destructor of the process's end should disturb it. No
// thread of the engine gets SIGPIPE. Its destructor says goodbye to all ranks and waits a few seconds for what was sent.
std::unique_ptr<comm::Exchange> make_gloo(const GlooOptions& options);

}  // namespace kpd::train
