"""The answers that say no, word for word as GCS words them."""

from __future__ import annotations

from typing import Any

import msgspec

from durable.testing.gcs.wire import Response


class Refusal(Exception):
    """A request that is answered with an error.

    Args:
        status: of HTTP.
        reason: GCS's word for it (`errors[0].reason`).
        message: GCS's text.
        domain: `global` or `usageLimits`.
        location: the header or parameter at fault, as (kind, name).
    """

    def __init__(
        self,
        status: int,
        reason: str,
        message: str,
        *,
        domain: str = "global",
        location: tuple[str, str] | None = None,
        headers: dict[str, str] | None = None,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.reason = reason
        self.message = message
        self.domain = domain
        self.location = location
        self.headers = headers

    def response(self, *, plain: bool = False) -> Response:
        """The answer; `plain`: as text, which is how downloads are refused."""
        if self.status == 304:
            return Response(304)
        if plain:
            kind = "text/html; charset=UTF-8"
            return Response(self.status, self.message.encode(), kind, self.headers)
        return Response(self.status, self._body(), headers=self.headers)

    def _body(self) -> bytes:
        error: dict[str, Any] = {
            "message": self.message,
            "domain": self.domain,
            "reason": self.reason,
        }
        if self.location is not None:
            error["locationType"], error["location"] = self.location
        return msgspec.json.encode(
            {"error": {"code": self.status, "message": self.message, "errors": [error]}}
        )


def condition_not_met() -> Refusal:
    return Refusal(
        412,
        "conditionNotMet",
        "At least one of the pre-conditions you specified did not hold.",
        location=("header", "If-Match"),
    )


def not_modified() -> Refusal:
    return Refusal(304, "notModified", "Not Modified")


def no_object(bucket: str, name: str) -> Refusal:
    return Refusal(404, "notFound", f"No such object: {bucket}/{name}")


def no_bucket() -> Refusal:
    return Refusal(404, "notFound", "The specified bucket does not exist.")


def not_found() -> Refusal:
    return Refusal(404, "notFound", "Not Found")


def too_fast(bucket: str, name: str) -> Refusal:
    return Refusal(
        429,
        "rateLimitExceeded",
        f"The object {bucket}/{name} exceeded the rate limit for object mutation operations "
        "(create, update, and delete). Please reduce your request rate. "
        "See https://cloud.google.com/storage/docs/gcs429.",
        domain="usageLimits",
    )


def required(parameter: str) -> Refusal:
    return Refusal(
        400, "required", f"Required parameter: {parameter}", location=("parameter", parameter)
    )


def invalid(message: str, parameter: str | None = None) -> Refusal:
    """A value that cannot be; `parameter` is the query parameter that has it."""
    location = None if parameter is None else ("parameter", parameter)
    return Refusal(400, "invalid", message, location=location)


def unknown_parameter(name: str, verb: str) -> Refusal:
    return Refusal(
        400,
        "invalidParameter",
        f"{verb} has no parameter {name!r}.",
        location=("parameter", name),
    )


def not_implemented(what: str) -> Refusal:
    return Refusal(501, "notImplemented", f"This test server does not implement {what}.")


def user_project_missing() -> Refusal:
    return Refusal(
        400,
        "required",
        "Bucket is a requester pays bucket but no user project provided.",
        location=("parameter", "userProject"),
    )


def under_retention(bucket: str, name: str, until: str) -> Refusal:
    return Refusal(
        403,
        "retentionPolicyNotMet",
        f"Object '{bucket}/{name}' is subject to bucket's retention policy or object retention "
        f"and cannot be deleted or overwritten until {until}",
    )


def under_hold(bucket: str, name: str, kind: str) -> Refusal:
    return Refusal(
        403,
        "objectUnderActiveHold",
        f"Object '{bucket}/{name}' is under active {kind} hold and cannot be deleted, "
        "overwritten or archived until hold is removed.",
    )


def conflict(message: str) -> Refusal:
    return Refusal(409, "conflict", message)


def forbidden(permission: str, what: str) -> Refusal:
    return Refusal(
        403,
        "forbidden",
        f"The caller does not have {permission} access to the Google Cloud Storage {what}. "
        f"Permission '{permission}' denied on resource (or it may not exist).",
    )


def unauthorised() -> Refusal:
    return Refusal(
        401,
        "authError",
        "Invalid Credentials",
        location=("header", "Authorization"),
        headers={"WWW-Authenticate": 'Bearer realm="https://accounts.google.com/"'},
    )


# What a status alone says, when a fault asks for it.
_BY_STATUS = {
    400: ("invalid", "Bad Request", "global"),
    403: ("forbidden", "Forbidden", "global"),
    404: ("notFound", "Not Found", "global"),
    408: ("requestTimeout", "Request Timeout", "global"),
    429: (
        "rateLimitExceeded",
        "Rate limit exceeded. See https://cloud.google.com/storage/docs/gcs429.",
        "usageLimits",
    ),
    500: ("internalError", "We encountered an internal error. Please try again.", "global"),
    502: ("backendError", "Bad Gateway", "global"),
    503: ("backendError", "We encountered an internal error. Please try again.", "global"),
    504: ("gatewayTimeout", "Gateway Timeout", "global"),
}


def by_status(status: int) -> Refusal:
    """The refusal that is usual for a status."""
    if status == 401:
        return unauthorised()
    if status == 412:
        return condition_not_met()
    reason, message, domain = _BY_STATUS.get(status, ("unknown", f"HTTP {status}", "global"))
    return Refusal(status, reason, message, domain=domain)
