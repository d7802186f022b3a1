// tools: what of `kpd serve` answers before there is a model, and the log of requests.
#pragma once

#include <atomic>

#include "serve/openai.h"

namespace kpd::tool {

// While the model is loaded every path but the page says 503, then the service answers.
struct Front {
  std::atomic<const Service*> service{nullptr};
};

// All paths of the server. `front` must outlive it. `model`: its name.
void add_routes(HttpServer& http, const Front& front, const std::string& model);

// A line of the log, with its end: the time (UTC), the client, the request, its outcome.
std::string log_line(const HttpRecord& record, std::chrono::system_clock::time_point at);

}  // namespace kpd::tool
