#!/usr/bin/env python3
"""Records the golden streams anew and brings sections 14 and 15 of docs/format/gradient.md in line (README.md says when this is allowed).

    record.py BUILD_FOLDER        e.g. build/release; builds golden_golden_test there, needs numpy
"""
import os
import pathlib
import re
import struct
import subprocess
import sys

sys.dont_write_bytecode = True
import decode_gradient as reference  # noqa: E402  (after dont_write_bytecode)

FOLDER = pathlib.Path(__file__).resolve().parent
PAGE = FOLDER.parent.parent / "docs" / "format" / "gradient.md"


def tables_text():
    lloyd, steps = [], []
    for line in (FOLDER / "tables.txt").read_text().splitlines():
        f = line.split()
        if f[0] == "lloyd":
            lloyd.append(f"| {f[1]} | `{f[2]}` | `{f[3]}` |")
        elif f[0] == "step":
            dither = "yes" if f[2] == "1" else "no"
            steps.append(f"| {f[1]} | {dither} | {f[3]} | {f[4]} | {f[5]} | {f[6]} | {f[7]} | {f[8]} | `{f[9]}` `{f[10]}` |")
    return "\n".join(["| bits | level table | threshold table |", "|---|---|---|", *lloyd, "",
                      "| bits | dither | parameter | r | C | E | β | N | frequencies (class after class), values |", "|---|---|---|---|---|---|---|---|---|",
                      *steps])


def worked_rows(data):
    """(offset, length, meaning) of every field of streams/worked.kpdg."""
    rows, at = [], 0

    def row(n, text):
        nonlocal at
        rows.append((at, n, text))
        at += n

    def number(fmt):
        return struct.unpack_from("<" + fmt, data, at)[0]

    row(4, 'magic "KPDG"')
    row(1, "major version 2")
    row(1, "minor version 0")
    row(2, "flags: file form")
    header = number("I")
    row(4, f"header length {header}")
    n_tensors = number("I")
    row(4, f"{n_tensors} tensors")
    row(8, f"total length {number('Q')}")
    row(8, f"seed {number('Q')}")
    row(8, f"round {number('Q')}")
    row(8, f"client {number('Q')}")
    for _ in range(n_tensors):
        n = number("H")
        row(2, f"name length {n}")
        row(n, f'name "{data[at:at + n].decode()}"')
        row(1, "dtype float32")
        dims = number("B")
        row(1, f"{dims} dimension")
        row(8, f"dimension {number('Q')}")
    assert at == header
    row(2, f"{number('H')} codec")
    row(1, f"codec 0: method {data[at]}, eden")
    row(1, f"block 2^{data[at]}")
    row(1, "rounds: by size")
    row(1, "scale kind 0")
    row(2, f"flags {number('H')}: join")
    row(4, f"rate {number('I')} = {number('I') / 65536:g} bits")
    row(4, "parameter 0")
    row(1, "tensors with codec 0,")
    row(1, f"a run of {data[at]}")
    word = number("I")
    row(4, f"tensor 0: scale word {word:08x}: e {word >> 23}, m {word >> 1 & 0x3fffff}, {'three rounds' if word & 1 else 'rounds of its size'}")
    row(8, "plane 0 of 64 codes: signs")
    row(8, "plane 1: magnitude codes")
    for i in range(2):
        row(4, ("tensor 1: " if i == 0 else "") + repr(number("f")))
    row(4, "CRC-32 of the bytes before")
    assert at == len(data)
    return rows


def worked_text():
    data = (FOLDER / "streams" / "worked.kpdg").read_bytes()
    lines = []
    for at, n, text in worked_rows(data):
        for i in range(0, n, 8):
            part = " ".join(f"{b:02x}" for b in data[at + i:at + min(n, i + 8)])
            lines.append(f"    {at + i:04x}  {part:<23}  {text}" if i == 0 else f"    {at + i:04x}  {part:<23}  …")
    header = struct.unpack_from("<I", data, 8)[0]
    secret = reference.secret_of_seed(1)
    ids = {"manifest": reference.manifest_hash(data[48:header], 2), "run": 0, "round": 0, "client": 0}
    rotation, own = (reference.derive(secret, ids, 0, 0, kind) for kind in (0, 1))
    payload = header + 2 + 14 + 2
    word = struct.unpack_from("<I", data, payload)[0]
    scale = reference.scale_of(word)
    signs, codes = data[payload + 4:payload + 12], data[payload + 12:payload + 20]
    levels = reference.level_table(2)
    y = [(-1 if signs[i // 8] >> (i % 8) & 1 else 1) * levels[codes[i // 8] >> (i % 8) & 1] for i in range(64)]
    decoded = reference.decode_stream(data)
    x = [((7919 * i * i + 104729 * i + 12345) % 65521 - 32760) * 2.0 ** -(12 + i % 5) for i in range(6)]

    def show(values):
        return ", ".join(f"{float(v):.9g}" for v in values) + ", …"

    def sign_words(r):
        return " ".join(f"{int(w):08x}" for w in reference.random_words(rotation, 0, r, 2))

    lines += ["", "Decoding tensor 0, step by step:", "",
              f"- secret = SHA-256(\"kpd-seed\" ‖ u64 1) = `{secret.hex()}`",
              f"- manifest hash `{ids['manifest']:016x}`, rotation key `{rotation:016x}`, own key `{own:016x}`",
              f"- one block of n = 64; S = {scale!r}; levels of 2 bits: {float(levels[0])!r}, {float(levels[1])!r}",
              f"- reconstruction values y: {show(y[:6])}",
              "- sign words: " + ", ".join(f"round {r} `{sign_words(r)}`" for r in range(5)),
              f"- five rounds: g = 64² · √64 = {reference.gain(64, 5):g}; f = S / g = {scale / reference.gain(64, 5)!r}",
              f"- decoded: {show(decoded[0][1][:6])}",
              f"- the input was: {show(x)}",
              f"- SHA-256 of the 64 decoded floats: `{reference.sha256_of(decoded[:1])}`"]
    return "\n".join(lines)


def replace_part(page, name, text):
    begin, end = f"<!-- {name}: made by tests/golden/record.py -->\n", f"<!-- end of {name} -->\n"
    pattern = re.compile(re.escape(begin) + ".*?" + re.escape(end), re.S)
    if not pattern.search(page):
        sys.exit(f"{PAGE}: no part '{name}'")
    return pattern.sub(lambda _: begin + "\n" + text + "\n\n" + end, page)


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    build = pathlib.Path(sys.argv[1])
    subprocess.run(["cmake", "--build", str(build), "--target", "golden_golden_test"], check=True)
    test = build / "bin" / "golden_golden_test"
    subprocess.run([str(test), "--gtest_filter=Golden.Record"], check=True, env={**os.environ, "KPD_GOLDEN_RECORD": "1"})
    page = PAGE.read_text()
    page = replace_part(page, "tables", tables_text())
    PAGE.write_text(replace_part(page, "worked", worked_text()))
    subprocess.run([str(test)], check=True)
    return reference.check_golden(FOLDER)


if __name__ == "__main__":
    sys.exit(main())
