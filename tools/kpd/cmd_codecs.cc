// tools: `kpd codecs`, the table of methods.
#include <algorithm>
#include <cstdio>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "cli.h"
#include "commands.h"

namespace kpd::tool {
namespace {

std::string join_keys(const gradient::MethodRow& row) {
  std::string keys;
  for (const std::string_view key : row.keys) keys += str(keys.empty() ? "" : " ", key);
  return keys;
}

int print_json() {
  for (const gradient::MethodRow& row : gradient::methods()) {
    nlohmann::ordered_json object;
    object["codec"] = row.name;
    object["id"] = row.id;
    object["bits"] = row.bits;
    object["unbiased"] = row.unbiased;
    object["limit"] = row.limit;
    object["keys"] = row.keys;
    object["paper"] = row.paper;
    fmt::print("{}\n", object.dump());
  }
  return kExitOk;
}

int print_table() {
  std::vector<std::vector<std::string>> table = {{"codec", "bits", "unbiased", "error limit", "keys", "paper"}};
  for (const gradient::MethodRow& row : gradient::methods()) {
    table.push_back({std::string(row.name), std::string(row.bits), std::string(row.unbiased), std::string(row.limit),
                     join_keys(row), std::string(row.paper)});
  }
  std::vector<size_t> widths(table[0].size());
  for (const auto& row : table) {
    for (size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], row[i].size());
  }
  for (const auto& row : table) {
    std::string line;
    for (size_t i = 0; i < row.size(); ++i) line += fmt::format("{:<{}}", row[i], i + 1 < row.size() ? widths[i] + 2 : 0);
    fmt::print("{}\n", line);
  }
  fmt::print("\nA codec is named METHOD[:key=value[,key=value...]], e.g. eden:bits=1 or eden:bits=0.5,code=entropy.\n");
  return kExitOk;
}

}  // namespace

Command codecs_command() {
  return {"codecs", "list the codecs: bits, how unbiased, error limit, paper", {"kpd codecs"}, [](CLI::App& app) {
            auto options = std::make_shared<CommonOptions>();
            options->add_json(app);
            return [options] { return options->json ? print_json() : print_table(); };
          }};
}

}  // namespace kpd::tool
