// tools: cpp-httplib binds the port and writes replies. What a client sends is read here (http_request.h), and so are the
// connections taken (http_pool.h): the library bounds neither, and its accept loop ends at an error of one client.
#include "serve/http_server.h"

#include <fcntl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <mutex>
#include <thread>

#include <httplib.h>

#include "serve/http_connection.h"
#include "serve/http_pool.h"
#include "kpd/base/error.h"

namespace kpd::tool {
namespace {

thread_local Connection* t_connection = nullptr;

}  // namespace

class HttpServer::Implementation : public httplib::Server {
 public:
  explicit Implementation(const HttpLimits& limits) : limits_(limits) {
    // The library's own options would let a second server share the port.
    set_socket_options([](socket_t socket) {
      const int yes = 1;
      setsockopt(socket, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
    });
    set_tcp_nodelay(true);
    // What the library tells clients of.
    set_keep_alive_timeout(limits.keep_alive_seconds);
    set_keep_alive_max_count(limits.keep_alive_requests);
    set_pre_routing_handler([this](const httplib::Request& q, httplib::Response& r) {
      answer(q, r);
      return HandlerResponse::Handled;
    });
    set_error_handler([this](const httplib::Request&, httplib::Response& r) {
      if (r.body.empty()) put(failure_(r.status, ""), r);
    });
    set_exception_handler(
        [this](const httplib::Request&, httplib::Response& r, std::exception_ptr) { put(failure_(500, ""), r); });
  }

  void answer(const httplib::Request& q, httplib::Response& r) {
    Connection* const connection = t_connection;
    connection->note = nullptr;
    if (const auto& refusal = connection->refusal()) return put(failure_(refusal->status(), refusal->what()), r);
    RawRequest& request = connection->request();
    if (request.method == "HEAD") r.set_header("Accept-Ranges", "none");  // the library would promise them
    if (!is_ours(request.host)) return put(failure_(403, "the request calls this server by another name (--allowed-host)"), r);
    if (is_foreign(request)) {
      if (!is_allowed(request.origin))
        return put(failure_(403, "requests of other sites' pages are refused (--cors-origin)"), r);
      allow(request, r);
      if (request.method == "OPTIONS") {
        connection->status = r.status = 204;
        return;
      }
    }
    const auto it = routes_.find(q.path);
    if (it == routes_.end()) return put(failure_(404, ""), r);
    const bool get = request.method == "GET" || request.method == "HEAD";
    const HttpHandler& handler = get ? it->second.get : it->second.post;
    if (!handler || (!get && request.method != "POST")) return put(failure_(405, ""), r);
    put(handler({q.path, std::move(request.body), request.authorization, q.remote_addr,
                 [connection] { return connection->has_left(); }}),
        r);
  }

  int bind_port(const std::string& host, int port) {
    errno = 0;
    const int bound = port == 0 ? bind_to_any_port(host) : bind_to_port(host, port) ? port : -1;
    // The library keeps no reason; a host that is not found sets none.
    if (bound < 0)
      fail(ErrorCode::kIo, "cannot listen on ", host, " port ", port, ": ",
           errno != 0 ? std::strerror(errno) : "no such address");
    ::listen(svr_sock_, 512);  // the library asks for a queue of 5
    // A client that leaves between poll() and accept() must not block the loop.
    fcntl(svr_sock_, F_SETFL, fcntl(svr_sock_, F_GETFL) | O_NONBLOCK);
    return bound;
  }

  void start() {
    thread_ = std::thread([this] { take_connections(); });
  }
  void finish() {
    stopping_.store(true);
    if (thread_.joinable()) thread_.join();
    if (svr_sock_ != INVALID_SOCKET) close(svr_sock_.exchange(INVALID_SOCKET));
  }
  std::string failure() const {
    const std::lock_guard lock(mutex_);
    return failed_;
  }

  struct Route {
    HttpHandler get, post;
  };
  std::map<std::string, Route> routes_;
  std::function<HttpReply(int, const std::string&)> failure_ = [](int status, const std::string&) {
    HttpReply reply;
    reply.status = status;
    return reply;
  };
  std::function<void(const HttpRecord&)> done_;

 private:
  bool is_ours(const std::string& host) const {
    // Programs of HTTP/1.0 may name none; browsers, whom names can deceive, always do.
    if (limits_.hosts.empty() || host.empty()) return true;
    return std::find(limits_.hosts.begin(), limits_.hosts.end(), host_name(host)) != limits_.hosts.end();
  }

  // A page of another site must not use a server that the browser can reach and it cannot.
  static bool is_foreign(const RawRequest& request) {
    return !request.origin.empty() && request.origin != "http://" + request.host && request.origin != "https://" + request.host;
  }

  bool is_allowed(const std::string& origin) const {
    return std::any_of(limits_.origins.begin(), limits_.origins.end(),
                       [&](const std::string& o) { return o == "*" || o == origin; });
  }

  // What a browser wants to see before it lets the page of an allowed site ask, and read the reply.
  static void allow(const RawRequest& request, httplib::Response& r) {
    r.set_header("Access-Control-Allow-Origin", request.origin);
    r.set_header("Vary", "Origin");
    if (request.method != "OPTIONS") return;
    r.set_header("Access-Control-Allow-Methods", "GET, POST");
    r.set_header("Access-Control-Allow-Headers", "Authorization, Content-Type, *");  // the star alone is none of the first
    r.set_header("Access-Control-Max-Age", "600");
  }

  void put(HttpReply reply, httplib::Response& r) {
    t_connection->note = reply.note;
    t_connection->status = reply.status;
    r.status = reply.status;
    for (const auto& [key, value] : reply.headers) r.set_header(key, value);
    if (!reply.stream) return r.set_content(reply.body, reply.type);
    auto provide = [stream = std::move(reply.stream)](size_t, httplib::DataSink& sink) {
      stream([&](std::string_view text) { return sink.write(text.data(), text.size()); });
      sink.done();
      return true;
    };
    // HTTP/1.0 knows no chunks: there the reply ends with its connection.
    if (t_connection->request().old) return r.set_content_provider(reply.type, std::move(provide));
    r.set_chunked_content_provider(reply.type, std::move(provide));
  }

  void take_connections() {
    std::string reason;
    try {
      HttpPool pool(
          limits_, stopping_,
          [this](int socket) { return std::make_unique<Connection>(socket, limits_, stopping_, receiving_); },
          [this](Connection& connection) { return answer_one(connection); });
      if (const int error = pool.run(svr_sock_); error != 0) reason = std::strerror(error);
    } catch (const std::exception& e) {
      reason = e.what();
    }
    if (reason.empty()) return;
    const std::lock_guard lock(mutex_);
    failed_ = str("no connection can be taken any more: ", reason);
  }

  // False: the connection ends.
  bool answer_one(Connection& connection) {
    const auto start = std::chrono::steady_clock::now();
    bool goes_on = false;
    try {
      t_connection = &connection;
      connection.receive();
      if (!connection.ended()) {
        const RawRequest& request = connection.request();
        HttpRecord record{connection.client(), request.method, request.target, "", 0, 0, 0, true};
        const bool last = ++connection.n_requests >= limits_.keep_alive_requests || stopping_.load() || !request.keep_alive;
        bool closed = false;
        const bool answered = process_request(connection, last, closed, nullptr);
        connection.release();
        if (done_) tell(connection, std::move(record), start);
        if (connection.refusal()) connection.drain();
        goes_on = answered && !last;
      }
    } catch (...) {
      // Out of memory, or a defect of a reply that had begun: this connection ends, the others go on.
    }
    t_connection = nullptr;
    return goes_on;
  }

  void tell(const Connection& connection, HttpRecord record, std::chrono::steady_clock::time_point start) const {
    record.status = connection.status;
    record.bytes = connection.sent_bytes();
    record.sent_all = connection.sent_all();
    record.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    if (connection.note) record.note = *connection.note;
    done_(record);
  }

  HttpLimits limits_;
  std::atomic<bool> stopping_{false};
  std::atomic<size_t> receiving_{0};
  std::thread thread_;
  mutable std::mutex mutex_;
  std::string failed_;
};

HttpServer::HttpServer(const HttpLimits& limits) : implementation_(std::make_unique<Implementation>(limits)) {}
HttpServer::~HttpServer() { stop(); }
void HttpServer::get(const std::string& path, HttpHandler handler) { implementation_->routes_[path].get = std::move(handler); }
void HttpServer::post(const std::string& path, HttpHandler handler) {
  implementation_->routes_[path].post = std::move(handler);
}
void HttpServer::on_error(std::function<HttpReply(int, const std::string&)> handler) {
  implementation_->failure_ = std::move(handler);
}
void HttpServer::on_done(std::function<void(const HttpRecord&)> handler) { implementation_->done_ = std::move(handler); }
int HttpServer::bind(const std::string& host, int port) { return implementation_->bind_port(host, port); }
void HttpServer::start() { implementation_->start(); }
void HttpServer::stop() { implementation_->finish(); }
std::string HttpServer::failure() const { return implementation_->failure(); }

}  // namespace kpd::tool
