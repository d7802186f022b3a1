"""Ranges of code points, for the scripts that write tables of characters."""


def ranges(chars):
    """[first, last] of each run of neighbours; `chars` ascend."""
    out = []
    for c in chars:
        if out and out[-1][1] == c - 1:
            out[-1][1] = c
        else:
            out.append([c, c])
    return out
