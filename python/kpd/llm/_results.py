"""What calls of kpd.llm give back."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

FinishReason = Literal["stop", "length", "cancelled"]


@dataclass(frozen=True)
class Generated:
    """An answer.

    ``token_ids`` are without the token that ended it. ``finish_reason`` is ``stop`` (the model or a stop text ended it),
    ``length`` (max_tokens, or a full context) or ``cancelled`` (``Stream.close``). Of an answer that was cancelled while
    its prompt was read there is nothing but ``prompt_tokens``.
    """

    text: str
    token_ids: list[int] = field(repr=False)
    prompt_tokens: int
    tokens: int
    finish_reason: FinishReason
    prefill_seconds: float
    decode_seconds: float


@dataclass(frozen=True)
class Score:
    """``log_likelihood`` of all tokens together, natural logarithm; ``greedy``: each of them is the most probable one."""

    log_likelihood: float
    greedy: bool


@dataclass(frozen=True)
class Perplexity:
    """How good a model is at a text.

    ``loss`` is the mean negative log-likelihood of a token (natural logarithm), ``perplexity`` is exp(loss), ``definition``
    says in one sentence what the protocol counts. With a reference model: ``kld_mean`` is the mean divergence of the
    model's predictions from the reference's, ``same_top1`` the share of tokens with the same first choice; None without.
    """

    perplexity: float
    perplexity_stderr: float
    loss: float
    windows: int
    tokens: int
    seconds: float
    definition: str = field(repr=False)
    reference_perplexity: float | None = None
    ln_ppl_ratio: float | None = None
    kld_mean: float | None = None
    kld_stderr: float | None = None
    same_top1: float | None = None


@dataclass(frozen=True)
class ModelInfo:
    """What was loaded. ``file_bytes`` are those of the tensors in the file, ``memory_bytes`` of what was laid out anew."""

    family: str
    n_parameters: int
    n_layers: int
    d_model: int
    n_vocabulary: int
    max_context: int
    file_bytes: int
    memory_bytes: int
    arithmetic: Literal["exact", "fast"]
    threads: int
    sampling: str
