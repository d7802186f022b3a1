// gradient: averages of vectors between the ranks of a group, compressed, over any engine (kpd/comm/exchange.h).
//
// Patterns, for n ranks, coded size B, error v of the codec, rho = |mean|^2 / average |x|^2 (research: EDEN section 5):
//   gather     every rank sends to rank 0, which alone has the mean.        B up;                error v/n
//   allgather  every rank sends to every other and decodes all.             (n - 1) B;           error v/n
//   sra        scatter, reduce, allgather: rank s averages shard s of all,
//              sends it on in a second code of B2.                          (n - 1)/n (B + B2);  error about v1/n + v2 rho
// By default B2 is such that both hops err alike, and at most (n - 1) B, with which sra sends what allgather sends. There
// allgather errs less: with 2 ranks at any rate, and below one bit, where errors fall in proportion to the bits, with few ranks
// (about 1/v2 bits for the second hop: 9 ranks at .1 bit). AverageReport says what both send. Sums are taken in the order of
// the ranks (a shard's owner adds its own, exact, first), so the mean is the same for any number of threads, order of arrival
// and engine; with allgather and sra all ranks hold the same bits, because all, also the sender, apply decoded bytes.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "kpd/comm/exchange.h"
#include "kpd/gradient/aggregator.h"
#include "kpd/gradient/message.h"

namespace kpd::gradient {

enum class Pattern : uint8_t { kGather, kAllgather, kSra };
std::string_view pattern_name(Pattern pattern);
Pattern parse_pattern(std::string_view text);  // throws Error(kInvalidArgument) naming the nearest

// Where the time of an average goes.
struct AverageClock {
  double seconds_encode = 0;
  double seconds_exchange = 0;  // waiting for bytes, to come or to leave
  double seconds_decode = 0;
};

// One update that a server waits for: which rank sends it, under which tag, for which client.
struct Sender {
  int rank = 0;
  uint64_t client = 0;
  uint32_t tag = 0;
  std::optional<uint64_t> weight{};  // that the message must have; none: any up to the aggregator's max_weight
};
struct CollectOptions {
  AverageClock* clock = nullptr;
  std::function<bool()> stopped{};  // true: wait no longer; who has not sent by then is silent
  // Asked where a sender is silent or lost (`why`), before it is given up. `left` are the senders from that one on, whose ranks
  // it may change: true, they are waited for, for a time-out more; false, the sender is left out.
  std::function<bool(std::span<Sender> left, Refusal why)> replace{};
};
// Takes one message of each sender, in this order, into an aggregator whose round is open. `timeout` is for all together. A
// sender whose message is refused or does not come is left out; messages of other rounds are refused, counted and passed over.
// What a sender sent beyond its message, or after its time, is not added. One verdict a sender.
std::vector<Verdict> collect_updates(comm::Exchange& exchange, std::span<const Sender> senders, comm::Milliseconds timeout,
                                     Aggregator& aggregator, const CollectOptions& options = {});

struct AverageOptions {
  Pattern pattern = Pattern::kAllgather;
  // Of kSra's second hop. None: the first codec, where its spec has `bits` with so many that the second hop errs as the first
  // does (by limit_vnmse; the shard's owner knows all norms), at least its own and no more than allgather would send.
  std::optional<Codec> second{};
  // Every rank keeps what its code lost and sends it with its next vector (kpd/gradient/feedback.h), in kSra in both hops.
  // Refused with Error(kInvalidArgument) where it would grow. Takes two floats an element.
  bool error_feedback = false;
  uint64_t run = 0;
  uint64_t weight = 1;  // of this rank
  int threads = 1;
  comm::Milliseconds timeout{60000};  // of one wait for one rank
  // What becomes of this rank's NaN and Inf: kRefuse, or kZero as mixed-precision training may want it. A mean passes none:
  // kPass is Error(kInvalidArgument).
  NonFinite nonfinite = NonFinite::kRefuse;
  // kGather: rank 0 goes on without ranks that fail; only then have these meaning.
  AggregatorOptions aggregator{};
};

struct AverageReport {
  AverageClock clock;
  double seconds_total = 0;
  uint64_t sent_bytes = 0, received_bytes = 0;
  uint64_t ranks = 0;  // in the mean; 0 where there is none, as its total weight is
  uint64_t total_weight = 0;
  double second_bits = 0;         // of this rank's shard (kSra)
  bool has_mean = false;          // false on the senders of kGather, and if no rank was accepted
  std::vector<Verdict> verdicts;  // kGather, rank 0: one a rank
};

// One rank's part in averages of one manifest, again and again. Thread-compatible; uses options.threads threads inside. Two
// averagers of kAllgather or kSra may share an exchange where every rank calls them in the same order; one of kGather, whose
// senders run ahead of rank 0, needs an exchange of its own.
class Averager {
 public:
  // Greets all ranks, to find out whether they mean the same (tensors, run, secret, pattern, codecs): throws Error(kMismatch)
  // naming the rank and what differs, Error(kIo) for a rank that is lost or silent. `exchange` must outlive the averager.
  Averager(comm::Exchange& exchange, Manifest manifest, Codec codec, RunSecret secret, AverageOptions options = {});
  ~Averager();

  // mean[i] (manifest[i].count() floats) = the weighted mean of all ranks' x[i]; it may be x's own memory, and the senders of
  // kGather need give none. All ranks call it with the same round. Except for rank 0 of kGather, a rank that is lost, silent or
  // sends wrong bytes ends the average with an Error that names it; mean is then undefined. After an Error of kAllgather or
  // kSra parts of messages may be under way: the averager refuses to go on, and its exchange has to be opened anew on all
  // ranks. Not so for wrong sizes, and for a wrong message of a dithered code, all of which were taken.
  AverageReport average(uint64_t round, std::span<const TensorView> x, std::span<const std::span<float>> mean);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace kpd::gradient
