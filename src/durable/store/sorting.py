"""Names in byte order, quick to change and to walk however many there are."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterator

CHUNK = 512  # names; a chunk twice as long is split, so one change moves few of them


class SortedNames:
    """A set of names in code point order, which is the byte order of UTF-8.

    Adding and removing cost the same for ten names and for a million.
    """

    def __init__(self) -> None:
        self._chunks: list[list[str]] = []
        self._lasts: list[str] = []  # the last name of each chunk

    def add(self, name: str) -> None:
        """Add a name that is not there yet."""
        if not self._chunks:
            self._chunks.append([name])
            self._lasts.append(name)
            return
        at = min(bisect_left(self._lasts, name), len(self._chunks) - 1)
        chunk = self._chunks[at]
        insort(chunk, name)
        self._lasts[at] = chunk[-1]
        if len(chunk) > 2 * CHUNK:
            self._chunks.insert(at + 1, chunk[CHUNK:])
            del chunk[CHUNK:]
            self._lasts.insert(at, chunk[-1])

    def remove(self, name: str) -> None:
        """Remove a name that is there."""
        at = bisect_left(self._lasts, name)
        chunk = self._chunks[at]
        del chunk[bisect_left(chunk, name)]
        if chunk:
            self._lasts[at] = chunk[-1]
        else:
            del self._chunks[at], self._lasts[at]

    def since(self, start: str, *, after: bool = False) -> Iterator[str]:
        """The names from `start` on, or those after it; nothing may change meanwhile."""
        first = bisect_left(self._lasts, start)
        for at in range(first, len(self._chunks)):
            chunk = self._chunks[at]
            begin = bisect_left(chunk, start) if at == first else 0
            if after and begin < len(chunk) and chunk[begin] == start:
                begin += 1
            yield from chunk[begin:] if begin else chunk
