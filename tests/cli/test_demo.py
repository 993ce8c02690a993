"""`durable demo`: real processes, a real kill -9."""

from __future__ import annotations

from pathlib import Path

from tests.cli.command import durable


def test_the_demo_survives_its_kill(tmp_path: Path) -> None:
    """One of two workers dies, the other finishes the run in a higher epoch."""
    done = durable("demo", "--json", folder=tmp_path)
    seen = done.document

    assert done.code == 0, done.err
    assert seen["killed"] in seen["workers"]
    assert (seen["epoch_before"], seen["epoch_after"], seen["why"]) == (1, 2, "takeover")
    assert seen["result"] == [f"parcel {n}" for n in range(1, 7)]
    assert [n for n in seen["objects"] if "/epochs/" in n]
    assert list(tmp_path.iterdir()) == []


def test_the_demo_tells_what_it_does(tmp_path: Path) -> None:
    """Pids, epochs before and after, the objects; the last line says that it worked."""
    done = durable("demo", folder=tmp_path)
    lines = done.out.splitlines()

    assert (done.code, lines[-1]) == (0, "demo: ok")
    assert "kill -9" in done.out
    assert "in epoch 1;" in done.out
    assert "in epoch 2 (takeover)" in done.out
    assert any(line.startswith("  runs/demo-1/") for line in lines)
