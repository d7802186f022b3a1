// tools: one HTTP request, read whole: its head, then its body, with one rule for where it ends. What two readers could
// understand differently is refused, so that nothing of one request is ever taken for another (RFC 9112, 6.3 and 11.2). It
// knows no sockets, so that it can be fuzzed.
#pragma once

#include <functional>
#include <map>
#include <stdexcept>
#include <string>
#include <string_view>

namespace kpd::tool {

// A request that no handler sees, with the status of its reply.
class HttpError : public std::runtime_error {
 public:
  HttpError(int status, const std::string& text) : std::runtime_error(text), status_(status) {}
  int status() const { return status_; }

 private:
  int status_;
};

// The client ended, or sent nothing in time, before a request began: there is nobody to tell.
class NoRequest : public std::exception {};

struct RawRequest {
  std::string method, target, body;
  std::string host, origin, authorization;  // of the head only these matter to anyone
  bool keep_alive = true;
  bool old = false;  // HTTP/1.0
};

class RequestReader {
 public:
  // Appends at most so many bytes as they come; false: no more come, or not in time.
  using More = std::function<bool(std::string& to, size_t at_most)>;
  // All but the body (head, sizes of chunks, trailers) may take kFrameBytes. `go_on` tells a client that asked whether to send
  // its body to do so.
  RequestReader(size_t body_bytes, More more, std::function<void()> go_on)
      : body_bytes_(body_bytes), more_(std::move(more)), go_on_(std::move(go_on)) {}

  // Throws HttpError, after which there is no further request: where this one ends is not known. Throws NoRequest.
  RawRequest next();
  bool has_bytes() const { return at_ < buffer_.size(); }

  static constexpr size_t kFrameBytes = 64 << 10, kTargetBytes = 8000;

 private:
  using Fields = std::map<std::string, std::string>;

  std::string line();
  void fetch();
  void read_fields(Fields& fields);
  void read_body(const Fields& fields, RawRequest& request);
  void read_chunks(std::string& body);
  void take(size_t n, std::string& to);

  size_t body_bytes_;
  More more_;
  std::function<void()> go_on_;
  std::string buffer_;  // what came beyond what is read: from at_ on
  size_t at_ = 0;
  size_t frame_left_ = 0;
  bool in_head_ = true, begun_ = false;
};

// The host of an authority in lower case, without the port: "[::1]:80" gives "[::1]".
std::string host_name(std::string_view authority);

}  // namespace kpd::tool
