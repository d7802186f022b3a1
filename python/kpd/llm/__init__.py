"""Language models on a CPU: text, conversations, logits, perplexity and scores, from GGUF files and Hugging Face folders.

    from kpd import llm
    model = llm.Model.load("model.gguf")
    print(model.generate("The licence says", max_tokens=16, temperature=0).text)

What is computed, and how, is docs/guide/llm.md: this module is a door to it. Every call that reads files or runs a model
releases the GIL. Ctrl-C (any signal whose handler raises) ends it within half a second, and the object stays usable. Errors
are ``kpd.Error``.
"""

from kpd.llm._model import Model, Stream
from kpd.llm._results import Generated, ModelInfo, Perplexity, Score
from kpd.llm._tokenizer import Message, Tokenizer

__all__ = ["Generated", "Message", "Model", "ModelInfo", "Perplexity", "Score", "Stream", "Tokenizer"]
