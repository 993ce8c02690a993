"""What was asked of the server, as it would be billed."""

from __future__ import annotations

from collections import Counter
from typing import Any, Literal, NamedTuple

LOG_MAX = 200_000  # calls remembered; the older half is dropped beyond

Class = Literal["A", "B", "free"]

_CLASS_B = frozenset(
    {"get", "media", "buckets.get", "buckets.layout", "buckets.policy", "buckets.permissions"}
)
# A resumable upload is billed once, when it starts.
_FREE = frozenset({"delete", "buckets.delete", "resumable.put", "resumable.cancel"})


def class_of(verb: str) -> Class:
    """The class of operations that a verb is billed in."""
    if verb in _FREE:
        return "free"
    return "B" if verb in _CLASS_B else "A"


class CallMade(NamedTuple):
    """One call that was carried out; `name` is the prefix for a list, `status` its answer."""

    verb: str
    bucket: str
    name: str
    status: int


class Calls:
    """Counts calls when they are carried out, whether or not their answers arrive.

    Attributes:
        log: each call, in order.
    """

    def __init__(self) -> None:
        self.log: list[CallMade] = []
        self._made: Counter[tuple[str, int]] = Counter()

    def note(self, verb: str, bucket: str, name: str, status: int) -> None:
        self._made[verb, status] += 1
        self.log.append(CallMade(verb, bucket, name, status))
        if len(self.log) > LOG_MAX:
            del self.log[: LOG_MAX // 2]

    def clear(self) -> None:
        self.log.clear()
        self._made.clear()

    def billed(self) -> Counter[Class]:
        """How many operations of each class cost something (GCS bills no 4xx and no 5xx)."""
        billed: Counter[Class] = Counter({"A": 0, "B": 0, "free": 0})
        for (verb, status), number in self._made.items():
            if status < 400:
                billed[class_of(verb)] += number
        return billed

    def by_verb(self) -> dict[str, int]:
        """How many requests of each verb there were, whatever they were answered."""
        made: Counter[str] = Counter()
        for (verb, _), number in self._made.items():
            made[verb] += number
        return dict(made)

    def report(self) -> dict[str, Any]:
        """All counts as JSON values."""
        verbs: dict[str, Any] = {}
        for (verb, status), number in sorted(self._made.items()):
            entry = verbs.setdefault(verb, {"class": class_of(verb), "requests": 0, "billed": 0})
            entry["requests"] += number
            entry["billed"] += number if status < 400 else 0
            entry.setdefault("statuses", {})[str(status)] = number
        requests = sum(self._made.values())
        return {"requests": requests, "billed": dict(self.billed()), "verbs": verbs}
