#include "serve/front.h"

#include <ctime>

#include <fmt/format.h>

#include "serve/chat.h"

namespace kpd::tool {
namespace {

using Handler = HttpReply (*)(const Service&, const HttpRequest&);

HttpReply failure(int status, const std::string& text) {
  if (!text.empty()) return ApiError(status, text).reply();
  switch (status) {
    case 404:
      return ApiError(404, "there is no such path; see /v1/models, /v1/completions, /v1/chat/completions").reply();
    case 405:
      return ApiError(405, "the path does not take this method").reply();
    default:
      return ApiError(status, status < 500 ? "not a valid HTTP request" : "internal error").reply();
  }
}

HttpHandler when_loaded(const Front& front, Handler handler, bool open = false) {
  return [&front, handler, open](const HttpRequest& http) {
    const Service* const service = front.service.load();
    if (service == nullptr) return ApiError(503, "the model is being loaded", "", "loading").reply();
    return guarded(*service, handler, open)(http);
  };
}

HttpReply serve_model(const Service& s, const HttpRequest&) {
  return json_reply({{"id", s.model}, {"object", "model"}, {"created", s.created}, {"owned_by", "kpd"}});
}

// Of what a client sent, what a terminal may show: it ends no line and moves no cursor.
std::string shown(std::string_view text) {
  constexpr size_t kMost = 200;
  std::string out;
  for (const char c : text.substr(0, kMost)) {
    if (c > ' ' && c < 0x7F && c != '\\') {
      out += c;
    } else {
      out += fmt::format("\\x{:02x}", static_cast<unsigned char>(c));
    }
  }
  return text.size() > kMost ? out + "..." : out;
}

}  // namespace

void add_routes(HttpServer& http, const Front& front, const std::string& model) {
  http.on_error(failure);
  http.get("/", [](const HttpRequest&) { return serve_page(); });  // it waits for the model and asks for the key itself
  for (const char* path : {"/health", "/v1/health"}) http.get(path, when_loaded(front, serve_health, true));
  http.get("/v1/models", when_loaded(front, serve_models));
  http.get("/v1/models/" + model, when_loaded(front, serve_model));
  http.get("/metrics", when_loaded(front, serve_metrics));
  http.get("/props", when_loaded(front, serve_props));
  http.get("/tokenizer_info", when_loaded(front, serve_tokenizer_info));
  http.post("/tokenize", when_loaded(front, serve_tokenize));
  http.post("/detokenize", when_loaded(front, serve_detokenize));
  http.post("/v1/completions", when_loaded(front, serve_completions));
  http.post("/v1/chat/completions", when_loaded(front, serve_chat));
  http.post("/apply-template", when_loaded(front, serve_apply_template));
}

std::string log_line(const HttpRecord& r, std::chrono::system_clock::time_point at) {
  const std::time_t seconds = std::chrono::system_clock::to_time_t(at);
  std::tm utc{};
  gmtime_r(&seconds, &utc);
  char time[32];
  std::strftime(time, sizeof time, "%Y-%m-%dT%H:%M:%SZ", &utc);
  std::string line = fmt::format("{} {} {} {} {} {} bytes {:.3f} s", time, r.client.empty() ? "-" : r.client,
                                 r.method.empty() ? "-" : shown(r.method), r.target.empty() ? "-" : shown(r.target), r.status,
                                 r.bytes, r.seconds);
  if (!r.note.empty()) line += "; " + r.note;
  if (!r.sent_all) line += "; the client left";
  return line + "\n";
}

}  // namespace kpd::tool
