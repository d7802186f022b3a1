// gradient: the table of methods. A new method is one row here, one file, one page in docs/methods, one golden stream.
#include <algorithm>

#include "gradient/eden.h"
#include "gradient/peers.h"
#include "gradient/segment_codec.h"
#include "kpd/base/error.h"

namespace kpd::gradient {

const std::vector<MethodEntry>& registry() {
  static const std::vector<MethodEntry> table = {
      eden_entry(),      drive_entry(), drive_plus_entry(), hadamard_sq_entry(), kashin_sq_entry(), sq_entry(),
      qsgd_entry(),      terngrad_entry(), randk_entry(),   float32_entry(),     bf16_entry(),
  };
  return table;
}

const MethodEntry& method_by_id(uint8_t id) {
  for (const MethodEntry& m : registry()) {
    if (m.row.id == id) return m;
  }
  fail(ErrorCode::kUnsupported, "method id ", id, " is not known to this version");
}

std::shared_ptr<const SegmentCodec> CodecCache::get(const WireParams& params) {
  for (const auto& [known, codec] : codecs_) {
    if (known == params) return codec;
  }
  if (codecs_.size() >= kMaxCodecs) fail(ErrorCode::kLimitExceeded, "more than ", kMaxCodecs, " different codecs");
  std::shared_ptr<const SegmentCodec> made = method_by_id(params.method).make(params);
  codecs_.emplace_back(params, made);
  return made;
}

const std::vector<MethodRow>& methods() {
  static const std::vector<MethodRow> rows = [] {
    std::vector<MethodRow> out;
    for (const MethodEntry& m : registry()) out.push_back(m.row);
    return out;
  }();
  return rows;
}

Codec Codec::parse(std::string_view spec_text) {
  const Spec spec = Spec::parse(spec_text);
  for (const MethodEntry& m : registry()) {
    if (m.row.name != spec.method()) continue;
    spec.check_keys(m.row.keys);
    Codec c;
    c.text_ = spec_text;
    c.params_ = m.parse(spec);
    c.params_.method = m.row.id;
    c.row_ = &methods()[static_cast<size_t>(&m - registry().data())];
    return c;
  }
  std::vector<std::string_view> names;
  for (const MethodEntry& m : registry()) names.push_back(m.row.name);
  const std::string_view near = nearest_word(spec.method(), names);
  spec.fail_at(1, near.empty() ? str("unknown method '", spec.method(), "'; `kpd codecs` lists them")
                               : str("unknown method '", spec.method(), "', did you mean '", near, "'?"));
}

double Codec::limit_vnmse() const { return method_by_id(params_.method).limit_vnmse(params_); }

}  // namespace kpd::gradient
