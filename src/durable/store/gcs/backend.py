"""The store port over a bucket: the six verbs as requests, and what their answers mean."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from durable.errors import StoreRefused, StoreUnavailable
from durable.store import EVERYTHING, REMOTE_PACE, Backend, Page, Stored, Within, Written
from durable.store.gcs import wire
from durable.store.gcs.answers import Answer, no_bucket, nonsense, trouble
from durable.store.gcs.clock import StoreClock
from durable.store.gcs.http import (
    ANSWER_SECONDS,
    BYTES_PER_SECOND,
    LIST_SECONDS,
    Http,
    Request,
    Transport,
)
from durable.store.gcs.place import Place
from durable.store.gcs.tokens import Credentials, Tokens, application_default
from durable.system import System

READS_MAX = 5  # of a large object that is replaced between the two requests of each read


class GcsBackend(Backend):
    """The store port over a folder of a Google Cloud Storage bucket.

    Nothing is sent before the first call.

    Args:
        place: bucket and prefix.
        system: clocks and chance.
        load: finds the credentials, in a thread, when a token is first needed. Not called for an
            anonymous place.
        transport: carries the requests; by default aiohttp does, on connections of its own.
    """

    pace = REMOTE_PACE

    def __init__(
        self,
        place: Place,
        *,
        system: System | None = None,
        load: Callable[[], Credentials] = application_default,
        transport: Transport | None = None,
    ) -> None:
        self.place = place
        self._system = system = system or System()
        self._clock = StoreClock(system)
        tokens = None if place.anonymous else Tokens(load, system)
        self._http = transport or Http(place, tokens=tokens, clock=self._clock, system=system)
        self._create_url = place.insert_url(0)
        self._checked = False

    async def check(self) -> None:
        """Refuse a bucket whose settings keep its objects; asked once.

        An account that may use objects need not see the bucket's settings. Then what it may not
        replace or delete is refused when it tries.
        """
        if self._checked:
            return
        what = "look at its settings"
        answer = await self._http.ask(Request("GET", self.place.bucket_url(), what))
        if answer.status not in (200, 403):
            raise trouble(self.place, what, answer)
        bucket = f"gs://{self.place.bucket}"
        try:
            kept = wire.keeps(bucket, answer.body) if answer.status == 200 else None
        except msgspec.MsgspecError as e:
            raise nonsense(self.place, what, e) from e
        if kept is not None:
            raise StoreRefused(
                f"the bucket {self.place.bucket!r} cannot be used: {kept.found}", hint=kept.fix
            )
        self._checked = True

    async def create(
        self, name: str, body: bytes, meta: dict[str, str], inline: bool
    ) -> Written | None:
        upload = self._upload(name, body, meta, inline)
        return await self._insert(f"create of {name!r}", self._create_url, upload)

    async def replace(
        self, name: str, generation: int, body: bytes, meta: dict[str, str], inline: bool
    ) -> Written | None:
        if generation <= 0:
            return None  # to GCS, generation 0 means: create it
        upload = self._upload(name, body, meta, inline)
        url = self.place.insert_url(generation)
        return await self._insert(f"replacement of {name!r}", url, upload)

    async def read(self, name: str) -> Stored | None:
        what = f"read of {name!r}"
        for _ in range(READS_MAX):
            answer = await self._http.ask(Request("GET", self.place.read_url(name), what))
            if answer.status != 200:
                self._check_absent(what, answer)
                return None
            try:
                found = wire.described(name, answer.body)
            except msgspec.MsgspecError as e:
                raise nonsense(self.place, what, e) from e
            if found.stored.body is not None:
                return found.stored
            body = await self._body(what, name, found)
            if body is not None:
                return msgspec.structs.replace(found.stored, body=body)
        raise StoreUnavailable(
            f"the object {name!r} was replaced during each of {READS_MAX} reads",
            hint="Something writes it all the time; ask again later.",
        )

    async def list(self, prefix: str, token: str | None, within: Within = EVERYTHING) -> Page:
        what = f"list of {prefix!r}"
        url = self.place.list_url(prefix, token, within)
        answer = await self._http.ask(Request("GET", url, what, LIST_SECONDS))
        if answer.status != 200:
            raise trouble(self.place, what, answer)
        try:
            return wire.page(self.place.prefix, answer.body)
        except msgspec.MsgspecError as e:
            raise nonsense(self.place, what, e) from e

    async def delete(self, name: str, generation: int) -> bool:
        if generation <= 0:
            return False  # to GCS, generation 0 means: there is none
        what = f"deletion of {name!r}"
        url = self.place.delete_url(name, generation)
        answer = await self._http.ask(Request("DELETE", url, what))
        if answer.status in (200, 204):
            return True
        if answer.status != 412:
            self._check_absent(what, answer)
        return False

    async def copy(self, source: str, generation: int, name: str) -> Written | None:
        if generation <= 0:
            return None
        what, token = f"copy of {source!r}", ""
        while True:
            url = self.place.copy_url(source, generation, name, token)
            answer = await self._http.ask(Request("POST", url, what, LIST_SECONDS))
            if answer.status == 412:
                return None
            if answer.status != 200:
                self._check_absent(what, answer)
                return None
            try:
                step = wire.rewritten(answer.body)
            except msgspec.MsgspecError as e:
                raise nonsense(self.place, what, e) from e
            if isinstance(step, Written):
                return step
            token = step  # a large copy takes several calls

    def now(self) -> float:
        return self._clock.now()

    async def aclose(self) -> None:
        """Close all connections; calls under way fail."""
        await self._http.aclose()

    def _upload(self, name: str, body: bytes, meta: dict[str, str], inline: bool) -> wire.Upload:
        # A random boundary is in no body, not even in one made to end its part early.
        boundary = self._system.token() + self._system.token()
        return wire.upload(self.place.prefix + name, body, meta, inline, boundary)

    async def _insert(self, what: str, url: str, upload: wire.Upload) -> Written | None:
        seconds = _seconds(len(upload.data))
        answer = await self._http.ask(Request("POST", url, what, seconds, *upload))
        if answer.status == 412:
            return None
        if answer.status != 200:
            raise trouble(self.place, what, answer)
        try:
            written = wire.written(answer.body)
        except msgspec.MsgspecError as e:
            raise nonsense(self.place, what, e) from e
        self._clock.saw(written.updated, answer.received)
        return written

    async def _body(self, what: str, name: str, found: wire.Described) -> bytes | None:
        """The body of the generation that was found; None if another is there by now."""
        url = self.place.body_url(name, found.stored.generation)
        answer = await self._http.ask(Request("GET", url, what, _seconds(found.size)))
        if answer.status == 412:
            return None
        if answer.status != 200:
            self._check_absent(what, answer)
            return None
        if len(answer.body) != found.size:
            raise StoreUnavailable(
                f"the body of {name!r} came with {len(answer.body)} of its {found.size} bytes",
                hint="Ask again.",
            )
        return answer.body

    def _check_absent(self, what: str, answer: Answer) -> None:
        """Raise, unless the answer says that the object is not there."""
        if answer.status != 404 or no_bucket(answer):
            raise trouble(self.place, what, answer)


def _seconds(size: int) -> float:
    """How long a request with a body of so many bytes may take."""
    return ANSWER_SECONDS + size // BYTES_PER_SECOND
