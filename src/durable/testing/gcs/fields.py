"""The `fields` parameter: which parts of a resource are wanted.

`a,b` is two of them, `a/b` and `a(b,c)` parts of a part, `*` everything; a list is selected from
item by item.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Any

from durable.testing.gcs.refusals import Refusal

_TOKEN = re.compile(r"[A-Za-z0-9_\-]+|[(),/*]|\s+|.")

Selection = dict[str, "Selection | None"]  # None: the whole of it


@lru_cache(maxsize=256)
def parse_fields(text: str) -> Selection:
    """The selection that the text means.

    Raises:
        Refusal: 400, it means none.
    """
    tokens = [token for token in _TOKEN.findall(text) if not token.isspace()]
    selection, rest = _parts(tokens, text)
    if rest:
        raise _bad(text)
    return selection


def select(value: Any, selection: Selection) -> Any:
    """What of a JSON value is selected; parts that are not there are left out."""
    if isinstance(value, list):
        return [select(item, selection) for item in value]
    if not isinstance(value, dict) or "*" in selection:
        return value
    chosen = {}
    for name, part in selection.items():
        if name in value:
            chosen[name] = value[name] if part is None else select(value[name], part)
    return chosen


def _parts(tokens: list[str], text: str) -> tuple[Selection, list[str]]:
    selection: Selection = {}
    while True:
        if not tokens or not re.fullmatch(r"[\w\-]+|\*", tokens[0]):
            raise _bad(text)
        name, *tokens = tokens
        inner: Selection | None = None
        if tokens[:1] == ["/"]:
            inner, tokens = _path(tokens[1:], text)
        elif tokens[:1] == ["("]:
            inner, tokens = _parts(tokens[1:], text)
            if tokens[:1] != [")"]:
                raise _bad(text)
            tokens = tokens[1:]
        selection[name] = _union(selection[name], inner) if name in selection else inner
        if tokens[:1] != [","]:
            return selection, tokens
        tokens = tokens[1:]


def _path(tokens: list[str], text: str) -> tuple[Selection, list[str]]:
    """One part behind a `/`: up to the next comma or bracket."""
    depth, end = 0, len(tokens)
    for at, sign in enumerate(tokens):
        depth += {"(": 1, ")": -1}.get(sign, 0)
        if depth < 0 or (depth == 0 and sign == ","):
            end = at
            break
    selection, rest = _parts(tokens[:end], text)
    if rest:
        raise _bad(text)
    return selection, tokens[end:]


def _union(first: Selection | None, second: Selection | None) -> Selection | None:
    if first is None or second is None:
        return None
    both = dict(first)
    for name, part in second.items():
        both[name] = _union(both[name], part) if name in both else part
    return both


def _bad(text: str) -> Refusal:
    return Refusal(
        400,
        "invalidParameter",
        f"Invalid field selection {text}",
        location=("parameter", "fields"),
    )
