// tools: which program has an engine, and its ranks (engines.h).
#include "engines.h"

#include <cstdlib>

#include "delegate.h"
#include "files.h"
#include "kpd/base/error.h"
#include "kpd/comm/inprocess.h"
#include "signals.h"

namespace kpd::tool {
namespace {

constexpr std::string_view kEngines[] = {"inprocess", "mpi", "gloo"};
constexpr uint64_t kMaxRanks = 4096;

std::string environment(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

// An option, else what torchrun put into the environment.
std::string option_or(const std::string& option, const char* variable) {
  return option.empty() ? environment(variable) : option;
}

void refuse(const std::string& value, const char* option, const EngineOptions& o) {
  if (!value.empty()) usage(option, " does not belong to --comm ", o.comm);
}

Place gloo_place(const EngineOptions& o) {
  Place place;
  const std::string rank = option_or(o.rank, "RANK"), ranks = option_or(o.ranks, "WORLD_SIZE");
  if (rank.empty() || ranks.empty())
    usage("--comm gloo needs --rank R --ranks N --store URL (or torchrun, which puts them into the environment)");
  place.ranks = static_cast<int>(parse_count("--ranks", ranks, 1, kMaxRanks));
  place.rank = static_cast<int>(parse_count("--rank", rank, 0, kMaxRanks));
  if (place.rank >= place.ranks) usage("--rank ", place.rank, ": the ranks are 0 to ", place.ranks - 1);
  place.store = o.store;
  if (place.store.empty() && !environment("MASTER_ADDR").empty()) {
    place.store = str("tcp:", environment("MASTER_ADDR"), ":", environment("MASTER_PORT"));
    place.store_is_served = environment("TORCHELASTIC_USE_AGENT_STORE") == "True";
  }
  if (place.store.starts_with("file:")) check_writable("--store", place.store.substr(5));
  return place;
}

}  // namespace

void EngineOptions::add(CLI::App& app) {
  tool::add(app, "--comm", comm, "ENGINE",
            "run over an engine: inprocess (threads), mpi (under mpirun) or gloo (torchrun's); a rank then has one thread "
            "unless --threads is given");
  tool::add(app, "--ranks", ranks, "N", "how many ranks (inprocess: default 4; gloo: default $WORLD_SIZE)");
  tool::add(app, "--rank", rank, "R", "this process's rank (gloo; default $RANK)");
  tool::add(app, "--store", store, "URL",
            "where gloo's ranks meet: tcp:HOST:PORT of rank 0 (IPv6: tcp:[::1]:PORT), or file:PATH (default "
            "$MASTER_ADDR:$MASTER_PORT)");
  tool::add(app, "--address", address, "HOST", "this host, as the other ranks reach it (gloo; default: its own name)");
  tool::add(app, "--timeout", timeout, "S",
            str("seconds to wait for a rank, also for the others to come and to end (default ", default_timeout, ")"));
}

void EngineOptions::refuse_others() const {
  const std::pair<const char*, const std::string*> kOthers[] = {
      {"--ranks", &ranks}, {"--rank", &rank}, {"--store", &store}, {"--address", &address}, {"--timeout", &timeout}};
  for (const auto& [option, value] : kOthers) {
    if (!value->empty()) usage(option, " belongs to --comm ENGINE");
  }
}

comm::Milliseconds EngineOptions::wait() const {
  const double seconds = timeout.empty() ? default_timeout : parse_real("--timeout", timeout, 0.001, 1e6);
  return comm::Milliseconds(static_cast<int64_t>(seconds * 1000));
}

void choose_engine_program(const EngineOptions& o, const std::string& command) {
  parse_choice("--comm", o.comm, kEngines);
  o.wait();
  if (o.comm != "gloo") {
    refuse(o.rank, "--rank", o);
    refuse(o.store, "--store", o);
    refuse(o.address, "--address", o);
  }
  if (o.comm == "mpi") refuse(o.ranks, "--ranks (mpirun -n N says it)", o);
  if (o.comm == "inprocess" || has_other_engine(o.comm)) return;
  const std::string other = program_beside(o.comm == "mpi" ? "kpd-mpi" : "kpd-train");
  if (other.empty() || other == program_beside(this_program())) {
    fail(ErrorCode::kIo, "--comm ", o.comm, ": this kpd was built without it; build with -DKPD_WITH_",
         o.comm == "mpi" ? "MPI=ON (libopenmpi-dev, openmpi-bin), or install the package kpd-mpi"
                         : "TORCH=ON (scripts/get_torch.sh, libgloo-dev)");
  }
  run_instead(other, command, arguments());
}

std::vector<std::unique_ptr<comm::Exchange>> open_engine(const EngineOptions& o) {
  if (o.comm == "inprocess") {
    return comm::make_inprocess_group(static_cast<int>(parse_count("--ranks", o.ranks.empty() ? "4" : o.ranks, 1, kMaxRanks)));
  }
  std::vector<std::unique_ptr<comm::Exchange>> own;
  own.push_back(open_other_engine(o, o.comm == "gloo" ? gloo_place(o) : Place{}));
  // When a rank dies mpirun ends the others by SIGTERM.
  if (o.comm == "mpi")
    explain_termination(str("kpd: rank ", own[0]->rank(), ": ended by mpirun: another rank was lost, or mpirun was stopped"));
  return own;
}

}  // namespace kpd::tool
