// text: the filters of chat templates, in two files. Private.
#pragma once

#include "text/jinja_runtime.h"

namespace kpd::text::jinja {

struct FilterCall {
  const std::string& name;
  const Value& self;
  Arguments& args;
  Meter& meter;

  std::vector<Value> bind(std::initializer_list<std::string_view> parameters) const {
    return jinja::bind(name, args, parameters);
  }
  Text text() const { return to_text(self, meter); }  // of any value
};

using Filter = Value (*)(const FilterCall&);
struct FilterRow {
  std::string_view name;
  Filter filter;  // null: jinja2's, but not here
};

// The filter of lists, or null.
Filter list_filter(std::string_view name);

}  // namespace kpd::text::jinja
