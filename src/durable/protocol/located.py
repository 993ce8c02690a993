"""Errors about a place inside a value, raised by the value codecs and given their final words
by whoever knows what the value was for (an argument, a result).
"""

from __future__ import annotations

from typing import Final

PATH_PARTS_SHOWN: Final = 8


class Located(Exception):
    """An error about a place inside a value; `path` grows while the error travels outwards."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason
        self.path: list[str] = []

    def inside(self, part: str) -> None:
        """Say that the place lies inside `part`, written as code: `[3]`, `['items']`, `.price`."""
        self.path.insert(0, part)

    def where(self, root: str = "value") -> str:
        """The place as code: `value['items'][3].price`."""
        shown = "".join(self.path[:PATH_PARTS_SHOWN])
        return f"{root}{shown}{'...' if len(self.path) > PATH_PARTS_SHOWN else ''}"

    def said_of(self, root: str) -> str:
        """The whole sentence, about a value called `root`."""
        return f"{self.where(root)} {self.reason}"

    def __str__(self) -> str:
        return self.said_of("value")


class Unencodable(Located):
    """A value cannot be stored. `reason` says why and what to write instead.

    Attributes:
        missing: the annotation that would make it fit, as code: `dict[str, Order]`. It grows
            like `path`; None if no annotation would help.
    """

    def __init__(self, reason: str, *, missing: str | None = None) -> None:
        super().__init__(reason)
        self.missing = missing

    def held_by(self, part: str, annotation: str) -> None:
        """`inside` a container whose annotation would be `annotation`, `{}` being the part's."""
        self.inside(part)
        if self.missing is not None:
            self.missing = annotation.format(self.missing)


class Undecodable(Located):
    """Stored data does not fit: it is damaged, or the annotation has changed since."""

    def as_unencodable(self) -> Unencodable:
        """The same said of a value that was just written."""
        error = Unencodable(self.reason)
        error.path = self.path
        return error
