// tools: the table of commands. A new one is a file cmd_NAME.cc, a declaration in commands.h and a row here.
#include "commands.h"

namespace kpd::tool {

const std::vector<Command>& commands() {
  static const std::vector<Command> table = {encode_command(), decode_command(),   inspect_command(), mean_command(),
                                             codecs_command(), federate_command(), eval_command(),    generate_command(),
                                             serve_command(),  bench_command(),    plan_command(),    export_command()};
  return table;
}

}  // namespace kpd::tool
