"""Who needs which rights on a bucket, and who the present account can be."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from durable.doctor.findings import Finding


class Persona(msgspec.Struct, frozen=True):
    """Somebody who uses the store.

    Attributes:
        named: with its article.
        does: in words.
        needs: the operations of `doctor.operations`.
        role: the least of Google's predefined roles that has them.
    """

    named: str
    does: str
    needs: frozenset[str]
    role: str


_ALL = frozenset({"create", "read", "list", "replace", "delete"})

PERSONAS = (
    Persona(
        "a viewer", "lists and shows", frozenset({"read", "list"}), "roles/storage.objectViewer"
    ),
    # Waking a run replaces its marker, which a bucket counts as a deletion.
    Persona("a submitter", "starts, sends, cancels", _ALL - {"list"}, "roles/storage.objectUser"),
    Persona("a worker", "executes", _ALL, "roles/storage.objectUser"),
    Persona("an operator", "repairs, purges", _ALL, "roles/storage.objectUser"),
)


def were_tried(findings: Sequence[Finding]) -> bool:
    """Whether every operation was tried: else nothing is known of what is allowed."""
    return {one.check for one in findings} >= _ALL


def judge(operations: Sequence[Finding]) -> Finding:
    """Who this account can be, by the operations that were tried, and what the others lack."""
    allowed = {one.check for one in operations if one.level == "ok"}
    can = [p.named for p in PERSONAS if p.needs <= allowed]
    lacking = [p for p in PERSONAS if not p.needs <= allowed]
    found = f"this account can be {_words(can)}" if can else "this account can do nothing here"
    if not lacking:
        return Finding("roles", "ok", f"{found}; `durable init` needs roles/storage.admin too")
    missing = "; ".join(
        f"{p.named} ({p.does}) lacks {_words(sorted(p.needs - allowed))}: {p.role}" for p in lacking
    )
    return Finding("roles", "note", f"{found}; {missing}")


def _words(words: Iterable[str]) -> str:
    *most, last = words
    return f"{', '.join(most)} and {last}" if most else last
