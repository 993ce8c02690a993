"""Chance: tokens, which are drawn in batches."""

from __future__ import annotations

import os
import re
import subprocess
import sys

import pytest

from durable.system import System


def test_tokens_are_random_and_url_safe() -> None:
    """Over several batches each is of 96 bits and comes once, and all begin differently."""
    tokens = [System().token() for _ in range(1000)]

    assert len({token[:8] for token in tokens}) == len({token[8:] for token in tokens}) == 1000
    assert all(re.fullmatch(r"[A-Za-z0-9_-]{16}", token) for token in tokens)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_a_forked_child_draws_its_own() -> None:
    """Parent and child share no token, not even of the batch drawn before the fork."""
    program = (
        "import os\n"
        "from durable.system import System\n"
        "token = System().token\n"
        "token()\n"
        "child = os.fork()\n"
        "os.write(1, ('\\n'.join(token() for _ in range(200)) + '\\n').encode())\n"
        "if child: os.waitpid(child, 0)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    tokens = done.stdout.split()

    assert len(tokens) == len(set(tokens)) == 400
