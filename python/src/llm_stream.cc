// python: text that a model is making, piece by piece.
#include <deque>
#include <optional>

#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/unique_ptr.h>
#include <nanobind/stl/vector.h>

#include "llm.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace kpd::python {
namespace {

using Ids = std::vector<text::TokenId>;

// An answer under way on a thread of its own. It has the use of the model until it is over.
class Stream {
 public:
  Stream(SharedModel model, Ids prompt, llm::GenerateOptions options, const std::string& cache)
      : use_(std::make_unique<Use>(model)), prompt_(std::move(prompt)), options_(std::move(options)) {
    llm::check_sampling(options_.sampling);
    cache_ = model->model.make_cache(cache, options_.context);
    job_ = std::make_unique<Job>([this](Job& job) { write(job); });
  }

  // The next text; none at the end.
  std::optional<std::string> next() {
    if (finished_) return std::nullopt;
    std::string text;
    wait([&] { return !pieces_.empty(); });
    {
      const auto lock = job_->lock();
      for (; !pieces_.empty(); pieces_.pop_front()) text += pieces_.front();
    }
    if (!text.empty()) return text;
    finish();
    return std::nullopt;
  }

  const llm::Generated& result() {
    if (!finished_) finish();
    return result_;
  }

  // Ends it where it is.
  void close() {
    if (finished_) return;
    job_->cancel();
    finish();
  }
  bool finished() const { return finished_; }

 private:
  // What interrupts it has ended it.
  template <class Ready>
  void wait(const Ready& ready) {
    try {
      job_->wait_until(ready);
    } catch (const nb::python_error&) {
      end();
      throw;
    }
  }

  void finish() {
    wait([] { return false; });
    try {
      job_->wait();
    } catch (...) {
      end();
      throw;
    }
    end();
  }

  void end() {
    finished_ = true;
    cache_.reset();
    use_.reset();
  }

  // While the prompt is read a step ends in its middle, later with its token: what was said so far is the result.
  void write(Job& job) {
    size_t unread = prompt_.size();
    llm::Model& model = use_->model().model;
    const auto on_text = [&](std::string_view text) {
      unread -= std::min(unread, options_.chunk);
      if (!text.empty()) {
        const auto lock = job.lock();
        pieces_.emplace_back(text);
        job.notify();
      }
      return !job.cancelled();
    };
    const CancelScope end_steps([&] { return job.dropped() || (job.cancelled() && unread > 0); });
    try {
      result_ = llm::generate(model, *use_->model().tokenizer, *cache_, 0, prompt_, options_, on_text);
    } catch (const Error& e) {
      if (e.code() != ErrorCode::kCancelled) throw;
      result_.prompt_tokens = prompt_.size();
      result_.reason = llm::FinishReason::kCancelled;
    }
  }

  std::unique_ptr<Use> use_;
  Ids prompt_;
  llm::GenerateOptions options_;
  std::unique_ptr<llm::KvCache> cache_;
  std::deque<std::string> pieces_;  // under the job's lock
  llm::Generated result_;
  bool finished_ = false;
  std::unique_ptr<Job> job_;  // last: it ends before what it uses
};

struct Asked {
  size_t max_tokens, context;
  std::vector<std::string> stop;
  bool ignore_eos, context_shift, opens_text;
  std::optional<double> temperature, top_p, min_p, repeat_penalty;
  std::optional<size_t> top_k;
  uint64_t seed;
};

// What was not asked for is what the model's files want.
llm::SamplingOptions sampling(const llm::SamplingDefaults& defaults, const Asked& asked) {
  llm::SamplingOptions o = defaults.options;
  o.temperature = asked.temperature.value_or(o.temperature);
  o.top_k = asked.top_k.value_or(o.top_k);
  o.top_p = asked.top_p.value_or(o.top_p);
  o.min_p = asked.min_p.value_or(o.min_p);
  o.repeat_penalty = asked.repeat_penalty.value_or(o.repeat_penalty);
  o.seed = asked.seed;
  return o;
}

std::unique_ptr<Stream> begin(const SharedModel& model, Ids prompt, const std::string& cache, const Asked& asked) {
  if (!model->tokenizer) fail(ErrorCode::kUnsupported, "model: it has no tokenizer");
  llm::GenerateOptions options;
  options.max_tokens = asked.max_tokens;
  options.context = asked.context != 0 ? asked.context : llm::usual_context(model->model.description());
  options.chunk = kChunk;
  options.ignore_eos = asked.ignore_eos;
  options.context_shift = asked.context_shift;
  options.opens_text = asked.opens_text;
  options.stop = asked.stop;
  options.sampling = sampling(model->sampling, asked);
  const std::string refusal = llm::prompt_refusal(prompt.size(), options.context);
  if (!refusal.empty()) fail(ErrorCode::kInvalidArgument, "prompt: ", refusal);
  return std::make_unique<Stream>(model, std::move(prompt), std::move(options), cache);
}

nb::dict result(Stream& stream) {
  const llm::Generated& g = stream.result();
  nb::dict d;
  d["text"] = g.text;
  d["token_ids"] = g.token_ids;
  d["prompt_tokens"] = g.prompt_tokens;
  d["tokens"] = g.tokens;
  d["finish_reason"] = llm::finish_reason_name(g.reason);
  d["prefill_seconds"] = g.prefill_seconds;
  d["decode_seconds"] = g.decode_seconds;
  return d;
}

}  // namespace

void bind_llm_stream(nb::module_& m) {
  nb::class_<Asked>(m, "AnswerOptions")
      .def(nb::init<size_t, size_t, std::vector<std::string>, bool, bool, bool, std::optional<double>, std::optional<double>,
                    std::optional<double>, std::optional<double>, std::optional<size_t>, uint64_t>(),
           "max_tokens"_a, "context"_a, "stop"_a, "ignore_eos"_a, "context_shift"_a, "opens_text"_a, "temperature"_a.none(),
           "top_p"_a.none(), "min_p"_a.none(), "repeat_penalty"_a.none(), "top_k"_a.none(), "seed"_a);
  nb::class_<Stream>(m, "Answer")
      .def("next", &Stream::next)
      .def("result", &result, nb::sig("def result(self) -> dict[str, typing.Any]"))
      .def("close", &Stream::close)
      .def_prop_ro("finished", &Stream::finished);
  m.def("begin_answer", &begin, "model"_a, "prompt"_a, "cache"_a, "asked"_a);
}

}  // namespace kpd::python
