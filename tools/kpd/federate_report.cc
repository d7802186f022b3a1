// tools: see federate_report.h.
#include "federate_report.h"

#include <algorithm>
#include <cstdio>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

namespace kpd::tool {
namespace {

using Json = nlohmann::ordered_json;

constexpr double kMega = 1e6;

void print(const std::string& text) {
  fmt::print("{}", text);
  std::fflush(stdout);
}

// Megabytes for people, bytes for programs.
Cell bytes_cell(double bytes) { return {fixed(bytes / kMega, 2), bytes}; }

// The evaluations of one codec, printed as they come.
Table evaluation_table() {
  return Table({{"round", "round", {}, {}, false, 7},
                {"accuracy", "accuracy", {}, {}, false, 8},
                {"loss", "loss", {}, {}, false, 8},
                {"uplink_bytes", "up", "MB", {}, false, 10},
                {"downlink_bytes", "down", "MB", {}, false, 10},
                {"seconds", "time", "s", {}, false, 9}});
}

Table codec_table(uint64_t final_rounds) {
  const std::string mean =
      final_rounds == 1 ? "after the last round" : fmt::format("mean after each of the last {} rounds", final_rounds);
  return Table({{"codec", "codec", {}, {}, true, 0, 34},
                {"final_accuracy", "accuracy", {}, mean},
                {"uplink_bytes", "up", "MB", "all bytes of all messages, as in down"},
                {"saved_bytes", "saved", "MB"},
                {"downlink_bytes", "down", "MB"},
                {"ratio", "ratio", {}, "float32 over what was sent up"},
                {"total_ratio", "total", {}, "the same both ways"},
                {"update_vnmse", "error", {}, "of the updates, squared, over their squares"},
                {"seconds", "time", "s"},
                {"task", ""},
                {"seed", ""},
                {"rounds", ""},
                {"float32_bytes", ""},
                {"clients_ok", ""},
                {"dropped", ""},
                {"refused", ""},
                {"threads", ""}});
}

std::string optimizer_text(const train::FederateOptions& o) {
  if (o.server == train::Server::kSgd) {
    return fmt::format("server SGD {:g}{}", o.server_lr,
                       o.server_momentum != 0 ? fmt::format(" with momentum {:g}", o.server_momentum) : std::string());
  }
  return fmt::format("server Adam {:g} (beta {:g} and {:g}, epsilon {:g})", o.server_lr, o.server_beta1, o.server_beta2,
                     o.server_eps);
}

}  // namespace

FederateReport::FederateReport(const train::FederateOptions& options, const std::string& task, const std::string& comm,
                               bool json, Format format)
    : options_(options), task_(task), comm_(comm), json_(json), format_(format) {}

void FederateReport::header(const train::Task& task) const {
  if (json_ || format_ == Format::kCsv) return;
  const train::FederateOptions& o = options_;
  uint64_t parameters = 0;
  for (const gradient::TensorInfo& info : task.manifest()) parameters += info.count();
  std::string text = fmt::format("{}: {} parameters, {} training and {} test examples", task_, parameters,
                                 task.train_labels().size(), task.test_examples());
  text += task.own_clients().empty()
              ? fmt::format("; {} clients of {} examples, Dirichlet alpha {:g}", o.clients, o.examples_per_client, o.alpha)
              : fmt::format("; {} clients, as the data has them", o.clients);
  text += fmt::format("; {} round{} of {} client{}", o.rounds, o.rounds == 1 ? "" : "s", o.clients_per_round,
                      o.clients_per_round == 1 ? "" : "s");
  if (o.sampling == train::Sampling::kWeighted) text += ", drawn by their number of examples";
  text += fmt::format("; {} local epoch{}, batches of {}; client SGD {:g}, {}; updates weighted {}; downlink {}",
                      o.local_epochs, o.local_epochs == 1 ? "" : "s", o.batch, o.client_lr, optimizer_text(o),
                      o.weights == train::Weights::kExamples ? "by examples" : "equally", o.downlink);
  if (o.drop > 0) text += fmt::format("; clients vanish with probability {:g}", o.drop);
  if (o.clip > 0) text += fmt::format("; updates clipped to norm {:g}", o.clip);
  text += fmt::format("; seed {}, {} thread{}{}", o.seed, o.threads, o.threads == 1 ? "" : "s",
                      comm_.empty() ? std::string() : ", over " + comm_);
  print((format_ == Format::kText ? wrapped(text) : text) + "\n\n");
}

void FederateReport::evaluation(const train::Evaluation& e) {
  if (json_) {
    Json line;
    line["codec"] = e.codec;
    line["seed"] = options_.seed;
    line["task"] = task_;
    line["round"] = e.round;
    line["accuracy"] = e.accuracy;
    line["loss"] = e.loss;
    line["uplink_bytes"] = e.uplink_bytes;
    line["downlink_bytes"] = e.downlink_bytes;
    line["clients_ok"] = e.clients_ok;
    line["dropped"] = e.dropped;
    line["refused"] = e.refused;
    line["seconds"] = e.seconds;
    print(line.dump() + "\n");
    return;
  }
  if (!text()) return;
  const Table table = evaluation_table();
  if (codec_ != e.codec) {
    print(str(codec_.empty() ? "" : "\n", e.codec, "\n", table.head(format_)));
    codec_ = e.codec;
  }
  print(table.row(format_, {count_cell(e.round), fixed_cell(e.accuracy, 4), fixed_cell(e.loss, 4),
                            bytes_cell(static_cast<double>(e.uplink_bytes)), bytes_cell(static_cast<double>(e.downlink_bytes)),
                            fixed_cell(e.seconds, 1)}));
}

namespace {

std::vector<Cell> codec_row(const train::CodecResult& r, const train::FederateOptions& o, const std::string& task,
                            bool knows_error) {
  const double saved = static_cast<double>(r.float32_bytes) - static_cast<double>(r.uplink_bytes);
  return {r.codec,
          fixed_cell(r.final_accuracy, 4),
          bytes_cell(static_cast<double>(r.uplink_bytes)),
          bytes_cell(saved),
          bytes_cell(static_cast<double>(r.downlink_bytes)),
          fixed_cell(r.ratio(), 2),
          fixed_cell(r.total_ratio(), 2),
          knows_error ? significant_cell(r.update_vnmse, 3) : Cell("-", std::string()),
          fixed_cell(r.seconds, 1),
          task,
          count_cell(o.seed),
          count_cell(r.rounds),
          count_cell(r.float32_bytes),
          count_cell(r.clients_ok),
          count_cell(r.dropped),
          count_cell(r.refused),
          count_cell(static_cast<uint64_t>(o.threads))};
}

}  // namespace

void FederateReport::codec_done(const train::CodecResult& r) {
  if (json_) {
    Json line;
    line["codec"] = r.codec;
    line["seed"] = options_.seed;
    line["task"] = task_;
    line["rounds"] = r.rounds;
    line["final_accuracy"] = r.final_accuracy;
    line["uplink_bytes"] = r.uplink_bytes;
    line["downlink_bytes"] = r.downlink_bytes;
    line["float32_bytes"] = r.float32_bytes;
    line["ratio"] = r.ratio();
    line["total_ratio"] = r.total_ratio();
    line["update_vnmse"] = r.update_vnmse;
    line["clients_ok"] = r.clients_ok;
    line["dropped"] = r.dropped;
    line["refused"] = r.refused;
    line["seconds"] = r.seconds;
    line["threads"] = options_.threads;
    print(line.dump() + "\n");
    return;
  }
  if (text()) return;
  const Table table = codec_table(std::min(train::kFinalRounds, r.rounds));
  if (!any_done_) print(table.head(format_));
  any_done_ = true;
  print(table.row(format_, codec_row(r, options_, task_, comm_.empty())));
}

void FederateReport::summary(const std::vector<train::CodecResult>& results) {
  if (json_ || results.empty()) return;
  Table table = codec_table(std::min(train::kFinalRounds, results[0].rounds));
  if (text()) {
    for (const train::CodecResult& r : results) table.add(codec_row(r, options_, task_, comm_.empty()));
    print("\n" + table.render(format_));
  } else {
    print(table.legend(format_));
  }
  for (const train::CodecResult& r : results) {
    if (r.dropped + r.refused == 0) continue;
    fmt::print(text() ? stdout : stderr, "{}: {} clients answered, {} vanished, {} were refused\n", r.codec, r.clients_ok,
               r.dropped, r.refused);
  }
}

void FederateReport::wrote(const std::string& what) const {
  FILE* out = text() ? stdout : stderr;
  fmt::print(out, "wrote {}\n", what);
  std::fflush(out);
}

}  // namespace kpd::tool
