/* A server's round in C: clients send a model's update in one bit a number, one as packets some of which are lost, and one that
 * is not what it says; the server averages what it may believe. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "kpd/gradient/kpd_gradient.h"

enum { kClients = 4, kNumbers = 100000 };

static char error[200];
static const uint64_t counts[1] = {kNumbers};
static const uint8_t secret[32] = {1, 2, 3}; /* in earnest: 32 random bytes that both sides have */

static void check(int code) {
  if (code == 0) return;
  fprintf(stderr, "round: %s (code %d)\n", error, code);
  exit(1);
}

static uint64_t encode(kpd_encoder* encoder, uint64_t client, const float* x, uint8_t* message) {
  const kpd_message_ids ids = {7, 1, client, 0, 1}; /* run, round, client, base model, weight */
  uint64_t bytes = 0;
  check(kpd_encode(encoder, &x, &ids, message, kpd_encoder_max_bytes(encoder), &bytes, NULL, error, sizeof error));
  return bytes;
}

/* Every fifth packet is lost; what is left still decodes. */
static void show_packets(const uint8_t* message, uint64_t bytes, float* estimate, const float* x) {
  const kpd_message_ids ids = {7, 1, 0, 0, 1};
  kpd_packets* packets = NULL;
  kpd_packet_decoder* decoder = NULL;
  kpd_packet_report report;
  const uint8_t* arrived[1000];
  uint64_t sizes[1000], control_bytes = 0;
  size_t n = 0;
  double error2 = 0, norm2 = 0;
  check(kpd_packetize(counts, 1, secret, message, bytes, 0, &packets, error, sizeof error));
  check(kpd_packet_decoder_new(counts, 1, secret, 0, &decoder, error, sizeof error));
  for (uint64_t i = 0; i < kpd_packets_count(packets) && n < 1000; ++i) {
    if (i % 5 == 0) continue;
    arrived[n] = kpd_packets_packet(packets, i, &sizes[n]);
    ++n;
  }
  const uint8_t* control = kpd_packets_control(packets, &control_bytes);
  check(kpd_packet_decode_add(decoder, control, control_bytes, arrived, sizes, n, &ids, 1.0f, &estimate, &report, error,
                              sizeof error));
  for (uint64_t i = 0; i < kNumbers; ++i) {
    error2 += (double)(estimate[i] - x[i]) * (double)(estimate[i] - x[i]);
    norm2 += (double)x[i] * (double)x[i];
  }
  printf("%d of %d packets arrived: squared error %.3f\n", (int)report.received, (int)report.expected, error2 / norm2);
  kpd_packets_free(packets);
  kpd_packet_decoder_free(decoder);
}

int main(void) {
  kpd_encoder* encoder = NULL;
  kpd_aggregator* server = NULL;
  kpd_aggregator_options options = {0};
  options.max_weight = 1;
  options.codec = "eden:bits=1";
  check(kpd_encoder_new("eden:bits=1", counts, 1, secret, 0, &encoder, error, sizeof error));
  check(kpd_aggregator_new(counts, 1, secret, &options, &server, error, sizeof error));
  uint8_t* message = malloc(kpd_encoder_max_bytes(encoder));
  float* x = calloc(kNumbers, sizeof *x);
  float* mean = calloc(kNumbers, sizeof *mean);
  float* estimate = calloc(kNumbers, sizeof *estimate);
  if (message == NULL || x == NULL || mean == NULL || estimate == NULL) return 1;
  const kpd_message_ids round = {7, 1, 0, 0, 0};
  check(kpd_aggregator_begin_round(server, &round, &mean, error, sizeof error));
  for (uint64_t client = 0; client < kClients; ++client) {
    for (uint64_t i = 0; i < kNumbers; ++i) x[i] = (float)sin((double)i * 0.001 + (double)client);
    uint64_t bytes = encode(encoder, client, x, message);
    if (client == 0) show_packets(message, bytes, estimate, x);
    if (client == 3) message[bytes / 2] ^= 1; /* it arrives damaged */
    kpd_verdict verdict;
    check(kpd_aggregator_add(server, client, message, bytes, &verdict, error, sizeof error));
    printf("client %d: %s%s%s\n", (int)client, kpd_refusal_name(verdict.refusal), verdict.refusal != 0 ? ": " : "",
           verdict.refusal != 0 ? error : "");
  }
  int has_mean = 0;
  check(kpd_aggregator_finish_round(server, &has_mean, error, sizeof error));
  kpd_round_report report;
  kpd_aggregator_report(server, &report);
  printf("the mean of %d clients%s\n", (int)report.accepted, has_mean ? "" : ": none");
  kpd_encoder_free(encoder);
  kpd_aggregator_free(server);
  free(message);
  free(x);
  free(mean);
  free(estimate);
  return has_mean && report.accepted == 3 ? 0 : 1;
}
