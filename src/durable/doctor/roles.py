"""Who needs which rights on a bucket, and who the present account can be."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from durable.doctor.findings import Finding


@dataclass(frozen=True)
class Persona:
    """Somebody who uses the store.

    Attributes:
        does: in words.
        needs: the operations of `doctor.operations`.
        role: the least of Google's predefined roles that has them.
    """

    name: str
    does: str
    needs: frozenset[str]
    role: str


_ALL = frozenset({"create", "read", "list", "replace", "delete"})

PERSONAS = (
    Persona("viewer", "lists and shows", frozenset({"read", "list"}), "roles/storage.objectViewer"),
    # Waking a run replaces its marker, which a bucket counts as a deletion.
    Persona("submitter", "starts, sends, cancels", _ALL - {"list"}, "roles/storage.objectUser"),
    Persona("worker", "executes", _ALL, "roles/storage.objectUser"),
    Persona("operator", "repairs, purges", _ALL, "roles/storage.objectUser"),
)


def judge(operations: Sequence[Finding]) -> Finding:
    """Who this account can be, by the operations that were tried, and what the others lack."""
    allowed = {one.check for one in operations if one.level == "ok"}
    can = [p.name for p in PERSONAS if p.needs <= allowed]
    lacking = [p for p in PERSONAS if not p.needs <= allowed]
    found = f"this account can be {_words(can)}" if can else "this account can do nothing here"
    if not lacking:
        return Finding("roles", "ok", f"{found}; `durable init` needs roles/storage.admin too")
    missing = "; ".join(
        f"a {p.name} ({p.does}) lacks {_words(sorted(p.needs - allowed))}: {p.role}"
        for p in lacking
    )
    return Finding("roles", "note", f"{found}; {missing}")


def _words(words: Iterable[str]) -> str:
    *most, last = words
    return f"{', '.join(most)} and {last}" if most else last
