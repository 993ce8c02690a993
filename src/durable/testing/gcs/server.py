"""The sockets: connections on 127.0.0.1, and what faults do to them."""

from __future__ import annotations

# The one place of the project with an event loop of its own: a server with raw protocols takes
# five times the requests of one built on streams. It is never run where users' code runs.
import asyncio  # noqa: TID251  # the reason is above
import socket
import struct
from collections.abc import Coroutine

from durable.testing.gcs.control import PREFIX, Controls, control
from durable.testing.gcs.faults import Fault, Plan
from durable.testing.gcs.listener import Listener
from durable.testing.gcs.refusals import Refusal
from durable.testing.gcs.routes import Route
from durable.testing.gcs.service import Service
from durable.testing.gcs.wire import Malformed, Parser, Request, Response, encode

HOST = "127.0.0.1"
_NO_LINGER = struct.pack("ii", 1, 0)  # close with a reset, whatever is still to be sent


class Server:
    """A service on a port.

    Args:
        port: 0 for any that is free.
        latency: seconds that each call takes before it is carried out.
    """

    def __init__(self, service: Service, *, port: int = 0, latency: float = 0.0) -> None:
        self.service = service
        self.port = port
        self.latency = latency
        self._listener = Listener(lambda: Connection(self))
        self._connections: set[Connection] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._landing: dict[asyncio.TimerHandle | int, tuple[Request, Route]] = {}
        self._controls = Controls(self.land, self.close_idle, self.begin_outage)

    @property
    def url(self) -> str:
        return f"http://{HOST}:{self.port}"

    async def start(self) -> None:
        self.port = self._listener.open(HOST, self.port)

    async def stop(self) -> None:
        """Close the port and every connection; what is under way late never lands."""
        for handle in self._landing:
            if isinstance(handle, asyncio.TimerHandle):
                handle.cancel()
        self._landing.clear()
        # A loop that ends before its transports have closed leaves their sockets open.
        while self._listener.busy or self._tasks or self._connections:
            self._listener.close()  # each time: a task may just have ended an outage
            for task in self._tasks:
                task.cancel()
            for connection in list(self._connections):
                connection.abort()
            await asyncio.sleep(0)

    def land(self) -> int:
        """Carry out at once what faults have made late. Returns how many calls that were."""
        landing = list(self._landing)
        for handle in landing:
            self._land(handle)
        return len(landing)

    def close_idle(self) -> int:
        """Close the connections that wait for a request. Returns how many."""
        idle = [connection for connection in self._connections if connection.idle]
        for connection in idle:
            connection.close()
        return len(idle)

    def begin_outage(self, seconds: float) -> None:
        """Be unreachable for so long, as if the process were started anew."""
        self.own(self._outage(seconds))

    def own(self, work: Coroutine[None, None, None]) -> None:
        """Run it beside the connections, until it or the server ends."""
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def joined(self, connection: Connection) -> None:
        self._connections.add(connection)

    def left(self, connection: Connection) -> None:
        self._connections.discard(connection)

    def serve(self, connection: Connection, request: Request) -> bool:
        """Answer a request. False: not yet, because latency or a fault wants so."""
        service = self.service
        if request.path.startswith(PREFIX):
            connection.reply(request, control(service, self._controls, request))
            return True
        try:
            found = service.route(request)
        except Refusal as refusal:
            connection.reply(request, refusal.response())
            return True
        plan = None
        if service.faults.active:
            reused = connection.served > 1
            plan = service.faults.plan(found.verb, found.bucket, found.name, reused=reused)
        if plan is None and not self.latency:
            connection.reply(request, service.handle(request, found))
            return True
        self.own(self._suffer(connection, request, found, plan or Plan()))
        return False

    async def _suffer(
        self, connection: Connection, request: Request, found: Route, plan: Plan
    ) -> None:
        request.skew = plan.skew
        request.items_max, request.bytes_max = plan.items_max, plan.bytes_max
        outcome = plan.outcome
        if outcome is not None and outcome.kind == "stale":
            connection.reset()
            return
        if outcome is not None and outcome.kind == "late":
            connection.reset()
            self._later(request, found, outcome.seconds)
            return
        if delay := self.latency + plan.delay:
            await asyncio.sleep(delay)
        if outcome is not None and outcome.kind == "silent":
            return  # busy for good: whatever comes over it is not read
        if outcome is None:
            connection.reply(request, self.service.handle(request, found))
        else:
            await self._strike(connection, request, found, outcome)
        connection.go_on()

    async def _strike(
        self, connection: Connection, request: Request, found: Route, fault: Fault
    ) -> None:
        service = self.service
        match fault.kind:
            case "unsent":
                connection.reset()
                return
            case "refused":
                connection.reply(request, service.refuse(found, fault.status))
                return
            case "twice":
                service.handle(request, found)
        response = service.handle(request, found)
        match fault.kind:
            case "reply_lost":
                connection.reset()
            case "reply_replaced":
                connection.reply(request, service.refusal(fault.status))
            case "truncated":
                connection.reply(request, response, cut=fault.size)
            case _:
                if fault.kind == "slow_reply":
                    await asyncio.sleep(fault.seconds or 0.0)
                connection.reply(request, response)

    def _later(self, request: Request, found: Route, seconds: float | None) -> None:
        handle: asyncio.TimerHandle | int
        if seconds is None:
            handle = id(request)
        else:
            loop = asyncio.get_running_loop()
            handle = loop.call_later(seconds, lambda: self._land(handle))
        self._landing[handle] = (request, found)

    def _land(self, handle: asyncio.TimerHandle | int) -> None:
        if isinstance(handle, asyncio.TimerHandle):
            handle.cancel()
        request, found = self._landing.pop(handle)
        self.service.handle(request, found)

    async def _outage(self, seconds: float) -> None:
        self._listener.close()
        await self._listener.everybody_arrived()
        for connection in list(self._connections):
            connection.close()
        await asyncio.sleep(seconds)
        await self.start()


class Connection(asyncio.Protocol):
    """One client's connection; its requests are answered one after the other.

    Attributes:
        busy: a request is being answered; those behind it wait.
        served: requests so far.
    """

    def __init__(self, server: Server) -> None:
        self._server = server
        self._parser = Parser()
        self._transport: asyncio.Transport | None = None
        self.busy = False
        self.served = 0

    @property
    def idle(self) -> bool:
        return not self.busy and self._parser.idle

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self._server.joined(self)

    def connection_lost(self, _exc: Exception | None) -> None:
        self._transport = None
        self._server.left(self)

    def data_received(self, data: bytes) -> None:
        self._parser.feed(data)
        if not self.busy:
            self._pump()

    def reply(self, request: Request, response: Response, *, cut: int | None = None) -> None:
        """Send the answer, or `cut` bytes of it and then a reset."""
        transport = self._transport
        if transport is None:
            return
        data = encode(
            response,
            self._server.service.now() + request.skew,
            keep_alive=request.keep_alive,
            bodiless=request.method == "HEAD",
        )
        if cut is not None:
            transport.write(data[:cut])
            self.reset()
            return
        transport.write(data)
        if not request.keep_alive:
            self.close()

    def go_on(self) -> None:
        """The request is done with: on to the next."""
        self.busy = False
        self._pump()

    def close(self) -> None:
        if self._transport is not None:
            self._transport.close()

    def abort(self) -> None:
        if self._transport is not None:
            self._transport.abort()

    def reset(self) -> None:
        """End the connection so that the client sees an error, not an end."""
        if self._transport is not None:
            raw = self._transport.get_extra_info("socket")
            raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _NO_LINGER)
            self._transport.abort()

    def _pump(self) -> None:
        while not self.busy and self._transport is not None:
            try:
                request = self._parser.next()
            except Malformed as e:
                self._reject(e)
                return
            if request is None:
                if self._parser.wants_continue:
                    self._transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")
                return
            self.served += 1
            self.busy = True
            self.busy = not self._server.serve(self, request)

    def _reject(self, malformed: Malformed) -> None:
        request = Request("GET", "/", "", {"connection": "close"})
        self.reply(request, Refusal(malformed.status, "badRequest", str(malformed)).response())
