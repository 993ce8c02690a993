"""The whole service without its sockets: a request in, an answer out, at once and atomically."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping

import msgspec

from durable.store.memory import Bucket, steady_clock
from durable.system import System
from durable.testing.gcs import administration, copying, listing, objects
from durable.testing.gcs.buckets import BucketState, with_defaults
from durable.testing.gcs.calls import Calls
from durable.testing.gcs.faults import Faults
from durable.testing.gcs.limits import MutationLimit
from durable.testing.gcs.operations import Operation
from durable.testing.gcs.permissions import check_permissions
from durable.testing.gcs.refusals import (
    Refusal,
    by_status,
    conflict,
    no_bucket,
    unauthorised,
    user_project_missing,
)
from durable.testing.gcs.rewriting import Rewrites
from durable.testing.gcs.routes import Route, route
from durable.testing.gcs.uploads import Sessions, insert
from durable.testing.gcs.wire import Malformed, Request, Response

_VERBS: dict[str, Callable[[Operation], Response]] = {
    "get": objects.get,
    "media": objects.media,
    "patch": objects.patch,
    "update": objects.update,
    "delete": objects.delete,
    "restore": objects.restore,
    "list": listing.list_objects,
    "copy": copying.copy,
    "compose": copying.compose,
    "move": copying.move,
    "buckets.get": administration.get,
    "buckets.patch": administration.patch,
    "buckets.update": administration.update,
    "buckets.lock": administration.lock,
    "buckets.layout": administration.layout,
    "buckets.policy": administration.policy,
    "buckets.permissions": administration.permissions,
}


class Service:
    """Buckets, and everything that can be asked of them.

    Args:
        buckets: those there are at first, by name. A `Bucket` gets a plain configuration, without
            versioning and soft delete; a `BucketState` has its own.
        rate_limit: the least seconds between two mutations of one object, 1 at Google's; a second
            one that comes sooner is refused. 0 for no limit.
        ordered: generations of buckets made through the API count up.
        tokens: the bearer tokens that are let in; None lets everybody in, without any too.
        now: the clock, seconds since the epoch; by default one that never jumps.

    Attributes:
        calls: what was asked.
        faults: what goes wrong.
    """

    def __init__(
        self,
        buckets: Mapping[str, Bucket | BucketState] | None = None,
        *,
        rate_limit: float = 0.0,
        ordered: bool = False,
        tokens: Collection[str] | None = None,
        faults: Faults | None = None,
        now: Callable[[], float] | None = None,
    ) -> None:
        self.now = now or steady_clock(System())
        self.calls = Calls()
        self.faults = faults or Faults()
        self.tokens = tokens
        self._ordered = ordered
        self._limit = MutationLimit(rate_limit) if rate_limit else None
        self._sessions = Sessions()
        self._rewrites = Rewrites()
        self._buckets: dict[str, BucketState] = {}
        for name, given in (buckets or {}).items():
            if isinstance(given, BucketState):
                self._buckets[name] = given
            else:
                self._buckets[name] = BucketState(name, given, limit=self._limit)

    def bucket(self, name: str) -> BucketState:
        """The bucket of that name.

        Raises:
            Refusal: 404, there is none.
        """
        bucket = self._buckets.get(name)
        if bucket is None:
            raise no_bucket()
        return bucket

    def route(self, request: Request) -> Route:
        """What the request is about.

        Raises:
            Refusal: nothing that we know.
        """
        try:
            found = route(request)
        except Malformed as e:
            raise Refusal(e.status, "invalid", str(e)) from e
        if found.verb == "resumable.put":
            found = found._replace(name=self._sessions.find(request).owner.name)
        return found

    def handle(self, request: Request, found: Route) -> Response:
        """Carry it out."""
        try:
            response = self._carry_out(request, found)
        except Refusal as refusal:
            response = refusal.response(plain=found.verb == "media")
        self.calls.note(found.verb, found.bucket, found.name, response.status)
        return response

    def refuse(self, found: Route, status: int) -> Response:
        """Answer with an error instead of carrying it out."""
        self.calls.note(found.verb, found.bucket, found.name, status)
        return self.refusal(status)

    def refusal(self, status: int) -> Response:
        """The error that is usual for a status, of a call that was counted already."""
        return by_status(status).response()

    def _carry_out(self, request: Request, found: Route) -> Response:
        if self.tokens is not None:
            scheme, _, token = request.headers.get("authorization", "").partition(" ")
            if scheme.lower() != "bearer" or token not in self.tokens:
                raise unauthorised()
        verb = found.verb
        if verb == "buckets.insert":
            return self._insert_bucket(request)
        if verb == "buckets.list":
            every = [self._buckets[name] for name in sorted(self._buckets)]
            return _json(administration.list_buckets(request, every))
        bucket = self.bucket(found.bucket)
        target = self.bucket(found.target_bucket) if found.target_bucket else bucket
        for each in (bucket, target):
            _check_payer(request, each)
        check_permissions(verb, bucket, target)
        op = Operation(bucket, found.name, request, target_bucket=target, target=found.target)
        carry_out = _VERBS.get(verb)
        if carry_out is not None:
            return carry_out(op)
        if found.upload is not None:
            start = self._sessions.start if verb == "resumable.start" else insert
            return start(op, found.upload)
        if verb == "rewrite":
            return self._rewrites.rewrite(op)
        if verb == "resumable.put":
            return self._sessions.put(request)
        if verb == "resumable.cancel":
            return self._sessions.cancel(request)
        return self._delete_bucket(op)

    def _insert_bucket(self, request: Request) -> Response:
        name = administration.name_to_insert(request)
        config = administration.writable(administration.parse_config(request.body))
        if name in self._buckets:
            raise conflict(
                "Your previous request to create the named bucket succeeded and you already own it."
            )
        table = Bucket(now=self.now, ordered=self._ordered)
        state = BucketState(name, table, with_defaults(config), limit=self._limit)
        self._buckets[name] = state
        return Operation(state, "", request).answer_json(
            state.resource("http://" + request.headers.get("host", "localhost"))
        )

    def _delete_bucket(self, op: Operation) -> Response:
        with op.bucket.table.lock:
            administration.check_deletable(op)
            del self._buckets[op.bucket.name]
        return Response(204)


def _check_payer(request: Request, bucket: BucketState) -> None:
    if not bucket.rules.billing.requester_pays:
        return
    if not (request.params.get("userProject") or request.headers.get("x-goog-user-project")):
        raise user_project_missing()


def _json(value: dict[str, object]) -> Response:
    return Response(200, msgspec.json.encode(value))
