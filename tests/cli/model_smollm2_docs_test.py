#!/usr/bin/env python3
"""The shell blocks of README.md and the guides that use SmolLM2, run as docs_test.py runs the others; skipped where the model of
scripts/get_smollm2.sh is missing."""
import functools

import docs_test
from run_cli_tests import run_cases

for page in docs_test.PAGES:
    if "build/models/" in page.read_text(encoding="utf-8"):
        globals()[f"case_shell_of_{docs_test.name_of(page)}"] = functools.partial(docs_test.model_case, page)

if __name__ == "__main__":
    run_cases(globals())
