"""Small templates for make_chat_prompts.py: every construct that this project's interpreter has, and what Jinja refuses."""

VARIABLES = {
    "messages": [{"role": "system", "content": "Be brief. "}, {"role": "user", "content": " Hi\n<|im_end|>"},
                 {"role": "assistant", "content": "<think>\nx\n</think>\n\nok"}, {"role": "user", "content": ""}],
    "s": "Hello, W\u00f6rld ", "n": 3, "f": 2.5, "d": {"b": 2, "a": [1, None, True], "C": "x"}, "l": [3, 1, 2], "w": ["b", "A", "c"],
    "none_v": None, "t": True, "bos_token": "<s>", "add_generation_prompt": True, "tools": None,
}

CONSTRUCTS = [
    # Text, tags and white space.
    "", "a", "a\n", "a\n\n", "a\r\nb\rc\r", "{{ 'a\r\nb' }}", "  {% if t %}\n  x\n  {% endif %}\n  y", "  {%- if t -%}\n  x\n  {%- endif -%}\n  y",
    "  {%+ if t +%}\n  x\n  {%+ endif +%}\n  y", "a {{- 1 -}} b", "a {{ 1 }}\n b", "a\n  {# c #}\n b", "a {#- c -#} b", "a{#-#}b", "{# {{ x }} {% if %} #}",
    "x\n  {% set a = 1 %}\n  {{ a }}", "{% raw %}{{ x }}{% if %}{% endraw %}", "  {% raw %}\n {{ x }}\n  {%- endraw -%}  b", "{% raw -%} a {% endraw %}\nb",
    "{{ '{{' }}{{ '%}' }}", "{{ {'a': {'b': 1}}['a']['b'] }}", "{{{'a': 1}}}", "\u00a0{%- if t %}a{% endif -%}\u2003b", "a{% if t %}\n\nb{% endif %}\n\n",
    "{% print 1, 'a' %}", "{{ 1, 2 }}", "{% if t: %}colon{% endif %}",
    # Literals.
    "{{ 1_000 }} {{ 1.50 }} {{ 1e3 }} {{ 1e16 }} {{ 123456789012345680.0 }} {{ 0.0001 }} {{ 0.00001 }} {{ 1.5e-7 }} {{ -0.0 }}",
    "{{ 'a' 'b' \"c\" }}", "{{ 'a\\tb\\x41\\u00e9\\U0001f642\\101\\q\\\\\\'' }}", "{{ 'a\\\nb' }}", "{{ true }}{{ True }}{{ none }}{{ None }}{{ false }}",
    "{{ [1, 'a', none, 2.0, ('x',), {'k': 1}] }}", "{{ () }}{{ (1,) }}{{ (1) }}{{ [1,] }}", "{{ \"it's\" }}{{ [\"it's\", 'q\"', '\\n\u00e9\\x7f\\u200b'] }}",
    "{{ {1: 'a', true: 'b', 1.0: 'c'} }}", "{{ {'a': 1, 'a': 2} }}", "{{ 007 }}", "{{ 1.foo }}", "{{ 9223372036854775807 }}",
    # Names, attributes, items, slices.
    "{{ nothing }}|{{ nothing is defined }}|{{ d.nothing }}|{{ d['b'] }}|{{ d.b }}|{{ l[0] }}|{{ l.0 }}|{{ l[-1] }}|{{ l[9] }}|{{ s[1] }}",
    "{{ nothing.x }}", "{{ nothing['x'] }}", "{{ nothing() }}", "{{ nothing + 1 }}", "{{ nothing < 1 }}", "{{ nothing == nothing2 }}{{ nothing == none }}",
    "{{ 'a' in nothing }}{{ nothing|length }}{% for x in nothing %}x{% endfor %}{{ nothing ~ 'a' }}", "{{ '%s' % nothing }}|", "{{ none_v.x }}|", "{{ none_v.x.y }}",
    "{{ s[1:4] }}|{{ s[:-1] }}|{{ s[::-1] }}|{{ s[::2] }}|{{ s[5:2] }}|{{ s[-3:] }}|{{ l[1:] }}|{{ l[::-1] }}|{{ (1, 2, 3)[:2] }}", "{{ l[::0] }}", "{{ d[1:] }}",
    "{{ messages[0].role }}{{ messages[0]['content'] }}{{ messages[::-1][0].role }}{{ messages[1:]|length }}", "{{ d.items() }}{{ d.keys() }}{{ d.values()|list }}",
    "{{ d.get('b') }}{{ d.get('z') }}{{ d.get('z', 1) }}", "{{ d['items'] is callable }}", "{{ l.append is defined }}{{ l.append }}", "{{ l.append(1) }}",
    "{{ d.update({}) }}", "{{ s.nothing }}|{{ n.nothing }}|", "{{ d[[1]] }}|", "{{ d[none] }}|{{ l['0'] }}|{{ l[1.0] }}|",
    # Operators.
    "{{ 1 + 2 * 3 - 4 }} {{ 7 / 2 }} {{ 7 // 2 }} {{ -7 // 2 }} {{ 7 % -3 }} {{ -7 % 3 }} {{ 2 ** 10 }} {{ 2 ** -1 }} {{ -2 ** 2 }} {{ 2 ** 3 ** 2 }}",
    "{{ 7.5 // 2 }} {{ -7.5 % 2 }} {{ 1.0 * 3 }} {{ 6 / 3 }} {{ true + 1 }} {{ 0.1 + 0.2 }} {{ 1e308 * 10 }}", "{{ 1 / 0 }}", "{{ 1 % 0 }}", "{{ 'a' + 1 }}", "{{ 1 + 'a' }}",
    "{{ 'a' * 3 }}{{ 3 * 'b' }}{{ [1] * 2 }}{{ 'a' * -1 }}|{{ [1] + [2] }}{{ (1,) + (2,) }}", "{{ [1] + (2,) }}", "{{ 'a' ~ 1 ~ none ~ 2.0 ~ [1] }}", "{{ 1 ~ 2 + 3 }}",
    "{{ 1 < 2 < 3 }}{{ 1 < 3 < 2 }}{{ 1 == 1.0 == true }}{{ 'a' < 'b' }}{{ [1, 2] < [1, 3] }}{{ 'Z' < 'a' }}{{ '\u00e9' > 'z' }}", "{{ 1 < 'a' }}", "{{ none_v < 1 }}",
    "{{ 1 in l }}{{ 9 not in l }}{{ 'el' in s }}{{ 'b' in d }}{{ '' in '' }}", "{{ 1 in 'a' }}", "{{ 1 in 5 }}", "{{ not 1 == 2 }}{{ not none_v and t }}{{ 0 or '' or 'x' }}{{ 1 and '' }}|",
    "{{ 'a' if t }}{{ 'a' if not t }}{{ 'a' if not t else 'b' if not t else 'c' }}", "{{ -n }}{{ +n }}{{ +true }}{{ -f }}", "{{ -'a' }}", "{{ -1|abs }}{{ (-1)|abs }}", "{{ [1, 2] == [1, 2.0] }}{{ (1,) == [1] }}{{ {'a': 1} == {'a': 1} }}",
    "{{ '%s is %d, %5.2f|%-4s|%04d|%r|%%' % ('a', 3.7, 2.345, 'b', -5, 'c') }}", "{{ '%(a)s' % {'a': 1} }}", "{{ '%s' % 'a' }}{{ '%s' % [1] }}", "{{ '%s %s' % 'a' }}", "{{ 'a' % 1 }}", "{{ '%d' % 'a' }}",
    "{{ 'x' is string and 1 is number }}", "{{ n is odd and not n is even }}", "{{ n is not none }}",
    # If, for, set.
    "{% if 0 %}a{% elif '' %}b{% elif [] %}c{% else %}d{% endif %}", "{% if {} or nothing or none_v %}a{% endif %}b",
    "{% for x in l %}{{ loop.index }}{{ loop.index0 }}{{ loop.revindex }}{{ loop.revindex0 }}{{ loop.first }}{{ loop.last }}{{ loop.length }}{{ loop.depth }};{% endfor %}",
    "{% for x in l %}{{ loop.previtem }}<{{ x }}>{{ loop.nextitem }}{{ loop.cycle('a', 'b') }}{{ loop.changed(x > 1) }};{% endfor %}",
    "{% for x in [] %}a{% else %}none{% endfor %}", "{% for x in l %}{% break %}{% else %}else{% endfor %}", "{% for x in l %}{{ x }}{% continue %}b{% else %}else{% endfor %}",
    "{% for x in l if x > 1 %}{{ x }}{{ loop.length }}{{ loop.last }}{% endfor %}", "{% for k, v in d.items() %}{{ k }}={{ v }};{% endfor %}", "{% for k in d %}{{ k }}{% endfor %}", "{% for c in 'ab\u00e9' %}{{ c }},{% endfor %}",
    "{% for a, b in [[1, 2], (3, 4)] %}{{ a }}{{ b }}{% endfor %}", "{% for a, b in [[1]] %}{% endfor %}", "{% for x in 5 %}{% endfor %}", "{% for x in none_v %}{% endfor %}",
    "{% for x in l %}{% if x == 1 %}{% continue %}{% endif %}{{ x }}{% if loop.index == 2 %}{% break %}{% endif %}{% endfor %}",
    "{% set x = 1 %}{% for i in l %}{{ x }}{% set x = x + 1 %}{{ x }};{% endfor %}{{ x }}", "{% for i in l %}{% if i == 3 %}{% set y = i %}{% endif %}{{ y }}|{% endfor %}",
    "{% if t %}{% set x = 1 %}{% endif %}{{ x }}{% if not t %}{% set z = 1 %}{% endif %}{{ z is defined }}", "{% set x, y = 1, 'a' %}{{ x }}{{ y }}{% set (a, b) = [3, 4] %}{{ a }}{{ b }}",
    "{% set x %}\n a {{ n }}\n{% endset %}[{{ x }}]", "{% set x | upper | trim %} ab {% endset %}[{{ x }}]", "{% set ns = namespace(a=1, b='x') %}{% for i in l %}{% set ns.a = ns.a + i %}{% endfor %}{{ ns.a }}{{ ns.b }}{{ ns.c }}{{ ns['a'] }}",
    "{% set n.x = 1 %}", "{% set ns = namespace({'q': 2}) %}{{ ns.q }}", "{% set ns = namespace(_a=1) %}", "{% for x in l %}{% for y in w %}{{ loop.index }}{{ x }}{{ y }}{% endfor %}{{ loop.index }};{% endfor %}",
    "{% for loop in l %}{% endfor %}", "{% set loop = 1 %}{{ loop }}", "{% set g = l|select('gt', 1) %}{% for x in g %}{{ x }}{% break %}{% endfor %}{{ g|list }}", "{% set messages = messages[1:] %}{{ messages[0].role }}",
    "{% for m in messages %}{% set messages = 1 %}{{ m.role }}{% endfor %}{{ messages|length }}",
    # Macros, calls, filters, with, generation.
    "{% macro a(x, y='d') %}[{{ x }}|{{ y }}]{% endmacro %}{{ a(1) }}{{ a(1, 2) }}{{ a(y=1, x=2) }}{{ a() }}", "{% macro a(x) %}{{ varargs }}{{ kwargs }}{% endmacro %}{{ a(1, 2, 3, k=4) }}", "{% macro a() %}{% endmacro %}{{ a(1) }}",
    "{% macro a() %}{% endmacro %}{{ a(x=1) }}", "{% macro f(k) %}{{ k }}{% if k > 0 %}{{ f(k - 1) }}{% endif %}{% endmacro %}{{ f(4) }}", "{{ f() }}{% macro f() %}x{% endmacro %}", "{% macro f() %}{{ v }}{% endmacro %}{% set v = 1 %}{{ f() }}",
    "{% macro f() %}{% set v = 2 %}{{ v }}{% endmacro %}{% set v = 1 %}{{ f() }}{{ v }}", "{% macro f() %}({{ caller() }}){% endmacro %}{% call f() %}in{{ n }}{% endcall %}", "{% macro f() %}{{ caller(1, 2) }}{% endmacro %}{% call(a, b) f() %}{{ a }}{{ b }}{% endcall %}",
    "{% macro f() %}{% endmacro %}{% call f() %}x{% endcall %}", "{% filter upper %}a{{ s }}{% endfilter %}", "{% filter replace('a', 'b') | trim %} aa {% endfilter %}|", "{% with a = 1, b = n %}{{ a }}{{ b }}{% endwith %}{{ a }}|", "{% set a = 5 %}{% with a = 1, b = a %}{{ b }}{% endwith %}",
    "{% generation %}x{% set q = 1 %}{% endgeneration %}{{ q is defined }}", "{% macro f(x, y=x) %}{{ y }}{% endmacro %}{{ f(1) }}|", "{% macro f(x) %}{{ x }}{% endmacro %}{{ f(*[1]) }}{{ f(**{'x': 2}) }}", "{{ f(1, *[2]) }}",
    "{% for x in l %}{% macro f() %}{{ x }}{% endmacro %}{{ f() }}{% endfor %}", "{% macro f(a, b=1, c) %}{% endmacro %}",
    # Filters.
    "{{ s|upper }}{{ s|lower }}{{ s|title }}{{ s|capitalize }}|{{ s|trim }}|{{ 'xaxx'|trim('x') }}", "{{ '\u00df \u0130 \u03a3\u03a3 \u01c6 \ufb01x'|upper }}{{ '\u0130I \u03a3 A\u03a3 A\u03a3b'|lower }}{{ '\u01c6x \ufb01\u00dfa'|title }}{{ '\u01c6X'|capitalize }}", "{{ 'foo-bar (baz) q_x'|title }}{{ \"it's a\"|title }}",
    "{{ l|length }}{{ s|length }}{{ d|count }}{{ '\u00e9\U0001f642'|length }}", "{{ 5|length }}", "{{ l|first }}{{ l|last }}{{ s|first }}{{ []|first }}{{ []|last }}|", "{{ l|join }}{{ l|join(', ') }}{{ messages|join('/', attribute='role') }}{{ 'abc'|join('.') }}",
    "{{ l|sort }}{{ l|sort(reverse=true) }}{{ w|sort }}{{ w|sort(case_sensitive=true) }}{{ messages|sort(attribute='role')|map(attribute='role')|join(',') }}", "{{ [1, 'a']|sort }}", "{{ [2, 1, 2, 'a', 'A']|unique|list }}{{ ['a', 'A']|unique(true)|list }}",
    "{{ l|reverse|list }}{{ 'abc'|reverse }}{{ l|list }}{{ 'ab'|list }}{{ d|list }}", "{{ l|min }}{{ l|max }}{{ w|max }}{{ []|min }}|{{ l|sum }}{{ messages|sum(attribute='x') if false }}", "{{ w|map('upper')|list }}{{ messages|map(attribute='role')|list }}{{ messages|map(attribute='zz', default='?')|list }}{{ [[1, 2]]|map(attribute=1)|list }}{{ [{'a': {'b': 3}}]|map(attribute='a.b')|list }}",
    "{{ messages|selectattr('role', 'equalto', 'user')|list|length }}{{ messages|selectattr('content')|list|length }}{{ messages|rejectattr('role', 'in', ['user'])|map(attribute='role')|list }}{{ l|select('odd')|list }}{{ [0, 1, '']|select|list }}{{ [none, 1]|reject('none')|list }}",
    "{{ l|map('nothing')|list }}", "{{ l|nothing }}", "{% if t %}{% else %}{{ l|nothing }}{% endif %}", "{{ 'a' if t else l|nothing }}", "{% for x in [] %}{{ x|nothing }}{% endfor %}", "{{ x is nothing }}", "{{ none_v|map('upper')|list }}",
    "{{ nothing|default('a') }}{{ ''|default('a') }}{{ ''|default('a', true) }}{{ none_v|d(1, boolean=true) }}{{ nothing|default }}|", "{{ '3'|int }}{{ ' -4 '|int }}{{ '2.7'|int }}{{ 'x'|int }}{{ 'x'|int(9) }}{{ 3.9|int }}{{ none_v|int }}{{ true|int }}", "{{ '2.5'|float }}{{ 'x'|float }}{{ 3|float }}{{ '1e3'|float }}{{ '1_0'|float }}{{ 'inf'|float }}",
    "{{ 2.5|round }}{{ 3.5|round }}{{ 2.675|round(2) }}{{ 5|round }}{{ 2.1|round(0, 'ceil') }}{{ -2.1|round(0, 'floor') }}{{ 2.75|round(1, 'floor') }}", "{{ -3|abs }}{{ (-2.5)|abs }}", "{{ 'a'|abs }}", "{{ 'a-b-a'|replace('a', 'c') }}{{ 'aaa'|replace('a', 'b', 2) }}{{ 123|replace(2, 'x') }}{{ 'ab'|replace('', '-') }}",
    "{{ 'a\nb\n\nc'|indent }}|{{ 'a\nb'|indent(2, true) }}|{{ 'a\n\nb'|indent(2, false, true) }}|{{ 'a\nb'|indent('> ') }}|{{ 'a\n'|indent }}|", "{{ 'foo bar baz'|truncate(7) }}|{{ 'foo bar baz'|truncate(7, leeway=0) }}|{{ 'foo bar baz'|truncate(7, true, '', 0) }}|", "{{ 'ab'|center(7) }}|{{ 'abc'|center(6) }}|",
    "{{ 'a b_c, d1'|wordcount }}", "{{ [1, 2, 3]|batch(2)|list }}{{ [1, 2, 3]|batch(2, 'x')|list }}{{ [1, 2, 3]|slice(2)|list }}{{ [1, 2, 3]|slice(2, 'x')|list }}", "{{ d|dictsort }}{{ d|dictsort(true) }}{{ {'a': 2, 'b': 1}|dictsort(false, 'value') }}{{ d|dictsort(reverse=true) }}", "{{ d|items|list }}{{ nothing|items|list }}",
    "{{ 1|string }}{{ none_v|string }}{{ '%s-%s'|format('a', 1) }}{{ '%(x)s'|format(x=1) }}", "{{ '<a>\"&\\''|e }}{{ '<'|escape|e }}{{ '<b>'|safe }}", "{{ '<'|e is escaped }}", "{{ l|first|string ~ 'x' }}",
    # tojson.
    "{{ d|tojson }}{{ messages|tojson }}", "{{ {'a': [1, {'b': []}], 'c': {}}|tojson(indent=2) }}", "{{ [1, [2]]|tojson(indent=0) }}{{ [1]|tojson(indent='--') }}{{ [1]|tojson(indent=true) }}", "{{ {'b': 1, 'a': 2}|tojson(sort_keys=true) }}{{ [1, 2]|tojson(separators=(',', ':')) }}", "{{ '\u00e9\U0001f642\\x7f\\x01\\n\\t\"\\\\/<>&\\''|tojson }}{{ '\u00e9\U0001f642\\x7f\\x01'|tojson(ensure_ascii=true) }}",
    "{{ {1: 1, none: 2, true: 3, 1.5: 4}|tojson }}{{ (1, 2)|tojson }}{{ 1.0|tojson }}{{ 1e16|tojson }}{{ ('inf'|float)|tojson }}", "{{ nothing|tojson }}", "{{ {(1, 2): 1}|tojson }}", "{{ namespace()|tojson }}", "{{ range(2)|tojson }}",
    # Tests.
    "{{ 1 is defined }}{{ x is undefined }}{{ none_v is none }}{{ s is string }}{{ n is number }}{{ t is number }}{{ t is integer }}{{ n is integer }}{{ f is float }}{{ t is boolean }}{{ t is true }}{{ t is false }}{{ d is mapping }}{{ l is mapping }}",
    "{{ l is iterable }}{{ s is iterable }}{{ n is iterable }}{{ none_v is iterable }}{{ nothing is iterable }}{{ l is sequence }}{{ d is sequence }}{{ nothing is sequence }}{{ n is sequence }}{{ range(2) is sequence }}", "{{ 3 is odd }}{{ 4 is even }}{{ 9 is divisibleby 3 }}{{ 9 is divisibleby(2) }}", "{{ 'a' is odd }}",
    "{{ 1 is eq 1 }}{{ 1 is equalto(2) }}{{ 1 is ne 2 }}{{ 2 is gt 1 }}{{ 2 is ge 2 }}{{ 1 is lt 2 }}{{ 1 is le(1) }}{{ 1 is in l }}{{ 2 is greaterthan 1 }}{{ 1 is lessthan 2 }}", "{{ none_v is sameas none }}{{ t is sameas true }}{{ 1 is sameas true }}", "{{ 'ab' is lower }}{{ 'AB1' is upper }}{{ '1' is lower }}{{ '\u00df' is lower }}{{ '\u01c5' is upper }}", "{{ 'upper' is filter }}{{ 'x' is filter }}{{ 'odd' is test }}{{ range is callable }}{{ s.upper is callable }}{{ n is callable }}",
    # Methods.
    "{{ s.upper() }}{{ s.lower() }}{{ s.title() }}{{ s.capitalize() }}{{ s.swapcase() }}{{ \"they're o'x 3d\".title() }}", "{{ ' a '.strip() }}|{{ ' a '.lstrip() }}|{{ ' a '.rstrip() }}|{{ 'xxaxy'.strip('xy') }}|{{ '\u00e9a\u00e9'.strip('\u00e9') }}|{{ '\u2003a\u00a0\\x1f'.strip() }}|{{ ' a'.strip(none) }}",
    "{{ 'a,b,,c'.split(',') }}{{ 'a,b,c'.split(',', 1) }}{{ ' a  b '.split() }}{{ ' a b c '.split(none, 1) }}{{ 'a,b,c'.rsplit(',', 1) }}{{ ' a b c '.rsplit(maxsplit=1) }}{{ ''.split() }}{{ ''.split(',') }}", "{{ 'a'.split('') }}", "{{ 'a\nb\r\nc\u2028d'.splitlines() }}{{ 'a\n'.splitlines(true) }}",
    "{{ 'abc'.startswith('ab') }}{{ 'abc'.endswith(('x', 'c')) }}{{ 'abc'.startswith('b', 1) }}{{ 'abc'.endswith('b', 0, 2) }}{{ ''.startswith('') }}", "{{ 'abc'.startswith(1) }}", "{{ 'aXbX'.replace('X', '-') }}{{ 'aXbX'.replace('X', '-', 1) }}{{ 'ab'.replace('', '.') }}{{ 'aa'.replace('a', '', 0) }}", "{{ 'abcabc'.find('c') }}{{ 'abc'.find('z') }}{{ 'abcabc'.rfind('c') }}{{ '\u00e9a'.find('a') }}{{ 'abc'.find('', 9) }}{{ 'aaa'.count('a') }}{{ 'aaa'.count('aa') }}{{ 'ab'.count('') }}", "{{ 'abc'.index('b') }}", "{{ 'abc'.index('z') }}",
    "{{ ','.join(w) }}{{ ''.join([]) }}|", "{{ ','.join([1]) }}", "{{ 'a=b=c'.partition('=') }}{{ 'a=b=c'.rpartition('=') }}{{ 'a'.partition('=') }}{{ 'a'.rpartition('=') }}", "{{ 'ab'.center(5) }}|{{ 'ab'.center(6, '*') }}|{{ 'ab'.ljust(4) }}|{{ 'ab'.rjust(4, '\u00e9') }}|{{ '-5'.zfill(4) }}|", "{{ 'prefix'.removeprefix('pre') }}{{ 'suffix'.removesuffix('fix') }}", "{{ 'AB'.isupper() }}{{ 'ab'.islower() }}{{ ' '.isspace() }}{{ 'a1'.isalnum() }}{{ 'a'.isalpha() }}{{ '12'.isdigit() }}{{ ''.isdigit() }}{{ 'a'.isascii() }}",
    "{{ '{} {}'.format(1, 'a') }}{{ '{1}{0}'.format(1, 2) }}{{ '{a}'.format(a=1) }}{{ '{{}}'.format() }}{{ '{!r}'.format('a') }}", "{{ '{}'.format() }}", "{{ '{'.format() }}", "{{ l.index(2) }}{{ l.count(1) }}{{ l.copy() }}{{ (1, 1).count(1) }}", "{{ l.index(9) }}", "{{ 'abc'.upper().lower()[0] }}",
    # Globals.
    "{{ range(3)|list }}{{ range(1, 4)|list }}{{ range(5, 0, -2)|list }}{{ range(2) }}{{ range(1, 5, 2) }}{{ range(3)[1] }}{{ range(0)|length }}", "{{ range(100001) }}", "{{ range('a') }}", "{{ range(1, 2, 0) }}", "{{ dict(a=1, b=2) }}{{ dict([('a', 1)]) }}{{ dict({'a': 1}, b=2) }}{{ dict() }}", "{% set c = cycler('a', 'b') %}{{ c.next() }}{{ c.current }}{{ c.next() }}{{ c.next() }}{{ c.reset() }}{{ c.next() }}",
    "{% set j = joiner('; ') %}{% for x in l %}{{ j() }}{{ x }}{% endfor %}", "{{ raise_exception('words') }}", "{{ raise_exception() }}", "{% if raise_exception is defined and strftime_now is defined %}yes{% endif %}", "{{ namespace(a=1).a }}",
    # What is not Jinja.
    "{{", "{{ 1", "{{ 1 + }}", "{% if %}", "{% if t %}", "{% endif %}", "{% nothing %}", "{{ a b }}", "{{ (1 }}", "{{ 'a }}", "{# a", "{% raw %}", "{% raw %}a", "a{#", "a{#-", "{% for x l %}{% endfor %}", "{{ 1 ! 2 }}", "{{ f(a=1, 2) }}", "{{ f(a=1, a=2) }}", "{% set 1 = 2 %}", "{% set true = 2 %}", "{% break %}", "{{ x is string is number }}", "{% if t %}{% for %}{% endif %}", "{{ ] }}", "{% macro %}{% endmacro %}", "{% call 1 %}{% endcall %}",
]
