/* Four clients send a million floats each in one bit a number; a server averages what they sent. C interface. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "kpd/gradient/kpd_gradient.h"

enum { kClients = 4 };

static int failed(const char* error) {
  fprintf(stderr, "average: %s\n", error);
  return 1;
}

int main(void) {
  const uint64_t n = 1000000;
  const uint8_t secret[32] = {1, 2, 3}; /* in earnest: 32 random bytes that both sides have */
  char error[200];
  kpd_encoder* encoder = NULL;
  kpd_decoder* decoder = NULL;
  if (kpd_encoder_new("eden:bits=1", &n, 1, secret, 0, &encoder, error, sizeof error) != 0) return failed(error);
  if (kpd_decoder_new(&n, 1, secret, 0, &decoder, error, sizeof error) != 0) return failed(error);
  const uint64_t capacity = kpd_encoder_max_bytes(encoder);
  uint8_t* message = malloc(capacity);
  float* x = malloc(n * sizeof *x);
  float* mean = calloc(n, sizeof *mean);
  float* estimate = calloc(n, sizeof *estimate);
  if (message == NULL || x == NULL || mean == NULL || estimate == NULL) return failed("out of memory");
  uint64_t sent = 0;
  for (uint64_t c = 0; c < kClients; ++c) {
    for (uint64_t i = 0; i < n; ++i) x[i] = (float)sin((double)i * 0.001 + (double)c);
    const kpd_message_ids ids = {7, 1, c, 0, 1}; /* run, round, client, base model, weight */
    uint64_t bytes = 0;
    double vnmse = 0;
    const float* tensor = x;
    if (kpd_encode(encoder, &tensor, &ids, message, capacity, &bytes, &vnmse, error, sizeof error) != 0) return failed(error);
    if (kpd_decode_add(decoder, message, bytes, &ids, 1.0f / kClients, &estimate, error, sizeof error) != 0)
      return failed(error);
    for (uint64_t i = 0; i < n; ++i) mean[i] += x[i] / kClients;
    printf("client %d sent %llu bytes (%.3f bits a number), error %.4f\n", (int)c, (unsigned long long)bytes,
           8.0 * (double)bytes / (double)n, vnmse);
    sent += bytes;
  }
  double error2 = 0, norm2 = 0;
  for (uint64_t i = 0; i < n; ++i) {
    error2 += (double)(estimate[i] - mean[i]) * (double)(estimate[i] - mean[i]);
    norm2 += (double)mean[i] * (double)mean[i];
  }
  printf("mean of %d clients from %llu bytes: squared error %.4f of the mean's own square\n", kClients,
         (unsigned long long)sent, error2 / norm2);
  kpd_encoder_free(encoder);
  kpd_decoder_free(decoder);
  free(message);
  free(x);
  free(mean);
  free(estimate);
  return 0;
}
