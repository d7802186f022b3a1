/* gradient: the C interface. Bytes in, bytes out; no exception crosses it, nothing is printed.
 *
 * Functions that can fail return 0, or a positive code (the values of kpd::ErrorCode in kpd/base/error.h) and, if `error` is
 * not NULL, a sentence of at most error_bytes - 1 characters in it. Handles are thread-compatible: one thread at a time each.
 * A handle is freed by the function of its name, which takes NULL too. After the first call of a size encode and decode
 * allocate nothing. Format: docs/format/gradient.md. Link with kpd::core by CMake, or with what
 * `pkg-config --static --libs kpd-core` prints. */
#ifndef KPD_GRADIENT_KPD_GRADIENT_H_
#define KPD_GRADIENT_KPD_GRADIENT_H_

#include <stddef.h>
#include <stdint.h>

#if defined(__GNUC__)
#define KPD_API __attribute__((visibility("default")))
#else
#define KPD_API
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* ---- messages ---- */

typedef struct kpd_encoder kpd_encoder;
typedef struct kpd_decoder kpd_decoder;

/* Who sent a message, and for which step. A decoder compares all but weight with what it expects. */
typedef struct kpd_message_ids {
  uint64_t run, round, client, base_model_hash, weight;
} kpd_message_ids;

/* Types of elements. Whatever the type, both sides call the tensors float32 ones; decoded values are float32. */
#define KPD_FLOAT32 0
#define KPD_BFLOAT16 1
#define KPD_FLOAT16 2

KPD_API const char* kpd_version(void);

/* spec: a method of `kpd codecs`, e.g. "eden:bits=1". counts[n_tensors]: elements of each tensor; both sides name the tensors
 * "0", "1", ... so that their manifests agree. secret: 32 bytes shared by both sides. threads: 0 = all. */
KPD_API int kpd_encoder_new(const char* spec, const uint64_t* counts, size_t n_tensors, const uint8_t* secret, int threads,
                            kpd_encoder** encoder, char* error, size_t error_bytes);
KPD_API void kpd_encoder_free(kpd_encoder* encoder);
/* Upper bound of what kpd_encode writes, known before anything is encoded. */
KPD_API uint64_t kpd_encoder_max_bytes(const kpd_encoder* encoder);
/* tensors[i] holds counts[i] floats. dst holds capacity >= kpd_encoder_max_bytes() bytes; *written is set. vnmse, if not NULL,
 * is set to the exact error made, |decoded - x|^2 / |x|^2. */
KPD_API int kpd_encode(kpd_encoder* encoder, const float* const* tensors, const kpd_message_ids* ids, uint8_t* dst,
                       uint64_t capacity, uint64_t* written, double* vnmse, char* error, size_t error_bytes);
/* The same of tensors of other types: types[i] is KPD_FLOAT32, KPD_BFLOAT16 or KPD_FLOAT16 (bit patterns in uint16_t). */
KPD_API int kpd_encode_typed(kpd_encoder* encoder, const void* const* tensors, const int* types, const kpd_message_ids* ids,
                             uint8_t* dst, uint64_t capacity, uint64_t* written, double* vnmse, char* error,
                             size_t error_bytes);

KPD_API int kpd_decoder_new(const uint64_t* counts, size_t n_tensors, const uint8_t* secret, int threads, kpd_decoder** decoder,
                            char* error, size_t error_bytes);
KPD_API void kpd_decoder_free(kpd_decoder* decoder);
/* The ids a message carries, after header and checksum were checked. */
KPD_API int kpd_peek(const kpd_decoder* decoder, const uint8_t* message, uint64_t bytes, kpd_message_ids* ids, char* error,
                     size_t error_bytes);
/* dst[i] = decoded. */
KPD_API int kpd_decode(kpd_decoder* decoder, const uint8_t* message, uint64_t bytes, const kpd_message_ids* expected,
                       float* const* dst, char* error, size_t error_bytes);
/* acc[i] += weight * decoded, for a finite weight. */
KPD_API int kpd_decode_add(kpd_decoder* decoder, const uint8_t* message, uint64_t bytes, const kpd_message_ids* expected,
                           float weight, float* const* acc, char* error, size_t error_bytes);
/* The same into bfloat16: every element is computed in float32 and rounded to nearest even once a call, so a sum of many
 * messages gathers a rounding of 2^-9 of itself at each, and updates smaller than that vanish. */
KPD_API int kpd_decode_add_bf16(kpd_decoder* decoder, const uint8_t* message, uint64_t bytes, const kpd_message_ids* expected,
                                float weight, uint16_t* const* acc, char* error, size_t error_bytes);

/* ---- streaming: a message while it is encoded, and while it arrives ---- */

/* Starts the stream of a message; then kpd_stream_next until it sets *written to 0. The chunks joined are the message. `types`
 * may be NULL: all KPD_FLOAT32. The tensors must stay as they are meanwhile, and the encoder must encode nothing else, or
 * kpd_stream_next fails. */
KPD_API int kpd_stream_begin(kpd_encoder* encoder, const void* const* tensors, const int* types, const kpd_message_ids* ids,
                             char* error, size_t error_bytes);
KPD_API uint64_t kpd_stream_max_chunk_bytes(const kpd_encoder* encoder);
/* dst holds capacity >= kpd_stream_max_chunk_bytes() bytes. */
KPD_API int kpd_stream_next(kpd_encoder* encoder, uint8_t* dst, uint64_t capacity, uint64_t* written, char* error,
                            size_t error_bytes);

typedef struct kpd_stream_decoder kpd_stream_decoder;
KPD_API int kpd_stream_decoder_new(const uint64_t* counts, size_t n_tensors, const uint8_t* secret,
                                   kpd_stream_decoder** decoder, char* error, size_t error_bytes);
KPD_API void kpd_stream_decoder_free(kpd_stream_decoder* decoder);
/* Starts a message: acc[i] += weight * decoded as it arrives. acc stays the decoder's until the message is done or failed.
 * After an error, or if it never becomes done, acc holds a part of the message and is to be thrown away. */
KPD_API int kpd_stream_decoder_begin(kpd_stream_decoder* decoder, const kpd_message_ids* expected, float weight,
                                     float* const* acc, char* error, size_t error_bytes);
/* The next bytes of this one message, in any portions. */
KPD_API int kpd_stream_decoder_feed(kpd_stream_decoder* decoder, const uint8_t* data, uint64_t bytes, char* error,
                                    size_t error_bytes);
/* 1 when all tensors are decoded and the checksum was right, else 0. */
KPD_API int kpd_stream_decoder_done(const kpd_stream_decoder* decoder);

/* ---- packets that may be lost (kpd/gradient/packets.h says how they are made and what loss costs) ---- */

/* A message in packets. */
typedef struct kpd_packets kpd_packets;
/* secret: the one it was encoded with. payload_bytes: of codes in a packet, 64 to 60000; 0: 1200. */
KPD_API int kpd_packetize(const uint8_t* message, uint64_t bytes, const uint8_t* secret, uint32_t payload_bytes,
                          kpd_packets** packets, char* error, size_t error_bytes);
KPD_API void kpd_packets_free(kpd_packets* packets);
/* The control part, which must arrive; it lives as long as the handle, as packets do. */
KPD_API const uint8_t* kpd_packets_control(const kpd_packets* packets, uint64_t* bytes);
KPD_API uint64_t kpd_packets_count(const kpd_packets* packets);
/* NULL if there is no such packet. */
KPD_API const uint8_t* kpd_packets_packet(const kpd_packets* packets, uint64_t index, uint64_t* bytes);

typedef struct kpd_packet_report {
  uint64_t expected, received;
  uint64_t damaged;   /* checksum, length or content wrong: counted as lost */
  uint64_t foreign;   /* of another message */
  uint64_t duplicate;
  uint64_t groups, groups_lost; /* blocks of which nothing came: decoded as zeros; kpd_packet_lost_group names them */
  uint64_t saturated;           /* decoded values beyond the float range, limited to it */
  int lost;                     /* 1: nothing of the message came; it is not in acc and does not count in an average */
} kpd_packet_report;

typedef struct kpd_packet_decoder kpd_packet_decoder;
KPD_API int kpd_packet_decoder_new(const uint64_t* counts, size_t n_tensors, const uint8_t* secret, int threads,
                                   kpd_packet_decoder** decoder, char* error, size_t error_bytes);
KPD_API void kpd_packet_decoder_free(kpd_packet_decoder* decoder);
/* acc[i] += weight * decoded, from the control part and the n packets that arrived, in any order; sizes[i] bytes each. */
KPD_API int kpd_packet_decode_add(kpd_packet_decoder* decoder, const uint8_t* control, uint64_t control_bytes,
                                  const uint8_t* const* packets, const uint64_t* sizes, size_t n_packets,
                                  const kpd_message_ids* expected, float weight, float* const* acc, kpd_packet_report* report,
                                  char* error, size_t error_bytes);
/* Lost group `index` of the last message: `elements` of tensor `tensor` from `first`. Returns 0, or 1 if there is none. */
KPD_API int kpd_packet_lost_group(const kpd_packet_decoder* decoder, uint64_t index, uint64_t* tensor, uint64_t* first,
                                  uint64_t* elements);

/* ---- a server's round: messages in, a weighted mean out, whatever the clients send (kpd/gradient/aggregator.h) ---- */

typedef struct kpd_aggregator kpd_aggregator;

/* Everything 0 or NULL: the defaults. */
typedef struct kpd_aggregator_options {
  int threads;         /* 0: one */
  int sum_rotated;     /* codes with dither=shared: one inverse rotation a round; needs codec */
  uint64_t max_weight; /* of one client; 0: the default of AggregatorOptions */
  double max_norm;     /* of one update; 0: no limit */
  const char* codec;   /* what every tensor must be compressed by; NULL: anything */
  /* Computes a message's authentication code, in which the code itself and the checksum are zero; NULL: no code is asked for. */
  void (*mac)(void* context, const uint8_t* message, uint64_t bytes, uint8_t code[16]);
  void* mac_context;
} kpd_aggregator_options;

/* Why a message is not in the mean: kpd::gradient::Refusal. */
#define KPD_ACCEPTED 0
#define KPD_REFUSED_SILENT 1
#define KPD_REFUSED_LOST 2
#define KPD_REFUSED_DAMAGED 3
#define KPD_REFUSED_TWICE 4
#define KPD_REFUSED_OTHER_ROUND 5
#define KPD_REFUSED_OTHER_RUN 6
#define KPD_REFUSED_OTHER_CLIENT 7
#define KPD_REFUSED_OTHER_MODEL 8
#define KPD_REFUSED_OTHER_CODEC 9
#define KPD_REFUSED_WEIGHT 10
#define KPD_REFUSED_NORM 11
#define KPD_REFUSED_FORGED 12
#define KPD_REFUSALS 13

typedef struct kpd_verdict {
  int refusal; /* KPD_ACCEPTED, or why not */
  uint64_t weight;
  double norm; /* of what the message decodes to */
  uint64_t bytes;
} kpd_verdict;

typedef struct kpd_round_report {
  uint64_t accepted, total_weight;
  uint64_t saturated;
  uint64_t bytes; /* of all messages, also refused ones */
  uint64_t refused[KPD_REFUSALS];
} kpd_round_report;

/* "accepted", "silent", ...; "" for what is no refusal. */
KPD_API const char* kpd_refusal_name(int refusal);
KPD_API int kpd_aggregator_new(const uint64_t* counts, size_t n_tensors, const uint8_t* secret,
                               const kpd_aggregator_options* options, kpd_aggregator** aggregator, char* error,
                               size_t error_bytes);
KPD_API void kpd_aggregator_free(kpd_aggregator* aggregator);
/* Starts a round: sum[i] becomes 0 and stays the aggregator's until kpd_aggregator_finish_round. Of `expected` run, round and
 * base_model_hash count. A round that was not finished is forgotten. */
KPD_API int kpd_aggregator_begin_round(kpd_aggregator* aggregator, const kpd_message_ids* expected, float* const* sum,
                                       char* error, size_t error_bytes);
/* Adds weight * decoded. A message that is refused is no error: the function returns 0, verdict->refusal says so, and `error`
 * gets the reason; the sum is then as it was. */
KPD_API int kpd_aggregator_add(kpd_aggregator* aggregator, uint64_t client, const uint8_t* message, uint64_t bytes,
                               kpd_verdict* verdict, char* error, size_t error_bytes);
/* Counts a client of which there is no message to look at, e.g. KPD_REFUSED_SILENT. */
KPD_API int kpd_aggregator_refuse(kpd_aggregator* aggregator, int refusal, char* error, size_t error_bytes);
/* Divides by the weights. *has_mean is 0 if no message was accepted: the sum is then 0 and no model should change. */
KPD_API int kpd_aggregator_finish_round(kpd_aggregator* aggregator, int* has_mean, char* error, size_t error_bytes);
KPD_API void kpd_aggregator_report(const kpd_aggregator* aggregator, kpd_round_report* report);
/* Fills the authentication code of a complete message and renews its checksum. */
KPD_API int kpd_authenticate(uint8_t* message, uint64_t bytes,
                             void (*mac)(void* context, const uint8_t* message, uint64_t bytes, uint8_t code[16]),
                             void* mac_context, char* error, size_t error_bytes);

#ifdef __cplusplus
}
#endif
#endif /* KPD_GRADIENT_KPD_GRADIENT_H_ */
