#include "serve/http_connection.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

namespace kpd::tool {
namespace {

constexpr std::chrono::milliseconds kSlice{100};  // how soon a waiting thread sees that the server ends
constexpr std::chrono::seconds kGrace{1};
constexpr short kClosed = POLLHUP | POLLERR | POLLNVAL;

int poll_socket(int socket, short events, int milliseconds) {
  pollfd entry{socket, events, 0};
  const int n = poll(&entry, 1, milliseconds);
  return n <= 0 ? 0 : entry.revents;
}

int64_t milliseconds_now() {
  const auto now = std::chrono::steady_clock::now().time_since_epoch();
  return std::chrono::duration_cast<std::chrono::milliseconds>(now).count();
}

template <class Name>
void address(int socket, Name name, std::string& ip, int& port) {
  sockaddr_storage storage{};
  socklen_t size = sizeof storage;
  if (name(socket, reinterpret_cast<sockaddr*>(&storage), &size) != 0) return;
  char text[INET6_ADDRSTRLEN] = "";
  if (storage.ss_family == AF_INET) {
    const auto& v4 = reinterpret_cast<const sockaddr_in&>(storage);
    inet_ntop(AF_INET, &v4.sin_addr, text, sizeof text);
    port = ntohs(v4.sin_port);
  } else {
    const auto& v6 = reinterpret_cast<const sockaddr_in6&>(storage);
    inet_ntop(AF_INET6, &v6.sin6_addr, text, sizeof text);
    port = ntohs(v6.sin6_port);
  }
  ip = text;
}

}  // namespace

Connection::Connection(int socket, const HttpLimits& limits, const std::atomic<bool>& stopping, std::atomic<size_t>& receiving)
    : socket_(socket),
      limits_(limits),
      stopping_(stopping),
      receiving_(receiving),
      reader_(
          limits.body_bytes, [this](std::string& to, size_t at_most) { return more(to, at_most); },
          [this] { write_format("HTTP/1.1 100 Continue\r\n\r\n"); }) {
  int port = 0;
  address(socket_, getpeername, client_, port);
}

Connection::~Connection() {
  release();
  shutdown(socket_, SHUT_RDWR);
  close(socket_);
}

void Connection::receive() {
  deadline_ = Clock::now() + std::chrono::seconds(limits_.request_seconds);
  library_at_ = 0;
  received_ = 0;
  sent_ = 0;
  sent_all_ = true;
  blocked_.store(0);
  cut_.store(false);  // it was meant for the request before
  try {
    request_ = reader_.next();
    for_library_ = request_.method + " " + request_.target + (request_.old ? " HTTP/1.0\r\n\r\n" : " HTTP/1.1\r\n\r\n");
  } catch (const NoRequest&) {
    ended_ = true;
  } catch (const HttpError& e) {
    release();
    refusal_ = e;
    request_ = {};
    request_.keep_alive = false;
    for_library_ = "GET / HTTP/1.1\r\n\r\n";
  }
}

void Connection::drain() {
  shutdown(socket_, SHUT_WR);
  char ignored[4096];
  // Also of one that was cut what is there already.
  while (((is_cut() ? poll_socket(socket_, POLLIN, 0) : wait(POLLIN, deadline_)) & POLLIN) != 0) {
    const ssize_t n = recv(socket_, ignored, sizeof ignored, MSG_DONTWAIT);
    if (n == 0 || (n < 0 && errno != EINTR && errno != EAGAIN)) return;
  }
}

bool Connection::gone() const { return (poll_socket(socket_, POLLRDHUP, 0) & (POLLRDHUP | kClosed)) != 0; }

bool Connection::has_left() {
  if (!gone()) return false;
  sent_all_ = false;
  return true;
}

std::chrono::milliseconds Connection::blocked() const {
  const int64_t since = waits_since_.load();
  return std::chrono::milliseconds(since == 0 ? 0 : blocked_.load() + milliseconds_now() - since);
}

int Connection::wait(short events, Clock::time_point deadline) {
  const int found = poll_socket(socket_, events, 0);
  if (found != 0) return found;
  const int64_t since = milliseconds_now();
  waits_since_.store(since);
  const int later = wait_in_slices(events, deadline);
  waits_since_.store(0);
  blocked_ += milliseconds_now() - since;
  return later;
}

// In slices: a client that stalls may not hold up the server's end.
int Connection::wait_in_slices(short events, Clock::time_point deadline) {
  for (;;) {
    if (is_cut()) return 0;
    const Clock::time_point now = Clock::now();
    if (stopping_.load() && !cut_off_) cut_off_ = now + kGrace;
    const Clock::time_point end = cut_off_ ? std::min(*cut_off_, deadline) : deadline;
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(end - now);
    if (left.count() <= 0) return 0;
    const int found = poll_socket(socket_, events, static_cast<int>(std::min(left, kSlice).count()));
    if (found != 0) return found;
  }
}

bool Connection::more(std::string& to, size_t at_most) {
  char buffer[16384];
  while (wait(POLLIN, deadline_) != 0) {
    const ssize_t n = recv(socket_, buffer, std::min(at_most, sizeof buffer), MSG_DONTWAIT);
    if (n < 0 && (errno == EINTR || errno == EAGAIN)) continue;
    if (n <= 0) return false;
    received_ += static_cast<size_t>(n);
    if (received_ > RequestReader::kFrameBytes) {
      held_ += static_cast<size_t>(n);
      receiving_ += static_cast<size_t>(n);
      if (receiving_ > limits_.receiving_bytes) throw HttpError(503, "too much is being sent to this server at once");
    }
    to.append(buffer, static_cast<size_t>(n));
    return true;
  }
  if (is_cut()) throw HttpError(503, "too many connections wait for their clients; this one waited longest");
  return false;
}

ssize_t Connection::read(char* data, size_t size) {
  const size_t n = std::min(size, for_library_.size() - library_at_);
  if (n == 0) return -1;
  std::copy_n(for_library_.data() + library_at_, n, data);
  library_at_ += n;
  return static_cast<ssize_t>(n);
}

ssize_t Connection::write(const char* data, size_t size) {
  const Clock::time_point deadline = Clock::now() + std::chrono::seconds(limits_.write_seconds);
  for (;;) {
    const ssize_t n = send(socket_, data, size, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (n >= 0) {
      sent_ += static_cast<size_t>(n);
      return n;
    }
    if (errno == EINTR) continue;
    const bool full = errno == EAGAIN || errno == EWOULDBLOCK;
    if (full && (wait(POLLOUT, deadline) & POLLOUT) != 0) continue;
    sent_all_ = false;
    return -1;
  }
}

void Connection::get_remote_ip_and_port(std::string& ip, int& port) const {
  ip = client_;
  port = 0;
}
void Connection::get_local_ip_and_port(std::string& ip, int& port) const { address(socket_, getsockname, ip, port); }

}  // namespace kpd::tool
