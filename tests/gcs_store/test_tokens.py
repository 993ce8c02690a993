"""Access tokens: fetched in threads, shared, renewed early, and what their failures become."""

from __future__ import annotations

import threading
from collections.abc import AsyncIterator, Callable
from datetime import UTC, datetime
from typing import Any

import anyio
import anyio.to_thread
import google.auth.exceptions
import pytest

from durable.errors import StoreRefused, StoreUnavailable
from durable.store.gcs import GcsBackend, Place
from durable.store.gcs.tokens import EARLY, LAST, Tokens, application_default
from durable.store.memory import Bucket
from durable.system import System
from durable.testing.gcs import Fault, Handle, Service, serving
from tests.gcs_store.conftest import BUCKET

pytestmark = pytest.mark.anyio

LIFETIME = 3600.0
WALL = 1_795_953_600.0


class Credentials:
    """As google-auth's: each refresh gives the next token, or raises what is to go wrong."""

    def __init__(self) -> None:
        self.expiry: datetime | None = None
        self.failing: Exception | None = None
        self.refreshed = 0
        self.token = "token"
        self.threads: set[str] = set()
        self.go_on = threading.Event()
        self.go_on.set()
        self.wall: Callable[[], float] = System().wall

    def refresh(self, request: Any) -> None:
        self.threads.add(threading.current_thread().name)
        assert self.go_on.wait(10)
        self.refreshed += 1
        if self.failing is not None:
            raise self.failing
        moment = datetime.fromtimestamp(self.wall() + LIFETIME, UTC)
        self.expiry = moment.replace(tzinfo=None)

    def apply(self, headers: dict[str, str]) -> None:
        headers["authorization"] = f"Bearer {self.token}-{self.refreshed}"
        headers["x-goog-user-project"] = "quota-project"


@pytest.fixture
def credentials() -> Credentials:
    return Credentials()


class Hands:
    """Clocks to be moved by hand."""

    def __init__(self) -> None:
        self.passed = 0.0
        self.system = System(boot=lambda: 50.0 + self.passed, wall=lambda: WALL + self.passed)


@pytest.fixture
def hands(credentials: Credentials) -> Hands:
    hands = Hands()
    credentials.wall = hands.system.wall
    return hands


@pytest.fixture
def tokens(credentials: Credentials, hands: Hands) -> Tokens:
    return Tokens(lambda: credentials, hands.system)


async def _token(tokens: Tokens) -> str:
    return (await tokens.headers())["authorization"]


async def _fetched() -> None:
    """Wait until no token is being fetched."""
    for thread in threading.enumerate():
        if thread.name == "durable: Google token":
            await anyio.to_thread.run_sync(thread.join)


async def test_a_token_is_fetched_once_and_used(tokens: Tokens, credentials: Credentials) -> None:
    """Fifty who ask at once share one refresh, in a thread that is not the event loop's."""
    found: list[str] = []

    async def ask() -> None:
        found.append(await _token(tokens))

    async with anyio.create_task_group() as tasks:
        for _ in range(50):
            tasks.start_soon(ask)

    assert found == ["Bearer token-1"] * 50
    assert credentials.refreshed == 1
    assert credentials.threads == {"durable: Google token"}
    assert (await tokens.headers())["x-goog-user-project"] == "quota-project"


async def test_a_token_is_renewed_before_its_end(
    tokens: Tokens, credentials: Credentials, hands: Hands
) -> None:
    """Near its end the old one is still used, without waiting, while the new one is fetched."""
    await tokens.headers()
    hands.passed = LIFETIME - EARLY - 1
    before = await _token(tokens)
    fetched = credentials.refreshed
    hands.passed = LIFETIME - EARLY + 1
    credentials.go_on.clear()

    during = await _token(tokens)
    credentials.go_on.set()
    await _fetched()

    assert (before, fetched, during) == ("Bearer token-1", 1, "Bearer token-1")
    assert await _token(tokens) == "Bearer token-2"


async def test_a_token_at_its_end_is_not_used(
    tokens: Tokens, credentials: Credentials, hands: Hands
) -> None:
    """It would be refused when it arrives."""
    await tokens.headers()
    hands.passed = LIFETIME - LAST + 0.1

    assert await _token(tokens) == "Bearer token-2"


async def test_an_early_renewal_that_fails_harms_nobody(
    tokens: Tokens, credentials: Credentials, hands: Hands
) -> None:
    """The old token is used until its end; the renewal is tried again, not at every request."""
    await tokens.headers()
    credentials.failing = google.auth.exceptions.TransportError("503")
    hands.passed = LIFETIME - EARLY + 1
    for _ in range(20):
        assert await _token(tokens) == "Bearer token-1"
    await _fetched()
    assert credentials.refreshed == 2

    hands.passed = LIFETIME
    with pytest.raises(StoreUnavailable):
        await tokens.headers()
    credentials.failing = None

    assert await _token(tokens) == "Bearer token-4"


async def test_whoever_waits_may_be_cancelled(tokens: Tokens, credentials: Credentials) -> None:
    """A slow token server holds nobody who has a deadline; its answer is not lost."""
    credentials.go_on.clear()
    with anyio.move_on_after(0.01) as scope:
        await tokens.headers()
    credentials.go_on.set()

    assert scope.cancelled_caught
    assert await _token(tokens) == "Bearer token-1"


def _wrapped() -> Exception:
    """As google-auth reports that the metadata server answers 500."""
    error = google.auth.exceptions.RefreshError("compute engine metadata: 500")
    error.__cause__ = google.auth.exceptions.TransportError("500")
    return error


@pytest.mark.parametrize(
    "error",
    [
        google.auth.exceptions.TransportError("429 from the metadata server"),
        google.auth.exceptions.RefreshError("internal_failure", retryable=True),
        google.auth.exceptions.RefreshError(google.auth.exceptions.TransportError("500")),
        _wrapped(),
        ConnectionResetError("reset"),
        TimeoutError(),
    ],
    ids=repr,
)
async def test_troubles_of_the_token_server_pass(
    tokens: Tokens, credentials: Credentials, error: Exception
) -> None:
    """They are as if the store did not answer, and the next attempt asks again.

    B28, googleapis/google-auth-library-python#1562.
    """
    credentials.failing = error
    with pytest.raises(StoreUnavailable, match="access token could not be had"):
        await tokens.headers()
    credentials.failing = None

    assert await _token(tokens) == "Bearer token-2"


async def test_credentials_that_are_not_accepted(tokens: Tokens, credentials: Credentials) -> None:
    """A definite no, with the command that mends it."""
    credentials.failing = google.auth.exceptions.RefreshError("invalid_grant: expired or revoked")

    with pytest.raises(StoreRefused, match="invalid_grant") as caught:
        await tokens.headers()

    assert "gcloud auth application-default login" in str(caught.value)


@pytest.mark.parametrize("token", ["a\r\nX-Admin: yes", "a\n", "gr\u00f6\u00dfe"])
async def test_a_token_that_no_header_can_carry(
    tokens: Tokens, credentials: Credentials, token: str
) -> None:
    """It is refused before anything is sent, and not shown: a file's last line end, say."""
    credentials.token = token

    with pytest.raises(StoreRefused, match="characters that no header can carry") as caught:
        await tokens.headers()

    assert token not in str(caught.value)


async def test_no_credentials(monkeypatch: pytest.MonkeyPatch, hands: Hands) -> None:
    """The message names what was looked for, the hint the command and the variable."""
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", "/no/such/key.json")

    with pytest.raises(StoreRefused, match="no Google credentials") as caught:
        await Tokens(application_default, hands.system).headers()

    assert "/no/such/key.json" in str(caught.value)
    assert "gcloud auth application-default login" in str(caught.value)


# -- through the store -----------------------------------------------------------------------------


@pytest.fixture
async def guarded(
    credentials: Credentials, anyio_backend: str
) -> AsyncIterator[tuple[GcsBackend, Handle]]:
    """A store on a server that lets in who has the second or third token."""
    service = Service({BUCKET: Bucket()}, tokens=["token-2", "token-3"])
    with serving(service) as handle:
        backend = GcsBackend(Place(BUCKET, "", "", handle.url), load=lambda: credentials)
        yield backend, handle
        await backend.aclose()


async def test_a_refused_token_is_replaced_once(
    guarded: tuple[GcsBackend, Handle], credentials: Credentials
) -> None:
    """A 401 costs a new token and one more request, then the call is answered."""
    backend, handle = guarded

    assert await backend.create("a", b"", {}, True) is not None
    assert await backend.read("a") is not None
    statuses = [call.status for call in handle.service.calls.log]

    assert statuses == [401, 200, 200]
    assert credentials.refreshed == 2


async def test_a_second_refusal_is_final(
    guarded: tuple[GcsBackend, Handle], credentials: Credentials
) -> None:
    """It is not repeated for ever; the message says who said no, and the command."""
    backend, handle = guarded
    handle.service.faults.add(Fault("refused", status=401))

    with pytest.raises(StoreRefused, match="401: Invalid Credentials") as caught:
        await backend.create("a", b"", {}, True)

    assert "gcloud auth application-default login" in str(caught.value)
    assert len(handle.service.calls.log) == 2


async def test_many_refused_at_once_share_the_new_token(
    guarded: tuple[GcsBackend, Handle], credentials: Credentials
) -> None:
    """Twenty calls with a token that has been withdrawn lead to one refresh."""
    backend, _ = guarded

    async with anyio.create_task_group() as tasks:
        for number in range(20):
            tasks.start_soon(backend.create, str(number), b"", {}, True)

    assert credentials.refreshed == 2
    assert len((await backend.list("", None)).items) == 20


async def test_an_emulator_needs_no_credentials(backend: GcsBackend) -> None:
    """They are not even looked for."""

    def load() -> Credentials:
        raise AssertionError("credentials were asked for")

    anonymous = GcsBackend(backend.place, load=load)

    assert await anonymous.read("a") is None
    await anonymous.aclose()
