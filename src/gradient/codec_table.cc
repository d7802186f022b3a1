// gradient: reading and writing of a stream's codec table (stream_format.h; docs/format/gradient.md, "Codec table").
#include <algorithm>
#include <array>
#include <bitset>

#include "gradient/baselines.h"
#include "gradient/stream_format.h"
#include "kpd/base/error.h"
#include "kpd/gradient/stream_info.h"

namespace kpd::gradient {
namespace {

constexpr uint16_t kWireFlags = kFlagEntropy | kFlagDither | kFlagAllocate | kFlagJoin | kFlagMaxNorm | kFlagFixedCode;
constexpr uint64_t kManyElements = uint64_t{1} << 20;  // of a unit for which no rule takes another method

uint64_t varint_bytes(uint64_t v) {
  uint64_t n = 1;
  for (; v >= 0x80; v >>= 7) ++n;
  return n;
}

// Least significant 7 bits first, bit 7 set on all bytes but the last.
uint64_t read_varint(ByteReader& r, uint64_t at) {
  uint64_t v = 0;
  for (int shift = 0; shift < 63; shift += 7) {
    const uint8_t byte = r.u8("length of a run of tensors");
    v |= static_cast<uint64_t>(byte & 0x7f) << shift;
    if (byte >= 0x80) continue;
    if (byte == 0 && shift > 0) break;
    return v;
  }
  r.throw_at(ErrorCode::kCorruptData, at, "the length of a run of tensors is not written in the fewest bytes");
}

// Fields that hold for every method; then those of its own.
void check_record(const WireParams& p) {
  const auto bad = [](const auto&... text) { fail(ErrorCode::kCorruptData, text...); };
  const MethodEntry& method = method_by_id(p.method);
  if (p.method == kExactId) bad("method ", p.method, " is chosen by a tensor's type, never by a codec");
  if (p.log2_block < kMinLog2Block || p.log2_block > kMaxLog2Block)
    bad("log2 of the block is ", p.log2_block, ", expected 6 to 14");
  if (static_cast<int>(p.scale) > 2) bad("scale kind ", static_cast<int>(p.scale), ", expected 0 to 2");
  if ((p.flags & ~kWireFlags) != 0) bad("unknown flags ", p.flags);
  if ((p.flags & kFlagJoin) != 0 && (!rotates(p.method) || (p.flags & kFlagDither) != 0)) {
    bad("flags ", p.flags, ": only methods with a rotation of one client's own join tensors");
  }
  method.make(resolve_record(p, kManyElements));
}

WireParams read_record(ByteReader& r, size_t index) {
  const uint64_t at = r.offset();
  WireParams p;
  p.method = r.u8("method id of a codec");
  p.log2_block = r.u8("log2 of the block");
  p.rounds = r.u8("rounds");
  p.scale = static_cast<ScaleKind>(r.u8("scale kind"));
  p.flags = r.u16("codec flags");
  p.rate = r.u32("rate");
  p.param = r.u32("codec parameter");
  try {
    check_record(p);
  } catch (const Error& e) {
    r.throw_at(e.code(), at, "codec ", index, ": ", e.what());
  }
  return p;
}

}  // namespace

void write_record(ByteWriter& w, const WireParams& p) {
  w.u8(p.method);
  w.u8(p.log2_block);
  w.u8(p.rounds);
  w.u8(static_cast<uint8_t>(p.scale));
  w.u16(p.flags);
  w.u32(p.rate);
  w.u32(p.param);
}

uint64_t codec_table_bytes(const CodecTable& table) {
  uint64_t bytes = 2 + kRecordBytes * table.codecs.size();
  for (const CodecRun& run : table.runs) bytes += 1 + varint_bytes(run.tensors);
  return bytes;
}

void write_codec_table(ByteWriter& w, const CodecTable& table) {
  w.u16(static_cast<uint16_t>(table.codecs.size()));
  for (const WireParams& p : table.codecs) write_record(w, p);
  for (const CodecRun& run : table.runs) {
    w.u8(run.codec);
    uint64_t left = run.tensors;
    for (; left >= 0x80; left >>= 7) w.u8(static_cast<uint8_t>(left | 0x80));
    w.u8(static_cast<uint8_t>(left));
  }
}

void read_codec_table(ByteReader& r, uint64_t tensors, CodecTable& table) {
  table.codecs.clear();
  table.runs.clear();
  const uint64_t at = r.offset();
  const auto bad = [&](uint64_t where, const auto&... text) { r.throw_at(ErrorCode::kCorruptData, where, text...); };
  const uint32_t n = r.u16("number of codecs");
  if (n == 0 && tensors > 0) bad(at, "no codec for ", tensors, " tensors");
  if (n > tensors || n > kMaxTableCodecs) {
    bad(at, n, " codecs for ", tensors, " tensors, at most one a tensor and ", kMaxTableCodecs, " are possible");
  }
  for (uint32_t i = 0; i < n; ++i) {
    table.codecs.push_back(read_record(r, i));
    const auto same = std::find(table.codecs.begin(), table.codecs.end() - 1, table.codecs.back());
    if (same != table.codecs.end() - 1) bad(at + 2 + kRecordBytes * i, "codec ", i, " is that of another number too");
  }
  std::bitset<kMaxTableCodecs> used;
  for (uint64_t covered = 0; covered < tensors;) {
    const uint64_t run_at = r.offset();
    CodecRun run;
    run.codec = r.u8("codec of a run of tensors");
    if (run.codec >= n) bad(run_at, "tensor ", covered, " has codec ", run.codec, ", there are ", n);
    run.tensors = read_varint(r, run_at + 1);
    if (run.tensors == 0 || run.tensors > tensors - covered) {
      bad(run_at + 1, "a run of ", run.tensors, " tensors, expected 1 to ", tensors - covered);
    }
    used[run.codec] = true;
    covered += run.tensors;
    table.runs.push_back(run);
  }
  for (uint32_t i = 0; i < n; ++i) {
    if (!used[i]) bad(at + 2 + kRecordBytes * i, "codec ", i, " is that of no tensor");
  }
}

void build_units(const ByteReader& r, uint64_t table_at, const Manifest& manifest, const CodecTable& table, CodecCache& codecs,
                 Units& units) {
  try {
    units.build(manifest, table, codecs);
  } catch (const Error& e) {
    r.throw_at(e.code(), table_at, e.what());
  }
}

}  // namespace kpd::gradient
