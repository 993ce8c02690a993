"""HTTP/1.1 responses, from the bytes that a connection brings. Pure.

What is needed of RFC 9112 by a client that never sends HEAD: a body ends after so many bytes, with
the last of its chunks, or with the connection (section 6.3). Of the head only what decides about
that is looked at, and the date.
"""

from __future__ import annotations

import re
from typing import NamedTuple

HEAD_BYTES_MAX = 64 * 1024  # GCS sends 1 KiB
_LINE_BYTES_MAX = 256  # of a chunk's size and what is said beside it
_DIGITS_MAX = 15  # of a length

_STATUS = re.compile(rb"HTTP/1\.([01]) ([1-5][0-9][0-9])(?![^ \r])")
_SIZE = re.compile(rb"([0-9A-Fa-f]{1,15})[ \t]*(?:;.*)?", re.DOTALL)
# A value ends where the next line begins with no space; a line end of another kind is part of it.
_FIELDS = re.compile(
    rb"\r\n(content-length|transfer-encoding|connection|date)[ \t]*:[ \t]*"
    rb"([^\r]*(?:\r(?!\n[^ \t])[^\r]*)*)",
    re.IGNORECASE,
)
_BODILESS = frozenset({204, 304})
_PROTOCOL = b"HTTP/1."
_LINE = b"\r\n"
_BLANK = b"\r\n\r\n"


class BadResponse(Exception):
    """What came is no HTTP/1.1 response, or none that can be told from what follows it."""


class Response(NamedTuple):
    """A whole response. `reusable`: the connection can carry another request."""

    status: int
    date: str | None
    body: bytes
    reusable: bool


class _Head(NamedTuple):
    status: int
    date: str | None
    length: int | None  # of the body; None: it is in chunks, or ends with the connection
    chunked: bool
    reusable: bool


class ResponseReader:
    """Reads one response; interim ones (1xx) before it are passed over."""

    def __init__(self) -> None:
        self._rest = bytearray()  # has come and is not understood yet
        self._head: _Head | None = None
        self._body = bytearray()  # of chunks

    def feed(self, data: bytes) -> Response | None:
        """The response once it is whole.

        Raises:
            BadResponse: it cannot be read.
        """
        self._rest += data
        head = self._head = self._head or self._take_head()
        if head is None:
            return None
        if head.length is not None:
            return self._of_length(head, head.length)
        return self._of_chunks(head) if head.chunked else None

    def end(self) -> Response | None:
        """The connection has ended: the response, if that is what ends its body."""
        head = self._head
        if head is None or head.chunked or head.length is not None:
            return None
        return Response(head.status, head.date, bytes(self._rest), reusable=False)

    def _take_head(self) -> _Head | None:
        while (end := self._rest.find(_BLANK)) >= 0:
            head = _parsed(bytes(self._rest[:end]))
            del self._rest[: end + len(_BLANK)]
            if head.status >= 200:
                return head
            if head.status == 101:
                raise BadResponse("the server changed the protocol")
        self._check_beginning()
        if len(self._rest) > HEAD_BYTES_MAX:
            raise BadResponse(f"the head of the response has more than {HEAD_BYTES_MAX:,} bytes")
        return None

    def _check_beginning(self) -> None:
        """Another protocol is noticed at once, though its greeting never becomes a head."""
        begun = bytes(self._rest[: len(_PROTOCOL)])
        line = self._rest.find(b"\n")
        if not _PROTOCOL.startswith(begun) or (line >= 0 and self._rest[line - 1 : line] != b"\r"):
            raise _no_http(self._rest)

    def _of_length(self, head: _Head, length: int) -> Response | None:
        there = len(self._rest)
        if there < length:
            return None
        body = bytes(self._rest if there == length else self._rest[:length])
        return Response(head.status, head.date, body, head.reusable and there == length)

    def _of_chunks(self, head: _Head) -> Response | None:
        while (line := self._rest.find(_LINE, 0, _LINE_BYTES_MAX)) >= 0:
            size = _size(bytes(self._rest[:line]))
            if size == 0:
                return self._after_chunks(head, line)
            begin = line + len(_LINE)
            end = begin + size
            if len(self._rest) < end + len(_LINE):
                return None
            if self._rest[end : end + len(_LINE)] != _LINE:
                raise BadResponse("a chunk of the response is not as long as it says")
            self._body += self._rest[begin:end]
            del self._rest[: end + len(_LINE)]
        if len(self._rest) >= _LINE_BYTES_MAX:
            raise BadResponse("a chunk of the response does not say how long it is")
        return None

    def _after_chunks(self, head: _Head, line: int) -> Response | None:
        """After the last chunk, which is empty, fields may follow, up to a blank line."""
        end = self._rest.find(_BLANK, line)
        if end >= 0:
            reusable = head.reusable and len(self._rest) == end + len(_BLANK)
            return Response(head.status, head.date, bytes(self._body), reusable)
        if len(self._rest) > HEAD_BYTES_MAX:
            raise BadResponse("the fields after the last chunk do not end")
        return None


def _parsed(head: bytes) -> _Head:
    said = _STATUS.match(head)
    if said is None:
        raise _no_http(head)
    found: dict[bytes, bytes] = {}
    for written, value in _FIELDS.findall(head):
        name = written.lower()
        found[name] = value.rstrip() if name not in found else b", ".join((found[name], value))
    status = int(said[2])
    date = found.get(b"date")
    coding = found.get(b"transfer-encoding")
    length = found.get(b"content-length")
    if coding is not None and coding.lower() != b"chunked":
        raise BadResponse(f"its transfer encoding is {coding[:40]!r}")
    if length is not None and not (length.isdigit() and len(length) <= _DIGITS_MAX):
        raise BadResponse(f"its length is {length[:40]!r}")
    chunked = coding is not None
    size = int(length) if length is not None and not chunked else None
    if status < 200 or status in _BODILESS:
        chunked, size = False, 0
    ambiguous = coding is not None and length is not None
    closes = b"close" in found.get(b"connection", b"").lower()
    return _Head(
        status,
        None if date is None else date.decode("latin-1"),
        size,
        chunked,
        said[1] == b"1" and not closes and not ambiguous,
    )


def _no_http(received: bytes | bytearray) -> BadResponse:
    return BadResponse(f"what answers is no HTTP/1.1: {bytes(received[:40])!r}")


def _size(line: bytes) -> int:
    said = _SIZE.fullmatch(line)
    if said is None:
        raise BadResponse(f"a chunk of the response says that its length is {line[:40]!r}")
    return int(said[1], 16)
