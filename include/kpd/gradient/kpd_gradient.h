/* gradient: the C interface. Bytes in, bytes out; no exception crosses it, nothing is printed.
 *
 * Functions that can fail return 0, or a positive code (the values of kpd::ErrorCode in kpd/base/error.h) and, if `error` is
 * not NULL, a sentence of at most error_bytes - 1 characters in it. Handles are thread-compatible: one thread at a time each.
 * After the first call of a size encode and decode allocate nothing. Format: docs/format/gradient.md. Link with kpd::core by
 * CMake, or with what `pkg-config --static --libs kpd-core` prints. */
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

typedef struct kpd_encoder kpd_encoder;
typedef struct kpd_decoder kpd_decoder;

/* Who sent a message, and for which step. A decoder compares all but weight with what it expects. */
typedef struct kpd_message_ids {
  uint64_t run, round, client, base_model_hash, weight;
} kpd_message_ids;

KPD_API const char* kpd_version(void);

/* spec: a method of `kpd codecs`, e.g. "eden:bits=1". counts[n_tensors]: float32 elements of each tensor; both sides name the
 * tensors "0", "1", ... so that their manifests agree. secret: 32 bytes shared by both sides. threads: 0 = all. */
KPD_API int kpd_encoder_new(const char* spec, const uint64_t* counts, size_t n_tensors, const uint8_t* secret, int threads,
                            kpd_encoder** encoder, char* error, size_t error_bytes);
KPD_API void kpd_encoder_free(kpd_encoder* encoder);
/* Upper bound of what kpd_encode writes, known before anything is encoded. */
KPD_API uint64_t kpd_encoder_max_bytes(const kpd_encoder* encoder);
/* tensors[i] holds counts[i] floats. dst holds capacity >= kpd_encoder_max_bytes() bytes; *written is set. vnmse, if not NULL,
 * is set to the exact error made, |decoded - x|^2 / |x|^2. */
KPD_API int kpd_encode(kpd_encoder* encoder, const float* const* tensors, const kpd_message_ids* ids, uint8_t* dst,
                       uint64_t capacity, uint64_t* written, double* vnmse, char* error, size_t error_bytes);

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

#ifdef __cplusplus
}
#endif
#endif /* KPD_GRADIENT_KPD_GRADIENT_H_ */
