"""The pytest plugin: fixtures, a marker and an option. See docs/how-to/test-your-workflows.md.

It is no part of the package `durable`, because it is loaded whenever pytest starts: importing
durable would take longer than pytest itself, and is put off until a test asks for a fixture.
"""

from __future__ import annotations

import inspect
import random
from collections.abc import Generator, Iterator
from datetime import datetime
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from durable import sync
    from durable.client import Client
    from durable.testing import BlockingEnvironment, Environment

MARKER = (
    "durable(seed=0, backend='asyncio', start='2024-01-01T00:00:00Z'): how the durable_env of a "
    "test is made"
)
KNOWN = {"backend", "schedules", "seed", "start"}
SEEDS = 2**32

_environment = pytest.StashKey["Environment | BlockingEnvironment"]()
_seed = pytest.StashKey[int]()


# -- pytest's own ----------------------------------------------------------------------------------


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.getgroup("durable").addoption(
        "--durable-seed",
        metavar="N",
        default="0",
        help="seed of the random choices in durable_env: a number, or `random` (shown on top)",
    )


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", MARKER)
    given = str(config.getoption("--durable-seed"))
    if given == "random":
        given = str(random.randrange(SEEDS))
    if not given.isdecimal():
        raise pytest.UsageError(f"--durable-seed={given}: write a number, or `random`")
    config.stash[_seed] = int(given)


def pytest_report_header(config: pytest.Config) -> str | None:
    seed = config.stash[_seed]
    return f"durable: --durable-seed={seed}" if seed else None


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item,
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """A failed test shows what its runs had recorded."""
    report = yield
    env = item.stash.get(_environment, None)
    if env is not None and report.when == "call" and report.failed:
        report.sections.append((f"durable runs (seed {env.seed})", env.describe()))
    return report


# -- fixtures --------------------------------------------------------------------------------------


@pytest.fixture
def durable_env(request: pytest.FixtureRequest) -> Iterator[Environment | BlockingEnvironment]:
    """A test environment of its own: an `Environment` for an async test, else a blocking one."""
    from durable.testing import environment

    options = _options(request.node)
    opening = environment(**options)
    if not _is_async(request):
        with opening as blocking:
            request.node.stash[_environment] = blocking
            yield blocking
        return
    options["backend"] = options.get("backend") or _backend(request)
    with environment(**options).awaited() as env:
        request.node.stash[_environment] = env
        yield env


@pytest.fixture
def durable_client(durable_env: Environment | BlockingEnvironment) -> Client | sync.Client:
    """The client of the test's environment."""
    return durable_env.client


def _options(item: pytest.Item) -> dict[str, Any]:
    options: dict[str, Any] = {"seed": item.config.stash[_seed]}
    for mark in reversed(list(item.iter_markers("durable"))):  # the closest last
        unknown = sorted(mark.kwargs.keys() - KNOWN)
        if mark.args or unknown:
            what = repr(unknown[0]) if unknown else "a positional argument"
            pytest.fail(
                f"@pytest.mark.durable does not take {what}; it takes {', '.join(sorted(KNOWN))}",
                pytrace=False,
            )
        options |= mark.kwargs
    if isinstance(options.get("start"), str):
        options["start"] = datetime.fromisoformat(options["start"])
    return options


def _is_async(request: pytest.FixtureRequest) -> bool:
    function: Any = getattr(request, "function", None)
    inner = getattr(getattr(function, "hypothesis", None), "inner_test", function)
    return inspect.iscoroutinefunction(inner)


def _backend(request: pytest.FixtureRequest) -> str:
    """The event loop of an async test, as the plugins that run them say."""
    if request.node.get_closest_marker("trio") is not None:
        return "trio"
    if "anyio_backend" in request.fixturenames:
        backend: Any = request.getfixturevalue("anyio_backend")
        return str(backend if isinstance(backend, str) else backend[0])
    return "asyncio"
