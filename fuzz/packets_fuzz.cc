// fuzz: gradient's packet decoder (include/kpd/gradient/packets.h). An input is u32 length and bytes of the control part, then
// u16 length and bytes of each packet.
//
// A finding is anything but success or one kpd::Error of one line that names the input and the byte, a value that is not
// finite, or a report that does not add up. The mutator seals control part and packets again, so that hostile content gets past
// the checksums.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <random>
#include <string>

#include "gradient/stream_format.h"
#include "kpd/base/crc32.h"
#include "kpd/gradient/packets.h"
#include "manifests.h"

extern "C" size_t LLVMFuzzerMutate(uint8_t* data, size_t size, size_t max_size);

namespace {

using namespace kpd;
using namespace kpd::gradient;

constexpr std::string_view kName = "input";
constexpr size_t kPacketHead = 8;
constexpr uint32_t kTableBytes = 2 + kRecordBytes + 2;
using fuzz::few_manifest;
using fuzz::kIds;
using fuzz::packets_manifest;

struct Counts {
  uint64_t inputs = 0, past_checksum = 0, decoded = 0, packets = 0;
  ~Counts() {
    std::fprintf(stderr, "packets_fuzz: %llu inputs, %llu past the checksum, %llu decoded whole, %llu packets taken\n",
                 static_cast<unsigned long long>(inputs), static_cast<unsigned long long>(past_checksum),
                 static_cast<unsigned long long>(decoded), static_cast<unsigned long long>(packets));
  }
};
Counts counts;

[[noreturn]] void finding(const char* what, const char* text) {
  std::fprintf(stderr, "finding: %s: %s\n", what, text);
  std::abort();
}

struct Parts {
  std::vector<uint8_t> control;
  std::vector<std::vector<uint8_t>> packets;

  static Parts read(std::span<const uint8_t> in) {
    Parts p;
    if (in.size() < 4) return p;
    const size_t n = std::min<size_t>(load_u32(in.data()), in.size() - 4);
    p.control.assign(in.begin() + 4, in.begin() + 4 + static_cast<ptrdiff_t>(n));
    in = in.subspan(4 + n);
    while (in.size() >= 2) {
      const size_t m = std::min<size_t>(load_u16(in.data()), in.size() - 2);
      p.packets.emplace_back(in.begin() + 2, in.begin() + 2 + static_cast<ptrdiff_t>(m));
      in = in.subspan(2 + m);
    }
    return p;
  }
  std::vector<uint8_t> write() const {
    std::vector<uint8_t> out(4);
    store_u32(out.data(), static_cast<uint32_t>(control.size()));
    out.insert(out.end(), control.begin(), control.end());
    for (const std::vector<uint8_t>& p : packets) {
      out.push_back(static_cast<uint8_t>(p.size()));
      out.push_back(static_cast<uint8_t>(p.size() >> 8));
      out.insert(out.end(), p.begin(), p.end());
    }
    return out;
  }
};

Limits small_limits() {
  Limits l;
  l.max_elements = l.max_total_elements = 1 << 15;
  return l;
}

bool is_about_few(std::span<const uint8_t> control) {
  static const uint64_t hash = manifest_hash(few_manifest());
  return control.size() >= 32 && load_u64(control.data() + 24) == hash;
}

struct Receiver {
  explicit Receiver(const Manifest& m) : decoder(m, RunSecret::from_seed(7), {1, small_limits()}) {
    for (const TensorInfo& t : m) values.emplace_back(t.count());
    acc.assign(values.begin(), values.end());
  }
  PacketDecoder decoder;
  std::vector<std::vector<float>> values;
  std::vector<std::span<float>> acc;
};

void check_error(const Error& e) {
  const std::string text = e.what();
  if (text.rfind("input: ", 0) != 0) finding("the error does not name the input", e.what());
  if (text.find('\n') != std::string::npos || text.size() > 600) finding("the error is more than one line", e.what());
  if (e.code() == ErrorCode::kMismatch) return;
  if (e.code() != ErrorCode::kCorruptData && e.code() != ErrorCode::kUnsupported && e.code() != ErrorCode::kLimitExceeded) {
    finding("an error that is not about the data", e.what());
  }
  if (text.find("byte ") == std::string::npos) finding("the error names no byte", e.what());
}

class Mutator {
 public:
  explicit Mutator(unsigned seed) : rng_(seed) {}

  std::vector<uint8_t> change(std::span<const uint8_t> in) {
    p_ = Parts::read(in);
    const uint32_t kind = below(10);
    if (kind < 4 || p_.packets.empty()) {
      change_control(kind);
    } else if (kind < 8) {
      std::vector<uint8_t>& packet = p_.packets[below(static_cast<uint32_t>(p_.packets.size()))];
      const size_t from = below(8) == 0 ? 0 : kPacketHead;
      if (packet.size() >= kPacketHead + 4) change_bytes(packet, from, packet.size() - 4 - from, below(2) == 0);
    } else {
      shuffle();
    }
    seal();
    return p_.write();
  }

 private:
  uint32_t below(uint32_t n) { return static_cast<uint32_t>(rng_() % n); }

  void change_bytes(std::vector<uint8_t>& b, size_t at, size_t n, bool resize) {
    if (at + n > b.size()) return;
    std::vector<uint8_t> part(b.begin() + static_cast<ptrdiff_t>(at), b.begin() + static_cast<ptrdiff_t>(at + n));
    part.resize(n + 32);
    part.resize(LLVMFuzzerMutate(part.data(), n, n + 32));
    if (!resize) part.resize(n);
    b.erase(b.begin() + static_cast<ptrdiff_t>(at), b.begin() + static_cast<ptrdiff_t>(at + n));
    b.insert(b.begin() + static_cast<ptrdiff_t>(at), part.begin(), part.end());
  }

  void change_control(uint32_t kind) {
    std::vector<uint8_t>& c = p_.control;
    if (c.size() < kMessageHeaderBytes + kTableBytes + 8) return;
    const size_t body = c.size() - kChecksumBytes;
    // A codec table of a codec or a few, then the scale words.
    const size_t table = std::min<size_t>(load_u32(c.data() + 8), body - kTableBytes);
    const size_t table_bytes = std::min<size_t>(2 + (kRecordBytes + 2) * std::clamp<size_t>(c[table], 1, 4), body - table);
    if (kind == 0) {  // the table or the first scale word
      change_bytes(c, table, std::min<size_t>(table_bytes + 4, body - table), false);
    } else if (kind == 1) {
      c[table + below(static_cast<uint32_t>(table_bytes))] = static_cast<uint8_t>(below(256));
    } else if (kind == 2) {  // scales
      const size_t at = table + table_bytes + 4 * below(70);
      if (at + 4 <= body) store_u32(c.data() + at, below(2) == 0 ? below(3) : static_cast<uint32_t>(rng_()));
    } else if (below(4) == 0) {  // the number of packets
      store_u32(c.data() + body - 4, below(2) == 0 ? below(1100) : static_cast<uint32_t>(rng_()));
    } else {
      const size_t at = 24 + below(static_cast<uint32_t>(body - 24));
      change_bytes(c, at, std::min<size_t>(body - at, 1 + below(64)), below(4) == 0);
    }
  }

  void shuffle() {
    std::vector<std::vector<uint8_t>>& list = p_.packets;
    const uint32_t i = below(static_cast<uint32_t>(list.size())), j = below(static_cast<uint32_t>(list.size()));
    switch (below(4)) {
      case 0:
        list.erase(list.begin() + i);
        return;
      case 1:
        if (list.size() < 40) list.push_back(list[i]);
        return;
      case 2:
        std::swap(list[i], list[j]);
        return;
      default:
        if (list[i].size() >= kPacketHead) store_u32(list[i].data() + 4, below(2) == 0 ? j : static_cast<uint32_t>(rng_()));
    }
  }

  // Lengths, checksums, and the tag by which packets belong to the control part.
  void seal() {
    std::vector<uint8_t>& c = p_.control;
    if (c.size() < kMessageHeaderBytes + kChecksumBytes || below(64) == 0) return;
    const uint32_t body = static_cast<uint32_t>(c.size() - kChecksumBytes);
    std::memcpy(c.data(), kMagic, 4);
    c[4] = kFormatMajor;
    const bool mac = (c[6] & kFlagAuthenticated) != 0 && body >= kMessageHeaderBytes + kMacBytes;
    store_u16(c.data() + 6, static_cast<uint16_t>(kFlagMessage | kFlagPackets | (mac ? kFlagAuthenticated : 0)));
    const uint32_t fixed = static_cast<uint32_t>(kMessageHeaderBytes + (mac ? kMacBytes : 0));
    store_u32(c.data() + 8, std::clamp(load_u32(c.data() + 8), fixed, body));
    const Manifest& manifest = is_about_few(c) ? few_manifest() : packets_manifest();
    if (below(16) != 0) store_u32(c.data() + 12, static_cast<uint32_t>(manifest.size()));
    store_u64(c.data() + 16, c.size());
    store_u64(c.data() + 24, manifest_hash(manifest));
    const uint64_t ids[] = {kIds.run, kIds.round, kIds.client, kIds.base_model_hash};
    for (int i = 0; i < 4 && below(32) != 0; ++i) store_u64(c.data() + 32 + 8 * i, ids[i]);
    const uint32_t tag = crc32({c.data(), body});
    store_u32(c.data() + body, tag);
    for (std::vector<uint8_t>& packet : p_.packets) {
      if (packet.size() < kPacketHead + kChecksumBytes || below(32) == 0) continue;
      store_u32(packet.data(), tag);
      const size_t end = packet.size() - kChecksumBytes;
      store_u32(packet.data() + end, crc32({packet.data(), end}));
    }
  }

  Parts p_;
  std::minstd_rand rng_;
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static Receiver many(packets_manifest()), few(few_manifest());
  const Parts parts = Parts::read({data, size});
  Receiver& receiver = is_about_few(parts.control) ? few : many;
  const std::vector<std::span<const uint8_t>> packets(parts.packets.begin(), parts.packets.end());
  counts.inputs++;
  const size_t n = parts.control.size();
  if (n > kChecksumBytes &&
      crc32({parts.control.data(), n - kChecksumBytes}) == load_u32(parts.control.data() + n - kChecksumBytes)) {
    counts.past_checksum++;
  }
  for (const std::span<float> s : receiver.acc) std::fill(s.begin(), s.end(), 0.0f);
  try {
    PacketReport report;
    receiver.decoder.decode_add(parts.control, packets, kIds, 0.5f, receiver.acc, &report, kName);
    counts.decoded++;
    counts.packets += report.received;
    if (report.received > report.expected || report.lost != (report.expected > 0 && report.received == 0) ||
        report.lost_groups.size() > report.groups * receiver.acc.size() ||
        report.received + report.damaged + report.foreign + report.duplicate != packets.size()) {
      finding("the report does not add up", "");
    }
    // With two groups and more the second tensor is coded; float32 would carry what it is given.
    if (report.groups < 2) return 0;
    for (const float v : many.values[1]) {
      if (!std::isfinite(v)) finding("a value is not finite", "");
    }
  } catch (const Error& e) {
    check_error(e);
  }
  return 0;
}

extern "C" size_t LLVMFuzzerCustomMutator(uint8_t* data, size_t size, size_t max_size, unsigned seed) {
  Mutator mutator(seed);
  const std::vector<uint8_t> out = mutator.change({data, size});
  const size_t n = std::min(out.size(), max_size);
  if (n > 0) std::memcpy(data, out.data(), n);
  return n;
}
