// gradient: see receiver.h.
#include "gradient/receiver.h"

#include <algorithm>

namespace kpd::gradient {

void UnitTable::read(ByteReader& r, std::span<const uint8_t> rest, const Manifest& manifest, CodecCache& codecs) {
  const uint64_t at = r.offset();
  // A table tells its own end, so one that begins with all of the last one's bytes is the last one.
  const bool known = !bytes_.empty() && rest.size() >= bytes_.size() && std::equal(bytes_.begin(), bytes_.end(), rest.begin());
  if (known) return r.skip(bytes_.size(), "codec table");
  bytes_.clear();
  codecs.begin_message();
  read_codec_table(r, manifest.size(), table_);
  build_units(r, at, manifest, table_, codecs, units_);
  bytes_.assign(rest.begin(), rest.begin() + static_cast<ptrdiff_t>(r.offset() - at));
}

Receiver::Receiver(Manifest manifest, RunSecret secret, const Limits& limits)
    : manifest_(std::move(manifest)), secret_(secret), limits_(limits), hash_(manifest_hash(manifest_)) {
  for (const TensorInfo& t : manifest_) elements_ += t.count();
}

void Receiver::check_target(std::span<const std::span<float>> dst, float weight) const {
  check_destinations(manifest_, dst);
  check_weight(weight);
}

void Receiver::check_header(const StreamInfo& info, std::string_view name) const {
  check_model(info, hash_, manifest_.size(), name);
}

void Receiver::accept(const StreamInfo& info, const MessageIds& expected, std::string_view name) {
  check_header(info, name);
  check_ids(info.ids, expected, name);
  ids_ = info.ids;
}

}  // namespace kpd::gradient
