"""Seeds to hostile inputs: bytes changed at random, JSON whose values were swapped for odd ones.

Everything follows from the `Random` that is passed in, so a case can be made again from its number.
"""

import json
from collections.abc import Callable, Sequence
from random import Random
from typing import Any

Mutate = Callable[[Random, Sequence[bytes]], bytes]
"""A generator and the seeds of a kind to one input."""

_DEEP = "nested deeply"
ODD: tuple[Any, ...] = (
    *(None, True, False, 0, 1, -1, 2, 7, 16, 255, 2**31, 2**63, 10**400, -(10**400), 0.5, -0.0, 1e-300, 1e308),
    *(float("nan"), float("inf"), float("-inf"), "", "a", "0.4", "nan", "native", "quadtree", "x" * 5000),
    *("a\0b", "\ud800", "../../x", "=1+1", "<b>", "\n", [], {}, [[]], [1, 2], [1, 2, 3, 4], ["a", "b"], {"a": 1}),
    _DEEP,
)
_MAGIC = (
    b"\0",
    b"\xff",
    b"\x7f\xff\xff\xff",
    b"\xff\xff\xff\xff",
    b"\0\0\0\0",
    b"\x80\0\0\0",
    b"\r\n",
    b"%",
    b"[",
    b'"',
)


def mutate_bytes(random: Random, seeds: Sequence[bytes]) -> bytes:
    """One to eight changes: bits, bytes, runs removed, doubled, moved or taken from another seed."""
    data = bytearray(random.choice(seeds))
    for _ in range(random.choice((1, 1, 1, 2, 3, 8))):
        place = random.randrange(len(data) + 1)
        # Headers decide what the rest is taken for.
        if random.random() < 0.5:
            place = min(place, random.randrange(64))
        length = random.choice((1, 1, 2, 4, 16, 200))
        change = random.randrange(8)
        if change == 0 and place < len(data):
            data[place] ^= 1 << random.randrange(8)
        elif change == 1:
            data[place : place + length] = random.randbytes(length)
        elif change == 2:
            magic = random.choice(_MAGIC)
            data[place : place + len(magic)] = magic
        elif change == 3:
            del data[place : place + length]
        elif change == 4:
            data[place:place] = data[place : place + length] * random.choice((1, 2, 50))
        elif change == 5:
            del data[place:]
        elif change == 6:
            other = random.choice(seeds)
            start = random.randrange(len(other) + 1)
            data[place : place + length] = other[start : start + length]
        else:
            data[place:place] = random.choice(_MAGIC) * random.choice((1, 1, 3000))
    return bytes(data)


def mutate_json(random: Random, seeds: Sequence[bytes]) -> bytes:
    """Values swapped, dropped or doubled anywhere in the tree; now and then the text itself is changed."""
    document = json.loads(random.choice(seeds))
    for _ in range(random.choice((1, 1, 2, 4))):
        document = _changed(random, document)
    data = spelled(random, document)
    return mutate_bytes(random, [data]) if random.random() < 0.15 else data


def mutate_lines(random: Random, seeds: Sequence[bytes]) -> bytes:
    """JSON lines: one of them is changed as JSON or bytes, doubled, dropped or moved."""
    lines = random.choice(seeds).splitlines()
    place = random.randrange(len(lines))
    change = random.randrange(5)
    if change == 0:
        lines[place] = mutate_json(random, [lines[place]])
    elif change == 1:
        lines[place] = mutate_bytes(random, [lines[place]])
    elif change == 2:
        lines.insert(random.randrange(len(lines)), lines[place])
    elif change == 3:
        del lines[place]
    else:
        return mutate_bytes(random, [b"\n".join(lines) + b"\n"])
    return b"\n".join(lines) + b"\n"


def mutate_fields(random: Random, seeds: Sequence[bytes]) -> bytes:
    """Text of fields between commas, blanks, colons and lines: some are swapped for odd spellings."""
    if random.random() < 0.3:
        return mutate_bytes(random, seeds)
    text = random.choice(seeds).decode()
    for _ in range(random.choice((1, 1, 2, 4))):
        separator = random.choice((",", " ", "\n", ":", "="))
        parts = text.split(separator)
        odd = random.choice((*map(str, ODD), "9" * 400, "-" + "9" * 5000, "[" * 3000, "- " * 500, "&a *a", "!!float x"))
        parts[random.randrange(len(parts))] = odd
        text = separator.join(parts)
    return text.encode(errors="surrogatepass")


def spelled(random: Random, document: Any) -> bytes:
    """A document as JSON text, NaN and deep nesting included."""
    opening, closing = random.choice((("[", "]"), ('{"a":', "}")))
    depth = random.choice((50, 3000, 100_000))
    deep = opening * depth + "1" + closing * depth
    return json.dumps(document).replace(json.dumps(_DEEP), deep, 1).encode()


def _changed(random: Random, value: Any) -> Any:
    if not isinstance(value, dict | list) or not value or random.random() < 0.1:
        return random.choice(ODD)
    keys = list(value) if isinstance(value, dict) else list(range(len(value)))
    key, copy = random.choice(keys), value.copy()
    if random.random() < 0.12:
        del copy[key]
    elif isinstance(copy, list) and random.random() < 0.1:
        copy.append(copy[key])
    else:
        copy[key] = _changed(random, value[key])
    return copy
