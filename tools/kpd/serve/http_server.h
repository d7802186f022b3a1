// tools: the HTTP side of `kpd serve`: connections with deadlines, exact routes, nothing of the file system. It knows neither
// JSON nor models.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace kpd::tool {

struct HttpRequest {
  std::string path, body, authorization, client;  // client: its address
  std::function<bool()> gone;                     // whether the client has closed the connection
};

struct HttpReply {
  int status = 200;
  std::string type = "application/json", body;
  std::multimap<std::string, std::string> headers;
  // What the log says of the request beside its outcome; may be filled until the reply has been sent.
  std::shared_ptr<const std::string> note;
  // In place of body: called once, writes pieces; write() is false once the client is gone.
  std::function<void(const std::function<bool(std::string_view)>& write)> stream;
};

using HttpHandler = std::function<HttpReply(const HttpRequest&)>;

// A request that is over, for a log.
struct HttpRecord {
  std::string client, method, target, note;  // method and target are empty of what is no request
  int status = 0;
  size_t bytes = 0;      // sent
  double seconds = 0;    // since its first byte
  bool sent_all = true;  // false: the client has left, or takes nothing
};

struct HttpLimits {
  size_t connections = 128;  // answered at once; others wait for their turn, and 1024 more may be idle
  size_t body_bytes = 16 << 20;
  // Of the requests of all connections together, beside the first 64 KiB of each: a client of little is never shut out.
  size_t receiving_bytes = 128 << 20;
  int request_seconds = 30;     // for the client to send one request
  int keep_alive_seconds = 60;  // before and between requests of a connection
  int write_seconds = 30;       // for the client to take a piece of the reply
  size_t keep_alive_requests = 1000;
  // What a request may call this server, as host_name() writes it; empty: anything. A page of another site whose name was made
  // to point here sends that name.
  std::vector<std::string> hosts;
  // Sites ("https://chat.example") whose pages may use this server; "*": all.
  std::vector<std::string> origins;
};

class HttpServer {
 public:
  explicit HttpServer(const HttpLimits& limits);
  ~HttpServer();
  void get(const std::string& path, HttpHandler handler);
  void post(const std::string& path, HttpHandler handler);
  // The reply to what no handler answers, by its status and what is known of the reason (may be empty).
  void on_error(std::function<HttpReply(int status, const std::string& text)> handler);
  // Is told of every request when it is over, on the thread that answered it.
  void on_done(std::function<void(const HttpRecord&)> handler);
  // Port 0 takes any that is free. Returns the port; throws Error(kIo) if it cannot be had.
  int bind(const std::string& host, int port);
  void start();  // serves on threads of its own
  void stop();   // waits until the requests under way are answered, but not for clients that stall; frees the port
  // Why no connection can be taken any more; empty while all is well.
  std::string failure() const;

 private:
  class Implementation;
  std::unique_ptr<Implementation> implementation_;
};

}  // namespace kpd::tool
