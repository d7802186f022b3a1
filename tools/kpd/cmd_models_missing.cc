// tools: the commands of language models in a build without kpd::llm: each says what is missing and how to get it. Their names
// and summaries are those of cmd_NAME.cc (tests/package/without_llm.sh compares them).
#include "cli.h"
#include "commands.h"

namespace kpd::tool {
namespace {

constexpr const char* kMissing =
    "this build has no language models (kpd::llm needs PCRE2, the program's server cpp-httplib). Get them: install "
    "libpcre2-dev and libcpp-httplib-dev, configure kpd's sources with -DKPD_WITH_LLM=ON and build again";

Command missing(const char* name, const char* summary) {
  Command command;
  command.name = name;
  command.summary = str(summary, " (not in this build)");
  command.example = {str("kpd ", name, " --help")};
  command.missing_component = true;
  command.setup = [](CLI::App& app) -> std::function<int()> {
    describe(app, kMissing);
    return []() -> int { fail(ErrorCode::kIo, kMissing); };
  };
  return command;
}

}  // namespace

Command eval_command() {
  return missing("eval", "perplexity of a language model on a text, divergence from a reference, tasks");
}
Command generate_command() { return missing("generate", "text from a language model: continue a prompt, answer, or converse"); }
Command serve_command() { return missing("serve", "answer OpenAI's HTTP interface with a language model"); }
Command bench_command() { return missing("bench", "speed of a language model: reading a prompt, generating"); }
Command plan_command() { return missing("plan", "bytes of a language model's weights and cache, and what holds them"); }
Command export_command() {
  return missing("export", "write a model as a Hugging Face folder or a GGUF file, or its tokenizer alone");
}

}  // namespace kpd::tool
