"""`send`: an event for a run."""

from __future__ import annotations

import argparse

import anyio
import msgspec

from durable.cli import exits, inputs, output, stores
from durable.cli.targets import served
from durable.client import SendAnswer, reading, sending
from durable.errors import UsageError
from durable.protocol import values
from durable.runtime.definitions import code_for


def send(arguments: argparse.Namespace) -> int:
    """Send it; code 1 if the run was over, so that nobody will see it."""
    text = b"null" if arguments.input is None else inputs.text_of(arguments.input)
    answer = anyio.run(_send, arguments, text)
    if arguments.json:
        output.document({"run": arguments.run, "event": arguments.name, "answer": answer})
    else:
        print(answer)
    return exits.FAILED if answer == "finished" else exits.DONE


async def _send(arguments: argparse.Namespace, text: bytes) -> SendAnswer:
    definitions = served(arguments.target, arguments.store)
    async with stores.existing(arguments) as client:
        start = await reading.read_start(client.store, arguments.run)
        definition = code_for(definitions, start)  # events may differ from version to version
        kind = None if definition is None else definition.events.get(arguments.name)
        value = sending.encoded(arguments.name, _decoded(arguments.name, text, kind), kind)
        return await sending.send(
            client.store, arguments.run, start.instance, arguments.name, value, key=arguments.key
        )


def _decoded(name: str, text: bytes, kind: object) -> object:
    values.parsed(text)  # for what decoding passes over
    try:
        return values.decode(msgspec.Raw(text), kind)
    except values.Undecodable as e:
        raise UsageError(f"the value of event {name!r} does not fit: {e}") from e
