"""The rules of dedup keys, of effects that take place once, of an outbox."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from itertools import pairwise
from urllib.parse import quote

from tests.simulation.checker.case import Case, record

DISTURBANCES = {"stopped", "suspended", "blocked", "killed", "cancelled"}  # of a process


def a_key_means_one_run(case: Case) -> Iterator[str]:
    """Of the runs of a queue that carry one key, one goes on at a time."""
    spans: dict[tuple[str, str], list[tuple[int, int, str]]] = defaultdict(list)
    for id_, fact in case.starts.items():
        start, run = record(fact), case.instances[id_].run
        if start.get("dedup_key"):
            over = case.over_since(run, id_)
            key = start.get("queue", "default"), start["dedup_key"]
            spans[key].append((fact.order, 1 << 60 if over is None else over, run))
    for (_, key), found in spans.items():
        for (_, end, run), (begin, _, other) in pairwise(sorted(found)):
            if begin < end:
                yield f"run {other!r} began with key {key!r} while run {run!r} went on"


def whoever_is_told_a_run_finds_it(case: Case) -> Iterator[str]:
    """P4: the run that a client was told, its own or another, has an outcome."""
    if case.left is None:
        return
    for reply in case.by_kind["reply"]:
        if not str(reply.what).startswith(("keyed", "join")) or not reply.is_.get("value"):
            continue
        run, id_ = reply.value
        if run and f"runs/{quote(run, safe='.')}/{id_}/result" not in case.left:
            yield f"{reply.who} was told of run {run!r}, which has no outcome"


def effects_take_place_once(case: Case) -> Iterator[str]:
    """An effect begins once for its key; whoever is told what came of it is told the same."""
    for key, times in Counter(f.key for f in case.by_kind["effect"]).items():
        if times > 1:
            yield f"the effect of {key!r} took place {times} times"
    told: dict[str, set[str]] = defaultdict(set)
    for fact in case.by_kind["guarded"]:
        if fact.told:
            told[fact.key].add(fact.told)
        elif not case.by_kind["fault"]:
            began = [f for f in case.by_kind["effect"] if f.key == fact.key]
            done = [f.at for f in case.by_kind["effected"] if f.key == fact.key]
            if not began or not done or done[0] >= fact.at - 5.0:
                continue
            happened = {f.what.split()[0] for f in case.by_kind["happened"]
                        if f.who == began[0].who}  # fmt: skip
            if not happened & DISTURBANCES:
                yield f"nobody knows of the effect of {fact.key!r}, and nothing went wrong"
    for key, values in told.items():
        if len(values) > 1:
            yield f"the effect of {key!r} was told as {sorted(values)}"


def outboxes_lose_nothing(case: Case) -> Iterator[str]:
    """What a producer was told to be accepted is drained: it, or what replaced it."""
    drained: dict[str, list[tuple[int, int]]] = defaultdict(list)
    for fact in case.by_kind["drained"]:
        drained[fact.key.removeprefix("outbox/")].append((fact.order, fact.value))
    for reply in case.by_kind["reply"]:
        if reply.what == "produce" and reply.is_.get("value"):
            key, value = reply.value
            kept = f"docs/outbox%2F{key}" in (case.left or {})
            if not kept and not any(v >= value for _, v in drained[key]):
                yield f"request {value} of {key!r} was accepted, and never drained"


EFFECT_RULES: list[Callable[[Case], Iterator[str]]] = [
    a_key_means_one_run,
    whoever_is_told_a_run_finds_it,
    effects_take_place_once,
    outboxes_lose_nothing,
]
