// text: the interpreter of chat templates: every construct gives what Jinja gives under transformers' set-up, what it cannot do
// is refused with the place, nothing runs without end, and the origin of text is kept.
#include "text/jinja_interpreter.h"

#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "base/expect_error.h"
#include "text/jinja_json.h"

namespace kpd::text::jinja {
namespace {

using Json = nlohmann::ordered_json;

constexpr ChatTime kNow{2026, 12, 1, 9, 5, 7};

Value value_of(const Json& j) {
  if (j.is_null()) return Value::none();
  if (j.is_boolean()) return Value::boolean(j.get<bool>());
  if (j.is_number_integer()) return Value::integer(j.get<int64_t>());
  if (j.is_number_float()) return Value::real(j.get<double>());
  if (j.is_string()) return Value::string(Text(j.get<std::string>(), true));
  if (j.is_array()) {
    std::vector<Value> items;
    for (const Json& item : j) items.push_back(value_of(item));
    return Value::list(std::move(items));
  }
  std::vector<std::pair<Value, Value>> pairs;
  for (const auto& [key, item] : j.items()) pairs.emplace_back(Value::string(key), value_of(item));
  return Value::dict(std::move(pairs));
}

Text run(const std::string& source, const Variables& variables = {}, Environment environment = {.now = kNow}) {
  return render(parse(source), variables, environment);
}

TEST(Jinja, EveryConstructGivesWhatJinjaGives) {
  std::ifstream in(std::string(KPD_TESTS_DIR) + "/golden/chat/constructs.json");
  ASSERT_TRUE(in.is_open());
  const Json golden = Json::parse(in);
  Variables variables;
  for (const auto& [name, value] : golden["variables"].items()) variables.emplace_back(name, value_of(value));
  size_t equal = 0, refused = 0;
  for (const Json& one : golden["cases"]) {
    const std::string source = one["template"].get<std::string>();
    SCOPED_TRACE(source);
    try {
      const std::string text = run(source, variables).bytes();
      ASSERT_TRUE(one["text"].is_string()) << "Jinja refuses it, here it gives " << text;
      EXPECT_EQ(text, one["text"].get<std::string>());
      ++equal;
    } catch (const Error& e) {
      EXPECT_TRUE(one["text"].is_null()) << e.what();
      EXPECT_NE(e.code(), ErrorCode::kUnsupported) << e.what();
      ++refused;
    }
  }
  EXPECT_GT(equal, 170u);
  EXPECT_GT(refused, 80u);
}

TEST(Jinja, WhatIsNotThereIsRefusedWithThePlace) {
  for (const char* source : {"{% include 'x' %}",
                             "{% extends 'x' %}",
                             "{% import 'x' as y %}",
                             "{% from 'x' import y %}",
                             "{% block a %}{% endblock %}",
                             "{% for x in y recursive %}{% endfor %}",
                             "{{ ''.__class__ }}",
                             "{{ 'a'.encode() }}",
                             "{{ 'a'|urlize }}",
                             "{{ 'a'|pprint }}",
                             "{{ [1]|random }}",
                             "{{ lipsum() }}",
                             "{{ self }}",
                             "{{ range }}",
                             "{{ namespace() }}",
                             "{{ 2 ** 64 }}",
                             "{{ 9223372036854775808 }}",
                             "{{ '\\N{BULLET}' }}",
                             "{{ 0x10 }}",
                             "{{ ('<'|safe) + 'a' }}",
                             "{{ 1.real }}",
                             "{{ range.__globals__ }}",
                             "{{ (-8) ** 0.5 }}"}) {
    SCOPED_TRACE(source);
    EXPECT_KPD_ERROR(kUnsupported, "chat template, line 1, column ", run(source));
  }
  EXPECT_KPD_ERROR(kUnsupported, "chat template, line 3, column 6: the filter 'urlize' is not supported",
                   run("a\n\n{{ 1|urlize }}"));
  EXPECT_KPD_ERROR(kInvalidArgument, "line 2, column 5: 'x' is undefined", run("\n{{ x.y }}"));
  EXPECT_KPD_ERROR(kCorruptData, "chat template, line 2, column 4: not valid Jinja: '}' closes nothing", run("\n{% } %}"));
}

TEST(Jinja, WhatIsNotRunMayBeAnything) {
  EXPECT_EQ(run("{% if false %}{{ x|urlize }}{{ 'a'.encode() }}{{ ''.__class__ }}{% endif %}a").bytes(), "a");
}

TEST(Jinja, ATemplatesRefusalIsInItsWords) {
  EXPECT_KPD_ERROR(kInvalidArgument, "the chat template rejected these messages: no ?tools?",
                   run("{{ raise_exception('no \ntools\n') }}"));
}

TEST(Jinja, DatesAreTheGivenOnes) {
  EXPECT_EQ(run("{{ strftime_now('%Y-%m-%d %d %b %Y %B %A %a %-d %e %y %j %H:%M:%S %I %p %F %T %D %u %w %%') }}").bytes(),
            "2026-12-01 01 Dec 2026 December Tuesday Tue 1  1 26 335 09:05:07 09 AM 2026-12-01 09:05:07 12/01/26 2 2 %");
  EXPECT_EQ(run("{{ strftime_now('%a %j %p %I') }}", {}, {.now = {2024, 12, 31, 12, 0, 0}}).bytes(), "Tue 366 PM 12");
  EXPECT_EQ(run("{{ strftime_now('%A') }}", {}, {.now = {1, 1, 1, 0, 0, 0}}).bytes(), "Monday");
  EXPECT_KPD_ERROR(kUnsupported, "strftime of %f", run("{{ strftime_now('%f') }}"));
}

TEST(Jinja, NothingRunsWithoutEnd) {
  const Environment small{.now = kNow, .max_steps = 100'000, .max_bytes = 1 << 20};
  EXPECT_KPD_ERROR(kLimitExceeded, "more than 100000 steps",
                   run("{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}", {}, small));
  EXPECT_KPD_ERROR(
      kLimitExceeded, "bytes",
      run("{% set ns = namespace(s='aaaaaaaa') %}{% for i in range(99) %}{% set ns.s = ns.s + ns.s %}{% endfor %}"));
  EXPECT_KPD_ERROR(kLimitExceeded, "bytes", run("{{ 'a' * 9223372036854775807 }}"));
  EXPECT_KPD_ERROR(kLimitExceeded, "bytes", run("{{ [1] * 999999999999 }}"));
  EXPECT_KPD_ERROR(kLimitExceeded, "bytes", run("{{ ''.center(9223372036854775807) }}"));
  EXPECT_KPD_ERROR(kLimitExceeded, "bytes",
                   run("{% set a = 'a' * 9999 %}{% for i in range(99999) %}{{ a }}{% endfor %}", {}, small));
  EXPECT_KPD_ERROR(kLimitExceeded, "levels", run("{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}"));
  EXPECT_KPD_ERROR(kLimitExceeded, "nested deeper",
                   run("{% set ns = namespace(x=1) %}{% for i in range(999) %}{% set ns.x = [ns.x] %}{% endfor %}"));
  EXPECT_KPD_ERROR(kLimitExceeded, "more than 1024 names", run([] {
                     std::string source;
                     for (int i = 0; i < 2000; ++i) source += "{% set n" + std::to_string(i) + " = 1 %}";
                     return source;
                   }()));
  EXPECT_KPD_ERROR(kLimitExceeded, "limit is 262144", run(std::string(300000, ' ')));
  for (const std::string piece :
       {"(", "[", "{", "-", "not ", "1 + ", "1 ~ (", "a.", "a|abs|", "a(", "x if ", "{{ ", "{% if a %}", "{% for a in b %}"}) {
    SCOPED_TRACE(piece);
    std::string source = "{{ ";
    for (int i = 0; i < 5000; ++i) source += piece;
    EXPECT_KPD_ERROR(kCorruptData, "chat template, line 1, column ", run(source));
  }
}

// Values that hold one another are freed: the leak checker of the sanitizer build sees it.
TEST(Jinja, CyclesAreFreed) {
  EXPECT_EQ(run("{% set ns = namespace() %}{% set ns.me = ns %}{% set ns.l = [ns] %}{% macro f() %}{{ g }}{% endmacro %}{% set "
                "ns.f = f %}"
                "{% for x in [1] %}{% set ns.loop = loop %}{% macro g() %}{{ x }}{% endmacro %}{% set ns.g = g %}"
                "{{ loop.changed(loop) }}{% endfor %}a")
                .bytes(),
            "Truea");
}

std::string foreign_of(const Text& text) {
  std::string out;
  for (const TextRange& r : text.foreign()) out += text.bytes().substr(r.begin, r.end - r.begin) + "|";
  return out;
}

// The letters x and y come from outside alone, in either case; everything else is the template's.
TEST(Jinja, TheOriginOfTextIsKept) {
  const Variables variables = {{"u", Value::string(Text("xy XxY yx", true))}, {"v", Value::string(Text("x", true))}};
  for (const char* e : {"u",
                        "'a' + u + 'b'",
                        "'a' ~ u ~ 1",
                        "u[1:4]",
                        "u[::-1]",
                        "u[::2]",
                        "u[0]",
                        "('a' + u + 'b')[2:-2]",
                        "u.upper()",
                        "u|lower",
                        "u|title",
                        "u.title()",
                        "u|capitalize",
                        "u.swapcase()",
                        "('a ' + u).strip('ax')",
                        "('  ' + u + '  ')|trim",
                        "('a' + u)|replace('y', 'b')",
                        "'a-b'.replace('-', u)",
                        "'a'|replace('a', u)",
                        "('a,' + u).split(',')|join('+')",
                        "(u + ' a').split()|list|join('-')",
                        "u.rsplit(' ', 1)|join('c')",
                        "u.partition('X')|join('_')",
                        "u.rpartition('X')[2]",
                        "[u, 'a']|join(u)",
                        "u.join(['a', 'b'])",
                        "u|list|join('.')",
                        "u|reverse",
                        "'%s-%r-%5s|' % (u, u, v)",
                        "'{}{!r}'.format(u, u)",
                        "u|tojson",
                        "[u, {'a': u}]|tojson(indent=1)",
                        "[u, ('a', u)]",
                        "{'a': u}",
                        "(u * 3)",
                        "u.center(20, '*')",
                        "v.ljust(4, 'a')",
                        "u.zfill(20)",
                        "u|center(20)",
                        "u|indent(2, true)",
                        "u|truncate(5, true, '..', 0)",
                        "u|truncate(6, false, '.', 0)",
                        "u|escape",
                        "u|safe",
                        "u|string",
                        "u|default('a')",
                        "u.splitlines()[0]",
                        "u.removeprefix('x')",
                        "u.removesuffix('x')",
                        "u|first",
                        "u|last",
                        "u|batch(3)|list",
                        "u|slice(2)|list",
                        "[u]|map('upper')|list",
                        "(u if u else 'a')",
                        "u or 'a'",
                        "'a' and u",
                        "{u: 'a'}.keys()|list",
                        "[{'a': u}]|map(attribute='a')|join",
                        "[u]|sort|first",
                        "[u, v]|max",
                        "u|unique|list",
                        "u.expand if false else u",
                        "dict(a=u).a",
                        "namespace(a=u).a",
                        "cycler(u).next()",
                        "u|replace('', '-')"}) {
    SCOPED_TRACE(e);
    const Text text = run(
        std::string("<{% macro m(p) %}[{{ p }}]{% endmacro %}{% set s %}({{ ") + e + " }}){% endset %}{{ m(s) }}{{ s|upper }}>",
        variables);
    bool seen = false;
    for (size_t i = 0; i < text.size(); ++i) {
      const char c = static_cast<char>(text.bytes()[i] | 0x20);
      if (c == 'x' || c == 'y') {
        EXPECT_TRUE(text.foreign_at(i)) << text.bytes() << " at " << i << ": " << foreign_of(text);
        seen = true;
      } else if (c != ' ') {
        EXPECT_FALSE(text.foreign_at(i)) << text.bytes() << " at " << i << ": " << foreign_of(text);
      }
    }
    EXPECT_TRUE(seen) << text.bytes();
  }
}

TEST(Jinja, VariablesAreAnObject) {
  EXPECT_EQ(run("{{ v.a }}{{ v.b }}{{ v.c[1].d }}",
                {{"v", parse_variables(R"({"a": 1, "b": "x", "c": [null, {"d": 2.5}]})", "kwargs")}})
                .bytes(),
            "1x2.5");
  EXPECT_KPD_ERROR(kInvalidArgument, "kwargs: not valid JSON", parse_variables("{", "kwargs"));
  EXPECT_KPD_ERROR(kInvalidArgument, "kwargs: expected a JSON object", parse_variables("[1]", "kwargs"));
  EXPECT_KPD_ERROR(kInvalidArgument, "kwargs: nested deeper",
                   parse_variables(std::string(100, '[') + std::string(100, ']'), "kwargs"));
  EXPECT_KPD_ERROR(kInvalidArgument, "64 bits", parse_variables(R"({"a": 18446744073709551615})", "kwargs"));
}

}  // namespace
}  // namespace kpd::text::jinja
