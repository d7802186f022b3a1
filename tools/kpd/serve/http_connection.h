// tools: a client's connection: its bytes with deadlines, and its requests as the HTTP library may see them. It knows no
// routes.
#pragma once

#include <atomic>
#include <chrono>
#include <optional>
#include <utility>

#include <httplib.h>

#include "serve/http_request.h"
#include "serve/http_server.h"

namespace kpd::tool {

class Connection : public httplib::Stream {
 public:
  // Closes the socket at its end. `stopping`: the server ends; what is not over a second later is cut off. `receiving`: the
  // bytes of the requests that all connections hold.
  Connection(int socket, const HttpLimits& limits, const std::atomic<bool>& stopping, std::atomic<size_t>& receiving);
  ~Connection() override;
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;

  const std::string& client() const { return client_; }  // its address
  // Bytes of a further request came with the last one.
  bool has_bytes() const { return reader_.has_bytes(); }
  // The next request, of which something has come. What makes it none stands in refusal(); there is no further request then.
  void receive();
  RawRequest& request() { return request_; }
  const std::optional<HttpError>& refusal() const { return refusal_; }
  // The client had left without a request.
  bool ended() const { return ended_; }
  // Takes what a refused client still sends: to close on it would throw away the reply that it has not read yet.
  void drain();
  // For how long the request under way has waited for the network, if it waits for it now, else 0. Thread-safe, as are the next
  // two.
  std::chrono::milliseconds blocked() const;
  // Its thread is needed: what it waits for fails.
  void cut() { cut_.store(true); }
  bool is_cut() const { return cut_.load(); }
  // What has been sent of the reply to the request under way; false: not all of it, the client has left or takes nothing.
  size_t sent_bytes() const { return sent_; }
  bool sent_all() const { return sent_all_; }
  // What the server keeps with it: requests so far, and of the last reply status and note.
  size_t n_requests = 0;
  int status = 0;
  std::shared_ptr<const std::string> note;
  // The request is answered, its bytes are gone.
  void release() { receiving_ -= std::exchange(held_, 0); }
  bool gone() const;
  // The same, asked by who would give up the reply: sent_all() is false then.
  bool has_left();

  // What the library reads: the request line of what receive() gave, and nothing else of it. The library acts on fields that
  // kpd does not mean to offer (Range, Content-Encoding, forms) and bounds neither them nor bodies.
  ssize_t read(char* data, size_t size) override;
  ssize_t write(const char* data, size_t size) override;
  bool is_readable() const override { return library_at_ < for_library_.size(); }
  bool is_writable() const override { return !gone(); }
  void get_remote_ip_and_port(std::string& ip, int& port) const override;
  void get_local_ip_and_port(std::string& ip, int& port) const override;
  socket_t socket() const override { return socket_; }

 private:
  using Clock = std::chrono::steady_clock;

  int wait(short events, Clock::time_point deadline);
  int wait_in_slices(short events, Clock::time_point deadline);
  bool more(std::string& to, size_t at_most);

  int socket_;
  std::string client_;
  const HttpLimits& limits_;
  const std::atomic<bool>& stopping_;
  std::atomic<size_t>& receiving_;
  size_t held_ = 0;      // of receiving_, this one's
  size_t received_ = 0;  // of the request
  std::optional<Clock::time_point> cut_off_;
  Clock::time_point deadline_;  // of the request that is being received
  size_t sent_ = 0;
  bool sent_all_ = true;
  // In milliseconds of the clock: what earlier waits of the request took, and since when it waits now (0: it does not).
  std::atomic<int64_t> blocked_{0}, waits_since_{0};
  std::atomic<bool> cut_{false};
  RequestReader reader_;
  RawRequest request_;
  std::optional<HttpError> refusal_;
  bool ended_ = false;
  std::string for_library_;
  size_t library_at_ = 0;
};

}  // namespace kpd::tool
