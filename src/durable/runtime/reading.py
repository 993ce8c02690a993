"""Records in shared folders, where anybody with write access may have put something else.

A stranger's object says nothing about our runs and workers. It is passed over, so one bad object
never stops the others.
"""

from __future__ import annotations

import logging
from typing import TypeVar

import msgspec

from durable.store import Store, Stored

R = TypeVar("R", bound=msgspec.Struct)

log = logging.getLogger("durable")


def decoded(stored: Stored, decoder: msgspec.json.Decoder[R]) -> R | None:
    """The record in an object that came with its body; None if it is no such record."""
    try:
        return decoder.decode(stored.body or b"")
    except (msgspec.DecodeError, UnicodeDecodeError) as e:
        log.warning("object %r is damaged or foreign and is passed over: %s", stored.name, e)
        return None


async def with_body(store: Store, stored: Stored) -> Stored | None:
    """The same object with its body, which a list leaves out if it is large; None if it is gone."""
    return stored if stored.body is not None else await store.read(stored.name)


async def record(store: Store, stored: Stored, decoder: msgspec.json.Decoder[R]) -> R | None:
    """The record in a listed object; None if it is gone, or is no such record."""
    full = await with_body(store, stored)
    return None if full is None else decoded(full, decoder)
