// gradient: updates from clients to a server over an engine, message by message (kpd/gradient/aggregate.h).
#include <algorithm>

#include "base/deadline.h"
#include "gradient/aggregate/stopwatch.h"
#include "kpd/base/clock.h"
#include "kpd/base/error.h"
#include "kpd/gradient/aggregate.h"

namespace kpd::gradient {
namespace {

using comm::Delivery;
using comm::Milliseconds;
constexpr Milliseconds kTurn{200};
constexpr int kMostExtra = 1000;  // messages of a sender: one that sends without end must not keep the round open

Milliseconds left(Clock::time_point deadline) {
  return std::max(Milliseconds(0), std::chrono::duration_cast<Milliseconds>(deadline - Clock::now()));
}

class Collector {
 public:
  Collector(comm::Exchange& exchange, Milliseconds timeout, Aggregator& aggregator, const CollectOptions& options)
      : exchange_(exchange),
        timeout_(timeout),
        deadline_(deadline_after(timeout)),
        aggregator_(aggregator),
        options_(options) {}

  // Of the first of those that are left.
  Verdict take(std::span<Sender> left) {
    const Sender& sender = left[0];
    for (int late = 0;;) {
      const Delivery delivery = wait_for(sender);
      if (delivery != Delivery::kReceived) {
        if (replaced(left, delivery)) continue;
        return absent(delivery, sender);
      }
      Verdict verdict = add(sender);
      // What is of another round came late; the one that is waited for may follow.
      if (verdict.refusal != Refusal::kOtherRound || ++late > kMostExtra) return verdict;
    }
  }

  // What a sender sent beyond its message, as far as it is here. Where that one was refused or came too late no other takes its
  // place: the verdict stands.
  void take_extra(const Sender& sender, const Verdict& verdict) {
    for (int i = 0; i < kMostExtra && receive(sender, Milliseconds(0)) == Delivery::kReceived; ++i) {
      if (verdict.accepted()) {
        add(sender);
      } else if (verdict.refusal != Refusal::kSilent) {
        aggregator_.refuse(Refusal::kTwice);
      }
    }
  }

 private:
  bool stopped() const { return options_.stopped && options_.stopped(); }
  // Until the deadline; in short turns, so that a stop is seen.
  Delivery wait_for(const Sender& sender) {
    while (options_.stopped && !stopped() && left(deadline_) > kTurn) {
      const Delivery delivery = receive(sender, kTurn);
      if (delivery != Delivery::kTimedOut) return delivery;
    }
    return receive(sender, stopped() ? Milliseconds(0) : left(deadline_));
  }
  bool replaced(std::span<Sender> left, Delivery delivery) {
    if (!options_.replace || stopped()) return false;
    if (!options_.replace(left, delivery == Delivery::kLost ? Refusal::kLost : Refusal::kSilent)) return false;
    deadline_ = deadline_after(timeout_);
    return true;
  }
  Delivery receive(const Sender& sender, Milliseconds timeout) {
    const Stopwatch watch(options_.clock ? &options_.clock->seconds_exchange : nullptr);
    return exchange_.receive(sender.rank, sender.tag, message_, timeout);
  }
  Verdict add(const Sender& sender) {
    const Stopwatch watch(options_.clock ? &options_.clock->seconds_decode : nullptr);
    return aggregator_.add(sender.client, message_, sender.weight);
  }
  Verdict absent(Delivery delivery, const Sender& sender) {
    const bool lost = delivery == Delivery::kLost;
    const Refusal refusal = lost ? Refusal::kLost : Refusal::kSilent;
    aggregator_.refuse(refusal);
    return {refusal, str("rank ", sender.rank, lost ? " is gone" : " sent nothing in time")};
  }

  comm::Exchange& exchange_;
  const Milliseconds timeout_;
  Clock::time_point deadline_;
  Aggregator& aggregator_;
  const CollectOptions& options_;
  std::vector<uint8_t> message_;
};

}  // namespace

std::vector<Verdict> collect_updates(comm::Exchange& exchange, std::span<const Sender> senders, Milliseconds timeout,
                                     Aggregator& aggregator, const CollectOptions& options) {
  Collector collector(exchange, timeout, aggregator, options);
  std::vector<Sender> own(senders.begin(), senders.end());
  std::vector<Verdict> verdicts;
  for (size_t i = 0; i < own.size(); ++i) verdicts.push_back(collector.take(std::span(own).subspan(i)));
  for (size_t i = 0; i < own.size(); ++i) collector.take_extra(own[i], verdicts[i]);
  return verdicts;
}

}  // namespace kpd::gradient
