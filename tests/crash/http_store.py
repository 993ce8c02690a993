"""Reading a bucket over plain HTTP, without durable: lists of what is there, and all bodies.

The server goes wrong for this reader as for everybody, so it asks again until it is answered.
"""

from __future__ import annotations

import http.client
import json
import time
from datetime import datetime
from typing import Any
from urllib.parse import quote, urlencode

from tests.crash.store import Object, Reader

PATIENCE = 15.0  # seconds without an answer after which the reader gives up
AGAIN = 0.05  # seconds between two attempts
SILENCE = 5.0  # seconds after which a call counts as not answered
PROBES = 20
LOOKS = 200  # lists in a row of which each found something replaced before it could be read
FIELDS = "items(name,generation,timeCreated,updated,metadata),nextPageToken"


class Unanswered(Exception):
    """The server did not answer for longer than any of its faults lasts."""


class HttpStore(Reader):
    """The objects under a prefix of a bucket.

    Args:
        port: of the server, on 127.0.0.1.
        prefix: of all names, with its slash; the names of objects are without it.
    """

    def __init__(self, port: int, bucket: str, prefix: str) -> None:
        self._port = port
        self._bucket = bucket
        self._prefix = prefix
        self._connection = self._connect()
        self._bodies: dict[str, dict[str, Any]] = {}  # by generation, which never changes

    def objects(self, prefix: str = "") -> list[Object]:
        for _ in range(LOOKS):
            items = self._list(self._prefix + prefix)
            bodies = [self._body(item["name"], item["generation"]) for item in items]
            # A generation that is gone was replaced or deleted meanwhile: only a new list tells.
            if None not in bodies:
                pairs = zip(items, bodies, strict=True)
                return [self._object(item, body) for item, body in pairs if body is not None]
        raise Unanswered(f"objects under {prefix!r} changed faster than they could be read")

    def clock_offset(self) -> float:
        # An answer that names a time proves that the store had reached it; the best proof counts.
        return max(self._probe(f"clock-{number}") for number in range(PROBES))

    def is_locked(self) -> bool:
        return False

    def close(self) -> None:
        self._connection.close()

    def ask(self, method: str, path: str, body: object = None) -> bytes | None:
        """The answer's body; None if there is no such thing.

        Raises:
            Unanswered: there was no answer, or none but 429 and 5xx.
        """
        data = None if body is None else json.dumps(body).encode()
        deadline = time.monotonic() + PATIENCE
        while time.monotonic() < deadline:
            try:
                self._connection.request(method, path, data, {"Content-Type": "application/json"})
                answer = self._connection.getresponse()
                found = answer.read()
            except (OSError, http.client.HTTPException):
                self._connection.close()  # the next request opens it anew
            else:
                if answer.status == 404:
                    return None
                if answer.status < 400:
                    return found
                if answer.status != 429 and answer.status < 500:
                    raise AssertionError(f"{method} {path}: {answer.status} {found!r}")
            time.sleep(AGAIN)  # real: the server is being restarted
        raise Unanswered(f"{method} {path} was not answered for {PATIENCE:g} s")

    def _connect(self) -> http.client.HTTPConnection:
        return http.client.HTTPConnection("127.0.0.1", self._port, timeout=SILENCE)

    def _list(self, prefix: str) -> list[dict[str, Any]]:
        items: list[dict[str, Any]] = []
        query = {"prefix": prefix, "fields": FIELDS}
        while True:
            found = self.ask("GET", f"/storage/v1/b/{self._bucket}/o?{urlencode(query)}")
            assert found is not None, "the bucket is gone"
            page = json.loads(found)
            items += page.get("items", [])
            if not page.get("nextPageToken"):
                return items
            query["pageToken"] = page["nextPageToken"]

    def _body(self, name: str, generation: str) -> dict[str, Any] | None:
        if generation not in self._bodies:
            path = f"/storage/v1/b/{self._bucket}/o/{quote(name, safe='')}"
            found = self.ask("GET", f"{path}?alt=media&generation={generation}")
            if found is None:
                return None
            self._bodies[generation] = json.loads(found)
        return self._bodies[generation]

    def _object(self, item: dict[str, Any], body: dict[str, Any]) -> Object:
        created, updated = (_seconds(item[key]) for key in ("timeCreated", "updated"))
        name = item["name"].removeprefix(self._prefix)
        return Object(name, created, updated, item.get("metadata", {}), body)

    def _probe(self, name: str) -> float:
        """A lower bound of what the store's clock is ahead of the machine's boot clock."""
        path = f"/upload/storage/v1/b/{self._bucket}/o?uploadType=media&name={name}"
        made = self.ask("POST", path, {})
        assert made is not None, "the bucket is gone"
        received = time.clock_gettime(time.CLOCK_BOOTTIME)
        return _seconds(json.loads(made)["updated"]) - received


def _seconds(text: str) -> float:
    return datetime.fromisoformat(text).timestamp()
