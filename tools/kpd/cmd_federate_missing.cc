// tools: `kpd federate` as kpd itself has it: runs kpd-train, and where that was not built says what is missing and how to get
// it.
#include "cli.h"
#include "commands.h"
#include "delegate.h"

namespace kpd::tool {
namespace {

constexpr const char* kMissing =
    "this kpd comes without kpd-train, the program that trains (it needs libtorch, and is in no package). Get it from kpd's "
    "sources: `./quickstart` builds all of kpd with it; or by hand: `python3 -m pip install --no-deps torch "
    "nvidia-cuda-runtime nvidia-cuda-cupti` in a virtual environment, then configure with -DKPD_WITH_TORCH=ON "
    "-DKPD_TORCH_DIR=VENV/lib/python3.X/site-packages/torch, build and install";

}  // namespace

Command federate_command() {
  Command command;
  command.name = "federate";
  command.program = program_beside("kpd-train");
  command.summary = "train a network on compressed updates of many clients";
  if (command.program.empty()) command.summary += " (not in this build)";
  command.example = {"kpd federate --task fashion-cnn --codec eden:bits=1 --rounds 5"};
  command.missing_component = true;
  command.setup = [](CLI::App& app) -> std::function<int()> {
    describe(app, kMissing);
    return []() -> int { fail(ErrorCode::kIo, kMissing); };
  };
  return command;
}

}  // namespace kpd::tool
