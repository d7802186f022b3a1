// llm: the items of a task from its files.
#pragma once

#include <cstddef>
#include <string_view>
#include <vector>

#include "kpd/llm/tasks.h"

namespace kpd::llm {

// HellaSwag: llama.cpp's text file, six lines an item: context, number of the right ending, four endings. PIQA: JSON lines with
// goal, sol1, sol2, and a label, or `labels` with a 0 or 1 a line. LAMBADA: JSON lines with text. limit 0: all items. `name` is
// the file, for errors. Throws Error(kCorruptData) naming the line, and for no items.
std::vector<TaskItem> read_task(Task task, std::string_view data, std::string_view labels, std::string_view name,
                                size_t limit = 0);

}  // namespace kpd::llm
