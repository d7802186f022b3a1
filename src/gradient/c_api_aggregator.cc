// gradient: the C interface over aggregator.h.
#include <array>

#include "gradient/c_api.h"
#include "kpd/gradient/aggregator.h"

namespace gradient = kpd::gradient;
using namespace kpd::gradient::c_api;
using gradient::Refusal;
using kpd::ErrorCode;

static_assert(KPD_REFUSALS == gradient::kRefusals && KPD_ACCEPTED == static_cast<int>(Refusal::kNone) &&
              KPD_REFUSED_SILENT == static_cast<int>(Refusal::kSilent) &&
              KPD_REFUSED_LOST == static_cast<int>(Refusal::kLost) &&
              KPD_REFUSED_DAMAGED == static_cast<int>(Refusal::kDamaged) &&
              KPD_REFUSED_TWICE == static_cast<int>(Refusal::kTwice) &&
              KPD_REFUSED_OTHER_ROUND == static_cast<int>(Refusal::kOtherRound) &&
              KPD_REFUSED_OTHER_RUN == static_cast<int>(Refusal::kOtherRun) &&
              KPD_REFUSED_OTHER_CLIENT == static_cast<int>(Refusal::kOtherClient) &&
              KPD_REFUSED_OTHER_MODEL == static_cast<int>(Refusal::kOtherModel) &&
              KPD_REFUSED_OTHER_CODEC == static_cast<int>(Refusal::kOtherCodec) &&
              KPD_REFUSED_WEIGHT == static_cast<int>(Refusal::kWeight) &&
              KPD_REFUSED_NORM == static_cast<int>(Refusal::kNorm) && KPD_REFUSED_FORGED == static_cast<int>(Refusal::kForged));

struct kpd_aggregator {
  gradient::Aggregator aggregator;
  Tensors tensors;
};

namespace {

using MacCallback = void (*)(void* context, const uint8_t* message, uint64_t bytes, uint8_t code[16]);

gradient::MacFunction mac_of(MacCallback mac, void* context) {
  if (mac == nullptr) return {};
  return [mac, context](std::span<const uint8_t> message) {
    std::array<uint8_t, 16> code{};
    mac(context, message.data(), message.size(), code.data());
    return code;
  };
}

gradient::AggregatorOptions options_of(const kpd_aggregator_options& c) {
  gradient::AggregatorOptions o;
  o.threads = c.threads == 0 ? 1 : c.threads;
  if (c.max_weight != 0) o.max_weight = c.max_weight;
  if (c.max_norm != 0) o.max_norm = c.max_norm;
  o.sum_rotated = c.sum_rotated != 0;
  if (c.codec != nullptr) o.codec = gradient::Codec::parse(c.codec);
  o.mac = mac_of(c.mac, c.mac_context);
  return o;
}

}  // namespace

extern "C" {

const char* kpd_refusal_name(int refusal) {
  if (refusal < 0 || refusal >= KPD_REFUSALS) return "";
  return gradient::refusal_name(static_cast<Refusal>(refusal)).data();  // of a literal
}

int kpd_aggregator_new(const uint64_t* counts, size_t n_tensors, const uint8_t* secret, const kpd_aggregator_options* options,
                       kpd_aggregator** aggregator, char* error, size_t error_bytes) {
  return guarded(error, error_bytes, [&] {
    require((counts != nullptr || n_tensors == 0) && secret != nullptr && aggregator != nullptr,
            "counts, secret and aggregator");
    *aggregator = new kpd_aggregator{{manifest_of(counts, n_tensors), secret_of(secret),
                                      options_of(options != nullptr ? *options : kpd_aggregator_options{})},
                                     {counts, n_tensors}};
  });
}

void kpd_aggregator_free(kpd_aggregator* aggregator) { delete aggregator; }

int kpd_aggregator_begin_round(kpd_aggregator* aggregator, const kpd_message_ids* expected, float* const* sum, char* error,
                               size_t error_bytes) {
  return guarded(error, error_bytes, [&] {
    require(aggregator != nullptr && expected != nullptr && sum != nullptr, "aggregator, expected and sum");
    aggregator->aggregator.begin_round(ids_of(*expected), aggregator->tensors.at(sum));
  });
}

int kpd_aggregator_add(kpd_aggregator* aggregator, uint64_t client, const uint8_t* message, uint64_t bytes,
                       kpd_verdict* verdict, char* error, size_t error_bytes) {
  return guarded(error, error_bytes, [&] {
    require(aggregator != nullptr && (message != nullptr || bytes == 0) && verdict != nullptr,
            "aggregator, message and verdict");
    const gradient::Verdict v = aggregator->aggregator.add(client, {message, bytes});
    *verdict = {static_cast<int>(v.refusal), v.weight, v.norm, v.bytes};
    put_text(v.reason.c_str(), error, error_bytes);
  });
}

int kpd_aggregator_refuse(kpd_aggregator* aggregator, int refusal, char* error, size_t error_bytes) {
  return guarded(error, error_bytes, [&] {
    require(aggregator != nullptr, "aggregator");
    if (refusal <= KPD_ACCEPTED || refusal >= KPD_REFUSALS)
      kpd::fail(ErrorCode::kInvalidArgument, "refusal ", refusal, ", expected 1 to ", KPD_REFUSALS - 1);
    aggregator->aggregator.refuse(static_cast<Refusal>(refusal));
  });
}

int kpd_aggregator_finish_round(kpd_aggregator* aggregator, int* has_mean, char* error, size_t error_bytes) {
  return guarded(error, error_bytes, [&] {
    require(aggregator != nullptr && has_mean != nullptr, "aggregator and has_mean");
    *has_mean = aggregator->aggregator.finish_round() ? 1 : 0;
  });
}

void kpd_aggregator_report(const kpd_aggregator* aggregator, kpd_round_report* report) {
  if (report == nullptr) return;
  *report = kpd_round_report{};
  if (aggregator == nullptr) return;
  const gradient::RoundReport& r = aggregator->aggregator.report();
  report->accepted = r.accepted;
  report->total_weight = r.total_weight;
  report->saturated = r.saturated;
  report->bytes = r.bytes;
  std::copy(std::begin(r.refused), std::end(r.refused), report->refused);
}

int kpd_authenticate(uint8_t* message, uint64_t bytes,
                     void (*mac)(void* context, const uint8_t* message, uint64_t bytes, uint8_t code[16]), void* mac_context,
                     char* error, size_t error_bytes) {
  return guarded(error, error_bytes, [&] {
    require(message != nullptr && mac != nullptr, "message and mac");
    gradient::authenticate({message, bytes}, mac_of(mac, mac_context));
  });
}

}  // extern "C"
