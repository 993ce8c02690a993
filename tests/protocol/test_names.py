"""Object names: one-to-one, inside their folder, short enough."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from durable.errors import InvalidId
from durable.protocol import names

ids = st.text(st.characters(exclude_categories=("Cs", "Cc")), min_size=1, max_size=22).filter(
    lambda text: text not in {".", ".."}
)


@given(ids, ids)
def test_ids_do_not_share_objects(one: str, other: str) -> None:
    """Two ids share no object, and neither is a folder of the other's."""
    folders = names.run_folder(one), names.run_folder(other)

    assert (folders[0] == folders[1]) == (one == other)
    if one != other:
        assert not folders[0].startswith(folders[1])
        assert names.marker("q", one) != names.marker("q", other)
        assert names.attention("q", one) != names.attention("q", other)


@given(ids)
def test_nothing_leaves_its_folder(run: str) -> None:
    """However a run is named, its objects are two levels under `runs/`, `live/` and so on."""
    assert names.start(run).count("/") == 2
    assert names.marker("q", run).count("/") == 2
    assert "/../" not in names.start(run)
    assert "//" not in names.start(run)


@given(ids, ids)
def test_parsing(queue: str, run: str) -> None:
    """Names are parsed back to the ids that made them."""
    assert names.marker_run(names.marker(queue, run)) == run
    assert names.last_part(names.attention(queue, run)) == run


@given(st.lists(ids, min_size=1), st.integers(1, 300))
def test_parts_of_a_queue(runs: list[str], places: int) -> None:
    """Whatever there is in the queue's folder is in one part and in no other."""
    parts = [names.markers_between("q", place, places) for place in range(places)]

    assert parts[0][0] == parts[-1][1] == ""
    assert [end for _, end in parts[:-1]] == [start for start, _ in parts[1:]]
    assert parts == sorted(parts)
    for name in [names.marker("q", run) for run in runs] + ["live/q/", "live/q/~stranger"]:
        within = [start <= name and (not end or name < end) for start, end in parts]
        assert within.count(True) == 1


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "empty"),
        (".", "'.'"),
        ("..", "'..'"),
        ("a\nb", "control"),
        ("\x00", "control"),
        ("\x85", "control"),
        ("x" * 201, "201 bytes"),
        ("\u00e9" * 34, "204 bytes"),
        ("\ud800", "Unicode"),
    ],
)
def test_bad_ids(text: str, said: str) -> None:
    """An id that cannot be an object name is refused; the message says why."""
    with pytest.raises(InvalidId, match=said):
        names.check_id(text)


@pytest.mark.parametrize("text", ["a", "x" * 200, "a/b", "a%2Fb", "...", "\u00e9" * 33, "a b"])
def test_good_ids(text: str) -> None:
    """Everything else is an id."""
    assert len(names.check_id(text)) <= names.ID_BYTES_MAX


def test_not_text() -> None:
    """An id is text."""
    with pytest.raises(InvalidId, match="not int"):
        names.check_id(7)  # type: ignore[arg-type]  # wrong on purpose


def test_percent_is_encoded() -> None:
    """An id that looks encoded is another than the one it looks like."""
    assert names.run_folder("a/b") == "runs/a%2Fb/"
    assert names.run_folder("a%2Fb") == "runs/a%252Fb/"


def test_facts() -> None:
    """The objects of a run's folder are told apart by instance and kind."""
    run = "o/1"

    assert names.parse_fact(run, names.step(run, "ab12", "gather.1/0/s.1")) == (
        "ab12", "steps", "gather.1/0/s.1",
    )  # fmt: skip
    assert names.parse_fact(run, names.attempt(run, "ab12", "s.1", 3)) == (
        "ab12", "attempts", "s.1/3",
    )  # fmt: skip
    assert names.parse_fact(run, names.epoch(run, "ab12", 2)) == ("ab12", "epochs", "2")
    assert names.parse_fact(run, names.result(run, "ab12")) == ("ab12", "result", "")
    assert names.parse_fact(run, names.start(run)) is None
    assert names.parse_fact(run, names.start("o")) is None


def test_start_is_listed_last() -> None:
    """`start` sorts behind every instance, so one list reads the facts before it."""
    listed = [names.start("r"), names.step("r", "ffff", "s.1"), names.result("r", "0000")]

    assert max(listed) == names.start("r")


@given(st.lists(st.text("abcdefgh.=%/", min_size=1, max_size=900), unique=True, max_size=6))
def test_long_paths(paths: list[str]) -> None:
    """However deep a call is, its name fits and stays its own."""
    made = [names.step("x" * 200, "0123456789abcdef", path) for path in paths]

    assert len(set(made)) == len(paths)
    assert all(len(name.encode()) < 1024 for name in made)
    assert all(name.split("/steps/")[1] for name in made)


def test_long_path_keeps_its_last_part() -> None:
    """Of a hashed path the call itself can still be read."""
    part = names.path_part("gather.1/0/" * 40 + "charge.1")

    assert part.startswith("~")
    assert part.endswith("/charge.1")


def test_history_is_filed_by_hour() -> None:
    """Finished runs are filed by the recorded end."""
    assert names.history("2026-11-29T19:04:43.123Z", "a/b") == (
        "history/2026-11-29/19/2026-11-29T19:04:43.123Z-a%2Fb"
    )
