// train: one round of federated averaging with compressed messages; see codec_run.h.
#include "train/codec_run.h"

#include <algorithm>
#include <cmath>
#include <mutex>

#include "kpd/base/clock.h"
#include "kpd/base/error.h"
#include "kpd/base/hash.h"
#include "kpd/base/threads.h"
#include "kpd/gradient/decoder.h"
#include "kpd/gradient/stream_info.h"
#include "train/client_split.h"
#include "train/remote.h"

namespace kpd::train {
namespace {

constexpr uint64_t kTestChunk = 500;  // examples a task of evaluate()

std::span<const uint8_t> bytes_of(std::span<const float> values) {
  return {reinterpret_cast<const uint8_t*>(values.data()), values.size_bytes()};
}

double squared_norm(std::span<const float> values) {
  double sum = 0;
  for (const float v : values) sum += static_cast<double>(v) * v;
  return sum;
}

}  // namespace

gradient::CodecPolicy uplink_policy(const std::string& text) {
  std::vector<std::string> parts;
  for (size_t begin = 0, end = 0; end != std::string::npos; begin = end + 1) {
    end = text.find(' ', begin);
    parts.push_back(text.substr(begin, end == std::string::npos ? end : end - begin));
  }
  return gradient::CodecPolicy::parse(parts);
}

namespace {

gradient::Encoder make_encoder(const Federation& federation, const std::string& codec, gradient::RunSecret secret,
                               int threads) {
  gradient::EncodeOptions options;
  options.threads = threads;
  return gradient::Encoder(federation.task.manifest(), uplink_policy(codec), secret, options);
}

}  // namespace

Federation::Federation(const Task& the_task, const FederateOptions& the_options) : task(the_task), options(the_options) {
  for (const gradient::TensorInfo& info : task.manifest()) parameters += info.count();
  const auto own = task.own_clients();
  if (own.empty()) {
    clients = dirichlet_split(task.train_labels(), task.classes(), options.clients, options.examples_per_client, options.alpha,
                              options.seed);
  } else if (own.size() == options.clients) {
    clients.assign(own.begin(), own.end());
  } else {
    fail(ErrorCode::kInvalidArgument, "clients: ", options.clients, ", the data of task ", task.name(), " has ", own.size());
  }
  for (const auto& client : clients) sizes.push_back(client.size());
  const auto n_workers = std::min<uint64_t>(static_cast<uint64_t>(options.threads), options.clients_per_round);
  for (uint64_t i = 0; i < n_workers; ++i) workers.push_back(task.make_worker());
}

CodecRun::CodecRun(Federation& federation, const std::string& codec, RunState& state, const FederateCallbacks& callbacks)
    : federation_(federation), options_(federation.options), state_(state), callbacks_(callbacks) {
  run_id_ = derive_seed(options_.seed, Draw::kRunId);
  secret_ = gradient::RunSecret::from_seed(derive_seed(options_.seed, Draw::kSecret));
  sends_difference_ = options_.downlink != "float32" && options_.downlink != "bf16";
  state_.codec = codec;
  if (state_.model.empty()) start_state();
  check_state();
  for (size_t i = 0; i < federation_.workers.size(); ++i) encoders_.push_back(make_encoder(federation_, codec, secret_, 1));
  if (options_.error_feedback) {
    errors_.resize(federation_.clients.size());
    for (size_t i = 0; i < federation_.workers.size(); ++i) own_decoders_.emplace_back(federation_.task.manifest(), secret_);
  }
  downlink_encoder_.emplace(make_encoder(federation_, options_.downlink, secret_, options_.threads));
  gradient::DecodeOptions decode_options;
  decode_options.threads = options_.threads;
  decoder_.emplace(federation_.task.manifest(), secret_, decode_options);
  downlink_message_.resize(downlink_encoder_->max_bytes());
  base_.resize(federation_.parameters);
  average_.resize(federation_.parameters);
  if (sends_difference_) {
    gradient::Encoder whole = make_encoder(federation_, "float32", secret_, options_.threads);
    std::vector<uint8_t> message(whole.max_bytes());
    full_model_bytes_ = whole.encode_message(views(state_.model), ids(0, kServerId, 1), message);
  }
}

void CodecRun::start_state() {
  state_.model.resize(federation_.parameters);
  federation_.task.initialise(derive_seed(options_.seed, Draw::kInit), state_.model);
  if (sends_difference_) {
    state_.client_model = state_.model;  // drawn from the seed by every client itself
    state_.heard.assign(federation_.clients.size(), 0);
  }
}

void CodecRun::check_state() const {
  const uint64_t n = federation_.parameters;
  const auto fits = [n](const std::vector<float>& v) { return v.empty() || v.size() == n; };
  bool good = state_.model.size() == n && fits(state_.server.first) && fits(state_.server.second);
  good = good && state_.client_model.size() == (sends_difference_ ? n : 0);
  good = good && state_.downlink_rounds.size() == (sends_difference_ ? state_.round : 0);
  good = good && state_.heard.size() == (sends_difference_ ? federation_.clients.size() : 0);
  for (const uint64_t round : state_.heard) good = good && round <= state_.round;
  if (!good) {
    fail(ErrorCode::kCorruptData, options_.checkpoint, ": the state of codec ", state_.codec,
         " does not have the sizes of task ", federation_.task.name(), " (", n, " parameters, ", federation_.clients.size(),
         " clients)");
  }
}

bool CodecRun::stopped() const {
  if (!stop_seen_ && callbacks_.stopped && callbacks_.stopped()) stop_seen_ = true;
  return stop_seen_;
}

gradient::MessageIds CodecRun::ids(uint64_t round, uint64_t client, uint64_t weight) const {
  return {.run = run_id_, .round = round, .client = client, .base_model_hash = base_hash_, .weight = weight};
}

std::vector<std::span<float>> CodecRun::tensors(std::span<float> model) const {
  std::vector<std::span<float>> result;
  size_t offset = 0;
  for (const gradient::TensorInfo& info : federation_.task.manifest()) {
    result.push_back(model.subspan(offset, info.count()));
    offset += info.count();
  }
  return result;
}

std::vector<TensorView> CodecRun::views(std::span<const float> model) const {
  std::vector<TensorView> result;
  size_t offset = 0;
  for (const gradient::TensorInfo& info : federation_.task.manifest()) {
    result.emplace_back(model.subspan(offset, info.count()));
    offset += info.count();
  }
  return result;
}

bool CodecRun::play_round() {
  const auto start = Clock::now();
  const uint64_t round = state_.round + 1;
  choose_clients(round);
  const uint64_t downlink_message_bytes = send_model(round);
  parallel_for(chosen_.size(), static_cast<int>(federation_.workers.size()), [&](size_t i, int worker) {
    if (!stopped()) train_client(chosen_[i], round, worker);
    if (callbacks_.on_progress) callbacks_.on_progress(1);
  });
  if (stopped()) return false;
  // From here to the end nothing is abandoned.
  if (average_updates(round)) server_step(options_, average_, state_.model, state_.server);
  count_round(round, downlink_message_bytes);
  state_.round = round;
  state_.seconds += seconds_since(start);
  return true;
}

bool CodecRun::serve_round(RemoteRanks& ranks) {
  if (stopped()) return false;
  const auto start = Clock::now();
  const uint64_t round = state_.round + 1;
  choose_clients(round);
  const uint64_t downlink_message_bytes = send_model(round);
  for (const int rank : ranks.begin_round(state_.round, state_.client_model)) {
    if (callbacks_.on_warning) callbacks_.on_warning(str("round ", round, ": rank ", rank, " answers again"));
  }
  std::vector<uint64_t> slots;
  for (size_t i = 0; i < chosen_.size(); ++i) {
    if (!chosen_[i].vanished) slots.push_back(i);
  }
  ranks.send_round(round, slots, std::span(downlink_message_).first(downlink_message_bytes));
  collect_clients(round, ranks);
  // A stop ends the ranks that train as well: what they did not send is not missing, the round is not complete.
  if (stopped() || ranks.all_lost()) return false;
  if (aggregator_->finish_round()) server_step(options_, average_, state_.model, state_.server);
  count_round(round, downlink_message_bytes);
  state_.round = round;
  state_.seconds += seconds_since(start);
  return true;
}

// average_ = sum of the updates of chosen_ in their order; marks those that are not in it.
void CodecRun::collect_clients(uint64_t round, RemoteRanks& ranks) {
  if (!aggregator_) {
    gradient::AggregatorOptions options;
    options.threads = options_.threads;
    options.max_norm = ranks.server().max_norm;
    options.codec = uplink_policy(state_.codec);
    aggregator_.emplace(federation_.task.manifest(), secret_, options);
  }
  aggregator_->begin_round(ids(round, 0, 1), tensors(average_));
  std::vector<gradient::Sender> senders;
  for (const RemoteRanks::Job& job : ranks.jobs()) {
    const Client& client = chosen_[job.slot];
    senders.push_back({job.rank, client.id, kUpdateTag + static_cast<uint32_t>(job.slot), client.weight});
  }
  gradient::CollectOptions collect;
  collect.stopped = [this] { return stopped(); };
  collect.replace = [&](std::span<gradient::Sender> left, gradient::Refusal why) {
    const std::string told = ranks.replace(left, why == gradient::Refusal::kSilent);
    if (callbacks_.on_warning && !told.empty()) callbacks_.on_warning(str("round ", round, ": rank ", told));
    // Who is accepted or refused is told with the rank that sent it.
    std::copy(left.begin(), left.end(), senders.end() - static_cast<std::ptrdiff_t>(left.size()));
    return ranks.replaced();
  };
  judge_clients(round, senders, collect_updates(ranks.exchange(), senders, ranks.server().timeout, *aggregator_, collect));
  if (callbacks_.on_progress) callbacks_.on_progress(chosen_.size());
}

void CodecRun::judge_clients(uint64_t round, std::span<const gradient::Sender> senders,
                             std::span<const gradient::Verdict> verdicts) {
  if (stopped()) return;
  for (size_t i = 0; i < verdicts.size(); ++i) {
    const gradient::Verdict& v = verdicts[i];
    Client& client = chosen_[senders[i].tag - kUpdateTag];
    client.message_bytes = v.bytes;
    if (v.accepted()) continue;
    const bool absent = v.refusal == gradient::Refusal::kLost || v.refusal == gradient::Refusal::kSilent;
    (absent ? client.vanished : client.refused) = true;
    if (callbacks_.on_warning) {
      callbacks_.on_warning(str("round ", round, ", client ", client.id, " of rank ", senders[i].rank,
                                absent ? ": dropped: " : ": refused: ", v.reason));
    }
  }
}

void CodecRun::follow_from(uint64_t round, std::span<const float> client_model) {
  if (client_model.size() != state_.client_model.size()) {
    fail(ErrorCode::kMismatch, "the server sent a model of ", client_model.size(), " numbers, expected ",
         state_.client_model.size());
  }
  std::copy(client_model.begin(), client_model.end(), state_.client_model.begin());
  state_.round = round;
}

void CodecRun::follow_round(uint64_t round, std::span<const uint64_t> slots, std::span<const uint8_t> downlink,
                            comm::Exchange& exchange) {
  choose_clients(round);
  receive_model(round, downlink);
  state_.round = round;
  follow_more(slots, exchange);
}

void CodecRun::follow_more(std::span<const uint64_t> slots, comm::Exchange& exchange) {
  for (const uint64_t slot : slots) {
    if (slot >= chosen_.size()) fail(ErrorCode::kCorruptData, "message of the server: client ", slot, " of ", chosen_.size());
  }
  std::mutex sending;
  parallel_for(slots.size(), static_cast<int>(federation_.workers.size()), [&](size_t k, int worker) {
    Client& client = chosen_[slots[k]];
    if (!stopped()) train_client(client, state_.round, worker);
    if (stopped()) return;
    // A diverged update has no message: an empty one, which the server refuses.
    const std::lock_guard lock(sending);
    exchange.send(0, kUpdateTag + static_cast<uint32_t>(slots[k]),
                  {client.message.begin(), client.message.begin() + static_cast<std::ptrdiff_t>(client.message_bytes)});
    if (callbacks_.on_progress) callbacks_.on_progress(1);
  });
  if (stopped()) fail(ErrorCode::kCancelled, "interrupted");
}

void CodecRun::choose_clients(uint64_t round) {
  const std::vector<uint32_t> chosen =
      sample_clients(federation_.sizes, options_.clients_per_round, options_.sampling, options_.seed, round);
  CounterRng drop(derive_seed(options_.seed, Draw::kDrop, round));
  chosen_.resize(chosen.size());  // keeps the buffers of the round before
  for (size_t i = 0; i < chosen.size(); ++i) {
    Client& client = chosen_[i];
    client.id = chosen[i];
    client.vanished = drop.next_double() < options_.drop;
    client.refused = false;
    client.weight = options_.weights == Weights::kExamples ? federation_.sizes[client.id] : 1;
    client.message_bytes = 0;
    client.report = {};
  }
}

// Sets base_ to what the clients decode and returns the bytes of the message.
uint64_t CodecRun::send_model(uint64_t round) {
  begin_model();
  if (sends_difference_) {
    for (size_t i = 0; i < base_.size(); ++i) average_[i] = state_.model[i] - base_[i];
  }
  const uint64_t bytes = downlink_encoder_->encode_message(views(sends_difference_ ? average_ : state_.model),
                                                           ids(round, kServerId, 1), downlink_message_);
  decode_model(round, std::span(downlink_message_).first(bytes));
  return bytes;
}

// Sets base_ to the model that the server's message makes.
void CodecRun::receive_model(uint64_t round, std::span<const uint8_t> message) {
  begin_model();
  decode_model(round, message);
  if (sends_difference_) state_.client_model = base_;
}

// What the clients have before the round, and its hash; 0: they need not have any particular model.
void CodecRun::begin_model() {
  if (sends_difference_) base_ = state_.client_model;
  base_hash_ = sends_difference_ ? hash64(bytes_of(base_)) : 0;
}

void CodecRun::decode_model(uint64_t round, std::span<const uint8_t> message) {
  const gradient::MessageIds server = ids(round, kServerId, 1);
  if (sends_difference_) {
    decoder_->decode_add(message, server, 1.0f, tensors(base_), nullptr, "model of the server");
  } else {
    decoder_->decode(message, server, tensors(base_), nullptr, "model of the server");
  }
  base_hash_ = hash64(bytes_of(base_));
}

void CodecRun::train_client(Client& client, uint64_t round, int worker_index) {
  if (client.vanished) return;
  Worker& worker = *federation_.workers[static_cast<size_t>(worker_index)];
  train_locally(client, round, worker);
  if (stopped()) return;
  const std::span<const float> trained = worker.parameters();
  client.difference.resize(base_.size());
  for (size_t i = 0; i < base_.size(); ++i) client.difference[i] = trained[i] - base_[i];
  encode_update(client, round, worker_index);
}

void CodecRun::train_locally(Client& client, uint64_t round, Worker& worker) {
  std::copy(base_.begin(), base_.end(), worker.parameters().begin());
  CounterRng order(derive_seed(options_.seed, Draw::kOrder, round, client.id));
  CounterRng dropout(derive_seed(options_.seed, Draw::kDropout, round, client.id));
  std::vector<uint32_t> examples = federation_.clients[client.id];
  const auto rate = static_cast<float>(options_.client_lr);
  for (uint64_t epoch = 0; epoch < options_.local_epochs; ++epoch) {
    shuffle(examples, order);
    for (size_t at = 0; at < examples.size(); at += options_.batch) {
      if (stopped()) return;
      worker.step(std::span(examples).subspan(at, std::min<size_t>(options_.batch, examples.size() - at)), rate, dropout);
    }
  }
}

void CodecRun::encode_update(Client& client, uint64_t round, int worker_index) {
  const double norm2 = squared_norm(client.difference);
  if (!std::isfinite(norm2)) {
    client.refused = true;  // training diverged; the encoder would refuse NaN too
    return;
  }
  if (options_.clip > 0 && norm2 > options_.clip * options_.clip) {
    const auto factor = static_cast<float>(options_.clip / std::sqrt(norm2));
    for (float& v : client.difference) v *= factor;
  }
  if (options_.error_feedback) return encode_with_feedback(client, round, worker_index);
  gradient::Encoder& encoder = encoders_[static_cast<size_t>(worker_index)];
  client.message.resize(encoder.max_bytes());
  client.message_bytes =
      encoder.encode_message(views(client.difference), ids(round, client.id, client.weight), client.message, &client.report);
}

// The client sends its difference and what its last message lost; what this one loses is kept once the round is complete.
void CodecRun::encode_with_feedback(Client& client, uint64_t round, int worker_index) {
  const std::vector<float>& before = errors_[client.id];
  client.kept = client.difference;
  for (size_t i = 0; i < before.size(); ++i) client.kept[i] += before[i];
  gradient::Encoder& encoder = encoders_[static_cast<size_t>(worker_index)];
  client.message.resize(encoder.max_bytes());
  const gradient::MessageIds own = ids(round, client.id, client.weight);
  client.message_bytes = encoder.encode_message(views(client.kept), own, client.message, &client.report);
  own_decoders_[static_cast<size_t>(worker_index)].decode_add(std::span(client.message).first(client.message_bytes), own, -1.0f,
                                                              tensors(client.kept));
}

// average_ = weighted mean of what the messages decode to. False if there is none.
bool CodecRun::average_updates(uint64_t round) {
  double total_weight = 0;
  while (!add_messages(round, total_weight)) {
  }
  if (total_weight == 0) return false;
  const auto scale = static_cast<float>(1 / total_weight);
  for (float& v : average_) v *= scale;
  return true;
}

// One pass over the messages in client order. A message that proves corrupt is marked, and false asks for another pass without
// it.
bool CodecRun::add_messages(uint64_t round, double& total_weight) {
  total_weight = 0;
  std::fill(average_.begin(), average_.end(), 0.0f);
  for (Client& client : chosen_) {
    if (client.vanished || client.refused) continue;
    const auto message = std::span(client.message).first(client.message_bytes);
    try {
      decoder_->decode_add(message, ids(round, client.id, client.weight), static_cast<float>(client.weight), tensors(average_));
    } catch (const Error& e) {
      client.refused = true;
      if (callbacks_.on_warning) callbacks_.on_warning(str("round ", round, ", client ", client.id, ": refused: ", e.what()));
      return false;
    }
    total_weight += static_cast<double>(client.weight);
  }
  return true;
}

void CodecRun::count_round(uint64_t round, uint64_t downlink_message_bytes) {
  if (sends_difference_) {
    state_.client_model = base_;
    state_.downlink_rounds.push_back(downlink_message_bytes);
  }
  for (Client& client : chosen_) {
    ++state_.downloads;
    if (sends_difference_) {
      state_.downlink_bytes += download_bytes(state_.heard[client.id], round, downlink_message_bytes);
      state_.heard[client.id] = round;
    } else {
      state_.downlink_bytes += downlink_message_bytes;
    }
    if (client.vanished) {
      ++state_.dropped;
    } else if (client.refused) {
      ++state_.refused;
    } else {
      ++state_.clients_ok;
      if (options_.error_feedback) errors_[client.id].swap(client.kept);
    }
    if (client.message_bytes == 0) continue;
    ++state_.messages;
    state_.uplink_bytes += client.message_bytes;
    state_.norm2 += client.report.norm2;
    state_.error2 += client.report.error2;
  }
}

// The differences of rounds heard + 1 ... round, or the model as it was before this round whole and then this round's.
uint64_t CodecRun::download_bytes(uint64_t heard, uint64_t round, uint64_t message_bytes) const {
  uint64_t missed = 0;
  for (uint64_t r = heard + 1; r < round; ++r) missed += state_.downlink_rounds[r - 1];
  return std::min(missed, full_model_bytes_) + message_bytes;
}

bool CodecRun::evaluate() {
  const auto start = Clock::now();
  const uint64_t examples = federation_.task.test_examples();
  const size_t chunks = (examples + kTestChunk - 1) / kTestChunk;
  std::vector<TestSum> sums(chunks);
  for (const auto& worker : federation_.workers)
    std::copy(state_.model.begin(), state_.model.end(), worker->parameters().begin());
  parallel_for(chunks, static_cast<int>(federation_.workers.size()), [&](size_t i, int worker) {
    if (stopped()) return;
    const uint64_t first = i * kTestChunk;
    sums[i] = federation_.workers[static_cast<size_t>(worker)]->evaluate(first, std::min(kTestChunk, examples - first));
  });
  if (stopped()) return false;
  TestSum total;
  for (const TestSum& sum : sums) {
    total.examples += sum.examples;
    total.correct += sum.correct;
    total.loss += sum.loss;
  }
  state_.seconds += seconds_since(start);
  const auto n = static_cast<double>(std::max<uint64_t>(total.examples, 1));
  state_.evaluations.push_back({.codec = state_.codec,
                                .round = state_.round,
                                .accuracy = static_cast<double>(total.correct) / n,
                                .loss = total.loss / n,
                                .uplink_bytes = state_.uplink_bytes,
                                .downlink_bytes = state_.downlink_bytes,
                                .clients_ok = state_.clients_ok,
                                .dropped = state_.dropped,
                                .refused = state_.refused,
                                .seconds = state_.seconds});
  return true;
}

void CodecRun::report_updates() const {
  if (!callbacks_.on_update) return;
  for (const Client& client : chosen_) {
    if (!client.vanished && !client.refused) callbacks_.on_update({client.id, federation_.sizes[client.id], client.difference});
  }
}

}  // namespace kpd::train
