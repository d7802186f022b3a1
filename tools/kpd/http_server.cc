// tools: cpp-httplib parses and routes; the connection is ours, since the library can neither end a request that arrives a byte
// at a time nor tell a handler that its client has left.
#include "http_server.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <thread>

#include <httplib.h>

#include "kpd/base/error.h"

namespace kpd::tool {
namespace {

using Clock = std::chrono::steady_clock;

int poll_socket(int socket, short events, int milliseconds) {
  pollfd entry{socket, events, 0};
  const int n = poll(&entry, 1, milliseconds);
  return n <= 0 ? 0 : entry.revents;
}

// One client's connection.
class Connection : public httplib::Stream {
 public:
  Connection(int socket, const HttpLimits& limits) : socket_(socket), limits_(limits) {}

  // The next request's first byte; false if none came in time.
  bool wait_for_request(const std::function<bool()>& stopping) {
    const Clock::time_point end = Clock::now() + std::chrono::seconds(limits_.keep_alive_seconds);
    while (begin_ == end_ && !failed_) {
      if (stopping() || Clock::now() >= end) return false;
      const int events = poll_socket(socket_, POLLIN, 100);
      if ((events & (POLLERR | POLLHUP | POLLNVAL)) != 0) return false;
      if ((events & POLLIN) != 0) break;
    }
    deadline_ = Clock::now() + std::chrono::seconds(limits_.request_seconds);
    return !failed_;
  }
  // No further request: where this one ends is not known.
  void end() { failed_ = true; }
  bool gone() const { return (poll_socket(socket_, POLLRDHUP, 0) & (POLLRDHUP | POLLHUP | POLLERR | POLLNVAL)) != 0; }

  bool is_readable() const override { return begin_ < end_ || poll_socket(socket_, POLLIN, 0) != 0; }
  bool is_writable() const override {
    return !gone() && poll_socket(socket_, POLLOUT, limits_.write_seconds * 1000) == POLLOUT;
  }

  ssize_t read(char* data, size_t size) override {
    // A request that did not arrive in time is refused by the library, which would then take what still comes for another.
    failed_ = failed_ || (begin_ == end_ && !fill());
    if (failed_) return -1;
    const size_t n = std::min(size, end_ - begin_);
    std::copy_n(buffer_ + begin_, n, data);
    begin_ += n;
    return static_cast<ssize_t>(n);
  }

  ssize_t write(const char* data, size_t size) override {
    for (;;) {
      const ssize_t n = send(socket_, data, size, MSG_NOSIGNAL | MSG_DONTWAIT);
      if (n >= 0) return n;
      if (errno == EINTR) continue;
      if (errno != EAGAIN && errno != EWOULDBLOCK) return -1;
      if ((poll_socket(socket_, POLLOUT, limits_.write_seconds * 1000) & POLLOUT) == 0) return -1;
    }
  }

  void get_remote_ip_and_port(std::string& ip, int& port) const override { address(getpeername, ip, port); }
  void get_local_ip_and_port(std::string& ip, int& port) const override { address(getsockname, ip, port); }
  socket_t socket() const override { return socket_; }

 private:
  bool fill() {
    for (;;) {
      const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(deadline_ - Clock::now()).count();
      if (left <= 0 || poll_socket(socket_, POLLIN, static_cast<int>(left)) == 0) return false;
      const ssize_t n = recv(socket_, buffer_, sizeof buffer_, 0);
      if (n < 0 && errno == EINTR) continue;
      if (n <= 0) return false;
      begin_ = 0;
      end_ = static_cast<size_t>(n);
      return true;
    }
  }

  template <class Name>
  void address(Name name, std::string& ip, int& port) const {
    sockaddr_storage storage{};
    socklen_t size = sizeof storage;
    if (name(socket_, reinterpret_cast<sockaddr*>(&storage), &size) != 0) return;
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

  int socket_;
  const HttpLimits& limits_;
  Clock::time_point deadline_;
  char buffer_[16384];
  size_t begin_ = 0, end_ = 0;
  bool failed_ = false;
};

thread_local Connection* t_connection = nullptr;

}  // namespace

class HttpServer::Implementation : public httplib::Server {
 public:
  explicit Implementation(const HttpLimits& limits) : limits_(limits) {
    set_payload_max_length(limits.body_bytes);
    new_task_queue = [this] { return new httplib::ThreadPool(limits_.connections); };
    // The library's own options would let a second server share the port.
    set_socket_options([](socket_t socket) {
      const int yes = 1;
      setsockopt(socket, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
    });
    set_tcp_nodelay(true);
    const auto route = [this](const httplib::Request& q, httplib::Response& r) { answer(q, r); };
    const auto other = [this](const httplib::Request& q, httplib::Response& r) {
      put(failure_(routes_.count(q.path) != 0 ? 405 : 404), r);
    };
    Get(".*", route).Post(".*", route).Put(".*", other).Patch(".*", other).Delete(".*", other).Options(".*", other);
    // What the library refuses by itself: a request that is no HTTP, a body beyond the limit.
    set_error_handler([this](const httplib::Request&, httplib::Response& r) {
      if (!r.body.empty()) return;
      if (t_connection != nullptr) t_connection->end();
      put(failure_(r.status), r);
    });
    set_exception_handler([this](const httplib::Request&, httplib::Response& r, std::exception_ptr) { put(failure_(500), r); });
  }

  void answer(const httplib::Request& q, httplib::Response& r) {
    const auto it = routes_.find(q.path);
    if (it == routes_.end()) return put(failure_(404), r);
    const HttpHandler& handler = q.method == "POST" ? it->second.post : it->second.get;
    if (!handler) return put(failure_(405), r);
    if (is_foreign(q)) return put(failure_(403), r);
    Connection* connection = t_connection;
    put(handler({q.path, q.body, q.get_header_value("Authorization"), q.remote_addr,
                 [connection] { return connection != nullptr && connection->gone(); }}),
        r);
  }

  int bind_port(const std::string& host, int port) {
    const int bound = port == 0 ? bind_to_any_port(host) : bind_to_port(host, port) ? port : -1;
    if (bound < 0) fail(ErrorCode::kIo, "cannot listen on ", host, " port ", port, ": the address or the port is not free");
    ::listen(svr_sock_, 512);  // the library asks for a queue of 5
    return bound;
  }

  void start() {
    thread_ = std::thread([this] { listen_after_bind(); });
  }
  void finish() {
    stopping_.store(true);
    if (!thread_.joinable()) return;
    while (!is_running()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    stop();
    thread_.join();
  }

  struct Route {
    HttpHandler get, post;
  };
  std::map<std::string, Route> routes_;
  std::function<HttpReply(int)> failure_ = [](int status) {
    HttpReply reply;
    reply.status = status;
    return reply;
  };

 private:
  // A page of another site must not use a server that the browser can reach and it cannot.
  static bool is_foreign(const httplib::Request& q) {
    if (!q.has_header("Origin")) return false;
    const std::string origin = q.get_header_value("Origin"), host = q.get_header_value("Host");
    return origin != "http://" + host && origin != "https://" + host;
  }

  static void put(HttpReply reply, httplib::Response& r) {
    r.status = reply.status;
    for (const auto& [key, value] : reply.headers) r.set_header(key, value);
    if (!reply.stream) return r.set_content(reply.body, reply.type);
    r.set_chunked_content_provider(reply.type, [stream = std::move(reply.stream)](size_t, httplib::DataSink& sink) {
      stream([&](std::string_view text) { return sink.write(text.data(), text.size()); });
      sink.done();
      return true;
    });
  }

  bool process_and_close_socket(socket_t socket) override {
    Connection connection(socket, limits_);
    t_connection = &connection;
    for (size_t left = limits_.keep_alive_requests; left > 0; --left) {
      if (!connection.wait_for_request([this] { return stopping_.load(); })) break;
      bool closed = false;
      if (!process_request(connection, left == 1 || stopping_.load(), closed, nullptr) || closed) break;
    }
    t_connection = nullptr;
    shutdown(socket, SHUT_RDWR);
    close(socket);
    return true;
  }

  HttpLimits limits_;
  std::atomic<bool> stopping_{false};
  std::thread thread_;
};

HttpServer::HttpServer(const HttpLimits& limits) : implementation_(std::make_unique<Implementation>(limits)) {}
HttpServer::~HttpServer() { stop(); }
void HttpServer::get(const std::string& path, HttpHandler handler) { implementation_->routes_[path].get = std::move(handler); }
void HttpServer::post(const std::string& path, HttpHandler handler) {
  implementation_->routes_[path].post = std::move(handler);
}
void HttpServer::on_error(std::function<HttpReply(int)> handler) { implementation_->failure_ = std::move(handler); }
int HttpServer::bind(const std::string& host, int port) { return implementation_->bind_port(host, port); }
void HttpServer::start() { implementation_->start(); }
void HttpServer::stop() { implementation_->finish(); }

}  // namespace kpd::tool
