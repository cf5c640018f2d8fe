"""Which frame kills its workers: a note beside the file of a shard, kept while the shard is in work.

Ray gives a shard whose worker died to another one, without end. The second worker therefore notes each frame before it
begins it; a frame that two such workers died at becomes a row with an error, and the run goes on.
"""

import json
from collections import Counter

from vgtok.errors import InputError
from vgtok.scale.places import exists, read, removed, written

_DEATHS = 2
"""Workers that may die at one frame after the first, of which it is not known where it died."""


class Attempt:
    """One worker's attempt at the shard whose file is `target`."""

    def __init__(self, target: str) -> None:
        self.place = f"{target}.attempt"
        self.deaths: Counter[int] = Counter()
        # An earlier worker began and did not end.
        self.careful = exists(self.place)
        if self.careful:
            self.deaths.update(_noted(self.place))
        self._note()

    def refusal(self, index: int) -> str | None:
        """Return why a frame must not be tried again, or note that it is begun and return None."""
        if self.deaths[index] >= _DEATHS:
            return f"ended {self.deaths[index] + 1} workers, by too much memory or a fault of a library; left out"
        if self.careful:
            self._note(index)
        return None

    def end(self) -> None:
        """Remove the note: the shard is written."""
        removed(self.place)

    def _note(self, *begun: int) -> None:
        written(self.place, json.dumps([*self.deaths.elements(), *begun]).encode())


def _noted(place: str) -> list[int]:
    try:
        noted = json.loads(read(place))
    except (InputError, ValueError):
        return []
    return [index for index in noted if isinstance(index, int)] if isinstance(noted, list) else []
