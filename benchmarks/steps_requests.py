"""Google's API through aiohttp's `ClientSession`, as anybody would use it: no store, no retries.

It has what the floor needs of a store. The requests are those of durable, to the byte.
"""

from __future__ import annotations

from typing import Self

import aiohttp
from yarl import URL

from durable.store import REMOTE_PACE, Written
from durable.store.gcs import Place, wire
from durable.system import System


class Requests:
    """Of one event loop, while it is entered."""

    pace = REMOTE_PACE

    def __init__(self, url: str) -> None:
        self.system = System()
        self._place = Place.parse(url.removeprefix("gs://"))

    async def __aenter__(self) -> Self:
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=128),
            cookie_jar=aiohttp.DummyCookieJar(),
            headers={"User-Agent": "durable", "Accept-Encoding": "identity"},
        )
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._session.close()

    async def create(
        self, name: str, body: bytes, *, nonce: str, meta: dict[str, str] | None = None
    ) -> Written:
        return await self._insert(name, 0, body, {**(meta or {}), "nonce": nonce})

    async def replace(self, name: str, generation: int, body: bytes, *, nonce: str) -> Written:
        return await self._insert(name, generation, body, {"nonce": nonce})

    async def read(self, name: str) -> bytes | None:
        status, body = await self._send("GET", self._place.read_url(name))
        return body if status == 200 else None

    async def delete(self, name: str, generation: int) -> bool:
        status, _ = await self._send("DELETE", self._place.delete_url(name, generation))
        return status == 204

    async def _insert(
        self, name: str, generation: int, body: bytes, meta: dict[str, str]
    ) -> Written:
        boundary = self.system.token() + self.system.token()
        upload = wire.upload(self._place.prefix + name, body, meta, inline=True, boundary=boundary)
        status, answer = await self._send("POST", self._place.insert_url(generation), upload)
        assert status == 200, answer
        return wire.written(answer)

    async def _send(
        self, method: str, url: str, upload: wire.Upload | None = None
    ) -> tuple[int, bytes]:
        headers = {"Content-Type": upload.content_type} if upload is not None else None
        data = upload.data if upload is not None else None
        async with self._session.request(
            method, URL(url, encoded=True), data=data, headers=headers
        ) as response:
            return response.status, await response.read()
