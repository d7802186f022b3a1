// tools: `kpd inspect MODEL`: architecture and tokenizer (inspect_language.h).
#include "inspect_language.h"

#include <filesystem>
#include <optional>

#include <fmt/format.h>

#include "inspect_model.h"
#include "kpd/base/error.h"
#include "kpd/io/gguf.h"
#include "kpd/llm/model_description.h"
#include "kpd/text/tokenizer.h"
#include "model_options.h"

namespace kpd::tool {
namespace {

namespace fs = std::filesystem;

using Json = nlohmann::ordered_json;

// The tokenizer, if the files have one.
std::optional<text::Tokenizer> find_tokenizer(const std::string& path, const io::Weights& weights) {
  std::error_code ignored;
  const bool in_folder = fs::exists(fs::path(path) / "tokenizer.json", ignored);
  const bool in_gguf = weights.gguf() && weights.gguf()->find("tokenizer.ggml.model") != nullptr;
  if (!in_folder && !in_gguf) return std::nullopt;
  return load_tokenizer(path, weights.gguf().get());
}

Json id_json(const text::Tokenizer& tokenizer, std::optional<text::TokenId> id) {
  return id ? Json{{"id", *id}, {"token", std::string(tokenizer.token(*id))}} : Json();
}

Json tokenizer_json(const text::Tokenizer& tokenizer) {
  return {{"tokens", tokenizer.vocabulary_size()},
          {"bos", id_json(tokenizer, tokenizer.bos())},
          {"eos", id_json(tokenizer, tokenizer.eos())},
          {"adds_bos", tokenizer.adds_bos()},
          {"chat_template", !tokenizer.chat_template().empty()},
          {"notes", Json(std::vector<std::string>(tokenizer.notes().begin(), tokenizer.notes().end()))}};
}

std::string tokenizer_text(const text::Tokenizer& tokenizer) {
  const auto token = [&](std::optional<text::TokenId> id) {
    return id ? fmt::format("{} '{}'", *id, printable(std::string(tokenizer.token(*id)))) : std::string("none");
  };
  std::string text = fmt::format("tokenizer of {} tokens, BOS {}{}, EOS {}, {}\n", tokenizer.vocabulary_size(),
                                 token(tokenizer.bos()), tokenizer.adds_bos() ? " (put first)" : "", token(tokenizer.eos()),
                                 tokenizer.chat_template().empty() ? "no chat template" : "a chat template");
  for (const std::string& note : tokenizer.notes()) text += fmt::format("note: {}\n", note);
  return text;
}

Json description_json(const llm::ModelDescription& d) {
  return {{"family", d.family},
          {"n_layers", d.layers.size()},
          {"d_model", d.d_model},
          {"n_heads", d.layers.front().n_heads},
          {"n_kv_heads", d.layers.front().n_kv_heads},
          {"head_dim", d.layers.front().key_dim},
          {"d_ff", d.layers.front().d_ff},
          {"n_vocabulary", d.n_vocabulary},
          {"context", d.max_context},
          {"tied_head", d.tied_head},
          {"rope", d.ropes.empty() ? "none" : llm::rope_kind_name(d.ropes[0].kind)}};
}

std::string description_text(const llm::ModelDescription& d) {
  return fmt::format("{}: {} layers, width {}, {} heads of {} ({} of keys and values), MLP {}, vocabulary {}{}\n", d.family,
                     d.layers.size(), d.d_model, d.layers.front().n_heads, d.layers.front().key_dim,
                     d.layers.front().n_kv_heads, d.layers.front().d_ff, d.n_vocabulary,
                     d.tied_head ? ", head tied to the embedding" : "") +
         fmt::format("context {}, rope {}\n", d.max_context, d.ropes.empty() ? "none" : llm::rope_kind_name(d.ropes[0].kind));
}

}  // namespace

LanguageFacts language_facts(const std::string& path, const io::Weights& weights) {
  LanguageFacts facts;
  // What no model of ours is can be looked at all the same.
  try {
    if (const std::optional<llm::ModelDescription> description = llm::describe_weights(weights)) {
      facts.description = description_json(*description);
      facts.description_text = description_text(*description);
    }
  } catch (const Error& error) {
    if (error.code() != ErrorCode::kUnsupported) throw;
    facts.problem = error.what();
  }
  if (const std::optional<text::Tokenizer> tokenizer = find_tokenizer(path, weights)) {
    facts.tokenizer = tokenizer_json(*tokenizer);
    facts.tokenizer_text = tokenizer_text(*tokenizer);
  } else if (!facts.description_text.empty()) {
    facts.tokenizer_text = "no tokenizer\n";
  }
  return facts;
}

}  // namespace kpd::tool
