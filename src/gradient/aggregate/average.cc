// gradient: averages between ranks (kpd/gradient/aggregate.h).
//
// Messages travel as the encoder's chunks (header, a segment each, checksum), so that making, moving and decoding overlap, and
// the chunks of all ranks are decoded side by side, which keeps every coordinate's sum in rank order.
#include "kpd/gradient/aggregate.h"

#include <algorithm>
#include <limits>

#include "gradient/aggregate/averager.h"
#include "gradient/aggregate/greeting.h"
#include "gradient/aggregate/stopwatch.h"
#include "gradient/stream_format.h"
#include "kpd/base/bytes.h"
#include "kpd/base/error.h"
#include "kpd/base/hash.h"
#include "kpd/base/spec.h"
#include "kpd/gradient/decoder.h"

namespace kpd::gradient {
namespace {

using comm::Delivery;

// A fast sender may be a round ahead of the server, so rounds have tags of their own.
constexpr uint64_t kRoundTags = 4096;
uint32_t update_tag(uint64_t round) { return kUpdate + static_cast<uint32_t>(round % kRoundTags); }

constexpr int kMostLate = 1000;  // messages of a rank and tag: one that sends without end must not keep the others waiting

constexpr std::string_view kPatternNames[] = {"gather", "allgather", "sra"};

}  // namespace

std::string_view pattern_name(Pattern pattern) { return kPatternNames[static_cast<size_t>(pattern)]; }

Pattern parse_pattern(std::string_view text) {
  for (size_t i = 0; i < std::size(kPatternNames); ++i) {
    if (text == kPatternNames[i]) return static_cast<Pattern>(i);
  }
  const std::string_view near = nearest_word(text, kPatternNames);
  fail(ErrorCode::kInvalidArgument, "unknown pattern '", text, "', expected gather, allgather or sra",
       near.empty() ? std::string() : str("; did you mean '", near, "'?"));
}

Bytes Averager::Impl::receive(int from, uint32_t tag) {
  const Stopwatch watch(report ? &report->clock.seconds_exchange : nullptr);
  Bytes bytes;
  switch (exchange.receive(from, tag, bytes, options.timeout)) {
    case Delivery::kReceived:
      break;
    case Delivery::kTimedOut:
      fail(ErrorCode::kIo, "rank ", from, " did not answer within ", options.timeout.count() / 1000.0, " s");
    case Delivery::kLost:
      fail(ErrorCode::kIo, "rank ", from, " was lost");
  }
  return bytes;
}

void Averager::Impl::greet() {
  const Hello own{manifest_hash(manifest), options.run,
                  hash_of(secret),         static_cast<uint64_t>(options.pattern),
                  hash_of(codec.text()),   options.second ? hash_of(options.second->text()) : 0,
                  options.weight};
  for_others([&](int r) { exchange.send(r, kHello, own.bytes()); });
  weights.assign(static_cast<size_t>(n), options.weight);
  for_others([&](int r) {
    const Hello other = Hello::read(receive(r, kHello), r);
    const auto same = [&](uint64_t theirs, uint64_t ours, const char* what) {
      if (theirs != ours) fail(ErrorCode::kMismatch, "rank ", r, " averages with another ", what, " than rank ", rank);
    };
    same(other.manifest, own.manifest, "set of tensors (names, types or shapes)");
    same(other.secret, own.secret, "secret or seed");
    same(other.run, own.run, "run id");
    same(other.pattern, own.pattern, "pattern");
    same(other.codec, own.codec, "codec");
    same(other.second, own.second, "second codec");
    weights[static_cast<size_t>(r)] = other.weight;
  });
  for (const uint64_t w : weights) {
    if (w > std::numeric_limits<uint64_t>::max() - total_weight)
      fail(ErrorCode::kInvalidArgument, "the sum of the ranks' weights leaves 64 bits");
    total_weight += w;
  }
  if (total_weight == 0) fail(ErrorCode::kInvalidArgument, "the weights of all ranks are 0");
}

void Averager::Impl::set_up() {
  const bool authenticated = options.aggregator.mac && options.pattern == Pattern::kGather;
  const EncodeOptions encode_options{
      .threads = options.threads, .nonfinite = options.nonfinite, .authenticated = authenticated};
  if (options.error_feedback && options.pattern != Pattern::kSra)
    feedback.emplace_back(manifest, codec, secret, options.threads);
  if (options.pattern == Pattern::kSra) {
    shards.emplace(manifest, static_cast<uint64_t>(n));
    for (int s = 0; s < n; ++s) {
      shard_encoders.emplace_back(shards->manifest(static_cast<size_t>(s)), codec, secret, encode_options);
      decoders.emplace_back(shards->manifest(static_cast<size_t>(rank)), secret);
      second_decoders.emplace_back(shards->manifest(static_cast<size_t>(s)), secret);
      if (!options.error_feedback) continue;
      const Codec& sent = s == rank && options.second ? *options.second : codec;
      feedback.emplace_back(shards->manifest(static_cast<size_t>(s)), sent, secret, options.threads);
    }
    shard_sum.resize(shards->elements(static_cast<size_t>(rank)));
    return;
  }
  encoder.emplace(manifest, codec, secret, encode_options);
  if (options.pattern == Pattern::kGather) {
    AggregatorOptions server = options.aggregator;
    server.threads = options.threads;
    server.codec = codec;
    server.sum_rotated = dithers();
    if (rank == 0) aggregator.emplace(manifest, secret, server);
    awaited.resize(static_cast<size_t>(n));
  } else if (dithers()) {
    DecodeOptions decode_options;
    decode_options.threads = options.threads;
    decoder.emplace(manifest, secret, decode_options);
  } else {
    for (int r = 0; r < n; ++r) decoders.emplace_back(manifest, secret);
  }
}

Bytes Averager::Impl::next_chunk(Encoder& from, EncodeReport* encoded) {
  const Stopwatch watch(&report->clock.seconds_encode);
  chunk.resize(std::max<size_t>(chunk.size(), from.max_chunk_bytes()));
  const uint64_t bytes = from.next_chunk(chunk, encoded);
  return {chunk.begin(), chunk.begin() + static_cast<std::ptrdiff_t>(bytes)};
}

Bytes Averager::Impl::whole_message(uint64_t round, std::span<const TensorView> x) {
  const Stopwatch watch(&report->clock.seconds_encode);
  Bytes message(encoder->max_bytes());
  const MessageIds own = ids(round, static_cast<uint64_t>(rank), options.weight);
  message.resize(encoder->encode_message(with_error(0, x), own, message));
  keep_error(0, {&message, 1}, own);
  if (options.aggregator.mac && options.pattern == Pattern::kGather) authenticate(message, options.aggregator.mac);
  return message;
}

void Averager::Impl::keep_error(size_t part, std::span<const Bytes> pieces, const MessageIds& ids) {
  if (feedback.empty()) return;
  Bytes whole;
  for (const Bytes& piece : pieces) whole.insert(whole.end(), piece.begin(), piece.end());
  feedback[part].keep(whole, ids);
}

void Averager::Impl::feed(StreamDecoder& to, int from, std::span<const uint8_t> bytes) {
  const Stopwatch watch(&report->clock.seconds_decode);
  if (bytes.empty()) fail(ErrorCode::kCorruptData, "rank ", from, ": an empty piece of its message");
  try {
    to.feed(bytes);
  } catch (const Error& e) {
    throw Error(e.code(), str("rank ", from, ": ", e.what()), e.offset());
  }
}

void Averager::Impl::check_sizes(std::span<const TensorView> x, std::span<const std::span<float>> mean) const {
  check_sources(manifest, x);
  if (options.pattern != Pattern::kGather || rank == 0) check_destinations(manifest, mean);
}

// What came after its round was over is refused and thrown away: it would lie in the engine's memory for ever.
void Averager::Impl::discard_late(uint64_t round) {
  Bytes message;
  for_others([&](int r) {
    std::set<uint32_t>& tags = awaited[static_cast<size_t>(r)];
    std::set<uint32_t> open = tags;
    if (last_tag) open.insert(*last_tag);  // whose message may have come twice
    open.erase(update_tag(round));         // collect_updates() looks there
    for (const uint32_t tag : open) {
      for (int i = 0; i < kMostLate && exchange.receive(r, tag, message, comm::Milliseconds(0)) == Delivery::kReceived; ++i) {
        aggregator->add(static_cast<uint64_t>(r), message, weights[static_cast<size_t>(r)]);
        tags.erase(tag);
      }
    }
  });
}

void Averager::Impl::gather(uint64_t round, std::span<const TensorView> x, std::span<const std::span<float>> mean) {
  Bytes message = whole_message(round, x);
  if (rank != 0) {
    exchange.send(0, update_tag(round), std::move(message));
    const Stopwatch watch(&report->clock.seconds_exchange);
    if (!exchange.flush(options.timeout)) fail(ErrorCode::kIo, "rank 0 took no message within the time-out");
    return;
  }
  aggregator->begin_round(ids(round, 0, 1), mean);
  discard_late(round);
  {
    const Stopwatch watch(&report->clock.seconds_decode);
    report->verdicts.push_back(aggregator->add(0, message, options.weight));
  }
  std::vector<Sender> senders;
  for (int r = 1; r < n; ++r)
    senders.push_back({r, static_cast<uint64_t>(r), update_tag(round), weights[static_cast<size_t>(r)]});
  for (Verdict& v :
       collect_updates(exchange, senders, options.timeout, *aggregator, {.clock = &report->clock, .stopped = {}})) {
    if (v.refusal == Refusal::kSilent) awaited[report->verdicts.size()].insert(update_tag(round));
    report->verdicts.push_back(std::move(v));
  }
  last_tag = update_tag(round);
  const Stopwatch watch(&report->clock.seconds_decode);
  report->has_mean = aggregator->finish_round();
  report->ranks = aggregator->report().accepted;
  report->total_weight = aggregator->report().total_weight;
}

void Averager::Impl::allgather(uint64_t round, std::span<const TensorView> x, std::span<const std::span<float>> mean) {
  std::vector<Bytes> own;
  encoder->begin_stream(with_error(0, x), ids(round, static_cast<uint64_t>(rank), options.weight));
  for (Bytes piece = next_chunk(*encoder); !piece.empty(); piece = next_chunk(*encoder)) {
    for_others([&](int r) { exchange.send(r, kFirstHop, piece); });
    own.push_back(std::move(piece));
  }
  keep_error(0, own, ids(round, static_cast<uint64_t>(rank), options.weight));
  for (const std::span<float> part : mean) std::fill(part.begin(), part.end(), 0.0f);
  for (int r = 0; r < n; ++r) {
    decoders[static_cast<size_t>(r)].begin(ids(round, static_cast<uint64_t>(r), weights[static_cast<size_t>(r)]), share(r),
                                           mean);
  }
  // All ranks cut their messages alike, so piece k of every rank is about the same coordinates.
  for (const Bytes& piece : own) {
    for (int r = 0; r < n; ++r) feed(decoders[static_cast<size_t>(r)], r, r == rank ? piece : receive(r, kFirstHop));
  }
  for (int r = 0; r < n; ++r) check_whole(decoders[static_cast<size_t>(r)], r);
}

// A message that lacks its end, and with it the checksum, is wrong however many pieces it came in.
void Averager::Impl::check_whole(const StreamDecoder& decoder, int from) {
  if (!decoder.done()) fail(ErrorCode::kCorruptData, "rank ", from, ": its message is not complete");
}

// Dithered codes are summed before one inverse rotation, message by message.
void Averager::Impl::allgather_rotated(uint64_t round, std::span<const TensorView> x, std::span<const std::span<float>> mean) {
  const Bytes own = whole_message(round, x);
  for_others([&](int r) { exchange.send(r, kFirstHop, own); });
  for (const std::span<float> part : mean) std::fill(part.begin(), part.end(), 0.0f);
  decoder->drop_rotated();  // of an average that failed
  std::optional<Error> wrong;
  for (int r = 0; r < n; ++r) {
    const Bytes other = r == rank ? Bytes() : receive(r, kFirstHop);
    const std::span<const uint8_t> message = r == rank ? own : other;
    const Stopwatch watch(&report->clock.seconds_decode);
    const MessageIds expected = ids(round, static_cast<uint64_t>(r), weights[static_cast<size_t>(r)]);
    try {
      if (!wrong) decoder->decode_rotated_add(message, expected, share(r), mean, nullptr, str("rank ", r));
    } catch (const Error& e) {
      wrong = e;
    }
  }
  if (wrong) {
    failed = false;  // all messages were taken: the next round may be good
    throw Error(*wrong);
  }
  const Stopwatch watch(&report->clock.seconds_decode);
  decoder->finish_rotated(mean);
}

Averager::Averager(comm::Exchange& exchange, Manifest manifest, Codec codec, RunSecret secret, AverageOptions options)
    : impl_(std::make_unique<Impl>(exchange, std::move(manifest), std::move(codec), secret, std::move(options))) {
  if (impl_->options.nonfinite == NonFinite::kPass)
    fail(ErrorCode::kInvalidArgument,
         "averager: nonfinite=pass, expected refuse or zero: a mean passes nothing that is not finite");
  impl_->greet();
  impl_->set_up();
}
Averager::~Averager() = default;

AverageReport Averager::average(uint64_t round, std::span<const TensorView> x, std::span<const std::span<float>> mean) {
  Impl& m = *impl_;
  if (m.failed) fail(ErrorCode::kInvalidArgument, "averager: an average of it failed; the exchange has to be opened anew");
  m.check_sizes(x, mean);
  AverageReport report;
  m.report = &report;
  m.failed = m.options.pattern != Pattern::kGather;  // unless this returns
  if (m.options.pattern != Pattern::kGather) {       // whose rank 0 finds out
    report.ranks = static_cast<uint64_t>(m.n);
    report.total_weight = m.total_weight;
    report.has_mean = true;
  }
  const comm::Traffic before = m.exchange.traffic();
  {
    const Stopwatch watch(&report.seconds_total);
    switch (m.options.pattern) {
      case Pattern::kGather:
        m.gather(round, x, mean);
        break;
      case Pattern::kAllgather:
        m.dithers() ? m.allgather_rotated(round, x, mean) : m.allgather(round, x, mean);
        break;
      case Pattern::kSra:
        m.sra(round, x, mean);
        break;
    }
  }
  m.report = nullptr;
  m.failed = false;
  const comm::Traffic after = m.exchange.traffic();
  report.sent_bytes = after.sent_bytes - before.sent_bytes;
  report.received_bytes = after.received_bytes - before.received_bytes;
  return report;
}

}  // namespace kpd::gradient
