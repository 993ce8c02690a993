"""Buckets that cannot be used. Through the command: one line, what to do, exit code 5.

Nothing is half-written: where it can be known before the first write, nothing is written at all.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import anyio
import pytest

from durable import connect, every, workflow
from durable.cli import main
from durable.client import Client
from durable.errors import StoreRefused
from durable.store.memory import Bucket
from durable.testing.gcs import BucketState, Fault, Handle, Service, serving
from tests import facts
from tests.cli.command import FLOWS, Done, begin, durable, until
from tests.gcs_store.parrot import closed_port

BUCKET = "some-bucket"
QUICK = f"{FLOWS}:quick"
INPUT = '{"word": "hi"}'
COMMANDS = {
    "run": ("run", QUICK, "--id", "x", "--input", INPUT),
    "start": ("start", QUICK, "--id", "x", "--input", INPUT),
    "worker": ("worker", FLOWS, "--until-idle"),
    "list": ("list",),
    "result": ("result", "x"),
}
WRITING = ("run", "start", "worker")

Command = Callable[..., Done]


@pytest.fixture
def bucket() -> BucketState:
    return BucketState(BUCKET, Bucket(), {})


@pytest.fixture
def server(bucket: BucketState, monkeypatch: pytest.MonkeyPatch) -> Iterator[Handle]:
    with serving(Service({BUCKET: bucket})) as handle:
        monkeypatch.setenv("STORAGE_EMULATOR_HOST", handle.url)
        yield handle


@pytest.fixture
def command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Command:
    """A command on the place, in this process."""
    monkeypatch.chdir(tmp_path)

    def call(name: str, place: str = f"gs://{BUCKET}/shop") -> Done:
        code = main(["--store", place, *COMMANDS[name]])
        said = capsys.readouterr()
        return Done(code, said.out, said.err)

    return call


def names(bucket: BucketState) -> list[str]:
    return list(bucket.table.names.since(""))


def check_refused(done: Done, said: str, advice: str) -> None:
    """Exit code 5; one line says what happened, one what to do; else there is progress alone."""
    assert done.code == 5, done.err
    assert done.out == ""
    lines = troubles(done.err)
    assert [line.partition(": ")[0] for line in lines] == ["error", "hint"], done.err
    assert said in lines[0]
    assert advice in lines[1]


def troubles(err: str) -> list[str]:
    """All of standard error but the progress of runs and workers."""
    lines = err.splitlines()
    return [line for line in lines if " INFO " not in line and not line.endswith(": recorded")]


@pytest.mark.parametrize("name", COMMANDS)
def test_a_missing_bucket(name: str, command: Command, server: Handle) -> None:
    """The message names the bucket, the advice the command that makes it."""
    done = command(name, "gs://no-such-bucket/shop")

    check_refused(done, "no bucket 'no-such-bucket'", "durable init gs://no-such-bucket")


@pytest.mark.parametrize("name", COMMANDS)
def test_no_credentials(
    name: str, command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where nobody is signed in, the advice is the command that signs in; nothing is sent."""
    _without_credentials(monkeypatch, tmp_path)

    check_refused(command(name), "no Google credentials were found", "gcloud auth")


@pytest.mark.parametrize("name", WRITING)
def test_a_wrong_project(name: str, command: Command, server: Handle, bucket: BucketState) -> None:
    """A bucket whose requester pays wants to be told which project does."""
    bucket.configure({"billing": {"requesterPays": True}}, bucket.updated)

    done = command(name)

    check_refused(done, "requester pays", f"gs://{BUCKET}/shop?userProject=PROJECT")
    assert names(bucket) == []


@pytest.mark.parametrize("name", WRITING)
@pytest.mark.parametrize(
    ("config", "said", "advice"),
    [
        (
            {"retentionPolicy": {"retentionPeriod": "86400"}},
            "objects cannot be replaced or deleted for 1 day",
            f"gcloud storage buckets update gs://{BUCKET} --clear-retention-period",
        ),
        (
            {"defaultEventBasedHold": True},
            "under an event-based hold",
            f"gcloud storage buckets update gs://{BUCKET} --no-default-event-based-hold",
        ),
    ],
    ids=["retention", "hold"],
)
def test_b37_a_bucket_that_keeps_objects(
    name: str, config: dict[str, object], said: str, advice: str,
    command: Command, server: Handle, bucket: BucketState,
) -> None:  # fmt: skip
    """Whoever would write refuses before the first write, a worker too, and ends.

    B37, treeverse/lakeFS#1339.
    """
    bucket.configure(config, bucket.updated)

    check_refused(command(name), said, advice)
    assert names(bucket) == []


@workflow
async def report() -> None:
    pytest.fail("a run of a schedule that was refused")


async def _hold(client: Client) -> None:
    async with client.hold("k"):
        pytest.fail("the body of a lease that cannot be renewed runs")


WRITES: dict[str, Callable[[Client], Awaitable[object]]] = {
    "claim": lambda client: client.claim("k", 1),
    "once": lambda client: client.once("k", lambda: 1),
    "doc": lambda client: client.doc("k").update(lambda _: 1),
    "lease": lambda client: client.lease("k"),
    "hold": _hold,
    "cooperative_write": lambda client: client.leases.cooperative_write("k", lambda _: {"a": 1}),
    "schedule": lambda client: client.schedules.create("nightly", every("1d"), report),
    "pause": lambda client: client.queues.pause(queue="mails"),
}


@pytest.mark.parametrize("write", WRITES.values(), ids=WRITES)
def test_b37_what_a_client_writes_to_a_bucket_that_keeps_objects(
    write: Callable[[Client], Awaitable[object]], server: Handle, bucket: BucketState
) -> None:
    """Without any run, too, the first write is refused before it is sent, and each time.

    B37, treeverse/lakeFS#1339.
    """
    bucket.configure({"retentionPolicy": {"retentionPeriod": "86400"}}, bucket.updated)

    async def attempt() -> None:
        async with connect(f"gs://{BUCKET}/shop") as client:
            for _ in range(2):
                with pytest.raises(StoreRefused, match="replaced or deleted for 1 day") as caught:
                    await write(client)
                assert "--clear-retention-period" in (caught.value.hint or "")

    anyio.run(attempt)
    assert names(bucket) == []


def test_the_settings_are_looked_at_once(server: Handle) -> None:
    """Before the first write of a client, whatever it writes; who only reads does not look."""
    looks: list[int] = []

    def look() -> None:
        looks.append([call.verb for call in server.service.calls.log].count("buckets.get"))

    async def work() -> None:
        async with connect(f"gs://{BUCKET}/shop") as client:
            assert await client.claims.get("k") is None
            look()
            await client.claim("k", 1)
            look()
            await client.doc("k").update(lambda _: 1)
            async with client.hold("k") as lease:
                await lease.update_state({"a": 1})
            look()

    anyio.run(work)
    assert looks == [0, 1, 1]


def test_an_unreachable_host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is asked for ten seconds, then the line says who did not answer."""
    place = f"gs://{BUCKET}/shop"
    with closed_port() as port:
        monkeypatch.setenv("STORAGE_EMULATOR_HOST", f"http://127.0.0.1:{port}")
        with ThreadPoolExecutor() as threads:  # else each would be waited for in turn
            every = threads.map(
                lambda name: durable("--store", place, *COMMANDS[name], folder=tmp_path), COMMANDS
            )

    for done in every:
        check_refused(done, f"http://127.0.0.1:{port} did not answer", "can be reached")


# -- refused in the middle ------------------------------------------------------------------------


def test_forbidden_in_the_middle_of_a_run(
    tmp_path: Path, server: Handle, bucket: BucketState
) -> None:
    """The outcome that may not be recorded is lost; allowed again, the same line goes on."""
    words = ("--store", f"gs://{BUCKET}/shop", "run", f"{FLOWS}:three", "--id", "x",
             "--input", INPUT)  # fmt: skip
    process = begin(*words, folder=tmp_path)
    until(process, "gate go")
    bucket.denied.add("storage.objects.create")
    before = names(bucket)
    (tmp_path / "go").touch()
    out, err = process.communicate(timeout=40)
    done = Done(process.returncode, "", err)
    during = names(bucket)
    bucket.denied.clear()
    again = durable(*words, folder=tmp_path)

    check_refused(done, "/steps/gate.1' with 403: ", "--role=roles/storage.objectUser")
    assert "storage.objects.create" in err
    assert out == ""
    assert set(during) <= set(before)
    assert again.code == 0, again.err
    assert again.out == 'gate go\nnote last\n["hi","go","last"]\n'


@pytest.mark.parametrize(
    ("fault", "advice"),
    [
        (Fault("refused", "insert", status=403), "--role=roles/storage.objectUser"),
        (
            Fault("refused", status=401),
            "hint: Sign in again: gcloud auth application-default login",
        ),
    ],
    ids=["403", "401"],
)
def test_a_worker_says_once_that_it_is_refused(
    tmp_path: Path, server: Handle, fault: Fault, advice: str
) -> None:
    """Two runs and the worker itself are refused: one line tells it, with what to do.

    Allowed again, it takes them up where their records end.
    """
    store = ("--store", f"gs://{BUCKET}/shop")
    for run in "xy":
        words = ("start", f"{FLOWS}:three", "--id", run, "--input", INPUT)
        assert durable(*store, *words, folder=tmp_path).code == 0
    worker = begin(*store, "worker", FLOWS, "--until-idle", folder=tmp_path)
    for _ in "xy":
        until(worker, "gate go")
    server.service.faults.add(fault)
    (tmp_path / "go").touch()
    said = until(worker, advice, stream="stderr")
    facts.until(lambda: _refused_runs(server) == set("xy"))
    server.service.faults.clear()
    _, err = worker.communicate(timeout=40)

    (told,) = troubles("\n".join([*said, *err.splitlines()]))
    assert f" with {fault.status}: " in told
    assert "does not answer" not in told
    assert worker.returncode == 0, err
    for run in "xy":
        assert durable(*store, "result", run, folder=tmp_path).out == '["hi","go","last"]\n'


def _refused_runs(server: Handle) -> set[str]:
    """The runs of which something could not be recorded."""
    calls = [call for call in server.service.calls.log if call.status in (401, 403)]
    names = [call.name.split("/") for call in calls if call.verb == "insert"]
    return {name[2] for name in names if name[1] == "runs"}


def _without_credentials(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    """An environment in which nobody is signed in, and which is no machine of Google's."""
    monkeypatch.delenv("STORAGE_EMULATOR_HOST", raising=False)
    monkeypatch.delenv("GOOGLE_APPLICATION_CREDENTIALS", raising=False)
    monkeypatch.setenv("CLOUDSDK_CONFIG", str(folder / "nobody"))
    monkeypatch.setenv("HOME", str(folder))
    monkeypatch.setenv("NO_GCE_CHECK", "true")
