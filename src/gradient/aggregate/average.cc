// gradient: averages between ranks (kpd/gradient/aggregate.h).
//
// Messages travel as the encoder's chunks (header, a segment each, checksum), so that making, moving and decoding overlap, and
// the chunks of all ranks are decoded side by side, which keeps every coordinate's sum in rank order.
#include "kpd/gradient/aggregate.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>

#include "gradient/aggregate/greeting.h"
#include "gradient/aggregate/shards.h"
#include "gradient/aggregate/stopwatch.h"
#include "gradient/stream_format.h"
#include "kernels/hadamard.h"
#include "kpd/base/bytes.h"
#include "kpd/base/error.h"
#include "kpd/base/hash.h"
#include "kpd/base/spec.h"
#include "kpd/gradient/streaming.h"

namespace kpd::gradient {
namespace {

using comm::Delivery;
using Bytes = std::vector<uint8_t>;

enum Tag : uint32_t { kHello = 1, kFirstHop, kNorm, kSecondHop, kUpdate };

// A fast sender may be a round ahead of the server, so rounds have tags of their own.
uint32_t update_tag(uint64_t round) { return kUpdate + static_cast<uint32_t>(round % 4096); }

constexpr uint64_t kSecondHopClient = uint64_t{1} << 32;  // + shard: client ids of the second hop's messages
constexpr double kBitStep = 0.125;                        // of the second hop's bits

constexpr std::string_view kPatternNames[] = {"gather", "allgather", "sra"};

std::string with_bits(const std::string& spec, double bits) {
  std::string text;
  const size_t colon = spec.find(':');
  std::string rest = colon == std::string::npos ? "" : spec.substr(colon + 1);
  while (!rest.empty()) {
    const size_t comma = rest.find(',');
    const std::string pair = rest.substr(0, comma);
    if (!pair.starts_with("bits=")) text += "," + pair;
    rest = comma == std::string::npos ? "" : rest.substr(comma + 1);
  }
  return str(spec.substr(0, colon), ":bits=", bits, text);
}

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

struct Averager::Impl {
  Impl(comm::Exchange& the_exchange, Manifest the_manifest, Codec the_codec, RunSecret the_secret, AverageOptions the_options)
      : exchange(the_exchange),
        manifest(std::move(the_manifest)),
        codec(std::move(the_codec)),
        secret(the_secret),
        options(std::move(the_options)),
        rank(exchange.rank()),
        n(exchange.size()) {}

  comm::Exchange& exchange;
  const Manifest manifest;
  const Codec codec;
  const RunSecret secret;
  AverageOptions options;
  const int rank, n;
  std::vector<uint64_t> weights;  // of every rank
  uint64_t total_weight = 0;

  std::optional<Encoder> encoder;              // of the whole (gather, allgather)
  std::optional<Aggregator> aggregator;        // gather, rank 0
  std::optional<Decoder> decoder;              // allgather of dithered codes
  std::vector<StreamDecoder> decoders;         // one a rank
  std::optional<Shards> shards;                // sra
  std::vector<Encoder> shard_encoders;         // sra, first hop
  std::vector<StreamDecoder> second_decoders;  // sra, one a shard
  std::map<double, Encoder> second_encoders;   // by bits
  std::vector<float> shard_sum;

  AverageReport* report = nullptr;
  Bytes chunk;
  bool failed = false;  // while parts of messages were under way

  void greet();
  Bytes receive(int from, uint32_t tag);
  void set_up();
  MessageIds ids(uint64_t round, uint64_t client, uint64_t weight) const {
    return {.run = options.run, .round = round, .client = client, .base_model_hash = 0, .weight = weight};
  }
  float share(int r) const {
    return static_cast<float>(static_cast<double>(weights[static_cast<size_t>(r)]) / static_cast<double>(total_weight));
  }
  bool dithers() const { return (codec.params().flags & kFlagDither) != 0; }

  // The next chunk of an encoder, empty after the last.
  Bytes next_chunk(Encoder& from, EncodeReport* encoded = nullptr);
  void check_sizes(std::span<const TensorView> x, std::span<const std::span<float>> mean) const;
  Bytes whole_message(uint64_t round, std::span<const TensorView> x);
  void feed(StreamDecoder& to, int from, std::span<const uint8_t> bytes);
  static void check_whole(const StreamDecoder& decoder, int from);
  template <class Each>
  void for_others(const Each& each) const;

  void gather(uint64_t round, std::span<const TensorView> x, std::span<const std::span<float>> mean);
  void discard_late(uint64_t round);
  void allgather(uint64_t round, std::span<const TensorView> x, std::span<const std::span<float>> mean);
  void allgather_rotated(uint64_t round, std::span<const TensorView> x, std::span<const std::span<float>> mean);
  void sra(uint64_t round, std::span<const TensorView> x, std::span<const std::span<float>> mean);
  double load_own(std::span<const TensorView> x);
  double send_shards(uint64_t round, std::span<const TensorView> x);
  double sum_shard(uint64_t round, double own_norm2);
  void spread_shard(uint64_t round, double second_bits, std::span<const std::span<float>> mean);
  Encoder& second_encoder(double bits);
  std::vector<std::span<float>> shard_spans();
};

// Others in an order that starts behind this rank, so that not all send to one.
template <class Each>
void Averager::Impl::for_others(const Each& each) const {
  for (int i = 1; i < n; ++i) each((rank + i) % n);
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
  if (options.pattern == Pattern::kSra) {
    shards.emplace(manifest, static_cast<uint64_t>(n));
    for (int s = 0; s < n; ++s) {
      shard_encoders.emplace_back(shards->manifest(static_cast<size_t>(s)), codec, secret, encode_options);
      decoders.emplace_back(shards->manifest(static_cast<size_t>(rank)), secret);
      second_decoders.emplace_back(shards->manifest(static_cast<size_t>(s)), secret);
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
  message.resize(encoder->encode_message(x, ids(round, static_cast<uint64_t>(rank), options.weight), message));
  if (options.aggregator.mac && options.pattern == Pattern::kGather) authenticate(message, options.aggregator.mac);
  return message;
}

void Averager::Impl::feed(StreamDecoder& to, int from, std::span<const uint8_t> bytes) {
  const Stopwatch watch(&report->clock.seconds_decode);
  if (bytes.empty()) fail(ErrorCode::kCorruptData, "rank ", from, ": an empty piece of its message");
  try {
    to.feed(bytes);
  } catch (const Error& e) {
    throw Error(e.code(), str("rank ", from, ": ", e.what()));
  }
}

void Averager::Impl::check_sizes(std::span<const TensorView> x, std::span<const std::span<float>> mean) const {
  check_sources(manifest, x);
  if (options.pattern != Pattern::kGather || rank == 0) check_destinations(manifest, mean);
}

// What came after its round was over is refused and thrown away.
void Averager::Impl::discard_late(uint64_t round) {
  Bytes message;
  for_others([&](int r) {
    while (exchange.receive(r, update_tag(round), message, comm::Milliseconds(0)) == Delivery::kReceived) {
      aggregator->add(static_cast<uint64_t>(r), message);
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
  if (round > 0) discard_late(round - 1);
  {
    const Stopwatch watch(&report->clock.seconds_decode);
    report->verdicts.push_back(aggregator->add(0, message));
  }
  std::vector<Sender> senders;
  for (int r = 1; r < n; ++r) senders.push_back({r, static_cast<uint64_t>(r), update_tag(round)});
  for (Verdict& v :
       collect_updates(exchange, senders, options.timeout, *aggregator, {.clock = &report->clock, .stopped = {}})) {
    report->verdicts.push_back(std::move(v));
  }
  const Stopwatch watch(&report->clock.seconds_decode);
  report->has_mean = aggregator->finish_round();
  report->ranks = aggregator->report().accepted;
  report->total_weight = aggregator->report().total_weight;
}

void Averager::Impl::allgather(uint64_t round, std::span<const TensorView> x, std::span<const std::span<float>> mean) {
  std::vector<Bytes> own;
  encoder->begin_stream(x, ids(round, static_cast<uint64_t>(rank), options.weight));
  for (Bytes piece = next_chunk(*encoder); !piece.empty(); piece = next_chunk(*encoder)) {
    for_others([&](int r) { exchange.send(r, kFirstHop, piece); });
    own.push_back(std::move(piece));
  }
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

void Averager::Impl::sra(uint64_t round, std::span<const TensorView> x, std::span<const std::span<float>> mean) {
  const double own_norm2 = send_shards(round, x);
  report->second_bits = sum_shard(round, own_norm2);
  spread_shard(round, report->second_bits, mean);
}

// shard_sum = this rank's part of its own shard, which no encoder looks at. Returns its squared norm.
double Averager::Impl::load_own(std::span<const TensorView> x) {
  const std::vector<TensorView> views = shards->views(static_cast<size_t>(rank), x);
  const std::vector<std::span<float>> own = shard_spans();
  double norm2 = 0;
  for (size_t i = 0; i < own.size(); ++i) {
    const std::span<float> values = own[i];
    load_floats(views[i], 0, values);
    kernels::Magnitude m = kernels::magnitude(values.data(), values.size());
    if (m.max_abs_bits >= 0x7f800000u) {
      const auto bad = std::find_if(values.begin(), values.end(), [](float v) { return !std::isfinite(v); });
      if (options.nonfinite == NonFinite::kRefuse)
        fail(ErrorCode::kInvalidArgument, "element ", bad - values.begin(), " of this rank's part of shard ", rank,
             " is not finite");
      zero_nonfinite(values);
      m = kernels::magnitude(values.data(), values.size());
    }
    norm2 += m.sum_squares;
  }
  return norm2;
}

// First hop out: every other rank's shard in the codec, with its squared norm. Returns that of the own shard.
double Averager::Impl::send_shards(uint64_t round, std::span<const TensorView> x) {
  for_others([&](int s) {
    Encoder& from = shard_encoders[static_cast<size_t>(s)];
    EncodeReport encoded;
    from.begin_stream(shards->views(static_cast<size_t>(s), x), ids(round, static_cast<uint64_t>(rank), options.weight));
    for (Bytes piece = next_chunk(from, &encoded); !piece.empty(); piece = next_chunk(from, &encoded)) {
      exchange.send(s, kFirstHop, std::move(piece));
    }
    Bytes norm(8);
    store_u64(norm.data(), std::bit_cast<uint64_t>(encoded.norm2));
    exchange.send(s, kNorm, std::move(norm));
  });
  const Stopwatch watch(&report->clock.seconds_encode);
  return load_own(x);
}

// First hop in: shard_sum = the weighted mean of this rank's shard, its own part exact. Returns the bits for the second hop.
double Averager::Impl::sum_shard(uint64_t round, double own_norm2) {
  const std::vector<std::span<float>> sum = shard_spans();
  {
    const Stopwatch watch(&report->clock.seconds_decode);
    for (float& v : shard_sum) v *= share(rank);
  }
  std::vector<int> open;
  for (int r = 0; r < n; ++r) {
    if (r == rank) continue;
    decoders[static_cast<size_t>(r)].begin(ids(round, static_cast<uint64_t>(r), weights[static_cast<size_t>(r)]), share(r),
                                           sum);
    open.push_back(r);
  }
  while (!open.empty()) {
    for (const int r : open) feed(decoders[static_cast<size_t>(r)], r, receive(r, kFirstHop));
    std::erase_if(open, [&](int r) { return decoders[static_cast<size_t>(r)].done(); });
  }
  double average_norm2 = own_norm2 * static_cast<double>(share(rank));
  for (int r = 0; r < n; ++r) {
    if (r == rank) continue;
    const Bytes norm = receive(r, kNorm);
    if (norm.size() != 8) fail(ErrorCode::kCorruptData, "rank ", r, ": a norm of ", norm.size(), " bytes, expected 8");
    average_norm2 += static_cast<double>(share(r)) * std::bit_cast<double>(load_u64(norm.data()));
  }
  if (options.second) return options.second->bits();
  if (codec.row().name != "eden" || dithers()) return codec.bits();
  const double mean_norm2 = kernels::magnitude(shard_sum.data(), shard_sum.size()).sum_squares;
  const double n_rho = static_cast<double>(n) * mean_norm2 / average_norm2;
  const double more = n_rho > 1 ? 0.5 * std::log2(n_rho) : 0;
  return std::min(8.0, codec.bits() + std::ceil((std::isfinite(more) ? more : 0) / kBitStep) * kBitStep);
}

// Second hop: all shards in their second code, also the own one.
void Averager::Impl::spread_shard(uint64_t round, double second_bits, std::span<const std::span<float>> mean) {
  Encoder& from = second_encoder(second_bits);
  std::vector<TensorView> views;
  for (const std::span<float> part : shard_spans()) views.emplace_back(std::span<const float>(part));
  std::vector<StreamDecoder>& in = second_decoders;
  for (int s = 0; s < n; ++s) {
    const std::vector<std::span<float>> to = shards->spans(static_cast<size_t>(s), mean);
    for (const std::span<float> part : to) std::fill(part.begin(), part.end(), 0.0f);
    in[static_cast<size_t>(s)].begin(ids(round, kSecondHopClient + static_cast<uint64_t>(s), 1), 1.0f, to);
  }
  from.begin_stream(views, ids(round, kSecondHopClient + static_cast<uint64_t>(rank), 1));
  for (Bytes piece = next_chunk(from); !piece.empty(); piece = next_chunk(from)) {
    for_others([&](int r) { exchange.send(r, kSecondHop, piece); });
    feed(in[static_cast<size_t>(rank)], rank, piece);
  }
  for_others([&](int r) {
    while (!in[static_cast<size_t>(r)].done()) feed(in[static_cast<size_t>(r)], r, receive(r, kSecondHop));
  });
}

Encoder& Averager::Impl::second_encoder(double bits) {
  const auto found = second_encoders.find(bits);
  if (found != second_encoders.end()) return found->second;
  Codec second = options.second ? *options.second : codec;
  if (!options.second && bits != codec.bits()) second = Codec::parse(with_bits(codec.text(), bits));
  const Manifest& own = shards->manifest(static_cast<size_t>(rank));
  return second_encoders.try_emplace(bits, own, second, secret, EncodeOptions{.threads = options.threads}).first->second;
}

// shard_sum as the parts of this rank's shard.
std::vector<std::span<float>> Averager::Impl::shard_spans() {
  std::vector<std::span<float>> spans;
  size_t at = 0;
  for (const TensorInfo& part : shards->manifest(static_cast<size_t>(rank))) {
    spans.push_back(std::span(shard_sum).subspan(at, part.count()));
    at += part.count();
  }
  return spans;
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
