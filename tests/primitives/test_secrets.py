"""A holder's token is in no output: it is shown, stored, logged and raised nowhere."""

from __future__ import annotations

import logging
import traceback
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from durable.client import Client
from durable.errors import LeaseLost, LeaseTaken
from durable.leases import Lease
from durable.protocol.primitives import digest_of
from durable.store import LOCAL_PACE
from durable.store.memory import Bucket
from durable.store.opening import open_store
from durable.testing.gcs import Service, serving

pytestmark = pytest.mark.anyio


async def everything_that_can_be_done(client: Client) -> tuple[set[str], list[str]]:
    """A life of leases: the tokens that were used, and all that was shown."""
    shown: list[str] = []
    held = await client.lease("job", label="me", state_fn=lambda old: {"n": 1})
    assert isinstance(held, Lease)
    tokens = {held._token.reveal()}
    await client.leases.cooperative_write("job", lambda state: {**state, "cancel": True})
    taken = await client.lease("job")
    shown += [repr(held), str(held), f"{held}", held.holder, repr(taken), repr(client)]
    shown += [repr(vars(held)), repr(vars(held._upkeep)), repr(held.state)]
    try:
        async with client.hold("job"):
            pass
    except LeaseTaken as e:
        shown.append(_all_of(e))
    shown += [repr(entry) async for entry in client.leases.list()]
    shown += [repr(msgspec.structs.asdict(entry)) async for entry in client.leases.list()]

    shown.append(await _stored(client))
    tokens.add(await held.hand_over())
    wrong = "x" * 16
    try:
        await client.leases.attach("job", wrong)
    except LeaseLost as e:
        shown.append(_all_of(e))
        assert wrong not in shown[-1]
    attached = await client.leases.attach("job", tokens.copy().pop())
    shown.append(repr(attached))
    await attached.release({"done": True})
    try:
        await attached.renew()
    except LeaseLost as e:
        shown.append(_all_of(e))
    shown.append(await _stored(client))
    return tokens, shown


def _all_of(error: BaseException) -> str:
    shown = [repr(error), str(error), repr(vars(error)), *traceback.format_exception(error)]
    return "\n".join(shown)


@pytest.fixture(params=["sqlite", "gs"])
def url(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[str]:
    if request.param == "sqlite":
        yield f"sqlite:///{tmp_path}/db"
        return
    with serving(Service({"some-bucket": Bucket()})) as server:
        monkeypatch.setenv("STORAGE_EMULATOR_HOST", server.url)
        yield "gs://some-bucket"


async def _stored(client: Client) -> str:
    """Every object with its metadata."""
    return repr([await client.store.read(each.name) async for each in client.store.list("")])


def _on_disk(folder: Path) -> bytes:
    return b"".join(path.read_bytes() for path in folder.iterdir() if path.is_file())


async def test_no_output_has_a_token(
    url: str, tmp_path: Path, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    """Not a representation, list, error, log line, stored object or database file.

    That no command shows one is in tests/cli/test_secrets.py.
    """
    caplog.set_level(logging.DEBUG)
    store = open_store(url)
    store.backend.pace = LOCAL_PACE  # else one write a second
    async with Client(store) as client:
        tokens, shown = await everything_that_can_be_done(client)
        files = _on_disk(tmp_path)  # while a database has not tidied up
    await store.aclose()
    outputs = [*shown, caplog.text, *capfd.readouterr()]

    assert len(tokens) == 1
    (token,) = tokens
    assert not [text for text in outputs if token in text]
    assert token.encode() not in files
    # The search would find it: what stands for the token is there.
    assert [text for text in outputs if digest_of(token)[:6] in text]
    assert [text for text in outputs if digest_of(token) in text]
    assert digest_of(token).encode() in files or not url.startswith("sqlite")
