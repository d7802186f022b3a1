// tools: `kpd eval --task`, how often a model prefers the right ending.
#pragma once

#include <string>
#include <vector>

#include "cli.h"
#include "model_options.h"

namespace kpd::tool {

struct TaskArgs {
  std::string task, data, labels, limit;
  bool items = false;

  void add_options(CLI::App& app);
  // Whether the command line is about a task; throws UsageError where the options contradict each other.
  bool chosen() const;
};

int run_tasks(const TaskArgs& args, const std::vector<std::string>& models, const std::vector<std::string>& caches,
              const std::vector<std::string>& kv_layers, const ModelOptions& options, const CommonOptions& common);

}  // namespace kpd::tool
