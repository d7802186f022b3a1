"""Models."""

from __future__ import annotations

import atexit
import os
import weakref
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Literal, TypedDict, Unpack, overload

from kpd import _kpd
from kpd._errors import Error
from kpd.llm._results import Generated, ModelInfo, Perplexity, Score
from kpd.llm._tokenizer import Conversation, Tokenizer

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Logits = NDArray[np.float32]


class Options(TypedDict, total=False):
    """Of ``generate`` and ``chat``.

    What is not given is what the model's files ask for, else temperature 0.8, top_k 40, top_p 0.95, min_p 0.05.
    """

    max_tokens: int  # of the answer; 256
    temperature: float  # 0: the most probable token
    top_k: int  # 0: all
    top_p: float
    min_p: float
    repeat_penalty: float
    seed: int  # the same seed, the same text; without one a fresh one
    stop: Sequence[str]  # texts that end the answer; not part of it
    ignore_eos: bool
    context: int  # tokens of prompt and answer; the model's, at most 8192
    context_shift: bool  # at a full context the older half is taken out, instead of an end
    cache: str  # of keys and values: "f16", "bf16", "f32"


class Stream(Iterator[str]):
    """Text as it is made, for ``for``. It has the model until it is exhausted, closed or dropped.

    The model works on a thread of its own, ahead of who reads: up to max_tokens. For one reading thread.
    """

    def __init__(self, native: _kpd.Answer) -> None:
        self._native = native
        _streams.add(self)

    def __iter__(self) -> Stream:
        return self

    def __next__(self) -> str:
        text = self._native.next()
        if text is None:
            raise StopIteration
        return text

    def result(self) -> Generated:
        """Waits for the end; the whole answer, also what was not read from the stream."""
        return Generated(**self._native.result())

    def close(self) -> None:
        """Ends the answer where it is; ``result`` is what there is."""
        self._native.close()

    def __enter__(self) -> Stream:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()


_streams: weakref.WeakSet[Stream] = weakref.WeakSet()


@atexit.register
def _close_streams() -> None:
    for stream in list(_streams):
        stream.close()


class Model:
    """A language model, made by ``Model.load``.

    It does one thing at a time. A call while another call runs, from whatever thread, or while a stream of it is open,
    raises kpd.Error (invalid_argument): threads that share a model share a lock, or load one each.
    Results do not depend on the number of threads.
    """

    def __init__(self, native: _kpd.Model, tokenizer: Tokenizer | None) -> None:
        self._native = native
        self._tokenizer = tokenizer
        self._info = ModelInfo(**native.info())
        self._lent: Logits | None = None

    @classmethod
    def load(
        cls, path: str | os.PathLike[str], *, arithmetic: Literal["exact", "fast"] = "fast", threads: int = 0
    ) -> Model:
        """Of a GGUF file, or of a Hugging Face folder with config.json.

        ``arithmetic``: ``exact`` multiplies dequantized weights and float activations, its logits are those of
        transformers in float32; ``fast`` rounds activations to 8 bits. ``threads``: 0 is one per processor.
        Raises kpd.Error naming the file and the tensor. A model without a tokenizer gives logits and scores alone.
        """
        name = os.fspath(path)
        tokenizer: Tokenizer | None
        try:
            tokenizer = Tokenizer.load(name)
        except Error as missing:
            tokenizer, why = None, missing
        native = _kpd.Model.load(name, tokenizer._native if tokenizer else None, arithmetic, threads)
        model = cls(native, tokenizer)
        if tokenizer is None:
            model._no_tokenizer = why
        return model

    _no_tokenizer: Error | None = None

    @property
    def tokenizer(self) -> Tokenizer:
        """The model's tokenizer. Raises the kpd.Error that it could not be loaded for."""
        if self._tokenizer is None:
            raise self._no_tokenizer or Error("tokenizer: the model has none", "unsupported")
        return self._tokenizer

    @property
    def info(self) -> ModelInfo:
        return self._info

    @overload
    def generate(
        self, prompt: str | Sequence[int], *, stream: Literal[True], **options: Unpack[Options]
    ) -> Stream: ...

    @overload
    def generate(
        self, prompt: str | Sequence[int], *, stream: Literal[False] = False, **options: Unpack[Options]
    ) -> Generated: ...

    def generate(
        self, prompt: str | Sequence[int], *, stream: bool = False, **options: Unpack[Options]
    ) -> Stream | Generated:
        """Goes on from a text or from token ids. ``Options`` has the options.

        ``stream=True`` gives a ``Stream`` at once, whose text comes as it is made.
        Raises kpd.Error (invalid_argument) for an empty prompt, one that fills the context, and sampling that makes no
        sense; (corrupt_data) for logits that are not finite.
        """
        ids = self.tokenizer.encode(prompt) if isinstance(prompt, str) else list(prompt)
        return self._answer(ids, stream, False, options)

    @overload
    def chat(
        self,
        messages: Conversation,
        *,
        stream: Literal[True],
        system: str | None = None,
        template: str | None = None,
        thinking: bool | None = None,
        date: str | None = None,
        variables: Mapping[str, Any] | None = None,
        **options: Unpack[Options],
    ) -> Stream: ...

    @overload
    def chat(
        self,
        messages: Conversation,
        *,
        stream: Literal[False] = False,
        system: str | None = None,
        template: str | None = None,
        thinking: bool | None = None,
        date: str | None = None,
        variables: Mapping[str, Any] | None = None,
        **options: Unpack[Options],
    ) -> Generated: ...

    def chat(
        self,
        messages: Conversation,
        *,
        stream: bool = False,
        system: str | None = None,
        template: str | None = None,
        thinking: bool | None = None,
        date: str | None = None,
        variables: Mapping[str, Any] | None = None,
        **options: Unpack[Options],
    ) -> Stream | Generated:
        """Answers a conversation by the model's chat template (``Tokenizer.encode_chat``); else as ``generate``.

        ``messages``: a user's message, or a list of ``{"role": ..., "content": ...}``; ``system`` is put before them.
        Every call reads the whole conversation.
        """
        said: list[Any] = [{"role": "user", "content": messages}] if isinstance(messages, str) else list(messages)
        if system is not None:
            said.insert(0, {"role": "system", "content": system})
        ids = self.tokenizer.encode_chat(said, template=template, thinking=thinking, date=date, variables=variables)
        return self._answer(ids, stream, True, options)

    def _answer(self, ids: list[int], stream: bool, opens_text: bool, options: Options) -> Stream | Generated:
        unknown = set(options) - set(Options.__annotations__)
        if unknown:
            raise TypeError(f"unknown option {sorted(unknown)[0]!r}; expected one of {', '.join(Options.__annotations__)}")
        stop = options.get("stop", ())
        asked = _kpd.AnswerOptions(
            max_tokens=options.get("max_tokens", 256),
            context=options.get("context", 0),
            stop=[stop] if isinstance(stop, str) else list(stop),
            ignore_eos=options.get("ignore_eos", False),
            context_shift=options.get("context_shift", False),
            opens_text=opens_text,
            temperature=options.get("temperature"),
            top_p=options.get("top_p"),
            min_p=options.get("min_p"),
            repeat_penalty=options.get("repeat_penalty"),
            top_k=options.get("top_k"),
            seed=options.get("seed", int.from_bytes(os.urandom(8), "little")),
        )
        made = Stream(_kpd.begin_answer(self._native, ids, options.get("cache", "f16"), asked))
        return made if stream else made.result()

    def logits(
        self,
        tokens: Sequence[int],
        *,
        rows: Literal["all", "last"] | Sequence[int] = "all",
        out: Logits | None = None,
        cache: str = "f32",
    ) -> Logits:
        """Logits float32 [len(rows), n_vocabulary] after each of ``rows``, indices into ``tokens``, ascending.

        A new array, or ``out``, which is C-contiguous, writable and of that shape; nothing else of its size is made.
        """
        import numpy as np

        wanted = self._rows(len(tokens), rows)
        if out is None:
            out = np.empty((len(wanted), self._info.n_vocabulary), np.float32)
        elif not isinstance(out, np.ndarray) or out.dtype != np.float32 or out.ndim != 2 or not out.flags.carray:
            raise Error("out: expected a writable C-contiguous float32 array of two dimensions")
        _kpd.logits(self._native, list(tokens), wanted, out, cache)
        return out

    @contextmanager
    def logits_view(
        self,
        tokens: Sequence[int],
        *,
        rows: Literal["all", "last"] | Sequence[int] = "all",
        cache: str = "f32",
    ) -> Generator[Logits, None, None]:
        """``logits`` in memory that the model keeps, for ``with``: no new memory from call to call.

        The read-only array is valid inside the block; the next view overwrites it.
        """
        import numpy as np

        shape = (len(self._rows(len(tokens), rows)), self._info.n_vocabulary)
        memory, self._lent = self._lent, None
        if memory is None or memory.size < shape[0] * shape[1]:
            memory = np.empty(shape[0] * shape[1], np.float32)
        view = memory[: shape[0] * shape[1]].reshape(shape)
        try:
            self.logits(tokens, rows=rows, out=view, cache=cache)
            view.flags.writeable = False
            yield view
        finally:
            self._lent = memory

    @staticmethod
    def _rows(n_tokens: int, rows: Literal["all", "last"] | Sequence[int]) -> list[int]:
        if isinstance(rows, str):
            if rows not in ("all", "last"):
                raise Error(f"rows: expected 'all', 'last' or indices, got {rows!r}")
            return list(range(n_tokens)) if rows == "all" else [max(n_tokens - 1, 0)]
        wanted = list(rows)
        if any(not 0 <= r < n_tokens for r in wanted) or any(a >= b for a, b in zip(wanted, wanted[1:])):
            raise Error(f"rows: expected indices below {n_tokens}, ascending, each once")
        return wanted

    def score(
        self,
        pairs: Sequence[tuple[Sequence[int], Sequence[int]]],
        *,
        cache: str = "f32",
        progress: Callable[[int], object] | None = None,
    ) -> list[Score]:
        """The log-likelihood of each pair's second half, given its first, both token ids; neither is empty.

        What pairs begin with in common is computed once as far as it pays, which changes no score. ``progress`` is called
        with the number of pairs that were done since its last call.
        """
        found = _kpd.score_texts(self._native, [(list(a), list(b)) for a, b in pairs], cache, progress)
        return [Score(*one) for one in found]

    def perplexity(
        self,
        text: str | bytes,
        *,
        protocol: Literal["paper", "llama.cpp"] = "paper",
        context: int = 2048,
        windows: int = 0,
        cache: str = "f32",
        reference: Model | None = None,
    ) -> Perplexity:
        """Perplexity of a text in windows of ``context`` tokens, of which at most ``windows`` are taken (0: all).

        The protocols differ, and so do their numbers (docs/guide/llm.md). ``reference``: another model, from whose
        predictions the divergence is measured; load both with exact arithmetic for that.
        Raises kpd.Error (invalid_argument) for a text of less than a window.
        """
        self.tokenizer
        data = text.encode() if isinstance(text, str) else text
        other = reference._native if reference is not None else None
        return Perplexity(**_kpd.perplexity(self._native, other, data, protocol, context, windows, cache))
