"""The checker's rules of what runs share, each by a history that breaks it."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.simulation import lying
from tests.simulation.checker import SHARED_RULES, SHARING_RULES
from tests.simulation.lying import Story, Told, lies

LIES: lying.Lies = {}
lie = lies(LIES)


def said(event: Told) -> dict[str, Any]:
    """The record that a mutation wrote."""
    found: dict[str, Any] = json.loads(event.facts["body"])
    return found


# -- singletons -----------------------------------------------------------------------------------


def takes(s: Story) -> list[Told]:
    """Each time that a run took the lock `key`."""
    return [e for e in s.all("mutation") if e.facts["name"] == "locks/key"]


@lie("lock_is_waited_for")
def locks_are_taken_from_nobody(s: Story) -> None:
    second = takes(s)[1]
    s.move(second, s.one("mutation", name="/result"))


@lie("lock_is_waited_for")
def bodies_need_their_lock(s: Story) -> None:
    first = takes(s)[0]
    s.move(s.one("body", slot="key-waiting-0-of-other0"), s.last("body", run="holder"))
    assert said(first)["run"] == "holder"


@lie("lock_has_a_line")
def waiters_go_in_line(s: Story) -> None:
    second, third = takes(s)[1:3]
    second.facts["body"], third.facts["body"] = third.facts["body"], second.facts["body"]


@lie("lock_skips")
def turned_away_for_a_reason(s: Story) -> None:
    skipped = next(e for e in s.all("mutation", name="/result") if "skipped" in said(e))
    skipped.body(skipped=said(skipped)["skipped"] | {"instance": "another"})


@lie("lock_is_waited_for")
def no_lock_is_orphaned(s: Story) -> None:
    waiter = s.one("mutation", name="locks/key/wait/")
    rest = s.one("rest")
    rest.facts["left"] = rest.facts["left"] | {waiter.facts["name"]: waiter.facts["body"]}


# -- queues ---------------------------------------------------------------------------------------


def grants(s: Story) -> list[Told]:
    """Each time that a slot was given."""
    return [e for e in s.all("mutation", name="/slots/") if e.facts["verb"] != "delete"]


@lie("queue_of_two")
def slots_are_never_exceeded(s: Story) -> None:
    first = grants(s)[0]
    s.add(first, "mutation", name="queues/wide/slots/2", number=0)


@lie("queue_of_two")
def bodies_need_their_slot(s: Story) -> None:
    s.move(s.one("body", slot="wide-0"), s[1])


@lie("queue_of_two")
def slots_are_taken_from_nobody(s: Story) -> None:
    first = grants(s)[0]
    s.add(first, "mutation", verb="delete", body=b"", who="w9")


@lie("queue_by_priority")
def turns_are_kept(s: Story) -> None:
    s.one("mutation", name="runs/idle/start").body(priority=-9)
    s.one("mutation", name="/pending/1005-").at -= 60.0


@lie("queue_of_sleepers")
def parked_runs_free_their_slots(s: Story) -> None:
    s[:] = [
        e for e in s if "/slots/" not in str(e.facts.get("name")) or e.facts["verb"] == "create"
    ]


@lie("queue_with_a_rate")
def rates_are_kept(s: Story) -> None:
    s[:] = [e for e in s if e is not s.last("mutation", name="queues/slowly/rate")]


@lie("workflow_paused")
def pauses_are_kept(s: Story) -> None:
    resumed = s.last("mutation", name="pauses")
    s.move(resumed, s.one("rest"))


@lie("queue_of_two")
def no_slot_is_leaked(s: Story) -> None:
    slot, rest = s.one("mutation", name="/slots/"), s.one("rest")
    rest.facts["left"] = rest.facts["left"] | {slot.facts["name"]: slot.facts["body"]}


# -- schedules ------------------------------------------------------------------------------------


def decisions(s: Story) -> list[Told]:
    """Each time that a worker decided on ticks."""
    return [e for e in s.all("mutation", name="schedules/plain") if e.who.startswith("w")]


@lie("ticks_of_many_workers")
def ticks_are_decided_once(s: Story) -> None:
    last = decisions(s)[-1]
    last.body(fired=said(last)["fired"] + 1)


@lie("ticks_paused")
def ticks_of_a_pause_are_none(s: Story) -> None:
    resumed = next(e for e in s.all("mutation", name="schedules/plain") if e.who == asker(s))
    resumed.body(through=said(decisions(s)[0])["through"])


def asker(s: Story) -> str:
    """The client that resumed a schedule."""
    return s.one("asked", what="resume").who


@lie("ticks_of_many_workers")
def ticks_have_one_run(s: Story) -> None:
    start = next(e for e in s.all("mutation", name="/start") if said(e).get("tick"))
    name = start.facts["name"].replace("/start", "x/start")
    s.add(start, "mutation", name=name).body(instance="another")


@lie("ticks_of_many_workers")
def decided_ticks_have_runs(s: Story) -> None:
    last = decisions(s)[-1]
    last.body(started=[*said(last)["started"], 1_700_000_600.0])


@lie("ticks_queued")
def overlaps_follow_the_policy(s: Story) -> None:
    s.move(s.one("mutation", name="/result"), s.one("rest"))


@lie("ticks_caught_up")
def catching_up_follows_the_policy(s: Story) -> None:
    caught = next(e for e in s.all("mutation", name="schedules/latest") if said(e).get("missed"))
    caught.body(fired=said(caught)["fired"] + 1, missed=said(caught)["missed"] - 1)


# -- keys, effects, an outbox ---------------------------------------------------------------------


@lie("dedup_keys")
def a_key_means_one_run(s: Story) -> None:
    again = s.one("mutation", name="runs/again/start")
    s.move(again, next(e for e in s.all("mutation", name="/result")))


@lie("dedup_keys")
def whoever_is_told_a_run_finds_it(s: Story) -> None:
    s.one("reply", what="keyed").facts["value"] = ["run9", "another"]


@lie("guarded_effects")
def effects_take_place_once(s: Story) -> None:
    s.add(s.one("effect"), "effect", number=99)


@lie("outbox")
def outboxes_lose_nothing(s: Story) -> None:
    s.one("reply", what="produce").facts["value"] = ["a", 99]


# -- starts that are held back --------------------------------------------------------------------


def requests(s: Story) -> list[Told]:
    """Each time that a run came to be asked for something."""
    return [e for e in s.all("mutation", name="/start") if e.facts["verb"] != "delete"]


@lie("held_back")
def no_start_is_lost(s: Story) -> None:
    s.remove(s.last("carried"))


@lie("held_back")
def held_starts_begin_in_time(s: Story) -> None:
    second = requests(s)[1]
    second.body(debounce=said(second)["debounce"] | {"due": 9e9})


@lie("held_back")
def requests_change_while_they_are_held_back(s: Story) -> None:
    closes = next(e for e in requests(s) if said(e)["debounce"].get("closed"))
    s.add(closes, "mutation").body(input={"args": ["key", 99], "kwargs": {}})


RULES = [rule.__name__ for rule in (*SHARED_RULES, *SHARING_RULES)]


@pytest.mark.parametrize("rule", RULES)
def test_each_rule_finds_its_lie(rule: str) -> None:
    """A history in which the rule was broken is found wrong by that rule."""
    assert rule in lying.broken(*LIES[rule])


@pytest.mark.parametrize("scenario", sorted({scenario for scenario, _ in LIES.values()}))
def test_true_histories_are_sound(scenario: str) -> None:
    """Without a lie no rule is broken."""
    assert lying.broken(scenario) == set()
