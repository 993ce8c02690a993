"""Call paths (P5)."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from durable.errors import UsageError
from durable.protocol.paths import Ordinals

text = st.text(min_size=1, max_size=20)


def test_ordinals() -> None:
    """Calls of one name are counted in their scope; other names count for themselves."""
    scope = Ordinals("gather.1/0/")

    got = [scope.path(name) for name in ("a", "b", "a", "a")]

    assert got == ["gather.1/0/a.1", "gather.1/0/b.1", "gather.1/0/a.2", "gather.1/0/a.3"]


def test_keys_take_no_ordinal() -> None:
    """A keyed call leaves the count of its name alone."""
    scope = Ordinals("")

    assert [scope.path("a"), scope.path("a", "k"), scope.path("a")] == ["a.1", "a=k", "a.2"]


def test_key_used_twice() -> None:
    """One key twice for one name is an error; for two names it is not."""
    scope = Ordinals("")
    scope.path("a", "k")
    scope.path("b", "k")

    with pytest.raises(UsageError, match="'k'"):
        scope.path("a", "k")


def test_names_cannot_imitate_paths() -> None:
    """Separators in names and keys are encoded: no name reads as another's ordinal or key."""
    scope = Ordinals("")

    got = [scope.path("a.1"), scope.path("a/b"), scope.path("a=k"), scope.path("A.run", "x/y.z")]

    assert got == ["a%2E1.1", "a%2Fb.1", "a%3Dk.1", "A%2Erun=x%2Fy%2Ez"]


@given(st.lists(st.tuples(text, st.none() | text), unique=True, max_size=8))
def test_one_to_one(calls: list[tuple[str, str | None]]) -> None:
    """Different calls never share a path."""
    scope = Ordinals("")

    paths = [scope.path(name, key) for name, key in calls]

    assert len(set(paths)) == len(calls)
