"""Settings: argument, environment, project file, default."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from durable.configuration import code_version, settings
from durable.decorators import workflows
from durable.errors import UsageError
from durable.runtime.definitions import Definition
from tests.client.shop import charge, checkout

DEFAULT = "sqlite:///.durable/durable.db"


def project(folder: Path, text: str) -> None:
    (folder / "pyproject.toml").write_text(text)


def test_the_first_that_is_there_decides(tmp_path: Path) -> None:
    """Argument before environment before project file before default."""
    assert settings(None, {}, tmp_path).store == DEFAULT
    project(tmp_path, '[tool.durable]\nstore = "memory:project"')

    assert settings(None, {}, tmp_path).store == "memory:project"
    assert settings(None, {"DURABLE_STORE": "memory:env"}, tmp_path).store == "memory:env"
    assert settings("memory:flag", {"DURABLE_STORE": "x"}, tmp_path).store == "memory:flag"


def test_the_nearest_project_file_upward_counts(tmp_path: Path) -> None:
    """Its relative store is meant from its own folder, wherever below it one works."""
    project(tmp_path, '[tool.durable]\nstore = "sqlite:///shop.db"\ntargets = ["shop.py"]')
    below = tmp_path / "a" / "b"
    below.mkdir(parents=True)

    found = settings(None, {}, below)

    assert found.store == f"sqlite:///{tmp_path}/shop.db"
    assert found.targets == ("shop.py",)
    assert found.folder == tmp_path


def test_a_project_file_without_a_table_changes_nothing(tmp_path: Path) -> None:
    """Most projects have a pyproject.toml for other things."""
    project(tmp_path, '[project]\nname = "shop"')

    assert settings(None, {}, tmp_path).store == DEFAULT


@pytest.mark.parametrize(
    "text",
    [
        "[tool.durable",
        "tool.durable = 1",
        "[tool.durable]\nstore = 1",
        '[tool.durable]\ntargets = "shop.py"',
        "[tool.durable]\ntargets = [1]",
        '[tool.durable]\nstroe = "memory:"',
    ],
)
def test_a_wrong_project_file_is_an_error(tmp_path: Path, text: str) -> None:
    """The message names the file."""
    project(tmp_path, text)

    with pytest.raises(UsageError, match="pyproject"):
        settings(None, {}, tmp_path)


def test_code_version_follows_the_source(tmp_path: Path) -> None:
    """Twelve hex digits over the files that define the workflows, wherever those are."""
    here = code_version([checkout.definition])

    assert here == code_version([charge.definition, checkout.definition])  # one file
    assert len(here) == 12
    assert here != code_version(workflows().values()) or len(workflows()) == 4
    assert code_version([loaded(tmp_path / "a", "1")]) == code_version(
        [loaded(tmp_path / "b", "1")]
    )
    assert code_version([loaded(tmp_path / "a", "1")]) != code_version(
        [loaded(tmp_path / "a", "2")]
    )


def loaded(folder: Path, body: str) -> Definition:
    """A definition whose function lives in a file of that folder."""
    folder.mkdir(exist_ok=True)
    (folder / "shop.py").write_text(f"def f():\n    return {body}\n")
    scope: dict[str, object] = {"__name__": "shop"}
    code = compile((folder / "shop.py").read_text(), str(folder / "shop.py"), "exec")
    exec(code, scope)
    return msgspec.structs.replace(checkout.definition, fn=scope["f"])  # type: ignore[arg-type]  # made from text
