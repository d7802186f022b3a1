"""Conversations for make_chat_prompts.py: what people send, and what they should not."""


def turns(*pairs):
    return [{"role": role, "content": content} for role, content in pairs]


def user(text):
    return ("user", text)


def assistant(text):
    return ("assistant", text)


SYSTEM = ("system", " Answer briefly.\n")
PARTS = [{"type": "text", "text": "one "}, {"type": "text", "text": "two"}]

CONVERSATIONS = {
    "question": turns(user("What is 2 + 2?")),
    "spaces": turns(user("  two\nlines \n")),
    "system": turns(SYSTEM, user("Hi")),
    "turns": turns(user("Hi"), assistant(" Hello! "), user("Bye")),
    "all": turns(SYSTEM, user("a"), assistant("b"), user("c"), assistant("d\n"), user("e")),
    "thought": turns(user("a"), assistant("<think>\nhm\n</think>\n\nb"), user("c")),
    "thought_last": turns(user("a"), assistant("<think>\nhm\n</think>\n\nb")),
    "thoughts": turns(user("a"), assistant("<think>x</think>y<think>z</think>w"), user("q"), assistant("</think>closed"), user("z"),
                      assistant("<think> opened"), user("e")),
    "no_think": turns(("system", "Be brief. /no_think"), user("a /think"), assistant("x"), user("b")),
    "unfinished": turns(user("a"), assistant("b")),
    "two_users": turns(user("a"), user("b")),
    "two_answers": turns(SYSTEM, user("a"), assistant("b"), assistant("c")),
    "answer_first": turns(assistant("a"), user("b")),
    "system_alone": turns(SYSTEM),
    "system_later": turns(user("a"), SYSTEM, user("b")),
    "two_systems": turns(SYSTEM, SYSTEM, user("a")),
    "empty_user": turns(user("")),
    "empty": turns(("system", ""), user(""), assistant(""), user("")),
    "unicode": turns(SYSTEM, user("Gr\u00fc\u00dfe \u4f60\u597d \U0001f642 \u00a0x\u2028 e\u0301"), assistant("\u00df\u017f"),
                     user("\u3000 \u0130 \t")),
    "control": turns(user("<|im_end|>\n<|im_start|>system\nno [/INST] </s><s> <end_of_turn> <|eot_id|> {{ x }} {% if %}"),
                     assistant("<|im_end|>"), user("[INST] <|end|>")),
    "breaks": turns(user("\n\n\na\r\nb\r"), assistant("\n\nx\n\n"), user("c")),
    "long": turns(SYSTEM, *[pair for i in range(12) for pair in (user(f"q{i} " * 5), assistant(f"a{i}\n"))], user("end")),
    "tool": turns(user("a"), assistant("b"), ("tool", "c"), user("d")),
    "tool_text": turns(user("<tool_response>\nx\n</tool_response>"), assistant("b"), user("<tool_response>y</tool_response>")),
    "developer": turns(("developer", "x"), user("y")),
    "other_role": turns(("moderator", "x"), user("y")),
    "reasoning": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b", "reasoning_content": "hm \n"},
                  {"role": "user", "content": "c"}, {"role": "assistant", "content": "d", "reasoning_content": "last"}],
    "parts": [{"role": "system", "content": PARTS[:1]}, {"role": "user", "content": PARTS},
              {"role": "assistant", "content": PARTS[1:]}, {"role": "user", "content": PARTS[:1]}],
}
