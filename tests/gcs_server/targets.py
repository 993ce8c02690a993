"""What the conformance tests run against: a bucket behind the reference client.

`Target` is that client plus the few calls it has no method for. Every error comes up as the
client raises it, with the answer attached.
"""

from __future__ import annotations

import io
import json
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Literal
from urllib.parse import quote

import pytest
from google.api_core.exceptions import GoogleAPICallError, from_http_response
from google.cloud import storage
from google.cloud.storage import Blob, Bucket
from google.cloud.storage.retry import DEFAULT_RETRY

Kind = Literal["media", "multipart", "resumable"]
KINDS: tuple[Kind, ...] = ("media", "multipart", "resumable")

# Texts and reasons of GCS; None where the answer has no body.
RATE_LIMITED = (
    "The object {bucket}/{name} exceeded the rate limit for object mutation operations "
    "(create, update, and delete). Please reduce your request rate. "
    "See https://cloud.google.com/storage/docs/gcs429."
)
WORDS: dict[int, tuple[str, str] | None] = {
    304: None,
    412: (
        "conditionNotMet",
        "At least one of the pre-conditions you specified did not hold.",
    ),
    404: ("notFound", "No such object: {bucket}/{name}"),
    429: ("rateLimitExceeded", RATE_LIMITED),
}


class Target:
    """A bucket on some server.

    Args:
        exact: its errors are worded as GCS words them.
    """

    def __init__(self, client: storage.Client, bucket: str, *, exact: bool = True) -> None:
        self.client = client
        self.exact = exact
        self.root = f"durable-conformance-{uuid.uuid4().hex}/"
        self.retry = DEFAULT_RETRY if exact else None  # a known gap is not tried for two minutes
        self.bucket: Bucket = client.bucket(bucket)
        self.base = client._connection.API_BASE_URL

    def name(self, end: str = "object") -> str:
        """A name that no other test uses."""
        return f"{self.root}{uuid.uuid4().hex}/{end}"

    def blob(self, name: str | None = None, generation: int | None = None) -> Blob:
        return self.bucket.blob(name or self.name(), generation=generation)

    def upload(self, kind: Kind, blob: Blob, data: bytes, **conditions: int | None) -> int:
        """Upload with conditions as the client names them; returns the new generation."""
        if kind == "multipart":
            blob.upload_from_string(data, **conditions)
        elif kind == "resumable":
            blob.upload_from_file(io.BytesIO(data), **conditions)  # of unknown size
        else:
            params = {"uploadType": "media", "name": blob.name, **as_parameters(conditions)}
            answer = self.send("POST", "/upload" + self.path + "/o", params=params, data=data)
            return int(answer["generation"])
        return generation_of(blob)

    def create(self, name: str | None = None, data: bytes = b"first", **meta: str) -> Blob:
        """A new object."""
        blob = self.blob(name)
        if meta:
            blob.metadata = meta
        blob.upload_from_string(data, if_generation_match=0, retry=self.retry)
        return blob

    def read(self, name: str) -> bytes:
        return bytes(self.bucket.blob(name).download_as_bytes())

    @property
    def path(self) -> str:
        return f"/storage/v1/b/{self.bucket.name}"

    def object_path(self, name: str) -> str:
        return f"{self.path}/o/{quote(name, safe='')}"

    def raw(self, method: str, path: str, **more: Any) -> Any:
        """The answer to a request of our own making."""
        return self.client._http.request(method, self.base + path, timeout=30, **more)

    def send(self, method: str, path: str, **more: Any) -> dict[str, Any]:
        """The JSON value that it answers; an error is raised as the client does."""
        return dict(self.done(method, path, **more).json())

    def done(self, method: str, path: str, **more: Any) -> Any:
        """The answer to a request that is carried out; an error is raised as the client does."""

        def attempt() -> Any:
            answer = self.raw(method, path, **more)
            if answer.status_code not in (200, 204, 206):
                raise from_http_response(answer)
            return answer

        return attempt() if self.retry is None else self.retry(attempt)()

    @contextmanager
    def refuses(self, status: int, blob: Blob | None = None) -> Iterator[None]:
        """What is inside is answered with that status, in the words of GCS."""
        with pytest.raises(GoogleAPICallError) as caught:
            yield
        assert caught.value.code == status
        if self.exact:
            name = "" if blob is None else blob.name
            check_words(caught.value.response, self.bucket.name, name)

    @contextmanager
    def refuses_other(self, status: int) -> Iterator[None]:
        """What is inside is answered with that status, in words of the server's own."""
        with pytest.raises(GoogleAPICallError) as caught:
            yield
        assert caught.value.code == status


def check_words(answer: Any, bucket: str, name: str) -> None:
    """The body of an error is, key by key, what GCS sends."""
    words = WORDS[answer.status_code]
    if words is None:
        assert answer.content == b""
        return
    reason, message = words[0], words[1].format(bucket=bucket, name=name)
    if "alt=media" in answer.request.url:
        assert answer.text == message  # downloads are refused in plain text
        return
    error = {"message": message, "reason": reason, "domain": "global"}
    if answer.status_code == 412:
        error |= {"locationType": "header", "location": "If-Match"}
    if answer.status_code == 429:
        error["domain"] = "usageLimits"
    expected = {"error": {"code": answer.status_code, "message": message, "errors": [error]}}
    assert json.loads(answer.content) == expected


def as_parameters(conditions: Mapping[str, int | None]) -> dict[str, str]:
    """`if_generation_match` as the API writes it: `ifGenerationMatch`."""
    given = {}
    for name, value in conditions.items():
        if value is not None:
            first, *rest = name.split("_")
            given[first + "".join(part.title() for part in rest)] = str(value)
    return given


def generation_of(blob: Blob) -> int:
    assert blob.generation is not None
    return int(blob.generation)
