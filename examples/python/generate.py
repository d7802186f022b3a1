"""Answers a question, piece by piece as the text is made, with a model from a GGUF file or a Hugging Face folder."""

import sys

import kpd
from kpd import llm


def main() -> int:
    if len(sys.argv) != 3:
        print("usage: generate.py MODEL QUESTION", file=sys.stderr)
        return 2
    try:
        model = llm.Model.load(sys.argv[1])
        with model.chat(sys.argv[2], max_tokens=64, temperature=0.8, top_p=0.95, seed=1, stream=True) as stream:
            for text in stream:
                print(text, end="", flush=True)
            answer = stream.result()
    except kpd.Error as error:
        print(error, file=sys.stderr)
        return 1
    print(f"\n{answer.tokens} tokens, ended by {answer.finish_reason}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
