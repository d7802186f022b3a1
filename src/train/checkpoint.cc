// train: the checkpoint file; see checkpoint.h and docs/format/checkpoint.md.
#include "train/checkpoint.h"

#include <bit>

#include "kpd/base/bytes.h"
#include "kpd/base/crc32.h"
#include "kpd/io/file.h"

namespace kpd::train {
namespace {

constexpr std::string_view kMagic = "KPDFEDCP";
constexpr uint16_t kVersion = 1;
constexpr size_t kChecksumBytes = 4;

// Grows as needed; ByteWriter wants its size beforehand.
class Sink {
 public:
  void u16(uint16_t v) { store_u16(grow(2), v); }
  void u32(uint32_t v) { store_u32(grow(4), v); }
  void u64(uint64_t v) { store_u64(grow(8), v); }
  void f64(double v) { u64(std::bit_cast<uint64_t>(v)); }
  void text(std::string_view v) {
    u32(static_cast<uint32_t>(v.size()));
    raw(v);
  }
  void raw(std::string_view v) { std::copy(v.begin(), v.end(), grow(v.size())); }
  void floats(std::span<const float> v) {
    u64(v.size());
    uint8_t* dst = grow(4 * v.size());
    for (size_t i = 0; i < v.size(); ++i) store_u32(dst + 4 * i, std::bit_cast<uint32_t>(v[i]));
  }
  void words(std::span<const uint64_t> v) {
    u64(v.size());
    for (const uint64_t word : v) u64(word);
  }
  void pairs(const Pairs& v) {
    u32(static_cast<uint32_t>(v.size()));
    for (const auto& [key, value] : v) {
      text(key);
      text(value);
    }
  }
  std::vector<uint8_t>& bytes() { return bytes_; }

 private:
  uint8_t* grow(size_t n) {
    bytes_.resize(bytes_.size() + n);
    return bytes_.data() + bytes_.size() - n;
  }
  std::vector<uint8_t> bytes_;
};

void put_evaluation(Sink& sink, const Evaluation& e) {
  sink.u64(e.round);
  sink.f64(e.accuracy);
  sink.f64(e.loss);
  for (const uint64_t v : {e.uplink_bytes, e.downlink_bytes, e.clients_ok, e.dropped, e.refused}) sink.u64(v);
  sink.f64(e.seconds);
}

void put_run(Sink& sink, const RunState& run) {
  sink.text(run.codec);
  sink.u64(run.round);
  sink.floats(run.model);
  sink.u64(run.server.steps);
  sink.floats(run.server.first);
  sink.floats(run.server.second);
  sink.floats(run.client_model);
  sink.words(run.downlink_rounds);
  sink.words(run.heard);
  for (const uint64_t v :
       {run.uplink_bytes, run.downlink_bytes, run.messages, run.downloads, run.clients_ok, run.dropped, run.refused}) {
    sink.u64(v);
  }
  for (const double v : {run.norm2, run.error2, run.seconds}) sink.f64(v);
  sink.u64(run.evaluations.size());
  for (const Evaluation& e : run.evaluations) put_evaluation(sink, e);
}

// Reads counted things; a count is compared with the bytes that are left before anything is allocated.
class Source {
 public:
  Source(std::span<const uint8_t> bytes, std::string_view name, const Limits& limits) : reader_(bytes, name), limits_(limits) {}

  uint64_t count(uint64_t each_bytes, std::string_view what) {
    const uint64_t n = reader_.u64(what);
    if (n > reader_.remaining() / each_bytes) {
      reader_.corrupt(what, ": a count of ", n, ", but only ", reader_.remaining(), " bytes are left");
    }
    return n;
  }
  std::string text(std::string_view what) {
    const uint32_t n = reader_.u32(what);
    if (n > limits_.max_name_bytes)
      reader_.corrupt(what, ": a string of ", n, " bytes, at most ", limits_.max_name_bytes, " expected");
    const auto bytes = reader_.take(n, what);
    // They are shown in errors.
    if (std::any_of(bytes.begin(), bytes.end(), [](uint8_t c) { return c < 0x20 || c == 0x7f; }))
      reader_.corrupt(what, ": control characters in a string");
    return std::string(bytes.begin(), bytes.end());
  }
  std::vector<float> floats(std::string_view what) {
    const uint64_t n = count(4, what);
    const auto bytes = reader_.take(4 * n, what);
    std::vector<float> values(n);
    for (size_t i = 0; i < n; ++i) values[i] = std::bit_cast<float>(load_u32(bytes.data() + 4 * i));
    return values;
  }
  std::vector<uint64_t> words(std::string_view what) {
    std::vector<uint64_t> values(count(8, what));
    for (uint64_t& v : values) v = reader_.u64(what);
    return values;
  }
  Pairs pairs(std::string_view what) {
    const uint32_t n = reader_.u32(what);
    Pairs result;
    for (uint32_t i = 0; i < n; ++i) {  // not reserved: text() fails first where n is a lie
      std::string key = text(what);
      result.emplace_back(std::move(key), text(what));
    }
    return result;
  }
  ByteReader& reader() { return reader_; }

 private:
  ByteReader reader_;
  Limits limits_;
};

constexpr uint64_t kEvaluationBytes = 9 * 8;

// Without its codec, whose text would take 60 times the bytes that the file needs for an evaluation.
Evaluation get_evaluation(Source& source) {
  Evaluation e;
  ByteReader& r = source.reader();
  e.round = r.u64("evaluation");
  e.accuracy = r.f64("evaluation");
  e.loss = r.f64("evaluation");
  for (uint64_t* v : {&e.uplink_bytes, &e.downlink_bytes, &e.clients_ok, &e.dropped, &e.refused}) *v = r.u64("evaluation");
  e.seconds = r.f64("evaluation");
  return e;
}

RunState get_run(Source& source) {
  ByteReader& r = source.reader();
  RunState run;
  run.codec = source.text("codec");
  run.round = r.u64("round");
  run.model = source.floats("model");
  run.server.steps = r.u64("server steps");
  run.server.first = source.floats("first moment");
  run.server.second = source.floats("second moment");
  run.client_model = source.floats("model of the clients");
  run.downlink_rounds = source.words("downlink bytes");
  run.heard = source.words("rounds heard");
  for (uint64_t* v :
       {&run.uplink_bytes, &run.downlink_bytes, &run.messages, &run.downloads, &run.clients_ok, &run.dropped, &run.refused}) {
    *v = r.u64("counters");
  }
  for (double* v : {&run.norm2, &run.error2, &run.seconds}) *v = r.f64("sums");
  const uint64_t n = source.count(kEvaluationBytes, "evaluations");
  for (uint64_t i = 0; i < n; ++i) {
    run.evaluations.push_back(get_evaluation(source));
    if (run.evaluations.back().round > run.round)
      r.corrupt("an evaluation of round ", run.evaluations.back().round, " in a run of ", run.round);
  }
  return run;
}

}  // namespace

std::vector<uint8_t> serialise_checkpoint(const Checkpoint& checkpoint) {
  Sink sink;
  sink.raw(kMagic);
  sink.u16(kVersion);
  sink.pairs(checkpoint.settings);
  sink.pairs(checkpoint.environment);
  sink.u32(static_cast<uint32_t>(checkpoint.runs.size()));
  for (const RunState& run : checkpoint.runs) put_run(sink, run);
  sink.u32(crc32(sink.bytes()));
  return std::move(sink.bytes());
}

Checkpoint parse_checkpoint(std::span<const uint8_t> bytes, std::string_view name, const Limits& limits) {
  if (bytes.size() < kMagic.size() || std::string_view(reinterpret_cast<const char*>(bytes.data()), kMagic.size()) != kMagic) {
    fail(ErrorCode::kCorruptData, name, ": byte 0: no checkpoint of kpd federate (expected ", kMagic, ")");
  }
  if (bytes.size() < kMagic.size() + 2 + kChecksumBytes)
    fail(ErrorCode::kCorruptData, name, ": byte 8: the checkpoint is cut short");
  const uint16_t version = load_u16(bytes.data() + kMagic.size());
  if (version != kVersion) {
    fail(ErrorCode::kUnsupported, name, ": byte 8: checkpoint version ", version, ", this program reads version ", kVersion);
  }
  const auto body = bytes.first(bytes.size() - kChecksumBytes);
  if (crc32(body) != load_u32(body.data() + body.size())) {
    fail(ErrorCode::kCorruptData, name, ": byte ", body.size(),
         ": the checksum is wrong: the checkpoint is damaged or cut short");
  }
  Source source(body, name, limits);
  source.reader().skip(kMagic.size() + 2, "header");
  Checkpoint checkpoint;
  checkpoint.settings = source.pairs("settings");
  checkpoint.environment = source.pairs("environment");
  const uint32_t runs = source.reader().u32("runs");
  for (uint32_t i = 0; i < runs; ++i) checkpoint.runs.push_back(get_run(source));
  if (!source.reader().at_end())
    source.reader().corrupt("the end was expected, ", source.reader().remaining(), " bytes follow");
  return checkpoint;
}

void write_checkpoint(const std::string& path, const Checkpoint& checkpoint) {
  io::write_file(path, serialise_checkpoint(checkpoint));
}

Checkpoint read_checkpoint(const std::string& path) {
  const io::MappedFile file = io::map_file(path);
  return parse_checkpoint(file.bytes(), path);
}

}  // namespace kpd::train
