// tools: the figures of `kpd mean` as JSON and as a table; see mean.h.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <functional>
#include <limits>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "kpd/base/cpu.h"
#include "mean/mean.h"
#include "spec_text.h"
#include "table.h"

namespace kpd::tool {
namespace {

using Json = nlohmann::ordered_json;

// null for a figure that was not measured or does not exist.
Json optional_json(const std::optional<double>& value) { return value && std::isfinite(*value) ? Json(*value) : Json(); }

// When compression pays (research rule, per raw float32 byte, one decode a vector): 1/E + (b/32)/N + 1/D < 1/N.
struct LinkFigures {
  double gain;             // time of sending float32 / time with the codec, one after the other
  double gain_overlapped;  // the same if encode, network and decode overlap: the slowest counts
  double break_even;       // GB/s of the link at which gain is 1
};

LinkFigures link_figures(double link, double wire_bits, const Speed& speed) {
  const double codec = 1 / speed.encode_gb_per_s + 1 / speed.decode_gb_per_s;
  const double network = wire_bits / 32 / link;
  const double slowest = std::max({1 / speed.encode_gb_per_s, network, 1 / speed.decode_gb_per_s});
  return {1 / link / (codec + network), 1 / link / slowest, std::max(0.0, (1 - wire_bits / 32) / codec)};
}

Cell with_error(const Estimate& e) {
  if (!e.standard_error) return significant_cell(e.mean, 5);
  return {fmt::format("{} +- {:.1g}", significant(e.mean, 5), *e.standard_error), e.mean};
}
Cell error_of(const Estimate& e) {
  return significant_cell(e.standard_error.value_or(std::numeric_limits<double>::quiet_NaN()), 1);
}

// A column of the table and what stands in it: a figure more is a row more in the lists below.
struct MeanColumn {
  Column column;
  std::function<Cell(size_t codec, const CodecFigures&)> cell;
};
using MeanColumns = std::vector<MeanColumn>;

void add_error_columns(const MeanPlan& plan, MeanColumns& columns) {
  const bool loss = plan.loss.has_value();
  const MeanColumns errors = {
      {{"codec", "codec", {}, {}, true}, [&plan](size_t k, const CodecFigures&) { return Cell(plan.codec_texts[k]); }},
      {{"wire_bits_per_coordinate", loss ? "bits on the wire" : "bits", "a number",
        loss ? "control parts and packets with their headers" : "all bytes of the messages"},
       [](size_t, const CodecFigures& f) { return fixed_cell(f.wire_bits(), 4); }},
      {{"vnmse", "vnmse", {}, kVnmseLegend}, [](size_t, const CodecFigures& f) { return with_error(estimate(f.vnmse)); }},
      {{"vnmse_stderr", ""}, [](size_t, const CodecFigures& f) { return error_of(estimate(f.vnmse)); }},
      {{"limit_vnmse",
        loss ? "bound" : "limit",
        {},
        loss ? "(1 + v) E[packets sent / arrived] - 1, with v the limit without loss, over messages of which something came"
        : plan.source->manifest().size() == 1 ? "vnmse of the method for a vector of this length"
                                              : "vnmse of the method for long vectors"},
       [](size_t, const CodecFigures& f) { return significant_cell(estimate(f.limit).mean, 5); }},
      {{"nmse", "nmse", {}, kNmseLegend}, [](size_t, const CodecFigures& f) { return with_error(estimate(f.nmse)); }},
      {{"nmse_stderr", ""}, [](size_t, const CodecFigures& f) { return error_of(estimate(f.nmse)); }},
      {{"ratio", "ratio", {}, kRatioLegend},
       [](size_t, const CodecFigures& f) {
         const Estimate e = estimate(f.ratio);
         if (!e.standard_error) return fixed_cell(e.mean, 3);
         return Cell(fmt::format("{} +- {:.1g}", fixed(e.mean, 3), *e.standard_error), e.mean);
       }},
      {{"ratio_stderr", ""}, [](size_t, const CodecFigures& f) { return error_of(estimate(f.ratio)); }},
  };
  columns.insert(columns.end(), errors.begin(), errors.end());
}

void add_loss_columns(MeanColumns& columns) {
  const MeanColumns counts = {
      {{"packets_lost", "packets", "lost"},
       [](size_t, const CodecFigures& f) {
         return Cell(fmt::format("{} of {}", f.packets_lost, f.packets), static_cast<double>(f.packets_lost));
       }},
      {{"packets", ""}, [](size_t, const CodecFigures& f) { return count_cell(f.packets); }},
      {{"messages_lost", "messages", "lost"},
       [](size_t, const CodecFigures& f) {
         return Cell(fmt::format("{} of {}", f.messages_lost, f.messages), static_cast<double>(f.messages_lost));
       }},
      {{"messages", ""}, [](size_t, const CodecFigures& f) { return count_cell(f.messages); }},
  };
  columns.insert(columns.end(), counts.begin(), counts.end());
}

void add_speed_columns(const MeanPlan& plan, MeanColumns& columns) {
  const MeanColumns speeds = {
      {{"encode_gb_per_s", "encode", "GB/s", "of float32 numbers"},
       [](size_t, const CodecFigures& f) { return significant_cell(f.speed->encode_gb_per_s, 3); }},
      {{"decode_gb_per_s", "decode", "GB/s"},
       [](size_t, const CodecFigures& f) { return significant_cell(f.speed->decode_gb_per_s, 3); }},
      {{"memcpy_gb_per_s", "memcpy", "GB/s"},
       [](size_t, const CodecFigures& f) { return significant_cell(f.speed->memcpy_gb_per_s, 3); }},
  };
  columns.insert(columns.end(), speeds.begin(), speeds.end());
  if (!plan.link_gb_per_s) return;
  const double link = *plan.link_gb_per_s;
  const auto figures = [link](const CodecFigures& f) { return link_figures(link, f.wire_bits(), *f.speed); };
  const MeanColumns gains = {
      {{"link_gain", "gain", fmt::format("{:g} Gbit/s", 8 * link), "time to send float32 over time with the codec"},
       [figures](size_t, const CodecFigures& f) { return fixed_cell(figures(f).gain, 2); }},
      {{"link_gain_overlapped", "overlapped", {}, "the gain if encoding, sending and decoding overlap"},
       [figures](size_t, const CodecFigures& f) { return fixed_cell(figures(f).gain_overlapped, 2); }},
      {{"link_break_even_gbit_per_s", "pays below", "Gbit/s"},
       [figures](size_t, const CodecFigures& f) { return significant_cell(8 * figures(f).break_even, 3); }},
  };
  columns.insert(columns.end(), gains.begin(), gains.end());
}

// What is the same in every row, for programs that read the table alone.
void add_run_columns(const MeanPlan& plan, MeanColumns& columns) {
  const std::pair<const char*, uint64_t> fields[] = {{"dim", plan.dim},
                                                     {"clients", plan.clients},
                                                     {"trials", plan.trials},
                                                     {"threads", static_cast<uint64_t>(plan.threads)},
                                                     {"seed", plan.seed}};
  for (const auto& [key, value] : fields) {
    columns.push_back({{key, ""}, [v = value](size_t, const CodecFigures&) { return count_cell(v); }});
  }
}

Table mean_table(const MeanPlan& plan, std::span<const CodecFigures> figures) {
  MeanColumns columns;
  add_error_columns(plan, columns);
  if (plan.loss) add_loss_columns(columns);
  if (plan.repeats > 0) add_speed_columns(plan, columns);
  add_run_columns(plan, columns);
  std::vector<Column> heads;
  for (const MeanColumn& c : columns) heads.push_back(c.column);
  Table table(heads);
  for (size_t k = 0; k < figures.size(); ++k) {
    std::vector<Cell> row;
    for (const MeanColumn& c : columns) row.push_back(c.cell(k, figures[k]));
    table.add(row);
  }
  return table;
}

}  // namespace

void print_mean_json(const MeanPlan& plan, size_t codec, const CodecFigures& figures) {
  const Estimate vnmse = estimate(figures.vnmse), nmse = estimate(figures.nmse);
  Json object;
  object["codec"] = plan.codec_texts[codec];
  object["spec"] = full_spec(plan.codecs[codec]);
  object["bits"] = plan.codecs[codec].base.bits();
  object["dim"] = plan.dim;
  object["clients"] = plan.clients;
  object["trials"] = plan.trials;
  object["vnmse"] = optional_json(vnmse.mean);
  object["vnmse_stderr"] = optional_json(vnmse.standard_error);
  object["nmse"] = optional_json(nmse.mean);
  object["nmse_stderr"] = optional_json(nmse.standard_error);
  const Estimate ratio = estimate(figures.ratio);
  object["ratio"] = optional_json(ratio.mean);
  object["ratio_stderr"] = optional_json(ratio.standard_error);
  object["limit_vnmse"] = optional_json(estimate(figures.limit).mean);
  object["wire_bits_per_coordinate"] = figures.wire_bits();
  const Speed* speed = figures.speed ? &*figures.speed : nullptr;
  object["encode_gb_per_s"] = speed ? Json(speed->encode_gb_per_s) : Json();
  object["decode_gb_per_s"] = speed ? Json(speed->decode_gb_per_s) : Json();
  object["memcpy_gb_per_s"] = speed ? Json(speed->memcpy_gb_per_s) : Json();
  object["threads"] = plan.threads;
  object["isa"] = active_isa();
  object["seed"] = plan.seed;
  object["saturated"] = figures.saturated;
  if (plan.files) object["exact_elements"] = plan.files->exact_elements();
  if (plan.loss) {
    object["loss"] = plan.loss->fraction;
    object["burst"] = plan.loss->burst;
    object["packets"] = figures.packets;
    object["packets_lost"] = figures.packets_lost;
    object["messages"] = figures.messages;
    object["messages_lost"] = figures.messages_lost;
    object["groups_lost"] = figures.groups_lost;
    object["packet_overhead_bits_per_coordinate"] =
        8.0 * static_cast<double>(figures.packet_overhead_bytes) / static_cast<double>(figures.elements);
  }
  if (plan.link_gb_per_s && speed) {
    const LinkFigures link = link_figures(*plan.link_gb_per_s, figures.wire_bits(), *speed);
    object["link_gbit_per_s"] = 8 * *plan.link_gb_per_s;
    object["link_gain"] = link.gain;
    object["link_gain_overlapped"] = link.gain_overlapped;
    object["link_break_even_gbit_per_s"] = 8 * link.break_even;
    object["link_pays"] = link.gain > 1;
  }
  fmt::print("{}\n", object.dump());
  std::fflush(stdout);
}

void print_mean_table(const MeanPlan& plan, std::span<const CodecFigures> figures, Format format) {
  // Around a csv table nothing stands on stdout.
  FILE* out = format == Format::kCsv ? stderr : stdout;
  if (format != Format::kCsv) {
    fmt::print("{}\n", wrapped(fmt::format("{}: {} number{}, {} client{}, {} trial{}, seed {}, {} thread{}, {}",
                                           plan.source->description(), plan.dim, plan.dim == 1 ? "" : "s", plan.clients,
                                           plan.clients == 1 ? "" : "s", plan.trials, plan.trials == 1 ? "" : "s", plan.seed,
                                           plan.threads, plan.threads == 1 ? "" : "s", active_isa())));
    if (plan.loss)
      fmt::print("{:g} % of the packets are lost{}\n", 100 * plan.loss->fraction, plan.loss->burst ? ", in bursts" : "");
    if (format == Format::kMarkdown) fmt::print("\n");
  }
  fmt::print("{}", mean_table(plan, figures).render(format));
  for (size_t k = 0; k < figures.size() && format != Format::kCsv; ++k) {
    const std::string spec = full_spec(plan.codecs[k]);
    if (spec != plan.codec_texts[k]) fmt::print("{}\n", wrapped("in full: " + spec, kMaxColumns, 2));
  }
  for (size_t k = 0; k < figures.size(); ++k) {
    const CodecFigures& f = figures[k];
    if (f.groups_lost > 0) {
      fmt::print(out, "{}: {} groups of blocks of which nothing came, though something came of their messages\n",
                 plan.codec_texts[k], f.groups_lost);
    }
    if (f.saturated == 0) continue;
    fmt::print(out, "{}: {} decoded numbers clamped to the float range\n", plan.codec_texts[k], f.saturated);
  }
}

}  // namespace kpd::tool
