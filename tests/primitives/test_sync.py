"""The blocking words for coordination."""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import Any

import pytest

from durable import catalog, documents, leases, sync
from durable import client as async_client
from durable.errors import LeaseLost, LeaseTaken, UsageError
from durable.leases import Refuse, Taken
from tests.client.test_sync import _declared, _parameters

ASYNC: dict[str, type] = {
    "Catalog": catalog.Catalog,
    "Coordination": async_client.Coordination,
    "Document": documents.Document,
    "Lease": leases.Lease,
    "Leases": leases.Leases,
}


def test_claims_and_documents_block(tmp_path: Path) -> None:
    """Claim, converge, read, update, list, delete, without an event loop in sight."""
    with sync.connect(f"sqlite:///{tmp_path}/db") as client:
        won = client.claim("order/1", "a", label="a")
        lost = client.claim("order/1", "b")
        doc = client.doc("n")
        counts = [doc.update(lambda n: (n or 0) + 1) for _ in range(3)]
        found = doc.read()

        assert (won.won, lost.won, lost.value, lost.label) == (True, False, "a", "a")
        assert counts == [1, 2, 3]
        assert found is not None
        assert [claim.key for claim in client.claims.list("order/")] == ["order/1"]
        assert [d.value for d in client.docs.list()] == [3]
        assert client.docs.get("absent") is None
        assert doc.delete(found.generation)
        assert doc.read() is None


def test_a_closed_client_says_so(tmp_path: Path) -> None:
    """Its event loop has ended; so have those of what it gave."""
    with sync.connect(f"sqlite:///{tmp_path}/db") as client:
        doc, claims = client.doc("n"), client.claims.list()

    for use in (lambda: client.claim("a", 1), doc.read, lambda: list(claims)):
        with pytest.raises(UsageError, match="the client is closed"):
            use()
    with pytest.raises(UsageError, match="the client is closed"), client.hold("a"):
        raise AssertionError


def test_leases_block(tmp_path: Path) -> None:
    """Acquire, be refused, write from outside, hand over, attach, hold."""
    with sync.connect(f"sqlite:///{tmp_path}/db") as client:
        mine = client.lease("job", label="me")
        taken = client.lease("job")
        assert mine
        assert isinstance(mine, sync.Lease)
        assert isinstance(taken, Taken)
        client.leases.cooperative_write("job", lambda state: {"cancel": True})
        mine.update_state({"step": 1})
        assert mine.state == {"step": 1, "cancel": True}
        theirs = client.leases.attach("job", mine.hand_over())
        assert isinstance(theirs, sync.Lease)
        assert (theirs.epoch, theirs.held) == (1, True)
        with pytest.raises(LeaseTaken), client.hold("job"):
            raise AssertionError
        theirs.release({"done": True})
        with client.hold("job") as held:
            assert isinstance(held, sync.Lease)
            assert (held.epoch, held.state) == (2, {"done": True})
        assert [entry.status for entry in client.leases.list()] == ["free"]
        assert client.lease("job", state_fn=lambda old: Refuse("over")) == Refuse("over")


def test_a_loss_is_raised_at_the_end_of_the_block(tmp_path: Path) -> None:
    """A thread cannot be cancelled: the block goes on, `held` tells, and its end raises."""
    with sync.connect(f"sqlite:///{tmp_path}/db") as client:
        reached: list[bool] = []

        def block() -> None:
            with client.hold("job") as held:
                remove(client, "leases/job")
                with pytest.raises(LeaseLost):
                    held.renew()
                reached.append(held.held)

        with pytest.raises(LeaseLost):
            block()
        assert reached == [False]


def remove(client: Any, name: str) -> None:
    """Delete an object, in the blocking client's own event loop."""
    store, portal = client._wrapped.store, client._bridge._portal
    portal.call(store.delete, name, portal.call(store.read, name).generation)


@pytest.mark.parametrize("name", sorted(ASYNC))
def test_declared_signatures_are_the_async_ones(name: str) -> None:
    """What type checkers are told is what is generated: the same names, the same parameters."""
    declared = {d.name: d for d in _declared(name) if not d.name.startswith("_")}
    public = {n: m for n, m in vars(ASYNC[name]).items() if not n.startswith("_")}

    assert declared.keys() == public.keys()
    assert public.keys() == {n for n in vars(getattr(sync, name)) if not n.startswith("_")}
    for method, member in public.items():
        if not isinstance(member, property):
            parameters = list(inspect.signature(member).parameters)
            assert parameters == _parameters(declared[method]), method
