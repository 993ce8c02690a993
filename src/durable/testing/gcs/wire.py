"""HTTP/1.1 as far as a JSON API needs it: bytes to requests, answers to bytes. No sockets here.

Bodies come by `Content-Length` or chunked; requests may follow each other without waiting.
Strict where clients go wrong unnoticed: lines end in CRLF, a length is a number, one request
has one way to say how long it is.
"""

from __future__ import annotations

from email.utils import formatdate
from functools import lru_cache
from http import HTTPStatus
from urllib.parse import unquote_to_bytes

HEAD_BYTES_MAX = 65_536
BODY_BYTES_MAX = 1 << 30  # everything is kept in memory

_HEAD_END = b"\r\n\r\n"
_EMPTY: dict[str, str] = {}


class Malformed(Exception):
    """Not HTTP that we read; the connection is of no use any more."""

    def __init__(self, status: int, what: str) -> None:
        super().__init__(what)
        self.status = status


class Request:
    """One request, complete.

    Attributes:
        path: as sent, percent-encoded, without the query.
        params: the query, decoded; of a parameter given more than once the last.
        headers: by lower-case name.
        keep_alive: the connection goes on after the answer.
        skew: seconds that the clock of whoever answers is ahead (a fault).
        items_max: most items of a list page, if short pages were asked for (a fault).
        bytes_max: most bytes that a rewrite carries over, if short ones were (a fault).
    """

    __slots__ = (
        "method",
        "path",
        "query",
        "params",
        "headers",
        "body",
        "keep_alive",
        "skew",
        "items_max",
        "bytes_max",
    )

    def __init__(self, method: str, path: str, query: str, headers: dict[str, str]) -> None:
        self.method = method
        self.path = path
        self.query = query
        self.params = parse_query(query) if query else {}
        self.headers = headers
        self.body = b""
        self.keep_alive = headers.get("connection", "").lower() != "close"
        self.skew = 0.0
        self.items_max: int | None = None
        self.bytes_max: int | None = None

    def every(self, name: str) -> list[str]:
        """All values of a parameter that may be given more than once."""
        pairs = (pair.partition("=") for pair in self.query.split("&"))
        return [decode(value, plus=True) for key, _, value in pairs if key == name]


class Response:
    """An answer; `headers` are those beyond the usual ones."""

    __slots__ = ("status", "body", "content_type", "headers")

    def __init__(
        self,
        status: int,
        body: bytes = b"",
        content_type: str = "application/json; charset=UTF-8",
        headers: dict[str, str] | None = None,
    ) -> None:
        self.status = status
        self.body = body
        self.content_type = content_type
        self.headers = _EMPTY if headers is None else headers


class Parser:
    """Feed it what arrives; ask it for requests until it has none."""

    def __init__(self) -> None:
        self._buffer = bytearray()
        self._request: Request | None = None
        self._length = 0  # of the body that is awaited; -1 if it is chunked
        self._chunks = bytearray()
        self._chunk_left: int | None = None  # bytes of the chunk and its CRLF; None before its size

    @property
    def idle(self) -> bool:
        """Nothing of a next request has arrived."""
        return not self._buffer and self._request is None

    @property
    def wants_continue(self) -> bool:
        """The client waits for `100 Continue` before it sends the body. Says so once."""
        request = self._request
        return request is not None and request.headers.pop("expect", "").lower() == "100-continue"

    def feed(self, data: bytes) -> None:
        self._buffer += data

    def next(self) -> Request | None:
        """The next complete request, or None until more arrives.

        Raises:
            Malformed: it will never be one.
        """
        if self._request is None and not self._begin():
            return None
        request = self._request
        assert request is not None
        if self._length < 0:
            if not self._read_chunks():
                return None
            request.body = bytes(self._chunks)
            self._chunks.clear()
        elif self._length:
            if len(self._buffer) < self._length:
                return None
            request.body = bytes(self._buffer[: self._length])
            del self._buffer[: self._length]
        self._request = None
        return request

    def _begin(self) -> bool:
        end = self._buffer.find(_HEAD_END)
        if end < 0:
            if len(self._buffer) > HEAD_BYTES_MAX:
                raise Malformed(431, f"the head of a request is over {HEAD_BYTES_MAX} bytes")
            return False
        head = self._buffer[:end].decode("latin-1")
        del self._buffer[: end + 4]
        self._request = request = _parse_head(head)
        self._length = _body_length(request.headers)
        return True

    def _read_chunks(self) -> bool:
        buffer = self._buffer
        while True:
            if self._chunk_left is None:
                end = buffer.find(b"\r\n")
                if end < 0:
                    return False
                size = _number(buffer[:end].split(b";")[0].strip().decode("latin-1"), 16)
                if len(self._chunks) + size > BODY_BYTES_MAX:
                    raise Malformed(413, f"a body is over {BODY_BYTES_MAX} bytes")
                if size == 0:
                    return self._skip_trailers()
                del buffer[: end + 2]
                self._chunk_left = size + 2
            if len(buffer) < self._chunk_left:
                return False
            if buffer[self._chunk_left - 2 : self._chunk_left] != b"\r\n":
                raise Malformed(400, "a chunk does not end where its size says")
            self._chunks += buffer[: self._chunk_left - 2]
            del buffer[: self._chunk_left]
            self._chunk_left = None

    def _skip_trailers(self) -> bool:
        """The buffer stands at the last chunk's `0`: to the empty line behind the trailers."""
        end = self._buffer.find(_HEAD_END)
        if end < 0:
            return False
        del self._buffer[: end + 4]
        return True


def encode(response: Response, now: float, *, keep_alive: bool, bodiless: bool = False) -> bytes:
    """The answer as bytes; `now` is for its `Date`. `bodiless`: the request was a HEAD."""
    head = _head_start(response.status) + _date(int(now))
    if response.headers:
        for name, value in response.headers.items():
            head += f"{name}: {value}\r\n"
    if not keep_alive:
        head += "Connection: close\r\n"
    if response.status in (204, 304):
        return (head + "\r\n").encode("latin-1")
    head += f"Content-Type: {response.content_type}\r\nContent-Length: {len(response.body)}\r\n\r\n"
    return head.encode("latin-1") + (b"" if bodiless else response.body)


def parse_query(query: str) -> dict[str, str]:
    """The parameters of a query string; of one given twice the last counts."""
    params = {}
    for pair in query.split("&"):
        name, _, value = pair.partition("=")
        if name:
            params[decode(name, plus=True)] = decode(value, plus=True)
    return params


def decode(text: str, *, plus: bool = False) -> str:
    """Undo percent-encoding (and `+` for a space, in queries).

    Raises:
        Malformed: what comes out is not UTF-8.
    """
    if plus and "+" in text:
        text = text.replace("+", " ")
    if text.isascii() and "%" not in text:
        return text
    try:
        return unquote_to_bytes(text.encode("latin-1")).decode()
    except UnicodeDecodeError as e:
        raise Malformed(400, f"{text!r} is not percent-encoded UTF-8") from e


def _parse_head(head: str) -> Request:
    first, *lines = head.split("\r\n")
    try:
        method, target, version = first.split(" ")
    except ValueError:
        raise Malformed(400, f"{first!r} is not a request line") from None
    if version not in ("HTTP/1.1", "HTTP/1.0"):
        raise Malformed(505, f"the protocol is {version!r}, not HTTP/1.1")
    headers = {}
    for line in lines:
        name, colon, value = line.partition(":")
        if not colon or not name or name != name.strip():
            raise Malformed(400, f"{line!r} is not a header")
        headers[name.lower()] = value.strip()
    if target.startswith("http://"):  # as to a proxy
        target = "/" + target[7:].partition("/")[2]
    path, _, query = target.partition("?")
    request = Request(method, path, query, headers)
    if version == "HTTP/1.0" and headers.get("connection", "").lower() != "keep-alive":
        request.keep_alive = False
    return request


def _body_length(headers: dict[str, str]) -> int:
    length, encoding = headers.get("content-length"), headers.get("transfer-encoding")
    if encoding is not None:
        if encoding.lower() != "chunked" or length is not None:
            raise Malformed(400, f"a body cannot be sent as {encoding!r} with length {length!r}")
        return -1
    if length is None:
        return 0
    size = _number(length, 10)
    if size > BODY_BYTES_MAX:
        raise Malformed(413, f"a body of {size} bytes is over {BODY_BYTES_MAX}")
    return size


def _number(text: str, base: int) -> int:
    try:
        if not text.isalnum():
            raise ValueError
        return int(text, base)
    except ValueError:
        raise Malformed(400, f"{text!r} is not a length") from None


@lru_cache(maxsize=64)
def _head_start(status: int) -> str:
    try:
        phrase = HTTPStatus(status).phrase
    except ValueError:
        phrase = "Unknown"
    if status == 308:
        phrase = "Resume Incomplete"
    return f"HTTP/1.1 {status} {phrase}\r\nServer: UploadServer\r\n"


@lru_cache(maxsize=64)
def _date(second: int) -> str:
    return f"Date: {formatdate(second, usegmt=True)}\r\n"
