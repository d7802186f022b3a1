// tools: see sampling_options.h.
#include "sampling_options.h"

#include <utility>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace kpd::tool {
namespace {

// "temperature 0.8, top-k 40 (origin)", or nothing.
std::string group(const std::vector<std::string>& values, const std::string& origin) {
  return values.empty() ? std::string() : fmt::format("{} ({})", fmt::join(values, ", "), origin);
}

std::string sampling_line(const SamplingArgs& args, const llm::SamplingOptions& o, const std::string& origin) {
  if (o.temperature == 0) {
    const std::string penalty = o.repeat_penalty != 1 ? fmt::format(", repeat penalty {}", o.repeat_penalty) : "";
    return fmt::format("sampling: greedy{} ({})", penalty, args.temperature.empty() ? origin : "--temperature 0");
  }
  struct Value {
    const char* name;
    double value, neutral;
    const std::string* given;
  };
  const Value values[] = {{"temperature", o.temperature, -1, &args.temperature},
                          {"top-k", static_cast<double>(o.top_k), 0, &args.top_k},
                          {"top-p", o.top_p, 1, &args.top_p},
                          {"min-p", o.min_p, 0, &args.min_p},
                          {"repeat penalty", o.repeat_penalty, 1, &args.repeat_penalty}};
  std::vector<std::string> asked, others;
  for (const Value& v : values) {
    if (!v.given->empty()) {
      asked.push_back(fmt::format("{} {}", v.name, v.value));
    } else if (v.value != v.neutral) {
      others.push_back(fmt::format("{} {}", v.name, v.value));
    }
  }
  std::vector<std::string> groups;
  for (const std::string& text : {group(asked, "command line"), group(others, origin)}) {
    if (!text.empty()) groups.push_back(text);
  }
  return fmt::format("sampling: {}", fmt::join(groups, ", "));
}

}  // namespace

void SamplingArgs::add_options(CLI::App& app) {
  add(app, "--temperature", temperature, "T",
      "0 takes the most probable token; without it sampling is the model's own (generation_config.json, GGUF's "
      "general.sampling), else "
      "0.8 with top-k 40, top-p 0.95, min-p 0.05");
  add(app, "--top-k", top_k, "K", "draw from the K most probable (0: all)");
  add(app, "--top-p", top_p, "P", "draw from the most probable that make up P");
  add(app, "--min-p", min_p, "P", "leave out what is less probable than P times the most probable");
  add(app, "--repeat-penalty", repeat_penalty, "R", "above 1: what occurred already becomes less probable");
}

llm::SamplingOptions SamplingArgs::over(const llm::SamplingOptions& defaults) const {
  llm::SamplingOptions o = defaults;
  if (!temperature.empty()) o.temperature = parse_real("--temperature", temperature, 0, 100);
  if (!top_k.empty()) o.top_k = parse_count("--top-k", top_k, 0, 1 << 24);
  if (!top_p.empty()) o.top_p = parse_real("--top-p", top_p, 0, 1);
  if (!min_p.empty()) o.min_p = parse_real("--min-p", min_p, 0, 1);
  if (!repeat_penalty.empty()) o.repeat_penalty = parse_real("--repeat-penalty", repeat_penalty, 0.01, 100);
  as_usage("sampling", [&] { llm::check_sampling(o); });
  for (const auto& [name, value] : {std::pair("--top-k", &top_k), std::pair("--top-p", &top_p), std::pair("--min-p", &min_p)}) {
    if (o.temperature == 0 && !value->empty())
      usage(name, " ", *value, ": needs --temperature above 0; at 0 the most probable token is taken");
  }
  return o;
}

Sampling choose_sampling(const SamplingArgs& args, const OpenedModel& model, const CommonOptions& common) {
  const llm::SamplingDefaults defaults = llm::sampling_defaults(model.path, model.weights.gguf().get());
  Sampling s{args.over(defaults.options), ""};
  s.line = sampling_line(args, s.options, defaults.source);
  if (!defaults.ignored.empty()) s.line += fmt::format("; not done: {}", defaults.ignored);
  if (s.options.temperature == 0) return s;
  const std::optional<uint64_t> given = common.given_seed();
  s.options.seed = given ? *given : fresh_seed();
  s.line +=
      given ? fmt::format("; seed {}", s.options.seed) : fmt::format("; seed {0} (repeat with --seed {0})", s.options.seed);
  return s;
}

}  // namespace kpd::tool
