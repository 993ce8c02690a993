"""Uploads: media (a body alone), multipart (resource and body), resumable (in pieces).

All conditions of a resumable upload are given when it starts and decided when its last byte
arrives. A finished session answers with what it answered then, so a client that lost the answer
may ask again.
"""

from __future__ import annotations

import re
from itertools import count
from typing import NamedTuple

from msgspec import UNSET

from durable.testing.gcs.conditions import conditions
from durable.testing.gcs.limits import check_name
from durable.testing.gcs.objects import commit
from durable.testing.gcs.operations import Operation
from durable.testing.gcs.refusals import Refusal, invalid, not_found, required
from durable.testing.gcs.resources import ObjectBody, parse_body
from durable.testing.gcs.wire import Request, Response

PIECE_UNIT = 256 * 1024  # all pieces but the last are a multiple
SESSIONS_MAX = 10_000  # beyond that the oldest is forgotten
_CONTENT_RANGE = re.compile(r"bytes (?:(\d+)-(\d+)|\*)/(\d+|\*)")


class Upload(NamedTuple):
    """What one request uploads; `sent` is the resource that came with it."""

    name: str
    sent: ObjectBody
    content_type: str = "application/octet-stream"
    media: bytes = b""


class Session:
    """A resumable upload under way.

    Attributes:
        owner: the operation that started it; its parameters decide at the end.
        answer: what the end was answered, once there was one.
    """

    def __init__(self, owner: Operation, sent: ObjectBody) -> None:
        self.owner = owner
        self.sent = sent
        self.demanded = conditions(owner.params)
        self.content_type = owner.request.headers.get(
            "x-upload-content-type", "application/octet-stream"
        )
        self.size = _length(owner.request.headers.get("x-upload-content-length"))
        self.body = bytearray()
        self.answer: Response | None = None


class Sessions:
    """The resumable uploads of a server."""

    def __init__(self) -> None:
        self._sessions: dict[str, Session] = {}
        self._count = count(1)

    def start(self, op: Operation, upload: Upload) -> Response:
        """Open a session; the `Location` in the answer is where the bytes go."""
        check_name(op.name)
        session_id = f"durable-{next(self._count):08d}"
        self._sessions[session_id] = Session(op, upload.sent)
        if len(self._sessions) > SESSIONS_MAX:
            del self._sessions[next(iter(self._sessions))]
        location = (
            f"{op.base}/upload/storage/v1/b/{op.bucket.name}/o"
            f"?uploadType=resumable&upload_id={session_id}"
        )
        return Response(200, headers={"Location": location, "X-GUploader-UploadID": session_id})

    def find(self, request: Request) -> Session:
        """The session that the request names.

        Raises:
            Refusal: 404, there is no such session.
        """
        session = self._sessions.get(request.params.get("upload_id", ""))
        if session is None:
            raise not_found()
        return session

    def put(self, request: Request) -> Response:
        """A piece, or a question how much has arrived."""
        session = self.find(request)
        if session.answer is not None:
            return session.answer
        first, total = _content_range(request)
        if total is not None:
            if session.size is not None and session.size != total:
                raise invalid(f"The upload was announced with {session.size} bytes, not {total}.")
        if first is not None:
            _append(session, first, request.body)
        if total is not None:
            session.size = total
        if session.size is None or len(session.body) < session.size:
            return _incomplete(session)
        return self._finish(session, request.skew)

    def cancel(self, request: Request) -> Response:
        self.find(request)
        del self._sessions[request.params["upload_id"]]
        return Response(499)

    def _finish(self, session: Session, skew: float) -> Response:
        op = session.owner
        op.now = op.bucket.table.now() + skew
        try:
            version = commit(
                op,
                op.name,
                bytes(session.body),
                session.sent,
                session.demanded,
                content_type=session.content_type,
            )
            session.answer = op.answer(version)
        except Refusal as refusal:
            if refusal.status not in (304, 412):
                raise  # the same piece may come again
            session.answer = refusal.response()
        session.body.clear()
        return session.answer


def insert(op: Operation, upload: Upload) -> Response:
    """Upload in one request."""
    version = commit(
        op,
        op.name,
        upload.media,
        upload.sent,
        conditions(op.params),
        content_type=upload.content_type,
    )
    return op.answer(version)


def parse_upload(request: Request) -> Upload:
    """What a POST to an upload path uploads; the name in the query goes before the resource's.

    Raises:
        Refusal: 400, its body is none of its uploadType, or there is no name.
    """
    name = request.params.get("name")
    match request.params.get("uploadType"):
        case "multipart":
            upload = _parse_multipart(request)
        case "media":
            content_type = request.headers.get("content-type", "application/octet-stream")
            upload = Upload("", ObjectBody(), content_type, request.body)
        case "resumable":
            upload = Upload("", parse_body(request.body))
        case None:
            raise required("uploadType")
        case other:
            raise invalid(f"Invalid value for uploadType: {other!r}.", "uploadType")
    if name is not None:
        return upload._replace(name=name)
    if upload.sent.name is UNSET:
        raise required("name")
    return upload._replace(name=upload.sent.name)


def _parse_multipart(request: Request) -> Upload:
    """The two parts of a multipart/related body."""
    kind, _, parameters = request.headers.get("content-type", "").partition(";")
    boundary = _boundary(parameters)
    if kind.strip().lower() != "multipart/related" or not boundary:
        raise _malformed("its Content-Type is not multipart/related with a boundary")
    body, mark = request.body, b"--" + boundary.encode("latin-1")
    if not body.startswith(mark):
        raise _malformed("it does not begin with its boundary")
    # Line ends are CRLF, but GCS takes LF too.
    second = body.find(b"\n" + mark, len(mark))
    last = body.find(b"\n" + mark, second + 1)
    end = last + 1 + len(mark)
    if second < 0 or last < 0 or body[end : end + 2] != b"--":
        raise _malformed("it does not have two parts and an end")
    _, resource = _part(body, len(mark), second)
    headers, media = _part(body, second + 1 + len(mark), last)
    content_type = headers.get("content-type", "application/octet-stream")
    return Upload("", parse_body(resource), content_type, media)


def _boundary(parameters: str) -> str:
    for parameter in parameters.split(";"):
        name, _, value = parameter.strip().partition("=")
        if name.lower() == "boundary":
            return value.strip().strip("\"'")
    return ""


def _part(body: bytes, start: int, end: int) -> tuple[dict[str, str], bytes]:
    """Headers and content between the end of a boundary and the LF before the next."""
    line = b"\r\n" if body[start : start + 2] == b"\r\n" else b"\n"
    start += len(line)
    end -= len(line) - 1
    if body[start : start + len(line)] == line:
        return {}, body[start + len(line) : end]
    head_end = body.find(line + line, start, end + 1)
    if head_end < 0:
        raise _malformed("a part has no empty line behind its headers")
    headers = {}
    for header in body[start:head_end].decode("latin-1").splitlines():
        name, _, value = header.partition(":")
        headers[name.strip().lower()] = value.strip()
    return headers, body[head_end + 2 * len(line) : end]


def _malformed(why: str) -> Refusal:
    return Refusal(400, "badContent", f"Malformed multipart body: {why}.")


def _length(text: str | None) -> int | None:
    if text is None:
        return None
    if not text.isdecimal():
        raise invalid(f"X-Upload-Content-Length {text!r} is not a number.")
    return int(text)


def _content_range(request: Request) -> tuple[int | None, int | None]:
    """(first byte of this piece, size of all); None for none and for not known yet."""
    header = request.headers.get("content-range")
    if header is None:
        return 0, len(request.body)
    match = _CONTENT_RANGE.fullmatch(header)
    if match is None:
        raise invalid(f"Content-Range {header!r} is none of an upload.")
    total = None if match[3] == "*" else int(match[3])
    if match[1] is None:
        if request.body:
            raise invalid(f"Content-Range {header!r} comes with no bytes.")
        return None, total
    first, last = int(match[1]), int(match[2])
    if last - first + 1 != len(request.body):
        raise invalid(f"Content-Range {header!r} comes with {len(request.body)} bytes.")
    if total is None and len(request.body) % PIECE_UNIT:
        raise invalid(f"All pieces but the last are a multiple of {PIECE_UNIT} bytes.")
    if total is not None and (
        last >= total or (last + 1 < total and len(request.body) % PIECE_UNIT)
    ):
        raise invalid(f"Content-Range {header!r} is no whole piece of {total} bytes.")
    return first, total


def _append(session: Session, first: int, piece: bytes) -> None:
    there = len(session.body)
    if first > there:
        raise invalid(f"The piece begins at {first}, but only {there} bytes have arrived.")
    session.body += piece[there - first :]


def _incomplete(session: Session) -> Response:
    headers = {"Range": f"bytes=0-{len(session.body) - 1}"} if session.body else {}
    return Response(308, headers=headers)
