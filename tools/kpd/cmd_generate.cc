// tools: `kpd generate`, text from a language model: a prompt continued, one answer, or a conversation (conversation.cc).
#include <unistd.h>

#include <cstdio>
#include <memory>

#include <fmt/format.h>

#include "commands.h"
#include "conversation.h"
#include "files.h"
#include "generate_session.h"
#include "kpd/io/file.h"
#include "kpd/text/text_file.h"
#include "signals.h"

namespace kpd::tool {
namespace {

std::string read_text(const std::string& path) {
  const io::MappedFile file = map_text(path);
  return text::prompt_of_file(file.text());
}

// What stands on the command line alone; the model's path and the prompt are put where they belong.
void check_arguments(GenerateArgs& args) {
  std::vector<std::string> words;
  args.path = args.which.model(words, 1, "one prompt, please; text with blanks needs quotes");
  if (!words.empty()) {
    if (args.has_prompt) usage("--prompt and a prompt behind MODEL: give one of them");
    args.prompt = words[0];
    args.has_prompt = true;
  }
  if (args.has_prompt && !args.prompt_file.empty()) usage("a prompt and --prompt-file: give one of them");
  if (!args.system.empty() && !args.chat) usage("--system belongs to --chat");
  if (const char* option = args.templates.given(); option && !args.chat) usage(option, " belongs to --chat");
}

// A conversation's first messages.
std::vector<text::ChatMessage> opening(const GenerateArgs& args, const std::string& text) {
  std::vector<text::ChatMessage> messages;
  if (!args.system.empty()) messages.push_back({"system", args.system});
  messages.push_back({"user", text});
  return messages;
}

// One prompt, answered.
int answer_prompt(const GenerateArgs& args, const std::string& text) {
  Session session(args, false);
  const std::vector<text::TokenId> prompt = args.chat ? session.chat_prompt(opening(args, text)) : session.text_prompt(text);
  session.check_fits(prompt.size());
  session.load();
  const DeferInterrupt defer(true);
  const llm::Generated g = session.answer(prompt, !args.common.json);
  if (args.common.json) {
    session.print_json(g);
  } else {
    fmt::print("\n");
  }
  std::fflush(stdout);
  if (!args.common.json) session.print_speeds(g);
  return interrupted() ? kExitInterrupt : kExitOk;
}

int run_generate(GenerateArgs& args) {
  check_arguments(args);
  const bool given = args.has_prompt || !args.prompt_file.empty(), terminal = isatty(0) != 0;
  if (!given && !args.chat && terminal)
    usage("a prompt is required: --prompt TEXT, --prompt-file FILE or standard input, or --chat for a conversation");
  if (!given && terminal) {
    Session session(args, true);
    session.chat_prompt(opening(args, "."));  // a template that cannot be used is said before the weights are read
    session.load();
    const DeferInterrupt defer(true);
    return converse(session, args.system, args.common.json);
  }
  std::string text = args.prompt;
  if (!args.has_prompt) text = read_text(given ? args.prompt_file : "-");
  if (!given && text.empty())
    usage("a prompt is required: --prompt TEXT, --prompt-file FILE or a text on standard input, which is empty");
  return answer_prompt(args, text);
}

}  // namespace

Command generate_command() {
  return {"generate",
          "text from a language model: continue a prompt, answer, or converse",
          {"kpd generate MODEL.gguf --chat --prompt \"What is a hadamard matrix?\" --max-tokens 64 --seed 1",
           "kpd generate -m MODEL.gguf -p \"The licence says\" -n 16 -c 128 -t 2 --temperature 0"},
          [](CLI::App& app) {
            auto args = std::make_shared<GenerateArgs>();
            args->which.add(app, "; behind it a prompt may stand");
            CLI::Option* prompt = add(app, "-p,--prompt", args->prompt, "TEXT",
                                      "text to continue, or with --chat to answer; else it is standard input");
            add(app, "--prompt-file", args->prompt_file, "FILE",
                "the same from a file (-: standard input), without the end of its last line");
            add(app, "--chat", args->chat,
                "put the prompt into the model's chat template; without a prompt, at a terminal, converse");
            add(app, "--system", args->system, "TEXT", "system message of a chat");
            args->templates.add_options(app);
            add(app, "-c,--ctx", args->ctx, "N", "tokens of prompt and answer (default: the model's, at most 8192)");
            add(app, "-n,--max-tokens", args->max_tokens, "N",
                "tokens of the answer (default 256; -1, the default of a conversation: until the context is full)");
            args->sampling.add_options(app);
            add(app, "--stop", args->stop, "TEXT", "end before this text; may be given several times");
            add(app, "--ignore-eos", args->ignore_eos, "go on at the end-of-text token");
            add(app, "--context-shift", args->context_shift, "at a full context drop the older half instead of ending");
            args->cache.add(app);
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
