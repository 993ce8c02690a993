"""Every test of waits runs twice: with short waits in place, and with every wait parked."""

from __future__ import annotations

import pytest


@pytest.fixture(params=["normal", "always-park"], autouse=True)
def mode(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Which waits park."""
    always = request.param == "always-park"
    monkeypatch.setenv("DURABLE_ALWAYS_PARK", "1" if always else "0")
    return str(request.param)
