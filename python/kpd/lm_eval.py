"""kpd as a model of lm-evaluation-harness (0.4.13, which has to be installed: ``pip install lm-eval==0.4.13``).

    python -m kpd.lm_eval --model kpd --model_args pretrained=model.gguf,arithmetic=exact --tasks lambada_openai

is lm_eval's own command line, with the model ``kpd`` beside its own; ``import kpd.lm_eval`` does the same for
``lm_eval.simple_evaluate(model="kpd", ...)``. loglikelihood, loglikelihood_rolling and generate_until are there. With exact
arithmetic (the default) they give the numbers of the hf backend in float32, up to the rounding of its float32 sums.
"""

# mypy: disable-error-code="import-not-found,import-untyped,misc,unused-ignore"

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

from lm_eval import utils
from lm_eval.api.model import TemplateLM
from lm_eval.api.registry import register_model
from lm_eval.models.utils import handle_stop_sequences, normalize_gen_kwargs, postprocess_generated_text
from tqdm import tqdm

from kpd import llm
from kpd._errors import Error

# What a task may ask of generation, and the option of kpd.llm that it is.
_OPTIONS = {
    "temperature": "temperature",
    "top_k": "top_k",
    "top_p": "top_p",
    "min_p": "min_p",
    "repetition_penalty": "repeat_penalty",
    "seed": "seed",
}


class KpdLM(TemplateLM):
    """``--model kpd``.

    ``pretrained``: a GGUF file or a Hugging Face folder. ``arithmetic``: exact or fast. ``threads``: 0 is one per
    processor. ``cache``: f32, f16, bf16. ``max_length``: the model's context unless given. ``batch_size`` and ``device``,
    which lm_eval always gives (cuda:0), change nothing: texts share steps as it suits them, on the CPU.
    """

    tokenizer: Any

    def __init__(
        self,
        pretrained: str,
        arithmetic: Literal["exact", "fast"] = "exact",
        threads: int = 0,
        cache: str = "f32",
        max_length: int | None = None,
        max_gen_toks: int = 256,
        add_bos_token: bool | None = None,
        prefix_token_id: int | None = None,
        batch_size: int | str | None = None,
        max_batch_size: int | None = None,
        device: str | None = None,
    ) -> None:
        super().__init__()
        self.model = llm.Model.load(pretrained, arithmetic=arithmetic, threads=int(threads))
        self.tokenizer = self.model.tokenizer
        self.batch_size = batch_size
        self._pretrained = str(pretrained)
        self._cache = cache
        self._max_length = int(max_length) if max_length else self.model.info.max_context
        self._max_gen_toks = int(max_gen_toks)
        self._add_bos = add_bos_token
        self._prefix = prefix_token_id

    @property
    def eot_token_id(self) -> int:
        if self.tokenizer.eos is None:
            raise Error("the tokenizer has no EOS, which lm_eval asks for", "unsupported")
        return int(self.tokenizer.eos)

    @property
    def prefix_token_id(self) -> int:
        if self._prefix is not None:
            return int(self._prefix)
        return self.eot_token_id if self.tokenizer.bos is None else int(self.tokenizer.bos)

    @property
    def max_length(self) -> int:
        return self._max_length

    @property
    def max_gen_toks(self) -> int:
        return self._max_gen_toks

    @property
    def tokenizer_name(self) -> str:
        return self._pretrained.replace("/", "__")

    def chat_template(self, chat_template: bool | str = False) -> str | None:
        """The model's own; its name or True chooses nothing else."""
        return self.tokenizer.chat_template if chat_template else None

    def apply_chat_template(self, chat_history: list[dict[str, str]], add_generation_prompt: bool = True) -> str:
        text = str(self.tokenizer.render_chat(chat_history, generation_prompt=add_generation_prompt))
        if add_generation_prompt:
            return text
        # The last message is to be gone on with: what the template puts behind it is left out.
        last = chat_history[-1]["content"].strip()
        return text[: text.rindex(last) + len(last)]

    def tok_encode(self, string: str, add_special_tokens: bool | None = None, **kwargs: Any) -> list[int]:
        add = add_special_tokens if add_special_tokens is not None else self._add_bos
        if add is None:
            # A chat template may have written the BOS already.
            bos = self.tokenizer.token(self.prefix_token_id)
            add = not (bos and string.startswith(bos))
        return list(self.tokenizer.encode(string, add_special=add))

    def _loglikelihood_tokens(
        self, requests: list[Any], disable_tqdm: bool = False, **kwargs: Any
    ) -> list[tuple[float, bool]]:
        pairs: list[tuple[list[int], list[int]]] = []
        for _, context, continuation in requests:
            if len(continuation) > self.max_length:
                raise Error(f"a continuation of {len(continuation)} tokens; expected at most {self.max_length} (max_length)")
            # The last token is predicted and not read. A context that is too long loses its beginning.
            keep = self.max_length + 1 - len(continuation)
            pairs.append((context[-keep:], continuation))
        scored = [i for i, (_, continuation) in enumerate(pairs) if continuation]
        results: list[tuple[float, bool]] = [(0.0, True)] * len(pairs)
        with tqdm(total=len(scored), disable=disable_tqdm, desc="Running loglikelihood requests") as bar:
            scores = self.model.score([pairs[i] for i in scored], cache=self._cache, progress=bar.update)
        for i, score in zip(scored, scores):
            results[i] = (score.log_likelihood, score.greedy)
        for (strings, _, _), result in zip(requests, results):
            if strings is not None:
                self.cache_hook.add_partial("loglikelihood", strings, result)
        return results

    def loglikelihood_rolling(self, requests: list[Any], disable_tqdm: bool = False) -> list[float]:
        windows: list[tuple[None, list[int], list[int]]] = []
        ends = []
        for request in requests:
            rolling = utils.get_rolling_token_windows(
                token_list=self.tok_encode(request.args[0]),
                prefix_token=self.prefix_token_id,
                max_seq_len=self.max_length,
                context_len=1,
            )
            windows.extend((None, *utils.make_disjoint_window(window)) for window in rolling)
            ends.append(len(windows))
        scores = self._loglikelihood_tokens(windows, disable_tqdm=disable_tqdm)
        sums: list[float] = []
        for request, begin, end in zip(requests, [0, *ends], ends):
            sums.append(sum(score for score, _ in scores[begin:end]))
            self.cache_hook.add_partial("loglikelihood_rolling", request.args, sums[-1])
        return sums

    def generate_until(self, requests: list[Any], disable_tqdm: bool = False) -> list[str]:
        answers = []
        for request in tqdm(requests, disable=disable_tqdm, desc="Running generate_until requests"):
            context, asked = request.args
            answers.append(self._generate(context, asked))
            self.cache_hook.add_partial("generate_until", (context, asked), answers[-1])
        return answers

    def _generate(self, context: str, asked: dict[str, Any]) -> str:
        wanted = normalize_gen_kwargs(asked, self.max_gen_toks)
        until = handle_stop_sequences(wanted.pop("until", None), eos=self.tokenizer.token(self.eot_token_id))
        max_tokens = int(wanted.pop("max_gen_toks"))
        if not wanted.pop("do_sample", False):
            wanted = {k: v for k, v in wanted.items() if k == "repetition_penalty"} | {"temperature": 0.0}
        unknown = sorted(set(wanted) - set(_OPTIONS))
        if unknown:
            raise Error(f"{unknown[0]}: kpd has no such option of generation; expected {', '.join(_OPTIONS)}")
        room = self.max_length - max_tokens
        if room <= 0:
            raise Error(f"max_gen_toks: {max_tokens} leaves no room for a prompt in {self.max_length} tokens")
        options: Any = {_OPTIONS[k]: v for k, v in wanted.items()}
        made = self.model.generate(
            self.tok_encode(context)[-room:],
            max_tokens=max_tokens,
            context=self.max_length,
            stop=until,
            cache=self._cache,
            **({"seed": 0} | options),
        )
        # Decoded alone, as the hf backend does it: an answer that goes on from a text may begin with a space there.
        return str(postprocess_generated_text(self.tokenizer.decode(made.token_ids), until, None))

    def get_model_info(self) -> dict[str, Any]:
        info = self.model.info
        return {"model_num_parameters": info.n_parameters, "model_dtype": f"kpd {info.arithmetic}"}


def main() -> None:
    """lm_eval's command line."""
    import kpd.lm_eval  # registers the class under its own name, not __main__'s
    from lm_eval.__main__ import cli_evaluate

    run: Callable[[], None] = cli_evaluate
    run()


if __name__ == "__main__":
    main()
else:
    register_model("kpd")(KpdLM)
