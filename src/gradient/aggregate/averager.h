// gradient: what an Averager holds (kpd/gradient/aggregate.h). Private; average.cc has what all patterns share, gather and
// allgather, sra.cc scatter-reduce-allgather.
#pragma once

#include <map>
#include <set>

#include "gradient/aggregate/shards.h"
#include "kpd/gradient/aggregate.h"
#include "kpd/gradient/decoder.h"
#include "kpd/gradient/feedback.h"
#include "kpd/gradient/streaming.h"

namespace kpd::gradient {

using Bytes = std::vector<uint8_t>;

enum Tag : uint32_t { kHello = 1, kFirstHop, kNorm, kSecondHop, kUpdate };

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
  // With error_feedback: of the whole, or (sra) one a shard: of the others' in the first hop, of the own one in the second.
  std::vector<ErrorFeedback> feedback;
  std::vector<std::set<uint32_t>> awaited;  // gather, rank 0, by rank: tags of rounds in which nothing came, which may come yet
  std::optional<uint32_t> last_tag;

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
  // What is encoded of x: with error feedback x and what was lost before.
  std::span<const TensorView> with_error(size_t part, std::span<const TensorView> x) {
    return feedback.empty() ? x : feedback[part].add(x, options.nonfinite == NonFinite::kZero);
  }
  void keep_error(size_t part, std::span<const Bytes> pieces, const MessageIds& ids);
  void feed(StreamDecoder& to, int from, std::span<const uint8_t> bytes);
  static void check_whole(const StreamDecoder& decoder, int from);
  template <class Each>
  void for_others(const Each& each) const;

  void gather(uint64_t round, std::span<const TensorView> x, std::span<const std::span<float>> mean);
  void discard_late(uint64_t round);
  void allgather(uint64_t round, std::span<const TensorView> x, std::span<const std::span<float>> mean);
  void allgather_rotated(uint64_t round, std::span<const TensorView> x, std::span<const std::span<float>> mean);
  void sra(uint64_t round, std::span<const TensorView> x, std::span<const std::span<float>> mean);
  void load_own(std::span<const TensorView> x);
  void send_shards(uint64_t round, std::span<const TensorView> x);
  double sum_shard(uint64_t round);
  void spread_shard(uint64_t round, double second_bits, std::span<const std::span<float>> mean);
  double richer_bits(double others2, double mean_norm2) const;
  Encoder& second_encoder(double bits);
  std::vector<std::span<float>> shard_spans();
};

// Others in an order that starts behind this rank, so that not all send to one.
template <class Each>
void Averager::Impl::for_others(const Each& each) const {
  for (int i = 1; i < n; ++i) each((rank + i) % n);
}

}  // namespace kpd::gradient
