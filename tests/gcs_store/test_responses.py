"""Responses as they come over a connection: whole, in pieces, one after another, and broken."""

from __future__ import annotations

import pytest

from durable.store.gcs.responses import HEAD_BYTES_MAX, BadResponse, Response, ResponseReader

DATE = "Mon, 30 Nov 2026 17:00:00 GMT"
CHUNKS = b"4;name=value\r\nWiki\r\n6 \r\npedia \r\nE\r\nin \r\n\r\nchunks.\r\n0\r\n"
INTERIM = b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: <x>\r\n\r\n"

WHOLE = {
    "by length": (
        b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello",
        Response(200, None, b"hello", reusable=True),
    ),
    "empty": (
        b"HTTP/1.1 404 Not Found\r\ncontent-length:0\r\n\r\n",
        Response(404, None, b"", reusable=True),
    ),
    "with a date": (
        f"HTTP/1.1 412 \r\nX-Date: x\r\nDATE: \t {DATE} \r\nContent-Length: 1\r\n\r\nx".encode(),
        Response(412, DATE, b"x", reusable=True),
    ),
    "without a reason": (
        b"HTTP/1.1 503\r\nContent-Length: 2\r\n\r\nno",
        Response(503, None, b"no", reusable=True),
    ),
    "said twice": (
        b"HTTP/1.1 200 OK\r\nConnection: x\r\nConnection: Close\r\nContent-Length: 2\r\n\r\nab",
        Response(200, None, b"ab", reusable=False),
    ),
    "said in two lines": (  # RFC 9112, 5.2: as one that has a space there
        b"HTTP/1.1 200 OK\r\nConnection: x,\r\n\tclose\r\nContent-Length: 2\r\n \r\n\r\nab",
        Response(200, None, b"ab", reusable=False),
    ),
    "of old": (
        b"HTTP/1.0 200 OK\r\nContent-Length: 2\r\n\r\nab",
        Response(200, None, b"ab", reusable=False),
    ),
    "with a space too many": (  # RFC 9112, 5.1: who passes it on takes it out
        b"HTTP/1.1 200 OK\r\nContent-Length : 2\r\n\r\nab",
        Response(200, None, b"ab", reusable=True),
    ),
    "no content": (
        b"HTTP/1.1 204 No Content\r\nContent-Length: 7\r\n\r\n",
        Response(204, None, b"", reusable=True),
    ),
    "not modified": (
        b"HTTP/1.1 304 Not Modified\r\nTransfer-Encoding: chunked\r\n\r\n",
        Response(304, None, b"", reusable=True),
    ),
    "after interim ones": (
        INTERIM + b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\nx",
        Response(200, None, b"x", reusable=True),
    ),
    "in chunks": (
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: Chunked\r\n\r\n" + CHUNKS + b"\r\n",
        Response(200, None, b"Wikipedia in \r\n\r\nchunks.", reusable=True),
    ),
    "in chunks with fields behind them": (
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + CHUNKS + b"A: b\r\nC: d\r\n\r\n",
        Response(200, None, b"Wikipedia in \r\n\r\nchunks.", reusable=True),
    ),
    "in chunks and with a length": (  # RFC 9112, 6.3: the chunks count, and the connection ends
        b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        Response(200, None, b"", reusable=False),
    ),
}


def _fed(*pieces: bytes) -> tuple[Response | None, int]:
    """What came of it, and how many pieces that took."""
    reader = ResponseReader()
    for number, piece in enumerate(pieces, 1):
        response = reader.feed(piece)
        if response is not None:
            return response, number
    return None, len(pieces)


@pytest.mark.parametrize("kind", WHOLE)
def test_a_response_is_the_same_however_it_is_cut(kind: str) -> None:
    """In one piece, in two at every place, and byte by byte; not a byte too early."""
    data, expected = WHOLE[kind]

    assert _fed(data) == (expected, 1)
    for at in range(len(data)):
        assert _fed(data[:at], data[at:]) == (expected, 2)
    assert _fed(*(data[at : at + 1] for at in range(len(data)))) == (expected, len(data))


@pytest.mark.parametrize("kind", WHOLE)
def test_what_follows_a_response_spoils_the_connection(kind: str) -> None:
    """Nothing was asked for that it could answer; the response itself is as good as any."""
    data, expected = WHOLE[kind]

    assert _fed(data + b"H") == (expected._replace(reusable=False), 1)


def test_a_body_may_end_with_the_connection() -> None:
    """Then it is not whole before that, and a connection that ends too early says so."""
    reader = ResponseReader()

    assert reader.end() is None
    assert reader.feed(b"HTTP/1.1 200 OK\r\n\r\nsome") is None
    assert reader.feed(b" more") is None
    assert reader.end() == Response(200, None, b"some more", reusable=False)


@pytest.mark.parametrize(
    "kind", ["by length", "in chunks", "in chunks with fields behind them", "after interim ones"]
)
def test_a_response_that_is_cut_off_is_none(kind: str) -> None:
    """Whatever says where it ends has not ended before."""
    data, _ = WHOLE[kind]
    for at in range(len(data)):
        reader = ResponseReader()

        assert reader.feed(data[:at]) is None
        assert reader.end() is None


@pytest.mark.parametrize(
    "data",
    [
        b"no HTTP here\r\n\r\n",
        b"SSH-2.0-OpenSSH_9.2p1\r\n",
        b"\x15\x03\x03",
        b"\n",
        b"HTTP/1.1 200 OK\nContent-Length: 0\n\n",
        b"HTTP/2 200\r\n\r\n",
        b"HTTP/1.1 2000 OK\r\n\r\n",
        b"HTTP/1.1 600 Odd\r\n\r\n",
        b"HTTP/1.1 101 Switching Protocols\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: +1\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 1_0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length:\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: " + b"9" * 5000 + b"\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\n 0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 1\r0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 1\nTransfer-Encoding: chunked\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n , gzip\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding:\r\n chunked\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0x5\r\nhello\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n-5\r\nhello\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nhello\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + b"0" * 300,
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n" + b"A: b\r\n" * 20_000,
        b"HTTP/1.1 200 OK\r\n" + b"A: b\r\n" * (HEAD_BYTES_MAX // 6),
    ],
    ids=lambda data: repr(data[-24:]),
)
def test_what_cannot_be_told_from_what_follows_is_refused(data: bytes) -> None:
    """Whether it is no HTTP/1.1, contradicts itself, or would fill the memory."""
    with pytest.raises(BadResponse):
        _fed(data)


def test_large_chunks_cost_no_more_than_their_bytes() -> None:
    """A body of 4 MiB in chunks, however it is cut, is put together once."""
    body = bytes(range(256)) * 4096
    data = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
    data += b"".join(b"%x\r\n%b\r\n" % (len(body), body) for _ in range(4)) + b"0\r\n\r\n"
    pieces = [data[at : at + 1000] for at in range(0, len(data), 1000)]

    response, number = _fed(*pieces)

    assert response == Response(200, None, body * 4, reusable=True)
    assert number == len(pieces)
