// llm: a model's planned context for the length of one piece of work.
#pragma once

#include <algorithm>

#include "kpd/llm/model.h"

namespace kpd::llm {

// What the caller planned already stays if it is more: its other sequences count on it.
class PlannedContext {
 public:
  PlannedContext(Model& model, size_t n_positions) : model_(model), before_(model.planned_context()) {
    model.set_planned_context(std::max(before_, n_positions));
  }
  ~PlannedContext() { model_.set_planned_context(before_); }
  PlannedContext(const PlannedContext&) = delete;
  PlannedContext& operator=(const PlannedContext&) = delete;

 private:
  Model& model_;
  size_t before_;
};

}  // namespace kpd::llm
