// gradient: scatter, reduce, allgather (kpd/gradient/aggregate.h): every rank averages its shard of all and sends it on in a
// second code.
#include <algorithm>
#include <bit>
#include <cmath>

#include "gradient/aggregate/averager.h"
#include "gradient/aggregate/second_hop.h"
#include "gradient/aggregate/stopwatch.h"
#include "gradient/segment_codec.h"
#include "gradient/stream_format.h"
#include "kernels/sums.h"
#include "kpd/base/bytes.h"
#include "kpd/base/error.h"

namespace kpd::gradient {
namespace {

constexpr uint64_t kSecondHopClient = uint64_t{1} << 32;  // + shard: client ids of the second hop's messages
// What a message is longer than its codes, about: header, codecs, a scale word.
constexpr double kMessageBits = 8 * 136;
constexpr size_t kMostEncoders = 8;

}  // namespace

void Averager::Impl::sra(uint64_t round, std::span<const TensorView> x, std::span<const std::span<float>> mean) {
  send_shards(round, x);
  report->second_bits = sum_shard(round);
  spread_shard(round, report->second_bits, mean);
}

// shard_sum = this rank's part of its own shard, which no encoder looks at.
void Averager::Impl::load_own(std::span<const TensorView> x) {
  const std::vector<TensorView> views = shards->views(static_cast<size_t>(rank), x);
  const std::vector<std::span<float>> own = shard_spans();
  for (size_t i = 0; i < own.size(); ++i) {
    const std::span<float> values = own[i];
    load_floats(views[i], 0, values);
    if (kernels::magnitude(values.data(), values.size()).max_abs_bits < 0x7f800000u) continue;
    const auto bad = std::find_if(values.begin(), values.end(), [](float v) { return !std::isfinite(v); });
    if (options.nonfinite == NonFinite::kRefuse)
      fail(ErrorCode::kInvalidArgument, "element ", bad - values.begin(), " of this rank's part of shard ", rank,
           " is not finite");
    zero_nonfinite(values);
  }
}

// First hop out: every other rank's shard in the codec, with its squared norm. Loads the own one.
void Averager::Impl::send_shards(uint64_t round, std::span<const TensorView> x) {
  for_others([&](int s) {
    const auto shard = static_cast<size_t>(s);
    Encoder& from = shard_encoders[shard];
    EncodeReport encoded;
    const MessageIds own = ids(round, static_cast<uint64_t>(rank), options.weight);
    const std::vector<TensorView> views = shards->views(shard, x);
    from.begin_stream(with_error(shard, views), own);
    std::vector<Bytes> kept;
    for (Bytes piece = next_chunk(from, &encoded); !piece.empty(); piece = next_chunk(from, &encoded)) {
      if (!feedback.empty()) kept.push_back(piece);
      exchange.send(s, kFirstHop, std::move(piece));
    }
    keep_error(shard, kept, own);
    Bytes norm(8);
    store_u64(norm.data(), std::bit_cast<uint64_t>(encoded.norm2));
    exchange.send(s, kNorm, std::move(norm));
  });
  const Stopwatch watch(&report->clock.seconds_encode);
  load_own(x);
}

// First hop in: shard_sum = the weighted mean of this rank's shard, its own part exact. Returns the bits for the second hop.
double Averager::Impl::sum_shard(uint64_t round) {
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
  double others2 = 0;  // the first hop's error is v of this
  for (int r = 0; r < n; ++r) {
    if (r == rank) continue;
    const Bytes norm = receive(r, kNorm);
    if (norm.size() != 8) fail(ErrorCode::kCorruptData, "rank ", r, ": a norm of ", norm.size(), " bytes, expected 8");
    others2 += static_cast<double>(share(r)) * share(r) * std::bit_cast<double>(load_u64(norm.data()));
  }
  if (options.second) return options.second->bits();
  return richer_bits(others2, kernels::magnitude(shard_sum.data(), shard_sum.size()).sum_squares);
}

// The second hop errs by v2 |mean|^2, the first by v1 others2.
double Averager::Impl::richer_bits(double others2, double mean_norm2) const {
  if (n == 1) return codec.bits();
  double elements = 0;
  for (const TensorInfo& info : manifest) elements += static_cast<double>(info.count());
  // So that 2 (n - 1) messages of a shard are no longer than n - 1 of the whole.
  const double most = (n - 1) * codec.bits() - kMessageBits * n / elements;
  return second_hop_bits(codec, others2 / mean_norm2, feedback.empty() ? most : std::max(most, codec.bits()));
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
  const MessageIds own = ids(round, kSecondHopClient + static_cast<uint64_t>(rank), 1);
  from.begin_stream(with_error(static_cast<size_t>(rank), views), own);
  std::vector<Bytes> kept;
  for (Bytes piece = next_chunk(from); !piece.empty(); piece = next_chunk(from)) {
    for_others([&](int r) { exchange.send(r, kSecondHop, piece); });
    feed(in[static_cast<size_t>(rank)], rank, piece);
    if (!feedback.empty()) kept.push_back(std::move(piece));
  }
  keep_error(static_cast<size_t>(rank), kept, own);
  for_others([&](int r) {
    while (!in[static_cast<size_t>(r)].done()) feed(in[static_cast<size_t>(r)], r, receive(r, kSecondHop));
  });
}

Encoder& Averager::Impl::second_encoder(double bits) {
  const auto found = second_encoders.find(bits);
  if (found != second_encoders.end()) return found->second;
  if (second_encoders.size() >= kMostEncoders) second_encoders.clear();
  Codec second = options.second ? *options.second : codec;
  if (!options.second && bits != codec.bits()) second = codec.with_bits(bits);
  const Manifest& own = shards->manifest(static_cast<size_t>(rank));
  return second_encoders.try_emplace(bits, own, second, secret, EncodeOptions{.threads = options.threads}).first->second;
}

// shard_sum as the parts of this rank's shard.
std::vector<std::span<float>> Averager::Impl::shard_spans() {
  return spans_of(shards->manifest(static_cast<size_t>(rank)), shard_sum);
}

}  // namespace kpd::gradient
