"""What `import durable` gives, and what it costs."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import durable

HEAVY = ["aiohttp", "fsspec", "gcsfs", "google", "rich", "sqlite3", "trio"]


def test_all_is_sorted_and_complete() -> None:
    """`__all__` is sorted, and names exactly what the module re-exports on purpose."""
    tree = ast.parse(Path(durable.__file__).read_text())
    imports = [
        n for n in ast.walk(tree) if isinstance(n, ast.ImportFrom) and n.module != "__future__"
    ]
    exported = [alias.asname for node in imports for alias in node.names]

    assert durable.__all__ == sorted(durable.__all__)
    assert sorted(filter(None, exported)) == durable.__all__
    assert len(exported) == len(durable.__all__)


def test_import_is_light() -> None:
    """Importing durable loads no cloud client, no database and nothing that draws."""
    program = "import sys, durable; print(*sorted(sys.modules))"
    loaded = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    ).stdout.split()

    assert "durable.client" in loaded
    assert [name for name in HEAVY if name in loaded] == []


def test_the_command_is_light_too() -> None:
    """Importing the command loads no command's module before one is called."""
    program = "import sys, durable.cli; print(*sorted(sys.modules))"
    loaded = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    ).stdout.split()

    assert [name for name in [*HEAVY, "argparse", "durable.cli.running"] if name in loaded] == []


def test_a_run_on_a_file_loads_no_cloud_client(tmp_path: Path) -> None:
    """`durable run` up to the result: clients of Google are for gs:// stores alone."""
    Path(tmp_path, "light_flow.py").write_text(
        "from durable import workflow\n\n"
        "@workflow(name='light.once')\n"
        "async def once() -> int:\n"
        "    return 1\n"
    )
    program = (
        "import sys, durable.cli\n"
        "code = durable.cli.main(['run', 'light_flow.py:once'])\n"
        "print(code, *sorted(sys.modules))"
    )
    printed = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, cwd=tmp_path
    ).stdout.splitlines()
    result, (code, *loaded) = printed[0], printed[-1].split()

    assert (result, code) == ("1", "0")
    assert "durable.store.sqlite" in loaded
    assert [
        name for name in ["aiohttp", "fsspec", "gcsfs", "google", "trio"] if name in loaded
    ] == []


def test_errors_are_in_one_place() -> None:
    """Each class of durable.errors is an error, a cancellation or a warning, and documented."""
    from durable import errors

    classes = [c for c in vars(errors).values() if isinstance(c, type)]

    bases = errors.DurableError | errors.RunCancelled | Warning
    assert all(issubclass(c, bases) for c in classes)
    assert all(c.__doc__ for c in classes)
    assert all(c.__name__ in (errors.__doc__ or "") for c in classes)


def test_testing_names_are_sorted_and_complete() -> None:
    """So is what `durable.testing` re-exports."""
    from durable import testing

    tree = ast.parse(Path(testing.__file__).read_text())
    imports = [
        n for n in ast.walk(tree) if isinstance(n, ast.ImportFrom) and n.module != "__future__"
    ]
    exported = [alias.asname for node in imports for alias in node.names]

    assert testing.__all__ == sorted(testing.__all__)
    assert sorted(filter(None, exported)) == testing.__all__
