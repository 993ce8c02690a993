"""`durable lint`: every documented example, and where it looks."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from durable.linting import RULES, check_file
from tests.cli.command import Done
from tests.commands import ROOT

Cli = Callable[..., Done]

PAGE = (ROOT / "docs" / "reference" / "lint.md").read_text()
INTRODUCTION, *SECTIONS = re.split(r"^## (?=DUR)", PAGE, flags=re.MULTILINE)


def blocks(text: str) -> list[str]:
    return re.findall(r"^```python\n(.*?)^```$", text, flags=re.DOTALL | re.MULTILINE)


def codes(folder: Path, source: str) -> list[str]:
    file = folder / "flow.py"
    file.write_text(source)
    return [finding.code for finding in check_file(file)]


def test_every_code_has_its_section() -> None:
    """In the order of their numbers."""
    assert [section[:6] for section in SECTIONS] == list(RULES)


@pytest.mark.parametrize("section", SECTIONS, ids=lambda section: section[:6])
def test_examples_are_told_and_their_replacements_are_not(section: str, tmp_path: Path) -> None:
    """The first block of a section has the finding, and no other; the second has none."""
    (shared,) = blocks(INTRODUCTION)
    wrong, right = blocks(section)

    assert codes(tmp_path, f"{shared}\n{wrong}") == [section[:6]]
    assert codes(tmp_path, f"{shared}\n{right}") == []


HEAD = """
import time as clock
from asyncio import FIRST_COMPLETED, as_completed, wait
from datetime import datetime

import durable as d
from durable import map, random, step, workflow

@step
async def charge(order): return clock.time()
"""


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("return clock.time()", ["DUR001"]),
        ("return datetime.now().date()", ["DUR001"]),
        ("return random().random()", []),
        ("return d.random()", []),
        ("return random.Random", []),
        ("return await wait(orders, return_when=FIRST_COMPLETED)", ["DUR009"]),
        ("return await wait(orders)", []),
        ("for o in as_completed(orders): pass", ["DUR009"]),
        ("return await map(charge, {1, 2})", ["DUR008"]),
        ("for i, o in enumerate(list(set(orders))): await charge(o)", ["DUR008"]),
        ("for o in sorted(list(set(orders))): await charge(o)", []),
        ("a = set(orders)\n    for o in a.union([1]): await charge(o)", ["DUR008"]),
        ("a: set[str] = await charge(1)\n    for o in a: await charge(o)", ["DUR008"]),
        ("for o in set(orders): print(o)", []),
        ("return [await charge(o) for o in set(orders)]", ["DUR008"]),
        ("return [o for o in set(orders)]", []),
        ("a = set(orders)\n    for o in a | {1}: await charge(o)", ["DUR008"]),
        ("a = set(orders)\n    a = sorted(a)\n    for o in a: await charge(o)", []),
        ("charge.call(orders)", ["DUR007"]),
        ("d.sleep(3)", ["DUR007"]),
        ("charge.options(key='a')(orders)", ["DUR007"]),
        ("charge.options(key='a').call(orders)", ["DUR007"]),
        ("await charge.options(key='a')(orders)", []),
        ("flow.start(orders)", ["DUR007"]),
        ("clock.ctime()", ["DUR001"]),
        ("import os.path\n    return os.path.exists(orders)", ["DUR005"]),
        ("import asyncio\n    return asyncio.open_connection(orders)", ["DUR004"]),
        ("import asyncio\n    asyncio.get_running_loop().run_in_executor(None, print)", ["DUR006"]),
        ("loop = orders\n    await loop.run_in_executor(None, print)", ["DUR006"]),
        ("task = charge(orders)\n    await task", []),
        ("@step\n    def inner(): return open(orders)\n    return inner", []),
        ("def inner(): return open(orders)\n    return inner()", ["DUR005"]),
        ("return open(orders)  # noqa: DUR005", []),
        ("return open(orders)  # noqa: E501, DUR005", []),
        ("return open(orders)  # noqa", []),
        ("return open(orders)  # noqa: DUR001", ["DUR005"]),
    ],
)
def test_what_is_told_of_a_workflow(body: str, expected: list[str], tmp_path: Path) -> None:
    """Names are followed through imports; steps and silenced lines are passed over."""
    flow = f"{HEAD}\n@workflow(version='1')\nasync def flow(orders):\n    {body}\n"

    assert codes(tmp_path, flow) == expected
    assert codes(tmp_path, flow.replace("@workflow(version='1')", "")) == []


SYNC = """
from collections.abc import Set
from durable import step, sync, workflow

@step
def charge(order): ...

@step
async def notify(order): ...

@workflow
def flow(orders: {annotation}):
    {body}
"""


@pytest.mark.parametrize(
    ("annotation", "body", "expected"),
    [
        ("list", "for o in set(orders): charge(o)", ["DUR008"]),
        ("list", "for o in set(orders): sync.run(notify(o))", ["DUR008"]),
        ("list", "for o in set(orders): print(o)", []),
        ("list", "return sync.map(charge, set(orders))", ["DUR008"]),
        ("list", "return sync.gather(*[charge.call(o) for o in set(orders)])", ["DUR008"]),
        ("list", "for o in orders: charge(o)", []),
        ("set[str]", "for o in orders: charge(o)", ["DUR008"]),
        ("'set[str]'", "for o in orders: charge(o)", ["DUR008"]),
        ("Set[str]", "return sync.map(charge, orders)", ["DUR008"]),
        ("set[str]", "for o in sorted(orders): charge(o)", []),
        ("set[str]", "orders = sorted(orders)\n    for o in orders: charge(o)", []),
        ("str", "charge(orders)", []),
        ("str", "notify(orders)", ["DUR007"]),
        ("str", "sync.run(notify(orders))", []),
    ],
)
def test_sync_workflows_are_looked_at_as_async_ones(
    annotation: str, body: str, expected: list[str], tmp_path: Path
) -> None:
    """Their steps are simply called, which drives them as an `await` does."""
    assert codes(tmp_path, SYNC.format(annotation=annotation, body=body)) == expected


def test_helpers_are_looked_at_one_level_deep(tmp_path: Path) -> None:
    """A plain function that a workflow calls counts as its own code, told once."""
    source = f"""{HEAD}
def deeper(): return clock.time()
def helper(): return clock.time(), deeper()
def apart(): return clock.time()

@workflow
def one(): return helper()

@workflow
def two(): return helper()
"""
    (tmp_path / "flow.py").write_text(source)
    (finding,) = check_file(tmp_path / "flow.py")

    assert (finding.code, finding.function) == ("DUR001", "helper")
    assert source.splitlines()[finding.line - 1].startswith("def helper")


def test_the_command_reports_and_ends_with_one(cli: Cli, folder: Path) -> None:
    """One line for each finding with the replacement; code 0 and no finding once it is mended."""
    (folder / ".hidden").mkdir()
    (folder / ".hidden" / "no.py").write_text("not Python")
    file = folder / "flow.py"
    file.write_text(
        "import time\nfrom durable import workflow\n"
        "@workflow\ndef flow():\n    return time.time()\n"
    )

    told = cli("lint", str(folder))
    assert told.code == 1
    said = "DUR001 time.time reads the clock, which stands elsewhere on a replay: durable.now()"
    assert told.out.splitlines() == [f"{file}:5:12: {said}", "1 found in 1 files"]
    (finding,) = cli("lint", str(file), "--json").document["findings"]
    assert (finding["code"], finding["instead"]) == ("DUR001", "durable.now()")

    file.write_text(file.read_text().replace("time.time()", "1"))
    assert cli("lint", str(file)).code == 0


def test_what_cannot_be_read_is_a_usage_error(cli: Cli, folder: Path) -> None:
    """A path with nothing there, or a file that is no Python."""
    (folder / "bad.py").write_text("def")

    assert cli("lint", "nowhere.py").code == 2
    assert "bad.py is no Python source" in cli("lint", "bad.py").err


def test_the_examples_are_clean() -> None:
    """What this project shows to users has nothing of the kind."""
    found = [f for file in sorted((ROOT / "examples").rglob("*.py")) for f in check_file(file)]

    assert found == []
