"""Documents: one value under a key, read by anybody and changed by compare-and-swap.

A change is a function of the value that is there. If somebody else was quicker, it is called
again with what they wrote; so of any number of concurrent changes none is lost.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from durable import catalog
from durable.catalog import Contention
from durable.protocol import primitives, records, texts
from durable.protocol.primitives import DOCS, KEEP, ValueRecord
from durable.store import Store, Stored, Written
from durable.system import label as own_label

__all__ = ["KEEP", "Document", "Snapshot", "of_stored"]


class Snapshot(msgspec.Struct, frozen=True):
    """A document as it stood when it was read.

    Attributes:
        key: its name.
        value: what it held.
        label: of who wrote it last, for people.
        age: seconds since then, by the store's clock.
        generation: of this very state; what `delete` takes.
    """

    key: str
    value: Any
    label: str
    age: float
    generation: int


class Document:
    """The document of one key, whether it is there or not.

    Args:
        store: where it is.
        key: its name.
        label: of this process, for people; by default host and process id.

    Raises:
        InvalidId: the key cannot be part of an object's name.
    """

    def __init__(self, store: Store, key: str, *, label: str | None = None) -> None:
        self._store = store
        self._key = key
        self._label = own_label() if label is None else texts.check(label, "label")
        self._name = primitives.object_name(DOCS, key)

    @property
    def key(self) -> str:
        """Its name."""
        return self._key

    def __repr__(self) -> str:
        return f"<document {self._key!r}>"

    async def read(self) -> Snapshot | None:
        """What is there; None if there is no document.

        Raises:
            UsageError: it is damaged.
            StoreUnavailable: the store does not answer.
        """
        stored = await self._store.read(self._name)
        return None if stored is None else of_stored(stored, self._store.now())

    async def update(self, fn: Callable[[Any], Any]) -> Any:
        """Replace the value by what `fn` makes of it; returns the value that then stands.

        Args:
            fn: takes the value (None if there is no document) and returns the new one, or `KEEP`
                to leave it as it is. What it raises is raised here, and nothing is written. It
                is called again whenever somebody else was quicker, so it must do nothing else.

        Raises:
            InvalidArguments: what it returned cannot be stored.
            StoreUnavailable: no answer, and the change may have been made; or others always were
                quicker.
        """
        stored = await self._store.read(self._name)
        contention = Contention(self._store, self._name)
        while True:
            current = None if stored is None else of_stored(stored, self._store.now()).value
            new = fn(current)
            if new is KEEP:
                return current
            record = self._record(new)
            body = records.encode(record)
            answer = await catalog.put(self._store, self._name, stored, body, nonce=record.nonce)
            if isinstance(answer, Written):
                return _decoded(record)
            await contention.lost()
            stored = answer.current

    async def delete(self, generation: int) -> bool:
        """Delete the document as it was read: `Snapshot.generation`.

        Returns:
            True: it is gone. False: it has been changed since, and stays.
        """
        return await self._store.delete(self._name, generation)

    def _record(self, value: object) -> ValueRecord:
        encoded = primitives.encode_value(value, what=f"the value of document {self._key!r}")
        return ValueRecord(
            self._key, encoded, self._store.system.token(), self._label, self._store.now()
        )


def of_stored(stored: Stored, now: float) -> Snapshot:
    """The document an object holds.

    Raises:
        UsageError: it holds none.
    """
    record = catalog.decode_record(ValueRecord, stored)
    since = catalog.age(stored.updated, now)
    return Snapshot(record.key, _decoded(record), record.label, since, stored.generation)


def _decoded(record: ValueRecord) -> Any:
    return primitives.decode_value(record.value, what=f"the value of document {record.key!r}")
