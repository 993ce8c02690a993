"""Google's credentials as request headers, fetched and refreshed in threads.

google-auth knows every kind of Application Default Credentials (user, service account, metadata
server, workload identity) and blocks while it asks for a token. So each refresh has a thread;
whoever has no token waits for it, from any event loop, and all who wait share one refresh. A token
that is near its end is refreshed while it is still used.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any, NamedTuple, Protocol

from durable.errors import StoreError, StoreRefused, StoreUnavailable
from durable.loops import settled
from durable.system import System

SCOPE = "https://www.googleapis.com/auth/devstorage.read_write"
EARLY = 300.0  # seconds before a token ends: the metadata server has a new one 5 minutes before
LAST = 10.0  # seconds before its end from which a token is not used: it must outlive the request
TRY_AGAIN = 10.0  # seconds between two early refreshes that fail

LOGIN = "gcloud auth application-default login"


class Credentials(Protocol):
    """What is used of google-auth's credentials."""

    expiry: datetime | None

    def refresh(self, request: Any) -> None: ...

    def apply(self, headers: dict[str, str]) -> None: ...


class _Grant(NamedTuple):
    """A token as headers, and when it is stale and at its end on the boot clock."""

    headers: dict[str, str]
    stale: float
    ends: float


class Tokens:
    """The headers that authorise requests. Any thread and event loop may ask.

    Args:
        load: finds the credentials; called in a thread, when they are first needed.
        system: clocks.
    """

    def __init__(self, load: Callable[[], Credentials], system: System) -> None:
        self._load = load
        self._system = system
        self._credentials: Credentials | None = None
        self._grant: _Grant | None = None
        self._not_before = -math.inf  # of the next early refresh
        self.after_fork()

    def after_fork(self) -> None:
        """In a child process the thread of a refresh is gone, and its lock may be held."""
        self._lock = threading.Lock()
        self._refreshing: Future[_Grant] | None = None

    async def headers(self) -> dict[str, str]:
        """The headers to send, not to be changed.

        Raises:
            StoreUnavailable: who gives the tokens did not answer.
            StoreRefused: there are no credentials, or they are not accepted.
        """
        grant = self._grant
        now = self._system.boot()
        if grant is not None and now < grant.ends:
            if now >= grant.stale and now >= self._not_before:
                self._not_before = now + TRY_AGAIN
                self._refresh()
            return grant.headers
        try:
            return (await settled(self._refresh())).headers
        except StoreError as e:  # one refresh may fail for many; each raises an error of its own
            raise type(e)(e.message, hint=e.hint) from e

    def reject(self, headers: dict[str, str]) -> None:
        """The store did not accept these headers: get others."""
        grant = self._grant
        if grant is not None and grant.headers is headers:
            self._grant = None

    def _refresh(self) -> Future[_Grant]:
        with self._lock:
            if self._refreshing is None or self._refreshing.done():
                self._refreshing = Future()
                threading.Thread(
                    target=self._carry_out,
                    args=(self._refreshing,),
                    name="durable: Google token",
                    daemon=True,  # a process that ends must not wait for it
                ).start()
            return self._refreshing

    def _carry_out(self, refreshing: Future[_Grant]) -> None:
        try:
            self._grant = grant = self._ask()
        except Exception as e:  # noqa: BLE001  # whoever waits is told, whatever it is
            refreshing.set_exception(_explained(e))
        else:
            refreshing.set_result(grant)

    def _ask(self) -> _Grant:
        from google.auth.transport.requests import Request

        if self._credentials is None:
            self._credentials = self._load()
        credentials = self._credentials
        credentials.refresh(Request())
        headers: dict[str, str] = {}
        credentials.apply(headers)
        if not all(value.isascii() and value.isprintable() for value in headers.values()):
            raise ValueError("their token has characters that no header can carry")
        lifetime = self._lifetime(credentials.expiry)
        now = self._system.boot()
        return _Grant(headers, now + lifetime - min(EARLY, lifetime / 2), now + lifetime - LAST)

    def _lifetime(self, expiry: datetime | None) -> float:
        if expiry is None:
            return math.inf
        # google-auth computed it from the wall clock and left out the zone, which is UTC.
        return expiry.replace(tzinfo=UTC).timestamp() - self._system.wall()


def application_default() -> Credentials:
    """Application Default Credentials, as `gcloud` and the environment set them up."""
    import google.auth

    credentials: Credentials = google.auth.default(scopes=[SCOPE])[0]
    return credentials


def _explained(error: Exception) -> StoreError:
    from google.auth import exceptions

    text = " ".join(str(error).split())
    if isinstance(error, exceptions.DefaultCredentialsError):
        return _caused(
            StoreRefused(
                f"no Google credentials were found: {text}",
                hint=f"Run `{LOGIN}`, or let GOOGLE_APPLICATION_CREDENTIALS name a key file.",
            ),
            error,
        )
    if _is_transient(error):
        return _caused(
            StoreUnavailable(
                f"a Google access token could not be had: {text}",
                hint="Check the network; on Google Cloud, that a service account is attached.",
            ),
            error,
        )
    return _caused(
        StoreRefused(
            f"the Google credentials were not accepted: {text}",
            hint=f"Run `{LOGIN}` again, or replace the key file.",
        ),
        error,
    )


def _caused(error: StoreError, cause: Exception) -> StoreError:
    error.__cause__ = cause
    return error


def _is_transient(error: BaseException | None) -> bool:
    """Whether it, or what it came from, is a failure of the network or of a server."""
    from google.auth import exceptions

    while error is not None:
        if isinstance(error, exceptions.TransportError | OSError):
            return True
        if isinstance(error, exceptions.GoogleAuthError) and error.retryable:
            return True
        with suppress(IndexError):
            if isinstance(error.args[0], exceptions.TransportError):
                return True  # google-auth wraps some without a cause
        error = error.__cause__ or error.__context__
    return False
