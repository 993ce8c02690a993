"""The service behind the gs:// store without sockets: requests are handed over as bytes.

Everything that the store's code makes of a call and of its answer is exercised, and nothing waits:
so it goes under any clock, a virtual one too.
"""

from __future__ import annotations

from urllib.parse import urlsplit

from durable.store.gcs.answers import Answer
from durable.store.gcs.http import Request, Transport
from durable.system import System
from durable.testing.gcs.refusals import Refusal
from durable.testing.gcs.service import Service
from durable.testing.gcs.wire import Parser, Response


class Direct(Transport):
    """Carries the requests of a `GcsBackend` to a service of this process.

    Args:
        service: what answers.
        system: its boot clock says when an answer came.
    """

    def __init__(self, service: Service, system: System) -> None:
        self._service = service
        self._system = system

    async def ask(self, request: Request) -> Answer:
        """The service's answer, at once."""
        parser = Parser()
        parser.feed(_as_bytes(request))
        parsed = parser.next()
        assert parsed is not None, f"the {request.what} is not complete"
        response: Response
        try:
            found = self._service.route(parsed)
        except Refusal as refusal:
            response = refusal.response()
        else:
            response = self._service.handle(parsed, found)
        return Answer(response.status, response.body, self._system.boot())

    async def aclose(self) -> None:
        """Nothing to close; the service stays."""


def _as_bytes(request: Request) -> bytes:
    url = urlsplit(request.url)
    target = f"{url.path}?{url.query}" if url.query else url.path
    body = request.data or b""
    head = f"{request.method} {target} HTTP/1.1\r\nHost: {url.netloc}\r\n"
    if request.content_type:
        head += f"Content-Type: {request.content_type}\r\n"
    return f"{head}Content-Length: {len(body)}\r\n\r\n".encode("latin-1") + body
