// gradient: the C interface over message.h. Every function catches everything.
#include <algorithm>
#include <cstring>
#include <new>
#include <string>

#include "kpd/base/error.h"
#include "kpd/base/version.h"
#include "kpd/gradient/kpd_gradient.h"
#include "kpd/gradient/message.h"

using kpd::Error;
using kpd::ErrorCode;
namespace gradient = kpd::gradient;

struct kpd_encoder {
  gradient::Encoder encoder;
  std::vector<kpd::TensorView> views;
};

struct kpd_decoder {
  gradient::Decoder decoder;
  std::vector<uint64_t> counts;
  std::vector<std::span<float>> spans;
};

namespace {

int report(ErrorCode code, const char* text, char* error, size_t error_bytes) {
  if (error != nullptr && error_bytes > 0) {
    const size_t n = std::min(std::strlen(text), error_bytes - 1);
    std::memcpy(error, text, n);
    error[n] = '\0';
  }
  return static_cast<int>(code);
}

template <class Fn>
int guarded(char* error, size_t error_bytes, const Fn& fn) {
  try {
    fn();
    return 0;
  } catch (const Error& e) {
    return report(e.code(), e.what(), error, error_bytes);
  } catch (const std::bad_alloc&) {
    return report(ErrorCode::kOutOfMemory, "out of memory", error, error_bytes);
  } catch (const std::exception& e) {
    return report(ErrorCode::kInternal, e.what(), error, error_bytes);
  } catch (...) {
    return report(ErrorCode::kInternal, "unknown exception", error, error_bytes);
  }
}

void require(bool ok, const char* what) {
  if (!ok) kpd::fail(ErrorCode::kInvalidArgument, what, " must not be NULL");
}

gradient::Manifest manifest_of(const uint64_t* counts, size_t n) {
  gradient::Manifest m;
  for (size_t i = 0; i < n; ++i) m.push_back({std::to_string(i), kpd::DType::kFloat32, {counts[i]}});
  return m;
}

gradient::RunSecret secret_of(const uint8_t* bytes) {
  gradient::RunSecret s;
  std::copy_n(bytes, s.bytes.size(), s.bytes.begin());
  return s;
}

gradient::MessageIds ids_of(const kpd_message_ids& c) { return {c.run, c.round, c.client, c.base_model_hash, c.weight}; }

std::span<const std::span<float>> spans_of(kpd_decoder& d, float* const* memory) {
  for (size_t i = 0; i < d.counts.size(); ++i) {
    require(memory[i] != nullptr || d.counts[i] == 0, "a tensor");
    d.spans[i] = {memory[i], d.counts[i]};
  }
  return d.spans;
}

}  // namespace

extern "C" {

const char* kpd_version(void) { return kpd::kVersion; }

int kpd_encoder_new(const char* spec, const uint64_t* counts, size_t n_tensors, const uint8_t* secret, int threads,
                    kpd_encoder** encoder, char* error, size_t error_bytes) {
  return guarded(error, error_bytes, [&] {
    require(spec != nullptr && (counts != nullptr || n_tensors == 0) && secret != nullptr && encoder != nullptr,
            "spec, counts, secret and encoder");
    *encoder = new kpd_encoder{{manifest_of(counts, n_tensors), gradient::Codec::parse(spec), secret_of(secret), {threads, {}}},
                               std::vector<kpd::TensorView>(n_tensors)};
    for (size_t i = 0; i < n_tensors; ++i) (*encoder)->views[i].count = counts[i];
  });
}

void kpd_encoder_free(kpd_encoder* encoder) { delete encoder; }

uint64_t kpd_encoder_max_bytes(const kpd_encoder* encoder) { return encoder != nullptr ? encoder->encoder.max_bytes() : 0; }

int kpd_encode(kpd_encoder* encoder, const float* const* tensors, const kpd_message_ids* ids, uint8_t* dst, uint64_t capacity,
               uint64_t* written, double* vnmse, char* error, size_t error_bytes) {
  return guarded(error, error_bytes, [&] {
    require(encoder != nullptr && tensors != nullptr && ids != nullptr && dst != nullptr && written != nullptr,
            "encoder, tensors, ids, dst and written");
    for (size_t i = 0; i < encoder->views.size(); ++i) {
      require(tensors[i] != nullptr || encoder->views[i].count == 0, "a tensor");
      encoder->views[i].data = tensors[i];
    }
    gradient::EncodeReport made;
    *written = encoder->encoder.encode_message(encoder->views, ids_of(*ids), {dst, capacity}, &made);
    if (vnmse != nullptr) *vnmse = made.vnmse();
  });
}

int kpd_decoder_new(const uint64_t* counts, size_t n_tensors, const uint8_t* secret, int threads, kpd_decoder** decoder,
                    char* error, size_t error_bytes) {
  return guarded(error, error_bytes, [&] {
    require((counts != nullptr || n_tensors == 0) && secret != nullptr && decoder != nullptr, "counts, secret and decoder");
    *decoder = new kpd_decoder{{manifest_of(counts, n_tensors), secret_of(secret), {threads, {}}},
                               std::vector<uint64_t>(counts, counts + n_tensors),
                               std::vector<std::span<float>>(n_tensors)};
  });
}

void kpd_decoder_free(kpd_decoder* decoder) { delete decoder; }

int kpd_peek(const kpd_decoder* decoder, const uint8_t* message, uint64_t bytes, kpd_message_ids* ids, char* error,
             size_t error_bytes) {
  return guarded(error, error_bytes, [&] {
    require(decoder != nullptr && message != nullptr && ids != nullptr, "decoder, message and ids");
    const gradient::MessageIds got = decoder->decoder.peek({message, bytes});
    *ids = {got.run, got.round, got.client, got.base_model_hash, got.weight};
  });
}

int kpd_decode(kpd_decoder* decoder, const uint8_t* message, uint64_t bytes, const kpd_message_ids* expected, float* const* dst,
               char* error, size_t error_bytes) {
  return guarded(error, error_bytes, [&] {
    require(decoder != nullptr && message != nullptr && expected != nullptr && dst != nullptr,
            "decoder, message, expected and dst");
    decoder->decoder.decode({message, bytes}, ids_of(*expected), spans_of(*decoder, dst));
  });
}

int kpd_decode_add(kpd_decoder* decoder, const uint8_t* message, uint64_t bytes, const kpd_message_ids* expected, float weight,
                   float* const* acc, char* error, size_t error_bytes) {
  return guarded(error, error_bytes, [&] {
    require(decoder != nullptr && message != nullptr && expected != nullptr && acc != nullptr,
            "decoder, message, expected and acc");
    decoder->decoder.decode_add({message, bytes}, ids_of(*expected), weight, spans_of(*decoder, acc));
  });
}

}  // extern "C"
