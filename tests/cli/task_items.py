"""Items of the tasks of `kpd eval`, for the tiny chat model, and the files they come in."""
import json

HELLASWAG = """Law: The License [title] You may [step] reproduce and distribute
3
copies of the Work.
soup.
the the th\u00e9 the.
copies of the Work or Derivative Works.
Cooking. Add the""" + " term or condition" * 15 + """
0
salt.
Work
entity.
or any of the Work
"""
PIQA = [{"goal": "What shall a License mean?", "sol1": "the terms and conditions ", "sol2": "a ladder"},
        {"goal": "dresser", "sol1": "any of the Work", "sol2": "any of the Work, twice"}]
LAMBADA = [{"text": "Derivative Works or Derivative Works"}, {"text": "and distribute the   Work."}]


def write_tasks(t):
    t.path("hellaswag.txt").write_text(HELLASWAG)
    t.path("piqa.jsonl").write_text("".join(json.dumps(item) + "\n" for item in PIQA))
    t.path("piqa-labels.lst").write_text("0\n1\n")
    t.path("lambada.jsonl").write_text("".join(json.dumps(item) + "\n" for item in LAMBADA))
    return {"hellaswag": "hellaswag.txt", "piqa": "piqa.jsonl", "lambada": "lambada.jsonl"}
