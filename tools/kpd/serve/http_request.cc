#include "serve/http_request.h"

#include <algorithm>
#include <array>
#include <charconv>

#include "kpd/base/ascii.h"

namespace kpd::tool {
namespace {

constexpr size_t kReadBytes = 16384;

bool is_token(std::string_view text) {
  constexpr std::string_view kOthers = "!#$%&'*+-.^_`|~";
  const auto allowed = [&](char c) {
    return (c >= '0' && c <= '9') || (ascii_lower(c) >= 'a' && ascii_lower(c) <= 'z') ||
           kOthers.find(c) != std::string_view::npos;
  };
  return !text.empty() && std::all_of(text.begin(), text.end(), allowed);
}

bool has_control(std::string_view text) {
  return std::any_of(text.begin(), text.end(),
                     [](char c) { return (static_cast<unsigned char>(c) < 0x20 && c != '\t') || c == 0x7F; });
}

std::string_view trim(std::string_view text) {
  const size_t first = text.find_first_not_of(" \t");
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(" \t") + 1 - first);
}

// Whether a list ("keep-alive, upgrade") has the word.
bool lists(std::string_view list, std::string_view word) {
  while (!list.empty()) {
    const size_t comma = std::min(list.find(','), list.size());
    if (ascii_lower(trim(list.substr(0, comma))) == word) return true;
    list.remove_prefix(std::min(comma + 1, list.size()));
  }
  return false;
}

// An integer of digits only: no sign, no space, nothing behind it.
bool parse_size(std::string_view text, int base, size_t& value) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value, base);
  return error == std::errc() && end == text.data() + text.size();
}

void read_request_line(std::string_view text, RawRequest& request, bool& old) {
  const size_t first = text.find(' '), last = text.rfind(' ');
  if (first == std::string_view::npos || first == last || !is_token(text.substr(0, first)))
    throw HttpError(400, "malformed HTTP request");
  request.method = text.substr(0, first);
  request.target = text.substr(first + 1, last - first - 1);
  const std::string_view version = text.substr(last + 1);
  old = version == "HTTP/1.0";
  if (!old && version != "HTTP/1.1") throw HttpError(505, "expected HTTP/1.1");
  constexpr std::array<std::string_view, 7> kMethods{"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"};
  if (std::find(kMethods.begin(), kMethods.end(), request.method) == kMethods.end()) throw HttpError(405, "unknown method");
  if (request.target.size() > RequestReader::kTargetBytes) throw HttpError(414, "request target is too long");
  if (request.target.empty() || has_control(request.target) || request.target.find_first_of(" \t") != std::string::npos)
    throw HttpError(400, "invalid request target");
}

// "GET http://host/path", as to a proxy: its authority counts, not the field Host (RFC 9112, 3.2.2).
void use_authority(RawRequest& request) {
  const size_t scheme = request.target.find("://");
  if (scheme == std::string::npos || request.target.starts_with('/')) return;
  const size_t first = scheme + 3, path = std::min(request.target.find('/', first), request.target.size());
  request.host = request.target.substr(first, path - first);
  request.target.erase(0, path);
  if (request.target.empty()) request.target = "/";
}

}  // namespace

RawRequest RequestReader::next() {
  frame_left_ = kFrameBytes;
  in_head_ = true;
  begun_ = false;
  std::string first = line();
  while (first.empty()) first = line();  // some clients end a body with an empty line
  begun_ = true;
  RawRequest request;
  bool old = false;
  read_request_line(first, request, old);
  Fields fields;
  read_fields(fields);
  in_head_ = false;
  if (!old && fields.count("host") == 0) throw HttpError(400, "missing Host header");
  if (old && fields.count("transfer-encoding") != 0) throw HttpError(400, "HTTP/1.0 has no Transfer-Encoding");
  request.host = fields["host"];
  request.origin = fields["origin"];
  request.authorization = fields["authorization"];
  const std::string& connection = fields["connection"];
  // One of HTTP/1.0 that wants its connection kept would have to be told; it gets a new one.
  request.keep_alive = !old && !lists(connection, "close");
  request.old = old;
  use_authority(request);
  read_body(fields, request);
  return request;
}

// A line without its end, which is CR LF and nothing else: a proxy may see another end in a line feed alone.
std::string RequestReader::line() {
  for (size_t seen = 0;;) {
    const size_t end = buffer_.find('\n', at_ + seen);
    seen = (end == std::string::npos ? buffer_.size() : end + 1) - at_;
    if (seen > frame_left_)
      throw in_head_ ? HttpError(431, "request headers are too large") : HttpError(413, "request body is too large");
    if (end == std::string::npos) {
      fetch();
      continue;
    }
    frame_left_ -= seen;
    if (seen < 2 || buffer_[end - 1] != '\r') throw HttpError(400, "header line does not end in CR LF");
    std::string text = buffer_.substr(at_, seen - 2);
    at_ = end + 1;
    if (has_control(text)) throw HttpError(400, "control character in the request headers");
    return text;
  }
}

void RequestReader::fetch() {
  buffer_.erase(0, at_);
  at_ = 0;
  if (more_(buffer_, kReadBytes)) return;
  if (!begun_ && buffer_.find_first_not_of("\r\n") == std::string::npos) throw NoRequest();
  throw HttpError(408, "request timed out before it was complete");
}

void RequestReader::read_fields(Fields& fields) {
  constexpr std::array<std::string_view, 8> kWanted{"host",   "origin",     "authorization",    "content-length",
                                                    "expect", "connection", "content-encoding", "transfer-encoding"};
  for (std::string text = line(); !text.empty(); text = line()) {
    const size_t colon = text.find(':');
    // A space before the colon and a line that goes on with the field before are understood differently by others.
    if (colon == std::string::npos || !is_token(std::string_view(text).substr(0, colon)))
      throw HttpError(400, "malformed header");
    const std::string name = ascii_lower(std::string_view(text).substr(0, colon));
    if (std::find(kWanted.begin(), kWanted.end(), name) == kWanted.end()) continue;
    const std::string_view value = trim(std::string_view(text).substr(colon + 1));
    const auto [it, is_new] = fields.emplace(name, value);
    if (is_new) continue;
    if (name != "connection") throw HttpError(400, "duplicate header " + name);
    it->second.append(",").append(value);
  }
}

void RequestReader::read_body(const Fields& fields, RawRequest& request) {
  const auto get = [&](const char* name) {
    const auto it = fields.find(name);
    return it == fields.end() ? nullptr : &it->second;
  };
  const std::string *encoding = get("content-encoding"), *transfer = get("transfer-encoding"), *length = get("content-length"),
                    *expect = get("expect");
  if (transfer != nullptr && length != nullptr) throw HttpError(400, "both Transfer-Encoding and Content-Length are present");
  if (transfer != nullptr && ascii_lower(*transfer) != "chunked")
    throw HttpError(400, "unsupported Transfer-Encoding; only chunked is supported");
  // What it unpacks to is not bounded by what arrives.
  if (encoding != nullptr && ascii_lower(*encoding) != "identity") throw HttpError(415, "Content-Encoding is not supported");
  size_t n = 0;
  if (length != nullptr && !parse_size(*length, 10, n)) throw HttpError(400, "invalid Content-Length");
  if (n > body_bytes_) throw HttpError(413, "request body is too large");
  if (transfer == nullptr && n == 0) return;  // neither: there is no body (RFC 9112, 6.3)
  if (request.method == "GET" || request.method == "HEAD")
    throw HttpError(400, "a " + request.method + " request must not have a body");
  if (expect != nullptr && !request.old) {
    if (ascii_lower(*expect) != "100-continue")
      throw HttpError(417, "unsupported Expect header; only 100-continue is supported");
    if (!has_bytes()) go_on_();
  }
  if (transfer != nullptr) {
    read_chunks(request.body);
  } else {
    take(n, request.body);
  }
}

// Appends n bytes. Room is taken as they come, not as they are announced.
void RequestReader::take(size_t n, std::string& to) {
  const size_t end = to.size() + n, held = std::min(n, buffer_.size() - at_);
  to.append(buffer_, at_, held);
  at_ += held;
  while (to.size() < end) {
    if (!more_(to, std::min(end - to.size(), kReadBytes))) throw HttpError(408, "request timed out before it was complete");
  }
}

void RequestReader::read_chunks(std::string& body) {
  for (;;) {
    const std::string text = line();
    size_t n = 0;
    if (!parse_size(trim(std::string_view(text).substr(0, text.find(';'))), 16, n)) throw HttpError(400, "invalid chunk");
    if (n == 0) break;
    if (n > body_bytes_ - body.size()) throw HttpError(413, "request body is too large");
    take(n, body);
    if (!line().empty()) throw HttpError(400, "invalid chunk");
  }
  while (!line().empty()) {  // trailers
  }
}

std::string host_name(std::string_view authority) {
  const size_t bracket = authority.find(']');
  const size_t colon = authority.find(':', bracket == std::string_view::npos ? 0 : bracket);
  return ascii_lower(authority.substr(0, colon));
}

}  // namespace kpd::tool
