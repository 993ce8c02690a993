"""Preconditions: what a request demands of the object that is there at the moment of commit."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from durable.testing.gcs.refusals import condition_not_met, invalid, not_modified


class Conditions(NamedTuple):
    """Each is None if not demanded. A generation of 0 stands for "no live object"."""

    generation: int | None = None
    generation_not: int | None = None
    metageneration: int | None = None
    metageneration_not: int | None = None

    def check(self, live: tuple[int, int] | None) -> None:
        """Against the (generation, metageneration) that is live, or None.

        Raises:
            Refusal: 412 if a Match fails, 304 if only a NotMatch does.
        """
        if self is NONE:
            return
        generation, metageneration = live or (0, None)
        if self.generation is not None and self.generation != generation:
            raise condition_not_met()
        if self.metageneration is not None and self.metageneration != metageneration:
            raise condition_not_met()
        if self.generation_not is not None:
            # Without a live object a NotMatch fails whatever the number.
            if live is None or self.generation_not == generation:
                raise not_modified()
        if self.metageneration_not is not None:
            if live is None or self.metageneration_not == metageneration:
                raise not_modified()


NONE = Conditions()
_NAMES = ("GenerationMatch", "GenerationNotMatch", "MetagenerationMatch", "MetagenerationNotMatch")
OF_TARGET = tuple("if" + name for name in _NAMES)
OF_SOURCE = tuple("ifSource" + name for name in _NAMES)


def conditions(params: Mapping[str, str], names: tuple[str, ...] = OF_TARGET) -> Conditions:
    """Those that the parameters demand: of the target, or of the source (`OF_SOURCE`)."""
    generation, generation_not, metageneration, metageneration_not = names
    found = Conditions(
        integer(params, generation),
        integer(params, generation_not),
        integer(params, metageneration),
        integer(params, metageneration_not),
    )
    return NONE if found == NONE else found


def integer(params: Mapping[str, str], name: str) -> int | None:
    """The parameter as a number not below 0, None if it is not given.

    Raises:
        Refusal: 400, it is no such number.
    """
    text = params.get(name)
    if text is None:
        return None
    if not text.isascii() or not text.isdecimal() or len(text) > 19:
        raise invalid(f"Invalid value for {name}: {text!r} is not a number.", name)
    return int(text)


def flag(params: Mapping[str, str], name: str) -> bool:
    """The parameter as true or false, which is what it is if it is not given.

    Raises:
        Refusal: 400, it is neither.
    """
    text = params.get(name, "false").lower()  # clients write Python's True as well
    if text not in ("true", "false"):
        raise invalid(f"Invalid value for {name}: {text!r} is neither true nor false.", name)
    return text == "true"
