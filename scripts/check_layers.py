#!/usr/bin/env python3
"""Checks the dependency law on the #include lines. MAY_USE is the law; the table of ARCHITECTURE.md has to say the same.

tools, python, examples and bench use public headers only (bench also those of kernels, which has no others, and of tests); tests and
fuzzers may use all.
"""
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
MIDDLE = {"base", "kernels"}
LLM = MIDDLE | {"io", "quant", "text", "weight", "cache"}
RECIPE = LLM | {"llm", "transform", "coding"}
MAY_USE = {
    "base": set(),
    "kernels": {"base"},
    "comm": {"base"},
    "io": {"base"},
    "transform": MIDDLE,
    "quant": MIDDLE,
    "coding": MIDDLE,
    "weight": MIDDLE | {"transform", "quant", "coding"},
    "gradient": MIDDLE | {"comm", "transform", "quant", "coding"},
    "text": {"base", "io"},
    "cache": MIDDLE | {"transform", "quant", "coding"},
    "llm": LLM,
    "recipe": RECIPE,
    "train": RECIPE | {"recipe", "gradient", "comm"},
    "diffusion": MIDDLE | {"comm", "io", "transform", "quant", "weight"},
}
# kernels is private: it has no folder in include/.
NOT_PUBLIC = {"kernels"}
# What a stage may include from outside kpd, beside the C and C++ standard libraries and the operating system.
LIBRARIES = {
    "hwy/": {"base", "kernels", "transform", "quant", "coding", "weight", "cache", "gradient"},
    "nlohmann/": {"io"},
    "zlib.h": {"io"},
    "torch/": {"train", "diffusion"},
    "c10/": {"train", "diffusion"},
    "ATen/": {"train", "diffusion"},
    "pcre2.h": {"text"},
    "mpi.h": {"comm"},
    "gloo/": {"train"},
    "CLI/": set(),
    "fmt/": set(),
    "gtest/": set(),
    "benchmark/": set(),
}
OUTSIDERS = ("tools", "python", "examples", "bench")
INCLUDE = re.compile(r'^\s*#\s*include\s*[<"]([^>"]+)[>"]')


def includes(path):
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        match = INCLUDE.match(line)
        if match:
            yield number, match.group(1)


def stage_of(included, folder):
    """The stage that an include line names, or None. `folder` is the including file's folder."""
    if included.startswith("kpd/"):
        parts = included.split("/")
        return (parts[1] if len(parts) > 2 else ""), True
    first = included.split("/")[0]
    if "/" in included and first in MAY_USE:
        return first, False
    if "/" not in included and (folder / included).exists():
        return folder.name, False
    return None, False


def check_library_file(path, stage, public, problems):
    where = path.relative_to(ROOT)
    for number, included in includes(path):
        used, is_public = stage_of(included, path.parent)
        if used is not None:
            if used and used not in MAY_USE:
                problems.append(f"{where}:{number}: '{included}' is of no stage that this script knows; add it to the law first")
            elif used and used != stage and used not in MAY_USE[stage]:
                problems.append(f"{where}:{number}: {stage} may not include {used} ('{included}')")
            if public and not is_public:
                problems.append(f"{where}:{number}: a public header includes the private '{included}'")
        if public and any(included.startswith(library) for library in LIBRARIES):
            problems.append(f"{where}:{number}: a public header includes '{included}' of another library")
        for library, stages in LIBRARIES.items():
            if included.startswith(library) and stage not in stages:
                problems.append(f"{where}:{number}: {stage} may not include '{included}'")


def check_outsider(path, problems):
    for number, included in includes(path):
        used, is_public = stage_of(included, path.parent)
        if used == "kernels" and path.parent.name == "bench":
            continue
        if used in MAY_USE and not is_public and path.parent.name not in MAY_USE:
            problems.append(f"{path.relative_to(ROOT)}:{number}: only public headers (kpd/...) may be used here, not '{included}'")


def check_table(problems):
    """The rows "| stage | target | holds | may include |" of ARCHITECTURE.md: those of the stages that have a folder."""
    text = (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8")
    rows = {}
    for line in text.splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if line.startswith("|") and len(cells) == 4 and cells[0] in MAY_USE:
            law = cells[3]
            rows[cells[0]] = set(rows) if law == "all of these" else set() if law == "nothing" else set(law.split(", "))
    built = {folder.name for folder in (ROOT / "src").iterdir() if folder.is_dir()}
    for stage in sorted(built & MAY_USE.keys()):
        if stage not in rows:
            problems.append(f"ARCHITECTURE.md: the table of stages has no row '{stage}'")
        elif rows[stage] != MAY_USE[stage] & built:
            problems.append(f"ARCHITECTURE.md: {stage} may include {', '.join(sorted(rows[stage])) or 'nothing'}, "
                            f"the law says {', '.join(sorted(MAY_USE[stage] & built)) or 'nothing'}")


def sources(folder):
    return sorted(p for p in folder.rglob("*") if p.suffix in {".cc", ".h", ".c"})


def main():
    problems = []
    n_files = 0
    for top, public in ((ROOT / "include" / "kpd", True), (ROOT / "src", False)):
        for folder in sorted(p for p in top.iterdir() if p.is_dir()):
            stage = folder.name
            if stage not in MAY_USE or (public and stage in NOT_PUBLIC):
                problems.append(f"{folder.relative_to(ROOT)}: not a stage that may stand here")
                continue
            for path in sources(folder):
                n_files += 1
                check_library_file(path, stage, public, problems)
    for name in OUTSIDERS:
        if (ROOT / name).is_dir():
            for path in sources(ROOT / name):
                n_files += 1
                check_outsider(path, problems)
    check_table(problems)
    print("\n".join(problems) or f"{n_files} files keep the dependency law")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
