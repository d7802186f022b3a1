// comm: ranks as threads of one process (kpd/comm/inprocess.h): sending is moving a buffer into the receiver's inbox.
#include "kpd/comm/inprocess.h"

#include "comm/inbox.h"
#include "kpd/base/error.h"

namespace kpd::comm {
namespace {

using Inboxes = std::vector<std::unique_ptr<Inbox>>;

class InProcess final : public Exchange {
 public:
  InProcess(std::shared_ptr<Inboxes> inboxes, int rank, const ExchangeLimits& limits)
      : inboxes_(std::move(inboxes)), rank_(rank), limits_(limits) {}
  ~InProcess() override {
    for (int r = 0; r < size(); ++r) inbox(r).lose(rank_);
  }

  std::string_view engine() const override { return "inprocess"; }
  int rank() const override { return rank_; }
  int size() const override { return static_cast<int>(inboxes_->size()); }

  void send(int to, uint32_t tag, std::vector<uint8_t> bytes) override {
    check_send(to, rank_, size(), tag, bytes.size(), limits_);
    inbox(rank_).count_sent(bytes.size());
    if (!inbox(rank_).lost(to)) inbox(to).put(rank_, tag, std::move(bytes));
  }
  Delivery receive(int from, uint32_t tag, std::vector<uint8_t>& bytes, Milliseconds timeout) override {
    check_receive(from, rank_, size());
    return inbox(rank_).receive(from, tag, bytes, timeout);
  }
  bool lost(int peer) const override {
    check_receive(peer, rank_, size());
    return (*inboxes_)[static_cast<size_t>(rank_)]->lost(peer);
  }
  bool flush(Milliseconds) override { return true; }
  Traffic traffic() const override { return (*inboxes_)[static_cast<size_t>(rank_)]->traffic(); }

 private:
  Inbox& inbox(int rank) { return *(*inboxes_)[static_cast<size_t>(rank)]; }

  std::shared_ptr<Inboxes> inboxes_;
  const int rank_;
  const ExchangeLimits limits_;
};

}  // namespace

std::vector<std::unique_ptr<Exchange>> make_inprocess_group(int size, const ExchangeLimits& limits) {
  if (size < 1 || size > 4096) fail(ErrorCode::kInvalidArgument, "a group of ", size, " ranks, expected 1 to 4096");
  const auto inboxes = std::make_shared<Inboxes>();
  for (int r = 0; r < size; ++r) inboxes->push_back(std::make_unique<Inbox>(size, limits));
  std::vector<std::unique_ptr<Exchange>> group;
  for (int r = 0; r < size; ++r) group.push_back(std::make_unique<InProcess>(inboxes, r, limits));
  return group;
}

}  // namespace kpd::comm
