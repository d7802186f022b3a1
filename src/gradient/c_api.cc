// gradient: the C interface over message.h and streaming.h.
#include "gradient/c_api.h"

#include "kpd/base/version.h"
#include "kpd/gradient/decoder.h"
#include "kpd/gradient/streaming.h"

namespace gradient = kpd::gradient;
using namespace kpd::gradient::c_api;
using kpd::DType;
using kpd::ErrorCode;

struct kpd_encoder {
  gradient::Encoder encoder;
  std::vector<kpd::TensorView> views;
};

struct kpd_decoder {
  gradient::Decoder decoder;
  Tensors tensors;
  std::vector<gradient::BFloat16Span> bf16;
};

struct kpd_stream_decoder {
  gradient::StreamDecoder decoder;
  Tensors tensors;
};

namespace {

DType type_of(int type) {
  if (type != KPD_FLOAT32 && type != KPD_BFLOAT16 && type != KPD_FLOAT16)
    kpd::fail(ErrorCode::kInvalidArgument, "element type ", type, ", expected 0 (float32), 1 (bfloat16) or 2 (float16)");
  return static_cast<DType>(type);
}

// `types` may be null: float32.
std::span<const kpd::TensorView> views_of(kpd_encoder& e, const void* const* tensors, const int* types) {
  for (size_t i = 0; i < e.views.size(); ++i) {
    require(tensors[i] != nullptr || e.views[i].count == 0, "a tensor");
    e.views[i].data = tensors[i];
    e.views[i].dtype = types == nullptr ? DType::kFloat32 : type_of(types[i]);
  }
  return e.views;
}

void encode(kpd_encoder& e, std::span<const kpd::TensorView> views, const kpd_message_ids& ids, std::span<uint8_t> dst,
            uint64_t& written, double* vnmse) {
  gradient::EncodeReport made;
  written = e.encoder.encode_message(views, ids_of(ids), dst, &made);
  if (vnmse != nullptr) *vnmse = made.vnmse();
}

kpd_encoder* make_encoder(const char* spec, const uint64_t* counts, size_t n, const uint8_t* secret,
                          const gradient::EncodeOptions& options) {
  auto* const made = new kpd_encoder{{manifest_of(counts, n), gradient::Codec::parse(spec), secret_of(secret), options},
                                     std::vector<kpd::TensorView>(n)};
  for (size_t i = 0; i < n; ++i) made->views[i].count = counts[i];
  return made;
}

}  // namespace

extern "C" {

const char* kpd_version(void) { return kpd::kVersion; }

int kpd_encoder_new(const char* spec, const uint64_t* counts, size_t n_tensors, const uint8_t* secret, int threads,
                    kpd_encoder** encoder, char* error, size_t error_bytes) {
  return guarded(error, error_bytes, [&] {
    require(spec != nullptr && (counts != nullptr || n_tensors == 0) && secret != nullptr && encoder != nullptr,
            "spec, counts, secret and encoder");
    *encoder = make_encoder(spec, counts, n_tensors, secret, {.threads = threads});
  });
}

int kpd_encoder_new_authenticated(const char* spec, const uint64_t* counts, size_t n_tensors, const uint8_t* secret,
                                  int threads, kpd_encoder** encoder, char* error, size_t error_bytes) {
  return guarded(error, error_bytes, [&] {
    require(spec != nullptr && (counts != nullptr || n_tensors == 0) && secret != nullptr && encoder != nullptr,
            "spec, counts, secret and encoder");
    *encoder = make_encoder(spec, counts, n_tensors, secret, {.threads = threads, .authenticated = true});
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
      encoder->views[i] = {tensors[i], encoder->views[i].count, DType::kFloat32};
    }
    encode(*encoder, encoder->views, *ids, {dst, capacity}, *written, vnmse);
  });
}

int kpd_encode_typed(kpd_encoder* encoder, const void* const* tensors, const int* types, const kpd_message_ids* ids,
                     uint8_t* dst, uint64_t capacity, uint64_t* written, double* vnmse, char* error, size_t error_bytes) {
  return guarded(error, error_bytes, [&] {
    require(
        encoder != nullptr && tensors != nullptr && types != nullptr && ids != nullptr && dst != nullptr && written != nullptr,
        "encoder, tensors, types, ids, dst and written");
    encode(*encoder, views_of(*encoder, tensors, types), *ids, {dst, capacity}, *written, vnmse);
  });
}

int kpd_decoder_new(const uint64_t* counts, size_t n_tensors, const uint8_t* secret, int threads, kpd_decoder** decoder,
                    char* error, size_t error_bytes) {
  return guarded(error, error_bytes, [&] {
    require((counts != nullptr || n_tensors == 0) && secret != nullptr && decoder != nullptr, "counts, secret and decoder");
    *decoder = new kpd_decoder{{manifest_of(counts, n_tensors), secret_of(secret), {threads, {}}},
                               {counts, n_tensors},
                               std::vector<gradient::BFloat16Span>(n_tensors)};
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
    decoder->decoder.decode({message, bytes}, ids_of(*expected), decoder->tensors.at(dst));
  });
}

int kpd_decode_add(kpd_decoder* decoder, const uint8_t* message, uint64_t bytes, const kpd_message_ids* expected, float weight,
                   float* const* acc, char* error, size_t error_bytes) {
  return guarded(error, error_bytes, [&] {
    require(decoder != nullptr && message != nullptr && expected != nullptr && acc != nullptr,
            "decoder, message, expected and acc");
    decoder->decoder.decode_add({message, bytes}, ids_of(*expected), weight, decoder->tensors.at(acc));
  });
}

int kpd_decode_add_bf16(kpd_decoder* decoder, const uint8_t* message, uint64_t bytes, const kpd_message_ids* expected,
                        float weight, uint16_t* const* acc, char* error, size_t error_bytes) {
  return guarded(error, error_bytes, [&] {
    require(decoder != nullptr && message != nullptr && expected != nullptr && acc != nullptr,
            "decoder, message, expected and acc");
    for (size_t i = 0; i < decoder->bf16.size(); ++i) {
      require(acc[i] != nullptr || decoder->tensors.counts[i] == 0, "a tensor");
      decoder->bf16[i] = {acc[i], decoder->tensors.counts[i]};
    }
    decoder->decoder.decode_add({message, bytes}, ids_of(*expected), weight,
                                std::span<const gradient::BFloat16Span>(decoder->bf16));
  });
}

int kpd_stream_begin(kpd_encoder* encoder, const void* const* tensors, const int* types, const kpd_message_ids* ids,
                     char* error, size_t error_bytes) {
  return guarded(error, error_bytes, [&] {
    require(encoder != nullptr && tensors != nullptr && ids != nullptr, "encoder, tensors and ids");
    encoder->encoder.begin_stream(views_of(*encoder, tensors, types), ids_of(*ids));
  });
}

uint64_t kpd_stream_max_chunk_bytes(const kpd_encoder* encoder) {
  return encoder != nullptr ? encoder->encoder.max_chunk_bytes() : 0;
}

int kpd_stream_next(kpd_encoder* encoder, uint8_t* dst, uint64_t capacity, uint64_t* written, char* error, size_t error_bytes) {
  return guarded(error, error_bytes, [&] {
    require(encoder != nullptr && dst != nullptr && written != nullptr, "encoder, dst and written");
    *written = encoder->encoder.next_chunk({dst, capacity});
  });
}

int kpd_stream_decoder_new(const uint64_t* counts, size_t n_tensors, const uint8_t* secret, kpd_stream_decoder** decoder,
                           char* error, size_t error_bytes) {
  return guarded(error, error_bytes, [&] {
    require((counts != nullptr || n_tensors == 0) && secret != nullptr && decoder != nullptr, "counts, secret and decoder");
    *decoder = new kpd_stream_decoder{{manifest_of(counts, n_tensors), secret_of(secret)}, {counts, n_tensors}};
  });
}

void kpd_stream_decoder_free(kpd_stream_decoder* decoder) { delete decoder; }

int kpd_stream_decoder_begin(kpd_stream_decoder* decoder, const kpd_message_ids* expected, float weight, float* const* acc,
                             char* error, size_t error_bytes) {
  return guarded(error, error_bytes, [&] {
    require(decoder != nullptr && expected != nullptr && acc != nullptr, "decoder, expected and acc");
    decoder->decoder.begin(ids_of(*expected), weight, decoder->tensors.at(acc));
  });
}

int kpd_stream_decoder_feed(kpd_stream_decoder* decoder, const uint8_t* data, uint64_t bytes, char* error, size_t error_bytes) {
  return guarded(error, error_bytes, [&] {
    require(decoder != nullptr && (data != nullptr || bytes == 0), "decoder and data");
    decoder->decoder.feed({data, bytes});
  });
}

int kpd_stream_decoder_done(const kpd_stream_decoder* decoder) { return decoder != nullptr && decoder->decoder.done() ? 1 : 0; }

}  // extern "C"
