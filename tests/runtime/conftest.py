"""Tests that use a store run twice: on the bucket in memory, and on the same over the wire."""

from __future__ import annotations

import pytest

from tests import stores

HELPERS = frozenset({"world", "World", "Run"})  # what makes a test's store


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if HELPERS & vars(metafunc.module).keys():
        metafunc.fixturenames.append("store_kind")
        metafunc.parametrize("store_kind", ["memory", "wire"], indirect=True)


@pytest.fixture
def store_kind(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> stores.Kind:
    """The kind of store that the test runs on."""
    kind: stores.Kind = request.param
    monkeypatch.setattr(stores.Chosen, "kind", kind)
    return kind
