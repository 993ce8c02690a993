"""Faults on demand: which calls suffer, and what.

A `Fault` names the calls it is for by verb, name, number and time. Those that only change the
circumstances (`delayed`, `skewed`, `short_page`, `short_rewrite`) add up; of the others the first
that fits decides what becomes of the call.
"""

from __future__ import annotations

import threading
import zlib
from collections.abc import Callable, Iterable
from typing import Any, Literal

import msgspec

from durable.system import System

Kind = Literal[
    "unsent",
    "refused",
    "reply_lost",
    "reply_replaced",
    "late",
    "silent",
    "twice",
    "slow_reply",
    "truncated",
    "stale",
    "delayed",
    "skewed",
    "short_page",
    "short_rewrite",
]
_CIRCUMSTANCES = frozenset({"delayed", "skewed", "short_page", "short_rewrite"})
_MUTATIONS = frozenset(
    {"insert", "resumable.put", "patch", "update", "delete"}
    | {"copy", "rewrite", "compose", "move", "restore"}
)
_READS = frozenset({"get", "media", "list"})
_GROUPS = {"mutations": _MUTATIONS, "reads": _READS}


class Fault(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """What happens, to which calls.

    Kinds:
        unsent: not applied; the connection is reset.
        refused: not applied; answered with `status` (503 by default; 401, 403, 408, 429, ...).
        reply_lost: applied; the connection is reset instead of an answer.
        reply_replaced: applied; answered with `status` all the same.
        late: the connection is reset at once; applied `seconds` later, or at `land()` if None.
        silent: not applied, never answered.
        twice: applied twice; answered for the second time.
        slow_reply: applied; answered `seconds` later.
        truncated: applied; the answer is cut behind `size` bytes and the connection reset.
        stale: for a connection that was used before: it is reset as if it had been closed while
            it was idle; not applied.
        delayed: `seconds` pass before anything else; applied even if the client has gone.
        skewed: who answers has a clock that is `seconds` ahead (behind if negative): `Date` and,
            of a write, `updated`.
        short_page: a list gives at most `size` items, even 0, and a token if there is more.
        short_rewrite: a rewrite carries over at most `size` bytes, even 0, and answers with a
            token if there are more.

    Which calls:
        verb: of the API, e.g. "insert", "delete", "list", "buckets.get"; a comma-separated list;
            or "mutations", "reads". Empty for all.
        bucket, name, prefix: of the object (the prefix asked for, in a list); None for any.
        nth: only this one of those that fit so far, counted from 1; 0 for each.
        times: at most so many; None for no bound.
        start, end: seconds since the fault was added between which it holds.
        share: of those that still fit, this part by chance, reproducible by `seed`.
    """

    kind: Kind
    verb: str = ""
    bucket: str | None = None
    name: str | None = None
    prefix: str | None = None
    nth: int = 0
    times: int | None = None
    start: float = 0.0
    end: float | None = None
    share: float = 1.0
    seed: int = 0
    seconds: float | None = None
    status: int = 503
    size: int = 0


class Plan:
    """What becomes of one call; `outcome` is None if it is as usual but for the circumstances."""

    __slots__ = ("outcome", "delay", "skew", "items_max", "bytes_max")

    def __init__(self) -> None:
        self.outcome: Fault | None = None
        self.delay = 0.0
        self.skew = 0.0
        self.items_max: int | None = None
        self.bytes_max: int | None = None

    def add(self, fault: Fault) -> None:
        if fault.kind == "delayed":
            self.delay += fault.seconds or 0.0
        elif fault.kind == "skewed":
            self.skew += fault.seconds or 0.0
        elif fault.kind == "short_page":
            self.items_max = _least(fault.size, self.items_max)
        elif fault.kind == "short_rewrite":
            self.bytes_max = _least(fault.size, self.bytes_max)
        elif self.outcome is None:
            self.outcome = fault


def _least(size: int, before: int | None) -> int:
    return size if before is None else min(size, before)


class _Rule:
    """A fault and how often it has been asked and has struck."""

    def __init__(self, fault: Fault, since: float) -> None:
        self.fault = fault
        self.since = since
        self.seen = 0
        self.struck = 0
        self.verbs: frozenset[str] = frozenset()
        for verb in filter(None, fault.verb.split(",")):
            self.verbs |= _GROUPS.get(verb, {verb})

    def strikes(self, verb: str, bucket: str, name: str, reused: bool, now: float) -> bool:
        fault = self.fault
        if self.verbs and verb not in self.verbs:
            return False
        if fault.bucket not in (None, bucket) or fault.name not in (None, name):
            return False
        if fault.prefix is not None and not name.startswith(fault.prefix):
            return False
        if fault.kind == "stale" and not reused:
            return False
        age = now - self.since
        if age < fault.start or (fault.end is not None and age >= fault.end):
            return False
        self.seen += 1
        if fault.nth and self.seen != fault.nth:
            return False
        if fault.times is not None and self.struck >= fault.times:
            return False
        if fault.share < 1.0:
            chance = zlib.crc32(f"{fault.seed}:{self.seen}".encode()) / 2**32
            if chance >= fault.share:
                return False
        self.struck += 1
        return True


class Faults:
    """The faults of a server; may be changed from any thread while it runs.

    Args:
        clock: seconds, for the times of faults; by default real ones.
    """

    def __init__(self, *faults: Fault, clock: Callable[[], float] | None = None) -> None:
        self._clock = clock or System().boot
        self._lock = threading.Lock()
        self._rules: list[_Rule] = []
        self.add(*faults)

    def add(self, *faults: Fault) -> None:
        with self._lock:
            now = self._clock()
            self._rules = [*self._rules, *(_Rule(fault, now) for fault in faults)]

    def clear(self) -> None:
        with self._lock:
            self._rules = []

    @property
    def active(self) -> bool:
        return bool(self._rules)

    def plan(self, verb: str, bucket: str, name: str, *, reused: bool) -> Plan | None:
        """What a call suffers; None for nothing. `reused`: its connection served one before."""
        plan = None
        with self._lock:
            now = self._clock()
            for rule in self._rules:
                if plan is not None and plan.outcome is not None:
                    if rule.fault.kind not in _CIRCUMSTANCES:
                        continue  # the call is lost already; this one waits for another
                if rule.strikes(verb, bucket, name, reused, now):
                    plan = plan or Plan()
                    plan.add(rule.fault)
        return plan

    def report(self) -> list[dict[str, Any]]:
        """Each fault with how many calls fitted (`seen`) and suffered (`struck`)."""
        with self._lock:
            return [
                {"fault": msgspec.to_builtins(rule.fault), "seen": rule.seen, "struck": rule.struck}
                for rule in self._rules
            ]


def parse_faults(data: bytes) -> Iterable[Fault]:
    """One fault or a list of them as JSON.

    Raises:
        msgspec.DecodeError: it is neither.
    """
    if data.lstrip().startswith(b"["):
        return msgspec.json.decode(data, type=list[Fault])
    return [msgspec.json.decode(data, type=Fault)]
