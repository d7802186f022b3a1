"""Code blocks of a Markdown page, as docs_test.py runs them.

Every block is fenced and names its language. A comment that readers do not see says more about the block that follows, or adds
code that is not worth showing:

    <!-- docs-test: skip installs packages -->      the next block is not run; the reason is printed
    <!-- docs-test: needs terminal -->              neither is it here: what a test has not
    <!-- docs-test: cpp                             run at this place of the page; cpp, c or sh
    std::vector<float> x(64);
    -->
"""
import dataclasses
import re

RUN = {"sh", "cpp", "c"}
SHOWN = {"text", "cmake", "python", "json"}  # python: tests/cli/clients_test.py, cmake: tests/package
COMMENT = re.compile(r"<!--\s*docs-test:\s*(.*?)-->", re.DOTALL)


class PageError(Exception):
    """The page is not written as this module reads it."""


@dataclasses.dataclass
class Block:
    language: str
    text: str
    line: int  # of its first line of code, from 1
    hidden: bool = False
    skip: str = ""   # why it is not run
    needs: str = ""


def comment_block(text, line):
    """A Block of hidden code, or (word, rest) of a note on the next block."""
    word, rest = re.match(r"(\S*)\s?(.*)", text, re.DOTALL).groups()
    if word in RUN:
        return Block(word, rest.rstrip() + "\n", line + 1, hidden=True), None
    if word not in ("skip", "needs"):
        raise PageError(f"line {line}: docs-test: '{word}' is none of skip, needs, {', '.join(sorted(RUN))}")
    if not rest.strip():
        raise PageError(f"line {line}: docs-test: {word} says nothing more")
    return None, (word, rest.strip())


def blocks_of(text):
    """The blocks of a page in their order. Throws PageError for a block without a language, or one that is only indented."""
    out, note, fence, body, start = [], None, None, [], 0
    comment, comment_line = None, 0
    for number, line in enumerate(text.splitlines(), 1):
        if comment is not None:
            comment += "\n" + line
            if "-->" not in line:
                continue
        elif fence is None and line.startswith("<!-- docs-test:"):
            comment, comment_line = line, number
            if "-->" not in line:
                continue
        if comment is not None:
            block, note_here = comment_block(COMMENT.match(comment).group(1), comment_line)
            out += [block] if block else []
            note = note_here or note
            comment = None
        elif line.startswith("```") and fence is None:
            fence, body, start = line[3:].strip(), [], number + 1
            if fence not in RUN | SHOWN:
                raise PageError(f"line {number}: a block's language is '{fence}', expected one of {', '.join(sorted(RUN | SHOWN))}")
        elif line.startswith("```"):
            block = Block(fence, "\n".join(body) + "\n", start)
            if note:
                setattr(block, note[0], note[1])
            out.append(block)
            fence, note = None, None
        elif fence is not None:
            body.append(line)
        elif line.startswith("    ") and line.strip():
            raise PageError(f"line {number}: an indented block; fence it and name its language")
    if fence is not None or comment is not None or note is not None:
        raise PageError("the page ends within a block or a comment, or no block follows a comment")
    return out


def commands_of(block):
    """(line number, command) of a shell block; lines that end in a backslash go on."""
    out, held, first = [], "", 0
    for number, line in enumerate(block.text.splitlines(), block.line):
        if not held:
            first = number
        held += line
        if line.endswith("\\"):
            held += "\n"
            continue
        if held.strip() and not held.lstrip().startswith("#"):
            out.append((first, held))
        held = ""
    return out


def program_of(blocks, language, page):
    """One program of all blocks of a language that are no whole programs: #include lines first, the rest in main(), in order.
    None if there is no such block."""
    includes, body = [], []
    for block in blocks:
        if block.language != language or is_program(block):
            continue
        body.append(f'#line {block.line} "{page}"')
        for line in block.text.splitlines():
            directive = line.lstrip().startswith("#include")
            (includes if directive else body).append(line)
            if directive:
                body.append("")  # the lines keep their numbers
    if not includes and not body:
        return None
    return "\n".join([*includes, "int main() {", *body, "return 0;", "}"]) + "\n"


def is_program(block):
    return re.search(r"^int main\(", block.text, re.MULTILINE) is not None
