// tools: what `kpd federate` prints: a header, a line an evaluation, a table of the codecs; or JSON lines, or a table for
// programs and pages (csv and markdown: a row a codec, as each is done).
#pragma once

#include <string>
#include <vector>

#include "cli.h"
#include "kpd/train/federate.h"
#include "table.h"

namespace kpd::tool {

class FederateReport {
 public:
  // `comm`: the engine's name, empty without one. `options` are those of the run and outlive the report.
  FederateReport(const train::FederateOptions& options, const std::string& task, const std::string& comm, bool json,
                 Format format);
  // Before the first round.
  void header(const train::Task& task) const;
  void evaluation(const train::Evaluation& e);
  void codec_done(const train::CodecResult& r);
  // After the last.
  void summary(const std::vector<train::CodecResult>& results);
  // "wrote FILE", on stderr where stdout is for programs.
  void wrote(const std::string& what) const;

 private:
  bool text() const { return !json_ && format_ == Format::kText; }

  const train::FederateOptions& options_;
  const std::string task_, comm_;
  const bool json_;
  const Format format_;
  std::string codec_;  // whose evaluations are being printed
  bool any_done_ = false;
};

}  // namespace kpd::tool
