"""Stores that keep their promises, and stores that do not."""

from __future__ import annotations

from pathlib import Path

import anyio
import anyio.lowlevel
import pytest

from durable.doctor import Report, examine
from durable.protocol import names
from durable.store import EVERYTHING, Backend, Page, Store, Stored, Within, Written
from durable.store.gcs import GcsBackend, Place
from durable.store.memory import Bucket, Call, Fault, MemoryBackend
from durable.store.sqlite import SqliteBackend
from tests.doctor.examined import examined, finding, levels
from tests.gcs_server.fake import fake_gcs_server

TRIED = [
    "reach",
    "create",
    "read",
    "list",
    "replace",
    "delete",
    "create-only",
    "compare-and-swap",
    "conditional-delete",
    "latency",
    "clock",
    "markers",
    "clean-up",
]


@pytest.mark.parametrize("kind", ["memory", "sqlite"])
def test_a_good_store_passes(kind: str, tmp_path: Path) -> None:
    """Everything is tried, nothing is objected to, and the probe folder is gone."""
    backends: dict[str, Backend] = {
        "memory": MemoryBackend(),
        "sqlite": SqliteBackend(str(tmp_path / "a.db")),
    }
    backend = backends[kind]

    report = examined(backend)

    assert levels(report) == dict.fromkeys(TRIED, "ok")
    assert report.latency.keys() == {"create", "get", "list"}
    assert all(0 <= spread.p50_ms <= spread.p99_ms for spread in report.latency.values())
    assert report.clock_offset is not None
    assert abs(report.clock_offset) < 2
    if isinstance(backend, MemoryBackend):
        assert backend.bucket.list("", None).items == []
        outside = {call for call in backend.bucket.log if not call[1].startswith("doctor/")}
        assert outside == {("list", "live/")}


def test_runs_that_nobody_can_take_are_named() -> None:
    """A damaged marker is a warning with the command that mends it, not a reason to refuse."""
    backend = MemoryBackend()
    for run in ("a b", "c"):
        backend.bucket.create(names.marker("default", run), b"\x80", {}, True)

    report = examined(backend)

    found = finding(report, "markers")
    assert (found.level, report.refused) == ("warning", [])
    assert "'a b'" in found.found
    assert "'c'" in found.found
    assert found.fix.endswith(": durable retry c")


class CreateAlwaysWins(MemoryBackend):
    async def create(self, name: str, body: bytes, meta: dict[str, str], inline: bool) -> Written:
        put = self.bucket.put(name, body, meta)
        return Written(put.generation, put.updated)


class CreateLooksFirst(MemoryBackend):
    """Right for one caller, wrong for two at once."""

    async def create(
        self, name: str, body: bytes, meta: dict[str, str], inline: bool
    ) -> Written | None:
        if await self.read(name) is not None:
            return None
        await anyio.lowlevel.checkpoint()
        put = self.bucket.put(name, body, meta)
        return Written(put.generation, put.updated)


class CreateOverwritesWhatItRefuses(MemoryBackend):
    async def create(
        self, name: str, body: bytes, meta: dict[str, str], inline: bool
    ) -> Written | None:
        there = self.bucket.read(name)
        put = self.bucket.put(name, body, {} if there is None else there.meta)
        return None if there is not None else Written(put.generation, put.updated)


class ReplaceIgnoresGenerations(MemoryBackend):
    async def replace(
        self, name: str, generation: int, body: bytes, meta: dict[str, str], inline: bool
    ) -> Written | None:
        put = self.bucket.put(name, body, meta)
        return Written(put.generation, put.updated)


class DeleteIgnoresGenerations(MemoryBackend):
    async def delete(self, name: str, generation: int) -> bool:
        there = self.bucket.read(name)
        return there is not None and self.bucket.delete(name, there.generation)


class DeleteTellsEverybody(MemoryBackend):
    async def delete(self, name: str, generation: int) -> bool:
        await super().delete(name, generation)
        return self.bucket.read(name) is None


class ReadTruncates(MemoryBackend):
    async def read(self, name: str) -> Stored | None:
        stored = self.bucket.read(name)
        return stored and Stored(
            name, stored.generation, stored.created, stored.updated, stored.meta, b""
        )


class ListShowsNothing(MemoryBackend):
    async def list(self, prefix: str, token: str | None, within: Within = EVERYTHING) -> Page:
        return Page([], None)


@pytest.mark.parametrize(
    ("broken", "check", "said"),
    [
        (CreateAlwaysWins, "create-only", "16 won, so two workers would each believe"),
        (CreateLooksFirst, "create-only", "16 won, so two workers would each believe"),
        (CreateOverwritesWhatItRefuses, "create-only", "what stands there is another one's"),
        (ReplaceIgnoresGenerations, "compare-and-swap", "16 won, so two workers"),
        (DeleteIgnoresGenerations, "conditional-delete", "an older generation could be deleted"),
        (DeleteTellsEverybody, "conditional-delete", "16 won"),
        (ReadTruncates, "read", "does not give back what was written"),
        (ListShowsNothing, "list", "does not show what was written"),
    ],
)
def test_a_broken_store_is_refused(broken: type[MemoryBackend], check: str, said: str) -> None:
    """The finding names the promise that is broken, what comes of it, and another store."""
    report = examined(broken())

    assert [one.check for one in report.refused] == [check]
    assert said in finding(report, check).found
    assert finding(report, check).fix.startswith("Use another store")


@pytest.mark.requires("fake-gcs-server")
def test_an_emulator_that_ignores_preconditions_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """fake-gcs-server deletes a generation that was replaced, and the doctor sees it.

    B30, fsouza/fake-gcs-server#994.
    """
    from durable.doctor import buckets

    with fake_gcs_server() as url:
        place = Place("some-bucket", "", "", url, anonymous=True)
        buckets.prepare(place, "", "")
        report = examined(GcsBackend(place), place=place)

    assert "older generation could be deleted" in finding(report, "conditional-delete").found
    assert report.refused


def test_lost_answers_are_no_broken_promise() -> None:
    """A store that loses the answers to first writes is slow, not wrong."""

    def faults(call: Call) -> Fault | None:
        lost = call.verb in ("create", "replace") and call.nth == 1
        return Fault("reply_lost") if lost else None

    report = examined(MemoryBackend(faults=faults))

    assert report.refused == []


def test_a_won_deletion_whose_answer_is_lost_is_a_note() -> None:
    """Nobody was told of a deletion, yet the object is gone."""

    def faults(call: Call) -> Fault | None:
        raced = call.verb == "delete" and call.name.endswith("/conditional-delete")
        return Fault("reply_lost") if raced and call.nth == 2 else None

    report = examined(MemoryBackend(faults=faults))

    assert report.refused == []
    assert finding(report, "conditional-delete").level == "note"


def refusing(verb: str, end: str = "") -> MemoryBackend:
    def faults(call: Call) -> Fault | None:
        return Fault("refused") if call.verb == verb and call.name.endswith(end) else None

    return MemoryBackend(faults=faults)


@pytest.mark.parametrize("verb", ["create", "list", "replace", "delete"])
def test_an_operation_that_is_refused_is_named(verb: str) -> None:
    """The others are tried all the same, and nothing is raced for."""
    report = examined(refusing(verb))

    assert [one.check for one in report.refused] == [verb]
    assert f"refuse {verb}" in finding(report, verb).found
    assert finding(report, "read").level == "ok"
    assert "create-only" not in levels(report)


def test_what_cannot_be_deleted_is_reported() -> None:
    """The folder that is left is named."""
    backend = refusing("delete")

    report = examined(backend)

    (left,) = backend.bucket.list("", None).items
    left_over = finding(report, "clean-up")
    assert left_over.level == "warning"
    assert left.name.rpartition("/")[0] in left_over.found


def test_a_store_that_refuses_later_is_refused() -> None:
    """What happens after the operations were allowed ends the examination, and is cleaned up."""
    backend = refusing("create", "latency/3")

    report = examined(backend)

    assert "latency/3" in finding(report, "examination").found
    assert finding(report, "examination").level == "refused"
    assert backend.bucket.list("", None).items == []


def test_a_store_that_does_not_answer_is_refused() -> None:
    """It is the only finding, and nothing was written."""
    backend = MemoryBackend(faults=lambda _: Fault("unsent"))

    report: Report = examined(backend, patience=0.0)

    assert levels(report) == {"reach": "refused"}
    assert "was told not to answer" in finding(report, "reach").found


def test_a_clock_far_off_is_a_note() -> None:
    """The difference is shown with its side; nothing is refused for it."""
    late = Bucket(now=lambda: 1_000_000.0)

    report = examined(MemoryBackend(late))

    assert finding(report, "clock").level == "note"
    assert "behind this machine's" in finding(report, "clock").found
    assert report.clock_offset is not None
    assert report.clock_offset < -1e9
    assert report.refused == []


def test_an_interrupted_examination_cleans_up() -> None:
    """What was written is deleted although the examination is cancelled."""
    backend = MemoryBackend()

    async def work() -> None:
        with anyio.CancelScope() as scope:

            def faults(call: Call) -> Fault | None:
                if call.verb == "create" and call.name.endswith("latency/3"):
                    scope.cancel()
                return None

            backend.faults = faults
            await examine(Store(backend), "memory:")
        assert scope.cancelled_caught

    anyio.run(work)

    assert any(name.endswith("latency/2") for _, name in backend.bucket.log)
    assert backend.bucket.list("", None).items == []
