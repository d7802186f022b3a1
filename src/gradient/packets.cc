// gradient: packetized messages (kpd/gradient/packets.h, docs/format/gradient.md "Packets").
#include "kpd/gradient/packets.h"

#include <algorithm>
#include <numeric>

#include "gradient/eden_slices.h"
#include "gradient/open_stream.h"
#include "gradient/baselines.h"
#include "gradient/receiver.h"
#include "kpd/base/crc32.h"
#include "kpd/base/threads.h"
#include "kpd/gradient/decoder.h"
#include "kpd/gradient/stream_info.h"

namespace kpd::gradient {
namespace {

inline constexpr uint64_t kPacketHead = 8;  // tag, index
inline constexpr uint64_t kMostSmallPackets = 16;
inline constexpr uint64_t kLeastPayload = 64;
inline constexpr uint64_t kCodesPerPacket = 4;  // at least, but in one packet

bool travels_whole(const WireParams& params) { return params.method == kFloat32Id || params.method == kExactId; }

// Before anything is taken for scale words.
void check_packetizable(const ByteReader& r, const Unit& unit) {
  if (travels_whole(unit.params) || unit.codec->slice_code() != nullptr) return;
  r.throw_at(ErrorCode::kUnsupported, r.offset(), "this method has no packetized form; eden without dither and allocate has");
}

// A message may come from anywhere; read_codes() reads segments that decode.
void check_segment(const ByteReader& r, const SegmentCodec& codec, std::span<const uint8_t> segment, const SegmentShape& shape,
                   std::span<const uint8_t> message, Scratch& scratch) {
  try {
    codec.decoded_norm2(segment, shape, {}, scratch);
  } catch (const Error& e) {
    r.throw_at(e.code(), static_cast<uint64_t>(segment.data() - message.data()), "segment: ", e.what());
  }
}

void check_words(const ByteReader& r, const WireParams& params, std::span<const uint8_t> words, uint64_t offset) {
  for (size_t at = 0; at < words.size(); at += 4) {
    try {
      rounds_of_word(params, load_u32(words.data() + at), offset + at);
    } catch (const Error& e) {
      throw Error(e.code(), str(r.name(), ": ", e.what()));
    }
  }
}

uint64_t most_packets(uint64_t codes) { return codes == 0 ? 0 : std::max<uint64_t>(1, codes / kCodesPerPacket); }

uint32_t choose_packets(uint64_t code_bytes, uint64_t codes, uint32_t target_payload_bytes) {
  const uint64_t needed = std::max<uint64_t>(1, (code_bytes + target_payload_bytes - 1) / target_payload_bytes);
  const uint64_t fine = std::min(kMostSmallPackets, code_bytes / kLeastPayload);
  const uint64_t packets = std::min(std::max(needed, fine), most_packets(codes));
  if (packets > 0xffffffffu)
    fail(ErrorCode::kLimitExceeded, "a message of ", packets, " packets, at most 2^32 - 1 are possible");
  return static_cast<uint32_t>(packets);
}

// The class of codes that each packet carries: a permutation drawn from the own key of the message's first unit.
std::vector<uint32_t> packet_classes(const RunSecret& secret, uint64_t manifest, const MessageIds& ids, uint32_t packets) {
  std::vector<uint32_t> classes(packets);
  std::iota(classes.begin(), classes.end(), 0u);
  const BlockKey key{tensor_keys(secret, manifest, ids, 0, {}).own, 0};
  uint32_t words[4] = {};
  for (uint32_t i = 0; i + 1 < packets; ++i) {
    if (i % 4 == 0) random_words(key, Purpose::kPackets, 0, i / 4, words);
    std::swap(classes[i], classes[i + static_cast<uint32_t>((uint64_t{words[i % 4]} * (packets - i)) >> 32)]);
  }
  return classes;
}

void append(std::vector<uint8_t>& to, std::span<const uint8_t> bytes) { to.insert(to.end(), bytes.begin(), bytes.end()); }

void append_u32(std::vector<uint8_t>& to, uint32_t v) {
  to.resize(to.size() + 4);
  store_u32(to.data() + to.size() - 4, v);
}

// Ends a control part: its number of packets, its flags and length and its checksum, which is the tag.
uint32_t seal_control(std::vector<uint8_t>& control, uint32_t packets) {
  append_u32(control, packets);
  store_u16(control.data() + 6, static_cast<uint16_t>((load_u16(control.data() + 6) & ~kFlagStreamed) | kFlagPackets));
  store_u64(control.data() + 16, control.size() + kChecksumBytes);
  const uint32_t tag = crc32(control);
  append_u32(control, tag);
  return tag;
}

}  // namespace

PacketSet packetize(std::span<const uint8_t> message, const Manifest& manifest, const RunSecret& secret,
                    uint32_t target_payload_bytes, std::string_view name, const Limits& limits) {
  if (target_payload_bytes < 64 || target_payload_bytes > 60000) {
    fail(ErrorCode::kInvalidArgument, "packets of ", target_payload_bytes, " bytes, expected 64 to 60000");
  }
  ByteReader r(message, name);
  const StreamInfo info = read_header(r, message, limits);
  if (info.is_file) fail(ErrorCode::kMismatch, name, ": this is a file; only messages are packetized");
  check_model(info, manifest_hash(manifest), manifest.size(), name);
  PacketSet set;
  CodecCache codecs;
  Scratch scratch;
  CodecTable table;
  Units units;
  std::vector<std::span<const uint8_t>> segments;
  std::vector<CodeGroup> groups;
  std::vector<CodeList> codes;
  uint64_t code_bytes = 0, total = 0;
  read_codec_table(r, manifest.size(), table);
  build_units(r, info.header_bytes, manifest, table, codecs, units);
  append(set.control, message.first(r.offset()));
  for (const Unit& unit : units) {
    check_packetizable(r, unit);
    find_segments(r, unit, limits, segments);
    for (size_t s = 0; s < segments.size(); ++s) {
      if (travels_whole(unit.params)) {
        append(set.control, segments[s]);
        continue;
      }
      const SegmentShape shape = unit.segment(s);
      check_segment(r, *unit.codec, segments[s], shape, message, scratch);
      const std::span<const uint8_t> words = segments[s].first(4 * size_t{shape.n_blocks});
      append(set.control, words);
      groups.push_back(code_group(*unit.codec->slice_code(), words, shape, total));
      total += groups.back().count;
      codes.emplace_back();
      if (groups.back().count == 0) continue;  // a group of zeros has no codes
      read_codes(*unit.codec->slice_code(), segments[s], shape, codes.back());
      code_bytes += segments[s].size() - words.size();
    }
  }
  const uint32_t packets = choose_packets(code_bytes, total, target_payload_bytes);
  const std::vector<uint32_t> classes = packet_classes(secret, info.manifest_hash, info.ids, packets);
  const uint32_t tag = seal_control(set.control, packets);
  for (uint32_t p = 0; p < packets; ++p) {
    std::vector<uint8_t>& packet = set.packets.emplace_back();
    append_u32(packet, tag);
    append_u32(packet, p);
    append(packet, write_payload(groups, codes, packets, classes[p]));
    append_u32(packet, crc32(packet));
    set.payload_bytes += packet.size() - kPacketOverheadBytes;
  }
  set.overhead_bytes = 4 + kPacketOverheadBytes * set.packets.size();
  return set;
}

std::string to_text(const LostGroup& group, const Manifest& manifest) {
  return str("elements ", group.first_element, " to ", group.first_element + group.elements - 1, " of tensor '",
             manifest[group.tensor].name, "'");
}

struct PacketDecoder::Impl {
  Impl(Manifest manifest, RunSecret secret, const DecodeOptions& o)
      : receiver(std::move(manifest), secret, o.limits), threads(o.threads > 0 ? o.threads : hardware_threads()) {}

  Receiver receiver;
  int threads;

  // Of group i: where it lies and its scale words; its codes are code_groups[i].
  struct Group {
    uint32_t unit = 0;
    SegmentShape shape;
    std::span<const uint8_t> words;
  };
  std::vector<TensorKeys> keys;                              // a unit
  std::vector<std::vector<std::span<const uint8_t>>> whole;  // of units that travel in the control part
  std::vector<Group> groups;
  std::vector<CodeGroup> code_groups;
  uint64_t total_codes = 0;
  std::vector<uint8_t> arrived;  // by class

  uint32_t read_control(std::span<const uint8_t> control, const MessageIds& expected, std::string_view name);
  void read_unit(ByteReader& r, uint32_t index);
  ArrivedCodes read_packets(std::span<const std::span<const uint8_t>> packets, uint32_t tag, uint32_t count,
                            PacketReport& report);
  uint64_t decode_group(size_t index, const ArrivedCodes& packets, double scale, float weight,
                        std::span<const std::span<float>> acc, Scratch& scratch) const;
  void find_lost(uint32_t count, PacketReport& report) const;
};

void PacketDecoder::Impl::read_unit(ByteReader& r, uint32_t index) {
  const Unit& unit = receiver.units()[index];
  check_packetizable(r, unit);
  if (travels_whole(unit.params)) return find_segments(r, unit, receiver.limits(), whole[index]);
  const uint64_t n = unit.segments();
  for (uint64_t s = 0; s < n; ++s) {
    Group g{index, unit.segment(s), {}};
    const uint64_t words_at = r.offset();
    g.words = r.take(4 * uint64_t{g.shape.n_blocks}, "scale words");
    check_words(r, unit.params, g.words, words_at);
    groups.push_back(g);
    code_groups.push_back(code_group(*unit.codec->slice_code(), g.words, g.shape, total_codes));
    total_codes += code_groups.back().count;
  }
}

// Returns the number of packets.
uint32_t PacketDecoder::Impl::read_control(std::span<const uint8_t> control, const MessageIds& expected,
                                           std::string_view name) {
  ByteReader r(control, name);
  const StreamInfo info = read_header(r, control, receiver.limits(), true);
  receiver.accept(info, expected, name);
  receiver.read_units(r, control.subspan(r.offset()));
  const Units& units = receiver.units();
  keys.clear();
  whole.assign(units.size(), {});
  groups.clear();
  code_groups.clear();
  total_codes = 0;
  for (uint32_t i = 0; i < units.size(); ++i) {
    keys.push_back(receiver.keys(units[i]));
    read_unit(r, i);
  }
  const uint64_t at = r.offset();
  const uint32_t packets = r.u32("number of packets");
  if (packets > most_packets(total_codes) || (packets == 0) != (total_codes == 0)) {
    r.throw_at(ErrorCode::kCorruptData, at, packets, " packets for ", total_codes, " codes, at most ",
               most_packets(total_codes), " are possible");
  }
  if (r.remaining() != kChecksumBytes) r.corrupt("the tensors end here, expected the ", kChecksumBytes, "-byte checksum");
  return packets;
}

// Memory: two bytes a code of a packet that arrived, ten a packet that is said to exist. These are at most a quarter of the
// codes, so packets that do not come take less than the caller's own memory for the tensors.
ArrivedCodes PacketDecoder::Impl::read_packets(std::span<const std::span<const uint8_t>> packets, uint32_t tag, uint32_t count,
                                               PacketReport& report) {
  struct Arrival {
    uint32_t index;
    std::span<const uint8_t> payload;
  };
  std::vector<Arrival> arrivals;
  std::vector<uint8_t> seen(count);
  for (const auto& p : packets) {
    if (p.size() < kPacketOverheadBytes ||
        crc32(p.first(p.size() - kChecksumBytes)) != load_u32(p.data() + p.size() - kChecksumBytes)) {
      ++report.damaged;
      continue;
    }
    const uint32_t index = load_u32(p.data() + 4);
    if (load_u32(p.data()) != tag || index >= count) {
      ++report.foreign;
    } else if (seen[index] != 0) {
      ++report.duplicate;
    } else {
      seen[index] = 1;
      arrivals.push_back({index, p.subspan(kPacketHead, p.size() - kPacketOverheadBytes)});
    }
  }
  const std::vector<uint32_t> classes = packet_classes(receiver.secret(), receiver.hash(), receiver.ids(), count);
  ArrivedCodes codes{std::vector<CodeList>(arrivals.size()), std::vector<uint32_t>(count)};
  std::vector<uint8_t> good(arrivals.size());
  parallel_for(arrivals.size(), threads, [&](size_t i, int) {
    try {
      codes.lists[i] = read_payload(code_groups, total_codes, count, classes[arrivals[i].index], arrivals[i].payload);
      good[i] = 1;
    } catch (const Error&) {  // its checksum is right: hostile, or another secret's
    }
  });
  arrived.assign(count, 0);
  for (size_t i = 0; i < arrivals.size(); ++i) {
    if (good[i] == 0) {
      ++report.damaged;
      continue;
    }
    const uint32_t residue = classes[arrivals[i].index];
    codes.list_of[residue] = static_cast<uint32_t>(i + 1);
    arrived[residue] = 1;
    ++report.received;
  }
  return codes;
}

uint64_t PacketDecoder::Impl::decode_group(size_t index, const ArrivedCodes& packets, double scale, float weight,
                                           std::span<const std::span<float>> acc, Scratch& scratch) const {
  const Group& g = groups[index];
  const CodeGroup& group = code_groups[index];
  if (group.count == 0) return 0;
  CodeList codes;
  std::vector<uint8_t> segment;
  gather_codes(group, packets, codes);
  write_codes(group.code, codes, g.words, g.shape, segment);
  uint64_t first[kBlocksPerSegment];
  first_numbers(group, g.words, std::span(first, g.shape.n_blocks));
  const SliceMask mask{static_cast<uint32_t>(arrived.size()), arrived.data(), first, scale};
  SegmentShape shape = g.shape;
  shape.received = &mask;
  return decode_into(receiver.units(), receiver.units()[g.unit], shape, segment, keys[g.unit], weight, true, acc, scratch);
}

void PacketDecoder::Impl::find_lost(uint32_t count, PacketReport& report) const {
  for (size_t i = 0; i < groups.size(); ++i) {
    const CodeGroup& g = code_groups[i];
    bool lost = g.count > 0;
    for (uint64_t n = g.first; lost && n < g.first + std::min<uint64_t>(g.count, count); ++n) lost = arrived[n % count] == 0;
    if (!lost) continue;
    const Group& where = groups[i];
    receiver.units().for_each_piece(receiver.units()[where.unit], where.shape,
                                    [&](uint32_t tensor, uint64_t first, uint64_t, uint64_t n) {
                                      report.lost_groups.push_back({tensor, first, n});
                                    });
  }
}

PacketDecoder::PacketDecoder(Manifest manifest, RunSecret secret, DecodeOptions options)
    : impl_(std::make_unique<Impl>(std::move(manifest), secret, options)) {}
PacketDecoder::~PacketDecoder() = default;
PacketDecoder::PacketDecoder(PacketDecoder&&) noexcept = default;
PacketDecoder& PacketDecoder::operator=(PacketDecoder&&) noexcept = default;

bool PacketDecoder::decode_add(std::span<const uint8_t> control, std::span<const std::span<const uint8_t>> packets,
                               const MessageIds& expected, float weight, std::span<const std::span<float>> acc,
                               PacketReport* report, std::string_view name) {
  Impl& m = *impl_;
  m.receiver.check_target(acc, weight);
  PacketReport result;
  const uint32_t count = m.read_control(control, expected, name);
  result.expected = count;
  result.groups = m.groups.size();
  const ArrivedCodes codes = m.read_packets(packets, load_u32(control.data() + control.size() - kChecksumBytes), count, result);
  result.lost = count > 0 && result.received == 0;
  if (!result.lost) {
    m.find_lost(count, result);
    const double scale = count > 0 ? static_cast<double>(count) / static_cast<double>(result.received) : 1;
    const int threads = m.threads;
    std::vector<Scratch> scratch(static_cast<size_t>(threads));
    std::vector<uint64_t> saturated(static_cast<size_t>(threads));
    parallel_for(m.groups.size(), threads, [&](size_t i, int worker) {
      const size_t w = static_cast<size_t>(worker);
      saturated[w] += m.decode_group(i, codes, scale, weight, acc, scratch[w]);
    });
    for (const uint64_t s : saturated) result.saturated += s;
    const Units& units = m.receiver.units();
    for (size_t u = 0; u < m.whole.size(); ++u) {
      for (size_t s = 0; s < m.whole[u].size(); ++s) {
        decode_into(units, units[u], units[u].segment(s), m.whole[u][s], m.keys[u], weight, true, acc, scratch[0]);
      }
    }
  }
  const bool counts = !result.lost;
  if (report != nullptr) *report = std::move(result);
  return counts;
}

}  // namespace kpd::gradient
