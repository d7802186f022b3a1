// text: filters of lists in chat templates.
#include <algorithm>
#include <map>

#include "text/jinja_filters.h"
#include "text/jinja_unicode.h"

namespace kpd::text::jinja {
namespace {

Value folded(const Value& v, bool case_sensitive, Meter& meter) {
  if (case_sensitive || !v.is(Kind::kString)) return v;
  meter.bytes(v.text().size());
  return Value::string(lower(v.text()));
}

// "a.b.0" as steps: names and indices.
std::vector<Value> attribute_steps(const Value& attribute) {
  if (attribute.missing() || attribute.is(Kind::kNone)) return {};
  if (!attribute.is(Kind::kString)) return {attribute};
  std::vector<Value> steps;
  for (const Text& part : split(attribute.text(), ".", -1)) {
    const bool digits = !part.empty() && part.view().find_first_not_of("0123456789") == std::string_view::npos;
    if (digits && part.size() > 18) refuse("an index of more than 18 digits");
    steps.push_back(digits ? Value::integer(std::stoll(part.bytes())) : Value::string(part));
  }
  return steps;
}

Value attribute_of(Value item, const std::vector<Value>& steps, Meter& meter, const Value& otherwise = {}) {
  for (const Value& step : steps) {
    item = get_item(item, step, meter);
    if (item.is(Kind::kUndefined) && !otherwise.missing() && !otherwise.is(Kind::kNone)) item = otherwise;
  }
  return item;
}

Value filter_batch(const FilterCall& call) {
  const std::vector<Value> a = call.bind({"linecount", "fill_with"});
  const int64_t size = whole("batch", a[0]);
  if (size < 1) refuse("batches of less than one");
  std::vector<Value> batches, batch;
  for (Value& item : iterate(call.self, call.meter)) {
    if (batch.size() == static_cast<size_t>(size)) {
      batches.push_back(Value::list(std::move(batch)));
      batch.clear();
    }
    batch.push_back(std::move(item));
  }
  if (!batch.empty()) {
    const bool fill = !a[1].missing() && !a[1].is(Kind::kNone);
    if (fill) call.meter.bytes((static_cast<size_t>(size) - batch.size()) * sizeof(Value));
    while (fill && batch.size() < static_cast<size_t>(size)) batch.push_back(a[1]);
    batches.push_back(Value::list(std::move(batch)));
  }
  return Value::iterator(std::move(batches));
}

Value filter_slice(const FilterCall& call) {
  const std::vector<Value> a = call.bind({"slices", "fill_with"});
  const std::vector<Value> items = iterate(call.self, call.meter);
  const int64_t slices = whole("slice", a[0]);
  if (slices == 0) trouble("division by zero");
  if (slices < 0) return Value::iterator({});
  const auto n = static_cast<size_t>(slices);
  call.meter.bytes(n * (sizeof(Value) + sizeof(ListObject)));
  std::vector<Value> out;
  const size_t each = items.size() / n, longer = items.size() % n;
  size_t begin = 0;
  for (size_t i = 0; i < n; ++i) {
    const size_t end = begin + each + (i < longer ? 1 : 0);
    std::vector<Value> part(items.begin() + static_cast<ptrdiff_t>(begin), items.begin() + static_cast<ptrdiff_t>(end));
    if (!a[1].missing() && !a[1].is(Kind::kNone) && i >= longer) part.push_back(a[1]);
    out.push_back(Value::list(std::move(part)));
    begin = end;
  }
  return Value::iterator(std::move(out));
}

Value filter_length(const FilterCall& call) {
  (void)call.bind({});
  if (call.self.is(Kind::kString)) call.meter.step(call.self.text().size() / 64);
  return Value::integer(static_cast<int64_t>(length(call.self)));
}

Value filter_dictsort(const FilterCall& call) {
  const std::vector<Value> a = call.bind({"case_sensitive", "by", "reverse"});
  const std::string by = a[1].missing() ? "key" : text_of("dictsort", a[1]).bytes();
  if (by != "key" && by != "value") trouble("You can only sort by either \"key\" or \"value\"");
  if (call.self.is(Kind::kUndefined)) trouble(call.self.why());
  if (!call.self.is(Kind::kDict)) trouble("dictsort needs a dict, not ", type_name(call.self));
  std::vector<Value> items, keys;
  for (const auto& [key, value] : call.self.pairs()) {
    items.push_back(Value::tuple({key, value}));
    keys.push_back(folded(by == "key" ? key : value, truth(a[0]), call.meter));
  }
  call.meter.bytes(items.size() * sizeof(ListObject));
  return Value::list(sorted(std::move(items), std::move(keys), truth(a[2]), call.meter));
}

Value filter_first(const FilterCall& call) {
  (void)call.bind({});
  const Value& v = call.self;
  const Value none = Value::undefined("No first item, sequence was empty.");
  if (v.is(Kind::kIterator)) {
    auto& object = v.as<ListObject>();
    return object.next < object.items.size() ? object.items[object.next++] : none;
  }
  if (v.is(Kind::kList) || v.is(Kind::kTuple)) return v.items().empty() ? none : v.items().front();
  const std::vector<Value> items = iterate(v, call.meter);
  return items.empty() ? none : items.front();
}

Value filter_last(const FilterCall& call) {
  (void)call.bind({});
  const Value& v = call.self;
  if (v.is(Kind::kIterator)) trouble("a generator cannot be reversed");
  const Value none = Value::undefined("No last item, sequence was empty.");
  if (v.is(Kind::kList) || v.is(Kind::kTuple)) return v.items().empty() ? none : v.items().back();
  const std::vector<Value> items = iterate(v, call.meter);
  return items.empty() ? none : items.back();
}

Value filter_items(const FilterCall& call) {
  (void)call.bind({});
  if (call.self.is(Kind::kUndefined)) return Value::iterator({});
  if (!call.self.is(Kind::kDict)) trouble("Can only get item pairs from a mapping.");
  std::vector<Value> items;
  call.meter.bytes(call.self.pairs().size() * (sizeof(Value) + sizeof(ListObject)));
  for (const auto& [key, value] : call.self.pairs()) items.push_back(Value::tuple({key, value}));
  return Value::iterator(std::move(items));
}

Value filter_join(const FilterCall& call) {
  const std::vector<Value> a = call.bind({"d", "attribute"});
  const Text separator = a[0].missing() ? Text() : to_text(a[0], call.meter);
  const std::vector<Value> steps = attribute_steps(a[1]);
  Text out;
  bool first = true;
  for (const Value& item : iterate(call.self, call.meter)) {
    if (!first) {
      call.meter.bytes(separator.size());
      out.append(separator);
    }
    first = false;
    out.append(to_text(attribute_of(item, steps, call.meter), call.meter));
  }
  return Value::string(std::move(out));
}

Value filter_list(const FilterCall& call) {
  (void)call.bind({});
  return Value::list(iterate(call.self, call.meter));
}

Value filter_map(const FilterCall& call) {
  if (!truth(call.self)) return Value::iterator({});
  std::vector<Value> out;
  Arguments& args = call.args;
  const bool by_attribute = args.items.empty() && std::any_of(args.keywords.begin(), args.keywords.end(),
                                                              [](const auto& k) { return k.first == "attribute"; });
  if (by_attribute) {
    const std::vector<Value> a = call.bind({"attribute", "default"});
    const std::vector<Value> steps = attribute_steps(a[0]);
    for (const Value& item : iterate(call.self, call.meter)) out.push_back(attribute_of(item, steps, call.meter, a[1]));
    return Value::iterator(std::move(out));
  }
  if (args.items.empty()) trouble("map requires a filter argument");
  const std::string name = text_of("map", args.items[0]).bytes();
  Arguments rest{{args.items.begin() + 1, args.items.end()}, args.keywords};
  for (const Value& item : iterate(call.self, call.meter)) out.push_back(call_filter(name, item, rest, call.meter));
  return Value::iterator(std::move(out));
}

Value extreme(const FilterCall& call, Order better) {
  const std::vector<Value> a = call.bind({"case_sensitive", "attribute"});
  const std::vector<Value> steps = attribute_steps(a[1]);
  const std::vector<Value> items = iterate(call.self, call.meter);
  if (items.empty()) return Value::undefined("No aggregated item, sequence was empty.");
  const auto key = [&](const Value& item) { return folded(attribute_of(item, steps, call.meter), truth(a[0]), call.meter); };
  size_t best = 0;
  Value best_key = key(items[0]);
  for (size_t i = 1; i < items.size(); ++i) {
    Value k = key(items[i]);
    if (!in_order(better, k, best_key, call.meter)) continue;
    best = i;
    best_key = std::move(k);
  }
  return items[best];
}

// select, reject, selectattr, rejectattr.
Value filter_select(const FilterCall& call, bool wanted, bool by_attribute) {
  if (!truth(call.self)) return Value::iterator({});
  Arguments& args = call.args;
  std::vector<Value> steps;
  size_t used = 0;
  if (by_attribute) {
    if (args.items.empty()) trouble("Missing parameter for attribute name");
    steps = attribute_steps(args.items[used++]);
  }
  const bool tested = args.items.size() > used;
  const std::string test = tested ? text_of(call.name, args.items[used++]).bytes() : "";
  Arguments rest{{args.items.begin() + static_cast<ptrdiff_t>(used), args.items.end()}, args.keywords};
  std::vector<Value> out;
  for (Value& item : iterate(call.self, call.meter)) {
    const Value seen = attribute_of(item, steps, call.meter);
    const bool passes = tested ? call_test(test, seen, rest, call.meter) : truth(seen);
    if (passes == wanted) out.push_back(std::move(item));
  }
  return Value::iterator(std::move(out));
}

Value filter_reverse(const FilterCall& call) {
  (void)call.bind({});
  if (call.self.is(Kind::kString)) {
    call.meter.bytes(call.self.text().size());
    return Value::string(reversed(call.self.text()));
  }
  std::vector<Value> items = iterate(call.self, call.meter);
  std::reverse(items.begin(), items.end());
  return call.self.is(Kind::kIterator) ? Value::list(std::move(items)) : Value::iterator(std::move(items));
}

Value filter_sort(const FilterCall& call) {
  const std::vector<Value> a = call.bind({"reverse", "case_sensitive", "attribute"});
  std::vector<std::vector<Value>> paths;
  if (a[2].is(Kind::kString)) {
    for (const Text& one : split(a[2].text(), ",", -1)) paths.push_back(attribute_steps(Value::string(one)));
  } else {
    paths.push_back(attribute_steps(a[2]));
  }
  std::vector<Value> items = iterate(call.self, call.meter), keys;
  for (const Value& item : items) {
    std::vector<Value> key;
    for (const auto& steps : paths) key.push_back(folded(attribute_of(item, steps, call.meter), truth(a[1]), call.meter));
    call.meter.bytes(key.size() * sizeof(Value) + sizeof(ListObject));
    keys.push_back(Value::list(std::move(key)));
  }
  return Value::list(sorted(std::move(items), std::move(keys), truth(a[0]), call.meter));
}

Value filter_sum(const FilterCall& call) {
  const std::vector<Value> a = call.bind({"attribute", "start"});
  const std::vector<Value> steps = attribute_steps(a[0]);
  Value total = a[1].missing() ? Value::integer(0) : a[1];
  if (total.is(Kind::kString)) trouble("sum() can't sum strings [use ''.join(seq) instead]");
  for (const Value& item : iterate(call.self, call.meter)) {
    total = binary(Op::kAdd, total, attribute_of(item, steps, call.meter), call.meter);
    // Python adds floats with a correction term since 3.12.
    if (total.is(Kind::kFloat)) refuse("the sum of floats is not supported");
  }
  return total;
}

Value filter_unique(const FilterCall& call) {
  const std::vector<Value> a = call.bind({"case_sensitive", "attribute"});
  const std::vector<Value> steps = attribute_steps(a[1]);
  std::vector<std::pair<Value, Value>> seen;
  std::vector<Value> out;
  for (Value& item : iterate(call.self, call.meter)) {
    Value key = folded(attribute_of(item, steps, call.meter), truth(a[0]), call.meter);
    if (find_key(seen, key, call.meter)) continue;
    set_key(seen, std::move(key), Value::none(), call.meter);
    out.push_back(std::move(item));
  }
  return Value::iterator(std::move(out));
}

constexpr FilterRow kFilters[] = {
    {"batch", filter_batch},
    {"count", filter_length},
    {"dictsort", filter_dictsort},
    {"first", filter_first},
    {"items", filter_items},
    {"join", filter_join},
    {"last", filter_last},
    {"length", filter_length},
    {"list", filter_list},
    {"map", filter_map},
    {"max", [](const FilterCall& c) { return extreme(c, Order::kGreater); }},
    {"min", [](const FilterCall& c) { return extreme(c, Order::kLess); }},
    {"reject", [](const FilterCall& c) { return filter_select(c, false, false); }},
    {"rejectattr", [](const FilterCall& c) { return filter_select(c, false, true); }},
    {"reverse", filter_reverse},
    {"select", [](const FilterCall& c) { return filter_select(c, true, false); }},
    {"selectattr", [](const FilterCall& c) { return filter_select(c, true, true); }},
    {"slice", filter_slice},
    {"sort", filter_sort},
    {"sum", filter_sum},
    {"unique", filter_unique},
};

}  // namespace

Filter list_filter(std::string_view name) {
  const auto* row = std::find_if(std::begin(kFilters), std::end(kFilters), [&](const FilterRow& r) { return r.name == name; });
  return row == std::end(kFilters) ? nullptr : row->filter;
}

}  // namespace kpd::text::jinja
