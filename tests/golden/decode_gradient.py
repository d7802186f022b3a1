#!/usr/bin/env python3
"""A slow, readable decoder of kpd gradient streams, written from docs/format/gradient.md (and docs/methods/baselines.md for the baseline methods).

It shares no code with the library and is the page's proof: whatever it cannot decode is missing there. Section numbers in comments are the
page's. Float arithmetic is numpy's float32 (IEEE, one rounding per operation), double arithmetic is Python's own.

    decode_gradient.py STREAM [--secret-seed S --manifest M]      prints each tensor's name, count and the SHA-256 of its float32 values
    decode_gradient.py --golden FOLDER               decodes every stream listed in FOLDER/golden.txt and compares the hashes

Exit code 0: equal, 1: not, 77: numpy is not installed.
"""
import argparse
import hashlib
import math
import pathlib
import struct
import sys
import zlib

try:
    import numpy as np
except ImportError:
    print("SKIPPED: this check needs numpy (Debian: python3-numpy)", file=sys.stderr)
    sys.exit(77)

F32 = np.float32
FLT_MAX = float(np.finfo(np.float32).max)
NO_ELEMENTS = b"\0\0\0\x80"  # randk: a block whose kept elements are all 0


class Corrupt(Exception):
    pass


def require(ok, text):
    if not ok:
        raise Corrupt(text)


# ---------------------------------------------------------------- 10 Tables: exact functions of doubles

def exact_exp(x):
    if not x >= -708:
        return 0.0
    if x > 709:
        return math.inf
    t = x * 1.44269504088896340736
    k = int(t - 0.5 if t < 0 else t + 0.5)
    high = x - k * 6.93147180369123816490e-01
    low = k * 1.90821492927058770002e-10
    r = high - low
    corr = (high - r) - low
    s = 1 / 15
    for n in range(14, 2, -1):
        s = (1 + r * s) / n
    tail = (1 + r * s) * 0.5
    v = 1 + (r + (corr + (r * r) * tail))
    half = int(k / 2)
    return (v * math.ldexp(1.0, half)) * math.ldexp(1.0, k - half)


def pdf(x):
    x = abs(x)
    if not x <= 37:
        return 0.0
    bits = struct.unpack("<Q", struct.pack("<d", x))[0] & 0xFFFFFFFFF8000000
    h = struct.unpack("<d", struct.pack("<Q", bits))[0]
    return (0.398942280401432677939946 * exact_exp(-0.5 * (h * h))) * exact_exp(-0.5 * ((x - h) * (x + h)))


def centre(x):
    x2 = x * x
    s = 1.0
    for k in range(18, 0, -1):
        s = 1 + (x2 * s) / (2 * k + 1)
    return (pdf(x) * x) * s


def tail(x):
    if x > 37:
        return 0.0
    terms = 240 if x < 1.5 else 120 if x < 2 else 72 if x < 3 else 40 if x < 4 else 28 if x < 6 else 18 if x < 8 else 14
    t = (x + math.sqrt(x * x + 4 * (terms + 1))) * 0.5
    for n in range(terms, 0, -1):
        t = x + n / t
    return pdf(x) / t


def upper(x):
    if x >= 1:
        return tail(x)
    if x <= -1:
        return 1 - tail(-x)
    return 0.5 - centre(x)


def cdf(x):
    return upper(-x)


def narrow(a, b):
    return b - a < 0.5 and abs(0.5 * (a + b)) * (0.5 * (b - a)) <= 3


def narrow_cell(m, h):
    p, c = 1.0, m * h
    even, odd = 1.0, c / 3
    for n in range(1, 34):
        p, c = c, ((m * h) * c - (h * h) * p) / (n + 1)
        if (n + 1) % 2 == 0:
            even = even + c / (n + 2)
        else:
            odd = odd + c / (n + 3)
    return ((2 * h) * pdf(m)) * even, m - h * (odd / even)


def interval(a, b):
    if not a < b:
        return 0.0
    if narrow(a, b):
        return narrow_cell(0.5 * (a + b), 0.5 * (b - a))[0]
    if a >= 1:
        return upper(a) - upper(b)
    if b <= -1:
        return upper(-b) - upper(-a)

    def below(t):
        if -1 <= t <= 1:
            return centre(t)
        return 0.5 - tail(t) if t > 1 else -(0.5 - tail(-t))

    return below(b) - below(a)


def cell(a, b):
    near = a if a > 0 else b if b < 0 else 0.0
    if not a < b:
        return 0.0, near
    if narrow(a, b):
        mass, mean = narrow_cell(0.5 * (a + b), 0.5 * (b - a))
        return (mass, mean) if mass > 0 else (0.0, near)
    mass = interval(a, b)
    if not mass > 0:
        return 0.0, near
    return mass, (pdf(a) - pdf(b)) / mass


def lloyd_max(bits):
    """10.5: the positive levels in double."""
    n = 1 << (bits - 1)
    c, x = [], 0.0
    for i in range(n):
        t = (n - i - 0.5) / (2.0 * n)
        for _ in range(6 if i == 0 else 3):
            x = x + (upper(x) - t) / pdf(x)
        c.append(math.sqrt(3.0) * x)
    for _ in range(12):
        d_, u_, g_ = [], [], []
        for i in range(n):
            a = 0.0 if i == 0 else 0.5 * (c[i - 1] + c[i])
            b = math.inf if i == n - 1 else 0.5 * (c[i] + c[i + 1])
            mass, mean = cell(a, b)
            by_a = 0.0 if i == 0 else ((0.5 * pdf(a)) * (mean - a)) / mass
            by_b = 0.0 if i == n - 1 else ((0.5 * pdf(b)) * (b - mean)) / mass
            d = (1 - by_a) - by_b
            g = mean - c[i]
            if i > 0:
                q = -by_a / d_[i - 1]
                d = d - q * u_[i - 1]
                g = g - q * g_[i - 1]
            d_.append(d)
            u_.append(-by_b)
            g_.append(g)
        s = 0.0
        for i in range(n - 1, -1, -1):
            s = (g_[i] - u_[i] * s) / d_[i]
            g_[i] = s
        c = [c[i] + g_[i] for i in range(n)]
    return c


_levels = {}


def level_table(bits):
    if bits not in _levels:
        _levels[bits] = np.array(lloyd_max(bits), dtype=np.float64).astype(F32)
    return _levels[bits]


class StepTable:
    """10.6: everything that follows from the step and the dither flag."""

    def __init__(self, parameter, dither):
        step = parameter * 2.0 ** -20
        self.step, self.dither = step, dither
        r = 0
        while step * (1 << r) < 0.11:
            r += 1
        half = 0 if r == 0 else 1 << (r - 1)
        self.raw_bits = r
        self.classes = 1 if not dither else 16 if step >= 0.5 else 4 if step >= 0.11 else 1

        def first(s):
            return s * (1 << r) - half

        def edge(i):
            return (i - 0.5) * step

        def u_of(c):
            return (c / self.classes - 0.5) * step

        def integral(x):  # G
            return x + integral(-x) if x > 0 else pdf(x) + x * cdf(x)

        def mass(a, b, c):
            if not dither:
                return interval(a, b)
            u, v = u_of(c), u_of(c + 1)
            p = ((integral(b - u) - integral(b - v)) - (integral(a - u) - integral(a - v))) / (v - u)
            return p if p > 0 else 0.0

        def outside(a, b, c):
            if not dither:
                return cdf(a) + upper(b)
            u, v = u_of(c), u_of(c + 1)
            return ((integral(a - u) - integral(a - v)) + (integral(v - b) - integral(u - b))) / (v - u)

        s_max = 1
        while True:
            total = 0.0
            for c in range(self.classes):
                total += outside(edge(first(-s_max)), edge(first(s_max + 1)), c)
            if total / self.classes < 1 / 32768:
                break
            s_max += 1
        self.escape = 2 * s_max + 1
        self.bias = s_max * (1 << r) + half
        self.n_indices = (2 * s_max + 1) << r
        self.frequencies = []
        for c in range(self.classes):
            p = [mass(edge(first(s)), edge(first(s + 1)), c) for s in range(-s_max, s_max + 1)]
            p.append(outside(edge(first(-s_max)), edge(first(s_max + 1)), c))
            self.frequencies.append(quantize_frequencies(p))
        values = []
        for u in range(self.n_indices):
            i = u - self.bias
            if dither:
                values.append(F32(i * step) if i != 0 else F32(0))
            elif i == 0:
                values.append(F32(0))
            else:
                centroid = F32(cell(edge(abs(i)), edge(abs(i) + 1))[1])
                values.append(-centroid if i < 0 else centroid)
        self.values = np.array(values, dtype=F32)
        self.largest = np.max(np.abs(self.values))


def quantize_frequencies(p):
    f = [max(1, int(4096 * v + 0.5)) for v in p]
    while sum(f) > 4096:
        k = min((k for k in range(len(f)) if f[k] >= 2), key=lambda k: (p[k] / (f[k] - 0.5), k))
        f[k] -= 1
    while sum(f) < 4096:
        k = min(range(len(f)), key=lambda k: (-(p[k] / (f[k] + 0.5)), k))
        f[k] += 1
    return f


_steps = {}


def step_table(parameter, dither):
    if (parameter, dither) not in _steps:
        _steps[parameter, dither] = StepTable(parameter, dither)
    return _steps[parameter, dither]


# ---------------------------------------------------------------- 4 Random numbers

SIGNS, SECOND_SIGNS, TIES, WINDOW, STOCHASTIC, DITHER, PACKETS = 0, 8, 16, 17, 18, 19, 20
MASK = (1 << 32) - 1


def random_words(key, block, purpose, n):
    """4.2: the first n words, as uint64."""
    count = (n + 3) // 4
    c0 = np.arange(count, dtype=np.uint64)
    c1 = np.full(count, purpose, dtype=np.uint64)
    c2 = np.full(count, block & MASK, dtype=np.uint64)
    c3 = np.full(count, block >> 32, dtype=np.uint64)
    k0, k1 = key & MASK, key >> 32
    low, shift = np.uint64(MASK), np.uint64(32)
    for _ in range(10):
        p, q = np.uint64(0xD2511F53) * c0, np.uint64(0xCD9E8D57) * c2
        c0, c1, c2, c3 = (q >> shift) ^ c1 ^ np.uint64(k0), q & low, (p >> shift) ^ c3 ^ np.uint64(k1), p & low
        k0, k1 = (k0 + 0x9E3779B9) & MASK, (k1 + 0xBB67AE85) & MASK
    return np.stack([c0, c1, c2, c3], axis=1).reshape(-1)[:n]


def random_bits(key, block, purpose, n):
    words = random_words(key, block, purpose, (n + 31) // 32)
    j = np.arange(n)
    return ((words[j // 32] >> (j % 32).astype(np.uint64)) & np.uint64(1)).astype(bool)


def derive(secret, ids, client, unit, kind):
    text = b"kpd-gradient-2" + secret + struct.pack("<6Q", ids["manifest"], ids["run"], ids["round"], client, unit, kind)
    return struct.unpack("<Q", hashlib.sha256(text).digest()[:8])[0]


def secret_of_seed(seed):
    return hashlib.sha256(b"kpd-seed" + struct.pack("<Q", seed)).digest()


# ---------------------------------------------------------------- 5 Rotation

def hadamard(y):
    h = 1
    while h < len(y):
        pairs = y.reshape(-1, 2, h)
        a, b = pairs[:, 0, :].copy(), pairs[:, 1, :].copy()
        pairs[:, 0, :] = a + b
        pairs[:, 1, :] = a - b
        h *= 2


def gain(n, rounds):
    if n & (n - 1):
        return 1.0
    g = 1.0
    for _ in range(rounds // 2):
        g *= n
    return g * math.sqrt(n) if rounds % 2 else g


SQRT_HALF = F32(math.sqrt(0.5))


def negate(y, bits):
    return np.where(bits, -y, y)


def mirror_pairs(y):
    """Its own inverse."""
    half, n = len(y) // 2, len(y)
    a, b = y[:half].copy(), y[n - half:][::-1].copy()
    y[:half] = (a + b) * SQRT_HALF
    y[n - half:] = ((a - b) * SQRT_HALF)[::-1]


def unrotate(y, rounds, key, block, f):
    """The inverse of R times the float f."""
    n = len(y)
    y = y.copy()
    m = 1 << (n.bit_length() - 1)
    c = F32(1.0 / math.sqrt(m))
    for r in range(rounds - 1, -1, -1):
        if m == n:
            hadamard(y)
        else:
            mirror_pairs(y)
            last = y[n - m:].copy()
            hadamard(last)
            y[n - m:] = negate(last * c, random_bits(key, block, SECOND_SIGNS + r, m))
            first = y[:m].copy()
            hadamard(first)
            y[:m] = first * c
        if r == 0:
            y = y * f
        y = negate(y, random_bits(key, block, SIGNS + r, n))
    return y


def saturated(v):
    return np.clip(v, -FLT_MAX, FLT_MAX).astype(F32)


# ---------------------------------------------------------------- 3 Blocks and segments

class Block:
    def __init__(self, number, n):
        self.number, self.n = number, n


def segments_of(count, block_size):
    """Lists of Blocks, one list a segment."""
    if count == 0:
        return []
    blocks = max(1, count // block_size)
    all_blocks = [Block(k, block_size) for k in range(blocks)]
    all_blocks[-1].n = count - (blocks - 1) * block_size
    return [all_blocks[i:i + 64] for i in range(0, blocks, 64)]


class Reader:
    def __init__(self, data, at=0, end=None):
        self.data, self.at, self.end = data, at, len(data) if end is None else end

    def take(self, n):
        require(n <= self.end - self.at, f"byte {self.at}: {n} bytes wanted, {self.end - self.at} are left")
        self.at += n
        return self.data[self.at - n:self.at]

    def number(self, fmt):
        return struct.unpack("<" + fmt, self.take(struct.calcsize("<" + fmt)))[0]

    def left(self):
        return self.end - self.at


def plane_bytes(n):
    return (n + 7) // 8


def read_plane(r, n):
    return np.unpackbits(np.frombuffer(r.take(plane_bytes(n)), dtype=np.uint8), bitorder="little")[:n].astype(np.int64)


# ---------------------------------------------------------------- 6 Scale word

def check_word(word, record):
    require(word == 0 or word >> 23 != 0, f"scale word {word:#x} has no exponent")
    may_ask = record.get("sized") and record["rounds"] == 2 and not record["flags"] & 2
    require(may_ask or not word & 1, "a scale word asks for three rounds where it may not")
    return word


def scale_of(word):
    return math.ldexp(1 + ((word >> 1) & 0x3FFFFF) * 2.0 ** -22, (word >> 23) - 256)


def finish_eden_block(y, record, keys, block, word, largest, share=1.0):
    """`share`: coded coordinates divided by those that arrived (13.2)."""
    rounds = 3 if word & 1 else record["rounds"]
    n, s, g = len(y), scale_of(word) * share, gain(len(y), rounds)
    f = s / g
    where = (rounds, keys["rotation"], block.number)
    if (s * largest) * math.sqrt(n) < 2.0 ** 126 and 2.0 ** -90 < f < 2.0 ** 100:
        return unrotate(y, *where, F32(f))
    return saturated(unrotate(y, *where, F32(1)).astype(np.float64) * f)


# ---------------------------------------------------------------- 7 eden, code=fixed

def eden_fixed_parts(n, rate):
    """(number of coded coordinates, [(coordinates, bits)])."""
    if rate < 65536:
        k = max(1, (rate * n + 32768) >> 16)
        return k, [(k, 1)]
    b, finer = rate >> 16, ((rate & 0xFFFF) * n + 32768) >> 16
    return n, [part for part in [(finer, b + 1), (n - finer, b)] if part[0] > 0]


def decode_eden_fixed(r, record, keys, blocks):
    words = [check_word(r.number("I"), record) for _ in blocks]
    rates = [record["rate"]] * len(blocks)
    if record["flags"] & 4:
        units = [r.number("B") for _ in blocks]
        require(all(1 <= u <= 160 for u in units), "rate of a block outside 1..160")
        rates = [(65536 * u + 10) // 20 for u in units]
    out = []
    for block, word, rate in zip(blocks, words, rates):
        if word == 0:
            out.append(np.zeros(block.n, dtype=F32))
            continue
        kept, parts = eden_fixed_parts(block.n, rate)
        coded, largest = [], 0.0
        for count, bits in parts:
            sign = read_plane(r, count)
            m = np.zeros(count, dtype=np.int64)
            for _ in range(bits - 1):
                m = 2 * m + read_plane(r, count)
            levels = np.array([1], dtype=F32) if rate <= 65536 else level_table(bits)
            coded.append(np.where(sign == 1, -levels[m], levels[m]))
            largest = max(largest, float(levels[-1]))
        y = np.concatenate(coded)
        if kept < block.n:
            start = (int(random_words(keys["own"], block.number, WINDOW, 1)[0]) * block.n) >> 32
            whole = np.zeros(block.n, dtype=F32)
            whole[(start + np.arange(kept)) % block.n] = y
            y = whole
        out.append(finish_eden_block(y, record, keys, block, word, largest))
    require(r.left() == 0, "bytes after the last block of a segment")
    return np.concatenate(out)


# ---------------------------------------------------------------- 8 eden, code=entropy

class Rans:
    """8.2"""

    def __init__(self, data):
        require(len(data) >= 32 and len(data) % 2 == 0, "a rANS flush has 32 bytes of states and whole words")
        self.x = list(struct.unpack("<8I", data[:32]))
        require(all(x >= 65536 for x in self.x), "a rANS state is below 65536")
        self.words, self.next = struct.unpack(f"<{(len(data) - 32) // 2}H", data[32:]), 0

    def run(self, frequencies, n):
        symbol_of, start = [], []
        for s, f in enumerate(frequencies):
            start.append(len(symbol_of))
            symbol_of += [s] * f
        out = np.zeros(n, dtype=np.int64)
        for i in range(n):
            x = self.x[i % 8]
            slot = x & 4095
            s = symbol_of[slot]
            x = frequencies[s] * (x >> 12) + slot - start[s]
            if x < 65536:
                require(self.next < len(self.words), "the rANS words end early")
                x = (x << 16) | self.words[self.next]
                self.next += 1
            self.x[i % 8] = x
            out[i] = s
        return out

    def finish(self):
        require(self.next == len(self.words), "rANS words are left")
        require(all(x == 65536 for x in self.x), "a rANS state does not end at 65536")


def dither_sections(table, keys, block):
    """8.3: [(first, count, class)] in the order of the runs."""
    n_sections = (block.n + 127) // 128
    words = random_words(keys["own"], block.number, WINDOW, n_sections)
    sections = [(128 * k, min(128, block.n - 128 * k), (int(w) * table.classes) >> 32) for k, w in enumerate(words)]
    return sorted(sections, key=lambda s: s[2])  # stable: by place within a class


def dither_offsets(table, keys, block, sections):
    words = random_words(keys["own"], block.number, DITHER, (block.n + 1) // 2)
    unit = F32(1) / F32(65536 * table.classes)
    offsets = np.zeros(block.n, dtype=F32)
    for first, count, c in sections:
        i = np.arange(first, first + count)
        h = ((words[i // 2] >> (16 * (i % 2)).astype(np.uint64)) & np.uint64(0xFFFF)).astype(F32)
        offsets[i] = (F32(c) / F32(table.classes) + unit / F32(2)) + h * unit
    return offsets


def decode_eden_entropy(r, record, keys, blocks):
    dither = bool(record["flags"] & 2)
    table = step_table(record["param"], dither)
    words = [check_word(r.number("I"), record) for _ in blocks]
    low = {}
    for block, word in zip(blocks, words):
        if word != 0:
            low[block.number] = np.zeros(block.n, dtype=np.int64)
            for _ in range(table.raw_bits):
                low[block.number] = 2 * low[block.number] + read_plane(r, block.n)
    rans = Rans(r.take(r.number("I")))
    coded = [(block, word) for block, word in zip(blocks, words) if word != 0]
    symbols = {}
    if not dither:
        run = rans.run(table.frequencies[0], sum(block.n for block, _ in coded))
        for block, _ in coded:
            symbols[block.number], run = run[:block.n], run[block.n:]
    else:
        for block, _ in coded:
            symbols[block.number] = np.zeros(block.n, dtype=np.int64)
            for first, count, c in dither_sections(table, keys, block):
                symbols[block.number][first:first + count] = rans.run(table.frequencies[c], count)
    rans.finish()
    out = []
    for block, word in zip(blocks, words):
        if word == 0:
            out.append(np.zeros(block.n, dtype=F32))
            continue
        s = symbols[block.number]
        escaped = s == table.escape
        u = np.where(escaped, 0, (s << table.raw_bits) + low[block.number])
        y = table.values[u]
        largest = table.largest
        for i in np.nonzero(escaped)[0]:
            y[i] = F32(r.number("h") * table.step)
            largest = max(largest, abs(y[i]))
        if dither:
            offsets = dither_offsets(table, keys, block, dither_sections(table, keys, block))
            y = y - (offsets - F32(0.5)) * F32(table.step)
        out.append(finish_eden_block(y, record, keys, block, word, float(F32(largest) + F32(table.step))))
    require(r.left() == 0, "bytes after the last escape")
    return np.concatenate(out)


# ---------------------------------------------------------------- 9 Other methods (docs/methods/baselines.md)

def raw_floats(r, count):
    return np.frombuffer(r.take(4 * count), dtype="<f4").astype(F32)


def finite_float(r):
    v = r.number("f")
    require(math.isfinite(v), "a float of a segment is not finite")
    return F32(v)


def exponent_unit(v):
    """The power of two with unit <= |v| < 2 unit; 1 for 0."""
    return math.ldexp(1.0, math.frexp(float(v))[1] - 1) if v != 0 else 1.0


def emit(y, factor):
    return saturated(y.astype(np.float64) * factor)


def undo_rotation(y, record, keys, block):
    g = gain(len(y), record["rounds"])
    return unrotate(y, record["rounds"], keys["rotation"], block.number, F32(1.0 / g))


def window(keys, block, n):
    return (int(random_words(keys["own"], block.number, WINDOW, 1)[0]) * n) >> 32


def subset(keys, block, n, k):
    """Algorithm S."""
    chosen, words = [], random_words(keys["own"], block.number, WINDOW, n)
    for i in range(n):
        if len(chosen) < k and (int(words[i]) * (n - i)) >> 32 < k - len(chosen):
            chosen.append(i)
    return np.array(chosen, dtype=np.int64)


class BitString:
    """Bit j is bit j mod 8 of byte j / 8 ("little") or bit 7 - j mod 8 ("big": qsgd's Elias codes)."""

    def __init__(self, data, order="little"):
        self.bits = np.unpackbits(np.frombuffer(data, dtype=np.uint8), bitorder=order).tolist()
        self.at = 0

    def get(self, n):
        """n bits, the lowest first."""
        require(self.at + n <= len(self.bits), "a bit string ends early")
        v = sum(bit << i for i, bit in enumerate(self.bits[self.at:self.at + n]))
        self.at += n
        return v

    def omega(self):
        n = 1
        while self.get(1):
            require(n <= 30, "an Elias code is too long")
            v = 1
            for _ in range(n):
                v = 2 * v + self.get(1)
            n = v
        return n

    def finish(self):
        rest = self.bits[self.at:]
        require(len(rest) < 8 and not any(rest), "bits follow the last code")


def decode_drive(r, record, keys, blocks):
    heads = [finite_float(r) for _ in blocks]
    require(all(s >= 0 for s in heads), "negative scale")
    out = []
    for block, scale in zip(blocks, heads):
        if scale == 0:
            out.append(np.zeros(block.n, dtype=F32))
            continue
        y = np.where(one_bit_codes(r, block.n) == 1, F32(1), F32(-1))
        out.append(emit(undo_rotation(y, record, keys, block), float(scale)))
    return np.concatenate(out)


def decode_drive_plus(r, record, keys, blocks):
    heads = [(finite_float(r), finite_float(r)) for _ in blocks]
    out = []
    for block, (low, high) in zip(blocks, heads):
        require(low <= high, "the low centroid exceeds the high one")
        if low == 0 and high == 0:
            out.append(np.zeros(block.n, dtype=F32))
            continue
        unit = exponent_unit(-low if -low > high else high)
        values = [F32(float(low) / unit), F32(float(high) / unit)]
        y = np.where(one_bit_codes(r, block.n) == 1, values[1], values[0])
        out.append(emit(undo_rotation(y, record, keys, block), unit))
    return np.concatenate(out)


def one_bit_codes(r, n):
    codes = BitString(r.take(plane_bytes(n)))
    bits = np.array(codes.bits[:n])
    codes.at = n
    codes.finish()
    return bits


def sq_plan(rate, n, values):
    """(coded values, those with one bit more, bits)."""
    total = max(1, (rate * n + 32768) // 65536)
    return (total, 0, 1) if total < values else (values, total % values, total // values)


def read_sq(r, head, plan):
    """(the decoded values divided by the unit, the unit)."""
    low, high = head
    require(low <= high, "the smallest value exceeds the largest")
    coded, fine, bits = plan
    unit = exponent_unit(-low if -low > high else high)
    lo, hi = F32(float(low) / unit), F32(float(high) / unit)
    codes = BitString(r.take(plane_bytes(coded * bits + fine)))
    z = np.zeros(coded, dtype=F32)
    for i in range(coded):
        b = bits + 1 if i < fine else bits
        z[i] = lo + F32(codes.get(b)) * ((hi - lo) / F32((1 << b) - 1))
    codes.finish()
    return z, unit


def decode_sq(r, record, keys, blocks):
    rotates = record["method"] == 6
    heads = [(finite_float(r), finite_float(r)) for _ in blocks]
    out = []
    for block, head in zip(blocks, heads):
        n, plan = block.n, sq_plan(record["rate"], block.n, block.n)
        if head == (0, 0):
            out.append(np.zeros(n, dtype=F32))
            continue
        z, unit = read_sq(r, head, plan)
        y = z
        if plan[0] < n:
            y = np.zeros(n, dtype=F32)
            if rotates:
                places = (window(keys, block, n) + np.arange(plan[0])) % n
            else:
                places = subset(keys, block, n, plan[0])
            y[places] = z * F32(n / plan[0])
        if rotates:
            y = undo_rotation(y, record, keys, block)
        out.append(emit(y, unit))
    return np.concatenate(out)


def decode_kashin(r, record, keys, blocks):
    heads = [(finite_float(r), finite_float(r)) for _ in blocks]
    out = []
    for block, head in zip(blocks, heads):
        n = block.n
        plan = sq_plan(record["rate"], n, 2 * n)
        if head == (0, 0):
            out.append(np.zeros(n, dtype=F32))
            continue
        z, unit = read_sq(r, head, plan)
        start = window(keys, block, 2 * n) if plan[0] < 2 * n else 0
        y = np.zeros(2 * n, dtype=F32)
        y[(start + np.arange(plan[0])) % (2 * n)] = z * F32(2 * n / plan[0])
        out.append(emit(undo_rotation(y, record, keys, block)[:n], unit))
    return np.concatenate(out)


def digit_groups(bits, n):
    """qsgd, code=fixed: [(digits, bits)] of n digits of radix 2^bits - 1."""
    radix = (1 << bits) - 1
    most = {2: 29, 3: 21, 4: 11}.get(bits, 1)
    sizes = [most] * (n // most) + ([n % most] if n % most else [])
    return [(k, (radix ** k - 1).bit_length()) for k in sizes]


def digit_bytes(bits, n):
    return plane_bytes(sum(w for _, w in digit_groups(bits, n)))


def decode_qsgd_fixed(r, record, blocks):
    norms = [finite_float(r) for _ in blocks]
    bits, top, out = record["rate"] >> 16, record["param"], []
    radix = 2 * top + 1
    for block, norm in zip(blocks, norms):
        require(norm >= 0, "negative norm")
        if norm == 0:
            out.append(np.zeros(block.n, dtype=F32))
            continue
        codes, digits = BitString(r.take(digit_bytes(bits, block.n))), []
        for k, w in digit_groups(bits, block.n):
            number = codes.get(w)
            require(number < radix ** k, "a group of digits is too large")
            for _ in range(k):
                digits.append(number % radix)
                number //= radix
        codes.finish()
        y = np.array([d if d <= top else top - d for d in digits], dtype=F32)
        out.append(emit(y, float(norm) / top))
    return np.concatenate(out)


def decode_qsgd(r, record, keys, blocks):
    if record["flags"] & 64:
        return decode_qsgd_fixed(r, record, blocks)
    norms = [finite_float(r) for _ in blocks]
    bits, out = BitString(r.take(r.left()), "big"), []
    for block, norm in zip(blocks, norms):
        require(norm >= 0, "negative norm")
        y = np.zeros(block.n, dtype=F32)
        if norm != 0 and bits.get(1) == 0:
            for i in range(block.n):
                level = bits.omega() - 1
                require(level <= record["param"], "level beyond the number of levels")
                if level > 0:
                    y[i] = -level if bits.get(1) else level
        elif norm != 0:
            at = -1
            for _ in range(bits.omega() - 1):
                at += bits.omega()
                require(at < block.n, "a nonzero beyond the last element")
                sign = -1 if bits.get(1) else 1
                level = bits.omega()
                require(level <= record["param"], "level beyond the number of levels")
                y[at] = sign * level
        out.append(emit(y, float(norm) / record["param"]))
    bits.finish()
    return np.concatenate(out)


def decode_terngrad(r, record, keys, blocks):
    heads = [finite_float(r) for _ in blocks]
    out = []
    for block, s in zip(blocks, heads):
        require(s >= 0, "negative magnitude")
        if s == 0:
            out.append(np.zeros(block.n, dtype=F32))
            continue
        packed = np.frombuffer(r.take((block.n + 4) // 5), dtype=np.uint8).astype(np.int64)
        require((packed < 243).all(), "a ternary byte above 242")
        digits = np.stack([packed // 3 ** i % 3 for i in range(5)], axis=1).reshape(-1)
        require(not digits[block.n:].any(), "digits beyond the last element")
        out.append(emit(np.array([0, 1, -1], dtype=F32)[digits[:block.n]], float(s)))
    return np.concatenate(out)


def decode_randk(r, record, keys, blocks):
    firsts = [r.take(4) for _ in blocks]
    out = []
    for block, first in zip(blocks, firsts):
        n = block.n
        y = np.zeros(n, dtype=F32)
        if first != NO_ELEMENTS:
            k = max(1, (record["rate"] * n + 1048576) // 2097152)
            for i, place in enumerate(subset(keys, block, n, k)):
                y[place] = finite_float(Reader(first) if i == 0 else r)
            y = emit(y, n / k)
        out.append(y)
    return np.concatenate(out)


def decode_float32(r, record, keys, blocks):
    return raw_floats(r, sum(b.n for b in blocks))


def decode_bf16(r, record, keys, blocks):
    halves = np.frombuffer(r.take(2 * sum(b.n for b in blocks)), dtype="<u2").astype(np.uint32)
    return (halves << np.uint32(16)).view(F32)


# What a decoder of floats makes of the exact types (2.2).
EXACT = {4: "<i1", 5: "<i2", 6: "<i4", 7: "<i8", 8: "<u1", 9: "<u2", 10: "<u4", 11: "<u8", 12: "<u1", 13: "<u1", 14: "<u1"}
DTYPE_BYTES = {0: 4, 1: 2, 2: 2, 3: 8, **{k: int(v[2]) for k, v in EXACT.items()}}


def decode_exact(r, record, keys, blocks):
    dtype, n = record["param"], sum(b.n for b in blocks)
    raw = np.frombuffer(r.take(n * DTYPE_BYTES[dtype]), dtype=EXACT[dtype])
    if dtype == 12:
        return (raw != 0).astype(F32)
    if dtype == 14:
        return (raw.astype(np.uint16) << np.uint16(8)).view(np.float16).astype(F32)
    if dtype == 13:
        sign, magnitude = np.where(raw & 0x80, F32(-1), F32(1)), (raw & 0x7f).astype(np.int64)
        small = (magnitude.astype(np.float64) * 2.0 ** -9).astype(F32)
        large = ((8 + magnitude % 8) * 2.0 ** (magnitude // 8 - 10)).astype(F32)
        value = np.where(magnitude < 8, small, large)
        return sign * np.where(magnitude == 0x7f, F32(np.nan), value)
    return raw.astype(F32)


def decode_eden(r, record, keys, blocks):
    return (decode_eden_entropy if record["flags"] & 1 else decode_eden_fixed)(r, record, keys, blocks)


DECODERS = {0: decode_float32, 1: decode_bf16, 2: decode_eden, 3: decode_drive, 4: decode_drive_plus, 5: decode_sq, 6: decode_sq,
            7: decode_kashin, 8: decode_qsgd, 9: decode_terngrad, 10: decode_randk, 11: decode_exact}


def head_bytes(record, blocks):
    """What tells which blocks have codes (2.6), a list of its length for each block; None where a segment's length travels."""
    method = record["method"]
    if (method == 8 and not record["flags"] & 64) or (method == 2 and record["flags"] & 5):
        return None
    return {0: 0, 1: 0, 2: 4, 3: 4, 4: 8, 5: 8, 6: 8, 7: 8, 8: 4, 9: 4, 10: 4, 11: 0}[method]


def segment_bytes(record, blocks, head):
    """Length of a segment that begins with `head`."""
    method, rate, n = record["method"], record["rate"], sum(b.n for b in blocks)
    if method in (0, 1, 11):
        return n * rate // 524288

    def codes(b):
        if method == 2:
            return sum(bits * plane_bytes(count) for count, bits in eden_fixed_parts(b.n, rate)[1])
        if method in (3, 4):
            return plane_bytes(b.n)
        if method in (5, 6, 7):
            coded, fine, bits = sq_plan(rate, b.n, 2 * b.n if method == 7 else b.n)
            return plane_bytes(coded * bits + fine)
        if method == 8:
            return digit_bytes(rate >> 16, b.n)
        if method == 9:
            return (b.n + 4) // 5
        return 4 * (max(1, (rate * b.n + 1048576) // 2097152) - 1)

    def empty(part):
        if method == 10:
            return part == NO_ELEMENTS
        return all(v & (0xffffffff if method == 2 else 0x7fffffff) == 0 for v in struct.unpack(f"<{len(part) // 4}I", part))

    size = len(head) // len(blocks)
    return len(head) + sum(0 if empty(head[i * size:(i + 1) * size]) else codes(b) for i, b in enumerate(blocks))


# ---------------------------------------------------------------- 2 The stream

ROTATING = (2, 3, 4, 6, 7)
JOIN = 16


def read_record(r):
    names = ("method", "log2_block", "rounds", "scale", "flags", "rate", "param")
    record = dict(zip(names, struct.unpack("<BBBBHII", r.take(14))))
    check_record(record)
    return record


def keys_of(secret, ids, unit, record):
    shared = record["flags"] & 2
    return {"rotation": derive(secret, ids, 0 if shared else ids["client"], unit, 2 if shared else 0),
            "own": derive(secret, ids, ids["client"], unit, 1)}


def check_record(record):
    method, rate, param, rounds = (record[k] for k in ("method", "rate", "param", "rounds"))
    flags = record["flags"]
    require(6 <= record["log2_block"] <= 14 and record["scale"] <= 2, "a field of a codec is out of range")
    require(method in DECODERS and method != 11, f"unknown method {method}")
    require(flags & ~(7 | JOIN | 96) == 0, "unknown flags")
    if flags & JOIN:
        require(method in ROTATING and not flags & 2, "this codec does not join")
        flags -= JOIN
    require(rounds <= 6 if method in ROTATING else rounds == 0, "rounds")
    if method == 2:
        require(not (flags & 2 and not flags & 1) and not (flags & 4 and flags & 1) and not flags & 96, "eden: flags")
        require(3277 <= rate <= 524288, "eden: rate")
        require(not flags & 2 or record["scale"] == 0, "eden: dither takes the unbiased scale")
        require(4096 <= param <= 8388608 and record["log2_block"] <= 12 if flags & 1 else param == 0, "eden: parameter")
        return
    # largest scale kind, rate from, rate to, parameter from, parameter to (section 9)
    allowed = {0: (0, 2097152, 2097152, 0, 0), 1: (0, 1048576, 1048576, 0, 0), 3: (1, 65536, 65536, 0, 0),
               4: (1, 65536, 65536, 0, 0), 5: (0, 1, 524288, 0, 0), 6: (0, 1, 524288, 0, 0), 7: (0, 1, 524288, 1, 8),
               8: (0, 65536, 524288, 1, 128), 9: (0, 104858, 104858, 0, 4194304), 10: (0, 1, 2097152, 0, 0)}[method]
    require(flags & ~(96 if method == 8 else 0) == 0 and record["scale"] <= allowed[0], "flags or scale kind")
    if method == 8 and flags & 64:
        require(rate >= 131072 and rate % 65536 == 0 and param == (1 << (rate >> 16) - 1) - 1, "qsgd: levels of the fixed code")
    require(allowed[1] <= rate <= allowed[2] and allowed[3] <= param <= allowed[4], "rate or parameter")


def read_codec_table(r, n_tensors):
    """2.4: the codec of every tensor, as an index, and the codecs."""
    count = r.number("H")
    require(count <= min(256, n_tensors) and (count > 0 or n_tensors == 0), "number of codecs")
    records = [read_record(r) for _ in range(count)]
    require(all(a != b for i, a in enumerate(records) for b in records[:i]), "two codecs alike")
    assigned = []
    while len(assigned) < n_tensors:
        codec, run, shift = r.number("B"), 0, 0
        while True:
            byte = r.number("B")
            run |= (byte & 127) << shift
            if byte < 128:
                break
            shift += 7
            require(shift < 63, "a run without end")
        require(codec < count and (byte > 0 or shift == 0), "codec of a run, or a padded length")
        require(1 <= run <= n_tensors - len(assigned), "length of a run")
        assigned += [codec] * run
    require(set(assigned) == set(range(count)), "a codec that no tensor has")
    return assigned, records


def rounds_by_size(record, count):
    """2.5, rounds 0 of a record."""
    block = min(count, 1 << record["log2_block"])
    if block < 128:
        return 5
    if block < 512:
        return 4
    return 3 if block < 4096 or count <= 4096 or record["method"] in (3, 4) else 2


def resolve(record, count):
    """2.5: how a unit of `count` elements under this codec is coded."""
    p = dict(record, flags=record["flags"] & ~JOIN)
    if p["method"] == 2 and p["flags"] & 3 == 1 and count * p["rate"] < 36 * 8 * 65536:
        p["flags"], p["param"] = p["flags"] - 1, 0
    if p["method"] in ROTATING and p["rounds"] == 0:
        p["rounds"], p["sized"] = rounds_by_size(p, count), True
    return p


def units_of(manifest, assigned, records):
    """2.5: [(index of the first tensor, params, [tensors])]."""
    units, joined = [], {}
    for i, (tensor, codec) in enumerate(zip(manifest, assigned)):
        record, count, dtype = records[codec], tensor["count"], tensor["dtype"]
        raw = {"method": 0, "log2_block": 12, "rounds": 0, "scale": 0, "flags": 0, "rate": 2097152, "param": 0}
        if dtype > 3:
            units.append((i, dict(raw, method=11, rate=DTYPE_BYTES[dtype] * 524288, param=dtype), [i]))
        elif count < 64:
            units.append((i, raw, [i]))
        elif record["flags"] & JOIN and count < 1 << record["log2_block"]:
            if codec not in joined:
                joined[codec] = len(units)
                units.append([i, record, []])
            units[joined[codec]][2].append(i)
        else:
            units.append((i, resolve(record, count), [i]))
    for at in joined.values():
        first, record, members = units[at]
        units[at] = (first, resolve(record, sum(manifest[i]["count"] for i in members)), members)
    return units


def read_manifest(r, n_tensors):
    manifest, names = [], set()
    for _ in range(n_tensors):
        name = r.take(r.number("H"))
        text = name.decode("utf-8")
        require(all(ord(c) >= 32 and ord(c) != 127 for c in text) and name not in names, "tensor name")
        names.add(name)
        dtype, dims = r.number("B"), r.number("B")
        shape = [r.number("Q") for _ in range(dims)]
        require(dtype <= 14, "dtype of a tensor")
        manifest.append({"name": text, "dtype": dtype, "count": math.prod(shape)})
    return manifest


def manifest_hash(entries, n_tensors):
    return struct.unpack("<Q", hashlib.sha256(struct.pack("<I", n_tensors) + entries).digest()[:8])[0]


def read_header(data, secret, manifest, control=False):
    """Of a stream or a packetized message's control part: (reader at the codec table, manifest, ids, secret)."""
    r = Reader(data)
    require(r.take(4) == b"KPDG", "magic")
    major, _minor, flags, header, n_tensors, total = struct.unpack("<BBHIIQ", r.take(20))
    require(major == 2 and flags & ~15 == 0 and bool(flags & 4) == control, "version or flags")
    message, mac = flags & 1, flags & 8
    require(message or not mac, "a file has no MAC field")
    require((72 + (16 if mac else 0) if message else 48) <= header <= len(data) - 4, "header length")
    require(total == (2 ** 64 - 1 if flags & 2 else len(data)), "total length")
    require(zlib.crc32(data[:-4]) == struct.unpack("<I", data[-4:])[0], "checksum")
    ids = {"manifest": 0, "run": 0, "round": 0, "client": 0}
    r.end = header
    if message:
        for name in ids:
            ids[name] = r.number("Q")
        r.take(8 + 8 + (16 if mac else 0))  # base-model hash, weight, MAC
        require(secret is not None and manifest is not None, "a message needs its run secret and its manifest")
        require(len(manifest) == n_tensors, "number of tensors")
    else:
        secret = secret_of_seed(r.number("Q"))
        ids["round"], ids["client"] = r.number("Q"), r.number("Q")
        at = r.at
        manifest = read_manifest(r, n_tensors)
        ids["manifest"] = manifest_hash(data[at:r.at], n_tensors)
    while r.left() > 0:
        extension, length = r.number("H"), r.number("I")
        require(not extension & 0x8000, "unknown critical extension")
        r.take(length)
    r.end = len(data) - 4
    return r, manifest, ids, secret


def split_units(units, values, manifest):
    """[(name, values)] of the tensors of these units."""
    out = [None] * len(manifest)
    for (_, _, members), all_values in zip(units, values):
        at = 0
        for i in members:
            out[i] = (manifest[i]["name"], all_values[at:at + manifest[i]["count"]])
            at += manifest[i]["count"]
    return out


def decode_stream(data, secret=None, manifest=None):
    """[(name, float32 values)]; of a message `secret` is the run secret (32 bytes) and `manifest` what both sides agreed on."""
    r, manifest, ids, secret = read_header(data, secret, manifest)
    units = units_of(manifest, *read_codec_table(r, len(manifest)))
    out = []
    for first, record, members in units:
        keys = keys_of(secret, ids, first, record)
        parts = []
        for blocks in segments_of(sum(manifest[i]["count"] for i in members), 1 << record["log2_block"]):
            head = head_bytes(record, blocks)
            if head is None:
                segment = r.take(r.number("I"))
            else:
                head = Reader(data, r.at, r.end).take(head * len(blocks))
                segment = r.take(segment_bytes(record, blocks, head))
            segment_reader = Reader(segment)
            parts.append(DECODERS[record["method"]](segment_reader, record, keys, blocks))
            require(segment_reader.left() == 0, "bytes left in a segment")
        out.append(np.concatenate(parts) if parts else np.zeros(0, dtype=F32))
    require(r.left() == 0, "bytes between the last segment and the checksum")
    return split_units(units, out, manifest)


def sha256_of(tensors):
    h = hashlib.sha256()
    for _, values in tensors:
        h.update(values.astype("<f4").tobytes())
    return h.hexdigest()


# ---------------------------------------------------------------- 13.2 Packets

class PayloadBits:
    """The bit string at the front of a payload."""

    def __init__(self, payload):
        self.bits, self.at = np.unpackbits(np.frombuffer(payload, dtype=np.uint8), bitorder="little"), 0

    def take(self, n):
        require(self.at + n <= len(self.bits), "the bits of a payload end early")
        self.at += n
        return self.bits[self.at - n:self.at].astype(np.int64)

    def bytes_taken(self):
        return (self.at + 7) // 8


class CodeGroup:
    """A segment's blocks as packets see them: the numbers of their codes and how many bits each has."""

    def __init__(self, index, record, blocks, words, first):
        self.index, self.record, self.blocks, self.words, self.first = index, record, blocks, words, first
        self.table = step_table(record["param"], False) if record["flags"] & 1 else None
        self.kept, self.widths, self.largest = [], [], []
        for block in blocks:
            if self.table:
                kept, parts = block.n, [(block.n, self.table.raw_bits)]
                self.largest.append(float(self.table.largest))
            else:
                kept, parts = eden_fixed_parts(block.n, record["rate"])
                self.largest.append(1.0 if record["rate"] <= 65536 else max(float(level_table(b)[-1]) for _, b in parts))
            self.kept.append(kept)
            self.widths.append(np.concatenate([np.full(count, b) for count, b in parts]))
        self.coded = [np.zeros(n, dtype=F32) for n in self.kept]
        self.count = sum(n for n, word in zip(self.kept, words) if word)

    def of_class(self, residue, packets):
        """(block, place) of each of its codes whose number is `residue` modulo `packets`."""
        number, places = self.first, []
        for k, word in enumerate(self.words):
            if word:
                places += [(k, i) for i in range((residue - number) % packets, self.kept[k], packets)]
                number += self.kept[k]
        return places

    def fixed_value(self, k, i, code):
        width = int(self.widths[k][i])
        magnitude, negative = code & ((1 << (width - 1)) - 1), code >> (width - 1)
        level = F32(1) if self.record["rate"] <= 65536 else level_table(width)[magnitude]
        return -level if negative else level

    def decode(self, keys, scale):
        out = []
        for k, (block, word) in enumerate(zip(self.blocks, self.words)):
            if word == 0:
                out.append(np.zeros(block.n, dtype=F32))
                continue
            y = self.coded[k]
            if self.kept[k] < block.n:
                start = (int(random_words(keys["own"], block.number, WINDOW, 1)[0]) * block.n) >> 32
                y = np.zeros(block.n, dtype=F32)
                y[(start + np.arange(self.kept[k])) % block.n] = self.coded[k]
            bound = float(F32(self.largest[k]) + F32(self.table.step)) if self.table else self.largest[k]
            out.append(finish_eden_block(y, self.record, keys, block, word, bound, scale))
        return np.concatenate(out)


def read_payload(groups, residue, packets, payload):
    """[(group, block, place, value)] of a packet's codes and [(group, block, |value|)] of the escaped ones."""
    bits = PayloadBits(payload)
    codes = []
    for group in groups:
        for k, i in group.of_class(residue, packets):
            codes.append((group, k, i, int(sum(int(bit) << q for q, bit in enumerate(bits.take(int(group.widths[k][i])))))))
    r = Reader(payload, bits.bytes_taken())
    values, escaped = [], []
    if any(group.table for group, *_ in codes):
        x = r.number("I")
        require(x >= 65536, "a rANS state is below 65536")
    symbols = []
    for group, *_ in codes:
        if not group.table:
            symbols.append(None)
            continue
        s, start, slot = 0, 0, x & 4095
        while slot >= start + group.table.frequencies[0][s]:
            start += group.table.frequencies[0][s]
            s += 1
        x = group.table.frequencies[0][s] * (x >> 12) + slot - start
        if x < 65536:
            x = (x << 16) | r.number("H")
        symbols.append(s)
    require(all(s is None for s in symbols) or x == 65536, "a rANS state does not end at 65536")
    for (group, k, i, code), s in zip(codes, symbols):
        if s is None:
            value = group.fixed_value(k, i, code)
        elif s == group.table.escape:
            value = F32(r.number("h") * group.table.step)
            escaped.append((group, k, abs(float(value))))
        else:
            value = group.table.values[(s << group.table.raw_bits) + code]
        values.append((group, k, i, value))
    require(r.left() == 0, "bytes after the last escape of a payload")
    return values, escaped


def packet_classes(secret, ids, packets):
    """The class of each packet: a permutation."""
    own = derive(secret, ids, ids["client"], 0, 1)
    words, classes = random_words(own, 0, PACKETS, packets), list(range(packets))
    for i in range(packets - 1):
        j = i + (int(words[i]) * (packets - i) >> 32)
        classes[i], classes[j] = classes[j], classes[i]
    return classes


def decode_packets(parts, secret, manifest):
    """parts: the control part and the packets that arrived, in any order."""
    control = parts[0]
    r, manifest, ids, secret = read_header(control, secret, manifest, control=True)
    tag = struct.unpack("<I", control[-4:])[0]
    tensors, groups, codes = [], [], 0
    units = units_of(manifest, *read_codec_table(r, len(manifest)))
    for index, (first, record, members) in enumerate(units):
        require(record["method"] in (0, 11) or (record["method"] == 2 and not record["flags"] & 6), "cannot be packetized")
        segments = segments_of(sum(manifest[i]["count"] for i in members), 1 << record["log2_block"])
        tensors.append({"record": record, "keys": keys_of(secret, ids, first, record), "parts": []})
        for blocks in segments:
            if record["method"] != 2:
                tensors[-1]["parts"].append(DECODERS[record["method"]](r, record, None, blocks))
                continue
            groups.append(CodeGroup(index, record, blocks, [check_word(r.number("I"), record) for _ in blocks], codes))
            codes += groups[-1].count
    count = r.number("I")
    require(count == 0 if codes == 0 else 1 <= count <= max(1, codes // 4), "number of packets")
    require(r.left() == 0, "bytes before the tag")
    classes, arrived = packet_classes(secret, ids, count), set()
    for packet in parts[1:]:
        if len(packet) < 12 or zlib.crc32(packet[:-4]) != struct.unpack("<I", packet[-4:])[0]:
            continue
        its_tag, index = struct.unpack("<II", packet[:8])
        if its_tag != tag or index >= count or index in arrived:
            continue
        try:
            values, escaped = read_payload(groups, classes[index], count, packet[8:-4])
        except Corrupt:
            continue  # counts as lost
        arrived.add(index)
        for group, k, i, value in values:
            group.coded[k][i] = value
        for group, k, magnitude in escaped:
            group.largest[k] = max(group.largest[k], magnitude)
    require(count == 0 or arrived, "no packet arrived: the message is lost")
    for group in groups:
        t = tensors[group.index]
        t["parts"].append(group.decode(t["keys"], count / len(arrived) if count else 1.0))
    # Added to an accumulator of zeros, as packets always are: no value is -0.
    values = [np.concatenate([np.zeros(0, dtype=F32), *t["parts"]]) + F32(0) for t in tensors]
    return split_units(units, values, manifest)


def read_packet_file(data):
    """tests/golden/streams/*.packets: number of parts u32, then each part behind its length u32."""
    r = Reader(data)
    return [r.take(r.number("I")) for _ in range(r.number("I"))]


# ---------------------------------------------------------------- the program

def check_tables(folder):
    """tables.txt: what section 14 of the page lists."""
    failures = n = 0

    def compare(what, values, dtype, expected):
        nonlocal failures, n
        n += 1
        if hashlib.sha256(np.array(values).astype(dtype).tobytes()).hexdigest() != expected:
            failures += 1
            print(f"{what}: another hash")

    for line in (folder / "tables.txt").read_text().splitlines():
        f = line.split()
        if f[0] == "lloyd":
            c = lloyd_max(int(f[1]))
            compare(f"levels of {f[1]} bits", c, "<f4", f[2])
            compare(f"thresholds of {f[1]} bits", [0.5 * (a + b) for a, b in zip(c, c[1:])], "<f4", f[3])
        elif f[0] == "step":
            t = step_table(int(f[3]), f[2] == "1")
            require([t.raw_bits, t.classes, t.escape, t.bias, t.n_indices] == [int(v) for v in f[4:9]], f"geometry of step {f[3]}")
            compare(f"frequencies of step {f[3]}", sum(t.frequencies, []), "<u2", f[9])
            compare(f"values of step {f[3]}", t.values, "<f4", f[10])
    print(f"{n} tables computed by the page's functions, {failures} differ")
    return failures


def manifest_of(text):
    """COUNT:DTYPE,... of a message's tensors."""
    fields = [part.split(":") for part in text.split(",")]
    return [{"name": f"tensor {i}", "count": int(count), "dtype": int(dtype)} for i, (count, dtype) in enumerate(fields)]


def check_golden(folder):
    """golden.txt: a line a stream: name, SHA-256 of the stream, SHA-256 of all decoded float32 values, secret seed or '-', manifest of a
    message or '-', spec."""
    failures = n = 0
    for line in (folder / "golden.txt").read_text().splitlines():
        if not line or line.startswith("#"):
            continue
        name, stream_hash, values_hash, seed, counts = line.split()[:5]
        path = folder / "streams" / (name + ".kpdg")
        packets = not path.exists()
        data = (path.with_name(name + ".packets") if packets else path).read_bytes()
        n += 1
        try:
            require(hashlib.sha256(data).hexdigest() == stream_hash, "the file is not the one golden.txt lists")
            secret = None if seed == "-" else secret_of_seed(int(seed))
            manifest = None if counts == "-" else manifest_of(counts)
            tensors = decode_packets(read_packet_file(data), secret, manifest) if packets else decode_stream(data, secret, manifest)
            require(sha256_of(tensors) == values_hash, "decoded values differ")
        except Corrupt as e:
            failures += 1
            print(f"{name}: {e}")
    print(f"{n} streams decoded by the page's decoder, {failures} differ")
    return 1 if check_tables(folder) or failures or n == 0 else 0


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("stream", nargs="?", type=pathlib.Path)
    parser.add_argument("--secret-seed", type=int, help="a message's run secret is SHA-256('kpd-seed', this)")
    parser.add_argument("--manifest", help="of a message: COUNT:DTYPE,... of its tensors, DTYPE as in section 2.2")
    parser.add_argument("--golden", type=pathlib.Path)
    args = parser.parse_args()
    np.seterr(all="ignore")
    if args.golden:
        return check_golden(args.golden)
    if args.stream is None:
        parser.error("a stream or --golden")
    secret = None if args.secret_seed is None else secret_of_seed(args.secret_seed)
    try:
        for name, values in decode_stream(args.stream.read_bytes(), secret, args.manifest and manifest_of(args.manifest)):
            print(name, len(values), hashlib.sha256(values.astype("<f4").tobytes()).hexdigest())
    except Corrupt as e:
        print(f"{args.stream}: {e}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
