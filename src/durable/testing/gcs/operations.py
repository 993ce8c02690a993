"""One call on one bucket, as the verbs see it."""

from __future__ import annotations

from typing import Any

import msgspec

from durable.testing.gcs.buckets import BucketState
from durable.testing.gcs.conditions import integer
from durable.testing.gcs.fields import parse_fields, select
from durable.testing.gcs.refusals import no_object
from durable.testing.gcs.resources import Version, etag, object_resource
from durable.testing.gcs.wire import Request, Response


class Operation:
    """A request that is about a bucket, and what the verbs need to carry it out.

    Args:
        bucket: the bucket of the path.
        name: the object of the path; empty if the path has none.
        target_bucket, target: where to, in copies and moves.

    Attributes:
        now: the bucket's time, as whoever answers has it.
    """

    __slots__ = ("bucket", "name", "target_bucket", "target", "request", "params", "now")

    def __init__(
        self,
        bucket: BucketState,
        name: str,
        request: Request,
        *,
        target_bucket: BucketState | None = None,
        target: str = "",
    ) -> None:
        self.bucket = bucket
        self.name = name
        self.target_bucket = target_bucket or bucket
        self.target = target
        self.request = request
        self.params = request.params
        self.now = bucket.table.now() + request.skew

    @property
    def base(self) -> str:
        return "http://" + self.request.headers.get("host", "localhost")

    def existing(self, name: str | None = None, parameter: str = "generation") -> Version:
        """The object meant: the live one, or the generation that a parameter names.

        Raises:
            Refusal: 404, there is none.
        """
        name = self.name if name is None else name
        found = self.bucket.generations.find(name, integer(self.params, parameter))
        if found is None:
            raise no_object(self.bucket.name, name)
        return found

    def answer(self, version: Version, bucket: BucketState | None = None) -> Response:
        """The object's resource, or the fields of it that were asked for."""
        place = (bucket or self.bucket).place(self.base)
        fields = self.params.get("fields")
        if fields is None:
            resource = object_resource(place, version)
        else:
            selection = parse_fields(fields)
            only = None if "*" in selection else selection
            resource = select(object_resource(place, version, only), selection)
        headers = {"ETag": etag(version.numbers)}
        return Response(200, msgspec.json.encode(resource), headers=headers)

    def answer_json(self, value: dict[str, Any]) -> Response:
        """A JSON value, or the fields of it that were asked for."""
        fields = self.params.get("fields")
        if fields is not None:
            value = select(value, parse_fields(fields))
        return Response(200, msgspec.json.encode(value))
