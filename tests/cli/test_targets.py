"""TARGET: which files and modules it means, and what is said of those that it does not."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from durable.cli.targets import load_all, load_one
from durable.decorators import registry
from durable.errors import InvalidDefinition, UnknownWorkflow, UsageError

CODE = """
from durable import step, workflow
{extra}
@workflow(name="{name}")
async def flow() -> None: ...
"""


@pytest.fixture(autouse=True)
def _clean(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Each test is a process of its own, as far as loading goes."""
    monkeypatch.setattr(registry, "_registry", {})
    path, modules = list(sys.path), set(sys.modules)
    yield
    sys.path[:] = path
    for name in set(sys.modules) - modules:
        del sys.modules[name]


def write(folder: Path, file: str, name: str, extra: str = "") -> None:
    path = folder / file
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(CODE.format(name=name, extra=extra))


@pytest.mark.parametrize(
    "target",
    ["target_a.py", "./target_a.py", "target_a.py:flow", "target_a.py:name.a", "target_a",
     "target_a:flow"],
)  # fmt: skip
def test_every_form_means_the_workflow(folder: Path, target: str) -> None:
    """Files and modules, the function's name or the workflow's."""
    write(folder, "target_a.py", "name.a")

    assert load_one(target).name == "name.a"


def test_modules_in_packages(folder: Path) -> None:
    """A dotted name, from the working folder."""
    write(folder, "pack/inner.py", "name.b")
    (folder / "pack" / "__init__.py").touch()

    assert load_one("pack.inner:flow").name == "name.b"


def test_a_file_imports_its_neighbours(folder: Path) -> None:
    """Its folder is on the path, as for a script."""
    (folder / "deep").mkdir()
    (folder / "deep" / "neighbour_c.py").write_text("value = 1\n")
    write(folder, "deep/target_c.py", "name.c", extra="import neighbour_c")

    assert load_one("deep/target_c.py").name == "name.c"


def test_the_module_is_named_after_the_file(folder: Path) -> None:
    """Errors are recorded under that name, so it is the same wherever the file is."""
    write(folder, "one/target_d.py", "name.d")

    assert load_one("one/target_d.py").__module__ == "target_d"
    assert load_one("one/target_d.py") is load_one(f"{folder}/one/target_d.py")


def test_a_file_may_be_named_like_a_known_module(folder: Path) -> None:
    """It does not take that module's place."""
    before = sys.modules["json"]
    write(folder, "json.py", "name.e")

    assert load_one("json.py").name == "name.e"
    assert sys.modules["json"] is before


def test_several_workflows_are_listed(folder: Path) -> None:
    """Without a name it is an error that names them."""
    two = '@workflow(name="name.f2")\nasync def second() -> None: ...\n'
    write(folder, "target_f.py", "name.f1", extra=two)

    with pytest.raises(UsageError, match=r"name\.f1, name\.f2"):
        load_one("target_f.py")
    assert load_one("target_f.py:second").name == "name.f2"
    assert set(load_all(["target_f.py"])) == {"name.f1", "name.f2"}
    assert set(load_all(["target_f.py:flow"])) == {"name.f1"}


def test_imported_workflows_are_not_the_files_own(folder: Path) -> None:
    """A file with one workflow of its own means that one, whatever it imports."""
    write(folder, "target_g.py", "name.g")
    write(folder, "target_h.py", "name.h", extra="from target_g import flow as imported")

    assert load_one("target_h.py").name == "name.h"
    assert set(load_all(["target_h.py"])) == {"name.g", "name.h"}


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("import no_such_module_at_all", "ModuleNotFoundError"),
        ("def broken(:", "SyntaxError"),
        ("1 / 0", "ZeroDivisionError"),
    ],
)
def test_a_file_that_fails_says_how(folder: Path, content: str, said: str) -> None:
    """The error's type and place, and it may be loaded again once it is repaired."""
    (folder / "target_i.py").write_text(content)

    with pytest.raises(UsageError, match=said):
        load_one("target_i.py")
    with pytest.raises(UsageError, match=r"target_i\.py"):
        load_one("target_i.py")


def test_a_wrong_definition_is_told_as_it_is(folder: Path) -> None:
    """The decorator's own error goes through."""
    (folder / "target_j.py").write_text(
        "from durable import step\n@step\ndef gen():\n    yield 1\n"
    )

    with pytest.raises(InvalidDefinition, match="generator"):
        load_one("target_j.py")


@pytest.mark.parametrize(
    ("target", "error"),
    [
        ("", UsageError),
        (":flow", UsageError),
        ("nowhere.py", UsageError),
        ("no.such.module", UsageError),
        ("target_k.py:nothing", UnknownWorkflow),
        ("target_k.py:value", UnknownWorkflow),
        ("empty_k.py", UnknownWorkflow),
    ],
)
def test_what_is_not_there_is_an_error(folder: Path, target: str, error: type[Exception]) -> None:
    """With a hint of what could have been meant."""
    write(folder, "target_k.py", "name.k", extra="value = 1")
    (folder / "empty_k.py").touch()

    with pytest.raises(error):
        load_one(target)
    with pytest.raises(error):
        load_all([target])
