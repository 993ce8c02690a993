"""What `run` and `start` are asked to start, read and checked before a store is opened."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import msgspec

from durable.cli.targets import Workflow, load_one, served
from durable.errors import UnknownWorkflow, UsageError
from durable.protocol import values
from durable.protocol.calls import Call
from durable.protocol.records import Start
from durable.runtime.definitions import code_for
from durable.runtime.starting import random_id
from durable.system import System


class Asked(msgspec.Struct, frozen=True):
    """The workflow under its options, and its arguments."""

    workflow: Workflow
    run: str
    call: Call


def read(arguments: argparse.Namespace) -> Asked:
    """What the command line asks for.

    Raises:
        UsageError: it is not understood, or does not fit the workflow.
    """
    workflow = load_one(arguments.target)
    definition = workflow.definition
    given = vars(arguments)  # the runs of a schedule have ids of their own, and no keys
    run = random_id(System()) if given.get("id") is None else given["id"]
    options = workflow.options(
        id=run, queue=arguments.queue, priority=arguments.priority, tags=_tags(arguments.tag),
        timeout=arguments.run_timeout, dedup_key=given.get("dedup_key"),
        debounce_key=given.get("debounce_key"),
    )  # fmt: skip
    call: Call = ((), {})
    if arguments.input is not None:
        call = values.call_from_json(
            text_of(arguments.input), definition.signature, definition.hints, name=definition.name
        )
    # Encoded once here, for its errors: nothing is opened or written for a bad call.
    values.encode_call(definition.signature, definition.hints, *call, name=definition.name)
    return Asked(options, run, call)


def encoded(arguments: argparse.Namespace, start: Start) -> msgspec.Raw | None:
    """Another input for the run with that `start`; None if none is given.

    Raises:
        UsageError: it does not fit the workflow, or nothing says where that is.
    """
    if arguments.input is None:
        return None
    targets = [arguments.target] if arguments.target else []
    workflow = start.workflow
    definition = code_for(served(targets, arguments.store), start)
    if definition is None:
        pinned = f" in version {start.pin!r}, to which the run is pinned" if start.pin else ""
        raise UnknownWorkflow(
            f"no target defines workflow {workflow!r}{pinned}",
            hint="name its file: --target file.py",
        )
    call = values.call_from_json(
        text_of(arguments.input), definition.signature, definition.hints, name=workflow
    )
    raw = values.encode_call(definition.signature, definition.hints, *call, name=workflow)
    return msgspec.Raw(raw)


def text_of(given: str) -> bytes:
    """What an --input says: the text itself, a file's, or that of standard input.

    Raises:
        UsageError: the file cannot be read.
    """
    if given == "-":
        return sys.stdin.buffer.read()
    if not given.startswith("@"):
        return given.encode(errors="surrogateescape")
    try:
        return Path(given[1:]).read_bytes()
    except OSError as e:
        raise UsageError(f"the input {given} cannot be read: {e.strerror or e}") from e


def _tags(given: list[str]) -> dict[str, str] | None:
    tags = {}
    for tag in given:
        key, equals, value = tag.partition("=")
        if not key or not equals:
            raise UsageError(f"the tag {tag!r} is not KEY=VALUE")
        tags[key] = value
    return tags or None
