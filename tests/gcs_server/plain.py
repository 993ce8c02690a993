"""Plain HTTP to a server, one connection that stays open."""

from __future__ import annotations

import http.client
import json
from types import TracebackType
from typing import Any, NamedTuple, Self
from urllib.parse import quote, urlencode, urlsplit

OBJECTS = "/storage/v1/b/bucket/o"
UPLOADS = "/upload/storage/v1/b/bucket/o"


class Answer(NamedTuple):
    status: int
    headers: http.client.HTTPMessage
    body: bytes

    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def reason(self) -> str:
        """Of the error that it is."""
        return str(self.json()["error"]["errors"][0]["reason"])


class Http:
    """A connection to the server at `url`; all paths are on it."""

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        assert parts.hostname is not None
        self._connection = http.client.HTTPConnection(parts.hostname, parts.port, timeout=10)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        self._connection.close()

    def call(
        self,
        method: str,
        path: str,
        body: object = None,
        headers: dict[str, str] | None = None,
        **params: object,
    ) -> Answer:
        """`body` is bytes, or a value that is sent as JSON."""
        if params:
            path += "?" + urlencode(params)
        data = body if isinstance(body, bytes) or body is None else json.dumps(body).encode()
        try:
            self._connection.request(method, path, data, headers or {})
            response = self._connection.getresponse()
            return Answer(response.status, response.headers, response.read())
        except BaseException:
            self.close()  # the next call begins a new connection
            raise

    def create(self, name: str, data: bytes = b"", **params: object) -> Answer:
        """Create only, as a media upload."""
        return self.insert(name, data, ifGenerationMatch=0, **params)

    def insert(self, name: str, data: bytes = b"", **params: object) -> Answer:
        return self.call("POST", UPLOADS, data, uploadType="media", name=name, **params)

    def get(self, name: str, **params: object) -> Answer:
        return self.call("GET", object_path(name), **params)

    def media(self, name: str, **params: object) -> Answer:
        return self.get(name, alt="media", **params)

    def delete(self, name: str, **params: object) -> Answer:
        return self.call("DELETE", object_path(name), **params)

    def names(self, **params: object) -> list[str]:
        return [
            item["name"] for item in self.call("GET", OBJECTS, **params).json().get("items", [])
        ]


def object_path(name: str) -> str:
    return f"{OBJECTS}/{quote(name, safe='')}"
