// tools: the engines behind --comm. "inprocess" is in every program; "mpi" is in kpd-mpi and kpd-train, "gloo" in kpd-train,
// and kpd runs these instead (delegate.h). Each program has one engines_NAME.cc with open_other_engine().
#pragma once

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "cli.h"
#include "kpd/comm/exchange.h"

namespace kpd::tool {

// The options of every command that runs over an engine.
struct EngineOptions {
  std::string comm, ranks, rank, store, address, timeout;
  int default_timeout = 60;  // seconds; set before add()
  void add(CLI::App& app);
  bool used() const { return !comm.empty(); }
  void refuse_others() const;       // without --comm: throws UsageError for one that was given
  comm::Milliseconds wait() const;  // --timeout
  // For the others' end: a rank that was given up may still be at its last work, so 10 seconds at least.
  comm::Milliseconds end_wait() const { return std::max(wait(), comm::Milliseconds(10000)); }
};

// How one process takes part.
struct Place {
  int rank = 0, ranks = 1;
  std::string store;
  bool store_is_served = false;
};

// Called first by a command that has --comm: goes on in the program that has the engine, if it is another one. Throws
// UsageError for an unknown engine and for options that do not belong to it.
void choose_engine_program(const EngineOptions& options, const std::string& command);

// The ranks of this process: all with inprocess, else one. Waits for the others.
std::vector<std::unique_ptr<comm::Exchange>> open_engine(const EngineOptions& options);

// engines_NAME.cc: null if this program does not have the engine.
bool has_other_engine(const std::string& name);
std::unique_ptr<comm::Exchange> open_other_engine(const EngineOptions& options, const Place& place);

}  // namespace kpd::tool
