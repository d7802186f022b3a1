// gradient: the table of methods. A new method is one row here, one file, one page in docs/methods, one golden stream.
#include <algorithm>
#include <charconv>
#include <limits>

#include "gradient/eden.h"
#include "gradient/baselines.h"
#include "gradient/segment_codec.h"
#include "gradient/stream_format.h"
#include "gradient/units.h"
#include "kpd/base/error.h"

namespace kpd::gradient {
namespace {

constexpr std::string_view kSwitch[] = {"0", "1"};

// A key of every method that rotates: a rotation spreads the values of all members evenly, so that they share blocks.
MethodEntry with_join(MethodEntry entry) {
  entry.row.keys.push_back({"join", "0|1", "1"});
  return entry;
}

// What a spec's join= means for its record. A code with a shared rotation is summed in rotated form, tensor by tensor.
void parse_join(const Spec& spec, WireParams& params) {
  const bool shared = (params.flags & kFlagDither) != 0;
  const bool join = spec.choice("join", shared ? 0 : 1, kSwitch) == 1;
  if (join && shared) spec.fail_at(spec.find("join")->position, "dither=shared does not join tensors");
  if (join) params.flags |= kFlagJoin;
}

std::string shortest(double value) {
  char buffer[32];
  const auto [end, error] = std::to_chars(buffer, buffer + sizeof buffer, value);
  return error == std::errc() ? std::string(buffer, end) : std::string();
}

}  // namespace

const std::vector<MethodEntry>& registry() {
  static const std::vector<MethodEntry> table = {
      with_join(eden_entry()),
      with_join(drive_entry()),
      with_join(drive_plus_entry()),
      with_join(hadamard_sq_entry()),
      with_join(kashin_sq_entry()),
      sq_entry(),
      qsgd_entry(),
      terngrad_entry(),
      randk_entry(),
      float32_entry(),
      bf16_entry(),
  };
  return table;
}

const MethodEntry& method_by_id(uint8_t id) {
  for (const MethodEntry& m : registry()) {
    if (m.row.id == id) return m;
  }
  static const MethodEntry exact = exact_entry();
  if (id == exact.row.id) return exact;
  fail(ErrorCode::kUnsupported, "method id ", id, " is not known to this version");
}

void CodecCache::begin_message() {
  for (Entry& e : entries_) e.used = false;
}

std::shared_ptr<const SegmentCodec> CodecCache::get(const WireParams& params) {
  for (Entry& e : entries_) {
    if (e.params != params) continue;
    e.used = true;
    return e.codec;
  }
  Entry made{params, method_by_id(params.method).make(params), true};
  if (entries_.size() < kMaxCodecs) {
    entries_.push_back(made);
    return made.codec;
  }
  const auto old = std::find_if(entries_.begin(), entries_.end(), [](const Entry& e) { return !e.used; });
  if (old == entries_.end()) fail(ErrorCode::kLimitExceeded, "more than ", kMaxCodecs, " different codecs in one stream");
  *old = made;
  return made.codec;
}

const std::vector<MethodRow>& methods() {
  static const std::vector<MethodRow> rows = [] {
    std::vector<MethodRow> out;
    for (const MethodEntry& m : registry()) out.push_back(m.row);
    return out;
  }();
  return rows;
}

Codec::Codec() : Codec(parse("float32")) {}

Codec Codec::parse(std::string_view spec_text) {
  const Spec spec = Spec::parse(spec_text);
  for (const MethodEntry& m : registry()) {
    if (m.row.name != spec.method()) continue;
    std::vector<std::string_view> keys;
    for (const SpecKey& k : m.row.keys) keys.push_back(k.key);
    spec.check_keys(keys);
    WireParams params = m.parse(spec);
    params.method = m.row.id;
    if (rotates(m.row.id)) parse_join(spec, params);
    return {spec_text, params, methods()[static_cast<size_t>(&m - registry().data())]};
  }
  std::vector<std::string_view> names;
  for (const MethodEntry& m : registry()) names.push_back(m.row.name);
  const std::string_view near = nearest_word(spec.method(), names);
  spec.fail_at(1, near.empty() ? str("unknown method '", spec.method(), "'; `kpd codecs` lists them")
                               : str("unknown method '", spec.method(), "', did you mean '", near, "'?"));
}

double Codec::limit_vnmse(uint64_t n) const {
  const WireParams p = n == 0 ? params_ : resolve_params(params_, n);
  return method_by_id(p.method).limit_vnmse(p, n);
}

Codec Codec::with_bits(double bits) const {
  const Spec spec = Spec::parse(text_);
  if (method_by_id(params_.method).rates_per_bit == 0) {
    fail(ErrorCode::kInvalidArgument, text_, ": ", spec.method(), " has no key bits, its rate cannot be chosen");
  }
  std::string text = spec.method() + ":bits=" + shortest(bits);
  for (const Spec::Item& item : spec.items()) {
    if (item.key != "bits") text += "," + item.key + "=" + item.value;
  }
  return parse(text);
}

double bits_for_vnmse(const Codec& codec, double vnmse, uint64_t n) {
  constexpr double kNone = std::numeric_limits<double>::quiet_NaN();
  const int per_bit = method_by_id(codec.params().method).rates_per_bit;
  if (per_bit == 0) return kNone;
  const auto bits_of = [per_bit](int i) { return static_cast<double>(i) / per_bit; };
  const auto is_enough = [&](int i) { return codec.with_bits(bits_of(i)).limit_vnmse(n) <= vnmse; };
  const uint16_t flags = codec.params().flags;
  int least = (flags & kFlagFixedCode) != 0 ? 2 * per_bit : (flags & kFlagDither) != 0 ? per_bit : 1;
  int enough = method_by_id(codec.params().method).max_bits * per_bit;
  if (!is_enough(enough)) return kNone;
  while (least < enough) {
    const int middle = least + (enough - least) / 2;
    if (is_enough(middle)) {
      enough = middle;
    } else {
      least = middle + 1;
    }
  }
  return bits_of(enough);
}

}  // namespace kpd::gradient
