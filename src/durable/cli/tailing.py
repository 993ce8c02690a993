"""`tail`: what is recorded of a run and what it publishes, as it comes."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator

import anyio
import msgspec

from durable.cli import exits, output, stores
from durable.client import StepSummary, reading
from durable.client.handles import Looks, needs_attention
from durable.protocol.records import Published, Result
from durable.runtime.facts import Facts
from durable.store import Store


def tail(arguments: argparse.Namespace) -> int:
    """Follow one run to its end, with --json one document a line; exits as its outcome says."""
    return anyio.run(_tail, arguments)


async def _tail(arguments: argparse.Namespace) -> int:
    async with stores.existing(arguments) as client:
        told: set[tuple[object, ...]] = set()
        looks = Looks(client.store.pace)
        while True:
            facts = await reading.load(client.store, arguments.run)
            news = [entry for entry in _entries(facts) if entry.key not in told]
            for entry in sorted(news, key=lambda entry: entry.time):
                told.add(entry.key)
                _print(entry, as_json=arguments.json)
            sys.stdout.flush()
            if facts.result is not None:
                return exits.OUTCOMES[facts.result.status]
            await _check_attention(client.store, arguments.run, facts)
            if news:
                looks = Looks(client.store.pace)  # where something happens, more may
            await looks.again()


async def _check_attention(store: Store, run: str, facts: Facts) -> None:
    attention = await reading.read_attention(store, run, facts.start)
    if attention is not None:
        raise needs_attention(run, attention)


class _Entry(msgspec.Struct, omit_defaults=True):
    """One line. `key` tells it from what was told before."""

    key: tuple[object, ...]
    time: float
    document: dict[str, object]
    line: str


def _entries(facts: Facts) -> Iterator[_Entry]:
    for step in reading.summarize(facts):
        yield _of_step(facts.start.instance, step)
    for name, record in reading.newest(facts.published).items():
        yield _of_published(facts.start.instance, name, record)
    if facts.result is not None:
        yield _of_end(facts.start.instance, facts.result)


def _of_step(instance: str, step: StepSummary) -> _Entry:
    document: dict[str, object] = {
        "kind": "call", "path": step.path, "name": step.name, "outcome": step.outcome,
        "value": output.raw(step.value), "error": step.error or None, "attempts": step.attempts,
        "epoch": step.epoch, "time": step.time,
    }  # fmt: skip
    said = step.outcome
    if step.outcome == "value":
        said = output.short(step.value)
    elif step.error:
        said = f"{step.outcome}: {output.cut(step.error)}"
    key = (instance, step.path, step.outcome, step.attempts)
    return _Entry(key, step.time, document, f"{step.path}  {said}")


def _of_published(instance: str, name: str, record: Published) -> _Entry:
    value = reading.plain_value(record.value)
    document: dict[str, object] = {
        "kind": "published", "name": name, "value": output.raw(value), "epoch": record.epoch,
        "time": record.time,
    }  # fmt: skip
    line = f"{name} = {output.short(value)}"
    return _Entry((instance, name, record.nonce), record.time, document, line)


def _of_end(instance: str, result: Result) -> _Entry:
    failure, value = result.failure, reading.plain_value(result.value)
    document: dict[str, object] = {
        "kind": "end", "status": result.status, "result": output.raw(value),
        "error": f"{failure.type}: {failure.message}" if failure else None, "time": result.time,
    }  # fmt: skip
    said = f"{failure.type}: {failure.message}" if failure else output.readable(value)
    return _Entry((instance, "end"), float("inf"), document, f"{result.status}: {output.cut(said)}")


def _print(entry: _Entry, *, as_json: bool) -> None:
    if as_json:
        output.document(entry.document)
    else:
        time = entry.document["time"]
        assert isinstance(time, float)
        print(f"{output.moment(time)}  {entry.line}")
