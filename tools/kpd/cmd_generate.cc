// tools: `kpd generate`, text from a language model: a prompt continued, one answer, or a conversation.
#include <sys/resource.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <iostream>
#include <memory>
#include <optional>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "cli.h"
#include "commands.h"
#include "kpd/io/file.h"
#include "kpd/llm/chat.h"
#include "kpd/llm/generate.h"
#include "kpd/llm/text_file.h"
#include "model_options.h"
#include "signals.h"

namespace kpd::tool {
namespace {

struct GenerateArgs {
  CommonOptions common;
  ModelOptions model;
  std::string path, prompt, prompt_file, system, ctx, max_tokens, temperature, top_k, top_p, min_p, repeat_penalty, kv,
      chat_template;
  std::vector<std::string> stop;
  bool chat = false, ignore_eos = false, context_shift = false, has_prompt = false;
};

llm::SamplingOptions sampling(const GenerateArgs& args) {
  llm::SamplingOptions o;
  std::error_code ignored;
  if (std::filesystem::is_directory(args.path, ignored)) o = llm::sampling_of_folder(args.path, o);
  if (!args.temperature.empty()) o.temperature = parse_real("--temperature", args.temperature, 0, 100);
  if (!args.top_k.empty()) o.top_k = parse_count("--top-k", args.top_k, 0, 1 << 24);
  if (!args.top_p.empty()) o.top_p = parse_real("--top-p", args.top_p, 0, 1);
  if (!args.min_p.empty()) o.min_p = parse_real("--min-p", args.min_p, 0, 1);
  if (!args.repeat_penalty.empty()) o.repeat_penalty = parse_real("--repeat-penalty", args.repeat_penalty, 0.01, 100);
  as_usage("sampling", [&] { llm::check_sampling(o); });
  for (const auto& [name, value] :
       {std::pair("--top-k", &args.top_k), std::pair("--top-p", &args.top_p), std::pair("--min-p", &args.min_p)}) {
    if (o.temperature == 0 && !value->empty())
      usage(name, " ", *value, ": needs --temperature above 0; at 0 the likeliest token is taken");
  }
  if (o.temperature > 0) o.seed = args.common.seed();
  return o;
}

uint64_t peak_rss_bytes() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return static_cast<uint64_t>(usage.ru_maxrss) * 1024;
}

std::string read_prompt(const GenerateArgs& args) {
  if (args.prompt_file.empty()) return args.prompt;
  const io::MappedFile file = io::map_file(args.prompt_file);
  return llm::prompt_of_file({reinterpret_cast<const char*>(file.bytes().data()), file.bytes().size()});
}

// One model, its cache and what the cache holds.
class Session {
 public:
  Session(const GenerateArgs& args, const llm::SamplingOptions& sampling, int threads)
      : args_(args), loaded_(load_model(args.path, args.model.arithmetic(llm::Arithmetic::kFast), threads)) {
    const size_t trained = loaded_.model.description().max_context;
    options_.context = args.ctx.empty() ? std::min<size_t>(trained, 8192) : parse_count("--ctx", args.ctx, 2, 1 << 24);
    if (options_.context > trained)
      fmt::print(stderr, "note: --ctx {} is more than the {} that the model was trained for\n", options_.context, trained);
    options_.max_tokens = parse_count("--max-tokens", args.max_tokens.empty() ? "256" : args.max_tokens, 1, 1 << 24);
    options_.chunk = args.model.chunk();
    options_.ignore_eos = args.ignore_eos;
    options_.opens_text = args.chat;
    options_.context_shift = args.context_shift;
    options_.stop = args.stop;
    options_.sampling = sampling;
    cache_ = as_usage("--kv", [&] { return loaded_.model.make_cache(args.kv.empty() ? "f16" : args.kv, options_.context); });
  }

  // For answers that go on from one another: the cache keeps what the first of them rotated.
  void plan_whole_context() { loaded_.model.set_planned_context(options_.context); }

  const llm::Tokenizer& tokenizer() const { return loaded_.tokenizer; }
  double load_seconds() const { return loaded_.seconds; }

  llm::ChatFamily family() const {
    if (!args_.chat_template.empty()) return as_usage("--chat-template", [&] { return llm::chat_family(args_.chat_template); });
    return llm::recognise_chat_template(tokenizer().chat_template());
  }

  // The answer to a whole prompt; what the cache holds of it already is not computed again.
  llm::Generated answer(const std::vector<llm::TokenId>& prompt, bool print) {
    size_t same = 0;
    while (same < held_.size() && same + 1 < prompt.size() && held_[same] == prompt[same]) ++same;
    cache_->crop(0, same);
    const auto rest = std::span(prompt).subspan(same);
    const llm::Generated g =
        llm::generate(loaded_.model, loaded_.tokenizer, *cache_, 0, rest, options_, [&](std::string_view text) {
          if (print && !text.empty()) {
            std::fwrite(text.data(), 1, text.size(), stdout);
            std::fflush(stdout);
          }
          return !interrupted();
        });
    held_ = prompt;
    held_.insert(held_.end(), g.token_ids.begin(), g.token_ids.end());
    // A shifted context no longer holds the conversation's start.
    held_.resize(options_.context_shift ? 0 : std::min(held_.size(), cache_->length(0)));
    return g;
  }

 private:
  const GenerateArgs& args_;
  LoadedModel loaded_;
  llm::GenerateOptions options_;
  std::unique_ptr<llm::KvCache> cache_;
  std::vector<llm::TokenId> held_;
};

double per_second(size_t n, double seconds) { return seconds > 0 ? static_cast<double>(n) / seconds : 0; }

void report(const llm::Generated& g, const Session& session, bool json) {
  const double prefill = per_second(g.prompt_tokens, g.prefill_seconds);
  const double decode = per_second(g.tokens > 0 ? g.tokens - 1 : 0, g.decode_seconds);
  if (json) {
    nlohmann::ordered_json object = {{"text", g.text},
                                     {"prompt_tokens", g.prompt_tokens},
                                     {"tokens", g.tokens},
                                     {"finish_reason", llm::finish_reason_name(g.reason)},
                                     {"prefill_tokens_per_s", prefill},
                                     {"decode_tokens_per_s", decode},
                                     {"load_seconds", session.load_seconds()},
                                     {"peak_rss_bytes", peak_rss_bytes()}};
    fmt::print("{}\n", object.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace));
    return;
  }
  fmt::print(stderr, "\n{} prompt tokens at {:.1f} tokens/s, {} tokens at {:.1f} tokens/s, ended by {}\n", g.prompt_tokens,
             prefill, g.tokens, decode, llm::finish_reason_name(g.reason));
}

int converse(const GenerateArgs& args, Session& session) {
  const llm::ChatFamily family = session.family();
  session.plan_whole_context();
  std::vector<llm::ChatMessage> messages;
  if (!args.system.empty()) messages.push_back({"system", args.system});
  std::string line;
  for (;;) {
    fmt::print(stderr, "> ");
    if (!std::getline(std::cin, line) || interrupted()) break;
    if (line.empty()) continue;
    messages.push_back({"user", line});
    const std::string prompt = llm::render_chat(family, session.tokenizer(), messages);
    const llm::Generated g =
        session.answer(session.tokenizer().encode(prompt, {.add_special = false, .parse_special = true}), true);
    fmt::print("\n");
    std::fflush(stdout);
    if (interrupted()) break;
    messages.push_back({"assistant", g.text});
  }
  fmt::print(stderr, "\n");
  return interrupted() ? kExitInterrupt : kExitOk;
}

int run_generate(const GenerateArgs& args) {
  if (args.path.empty()) usage("MODEL is required: a GGUF file or a Hugging Face folder");
  if (args.has_prompt && !args.prompt_file.empty()) usage("--prompt and --prompt-file: give one of them");
  const bool given = args.has_prompt || !args.prompt_file.empty();
  if (!given && !args.chat) usage("--prompt TEXT or --prompt-file FILE is required, or --chat for a conversation");
  if (!given && args.common.json) usage("--json belongs to a prompt; a conversation is shown as it goes");
  if (!args.system.empty() && !args.chat) usage("--system belongs to --chat");
  if (!args.chat_template.empty() && !args.chat) usage("--chat-template belongs to --chat");
  const std::string text = given ? read_prompt(args) : "";
  const llm::SamplingOptions drawn = sampling(args);  // before the model is read
  const DeferInterrupt defer(true);
  Session session(args, drawn, args.common.threads());
  if (!given) return converse(args, session);
  std::vector<llm::TokenId> prompt;
  if (args.chat) {
    std::vector<llm::ChatMessage> messages;
    if (!args.system.empty()) messages.push_back({"system", args.system});
    messages.push_back({"user", text});
    prompt = session.tokenizer().encode(llm::render_chat(session.family(), session.tokenizer(), messages),
                                        {.add_special = false, .parse_special = true});
  } else {
    prompt = session.tokenizer().encode(text);
  }
  const llm::Generated g = as_usage("--prompt", [&] { return session.answer(prompt, !args.common.json); });
  if (!args.common.json) fmt::print("\n");
  std::fflush(stdout);
  report(g, session, args.common.json);
  return interrupted() ? kExitInterrupt : kExitOk;
}

}  // namespace

Command generate_command() {
  return {"generate",
          "text from a language model: continue a prompt, answer, or converse",
          {"kpd generate MODEL.gguf --chat --prompt \"What is a hadamard matrix?\" --max-tokens 64"},
          [](CLI::App& app) {
            auto args = std::make_shared<GenerateArgs>();
            add_positional(app, "MODEL", args->path, "GGUF file or Hugging Face folder");
            CLI::Option* prompt = add(app, "--prompt", args->prompt, "TEXT", "text to continue, or with --chat to answer");
            add(app, "--prompt-file", args->prompt_file, "FILE", "the same from a file, without the end of its last line");
            add(app, "--chat", args->chat, "put the prompt into the model's chat template; without a prompt, converse");
            add(app, "--system", args->system, "TEXT", "system message of a chat");
            add(app, "--chat-template", args->chat_template, "NAME",
                "chatml, llama2, llama3, mistral, gemma, phi3 or qwen (default: recognised)");
            add(app, "--ctx", args->ctx, "N", "tokens of prompt and answer (default: the model's, at most 8192)");
            add(app, "--max-tokens", args->max_tokens, "N", "tokens of the answer (default 256)");
            add(app, "--temperature", args->temperature, "T",
                "0 takes the likeliest token (default: generation_config.json, else 0)");
            add(app, "--top-k", args->top_k, "K", "draw from the K likeliest (0: all); needs --temperature above 0");
            add(app, "--top-p", args->top_p, "P", "draw from the likeliest that make up P; needs --temperature above 0");
            add(app, "--min-p", args->min_p, "P",
                "leave out what is less likely than P times the likeliest; needs --temperature above 0");
            add(app, "--repeat-penalty", args->repeat_penalty, "R", "above 1: what occurred already becomes less likely");
            add(app, "--stop", args->stop, "TEXT", "end before this text; may be given several times");
            add(app, "--ignore-eos", args->ignore_eos, "go on at the end-of-text token");
            add(app, "--context-shift", args->context_shift, "at a full context drop the older half instead of ending");
            add(app, "--kv", args->kv, "SPEC", "cache of keys and values: f16 (default), bf16, f32");
            args->model.add_arithmetic(app, "fast");
            args->model.add_chunk(app);
            args->common.add_seed(app);
            args->common.add_threads(app);
            args->common.add_json(app);
            return [args, prompt] {
              args->has_prompt = was_given(prompt);
              return run_generate(*args);
            };
          }};
}

}  // namespace kpd::tool
