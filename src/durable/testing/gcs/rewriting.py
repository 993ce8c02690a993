"""Rewrites: copies that may take several calls, each of which carries over a part of the bytes.

A call that does not come to the end answers with a token, and a call with that token goes on. It
may leave out everything but the two names: what the first call asked for holds until the end, and
nothing may be asked for otherwise
(https://docs.cloud.google.com/storage/docs/json_api/v1/objects/rewrite). All conditions are
decided in the last call, under which the object is made.
"""

from __future__ import annotations

from itertools import count
from typing import Any, NamedTuple

from durable.testing.gcs.conditions import OF_SOURCE, OF_TARGET, conditions, integer
from durable.testing.gcs.copying import both_locked, duplicate
from durable.testing.gcs.limits import check_name
from durable.testing.gcs.operations import Operation
from durable.testing.gcs.refusals import Refusal, invalid
from durable.testing.gcs.resources import ObjectBody, object_resource, parse_body
from durable.testing.gcs.wire import Response

PART_UNIT = 1 << 20  # the most that a client wants carried over in a call is a multiple
TOKENS_MAX = 10_000  # beyond that the oldest is forgotten
_MOST = "maxBytesRewrittenPerCall"
_LASTING = frozenset(
    {*OF_TARGET, *OF_SOURCE, "sourceGeneration", "destinationPredefinedAcl", _MOST}
)


class _Begun(NamedTuple):
    """A rewrite under way: what a token stands for.

    Attributes:
        ends: bucket and name of the source and of the target.
        asked: the parameters of the first call that hold until the end.
        sent: the resource that came with it.
        generation: of the source; None before the first call is through.
        done: bytes carried over.
    """

    ends: tuple[str, str, str, str]
    asked: dict[str, str]
    sent: ObjectBody
    generation: int | None = None
    done: int = 0


class Rewrites:
    """The rewrites of a server."""

    def __init__(self) -> None:
        self._begun: dict[str, _Begun] = {}
        self._count = count(1)

    def rewrite(self, op: Operation) -> Response:
        """One call: it makes the object, or answers with a token for the next."""
        check_name(op.target)
        begun = self._asked(op)
        op.params = {**op.params, **begun.asked}
        most = _most(op)
        of_source, _ = conditions(op.params, OF_SOURCE), conditions(op.params)  # they are numbers
        with both_locked(op):
            source = op.existing(parameter="sourceGeneration")
            generation, size = source.stored.generation, len(source.stored.body or b"")
            if begun.generation not in (None, generation):
                of_source.check(source.numbers)
                raise _no_such_token()
            done = size if most is None else min(size, begun.done + most)
            answer: dict[str, Any] = {
                "kind": "storage#rewriteResponse",
                "totalBytesRewritten": str(done),
                "objectSize": str(size),
                "done": done == size,
            }
            if done < size:
                begun = begun._replace(generation=generation, done=done)
                answer["rewriteToken"] = self._remember(begun)
            else:
                made = duplicate(op, begun.sent)
                answer["resource"] = object_resource(op.target_bucket.place(op.base), made)
        return op.answer_json(answer)

    def _asked(self, op: Operation) -> _Begun:
        """The rewrite that the call begins or goes on with.

        Raises:
            Refusal: 400, nothing goes on under that token, or it was asked for otherwise.
        """
        ends = (op.bucket.name, op.name, op.target_bucket.name, op.target)
        asked = {name: value for name, value in op.params.items() if name in _LASTING}
        sent = parse_body(op.request.body)
        token = op.params.get("rewriteToken")
        if token is None:
            return _Begun(ends, asked, sent)
        begun = self._begun.get(token)
        if (
            begun is None
            or begun.ends != ends
            or not asked.items() <= begun.asked.items()
            or sent not in (ObjectBody(), begun.sent)
        ):
            raise _no_such_token()
        return begun

    def _remember(self, begun: _Begun) -> str:
        """A token of its own for each call: one whose answer was lost may come again."""
        token = f"durable+{next(self._count):08d}/="  # to be percent-encoded, as base64 is
        self._begun[token] = begun
        if len(self._begun) > TOKENS_MAX:
            del self._begun[next(iter(self._begun))]
        return token


def _most(op: Operation) -> int | None:
    """How many bytes this call may carry over.

    What a client asks for counts always. GCS heeds it only between locations or storage classes,
    where a rewrite takes several calls at all.
    """
    asked = integer(op.params, _MOST)
    if asked is not None and (asked == 0 or asked % PART_UNIT):
        raise invalid(f"{_MOST} is a multiple of {PART_UNIT}, not {asked}.", _MOST)
    return min((n for n in (asked, op.request.bytes_max) if n is not None), default=None)


def _no_such_token() -> Refusal:
    return invalid("Invalid rewrite token.", "rewriteToken")
