"""Settings: an argument or flag, else the environment, else `[tool.durable]`, else the default.

`[tool.durable]` stands in the pyproject.toml of the working folder or of the nearest folder
above it. It may name `store` (a URL) and `targets` (what a worker serves).
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import NamedTuple

from durable.errors import UsageError
from durable.runtime.definitions import Definition
from durable.store.opening import DEFAULT_URL

PROJECT_FILE = "pyproject.toml"
VERSION_DIGITS = 12


class Settings(NamedTuple):
    """What was found. Of the project file, relative names mean from its folder.

    Attributes:
        store: the store's URL.
        targets: what a worker serves; empty: it must be told.
        folder: where the project file is; None without one.
    """

    store: str
    targets: tuple[str, ...] = ()
    folder: Path | None = None


def settings(store: str | None, environ: Mapping[str, str], working: Path) -> Settings:
    """The settings that hold in the folder `working`.

    Args:
        store: the URL given by argument or flag, if any.
        environ: the environment's variables.
        working: an absolute path.

    Raises:
        UsageError: the project file cannot be read, or holds something else.
    """
    project = _project_file(working)
    table = {} if project is None else _table(project)
    targets = table.get("targets", [])
    if not isinstance(targets, list) or not all(isinstance(t, str) for t in targets):
        raise UsageError(f"`targets` of [tool.durable] in {project} must be a list of strings")
    found = store or environ.get("DURABLE_STORE") or _project_store(table, project) or DEFAULT_URL
    return Settings(found, tuple(targets), project.parent if project else None)


def _project_file(working: Path) -> Path | None:
    for folder in (working, *working.parents):
        if (folder / PROJECT_FILE).is_file():
            return folder / PROJECT_FILE
    return None


def _table(project: Path) -> Mapping[str, object]:
    import tomllib

    try:
        whole = tomllib.loads(project.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as e:
        raise UsageError(f"{project} cannot be read: {e}") from e
    tool = whole.get("tool", {})
    table = tool.get("durable", {}) if isinstance(tool, dict) else {}
    if not isinstance(table, dict):
        raise UsageError(f"[tool.durable] in {project} must be a table")
    unknown = sorted(table.keys() - {"store", "targets"})
    if unknown:
        raise UsageError(
            f"[tool.durable] in {project} has the unknown setting {unknown[0]!r}",
            hint="known are `store` and `targets`",
        )
    return table


def _project_store(table: Mapping[str, object], project: Path | None) -> str:
    """A relative file is meant from the project file, wherever below it one works."""
    url = table.get("store", "")
    if not isinstance(url, str):
        raise UsageError(f"`store` of [tool.durable] in {project} must be a string")
    path = url.removeprefix("sqlite:///")
    if project is None or not path or path == url or Path(path).is_absolute():
        return url
    return f"sqlite:///{project.parent / path}"


def code_version(definitions: Iterable[Definition]) -> str:
    """The version of the code that defines these: hex digits over its source files.

    Deterministic, and the same wherever the files are. Code without a file (a notebook) counts
    by its module's name alone.
    """
    files = {(d.fn.__module__ or "", d.fn.__code__.co_filename) for d in definitions}
    digest = hashlib.sha256()
    for module, file in sorted(files):
        try:
            content = Path(file).read_bytes()
        except (OSError, ValueError):
            content = b""
        digest.update(b"%b %d\n%b\n" % (module.encode(), len(content), content))
    return digest.hexdigest()[:VERSION_DIGITS]
