"""Names stay sorted whatever comes and goes, and can be walked from anywhere."""

from __future__ import annotations

import random
from itertools import islice

import pytest

from durable.store import sorting
from durable.store.sorting import SortedNames


@pytest.mark.parametrize("seed", range(5))
def test_as_a_sorted_list(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Through thousands of changes it shows what a plain sorted list would."""
    monkeypatch.setattr(sorting, "CHUNK", 4)
    chance = random.Random(seed)
    names, plain = SortedNames(), set[str]()
    for step in range(3000):
        name = f"{chance.randrange(200):03d}"
        if name in plain:
            names.remove(name)
            plain.remove(name)
        else:
            names.add(name)
            plain.add(name)
        if step % 50 == 0:
            start = f"{chance.randrange(-1, 220):03d}"
            expected = sorted(other for other in plain if other >= start)
            assert list(names.since(start)) == expected
            later = [other for other in expected if other > start]
            assert list(names.since(start, after=True)) == later
    for name in sorted(plain):
        names.remove(name)
    assert list(names.since("")) == []
    names.add("again")
    assert list(names.since("")) == ["again"]


def test_a_change_moves_few_names() -> None:
    """No part is long, however many names there are, so no change is dear."""
    names = SortedNames()
    for number in range(20_000):
        names.add(f"{number * 7919 % 20_000:05d}")

    assert max(map(len, names._chunks)) <= 2 * sorting.CHUNK
    assert list(islice(names.since("10000"), 3)) == ["10000", "10001", "10002"]
