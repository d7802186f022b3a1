// python: kpd.llm's models: loading, logits, scores, perplexity.
#include <algorithm>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "call.h"
#include "llm.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace kpd::python {
namespace {

using Ids = std::vector<text::TokenId>;

llm::Arithmetic parse_arithmetic(const std::string& name) {
  for (const llm::Arithmetic a : {llm::Arithmetic::kExact, llm::Arithmetic::kFast}) {
    if (name == llm::arithmetic_name(a)) return a;
  }
  fail(ErrorCode::kInvalidArgument, "arithmetic: '", name.substr(0, 60), "' is unknown; there are exact, fast");
}

SharedModel load(const std::string& path, SharedTokenizer tokenizer, const std::string& arithmetic, int threads) {
  SharedModel loaded;
  const llm::Arithmetic chosen = parse_arithmetic(arithmetic);
  without_gil([&] {
    llm::LoadOptions options;
    options.arithmetic = chosen;
    options.n_threads = threads;
    options.on_progress = [](uint64_t) { check_cancelled(); };
    llm::Checkpoint checkpoint = llm::Checkpoint::open(path);
    llm::SamplingDefaults sampling = llm::sampling_defaults(path, checkpoint.metadata().get());
    loaded = SharedModel(
        new LoadedModel{path, llm::Model::load(std::move(checkpoint), options), std::move(tokenizer), std::move(sampling)});
  });
  return loaded;
}

nb::dict info(const LoadedModel& m) {
  const llm::ModelDescription& d = m.model.description();
  nb::dict out;
  out["family"] = d.family;
  out["n_parameters"] = m.model.n_parameters();
  out["n_layers"] = d.layers.size();
  out["d_model"] = d.d_model;
  out["n_vocabulary"] = d.n_vocabulary;
  out["max_context"] = d.max_context;
  out["file_bytes"] = m.model.file_bytes();
  out["memory_bytes"] = m.model.memory_bytes();
  out["arithmetic"] = llm::arithmetic_name(m.model.arithmetic());
  out["threads"] = m.model.n_threads();
  out["sampling"] = m.sampling.text();
  return out;
}

using Out = nb::ndarray<float, nb::ndim<2>, nb::c_contig, nb::device::cpu>;

// The head writes into `out` itself: nothing of its size is made beside it.
void read_step(LoadedModel& m, llm::KvCache& cache, const llm::BatchPart& part, float* out) {
  const llm::ModelDescription& d = m.model.description();
  const llm::BatchRows rows = m.model.plan({&part, 1}, cache);
  cache.begin(rows.cache);
  std::vector<float> hidden(rows.tokens.size() * d.d_model);
  m.model.embed(rows.tokens, hidden.data());
  for (size_t i = 0; i < d.layers.size(); ++i) m.model.layer(i, rows, hidden.data(), cache);
  cache.commit();
  // Wanted rows are ascending, so none is overwritten before it is read.
  for (size_t i = 0; i < rows.wanted.size(); ++i)
    std::copy_n(&hidden[rows.wanted[i] * d.d_model], d.d_model, &hidden[i * d.d_model]);
  if (!rows.wanted.empty()) m.model.head(hidden.data(), rows.wanted.size(), out);
}

void logits(const SharedModel& model, const Ids& tokens, const std::vector<uint32_t>& wanted, const Out& out,
            const std::string& cache_spec) {
  const size_t n_vocabulary = model->model.description().n_vocabulary;
  if (out.shape(0) != wanted.size() || out.shape(1) != n_vocabulary) {
    fail(ErrorCode::kInvalidArgument, "out: expected a C-contiguous float32 array of shape (", wanted.size(), ", ",
         n_vocabulary, "), got (", out.shape(0), ", ", out.shape(1), ")");
  }
  if (tokens.empty()) fail(ErrorCode::kInvalidArgument, "tokens: expected at least one");
  const Use use(model);
  LoadedModel& m = use.model();
  float* to = out.data();
  without_gil([&] {
    const std::unique_ptr<llm::KvCache> cache = m.model.make_cache(cache_spec, tokens.size());
    cache->set_plan(0, llm::plan_context(tokens.size()));
    for (size_t at = 0, done = 0; at < tokens.size(); at += kChunk) {
      const size_t n = std::min(kChunk, tokens.size() - at);
      llm::BatchPart part{
          0,
          {tokens.begin() + static_cast<std::ptrdiff_t>(at), tokens.begin() + static_cast<std::ptrdiff_t>(at + n)},
          {},
          llm::BatchPart::Want::kList,
          {}};
      for (; done + part.rows.size() < wanted.size() && wanted[done + part.rows.size()] < at + n;)
        part.rows.push_back(static_cast<uint32_t>(wanted[done + part.rows.size()] - at));
      read_step(m, *cache, part, to + done * n_vocabulary);
      done += part.rows.size();
    }
  });
}

std::vector<std::pair<double, bool>> score(const SharedModel& model, const std::vector<std::pair<Ids, Ids>>& pairs,
                                           const std::string& cache, const nb::object& progress) {
  std::vector<llm::ScoredText> texts;
  for (const auto& [context, continuation] : pairs) {
    llm::ScoredText& text = texts.emplace_back();
    text.tokens = context;
    text.tokens.insert(text.tokens.end(), continuation.begin(), continuation.end());
    text.n_context = context.size();
  }
  const Use use(model);
  std::vector<llm::TextScore> scores;
  without_gil([&] {
    size_t before = 0;
    scores = llm::score_texts(use.model().model, texts, {.chunk = kChunk, .cache = cache}, [&](size_t done) {
      if (!progress.is_none()) {
        const nb::gil_scoped_acquire acquire;
        progress(done - before);
        before = done;
      }
      return true;
    });
  });
  std::vector<std::pair<double, bool>> out;
  for (const llm::TextScore& s : scores) out.emplace_back(s.log_likelihood, s.greedy);
  return out;
}

nb::dict perplexity(const SharedModel& model, const SharedModel& reference, const nb::bytes& text, const std::string& protocol,
                    size_t context, size_t windows, const std::string& cache) {
  llm::EvaluationPlan plan;
  plan.protocol = llm::parse_protocol(protocol);
  plan.context = context;
  plan.max_windows = windows;
  plan.chunk = kChunk;
  plan.cache = cache;
  const std::string_view bytes(static_cast<const char*>(text.data()), text.size());
  if (!model->tokenizer) fail(ErrorCode::kUnsupported, "model: it has no tokenizer");
  const Use use(model);
  std::optional<Use> other;
  if (reference) other.emplace(reference);
  llm::Evaluation e;
  without_gil([&] {
    LoadedModel& m = use.model();
    const Ids tokens = m.tokenizer->encode(llm::protocol_text(plan.protocol, bytes), llm::protocol_encoding(plan.protocol));
    const auto bos = m.tokenizer->adds_bos() ? m.tokenizer->bos() : std::nullopt;
    e = llm::evaluate(m.model, other ? &other->model().model : nullptr, plan, llm::make_windows(plan, tokens, bos), {});
  });
  nb::dict d;
  d["perplexity"] = e.perplexity;
  d["perplexity_stderr"] = e.perplexity_stderr;
  d["loss"] = e.loss;
  d["windows"] = e.windows;
  d["tokens"] = e.tokens;
  d["seconds"] = e.seconds;
  d["definition"] = llm::protocol_definition(plan.protocol);
  if (!e.compared) return d;
  d["reference_perplexity"] = e.reference_perplexity;
  d["ln_ppl_ratio"] = e.ln_ppl_ratio;
  d["kld_mean"] = e.kld_mean;
  d["kld_stderr"] = e.kld_stderr;
  d["same_top1"] = e.same_top1;
  return d;
}

}  // namespace

void bind_llm_model(nb::module_& m) {
  nb::class_<LoadedModel>(m, "Model")
      .def_static("load", &load, "path"_a, "tokenizer"_a.none(), "arithmetic"_a, "threads"_a)
      .def("info", &info, nb::sig("def info(self) -> dict[str, typing.Any]"));
  m.def("logits", &logits, "model"_a, "tokens"_a, "rows"_a, "out"_a.noconvert(), "cache"_a);
  m.def("score_texts", &score, "model"_a, "pairs"_a, "cache"_a, "progress"_a.none());
  m.def("perplexity", &perplexity, "model"_a, "reference"_a.none(), "text"_a, "protocol"_a, "context"_a, "windows"_a, "cache"_a,
        nb::sig("def perplexity(model: Model, reference: Model | None, text: bytes, protocol: str, context: int, windows: int, "
                "cache: str) -> dict[str, typing.Any]"));
}

}  // namespace kpd::python
