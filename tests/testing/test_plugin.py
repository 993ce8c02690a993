"""The pytest plugin, in a pytest of its own: fixtures, marker, option, and what it costs."""

from __future__ import annotations

import importlib.metadata
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.commands import environment

FLOWS = """
import anyio
import durable
from durable import step, workflow

@step
async def charge(order: str) -> str:
    return f"receipt for {order}"

@workflow
async def checkout(order: str) -> str:
    await durable.sleep("30d")
    return await charge(order)
"""

UNUSED = """
import sys

LOADED = "durable" in sys.modules  # as this file is collected, before any that imports it

def test_unused_plugin_imports_nothing():
    assert not LOADED
"""

GOOD = """
import pytest
from flows import charge, checkout

def test_sync(durable_env, durable_client):
    assert durable_env.client is durable_client
    assert durable_env.seed == 5
    durable_env.stub(charge, returns="paid")
    assert durable_client.run(checkout, "A") == "paid"

async def check(env, client):
    handle = await client.start(checkout, "A")
    await env.advance("30d")
    assert await handle.result(timeout=0) == "receipt for A"
    await env.assert_steps(handle, ["sleep.1", "charge.1"])

@pytest.mark.anyio
@pytest.mark.parametrize("anyio_backend", BACKENDS)
async def test_async(durable_env, durable_client, anyio_backend):
    await check(durable_env, durable_client)

@pytest.mark.durable(seed=7, start="2031-05-01T00:00:00+00:00")
class TestMarked:
    def test_mark(self, durable_env):
        assert (durable_env.seed, durable_env.now.year) == (7, 2031)

    @pytest.mark.durable(seed=8)
    def test_closer_mark(self, durable_env):
        assert (durable_env.seed, durable_env.now.year) == (8, 2031)
"""

FAILING = """
from flows import checkout

def test_fails(durable_env):
    durable_env.client.run(checkout.options(id="order-1"), "A")
    durable_env.client.start(checkout.options(id="order-2"), "B")
    durable_env.advance("1d")
    assert False
"""

WRONG = """
import pytest

@pytest.mark.durable(sed=1)
def test_misspelt(durable_env): ...

@pytest.mark.durable(1)
def test_positional(durable_env): ...

@pytest.mark.durable(backend="twisted")
def test_backend(durable_env): ...
"""


def run_pytest(folder: Path, test: str, *args: str, flows: str = FLOWS) -> tuple[int, str]:
    """The exit code and the output of pytest over one test file beside the flows."""
    (folder / "flows.py").write_text(flows)
    (folder / "test_it.py").write_text(test)
    installed = importlib.metadata.entry_points(group="pytest11", name="durable")
    plugin = () if installed else ("-p", "durable_pytest")
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", *plugin, *args],
        cwd=folder,
        env={**environment(), "PYTHONPATH": os.environ.get("PYTHONPATH", "")},
        capture_output=True,
        text=True,
        timeout=50,
        check=False,
    )
    return done.returncode, done.stdout + done.stderr


@pytest.mark.parametrize(
    "backend", ["asyncio", pytest.param("trio", marks=pytest.mark.requires("trio"))]
)
def test_fixtures_marker_and_option(tmp_path: Path, backend: str) -> None:
    """Sync and async tests get their kind of environment, made as option and marks say; a test
    that asks for none has imported nothing.
    """
    (tmp_path / "test_first.py").write_text(UNUSED)
    good = GOOD.replace("BACKENDS", repr([backend]))
    code, said = run_pytest(tmp_path, good, "--durable-seed=5", "test_first.py", "test_it.py")

    assert code == 0, said
    assert "5 passed" in said


def test_failed_test_shows_its_runs_and_its_seed(tmp_path: Path) -> None:
    """A failure's report has the seed and each run with its state and its recorded calls."""
    code, said = run_pytest(tmp_path, FAILING, "--durable-seed=random")
    seed = re.search(r"durable: --durable-seed=(\d+)", said)

    assert code == 1
    assert seed is not None, said
    assert f"durable runs (seed {seed[1]})" in said
    assert "run 'order-1' of 'checkout': completed: \"receipt for A\"" in said
    assert '  charge.1: value "receipt for A"' in said
    assert "run 'order-2' of 'checkout': waits in sleep.1" in said


def test_wrong_marks_are_named(tmp_path: Path) -> None:
    """A misspelt mark says what there is."""
    code, said = run_pytest(tmp_path, WRONG)

    assert code == 1
    assert "does not take 'sed'; it takes backend, schedules, seed, start" in said
    assert "does not take a positional argument" in said
    assert "'twisted' is no event loop" in said


def test_wrong_seed_is_named(tmp_path: Path) -> None:
    """So does an option that is no number."""
    code, said = run_pytest(tmp_path, GOOD, "--durable-seed=x")

    assert code == 4
    assert "--durable-seed=x: write a number, or `random`" in said


def test_durable_never_imports_pytest() -> None:
    """Neither durable nor its test kit imports pytest."""
    program = "import sys, durable, durable.testing; assert 'pytest' not in sys.modules"
    subprocess.run([sys.executable, "-c", program], check=True)


RECORD = """
import anyio
from durable.client import Client, archives
from durable.store import Store
from durable.store.memory import MemoryBackend
from flows import receipt

async def main():
    store = Store(MemoryBackend())
    async with Client(store) as client:
        for order in "AB":
            await client.run(receipt.options(id=f"order-{order}"), order)
            content = await archives.export(store, f"order-{order}")
            await anyio.Path(f"histories/{order}.json").write_bytes(content)

anyio.run(main)
"""

RECEIPT = """

@workflow
async def receipt(order: str) -> str:
    return await charge(order)
"""

REPLAYS = """
import pytest
import flows

@pytest.mark.durable_replays("histories/*.json")
def test_every_run_goes_on(): ...

@pytest.mark.durable_replays("histories/A.json")
def test_one(durable_replay):
    assert durable_replay.name == "A.json"
"""


def test_recorded_runs_are_tests(tmp_path: Path) -> None:
    """One test for each file; code that parts from a record fails that one and says where."""
    (tmp_path / "flows.py").write_text(FLOWS + RECEIPT)
    (tmp_path / "histories").mkdir()
    path = os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")])
    subprocess.run(
        [sys.executable, "-c", RECORD], cwd=tmp_path, env={**environment(), "PYTHONPATH": path},
        check=True, timeout=50,
    )  # fmt: skip

    code, said = run_pytest(tmp_path, REPLAYS, "-v", flows=FLOWS + RECEIPT)
    assert code == 0, said
    assert "test_every_run_goes_on[B.json] PASSED" in said
    assert "3 passed" in said

    changed = (FLOWS + RECEIPT).replace("charge(order)", "charge(order + '!')")
    code, said = run_pytest(tmp_path, REPLAYS, flows=changed)
    assert code == 1
    assert "3 errors" in said
    assert "recorded call 'charge.1' as 'charge', but the code now calls it with other" in said


def test_a_pattern_without_files_is_told(tmp_path: Path) -> None:
    """Else a test that checks nothing would pass for ever."""
    code, said = run_pytest(tmp_path, REPLAYS)

    assert code != 0
    assert "none matches histories/*.json" in said
