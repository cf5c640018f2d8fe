"""Names and shapes of the public COCO release: `public_layout.txt` lists them, [24] standing for numbers 0 to 23."""

from pathlib import Path


def public_layout() -> dict[str, tuple[int, ...]]:
    layout = {}
    for line in (Path(__file__).parent / "public_layout.txt").read_text().splitlines():
        name, sides = line.split()
        shape = () if sides == "-" else tuple(map(int, sides.split("x")))
        opening, bracket, rest = name.partition("[")
        if not bracket:
            layout[name] = shape
            continue
        count, _, ending = rest.partition("]")
        layout |= {f"{opening}{number}{ending}": shape for number in range(int(count))}
    return layout
