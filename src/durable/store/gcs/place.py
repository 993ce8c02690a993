"""What a gs:// URL names, and the URLs of the JSON API that follow from it."""

from __future__ import annotations

import os
import re
from typing import NamedTuple
from urllib.parse import parse_qsl, quote, urlsplit

from durable.errors import UsageError
from durable.store import EVERYTHING, Within

GOOGLE = "https://storage.googleapis.com"
EMULATOR = "STORAGE_EMULATOR_HOST"  # the environment variable that Google's own clients read
PREFIX_BYTES_MAX = 300  # GCS names have at most 1,024 bytes; ours, without it, less than 700

_BUCKET = re.compile(r"[a-z0-9][a-z0-9._-]{1,220}[a-z0-9]")
_FORM = "Write gs://bucket, gs://bucket/prefix or gs://bucket/prefix?userProject=project."
_WRITE_FIELDS = "generation,updated"
_READ_FIELDS = "generation,metadata,size,timeCreated,updated"
_COPY_FIELDS = f"rewriteToken,resource({_WRITE_FIELDS})"
_BUCKET_FIELDS = "retentionPolicy,defaultEventBasedHold"
_LIST_FIELDS = "items(name,generation,metadata,timeCreated,updated),nextPageToken"
_PAGE_SIZE = 1000  # the most that GCS gives


class Place(NamedTuple):
    """A folder of a bucket, at Google or at an emulator.

    Attributes:
        bucket: its name.
        prefix: of every object's name: empty, or with a slash at the end.
        user_project: the project that pays if the bucket is one where the requester does.
        endpoint: scheme and host that requests go to, without a slash at the end.
        anonymous: requests carry no credentials, as at an emulator.
    """

    bucket: str
    prefix: str = ""
    user_project: str = ""
    endpoint: str = GOOGLE
    anonymous: bool = False

    @staticmethod
    def parse(rest: str) -> Place:
        """From what stands behind `gs://`, and the environment.

        Raises:
            UsageError: it names no bucket, or has options that are not understood.
        """
        path, _, query = rest.partition("?")
        bucket, _, prefix = path.partition("/")
        prefix = prefix.strip("/")
        if not _BUCKET.fullmatch(bucket):
            raise UsageError(f"gs://{rest} names no bucket: {bucket!r} cannot be one", hint=_FORM)
        if _is_bad_prefix(prefix):
            raise UsageError(
                f"the prefix {prefix!r} of gs://{rest} cannot be used: it has control "
                f"characters, a `.` or `..` as a part, or more than {PREFIX_BYTES_MAX} bytes",
                hint=_FORM,
            )
        options = dict(parse_qsl(query, keep_blank_values=True))
        project = options.pop("userProject", "")
        if options:
            raise UsageError(f"gs://{rest} has unknown options: {', '.join(options)}", hint=_FORM)
        emulator = _emulator()
        folder = f"{prefix}/" if prefix else ""
        return Place(bucket, folder, project, emulator or GOOGLE, anonymous=bool(emulator))

    def __str__(self) -> str:
        return f"gs://{self.bucket}/{self.prefix}".rstrip("/")

    def bucket_url(self) -> str:
        """The settings of the bucket that keep objects."""
        return f"{self.endpoint}/storage/v1/b/{self.bucket}?fields={_BUCKET_FIELDS}{self._common}"

    def insert_url(self, generation: int) -> str:
        """Where a multipart upload goes; the name is in its body."""
        return (
            f"{self.endpoint}/upload/storage/v1/b/{self.bucket}/o?uploadType=multipart"
            f"&ifGenerationMatch={generation}&fields={_WRITE_FIELDS}{self._common}"
        )

    def read_url(self, name: str) -> str:
        """The resource of an object, with its custom metadata."""
        return f"{self._object(name)}?fields={_READ_FIELDS}{self._common}"

    def body_url(self, name: str, generation: int) -> str:
        """The body of that generation of an object."""
        return f"{self._object(name)}?alt=media&ifGenerationMatch={generation}{self._common}"

    def delete_url(self, name: str, generation: int) -> str:
        """That generation of an object."""
        return f"{self._object(name)}?ifGenerationMatch={generation}{self._common}"

    def copy_url(self, source: str, generation: int, name: str, token: str) -> str:
        """Copy that generation of `source` to `name`, which must not exist; `token` goes on."""
        target = quote(self.prefix + name, safe="")
        going_on = f"&rewriteToken={quote(token, safe='')}" if token else ""
        return (
            f"{self._object(source)}/rewriteTo/b/{self.bucket}/o/{target}?ifGenerationMatch=0"
            f"&ifSourceGenerationMatch={generation}&fields={_COPY_FIELDS}{going_on}{self._common}"
        )

    def list_url(self, prefix: str, token: str | None, within: Within = EVERYTHING) -> str:
        """One page of the objects whose names start with `prefix`."""
        under = quote(self.prefix + prefix, safe="")
        start = f"&startOffset={self._offset(within.start)}" if within.start else ""
        end = f"&endOffset={self._offset(within.end)}" if within.end else ""
        page = f"&pageToken={quote(token, safe='')}" if token is not None else ""
        return (
            f"{self.endpoint}/storage/v1/b/{self.bucket}/o?prefix={under}{start}{end}"
            f"&maxResults={_PAGE_SIZE}&fields={_LIST_FIELDS}{page}{self._common}"
        )

    def _offset(self, name: str) -> str:
        return quote(self.prefix + name, safe="")

    def _object(self, name: str) -> str:
        encoded = quote(self.prefix + name, safe="")
        return f"{self.endpoint}/storage/v1/b/{self.bucket}/o/{encoded}"

    @property
    def _common(self) -> str:
        payer = f"&userProject={quote(self.user_project, safe='')}" if self.user_project else ""
        return f"&prettyPrint=false{payer}"


def _is_bad_prefix(prefix: str) -> bool:
    return (
        len(prefix.encode()) > PREFIX_BYTES_MAX
        or any(part in (".", "..") for part in prefix.split("/"))
        or any(ord(char) < 32 or ord(char) == 127 for char in prefix)
    )


def _emulator() -> str:
    """The URL in the environment, with a scheme and without a slash at the end, or nothing."""
    given = os.environ.get(EMULATOR, "").strip()
    if not given:
        return ""
    host = (given if "://" in given else f"http://{given}").rstrip("/")
    if not is_endpoint(host):
        raise UsageError(
            f"the environment variable {EMULATOR} names no host"
            + ("" if "@" in given else f": {given!r}"),  # a password is not shown
            hint="Write it as http://127.0.0.1:9000, or unset it to use Google Cloud Storage.",
        )
    return host


def is_endpoint(url: str) -> bool:
    """Whether requests can be sent there: http or https, a host, maybe a port and a path."""
    try:
        parts = urlsplit(url)
        has_host = bool(parts.hostname) and parts.port != 0
    except ValueError:  # the port is no number, or an IPv6 address has no end
        return False
    is_plain = url.isascii() and url.isprintable() and not set(url) & set(" @?#%\\")
    is_whole = "[" not in parts.netloc[1:]  # an IPv6 address is the host, no part of it
    return has_host and is_plain and is_whole and parts.scheme in ("http", "https")
