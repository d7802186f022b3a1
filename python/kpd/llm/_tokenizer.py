"""Tokenizers and chat templates."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from typing import Any, TypedDict

from kpd import _kpd


class _Required(TypedDict):
    role: str
    content: str


class Message(_Required, total=False):
    """A message: ``role`` is system, user, assistant or what the template knows beside them."""

    reasoning_content: str


Conversation = str | Sequence[Message] | Sequence[Mapping[str, str]]


class Tokenizer:
    """A model's own tokenizer; needs no model. Immutable: every method may be called from any thread.

    Ids and texts are those of Hugging Face's tokenizers package. ``encode`` of a long text runs to its end before a Ctrl-C
    counts.
    """

    def __init__(self, native: _kpd.Tokenizer) -> None:
        self._native = native

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Tokenizer:
        """Of a GGUF file, or of a folder with tokenizer.json.

        Raises kpd.Error (io, corrupt_data, unsupported) naming the file and the part.
        """
        return cls(_kpd.Tokenizer.load(os.fspath(path)))

    def encode(self, text: str, *, add_special: bool = True, parse_special: bool = True) -> list[int]:
        """The ids of a text.

        ``add_special``: with what the tokenizer puts around a text by itself (BOS, EOS). ``parse_special``: text that
        spells a special token (``<|im_start|>``) becomes that token.
        """
        return self._native.encode(text, add_special, parse_special)

    def decode(self, ids: Sequence[int], *, skip_special: bool = True) -> str:
        """The text of ids; an id that no token has is no text, a negative one is kpd.Error."""
        return self._native.decode(list(ids), skip_special)

    def token(self, id: int) -> str:
        """The token as the vocabulary spells it."""
        return self._native.token(id).decode("utf-8", "replace")

    def token_bytes(self, id: int) -> bytes:
        """What the token adds to a text; a character may be spread over tokens."""
        return self._native.token_bytes(id)

    def find(self, token: str) -> int | None:
        """The id of a token by its spelling in the vocabulary."""
        return self._native.find(token)

    def is_special(self, id: int) -> bool:
        return self._native.is_special(id)

    def render_chat(self, messages: Conversation, **options: Any) -> str:
        """The prompt of a conversation as text; arguments of ``encode_chat``."""
        return self._render(messages, **options)[0]

    def encode_chat(self, messages: Conversation, **options: Any) -> list[int]:
        """The prompt of a conversation as ids. Control tokens are read in what the template writes, never in messages.

        ``messages``: a user's message, or a list of ``{"role": ..., "content": ...}``. Options: ``template`` (chatml,
        llama2, llama3, mistral, gemma, phi3, qwen, one of several that the model brings, or Jinja source; without it the
        model's own), ``thinking`` (the template's enable_thinking), ``date`` ("2026-12-01", for templates that write it),
        ``generation_prompt`` (True: ends with what opens the assistant's turn), ``variables`` (more of the template's).
        Raises kpd.Error (invalid_argument) in the template's own words where it refuses the conversation.
        """
        return self._render(messages, **options)[1]

    def _render(
        self,
        messages: Conversation,
        *,
        template: str | None = None,
        thinking: bool | None = None,
        date: str | None = None,
        generation_prompt: bool = True,
        variables: Mapping[str, Any] | None = None,
    ) -> tuple[str, list[int]]:
        if isinstance(messages, str):
            messages = [{"role": "user", "content": messages}]
        said = [(str(m["role"]), m["content"], m.get("reasoning_content", "")) for m in messages]
        return self._native.render(
            said, template, thinking, date, generation_prompt, json.dumps(dict(variables)) if variables else ""
        )

    @property
    def vocabulary_size(self) -> int:
        """Tokens, added ones included."""
        return self._native.vocabulary_size

    @property
    def bos(self) -> int | None:
        return self._native.bos

    @property
    def eos(self) -> int | None:
        return self._native.eos

    @property
    def end_of_turn(self) -> list[int]:
        """Every token that ends a generation, ascending."""
        return self._native.end_of_turn

    @property
    def adds_bos(self) -> bool:
        return self._native.adds_bos

    @property
    def chat_template(self) -> str:
        """Jinja source; empty if there is none."""
        return self._native.chat_template

    @property
    def notes(self) -> list[str]:
        """What the file lacks or says wrongly, and what was taken instead."""
        return self._native.notes
