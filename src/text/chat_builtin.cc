// text: the usual form of seven families' chat templates, by name. A model's own template is to be preferred: families have
// several that differ in a space or in what they do with a system message.
#include "text/chat_builtin.h"

#include <algorithm>

namespace kpd::text {
namespace {

constexpr std::string_view kNames[] = {"chatml", "llama2", "llama3", "mistral", "gemma", "phi3", "qwen"};

constexpr std::string_view kChatMl = R"({% for m in messages %}
{{ '<|im_start|>' + m.role + '\n' + m.content + '<|im_end|>\n' }}
{%- endfor %}
{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %})";

// What goes before the templates of families in which a system message comes first, then the user's and the assistant's in
// turn.
constexpr std::string_view kTurns = R"({% set start = 1 if messages[0].role == 'system' else 0 %}
{% if messages|length == start %}
{{ raise_exception('the template ' ~ family ~ ' needs a message of the user') }}
{% endif %}
{% set turns = messages[start:] %}
{% for m in turns %}
{% if m.role != ('user' if loop.index is odd else 'assistant') %}
{{ raise_exception('message ' ~ (loop.index0 + start) ~ ' is of ' ~ m.role ~ ', the template ' ~ family ~ ' needs user and assistant in turn') }}
{% endif %}
{% endfor %}
)";

constexpr std::string_view kLlama2 = R"({% for m in turns %}
{% set text = '<<SYS>>\n' ~ messages[0].content ~ '\n<</SYS>>\n\n' ~ m.content if loop.first and start else m.content %}
{% if m.role == 'user' %}{{ bos_token ~ '[INST] ' ~ text.strip() ~ ' [/INST]' }}
{%- else %}{{ ' ' ~ text.strip() ~ ' ' ~ eos_token }}{% endif %}
{% endfor %})";

constexpr std::string_view kLlama3 = R"({{ bos_token }}
{%- for m in messages %}
{{ '<|start_header_id|>' + m.role + '<|end_header_id|>\n\n' + m.content.strip() + '<|eot_id|>' }}
{%- endfor %}
{% if add_generation_prompt %}{{ '<|start_header_id|>assistant<|end_header_id|>\n\n' }}{% endif %})";

constexpr std::string_view kMistral = R"({{ bos_token }}
{%- for m in turns %}
{% set text = messages[0].content ~ '\n\n' ~ m.content if loop.first and start else m.content %}
{% if m.role == 'user' %}{{ '[INST] ' ~ text ~ ' [/INST]' }}{% else %}{{ m.content ~ eos_token }}{% endif %}
{% endfor %})";

constexpr std::string_view kGemma = R"({{ bos_token }}
{%- for m in turns %}
{{ '<start_of_turn>' ~ ('model' if m.role == 'assistant' else m.role) ~ '\n' }}
{%- if loop.first and start %}{{ messages[0].content ~ '\n\n' }}{% endif %}
{{ m.content.strip() ~ '<end_of_turn>\n' }}
{%- endfor %}
{% if add_generation_prompt %}{{ '<start_of_turn>model\n' }}{% endif %})";

constexpr std::string_view kPhi3 = R"({% for m in messages %}
{{ '<|' + m.role + '|>\n' + m.content + '<|end|>\n' }}
{%- endfor %}
{% if add_generation_prompt %}{{ '<|assistant|>\n' }}{% endif %})";

struct Row {
  std::string_view name, source;
  bool turns;
};
constexpr Row kRows[] = {{"chatml", kChatMl, false},  {"llama2", kLlama2, true}, {"llama3", kLlama3, false},
                         {"mistral", kMistral, true}, {"gemma", kGemma, true},   {"phi3", kPhi3, false},
                         {"qwen", kChatMl, false}};

}  // namespace

std::optional<std::string> built_in_chat_template(std::string_view name) {
  const auto* row = std::find_if(std::begin(kRows), std::end(kRows), [&](const Row& r) { return r.name == name; });
  if (row == std::end(kRows)) return std::nullopt;
  std::string source;
  if (row->turns) source.append("{% set family = '").append(name).append("' %}").append(kTurns);
  return source.append(row->source);
}

std::span<const std::string_view> built_in_chat_names() { return kNames; }

}  // namespace kpd::text
