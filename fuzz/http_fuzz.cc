// fuzz: bodies of HTTP requests to `kpd serve`, from the JSON text to the reply, over a scheduler that computes with a model of
// a few kilobytes. The first byte chooses the route. A finding is: an exception that is no refusal, a reply that is no JSON or
// has an unknown status, a request that never ends (libFuzzer's -timeout), and what the sanitizers see.
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <string>

#include "../tools/kpd/serve/chat.h"
#include "kpd/llm/model.h"

namespace {

using kpd::tool::HttpReply;
using kpd::tool::HttpRequest;
using kpd::tool::Service;

constexpr size_t kContext = 48;

// The server's parts, made once.
struct Fixture {
  std::unique_ptr<kpd::llm::Scheduler> scheduler;
  kpd::text::Tokenizer tokenizer;
  std::unique_ptr<Service> service;

  Fixture() : tokenizer(kpd::text::Tokenizer::from_directory(folder())) {
    kpd::llm::Model model =
        kpd::llm::Model::load(folder(), {.arithmetic = kpd::llm::Arithmetic::kExact, .n_threads = 1, .limits = {}});
    kpd::llm::SchedulerOptions options;
    options.context = kContext;
    options.n_slots = 4;
    options.max_queue = 16;
    options.chunk = 16;
    scheduler = std::make_unique<kpd::llm::Scheduler>(std::move(model), tokenizer, options);
    service.reset(new Service{*scheduler, tokenizer});
    service->chat = kpd::text::ChatTemplate::of_model(tokenizer);
    service->model = "fuzzed";
    service->sampling.temperature = 1;
    service->sampling.seed = 1;
    service->max_requests = options.n_slots + options.max_queue;
  }
  static std::string folder() { return std::string(KPD_TESTS_DIR) + "/golden/models/chat"; }
};

void expect(bool condition, const std::string& shown) {
  if (condition) return;
  std::fprintf(stderr, "a reply that should not be: %s\n", shown.c_str());
  __builtin_trap();
}

void check_json(const std::string& text) { expect(nlohmann::json::accept(text), text); }

// A streamed reply: events of JSON, the last [DONE].
void check_stream(const HttpReply& reply) {
  std::string text;
  reply.stream([&](std::string_view piece) {
    text += piece;
    return true;
  });
  size_t begin = 0;
  bool done = false;
  for (size_t end; (end = text.find("\n\n", begin)) != std::string::npos; begin = end + 2) {
    if (text[begin] == ':') continue;  // a comment
    expect(!done && text.compare(begin, 6, "data: ") == 0, text);
    const std::string event = text.substr(begin + 6, end - begin - 6);
    done = event == "[DONE]";
    if (!done) check_json(event);
  }
  expect(done && begin == text.size(), text);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static Fixture fixture;
  if (size == 0 || size > 65536) return 0;
  constexpr HttpReply (*kRoutes[])(const Service&, const HttpRequest&) = {
      kpd::tool::serve_completions, kpd::tool::serve_chat, kpd::tool::serve_tokenize, kpd::tool::serve_detokenize,
      kpd::tool::serve_apply_template};
  HttpRequest request;
  request.body.assign(reinterpret_cast<const char*>(data) + 1, size - 1);
  request.client = "127.0.0.1";
  request.gone = [] { return false; };
  const HttpReply reply = kpd::tool::guarded(*fixture.service, kRoutes[data[0] % std::size(kRoutes)])(request);
  expect(reply.status == 200 || reply.status == 400 || reply.status == 503, std::to_string(reply.status) + " " + reply.body);
  if (reply.stream) {
    check_stream(reply);
  } else {
    check_json(reply.body);
  }
  return 0;
}
