// gradient: the C interface over packets.h.
#include "gradient/c_api.h"
#include "kpd/gradient/packets.h"

namespace gradient = kpd::gradient;
using namespace kpd::gradient::c_api;

struct kpd_packets {
  gradient::PacketSet set;
};

struct kpd_packet_decoder {
  gradient::PacketDecoder decoder;
  Tensors tensors;
  std::vector<gradient::LostGroup> lost_groups;  // of the last message
};

extern "C" {

int kpd_packetize(const uint64_t* counts, size_t n_tensors, const uint8_t* secret, const uint8_t* message, uint64_t bytes,
                  uint32_t payload_bytes, kpd_packets** packets, char* error, size_t error_bytes) {
  return guarded(error, error_bytes, [&] {
    require((counts != nullptr || n_tensors == 0) && secret != nullptr && message != nullptr && packets != nullptr,
            "counts, secret, message and packets");
    *packets = new kpd_packets{gradient::packetize({message, bytes}, manifest_of(counts, n_tensors), secret_of(secret),
                                                   payload_bytes == 0 ? gradient::kPacketPayloadBytes : payload_bytes)};
  });
}

void kpd_packets_free(kpd_packets* packets) { delete packets; }

const uint8_t* kpd_packets_control(const kpd_packets* packets, uint64_t* bytes) {
  if (bytes != nullptr) *bytes = packets != nullptr ? packets->set.control.size() : 0;
  return packets != nullptr ? packets->set.control.data() : nullptr;
}

uint64_t kpd_packets_count(const kpd_packets* packets) { return packets != nullptr ? packets->set.packets.size() : 0; }

const uint8_t* kpd_packets_packet(const kpd_packets* packets, uint64_t index, uint64_t* bytes) {
  const bool there = index < kpd_packets_count(packets);
  if (bytes != nullptr) *bytes = there ? packets->set.packets[index].size() : 0;
  return there ? packets->set.packets[index].data() : nullptr;
}

int kpd_packet_decoder_new(const uint64_t* counts, size_t n_tensors, const uint8_t* secret, int threads,
                           kpd_packet_decoder** decoder, char* error, size_t error_bytes) {
  return guarded(error, error_bytes, [&] {
    require((counts != nullptr || n_tensors == 0) && secret != nullptr && decoder != nullptr, "counts, secret and decoder");
    *decoder =
        new kpd_packet_decoder{{manifest_of(counts, n_tensors), secret_of(secret), {threads, {}}}, {counts, n_tensors}, {}};
  });
}

void kpd_packet_decoder_free(kpd_packet_decoder* decoder) { delete decoder; }

int kpd_packet_decode_add(kpd_packet_decoder* decoder, const uint8_t* control, uint64_t control_bytes,
                          const uint8_t* const* packets, const uint64_t* sizes, size_t n_packets,
                          const kpd_message_ids* expected, float weight, float* const* acc, kpd_packet_report* report,
                          char* error, size_t error_bytes) {
  return guarded(error, error_bytes, [&] {
    require(decoder != nullptr && control != nullptr && expected != nullptr && acc != nullptr && report != nullptr,
            "decoder, control, expected, acc and report");
    require((packets != nullptr && sizes != nullptr) || n_packets == 0, "packets and sizes");
    std::vector<std::span<const uint8_t>> list;
    for (size_t i = 0; i < n_packets; ++i) {
      require(packets[i] != nullptr, "a packet");
      list.emplace_back(packets[i], sizes[i]);
    }
    decoder->lost_groups.clear();
    gradient::PacketReport r;
    decoder->decoder.decode_add({control, control_bytes}, list, ids_of(*expected), weight, decoder->tensors.at(acc), &r);
    *report = {r.expected, r.received,           r.damaged,   r.foreign,     r.duplicate,
               r.groups,   r.lost_groups.size(), r.saturated, r.lost ? 1 : 0};
    decoder->lost_groups = std::move(r.lost_groups);
  });
}

int kpd_packet_lost_group(const kpd_packet_decoder* decoder, uint64_t index, uint64_t* tensor, uint64_t* first,
                          uint64_t* elements) {
  if (decoder == nullptr || index >= decoder->lost_groups.size()) return static_cast<int>(kpd::ErrorCode::kInvalidArgument);
  const gradient::LostGroup& g = decoder->lost_groups[index];
  if (tensor != nullptr) *tensor = g.tensor;
  if (first != nullptr) *first = g.first_element;
  if (elements != nullptr) *elements = g.elements;
  return 0;
}

}  // extern "C"
