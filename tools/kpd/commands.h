// tools: how a command joins the program. A command is one file cmd_NAME.cc with one function NAME_command(), declared here
// and listed in commands.cc. It uses public headers only.
#pragma once

#include <functional>
#include <string>
#include <vector>

namespace CLI {
class App;
}

namespace kpd::tool {

struct Command {
  std::string name;
  std::string summary;  // one line of `kpd --help`
  // Shell lines that end `kpd NAME --help`. They run as they stand in a folder with a model MODEL.gguf and a text wiki.txt
  // (tests/cli runs them), so a command that reads another file first makes one.
  std::vector<std::string> example;
  // Adds the options to `app` and returns what runs after the command line was parsed. That may throw
  // UsageError (exit 2) or kpd::Error, or return an exit code.
  std::function<std::function<int()>(CLI::App& app)> setup;
  // The program that has this command in it, if it is another one (delegate.h); `setup` is not called then.
  std::string program{};
  // Where the command's component is not built: options are not checked, so that `run` can say what is missing.
  bool missing_component = false;
};

Command encode_command();
Command decode_command();
Command inspect_command();
Command mean_command();
Command codecs_command();
Command eval_command();
Command generate_command();
Command bench_command();
Command plan_command();
Command export_command();
Command serve_command();
Command federate_command();  // cmd_federate.cc in kpd-train, cmd_federate_missing.cc in kpd

// In the order of `kpd --help`.
const std::vector<Command>& commands();

}  // namespace kpd::tool
