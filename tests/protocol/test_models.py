"""pydantic models: stored field by field, read back by their own validation."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import pytest

from durable.errors import InvalidArguments
from durable.protocol import digests, values
from durable.protocol.values import Undecodable, Unencodable

pydantic = pytest.importorskip("pydantic", reason="pydantic is optional: models come by hook")


class Line(pydantic.BaseModel):  # type: ignore[name-defined,misc]  # pydantic may be absent
    """Nested in another model."""

    sizes: tuple[int, ...]


class SpecialLine(Line):
    """Adds nothing but its class."""


class Basket(pydantic.BaseModel):  # type: ignore[name-defined,misc]  # pydantic may be absent
    """Has an alias, a default, a field of any type and a nested model."""

    total: float = pydantic.Field(1.0, alias="theTotal")
    lines: list[Line]
    extra: Any = None
    page: pydantic.HttpUrl | None = None


@dataclass
class Holder:
    """A dataclass with a model in a field."""

    basket: Basket


BASKET = Basket(theTotal=2.5, lines=[Line(sizes=(1, 2))], extra={1: {2}}, page="http://x.example/")


@pytest.mark.parametrize(
    ("value", "annotation"),
    [
        (BASKET, Basket),
        (Holder(BASKET), Holder),
        ([BASKET, None], list[Basket | None]),
        ([BASKET, Line(sizes=())], list[Basket | Line]),
        (BASKET, Basket | Holder | str),
        (
            pydantic.RootModel[list[Line]]([Line(sizes=(1,))]),
            pydantic.RootModel[list[Line]],
        ),
    ],
    ids=["model", "in-dataclass", "in-list", "union", "mixed-union", "root"],
)
def test_round_trip(value: object, annotation: object) -> None:
    """A model comes back equal, wherever the annotation names it."""
    values.check_annotation(annotation, "f(), its result")

    data, copy = values.encode_checked(value, annotation)

    assert copy == value
    assert type(copy) is type(value)
    assert values.decode(data, annotation) == value


def test_nan() -> None:
    """A model's NaN stays one."""
    copy = values.encode_checked(Basket(theTotal=math.nan, lines=[]), Basket)[1]

    assert isinstance(copy, Basket)
    assert math.isnan(copy.total)


@pytest.mark.parametrize(
    ("value", "annotation"),
    [
        (SpecialLine(sizes=()), Line),
        (Basket(lines=[SpecialLine(sizes=())]), Basket),
        (Basket(lines=[], extra=Line(sizes=())), Basket),
        (BASKET, None),
    ],
    ids=["subclass", "nested-subclass", "model-in-any", "no-annotation"],
)
def test_refused(value: object, annotation: object) -> None:
    """A model that would come back as another class is refused."""
    with pytest.raises(Unencodable):
        values.encode_checked(value, annotation)


def test_error_shows_no_input() -> None:
    """A validation error says where and why without repeating the data."""
    with pytest.raises(Undecodable, match=r"at `sizes` of .*Line") as caught:
        values.decode(b'{"sizes":"hunter2"}', Line)

    assert "hunter2" not in str(caught.value)


def test_digest_leaves_defaults_out() -> None:
    """A field that equals its default does not enter a digest."""
    assert digests.canonical(Basket(lines=[])) == b'{"lines":[]}'


def test_cli_input() -> None:
    """A model argument can be given as a plain JSON object, checked by the model."""
    import inspect

    def f(line: Line) -> None: ...

    signature, hints = inspect.signature(f), {"line": Line}

    args, kwargs = values.call_from_json('{"line": {"sizes": [1]}}', signature, hints)

    assert (args, kwargs) == ((), {"line": Line(sizes=(1,))})
    with pytest.raises(InvalidArguments, match="line"):
        values.call_from_json('{"line": {"sizes": 1}}', signature, hints)
