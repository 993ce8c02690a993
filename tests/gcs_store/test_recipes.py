"""Every coordination recipe prints on a bucket what it prints on a file, and can be run again.

One object takes one mutation a second here, as on Google Cloud Storage.
"""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from durable.store.memory import Bucket
from durable.testing.gcs import Handle, Service, serving
from tests.commands import environment, matches
from tests.test_examples import EXAMPLES, header, in_empty_folder

BUCKET = "some-bucket"
RECIPES = [path for path in EXAMPLES if path.name.startswith("coordinate_")]


@pytest.fixture(scope="module")
def limited() -> Iterator[Handle]:
    with serving(Service({BUCKET: Bucket()}, rate_limit=True)) as handle:
        yield handle


@pytest.mark.parametrize("recipe", RECIPES, ids=lambda path: path.stem)
def test_prints_what_its_header_says(recipe: Path, limited: Handle, tmp_path: Path) -> None:
    """The same command with the same output; only the environment names another store."""
    command, stated = header(recipe)
    limited.service.calls.clear()

    done = begin(command, recipe.stem, limited, in_empty_folder(tmp_path))
    out, err = done.communicate(timeout=50)

    assert done.returncode == 0, err
    assert matches(stated, out), f"stated:\n{stated}\nprinted:\n{out}"
    assert limited.service.calls.billed()["A"] > 0  # it was this store


@pytest.mark.parametrize("recipe", RECIPES, ids=lambda path: path.stem)
def test_runs_twice_at_once_and_again(recipe: Path, limited: Handle, tmp_path: Path) -> None:
    """Two processes get along, and so does a third that finds what they have left."""
    command, _ = header(recipe)
    folder, name = in_empty_folder(tmp_path), f"{recipe.stem}-twice"

    both = [begin(command, name, limited, folder) for _ in range(2)]
    errors = [process.communicate(timeout=50)[1] for process in both]
    third = begin(command, name, limited, folder)
    errors.append(third.communicate(timeout=50)[1])

    assert [process.returncode for process in (*both, third)] == [0, 0, 0], errors


def begin(command: str, prefix: str, server: Handle, folder: Path) -> subprocess.Popen[str]:
    """The command, on a folder of the bucket."""
    return subprocess.Popen(
        ["bash", "-euc", command],
        cwd=folder,
        env=environment()
        | {"DURABLE_STORE": f"gs://{BUCKET}/{prefix}", "STORAGE_EMULATOR_HOST": server.url},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
