"""HTTP as bytes: what clients may send in what pieces, and what is no request at all."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from typing import NamedTuple
from urllib.parse import urlsplit

import pytest

from durable.store.memory import Bucket
from durable.testing.gcs import Handle, serving
from durable.testing.gcs.wire import Malformed, Parser, Request, Response, encode
from tests.gcs_server.plain import OBJECTS, UPLOADS, Http, object_path


@pytest.fixture(scope="module")
def server() -> Iterator[Handle]:
    with serving({"bucket": Bucket()}) as server:
        yield server


@pytest.fixture
def http(server: Handle) -> Iterator[Http]:
    with Http(server.url) as http:
        yield http


class Reply(NamedTuple):
    status: int
    headers: dict[str, str]
    body: bytes


class Line:
    """A socket, and a reader of the answers that come over it."""

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        self.socket = socket.create_connection((parts.hostname, parts.port), timeout=10)
        self._reader = self.socket.makefile("rb")

    def send(self, data: bytes) -> None:
        self.socket.sendall(data)

    def receive(self) -> Reply | None:
        """The next answer, None at the end."""
        first = self._reader.readline()
        if not first:
            return None
        status = int(first.split()[1])
        headers = {}
        while (line := self._reader.readline()) != b"\r\n":
            name, _, value = line.decode().partition(": ")
            headers[name.lower()] = value.strip()
        size = int(headers.get("content-length", 0))
        return Reply(status, headers, self._reader.read(size))

    def close(self) -> None:
        self._reader.close()
        self.socket.close()


@pytest.fixture
def line(server: Handle) -> Iterator[Line]:
    line = Line(server.url)
    yield line
    line.close()


def post(name: str, body: bytes, *headers: str) -> bytes:
    head = [
        f"POST {UPLOADS}?uploadType=media&name={name} HTTP/1.1",
        "Host: localhost",
        *headers,
        f"Content-Length: {len(body)}",
    ]
    return "\r\n".join(head).encode() + b"\r\n\r\n" + body


def get(name: str, *headers: str) -> bytes:
    head = [f"GET {object_path(name)}?alt=media HTTP/1.1", "Host: localhost", *headers]
    return "\r\n".join(head).encode() + b"\r\n\r\n"


def test_requests_may_follow_without_waiting(line: Line) -> None:
    """Pipelined requests are answered in their order."""
    line.send(post("p", b"one") + get("p") + post("p", b"two") + get("p"))
    replies = [line.receive() for _ in range(4)]
    assert [reply and reply.body for reply in replies][1::2] == [b"one", b"two"]


def test_requests_may_come_byte_by_byte() -> None:
    """However a request is cut, it is the same request."""
    data = post("p", b"\r\n\r\nbody") + get("p")
    for size in (1, 2, 7, 1000):
        parser, found = Parser(), []
        for at in range(0, len(data), size):
            parser.feed(data[at : at + size])
            while (request := parser.next()) is not None:
                found.append((request.method, request.body))
        assert found == [("POST", b"\r\n\r\nbody"), ("GET", b"")]
        assert parser.idle


def test_a_chunked_body(line: Line) -> None:
    """A body may come in chunks, with extensions and trailers, cut anywhere."""
    head = f"POST {UPLOADS}?uploadType=media&name=chunked HTTP/1.1\r\nHost: localhost\r\n"
    head += "Transfer-Encoding: chunked\r\n\r\n"
    line.send(head.encode() + b"3\r\none\r\n4;x=y\r\nt")
    line.send(b"wo\n\r\n0\r\nTrailer: x\r\n\r\n" + get("chunked"))
    line.receive()
    reply = line.receive()
    assert reply is not None
    assert reply.body == b"onetwo\n"


def test_expect_continue(line: Line) -> None:
    """Who asks whether to send the body is told to."""
    whole = post("expected", b"body", "Expect: 100-continue")
    line.send(whole[:-4])
    go_on = line.receive()
    assert go_on is not None
    assert go_on.status == 100
    line.send(b"body")
    reply = line.receive()
    assert reply is not None
    assert reply.status == 200


def test_connection_close(line: Line) -> None:
    """The server closes after an answer when it is asked to."""
    line.send(get("none", "Connection: close"))
    reply = line.receive()
    assert reply is not None
    assert reply.headers["connection"] == "close"
    assert line.receive() is None


def test_http_1_0(line: Line) -> None:
    """An old client that does not ask for more gets one answer."""
    line.send(f"GET {OBJECTS} HTTP/1.0\r\n\r\n".encode())
    reply = line.receive()
    assert reply is not None
    assert reply.status == 200
    assert line.receive() is None


def test_the_url_may_be_absolute(line: Line) -> None:
    """As a proxy is asked."""
    line.send(f"GET http://storage.googleapis.com{OBJECTS} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
    reply = line.receive()
    assert reply is not None
    assert reply.status == 200


def test_no_body_where_there_is_none(line: Line) -> None:
    """204 and 304 have neither a body nor a length, and the connection goes on."""
    line.send(post("gone", b"x"))
    line.receive()
    line.send(f"DELETE {object_path('gone')} HTTP/1.1\r\nHost: x\r\n\r\n".encode() + get("gone"))
    first, second = line.receive(), line.receive()
    assert first is not None
    assert second is not None
    assert (first.status, first.headers.get("content-length")) == (204, None)
    assert second.status == 404


@pytest.mark.parametrize(
    ("data", "status"),
    [
        (b"GET /\r\n\r\n", 400),
        (b"GET / HTTP/2\r\n\r\n", 505),
        (b"GET / HTTP/1.1\r\nno colon\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\n folded: x\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nContent-Length: x\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nContent-Length: -1\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nContent-Length: 99999999999\r\n\r\n", 413),
        (b"GET / HTTP/1.1\r\nTransfer-Encoding: gzip\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nTransfer-Encoding: chunked\r\nContent-Length: 1\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\nxyz\r\n", 400),
        (b"GET / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nab\r\n\r\n", 400),
        (b"GET /?name=%ff HTTP/1.1\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nX: " + b"x" * 70_000, 431),
    ],
)
def test_no_request(line: Line, data: bytes, status: int) -> None:
    """What is no request is answered with an error and the end of the connection."""
    line.send(data)
    reply = line.receive()
    assert reply is not None
    assert reply.status == status
    assert json.loads(reply.body)["error"]["code"] == status
    assert line.receive() is None


def test_a_chunked_body_over_the_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    """A body that grows beyond what the server keeps is refused before it has arrived."""
    monkeypatch.setattr("durable.testing.gcs.wire.BODY_BYTES_MAX", 10)
    parser = Parser()
    parser.feed(b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n8\r\n12345678\r\n8\r\n")
    with pytest.raises(Malformed):
        parser.next()


def test_the_date_is_in_whole_seconds() -> None:
    """As HTTP has it, rounded down."""
    head = encode(Response(200), 1_700_000_000.999, keep_alive=True)
    assert b"\r\nDate: Tue, 14 Nov 2023 22:13:20 GMT\r\n" in head


def test_a_parameter_given_twice() -> None:
    """The last counts; all can be asked for."""
    request = Request("GET", "/", "a=1&b=%2B+&a=2", {})
    assert request.params == {"a": "2", "b": "+ "}
    assert request.every("a") == ["1", "2"]


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/", 404),
        ("GET", "/storage/v1/b/bucket/x", 404),
        ("GET", "/storage/v1/b/bucket/o/a/b", 404),
        ("POST", "/storage/v1/b/bucket/o/a/compose/x", 404),
        ("GET", "/_durable/nothing", 404),
        ("DELETE", "/storage/v1/b", 405),
        ("GET", UPLOADS, 405),
        ("POST", OBJECTS, 400),
        ("POST", UPLOADS, 400),
        ("POST", UPLOADS + "?uploadType=carrier-pigeon&name=a", 400),
        ("POST", UPLOADS + "?uploadType=media", 400),
        ("POST", UPLOADS + "?uploadType=media&name=", 400),
        ("GET", "/storage/v1/b/bucket/o/%ff", 400),
        ("GET", "/storage/v1/b/other/o", 404),
        ("PUT", UPLOADS + "?uploadType=resumable&upload_id=none", 404),
        # A condition where there is none must not be ignored.
        ("GET", OBJECTS + "?ifGenerationMatch=0", 400),
        ("POST", object_path("a") + "/compose?ifGenerationNotMatch=0", 400),
        ("POST", UPLOADS + "?uploadType=media&name=a&ifGenerationmatch=0", 400),
        ("POST", UPLOADS + "?uploadType=media&name=a&ifGenerationMatch=zero", 400),
        ("GET", OBJECTS + "?maxResults=0", 400),
        ("GET", OBJECTS + "?matchGlob=*", 501),
    ],
)
def test_what_is_not_in_the_api(http: Http, method: str, path: str, status: int) -> None:
    """Anything the API has not is an error that says so, and nothing is made."""
    answer = http.call(method, path)
    assert answer.status == status
    assert answer.json()["error"]["message"]
    assert http.get("a").status == 404


@pytest.mark.parametrize(
    ("kind", "body"),
    [
        ("multipart/related", b"--edge\r\n\r\n{}\r\n--edge\r\n\r\n\r\n--edge--"),
        ("multipart/mixed; boundary=edge", b"--edge\r\n\r\n{}\r\n--edge\r\n\r\n\r\n--edge--"),
        ("multipart/related; boundary=edge", b""),
        ("multipart/related; boundary=edge", b"--edge\r\n\r\n{}\r\n--edge--"),
        ("multipart/related; boundary=edge", b"--edge\r\n\r\n{}\r\n--edge\r\n\r\n"),
        ("multipart/related; boundary=edge", b"--edge\r\nA: b\r\n--edge\r\n\r\n\r\n--edge--"),
        ("multipart/related; boundary=edge", b"--edge\r\n\r\n[1]\r\n--edge\r\n\r\n\r\n--edge--"),
        (
            "multipart/related; boundary=edge",
            b'--edge\r\n\r\n{"metadata":{"n":1}}\r\n--edge\r\n\r\n\r\n--edge--',
        ),
        (
            "multipart/related; boundary=edge",
            b"--edge\r\n\r\n{}\r\n--edge\r\n\r\n\r\n--edge\r\n\r\n\r\n--edge--",
        ),
    ],
)
def test_a_multipart_body_that_is_none(http: Http, kind: str, body: bytes) -> None:
    """A body that is not a resource and a content becomes no object."""
    params = {"uploadType": "multipart", "name": "a"}
    answer = http.call("POST", UPLOADS, body, {"Content-Type": kind}, **params)
    assert answer.status == 400
    assert http.get("a").status == 404


def test_any_bytes_in_a_multipart_body(http: Http) -> None:
    """The content may look like anything but its boundary."""
    content = b"\r\n--edg\r\n\r\n--\r\n\n\x00\xff\r"
    body = b'--edge\r\n\r\n{"name":"odd"}\r\n--edge\r\nA: b\r\n\r\n' + content + b"\r\n--edge--"
    kind = {"Content-Type": 'Multipart/Related; boundary="edge"'}
    assert http.call("POST", UPLOADS, body, kind, uploadType="multipart").status == 200
    assert http.media("odd").body == content
    assert http.get("odd").json()["contentType"] == "application/octet-stream"


def test_the_resumable_session(http: Http) -> None:
    """Pieces that do not fit are refused and the session goes on; cancelled it is gone."""
    params = {"uploadType": "resumable", "name": "pieces"}
    session = http.call("POST", UPLOADS, {}, **params).headers["Location"]
    assert session.startswith("http://127.0.0.1:")
    path = session[session.index("/upload") :]

    def put(body: bytes, content_range: str) -> int:
        return http.call("PUT", path, body, {"Content-Range": content_range}).status

    assert put(b"x" * 10, "bytes 0-9/*") == 400  # no multiple of 256 KiB
    assert put(b"x" * 10, "bytes 0-8/10") == 400  # nine bytes?
    assert put(b"x" * 10, "bytes 5-14/15") == 400  # a gap
    assert put(b"x", "pieces") == 400
    assert put(b"", "bytes */10") == 308
    assert put(b"x" * 11, "bytes 0-10/11") == 400  # it was to be ten
    assert http.call("DELETE", path).status == 499
    assert put(b"x" * 10, "bytes 0-9/10") == 404
    assert http.get("pieces").status == 404


def test_a_piece_that_overlaps(http: Http) -> None:
    """Bytes that have arrived already are passed over."""
    size = 256 * 1024
    session = http.call("POST", UPLOADS, {}, uploadType="resumable", name="overlap")
    path = session.headers["Location"]
    path = path[path.index("/upload") :]
    data = bytes(range(256)) * 1024 + b"end"

    first = http.call("PUT", path, data[:size], {"Content-Range": f"bytes 0-{size - 1}/*"})
    assert first.status == 308
    whole = {"Content-Range": f"bytes 0-{size + 2}/{size + 3}"}
    assert http.call("PUT", path, data, whole).status == 200
    assert http.media("overlap").body == data
