// gradient: packetized messages (kpd/gradient/packets.h, docs/format/gradient.md "Packets").
#include "kpd/gradient/packets.h"

#include <algorithm>
#include <bit>

#include "gradient/open_stream.h"
#include "gradient/peers.h"
#include "gradient/scale_word.h"
#include "kpd/base/hash.h"
#include "kpd/base/threads.h"

namespace kpd::gradient {
namespace {

inline constexpr uint64_t kPacketHead = 12;  // tag, index, count
inline constexpr uint64_t kPacketOverhead = kPacketHead + kChecksumBytes;
inline constexpr uint32_t kMaxSlices = 4096;

inline constexpr uint8_t kEdenId = 2;

bool travels_whole(const WireParams& params) { return params.method == kFloat32Id || params.method == kExactId; }

// Before anything is taken for scale words.
void check_packetizable(const ByteReader& r, const Unit& unit) {
  const WireParams& p = unit.params;
  const bool splits = p.method == kEdenId && (p.flags & (kFlagDither | kFlagAllocate)) == 0;
  if (!travels_whole(p) && !splits) {
    r.throw_at(static_cast<int>(ErrorCode::kUnsupported), r.offset(),
               "this method has no packetized form; eden without dither and allocate has");
  }
}

// A message may come from anywhere; split() reads segments that decode.
void check_segment(const ByteReader& r, const SegmentCodec& codec, std::span<const uint8_t> segment, const SegmentShape& shape,
                   std::span<const uint8_t> message, Scratch& scratch) {
  try {
    codec.decoded_norm2(segment, shape, {}, scratch);
  } catch (const Error& e) {
    r.throw_at(static_cast<int>(e.code()), static_cast<uint64_t>(segment.data() - message.data()), str("segment: ", e.what()));
  }
}

uint32_t choose_slices(const Unit& unit, uint32_t target_payload_bytes) {
  const double bits =
      unit.params.bits() * static_cast<double>(std::min<uint64_t>(unit.count, kBlocksPerSegment << unit.params.log2_block));
  const double slices = bits / 8 / target_payload_bytes;
  const uint64_t needed = static_cast<uint64_t>(slices) + 1;
  return static_cast<uint32_t>(std::min<uint64_t>(std::bit_ceil(needed), kMaxSlices));
}

bool all_zero(std::span<const uint8_t> words) {
  return std::all_of(words.begin(), words.end(), [](uint8_t b) { return b == 0; });
}

// Calls fn(group, slice) in the order in which packets are numbered: slice by slice through all groups, so that a burst takes a
// little of each. `slices(g)` is 0 or a power of two, at most kMaxSlices.
template <class Slices, class Fn>
void for_packet_order(size_t n_groups, const Slices& slices, const Fn& fn) {
  for (uint32_t step = 0; step < kMaxSlices; ++step) {
    for (size_t g = 0; g < n_groups; ++g) {
      if (slices(g) == 0) continue;
      const uint32_t stride = kMaxSlices / slices(g);
      if (step % stride == 0) fn(g, step / stride);
    }
  }
}

}  // namespace

PacketSet packetize(std::span<const uint8_t> message, const Manifest& manifest, uint32_t target_payload_bytes,
                    std::string_view name, const Limits& limits) {
  if (target_payload_bytes < 64 || target_payload_bytes > 60000) {
    fail(ErrorCode::kInvalidArgument, "packets of ", target_payload_bytes, " bytes, expected 64 to 60000");
  }
  ByteReader r(message, name);
  const StreamInfo info = read_header(r, message, limits);
  if (info.is_file) fail(ErrorCode::kMismatch, name, ": this is a file; only messages are packetized");
  if (info.manifest_hash != manifest_hash(manifest) || info.n_tensors != manifest.size())
    fail(ErrorCode::kMismatch, name, ": the message is about another model: manifest hash ", info.manifest_hash);
  PacketSet set;
  CodecCache codecs;
  Scratch scratch;
  CodecTable table;
  Units units;
  std::vector<std::span<const uint8_t>> segments;
  std::vector<std::vector<std::vector<uint8_t>>> groups;  // [group][slice] payload
  read_codec_table(r, manifest.size(), table);
  build_units(r, info.header_bytes, manifest, table, codecs, units);
  set.control.assign(message.begin(), message.begin() + static_cast<ptrdiff_t>(r.offset()));
  for (const Unit& unit : units) {
    check_packetizable(r, unit);
    find_segments(r, unit, limits, segments);
    if (travels_whole(unit.params)) {
      for (const auto& s : segments) set.control.insert(set.control.end(), s.begin(), s.end());
      continue;
    }
    const uint32_t n_slices = choose_slices(unit, target_payload_bytes);
    set.control.resize(set.control.size() + 4);
    store_u32(set.control.data() + set.control.size() - 4, n_slices);
    set.overhead_bytes += 4;
    for (size_t s = 0; s < segments.size(); ++s) {
      const SegmentShape shape = unit.segment(s);
      set.control.insert(set.control.end(), segments[s].begin(),
                         segments[s].begin() + 4 * static_cast<ptrdiff_t>(shape.n_blocks));
      groups.emplace_back();
      if (all_zero(segments[s].first(4 * size_t{shape.n_blocks}))) continue;  // a group of zeros has no codes and no packets
      check_segment(r, *unit.codec, segments[s], shape, message, scratch);
      unit.codec->split(segments[s], shape, n_slices, groups.back());
    }
  }
  for_packet_order(
      groups.size(), [&](size_t g) { return static_cast<uint32_t>(groups[g].size()); },
      [&](size_t g, uint32_t p) {
        const std::vector<uint8_t>& payload = groups[g][p];
        set.packets.emplace_back(kPacketHead);
        set.packets.back().insert(set.packets.back().end(), payload.begin(), payload.end());
        set.payload_bytes += payload.size();
      });
  const uint64_t total = set.control.size() + kChecksumBytes;
  store_u16(set.control.data() + 6, kFlagMessage | kFlagPackets | (info.is_authenticated ? kFlagAuthenticated : 0));
  store_u64(set.control.data() + 16, total);
  const uint32_t tag = crc32(set.control);
  set.control.resize(total);
  store_u32(set.control.data() + total - kChecksumBytes, tag);
  for (size_t p = 0; p < set.packets.size(); ++p) {
    std::vector<uint8_t>& packet = set.packets[p];
    store_u32(packet.data(), tag);
    store_u32(packet.data() + 4, static_cast<uint32_t>(p));
    store_u32(packet.data() + 8, static_cast<uint32_t>(set.packets.size()));
    const uint32_t check = crc32(packet);
    packet.resize(packet.size() + kChecksumBytes);
    store_u32(packet.data() + packet.size() - kChecksumBytes, check);
  }
  set.overhead_bytes += kPacketOverhead * set.packets.size();
  return set;
}

struct PacketDecoder::Impl {
  Manifest manifest;
  RunSecret secret;
  DecodeOptions options;
  uint64_t hash = 0;
  CodecCache codecs;

  // A group of blocks, its scale words and the payloads that arrived for it.
  struct Group {
    uint32_t unit = 0;
    SegmentShape shape;
    std::span<const uint8_t> words;
    uint32_t slices = 0, first_payload = 0;  // in the list of payloads, group by group
  };
  CodecTable table;
  Units units;
  std::vector<TensorKeys> keys;                              // a unit
  std::vector<std::vector<std::span<const uint8_t>>> whole;  // of units that travel in the control part
  std::vector<Group> groups;

  uint32_t read_control(std::span<const uint8_t> control, const MessageIds& expected, std::string_view name);
  void read_unit(ByteReader& r, uint32_t index, uint32_t& packets);
  std::vector<std::span<const uint8_t>> sort_packets(std::span<const std::span<const uint8_t>> packets, uint32_t tag,
                                                     uint32_t count, PacketReport& report) const;
  uint64_t decode_group(const Group& g, std::span<std::span<const uint8_t>> payloads, float weight,
                        std::span<const std::span<float>> acc, Scratch& scratch, uint64_t& damaged, bool& lost) const;
};

void PacketDecoder::Impl::read_unit(ByteReader& r, uint32_t index, uint32_t& packets) {
  const Unit& unit = units[index];
  check_packetizable(r, unit);
  if (travels_whole(unit.params)) return find_segments(r, unit, options.limits, whole[index]);
  const uint32_t slices = r.u32("number of slices");
  const uint64_t group_elements = std::min<uint64_t>(unit.count, kBlocksPerSegment << unit.params.log2_block);
  if (!std::has_single_bit(slices) || slices > std::min<uint64_t>(kMaxSlices, std::bit_ceil(group_elements / 16 + 1))) {
    r.corrupt(slices, " slices for groups of ", group_elements, " elements");
  }
  const uint64_t n = unit.segments();
  for (uint64_t s = 0; s < n; ++s) {
    Group g{index, unit.segment(s), {}, slices, packets};
    const uint64_t words_at = r.offset();
    g.words = r.take(4 * uint64_t{g.shape.n_blocks}, "scale words");
    for (uint32_t b = 0; b < g.shape.n_blocks; ++b) {
      const uint32_t word = load_u32(g.words.data() + 4 * b);
      if (!valid_scale_word(word))
        r.throw_at(static_cast<int>(ErrorCode::kCorruptData), words_at + 4 * b, str("scale word ", word, " has no exponent"));
    }
    if (all_zero(g.words)) g.slices = 0;
    if (packets > 0xffffffffu - slices) r.corrupt("too many packets");
    packets += g.slices;
    groups.push_back(g);
  }
}

uint32_t PacketDecoder::Impl::read_control(std::span<const uint8_t> control, const MessageIds& expected,
                                           std::string_view name) {
  ByteReader r(control, name);
  const StreamInfo info = read_header(r, control, options.limits, true);
  if (info.is_file || info.manifest_hash != hash || info.n_tensors != manifest.size()) {
    throw Error(ErrorCode::kMismatch,
                str(name, ": the message is about another model: manifest hash ", info.manifest_hash, ", expected ", hash));
  }
  check_ids(info.ids, expected, name);
  codecs.begin_message();
  read_codec_table(r, manifest.size(), table);
  build_units(r, info.header_bytes, manifest, table, codecs, units);
  keys.clear();
  whole.assign(units.size(), {});
  groups.clear();
  uint32_t packets = 0;
  for (uint32_t i = 0; i < units.size(); ++i) {
    keys.push_back(tensor_keys(secret, hash, info.ids, units[i].tensor, units[i].params));
    read_unit(r, i, packets);
  }
  if (r.remaining() != kChecksumBytes) r.corrupt("the tensors end here, expected the ", kChecksumBytes, "-byte checksum");
  return packets;
}

// The payloads group by group, slice by slice; no memory where none arrived (a payload may be empty).
std::vector<std::span<const uint8_t>> PacketDecoder::Impl::sort_packets(std::span<const std::span<const uint8_t>> packets,
                                                                        uint32_t tag, uint32_t count,
                                                                        PacketReport& report) const {
  std::vector<uint32_t> place;  // of packet `index` in payloads
  place.reserve(count);
  for_packet_order(
      groups.size(), [&](size_t g) { return groups[g].slices; },
      [&](size_t g, uint32_t p) { place.push_back(groups[g].first_payload + p); });
  std::vector<std::span<const uint8_t>> payloads(count);
  for (const auto& p : packets) {
    if (p.size() < kPacketOverhead ||
        crc32(p.first(p.size() - kChecksumBytes)) != load_u32(p.data() + p.size() - kChecksumBytes)) {
      ++report.damaged;
      continue;
    }
    const uint32_t index = load_u32(p.data() + 4);
    if (load_u32(p.data()) != tag || load_u32(p.data() + 8) != count || index >= count) {
      ++report.foreign;
      continue;
    }
    std::span<const uint8_t>& payload = payloads[place[index]];
    if (payload.data() != nullptr) {
      ++report.duplicate;
      continue;
    }
    payload = p.subspan(kPacketHead, p.size() - kPacketOverhead);
    ++report.received;
  }
  return payloads;
}

uint64_t PacketDecoder::Impl::decode_group(const Group& g, std::span<std::span<const uint8_t>> payloads, float weight,
                                           std::span<const std::span<float>> acc, Scratch& scratch, uint64_t& damaged,
                                           bool& lost) const {
  const Unit& unit = units[g.unit];
  std::vector<uint8_t> segment, received(g.slices);
  // A payload that passed its checksum and still cannot be read is hostile or of another version; find it by reading each
  // alone.
  lost = false;
  if (g.slices == 0) return 0;
  for (int pass = 0; pass < 2; ++pass) {
    uint32_t arrived = 0;
    for (uint32_t p = 0; p < g.slices; ++p) arrived += received[p] = payloads[p].data() == nullptr ? 0 : 1;
    lost = arrived == 0;
    if (lost) return 0;
    try {
      unit.codec->merge(payloads, g.words, g.shape, segment);
      SegmentShape shape = g.shape;
      const SliceMask mask{g.slices, received.data()};
      shape.received = &mask;
      return decode_into(units, unit, shape, segment, keys[g.unit], weight, true, acc, scratch);
    } catch (const Error& e) {
      if (e.code() != ErrorCode::kCorruptData) throw;
    }
    if (pass == 1) {  // each alone can be read, all together cannot: none is to be trusted
      damaged += arrived;
      lost = true;
      return 0;
    }
    std::vector<std::span<const uint8_t>> alone(g.slices);
    for (uint32_t p = 0; p < g.slices; ++p) {
      if (payloads[p].data() == nullptr) continue;
      alone[p] = payloads[p];
      try {
        unit.codec->merge(alone, g.words, g.shape, segment);
      } catch (const Error&) {
        payloads[p] = {};
        ++damaged;
      }
      alone[p] = {};
    }
  }
  // Each readable alone and not together (more escapes than a block can have): nothing of the group is believed.
  for (std::span<const uint8_t>& payload : payloads) {
    damaged += payload.data() != nullptr ? 1 : 0;
    payload = {};
  }
  lost = true;
  return 0;
}

PacketDecoder::PacketDecoder(Manifest manifest, RunSecret secret, DecodeOptions options) : impl_(std::make_unique<Impl>()) {
  impl_->manifest = std::move(manifest);
  impl_->secret = secret;
  impl_->options = options;
  if (impl_->options.threads <= 0) impl_->options.threads = hardware_threads();
  impl_->hash = manifest_hash(impl_->manifest);
}
PacketDecoder::~PacketDecoder() = default;
PacketDecoder::PacketDecoder(PacketDecoder&&) noexcept = default;
PacketDecoder& PacketDecoder::operator=(PacketDecoder&&) noexcept = default;

void PacketDecoder::decode_add(std::span<const uint8_t> control, std::span<const std::span<const uint8_t>> packets,
                               const MessageIds& expected, float weight, std::span<const std::span<float>> acc,
                               PacketReport* report, std::string_view name) {
  Impl& m = *impl_;
  check_destinations(m.manifest, acc);
  check_weight(weight);
  const uint32_t count = m.read_control(control, expected, name);
  PacketReport result;
  result.expected = count;
  // Nothing larger than what arrived is allocated: an empty span a packet, and a control part's scale words bound the packets'
  // number.
  std::vector<std::span<const uint8_t>> payloads =
      m.sort_packets(packets, load_u32(control.data() + control.size() - kChecksumBytes), count, result);
  const int threads = m.options.threads;
  std::vector<Scratch> scratch(static_cast<size_t>(threads));
  std::vector<uint64_t> saturated(static_cast<size_t>(threads)), damaged(static_cast<size_t>(threads));
  std::vector<uint8_t> lost(m.groups.size());
  parallel_for(m.groups.size(), threads, [&](size_t i, int worker) {
    const Impl::Group& g = m.groups[i];
    const size_t w = static_cast<size_t>(worker);
    bool gone = false;
    saturated[w] +=
        m.decode_group(g, std::span(payloads).subspan(g.first_payload, g.slices), weight, acc, scratch[w], damaged[w], gone);
    lost[i] = gone ? 1 : 0;
  });
  for (size_t u = 0; u < m.whole.size(); ++u) {
    for (size_t s = 0; s < m.whole[u].size(); ++s) {
      decode_into(m.units, m.units[u], m.units[u].segment(s), m.whole[u][s], m.keys[u], weight, true, acc, scratch[0]);
    }
  }
  result.groups = m.groups.size();
  for (const uint8_t l : lost) result.groups_lost += l;
  for (const uint64_t s : saturated) result.saturated += s;
  for (const uint64_t d : damaged) {
    result.damaged += d;
    result.received -= d;
  }
  if (report != nullptr) *report = result;
}

}  // namespace kpd::gradient
