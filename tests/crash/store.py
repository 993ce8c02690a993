"""Reading a store directly, without durable: what is there is what counts."""

from __future__ import annotations

import json
import sqlite3
from abc import ABC, abstractmethod
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import unquote

LOCKED = 2.0  # seconds that no working process holds the write lock


@dataclass(frozen=True)
class Object:
    """One object. Times are seconds by the store's clock."""

    name: str
    created: float
    updated: float
    meta: dict[str, str]
    body: dict[str, Any]


class Reader(ABC):
    """Looks at a store without durable."""

    @abstractmethod
    def objects(self, prefix: str = "") -> list[Object]:
        """The objects whose names start so, in the order of their names."""

    @abstractmethod
    def clock_offset(self) -> float:
        """What to add to the machine's boot clock to have the store's time."""

    @abstractmethod
    def is_locked(self) -> bool:
        """Whether a process sits on a lock of the whole store and does not let go."""

    @abstractmethod
    def close(self) -> None: ...

    def holders(self) -> dict[str, str]:
        """Runs that have a marker, and the worker it names (empty: nobody)."""
        return {marked_run(o.name): o.body.get("holder", "") for o in self.objects("live/")}


class StoreFile(Reader):
    """The objects of one SQLite file, read only."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._db = sqlite3.connect(f"file:{path}?mode=ro", uri=True, timeout=30)

    def objects(self, prefix: str = "") -> list[Object]:
        rows = self._db.execute(
            "SELECT name, created, updated, meta, body FROM objects "
            "WHERE name >= ? AND name < ? ORDER BY name",
            (prefix, prefix + "\U0010ffff"),
        )
        return [
            Object(name, created, updated, json.loads(meta), json.loads(body))
            for name, created, updated, meta, body in rows.fetchall()
        ]

    def clock_offset(self) -> float:
        ((offset,),) = self._db.execute("SELECT wall_minus_boot FROM boots").fetchall()
        return float(offset)

    def is_locked(self) -> bool:
        db = sqlite3.connect(self._path, timeout=LOCKED, isolation_level=None)
        try:
            db.execute("BEGIN IMMEDIATE")
            db.execute("ROLLBACK")
        except sqlite3.OperationalError:
            return True
        finally:
            db.close()
        return False

    def close(self) -> None:
        self._db.close()


def marked_run(name: str) -> str:
    """The run of a marker `live/<queue>/<hash>-<run>`."""
    return unquote(name.rsplit("/", 1)[-1].split("-", 1)[1])
