"""The server's own endpoints, under `/_durable/`: faults, counts, outages.

POST   /_durable/faults   add a fault, or a list of them (JSON, see `Fault`)
GET    /_durable/faults   the faults, and how often each has struck
DELETE /_durable/faults   none any more
POST   /_durable/land     carry out what is under way late, now; answers how much that was
GET    /_durable/calls    counts by verb, class and status; with ?log=1 each call
DELETE /_durable/calls    count from zero
POST   /_durable/close    close the connections that are idle
POST   /_durable/outage   {"seconds": S}: no listener and no connection for so long
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import msgspec

from durable.testing.gcs.faults import parse_faults
from durable.testing.gcs.refusals import Refusal, invalid, not_found
from durable.testing.gcs.service import Service
from durable.testing.gcs.wire import Request, Response

PREFIX = "/_durable/"


class Outage(msgspec.Struct):
    seconds: float


class Controls(NamedTuple):
    """What the endpoints reach beyond the service."""

    land: Callable[[], int]
    close_idle: Callable[[], int]
    outage: Callable[[float], None]


def control(service: Service, controls: Controls, request: Request) -> Response:
    """Answer a request under `PREFIX`."""
    try:
        return _json(_control(service, controls, request))
    except Refusal as refusal:
        return refusal.response()
    except msgspec.DecodeError as e:
        return invalid(f"The body does not fit: {e}").response()


def _control(service: Service, controls: Controls, request: Request) -> Any:
    match request.method, request.path.removeprefix(PREFIX):
        case "POST", "faults":
            service.faults.add(*parse_faults(request.body))
            return service.faults.report()
        case "GET", "faults":
            return service.faults.report()
        case "DELETE", "faults":
            service.faults.clear()
            return []
        case "POST", "land":
            return {"landed": controls.land()}
        case "GET", "calls":
            report = service.calls.report()
            if request.params.get("log"):
                report["log"] = [call._asdict() for call in service.calls.log]
            return report
        case "DELETE", "calls":
            service.calls.clear()
            return {}
        case "POST", "close":
            return {"closed": controls.close_idle()}
        case "POST", "outage":
            outage = msgspec.json.decode(request.body, type=Outage)
            controls.outage(outage.seconds)
            return {"seconds": outage.seconds}
    raise not_found()


def _json(value: Any) -> Response:
    return Response(200, msgspec.json.encode(value))
