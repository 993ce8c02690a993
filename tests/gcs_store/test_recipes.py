"""Every coordination recipe prints on a bucket what it prints on a file.

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

    done = subprocess.run(
        ["bash", "-euc", command],
        cwd=in_empty_folder(tmp_path),
        env=environment()
        | {
            "DURABLE_STORE": f"gs://{BUCKET}/{recipe.stem}",
            "STORAGE_EMULATOR_HOST": limited.url,
        },
        capture_output=True,
        text=True,
        timeout=50,
        check=False,
    )

    assert done.returncode == 0, done.stderr
    assert matches(stated, done.stdout), f"stated:\n{stated}\nprinted:\n{done.stdout}"
    assert limited.service.calls.billed()["A"] > 0  # it was this store
