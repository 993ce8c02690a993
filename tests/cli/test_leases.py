"""`durable leases` and `durable queues`: who holds what, and how it is freed."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import anyio
import pytest

from durable.client import connect
from durable.errors import LeaseLost
from durable.leases import Lease
from tests.cli.command import FLOWS, Done

Cli = Callable[..., Done]


def test_nothing_is_held(cli: Cli) -> None:
    """An empty store has neither."""
    cli("init")
    assert cli("leases").out == "no leases\n"
    assert cli("queues").out == "no queues\n"


def test_leases_are_listed_without_their_secret_and_fenced_by_force(cli: Cli, folder: Path) -> None:
    """A live one is refused without --force; fenced, its holder learns of it when it writes."""
    seen: dict[str, Done] = {}

    async def main() -> str:
        async with connect(f"sqlite:///{folder}/.durable/durable.db") as client:
            lease = await client.lease("deploy", label="me", renew=False)
            assert isinstance(lease, Lease)
            for name, words in {
                "listed": ("leases", "--json"),
                "refused": ("leases", "release", "deploy"),
                "forced": ("leases", "release", "lease:deploy", "--force"),
                "after": ("leases",),
            }.items():
                seen[name] = await anyio.to_thread.run_sync(lambda w=words: cli(*w))
            with pytest.raises(LeaseLost):
                await lease.renew()
            return lease._token.reveal()

    token = anyio.run(main)
    [listed] = seen["listed"].document["leases"]

    assert (listed["key"], listed["state"], listed["label"]) == ("deploy", "held", "me")
    assert token not in seen["listed"].out
    assert (seen["refused"].code, "which is alive" in seen["refused"].err) == (2, True)
    assert seen["forced"].out == "lease:deploy is free\n"
    assert seen["after"].out == "no leases\n"


def test_keys_that_are_not_there(cli: Cli) -> None:
    """Not found, whichever way it is named."""
    cli("init")
    assert cli("leases", "release", "none").code == 3
    assert cli("leases", "release", "lease:none").code == 3
    assert cli("leases", "release", "lock:none").code == 3
    assert cli("leases", "release").code == 2
    assert "takes no KEY" in cli("leases", "list", "none").err


def test_queues_are_listed_paused_and_resumed(cli: Cli) -> None:
    """Depth and state; a pause is shown until it is over."""
    for run in ("a", "b"):
        cli("start", f"{FLOWS}:quick", "--id", run, "--input", '{"word": "hi"}')
    [queue] = cli("queues", "--json").document["queues"]
    paused = cli("queues", "pause", "default")
    shown = cli("queues").out.splitlines()[1].split()
    cli("queues", "resume", "default")

    assert (queue["name"], queue["depth"], queue["paused"]) == ("default", 2, False)
    assert paused.out == "queue 'default': paused\n"
    assert shown[:3] == ["default", "paused", "2"]
    assert cli("queues", "--json").document["queues"][0]["paused"] is False
    assert cli("queues", "pause").code == 2
    cli("queues", "pause", "--workflow", "quick")
    assert cli("queues").out.endswith("paused workflows: quick\n")
    assert cli("queues", "--json").document["paused_workflows"] == ["quick"]
    assert "takes no QUEUE" in cli("queues", "list", "default").err
