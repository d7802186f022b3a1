// tools: `kpd codecs`, the table of methods, and of one method the keys it takes.
#include <algorithm>
#include <cstdio>
#include <memory>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "cli.h"
#include "commands.h"
#include "table.h"

namespace kpd::tool {
namespace {

using Rows = std::vector<gradient::MethodRow>;

struct CodecsArgs {
  CommonOptions common;
  std::string name;
};

// The methods that NAME asks for: one, or all.
Rows chosen(const std::string& name) {
  const Rows& all = gradient::methods();
  if (name.empty()) return all;
  std::vector<std::string_view> names;
  for (const gradient::MethodRow& row : all) names.push_back(row.name);
  // A whole spec names its method too.
  return {all[parse_choice("CODEC", name.substr(0, name.find(':')), names)]};
}

void print_json(const Rows& rows) {
  for (const gradient::MethodRow& row : rows) {
    nlohmann::ordered_json object;
    object["codec"] = row.name;
    object["id"] = row.id;
    object["bits"] = row.bits;
    object["unbiased"] = row.unbiased;
    object["limit"] = row.limit;
    object["keys"] = nlohmann::ordered_json::array();
    for (const gradient::SpecKey& k : row.keys) {
      object["keys"].push_back({{"key", k.key}, {"values", k.values}, {"default", k.fallback}});
    }
    object["paper"] = row.paper;
    fmt::print("{}\n", object.dump());
  }
}

void print_methods(const Rows& rows, Format format) {
  Table table({{"codec", "codec", {}, {}, true},
               {"bits", "bits", {}, {}, true},
               {"unbiased", "unbiased", {}, {}, true, 0, 26},
               {"limit", "error limit", {}, {}, true, 0, 32},
               {"paper", "", {}, {}, true}});
  for (const gradient::MethodRow& row : rows) {
    table.add({std::string(row.name), std::string(row.bits), std::string(row.unbiased), std::string(row.limit),
               std::string(row.paper)});
  }
  fmt::print("{}", table.render(format));
  if (format == Format::kCsv) return;
  fmt::print(
      "\n{}\n",
      wrapped("bits: a number; error limit: of |decoded - x|^2 / |x|^2 for long vectors. `kpd codecs NAME` lists the keys "
              "of a codec. A codec is named METHOD[:key=value[,key=value...]], e.g. eden:bits=1 or "
              "eden:bits=0.5,code=entropy."));
}

void print_keys(const gradient::MethodRow& row, Format format) {
  Table table({{"key", "key", {}, {}, true}, {"values", "values", {}, {}, true}, {"default", "default", {}, {}, true}});
  std::string example(row.name);
  for (const gradient::SpecKey& k : row.keys) {
    table.add({std::string(k.key), std::string(k.values), std::string(k.fallback)});
    if (k.fallback.find(' ') == std::string_view::npos)
      example += str(example.size() == row.name.size() ? ":" : ",", k.key, "=", k.fallback);
  }
  if (format == Format::kText) {
    fmt::print("{}, of {}\nbits: {}\nunbiased: {}\nerror limit: {}\n\n", row.name, row.paper, row.bits, row.unbiased,
               row.limit);
  }
  if (row.keys.empty() && format != Format::kCsv) {
    fmt::print("{} takes no keys.\n", row.name);
    return;
  }
  fmt::print("{}", table.render(format));
  if (format == Format::kText) fmt::print("\n{}\n", wrapped(str(row.name, " is ", example)));
}

int run_codecs(const CodecsArgs& args) {
  const Rows rows = chosen(args.name);
  const Format format = args.common.format();
  if (args.common.json) {
    print_json(rows);
  } else if (args.name.empty()) {
    print_methods(rows, format);
  } else {
    print_keys(rows[0], format);
  }
  return kExitOk;
}

}  // namespace

Command codecs_command() {
  return {"codecs",
          "list the codecs: bits, how unbiased, error limit; or the keys of one",
          {"kpd codecs", "kpd codecs eden"},
          [](CLI::App& app) {
            auto args = std::make_shared<CodecsArgs>();
            add_positional(app, "CODEC", args->name, "list this one's keys, their values and defaults");
            args->common.add_format(app);
            args->common.add_json(app);
            return [args] { return run_codecs(*args); };
          }};
}

}  // namespace kpd::tool
