// python: a server's round, and synthetic vectors.
#include "bind.h"
#include "call.h"
#include "gradient.h"

#include <limits>

#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>

namespace nb = nanobind;

namespace kpd::python {
namespace {

using gradient::Manifest;
using gradient::Refusal;
using gradient::RoundReport;
using gradient::Verdict;

struct PyAggregator {
  PyAggregator(const PyManifest& manifest, nb::handle secret, gradient::AggregatorOptions options)
      : tensors(manifest.tensors), aggregator("Aggregator", manifest.tensors, secret_of(secret), std::move(options)) {}

  Manifest tensors;
  OneAtATime<gradient::Aggregator> aggregator;
  std::optional<FloatTargets> sums;  // of the open round
};
using UseAggregator = OneAtATime<gradient::Aggregator>::Use;

void begin_round(PyAggregator& self, uint64_t run, uint64_t round, uint64_t base_model_hash, nb::handle out) {
  const UseAggregator aggregator(self.aggregator);
  FloatTargets sums = float_targets(out, self.tensors, "out");
  check_apart(sums.arrays, {}, "out");
  without_gil([&] { aggregator->begin_round({run, round, 0, base_model_hash}, sums.spans); });
  self.sums = std::move(sums);
}

Verdict add(PyAggregator& self, uint64_t client, nb::handle message, std::optional<uint64_t> weight) {
  const UseAggregator aggregator(self.aggregator);
  const Place place{"message"};
  Array bytes = Array::source(message, place);
  const auto span = message_bytes(bytes, place);
  if (self.sums) check_apart({&bytes, 1}, self.sums->arrays, "message");
  Verdict verdict;
  without_gil([&] { verdict = aggregator->add(client, span, weight); });
  return verdict;
}

nb::object finish_round(PyAggregator& self) {
  const UseAggregator aggregator(self.aggregator);
  bool any = false;
  without_gil([&] { any = aggregator->finish_round(); });
  nb::object result = any ? nb::object(self.sums->objects) : nb::none();
  self.sums.reset();
  return result;
}

void refuse_client(PyAggregator& self, const std::string& refusal) {
  for (int r = 1; r < gradient::kRefusals; ++r) {
    if (refusal != gradient::refusal_name(static_cast<Refusal>(r))) continue;
    UseAggregator(self.aggregator)->refuse(static_cast<Refusal>(r));
    return;
  }
  fail(ErrorCode::kInvalidArgument, "refusal: '", refusal, "'; expected a name such as silent, lost or damaged");
}

nb::dict refused_of(const RoundReport& report) {
  nb::dict refused;
  for (int r = 1; r < gradient::kRefusals; ++r) {
    const std::string_view name = gradient::refusal_name(static_cast<Refusal>(r));
    if (report.refused[r] > 0) refused[nb::str(name.data(), name.size())] = report.refused[r];
  }
  return refused;
}

void bind_verdict(nb::module_& m) {
  nb::class_<Verdict> verdict(m, "Verdict", "What a server's round did with one message. True if it is in the mean.");
  verdict.def_prop_ro("accepted", &Verdict::accepted)
      .def_prop_ro(
          "refusal",
          [](const Verdict& v) -> std::optional<std::string> {
            if (v.accepted()) return std::nullopt;
            return std::string(gradient::refusal_name(v.refusal));
          },
          "A short name (silent, lost, damaged, twice, other round, other run, other client, other model, other codec, weight, "
          "norm,\n"
          "forged), or None.")
      .def_ro("reason", &Verdict::reason, "A sentence; empty if accepted.")
      .def_ro("weight", &Verdict::weight, "With which it was added.")
      .def_ro("norm", &Verdict::norm, "Euclidean norm of what it decodes to.")
      .def_ro("bytes", &Verdict::bytes, "Of the message.")
      .def("__bool__", &Verdict::accepted)
      .def("__repr__", [](const Verdict& v) {
        if (v.accepted()) return str("Verdict(accepted, weight=", v.weight, ", norm=", v.norm, ")");
        return str("Verdict(refused: ", gradient::refusal_name(v.refusal), ", '", v.reason, "')");
      });

  nb::class_<RoundReport> report(m, "RoundReport", "A server's round so far.");
  report.def_ro("accepted", &RoundReport::accepted, "Messages in the mean.")
      .def_ro("total_weight", &RoundReport::total_weight)
      .def_ro("saturated", &RoundReport::saturated, "Values beyond the float range, limited to it.")
      .def_ro("bytes", &RoundReport::bytes, "Of all messages, also refused ones.")
      .def_prop_ro("refused", &refused_of, nb::sig("def refused(self) -> dict[str, int]"),
                   "How many were refused, by the names of Verdict.refusal.")
      .def("__repr__",
           [](const RoundReport& r) { return str("RoundReport(accepted=", r.accepted, ", refused=", r.refusals(), ")"); });
}

void make_aggregator(PyAggregator* self, const PyManifest& manifest, nb::handle secret, int threads, uint64_t max_weight,
                     double max_norm, nb::handle codec, bool sum_rotated) {
  gradient::AggregatorOptions options;
  options.threads = threads;
  options.max_weight = max_weight;
  options.max_norm = max_norm;
  options.sum_rotated = sum_rotated;
  if (!codec.is_none()) options.codec = policy_of(codec);
  new (self) PyAggregator(manifest, secret, std::move(options));
}

void bind_aggregator(nb::module_& m) {
  nb::class_<PyAggregator> aggregator(
      m, "Aggregator",
      "A server's round: messages in, a weighted mean out, whatever the clients send.\n\n"
      "A message is checked whole before it is added, so one that is refused leaves no trace; add() says why and never raises "
      "for\n"
      "what a message holds. Memory is that of one sum.\n"
      "max_weight: the most that a message may claim where add() is not told its client's weight.\n"
      "max_norm: of one update before coding; needs no `codec`, but with it an honest client's coding error is allowed for.\n"
      "codec: what every message must be compressed by. sum_rotated: one inverse rotation a round, for dither=shared.");
  aggregator
      .def("__init__", &make_aggregator, nb::arg("manifest"), nb::arg("secret"), nb::kw_only(), nb::arg("threads") = 1,
           nb::arg("max_weight") = 1, nb::arg("max_norm") = std::numeric_limits<double>::infinity(),
           nb::arg("codec") = nb::none(), nb::arg("sum_rotated") = false,
           nb::sig("def __init__(self, manifest: Manifest, secret: typing_extensions.Buffer, *, threads: int = 1, max_weight: "
                   "int = 1, max_norm: float = ..., codec: Codec | str | collections.abc.Sequence[str] | None = None, "
                   "sum_rotated: bool = False) -> None"))
      .def("begin_round", &begin_round, nb::kw_only(), nb::arg("run") = 0, nb::arg("round"), nb::arg("base_model_hash") = 0,
           nb::arg("out") = nb::none(),
           nb::sig(
               "def begin_round(self, *, run: int = 0, round: int, base_model_hash: int = 0, out: typing.Any = None) -> None"),
           "Starts a round; one that was not finished is forgotten. out: float32 arrays of the manifest's shapes for the sum "
           "(None\n"
           "leaves out a tensor of an exact type), else new ones. They become 0 and belong to the round until finish_round().")
      .def("add", &add, nb::arg("client"), nb::arg("message"), nb::arg("weight") = nb::none(),
           nb::sig("def add(self, client: int, message: typing_extensions.Buffer, weight: int | None = None) -> Verdict"),
           "Adds weight * decoded. weight: what the server knows of the client; a message that says another is refused.\n\n"
           "The order of the calls is the order of the sum. Ctrl-C before a message is found good leaves the round as it was.")
      .def("refuse", &refuse_client, nb::arg("refusal"), "Counts a client of which there is no message, e.g. refuse('silent').")
      .def("finish_round", &finish_round, nb::sig("def finish_round(self) -> list[typing.Any] | None"),
           "The weighted mean, in the manifest's order, or None if no message was accepted and no model should change.")
      .def_prop_ro("report", [](PyAggregator& self) { return UseAggregator(self.aggregator)->report(); })
      .def_prop_ro("manifest", [](const PyAggregator& self) { return PyManifest{self.tensors}; });
  bind_life(aggregator, &PyAggregator::aggregator, [](PyAggregator& self) {
    self.aggregator.close();
    self.sums.reset();
  });
}

nb::object synthetic(const std::string& kind, uint64_t dim, uint64_t clients, uint64_t seed, double correlation, uint64_t trial,
                     int threads) {
  gradient::SyntheticSpec spec = gradient::SyntheticSpec::parse(kind);
  spec.seed = seed;
  spec.correlation = correlation;
  const uint64_t shape[] = {clients, dim};
  nb::object array = new_array(shape, DType::kFloat32);
  Array target = Array::target(array, {"out"});
  without_gil([&] {
    gradient::SyntheticClients vectors(spec, dim);
    vectors.start_trial(trial, threads);
    for (uint64_t c = 0; c < clients; ++c) vectors.client(c, {static_cast<float*>(target.writable()) + c * dim, dim}, threads);
  });
  return array;
}

}  // namespace

void bind_gradient_aggregate(nb::module_& m) {
  bind_verdict(m);
  bind_aggregator(m);
  m.def("synthetic", &synthetic, nb::arg("kind"), nb::arg("dim"), nb::arg("clients"), nb::arg("seed"), nb::arg("correlation"),
        nb::arg("trial"), nb::arg("threads"),
        nb::sig("def synthetic(kind: str, dim: int, clients: int, seed: int, correlation: float, trial: int, threads: int) -> "
                "typing.Any"));
  m.def(
      "secret_from_seed",
      [](uint64_t seed) {
        const gradient::RunSecret secret = gradient::RunSecret::from_seed(seed);
        return nb::bytes(secret.bytes.data(), secret.bytes.size());
      },
      nb::arg("seed"));
}

}  // namespace kpd::python
