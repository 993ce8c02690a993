"""What each answer of the bucket, and each failure to get one, becomes."""

from __future__ import annotations

import itertools
from collections.abc import AsyncIterator, Awaitable, Callable

import anyio
import anyio.to_thread
import pytest

from durable.errors import StoreError, StoreRefused, StoreUnavailable
from durable.store import Store, Written
from durable.store.gcs import GcsBackend, Place
from durable.store.gcs.http import Request
from durable.store.memory import Bucket
from durable.testing.gcs import BucketState, Fault, Handle, Service, serving
from durable.testing.gcs.refusals import Refusal
from tests.gcs_store.conftest import BUCKET
from tests.gcs_store.parrot import Parrot, answered, closed_port

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> str:
    """What an answer means does not depend on the event loop; other modules run on trio, too."""
    return "asyncio"


Verb = Callable[[GcsBackend], Awaitable[object]]
VERBS: dict[str, Verb] = {
    "create": lambda backend: backend.create("a", b"{}", {}, True),
    "replace": lambda backend: backend.replace("a", 1, b"{}", {}, True),
    "read": lambda backend: backend.read("a"),
    "list": lambda backend: backend.list("", None),
    "delete": lambda backend: backend.delete("a", 1),
}
each_verb = pytest.mark.parametrize("verb", VERBS.values(), ids=VERBS)


async def _error(verb: Verb, backend: GcsBackend) -> StoreError:
    with pytest.raises(StoreError) as caught:
        await verb(backend)
    message, _, hint = str(caught.value).partition("\n")
    assert message
    assert hint, "it says what to do"
    assert "\n" not in hint, "each in one line"
    return caught.value


@each_verb
@pytest.mark.parametrize("status", [408, 429, 500, 502, 503, 504])
async def test_busy_and_broken_is_unavailable(
    backend: GcsBackend, server: Handle, verb: Verb, status: int
) -> None:
    """The call is to be repeated; the message has the status and what was said."""
    server.service.faults.add(Fault("refused", status=status))

    error = await _error(verb, backend)

    assert isinstance(error, StoreUnavailable)
    assert f"with {status}" in error.message
    assert len(server.service.calls.log) == 1, "one call is one attempt"


@each_verb
@pytest.mark.parametrize("status", [400, 401, 403, 409, 418])
async def test_a_definite_no_is_refused(
    backend: GcsBackend, server: Handle, verb: Verb, status: int
) -> None:
    """Repeating would not help, so it is said at once."""
    server.service.faults.add(Fault("refused", status=status))

    error = await _error(verb, backend)

    assert isinstance(error, StoreRefused)
    assert len(server.service.calls.log) == 1


async def test_refused_by_the_precondition_is_no_error(backend: GcsBackend) -> None:
    """412 of a write or delete, 404 of a read or delete: a lost race, or nothing there."""
    written = await backend.create("a", b"", {}, True)
    assert written is not None
    other = written.generation + 1

    assert await backend.create("a", b"", {}, True) is None
    assert await backend.replace("a", other, b"", {}, True) is None
    assert await backend.replace("b", other, b"", {}, True) is None
    assert await backend.delete("a", other) is False
    assert await backend.delete("b", other) is False
    assert await backend.read("b") is None


@each_verb
async def test_a_missing_bucket_is_refused(place: Place, verb: Verb) -> None:
    """A bucket that is not there is no object that is not there; the command makes one."""
    backend = GcsBackend(place._replace(bucket="no-such-bucket"))

    error = await _error(verb, backend)
    await backend.aclose()

    assert isinstance(error, StoreRefused)
    assert "no bucket 'no-such-bucket'" in error.message
    assert error.hint is not None
    assert "durable init gs://no-such-bucket" in error.hint


@pytest.fixture
async def strict(
    request: pytest.FixtureRequest, anyio_backend: str
) -> AsyncIterator[tuple[GcsBackend, BucketState]]:
    """A store on a bucket with the configuration that is the parameter."""
    state = BucketState(BUCKET, Bucket(), request.param)
    with serving(Service({BUCKET: state})) as handle:
        backend = GcsBackend(Place(BUCKET, "a/", "", handle.url, anonymous=True))
        yield backend, state
        await backend.aclose()


@pytest.mark.parametrize(
    "strict",
    [{"retentionPolicy": {"retentionPeriod": "3600"}}, {"defaultEventBasedHold": True}],
    indirect=True,
    ids=["retention", "hold"],
)
async def test_a_bucket_that_keeps_objects_is_refused(
    strict: tuple[GcsBackend, BucketState],
) -> None:
    """Retention and holds are named with the command that takes them off; nothing is changed."""
    backend, _ = strict
    written = await backend.create("x", b"1", {}, True)
    assert written is not None
    generation = written.generation

    for verb in (
        lambda store: store.replace("x", generation, b"2", {}, True),
        lambda store: store.delete("x", generation),
    ):
        error = await _error(verb, backend)

        assert isinstance(error, StoreRefused)
        assert "retention policy" in error.message or "hold" in error.message
        assert error.hint is not None
        assert "gcloud storage buckets update gs://some-bucket --clear-retention" in error.hint
    stored = await backend.read("x")
    assert stored is not None
    assert (stored.generation, stored.body) == (generation, b"1")


@pytest.mark.parametrize("strict", [{}], indirect=True)
@pytest.mark.parametrize(
    ("verb", "permission"),
    [
        ("create", "storage.objects.create"),
        ("read", "storage.objects.get"),
        ("list", "storage.objects.list"),
        ("delete", "storage.objects.delete"),
    ],
)
async def test_a_missing_permission_is_named(
    strict: tuple[GcsBackend, BucketState], verb: str, permission: str
) -> None:
    """The message has GCS's own words, the hint the command that grants what is needed."""
    backend, state = strict
    state.denied.add(permission)

    error = await _error(VERBS[verb], backend)

    assert isinstance(error, StoreRefused)
    assert permission in error.message
    assert error.hint is not None
    assert "roles/storage.objectUser" in error.hint


@pytest.mark.parametrize("strict", [{"billing": {"requesterPays": True}}], indirect=True)
@each_verb
async def test_who_pays_is_asked_for(strict: tuple[GcsBackend, BucketState], verb: Verb) -> None:
    """Without a project the URL that names one is shown; with it every verb works."""
    backend, _ = strict
    paying = GcsBackend(backend.place._replace(user_project="p"))

    error = await _error(verb, backend)
    await verb(paying)
    await paying.aclose()

    assert isinstance(error, StoreRefused)
    assert error.hint is not None
    assert "gs://some-bucket/a?userProject=PROJECT" in error.hint


NO_PROJECT = "User project specified in the request is invalid."
NOT_BILLED = (
    "me@x.iam.gserviceaccount.com does not have serviceusage.services.use access to the Google "
    "Cloud project. Permission 'serviceusage.services.use' denied on resource (or it may not "
    "exist)."
)
CONSUMER = "--member=ACCOUNT --role=roles/serviceusage.serviceUsageConsumer"


@each_verb
@pytest.mark.parametrize(
    ("payer", "refusal", "advice"),
    [
        (
            "nope", Refusal(400, "invalid", NO_PROJECT),
            ("The project 'nope' is none that can pay; "
            "name another: gs://some-bucket/a?userProject=PROJECT"),
        ),
        (
            "", Refusal(400, "invalid", NO_PROJECT),
            "Name the project that pays: gs://some-bucket/a?userProject=PROJECT",
        ),
        (
            "mine", Refusal(403, "forbidden", NOT_BILLED),
            ("Allow this account to have that project pay: "
            f"gcloud projects add-iam-policy-binding mine {CONSUMER}"),
        ),
        (
            "", Refusal(403, "forbidden", NOT_BILLED),
            ("Allow this account to have that project pay: "
            f"gcloud projects add-iam-policy-binding PROJECT {CONSUMER}"),
        ),
        (
            "mine", Refusal(400, "invalid", "Bad Request"),
            ("What Google means by 400: "
            "https://cloud.google.com/storage/docs/json_api/v1/status-codes"),
        ),
    ],
)  # fmt: skip
async def test_a_project_that_cannot_pay(
    verb: Verb, payer: str, refusal: Refusal, advice: str
) -> None:
    """The advice is about the project, not about the bucket; of another 400 it is not."""
    with Parrot(answered(refusal.response())) as parrot:
        backend = GcsBackend(Place(BUCKET, "a/", payer, parrot.url, anonymous=True))
        error = await _error(verb, backend)
        await backend.aclose()

    assert isinstance(error, StoreRefused)
    assert error.message.endswith(f"with {refusal.status}: {refusal.message}")
    assert error.hint == advice


@pytest.mark.parametrize("kind", ["port", "name", "tls"])
@each_verb
async def test_a_host_that_cannot_be_reached_is_unavailable(verb: Verb, kind: str) -> None:
    """A closed port, an unknown name and failing TLS are all passing troubles of the network."""
    with Parrot(b"no TLS here") as parrot, closed_port() as port:
        endpoint = {
            "port": f"http://127.0.0.1:{port}",
            "name": "http://no-such-host.invalid",
            "tls": f"https://127.0.0.1:{parrot.port}",
        }[kind]
        await _check_unreachable(verb, endpoint)


async def _check_unreachable(verb: Verb, endpoint: str) -> None:
    backend = GcsBackend(Place(BUCKET, "a/", "", endpoint, anonymous=True))

    error = await _error(verb, backend)
    await backend.aclose()

    assert isinstance(error, StoreUnavailable)
    assert f"{endpoint} did not answer" in error.message


@each_verb
@pytest.mark.parametrize("kind", ["unsent", "reply_lost", "truncated"])
async def test_a_broken_connection_is_unavailable(
    backend: GcsBackend, server: Handle, verb: Verb, kind: str
) -> None:
    """Whether the request or its answer was lost, and however much of the answer came."""
    for size in (5, 60):
        server.service.faults.clear()
        server.service.faults.add(Fault(kind, size=size))  # type: ignore[arg-type]  # a parameter is a plain str

        assert isinstance(await _error(verb, backend), StoreUnavailable)


async def test_an_answer_that_does_not_come_is_waited_for_so_long(
    backend: GcsBackend, server: Handle
) -> None:
    """A request has its time, and the connection is not used again."""
    server.service.faults.add(Fault("silent", times=1))
    request = Request("GET", backend.place.read_url("a"), "read of 'a'", seconds=0.05)

    with pytest.raises(StoreUnavailable, match="did not answer the read of 'a'"):
        await backend._http.ask(request)

    assert await backend.read("a") is None


@pytest.mark.parametrize("verb", ["create", "replace", "read", "list"])
async def test_what_is_no_json_is_unavailable(verb: str) -> None:
    """A success with a page of some proxy in it is not believed."""
    page = b"<html>Please sign in</html>"
    with Parrot(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(page), page)) as parrot:
        backend = GcsBackend(Place(BUCKET, "", "", parrot.url, anonymous=True))
        error = await _error(VERBS[verb], backend)
        await backend.aclose()

    assert isinstance(error, StoreUnavailable)


async def test_a_copy_that_neither_ends_nor_goes_on_is_unavailable() -> None:
    """Else it would be begun anew without end, and without a pause."""
    with Parrot(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}") as parrot:
        backend = GcsBackend(Place(BUCKET, "", "", parrot.url, anonymous=True))
        with anyio.fail_after(5), pytest.raises(StoreUnavailable, match="cannot be read"):
            await backend.copy("a", 1, "b")
        await backend.aclose()

    assert len(parrot.heard) == 1


@each_verb
async def test_a_redirect_is_not_followed(verb: Verb, server: Handle) -> None:
    """Credentials go to the endpoint alone."""
    away = f"HTTP/1.1 307 Away\r\nLocation: {server.url}\r\nContent-Length: 0\r\n\r\n"
    with Parrot(away.encode()) as parrot:
        backend = GcsBackend(Place(BUCKET, "", "", parrot.url, anonymous=True))
        error = await _error(verb, backend)
        await backend.aclose()

    assert isinstance(error, StoreUnavailable)
    assert server.service.calls.log == []


def test_one_change_a_second_is_enough() -> None:
    """A 429 is repeated with growing pauses, until the object may be changed again.

    B29, grafana/mimir PR #12086.
    """

    async def change(url: str) -> tuple[object, object]:
        store = Store(GcsBackend(Place(BUCKET, "a/", "", url, anonymous=True)))
        first = await store.create("x", b"", nonce="1")
        assert isinstance(first, Written)
        second = await store.replace("x", first.generation, b"", nonce="2")
        await store.aclose()
        return first, second

    looks = itertools.count(1_700_000_000.0, 0.4)  # time passes by being looked at
    with serving(Service({BUCKET: Bucket(now=looks.__next__)}, rate_limit=1)) as handle:
        first, second = anyio.run(change, handle.url)
        statuses = [call.status for call in handle.service.calls.log]

    assert isinstance(first, Written)
    assert isinstance(second, Written)
    assert (first.first, second.first) == (True, False)
    assert 1 <= statuses.count(429) <= 20


async def test_closing_makes_later_calls_fail(backend: GcsBackend) -> None:
    """The error says that the store is closed, not that the network is down."""
    await backend.create("a", b"", {}, True)
    await backend.aclose()
    await backend.aclose()

    for verb in VERBS.values():
        error = await _error(verb, backend)
        assert isinstance(error, StoreRefused)
        assert "is closed" in error.message


async def test_closing_while_calls_wait(backend: GcsBackend, server: Handle) -> None:
    """Calls under way end with an error of the store."""
    server.service.faults.add(Fault("silent"))
    ended: list[StoreError] = []

    async def call() -> None:
        try:
            await backend.read("a")
        except StoreError as e:
            ended.append(e)

    async with anyio.create_task_group() as tasks:
        for _ in range(3):
            tasks.start_soon(call)
        while server.service.faults.report()[0]["struck"] < 3:
            await anyio.to_thread.run_sync(server.land)  # a turn of the server's event loop
        await backend.aclose()

    assert len(ended) == 3
