"""The verbs on buckets: insert, get, list, patch, update, delete, lock, layout, permissions."""

from __future__ import annotations

from typing import Any

import msgspec

from durable.testing.gcs.buckets import BucketState, Config, merge
from durable.testing.gcs.conditions import Conditions, integer
from durable.testing.gcs.operations import Operation
from durable.testing.gcs.refusals import conflict, invalid, required
from durable.testing.gcs.wire import Request, Response

# What a client cannot set; it comes back from earlier answers when a whole bucket is sent.
_READ_ONLY = frozenset(
    {
        "kind",
        "id",
        "name",
        "selfLink",
        "projectNumber",
        "metageneration",
        "etag",
        "timeCreated",
        "updated",
    }
)


def parse_config(data: bytes) -> Config:
    """The configuration in a request, with `null` where something is to go.

    Raises:
        Refusal: 400, it is no JSON object.
    """
    try:
        return msgspec.json.decode(data or b"{}", type=Config)
    except (msgspec.DecodeError, UnicodeDecodeError) as e:
        raise invalid(f"The body is no bucket resource: {e}") from e


def writable(config: Config) -> Config:
    """The part of a bucket resource that a client may set."""
    return {name: value for name, value in config.items() if name not in _READ_ONLY}


def name_to_insert(request: Request) -> str:
    """The name of the bucket that a request makes.

    Raises:
        Refusal: 400, there is none, or no project.
    """
    if "project" not in request.params:
        raise required("project")
    name = parse_config(request.body).get("name")
    if not isinstance(name, str):
        raise required("name")
    return name


def get(op: Operation) -> Response:
    _check(op)
    return op.answer_json(op.bucket.resource(op.base))


def patch(op: Operation) -> Response:
    """Change what the body mentions; `null` removes."""
    with op.bucket.table.lock:
        _check(op)
        sent = writable(parse_config(op.request.body))
        op.bucket.configure(merge(op.bucket.config, sent), op.now)
    return op.answer_json(op.bucket.resource(op.base))


def update(op: Operation) -> Response:
    """Replace the configuration."""
    with op.bucket.table.lock:
        _check(op)
        sent = writable(parse_config(op.request.body))
        op.bucket.configure(merge({}, sent), op.now)
    return op.answer_json(op.bucket.resource(op.base))


def lock(op: Operation) -> Response:
    """Lock the retention policy: it can no longer be removed or made shorter."""
    if integer(op.params, "ifMetagenerationMatch") is None:
        raise required("ifMetagenerationMatch")
    with op.bucket.table.lock:
        _check(op)
        if op.bucket.rules.retention_policy is None:
            raise invalid("The bucket has no retention policy to lock.")
        locked = {"retentionPolicy": {"isLocked": True}}
        op.bucket.configure(merge(op.bucket.config, locked), op.now)
    return op.answer_json(op.bucket.resource(op.base))


def check_deletable(op: Operation) -> None:
    """The bucket may be deleted now.

    Raises:
        Refusal: 409, the bucket is not empty; 412 or 304 by a condition.
    """
    _check(op)
    if not op.bucket.generations.empty:
        raise conflict("The bucket you tried to delete is not empty.")


def layout(op: Operation) -> Response:
    return op.answer_json(
        {
            "kind": "storage#storageLayout",
            "bucket": op.bucket.name,
            "location": "US",
            "locationType": "multi-region",
            "hierarchicalNamespace": {"enabled": op.bucket.rules.hierarchical_namespace.enabled},
        }
    )


def policy(op: Operation) -> Response:
    return op.answer_json({"kind": "storage#policy", "version": 1, "etag": "CAE=", "bindings": []})


def permissions(op: Operation) -> Response:
    """Which of the permissions asked for the caller has."""
    asked = op.request.every("permissions")
    granted = [permission for permission in asked if permission not in op.bucket.denied]
    answer: dict[str, Any] = {"kind": "storage#testIamPermissionsResponse"}
    if granted:
        answer["permissions"] = granted
    return op.answer_json(answer)


def list_buckets(request: Request, found: list[BucketState]) -> dict[str, Any]:
    """All buckets of the project, on one page."""
    if "project" not in request.params:
        raise required("project")
    prefix = request.params.get("prefix", "")
    base = "http://" + request.headers.get("host", "localhost")
    items = [bucket.resource(base) for bucket in found if bucket.name.startswith(prefix)]
    answer: dict[str, Any] = {"kind": "storage#buckets"}
    if items:
        answer["items"] = items
    return answer


def _check(op: Operation) -> None:
    demanded = Conditions(
        metageneration=integer(op.params, "ifMetagenerationMatch"),
        metageneration_not=integer(op.params, "ifMetagenerationNotMatch"),
    )
    demanded.check((1, op.bucket.metageneration))
