"""The pytest plugin: fixtures, a marker and an option. See docs/how-to/test-your-workflows.md.

It is no part of the package `durable`, because it is loaded whenever pytest starts: importing
durable would take longer than pytest itself, and is put off until a test asks for a fixture.
"""

from __future__ import annotations

import glob
import inspect
import random
from collections.abc import Generator, Iterator
from datetime import datetime
from pathlib import Path
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
REPLAYS = (
    "durable_replays(*files): the test runs once for each recorded run in these files (patterns, "
    "from the test's folder) and fails unless today's code goes on with it; `durable_replay` is "
    "the run's file"
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
    config.addinivalue_line("markers", REPLAYS)
    given = str(config.getoption("--durable-seed"))
    if given == "random":
        given = str(random.randrange(SEEDS))
    if not given.isdecimal():
        raise pytest.UsageError(f"--durable-seed={given}: write a number, or `random`")
    config.stash[_seed] = int(given)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """A test marked `durable_replays` runs once for each file."""
    marks = list(metafunc.definition.iter_markers("durable_replays"))
    if not marks:
        return
    folder = metafunc.definition.path.parent
    given = [str(pattern) for mark in marks for pattern in mark.args]
    found = sorted({path for pattern in given for path in glob.glob(str(folder / pattern))})
    if not found or any(mark.kwargs for mark in marks):
        raise pytest.UsageError(
            f"{metafunc.definition.nodeid}: durable_replays takes patterns of files that "
            f"`durable export` wrote, and none matches {', '.join(given) or 'nothing'} in {folder}"
        )
    if "durable_replay" not in metafunc.fixturenames:
        metafunc.fixturenames.append("durable_replay")
    paths = [Path(path) for path in found]
    ids = [path.name for path in paths]
    metafunc.parametrize("durable_replay", paths, ids=ids, indirect=True)


def pytest_itemcollected(item: pytest.Item) -> None:
    """The run is replayed for such a test whether it takes the fixture or not."""
    replays = item.get_closest_marker("durable_replays") is not None
    if replays and isinstance(item, pytest.Function):
        if "durable_replay" not in item.fixturenames:
            item.fixturenames.append("durable_replay")


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


@pytest.fixture
def durable_replay(request: pytest.FixtureRequest) -> Path:
    """The file of a recorded run, which today's code goes on with."""
    from durable.testing import assert_replays

    file: Path | None = getattr(request, "param", None)
    if file is None:
        pytest.fail("durable_replay needs @pytest.mark.durable_replays(...)", pytrace=False)
    try:
        assert_replays(file)
    except AssertionError as e:
        pytest.fail(str(e), pytrace=False)
    return file


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
