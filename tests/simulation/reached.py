"""Sometimes-checks: rare states that a good mix of schedules must reach, again and again."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from typing import Any

STATES = (
    "a create was applied, its reply lost",
    "a record of the dead landed late",
    "the dead filled an empty slot",
    "a zombie's write was refused",
    "a call landed after a takeover",
    "two fenced one worker at once",
    "a renewal was answered 429",
    "a wall clock jumped during a renewal",
    "a worker was told to end during a write",
    "a run was resumed alone",
    "two code versions lived at once",
    "a worker was fenced and went on",
)


def reached(events: Iterable[tuple[float, str, str, dict[str, Any]]]) -> set[str]:
    """Which of the states one history shows."""
    return set(_found(list(events)))


def _found(events: list[tuple[float, str, str, dict[str, Any]]]) -> Iterator[str]:
    calls: dict[int, dict[str, Any]] = {}
    fates: dict[int, str] = {}
    fenced: set[str] = set()
    epochs: dict[str, int] = {}
    fencing: dict[str, tuple[float, str]] = {}
    writing: dict[str, float] = {}
    versions: set[str] = set()
    for at, who, kind, facts in events:
        match kind:
            case "call":
                calls[facts["number"]] = facts
                if "/steps/" in facts["name"]:
                    writing[who] = at
                if facts["verb"] == "replace" and facts["trusted"] is False and who in fenced:
                    yield "a zombie's write was refused"
                if facts["verb"] == "replace" and facts["name"].startswith("workers/"):
                    first = fencing.setdefault(facts["name"], (at, who))
                    if first[1] != who and at - first[0] < 1.0:
                        yield "two fenced one worker at once"
                    fencing[facts["name"]] = (at, who)
            case "fault":
                fates[facts["number"]] = facts["fault"]
                renews = calls[facts["number"]]["name"].startswith("workers/")
                if renews and facts["fault"].startswith("busy"):
                    yield "a renewal was answered 429"
                if renews and facts["fault"].startswith("jump"):
                    yield "a wall clock jumped during a renewal"
            case "mutation":
                name, fate = facts["name"], fates.get(facts.get("number", 0), "")
                if fate == "reply_lost" and facts["verb"] == "create":
                    yield "a create was applied, its reply lost"
                if name.startswith("workers/") and facts["body"]:
                    lease = json.loads(facts["body"])
                    if lease.get("state") == "dead":
                        fenced.add(lease["label"])
                if not name.startswith("runs/") or not facts["body"]:
                    continue
                folder = "/".join(name.split("/")[:3])
                if "/epochs/" in name:
                    claim = json.loads(facts["body"])
                    epochs[folder] = max(epochs.get(folder, 1), claim["epoch"])
                    if claim["why"] == "late":
                        yield "a record of the dead landed late"
                    if claim.get("alone"):
                        yield "a run was resumed alone"
                elif "/steps/" in name:
                    if json.loads(facts["body"])["epoch"] < epochs.get(folder, 1):
                        yield "the dead filled an empty slot"
                        if fate.startswith("late"):
                            yield "a call landed after a takeover"
            case "happened":
                if facts["what"] == "told to end" and at - writing.get(who, -1) < 0.06:
                    yield "a worker was told to end during a write"
                if facts["what"] == "woken" and who in fenced:
                    yield "a worker was fenced and went on"
                if facts["what"].startswith("starts, version"):
                    versions.add(facts["what"])
                    if len(versions) > 1:
                        yield "two code versions lived at once"
