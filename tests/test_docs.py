"""What README.md and docs/ show is run, and what they link to exists.

Each page has a temporary folder and its blocks run there, in the order of the page:

- ```python starting with `# name.py` is saved as that file, for the commands that follow;
- every other ```python block runs in one namespace per page, in one fresh process;
- ```console: each `$ command` runs in bash, and what follows it is its standard output, or both
  streams together (`...` stands for anything);
- ```sh runs in bash as one script that must succeed.

A block is left out only by a comment right above it: `<!-- not run: the reason -->`.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.commands import ROOT, environment, matches

PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
LANGUAGES = {"python", "console", "sh", "toml", "json", "text"}


@dataclass(frozen=True)
class Block:
    language: str
    text: str
    line: int
    left_out: str | None


def blocks(page: Path) -> Iterator[Block]:
    """Every fenced block of a page; `line` is that of its first line, for messages."""
    pattern = re.compile(
        r"(?:^<!-- not run:(?P<why>[^>]*)-->\n)?^```(?P<language>\w*)\n(?P<text>.*?)^```$",
        flags=re.DOTALL | re.MULTILINE,
    )
    whole = page.read_text()
    for found in pattern.finditer(whole):
        line = whole.count("\n", 0, found.start("text")) + 1
        why = found["why"]
        yield Block(found["language"], found["text"], line, why and why.strip())


def relative(page: Path) -> str:
    return str(page.relative_to(ROOT))


def run(command: list[str], folder: Path, given: str | None = None) -> tuple[int, str, str]:
    """The exit code, standard output, and both streams one after the other."""
    done = subprocess.run(
        command,
        cwd=folder,
        env=environment(),
        input=given,
        capture_output=True,
        text=True,
        timeout=50,
        check=False,
    )
    return done.returncode, done.stdout, done.stderr + done.stdout


def commands(block: Block) -> Iterator[tuple[str, str]]:
    """Each command of a console block with its stated output."""
    for part in re.split(r"^\$ ", block.text, flags=re.MULTILINE)[1:]:
        command, _, output = part.partition("\n")
        while command.endswith("\\"):
            more, _, output = output.partition("\n")
            command = f"{command[:-1]}{more.removeprefix('>')}"
        yield command, output


def run_console(block: Block, folder: Path, where: str) -> None:
    shown = list(commands(block))
    assert shown, f"{where}: a console block without a `$ command`"
    for command, stated in shown:
        code, printed, both = run(["bash", "-euc", command], folder)
        assert code == 0, f"{where}: `{command}` exits with {code}:\n{both}"
        assert matches(stated, printed) or matches(stated, both), (
            f"{where}: `{command}` stated:\n{stated}\nprinted:\n{both}"
        )


def run_python(page: Path, parts: list[Block], folder: Path) -> None:
    """All parts in one namespace, each compiled at its own line of the page."""
    program = "\n".join(
        f"exec(compile({chr(10) * (part.line - 1) + part.text!r}, {relative(page)!r}, 'exec'))"
        for part in parts
    )
    code, _, both = run([sys.executable, "-"], folder, program)
    assert code == 0, f"{relative(page)}: the Python blocks end with {code}:\n{both}"


@pytest.mark.parametrize("page", PAGES, ids=relative)
def test_code_blocks_run(page: Path, tmp_path: Path) -> None:
    """Whatever a page shows works as shown, in an empty folder."""
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    python: list[Block] = []
    for block in blocks(page):
        where = f"{relative(page)}:{block.line}"
        file = re.match(r"# (\w+\.py)\n", block.text)
        if block.left_out is not None:
            continue
        if block.language == "python" and file:
            (tmp_path / file[1]).write_text(block.text)
        elif block.language == "python":
            python.append(block)
        elif block.language == "console":
            run_console(block, tmp_path, where)
        elif block.language == "sh":
            code, _, both = run(["bash", "-euc", block.text], tmp_path)
            assert code == 0, f"{where}: exits with {code}:\n{both}"
    if python:
        run_python(page, python, tmp_path)


@pytest.mark.parametrize("page", PAGES, ids=relative)
def test_blocks_are_marked(page: Path) -> None:
    """Every block names a language we know, and one that is not run says why."""
    found = list(blocks(page))
    fences = re.findall(r"^\s*(?:```|~~~)", page.read_text(), flags=re.MULTILINE)
    assert len(fences) == 2 * len(found), f"{relative(page)}: a fence that is not plain ```language"
    for block in found:
        where = f"{relative(page)}:{block.line}"
        assert block.language in LANGUAGES, f"{where}: ```{block.language}"
        assert block.left_out is None or len(block.left_out) > 10, f"{where}: not run, but why?"


@pytest.mark.parametrize("page", PAGES, ids=relative)
def test_links_lead_somewhere(page: Path) -> None:
    """A relative link names a file that exists, and a heading that it has."""
    prose = re.sub(r"^```.*?^```$", "", page.read_text(), flags=re.DOTALL | re.MULTILINE)
    for target in re.findall(r"\]\(([^)\s]+)\)", prose):
        if "://" in target:
            continue
        name, _, anchor = target.partition("#")
        there = (page.parent / name).resolve() if name else page
        assert there.exists(), f"{relative(page)} links to {target}"
        assert not anchor or anchor in anchors(there), f"{relative(page)} links to {target}"


def anchors(page: Path) -> set[str]:
    """The headings of a page as GitHub makes anchors of them."""
    headings = re.findall(r"^#+ (.*)$", page.read_text(), flags=re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", h.lower()).replace(" ", "-") for h in headings}


def test_index_names_every_page() -> None:
    """Every page of the documentation is linked from its index, or from its folder's."""
    indexes = set((ROOT / "docs").rglob("README.md"))
    linked = {
        (index.parent / target).resolve()
        for index in indexes
        for target in re.findall(r"\]\(([^)#\s]+)\)", index.read_text())
    }

    missing = set((ROOT / "docs").rglob("*.md")) - linked - {ROOT / "docs" / "README.md"}

    assert not missing


def test_readme_opens_with_the_set_up() -> None:
    """The first block of the README is the two set-up lines, which `.ci/run` runs as they stand."""
    first = next(blocks(ROOT / "README.md"))
    start, check = first.text.splitlines()

    assert start.endswith(
        'durable run examples/checkout.py:checkout --id order-1 --input \'{"order": "A-1"}\''
    )
    assert check.endswith("&& nox -s tests")
    done = subprocess.run(
        ["bash", "-euc", f"{ci_reader()}\nset_up 1; set_up 2"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == first.text


def ci_reader() -> str:
    """The shell function with which `.ci/run` takes the lines from the README."""
    return next(
        line
        for line in (ROOT / ".ci" / "run").read_text().splitlines()
        if line.startswith("set_up()")
    )
