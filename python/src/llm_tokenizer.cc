// python: kpd.llm's tokenizer and chat templates over kpd/text.
#include <algorithm>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include "llm.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace kpd::python {
namespace {

using Ids = std::vector<text::TokenId>;
using text::Tokenizer;

std::shared_ptr<Tokenizer> load(const std::string& path) {
  const nb::gil_scoped_release release;
  std::error_code ignored;
  if (std::filesystem::is_directory(path, ignored)) return std::make_shared<Tokenizer>(Tokenizer::from_directory(path));
  return std::make_shared<Tokenizer>(Tokenizer::from_gguf(io::load_gguf_metadata(path)));
}

Ids encode(const Tokenizer& tokenizer, const std::string& text, bool add_special, bool parse_special) {
  const nb::gil_scoped_release release;
  return tokenizer.encode(text, {add_special, parse_special});
}

std::string decode(const Tokenizer& tokenizer, const Ids& ids, bool skip_special) {
  const nb::gil_scoped_release release;
  return tokenizer.decode(ids, skip_special);
}

nb::bytes token_bytes(const Tokenizer& tokenizer, text::TokenId id) {
  const std::string bytes = tokenizer.token_bytes(id);
  return nb::bytes(bytes.data(), bytes.size());
}

// The model's own, a built-in one, one of several that the model brings, or Jinja source.
text::ChatTemplate choose(const Tokenizer& tokenizer, const std::optional<std::string>& asked) {
  if (!asked) return text::ChatTemplate::of_model(tokenizer);
  const auto names = text::ChatTemplate::names();
  if (std::find(names.begin(), names.end(), *asked) != names.end()) return text::ChatTemplate::built_in(*asked);
  for (const text::NamedTemplate& named : tokenizer.named_chat_templates()) {
    if (named.name == *asked) return text::ChatTemplate::from_source(named.source);
  }
  if (asked->find('{') != std::string::npos) return text::ChatTemplate::from_source(*asked);
  return text::ChatTemplate::built_in(*asked);  // the error that lists the names
}

using Message = std::tuple<std::string, std::string, std::string>;  // role, content, reasoning_content

// The prompt, and its tokens.
std::pair<std::string, Ids> render(const Tokenizer& tokenizer, const std::vector<Message>& messages,
                                   const std::optional<std::string>& chosen, std::optional<bool> thinking,
                                   const std::optional<std::string>& date, bool generation_prompt,
                                   const std::string& variables) {
  const nb::gil_scoped_release release;
  std::vector<text::ChatMessage> conversation;
  for (const auto& [role, content, reasoning] : messages) conversation.push_back({role, content, {}, reasoning});
  text::ChatOptions options;
  options.add_generation_prompt = generation_prompt;
  options.thinking = thinking;
  if (date) options.now = text::parse_chat_date(*date);
  options.variables_json = variables;
  const text::ChatPrompt prompt = choose(tokenizer, chosen).render(tokenizer, conversation, options);
  return {prompt.text, tokenizer.encode(prompt.text, prompt.foreign)};
}

}  // namespace

void bind_llm_tokenizer(nb::module_& m) {
  nb::class_<Tokenizer>(m, "Tokenizer")
      .def_static("load", &load, "path"_a)
      .def("encode", &encode, "text"_a, "add_special"_a, "parse_special"_a)
      .def("decode", &decode, "ids"_a, "skip_special"_a)
      .def(
          "token", [](const Tokenizer& t, text::TokenId id) { return nb::bytes(t.token(id).data(), t.token(id).size()); },
          "id"_a)
      .def("token_bytes", &token_bytes, "id"_a)
      .def(
          "find", [](const Tokenizer& t, const std::string& token) { return t.find(token); }, "token"_a)
      .def("is_special", &Tokenizer::is_special, "id"_a)
      .def("render", &render, "messages"_a, "template"_a.none(), "thinking"_a.none(), "date"_a.none(), "generation_prompt"_a,
           "variables"_a)
      .def_prop_ro("vocabulary_size", &Tokenizer::vocabulary_size)
      .def_prop_ro("bos", &Tokenizer::bos)
      .def_prop_ro("eos", &Tokenizer::eos)
      .def_prop_ro("end_of_turn", [](const Tokenizer& t) { return Ids(t.end_of_turn().begin(), t.end_of_turn().end()); })
      .def_prop_ro("adds_bos", &Tokenizer::adds_bos)
      .def_prop_ro("chat_template", &Tokenizer::chat_template)
      .def_prop_ro("notes", [](const Tokenizer& t) { return std::vector<std::string>(t.notes().begin(), t.notes().end()); });
}

}  // namespace kpd::python
