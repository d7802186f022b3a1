// tools: the figures of `kpd mean` as JSON and as a table; see mean.h.
#include <algorithm>
#include <cmath>
#include <cstdio>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "kpd/base/cpu.h"
#include "mean.h"

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

std::string with_error(const Estimate& e) {
  return e.standard_error ? fmt::format("{:.5g} +- {:.1g}", e.mean, *e.standard_error) : fmt::format("{:.5g}", e.mean);
}

std::string speed_text(double gb_per_s) { return fmt::format("{:.3g}", gb_per_s); }

void print_rows(const std::vector<std::vector<std::string>>& rows) {
  std::vector<size_t> widths(rows[0].size());
  for (const auto& row : rows) {
    for (size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], row[i].size());
  }
  for (const auto& row : rows) {
    std::string line;
    for (size_t i = 0; i < row.size(); ++i) line += fmt::format("{:<{}}  ", row[i], widths[i]);
    line.erase(line.find_last_not_of(' ') + 1);
    fmt::print("{}\n", line);
  }
}

std::vector<std::string> table_row(const MeanPlan& plan, size_t codec, const CodecFigures& figures) {
  const Estimate vnmse = estimate(figures.vnmse), nmse = estimate(figures.nmse);
  const double limit = estimate(figures.limit).mean;
  const double ratio = nmse.mean * static_cast<double>(plan.clients) / vnmse.mean;
  std::vector<std::string> row = {plan.codec_texts[codec], fmt::format("{:.4f}", figures.wire_bits()),
                                  with_error(vnmse),       std::isfinite(limit) ? fmt::format("{:.5g}", limit) : "-",
                                  with_error(nmse),        std::isfinite(ratio) ? fmt::format("{:.3f}", ratio) : "-"};
  if (plan.loss) {
    row.push_back(fmt::format("{} of {}", figures.packets_lost, figures.packets));
    row.push_back(fmt::format("{} of {}", figures.messages_lost, figures.messages));
  }
  if (figures.speed) {
    row.push_back(speed_text(figures.speed->encode_gb_per_s));
    row.push_back(speed_text(figures.speed->decode_gb_per_s));
    row.push_back(speed_text(figures.speed->memcpy_gb_per_s));
    if (plan.link_gb_per_s) {
      const LinkFigures link = link_figures(*plan.link_gb_per_s, figures.wire_bits(), *figures.speed);
      row.push_back(fmt::format("{:.2f}x", link.gain));
      row.push_back(fmt::format("{:.2f}x", link.gain_overlapped));
      row.push_back(fmt::format("{:.3g} Gbit/s", 8 * link.break_even));
    }
  }
  return row;
}

}  // namespace

void print_mean_json(const MeanPlan& plan, size_t codec, const CodecFigures& figures) {
  const Estimate vnmse = estimate(figures.vnmse), nmse = estimate(figures.nmse);
  Json object;
  object["codec"] = plan.codec_texts[codec];
  object["bits"] = plan.codecs[codec].bits();
  object["dim"] = plan.dim;
  object["clients"] = plan.clients;
  object["trials"] = plan.trials;
  object["vnmse"] = optional_json(vnmse.mean);
  object["vnmse_stderr"] = optional_json(vnmse.standard_error);
  object["nmse"] = optional_json(nmse.mean);
  object["nmse_stderr"] = optional_json(nmse.standard_error);
  object["limit_vnmse"] = optional_json(estimate(figures.limit).mean);
  object["wire_bits_per_coordinate"] = figures.wire_bits();
  const Speed* speed = figures.speed ? &*figures.speed : nullptr;
  object["encode_gb_per_s"] = speed ? Json(speed->encode_gb_per_s) : Json();
  object["decode_gb_per_s"] = speed ? Json(speed->decode_gb_per_s) : Json();
  object["memcpy_gb_per_s"] = speed ? Json(speed->memcpy_gb_per_s) : Json();
  object["threads"] = plan.threads;
  object["isa"] = active_isa();
  object["seed"] = plan.seed;
  object["reseeded"] = figures.reseeded;
  object["over_limit"] = figures.over_limit;
  object["saturated"] = figures.saturated;
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

void print_mean_table(const MeanPlan& plan, std::span<const CodecFigures> figures) {
  fmt::print("{}: {} numbers, {} client{}, {} trial{}, seed {}, {} thread{}, {}\n", plan.source->description(), plan.dim,
             plan.clients, plan.clients == 1 ? "" : "s", plan.trials, plan.trials == 1 ? "" : "s", plan.seed, plan.threads,
             plan.threads == 1 ? "" : "s", active_isa());
  if (plan.loss) {
    fmt::print("{:g} of the packets are lost{}; bits on the wire: control parts and packets with their headers\n",
               plan.loss->fraction, plan.loss->burst ? ", in bursts" : "");
    fmt::print(
        "bound: (1 + v) E[packets sent / arrived] - 1, with v the limit without loss, over messages of which something came\n");
  }
  const bool loss = plan.loss.has_value();
  std::vector<std::string> head = {
      "codec", loss ? "bits on the wire" : "bits/number", "vnmse", loss ? "bound" : "limit", "nmse", "nmse*n/vnmse"};
  if (loss) head.insert(head.end(), {"packets lost", "messages lost"});
  if (plan.repeats > 0) {
    head.insert(head.end(), {"encode GB/s", "decode GB/s", "memcpy GB/s"});
    if (plan.link_gb_per_s) {
      head.push_back(fmt::format("gain at {:g} Gbit/s", 8 * *plan.link_gb_per_s));
      head.insert(head.end(), {"overlapped", "pays below"});
    }
  }
  std::vector<std::vector<std::string>> rows = {head};
  for (size_t k = 0; k < figures.size(); ++k) rows.push_back(table_row(plan, k, figures[k]));
  print_rows(rows);
  for (size_t k = 0; k < figures.size(); ++k) {
    const CodecFigures& f = figures[k];
    if (f.groups_lost > 0) {
      fmt::print("{}: {} groups of blocks of which nothing came, though something came of their messages\n",
                 plan.codec_texts[k], f.groups_lost);
    }
    if (f.reseeded + f.over_limit + f.saturated == 0) continue;
    fmt::print("{}: {} rotations drawn again, {} blocks beyond 4 x the limit, {} decoded numbers clamped to the float range\n",
               plan.codec_texts[k], f.reseeded, f.over_limit, f.saturated);
  }
}

}  // namespace kpd::tool
