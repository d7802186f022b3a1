// gradient: updates from clients to a server over an engine, message by message (kpd/gradient/aggregate.h).
#include <algorithm>

#include "gradient/aggregate/stopwatch.h"
#include "kpd/base/error.h"
#include "kpd/gradient/aggregate.h"

namespace kpd::gradient {
namespace {

using comm::Delivery;
using comm::Milliseconds;
using Clock = std::chrono::steady_clock;

Milliseconds left(Clock::time_point deadline) {
  return std::max(Milliseconds(0), std::chrono::duration_cast<Milliseconds>(deadline - Clock::now()));
}

class Collector {
 public:
  Collector(comm::Exchange& exchange, Milliseconds timeout, Aggregator& aggregator, AverageClock* clock)
      : exchange_(exchange), deadline_(Clock::now() + timeout), aggregator_(aggregator), clock_(clock) {}

  Verdict take(const Sender& sender) {
    for (;;) {
      const Delivery delivery = receive(sender, left(deadline_));
      if (delivery != Delivery::kReceived) return absent(delivery, sender);
      Verdict verdict = add(sender);
      // What is of another round came late; the one that is waited for may follow.
      if (verdict.refusal != Refusal::kOtherRound) return verdict;
    }
  }

  // What a sender sent beyond its message, as far as it is here.
  void take_extra(const Sender& sender) {
    while (receive(sender, Milliseconds(0)) == Delivery::kReceived) add(sender);
  }

 private:
  Delivery receive(const Sender& sender, Milliseconds timeout) {
    const Stopwatch watch(clock_ ? &clock_->seconds_exchange : nullptr);
    return exchange_.receive(sender.rank, sender.tag, message_, timeout);
  }
  Verdict add(const Sender& sender) {
    const Stopwatch watch(clock_ ? &clock_->seconds_decode : nullptr);
    return aggregator_.add(sender.client, message_);
  }
  Verdict absent(Delivery delivery, const Sender& sender) {
    const bool lost = delivery == Delivery::kLost;
    const Refusal refusal = lost ? Refusal::kLost : Refusal::kSilent;
    aggregator_.refuse(refusal);
    return {refusal, str("rank ", sender.rank, lost ? " is gone" : " sent nothing in time")};
  }

  comm::Exchange& exchange_;
  const Clock::time_point deadline_;
  Aggregator& aggregator_;
  AverageClock* const clock_;
  std::vector<uint8_t> message_;
};

}  // namespace

std::vector<Verdict> collect_updates(comm::Exchange& exchange, std::span<const Sender> senders, Milliseconds timeout,
                                     Aggregator& aggregator, AverageClock* clock) {
  Collector collector(exchange, timeout, aggregator, clock);
  std::vector<Verdict> verdicts;
  for (const Sender& sender : senders) verdicts.push_back(collector.take(sender));
  for (const Sender& sender : senders) collector.take_extra(sender);
  return verdicts;
}

}  // namespace kpd::gradient
