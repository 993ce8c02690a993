"""The checker's rules, each by a history that breaks it: a sound one with a lie told in it."""

from __future__ import annotations

import json

import pytest

from tests.simulation import lying
from tests.simulation.checker.features import CASE_RULES, FEATURE_RULES
from tests.simulation.checker.groups import GROUP_RULES
from tests.simulation.checker.instances import INSTANCE_RULES
from tests.simulation.checker.owners import OWNER_RULES
from tests.simulation.checker.whole import WHOLE_RULES
from tests.simulation.lying import Story, Told, lies

LIES: lying.Lies = {}
lie = lies(LIES)


# -- instances ------------------------------------------------------------------------------------


@lie()
def facts_never_change(s: Story) -> None:
    s.add(s.one("mutation", name="/steps/"), "mutation", verb="replace")


@lie()
def one_record_for_each_call(s: Story) -> None:
    first, second = s.all("mutation", name="/steps/")[:2]
    second.body(value=json.loads(first.facts["body"])["value"])


@lie()
def records_are_what_bodies_made(s: Story) -> None:
    s.one("mutation", name="/steps/").body(value="invented|999")


@lie("retried")
def failures_are_what_bodies_raised(s: Story) -> None:
    s.one("mutation", name="/attempts/").body(failure={"message": "invented|999"})


@lie()
def keys_name_calls(s: Story) -> None:
    s.one("body").facts["key"] = "another"


@lie("sequential")
def received_is_recorded(s: Story) -> None:
    s.move(s.one("received"), s.one("mutation", name="/steps/"))


@lie("drain")
def executions_agree(s: Story) -> None:
    first = [e for e in s.all("received") if e.facts["index"] == 0]
    assert len(first) > 1
    first[-1].facts["what"] = "long|2"


@lie("sequential")
def results_are_what_functions_came_to(s: Story) -> None:
    s.one("mutation", name="/result").body(value=["invented|999"])


@lie("sequential")
def results_follow_their_records(s: Story) -> None:
    s.move(s.last("mutation", name="/steps/"), s.one("mutation", name="history/"))


@lie("sequential")
def nothing_follows_a_result(s: Story) -> None:
    result = s.one("mutation", name="/result")
    listed = s.add(result, "call", verb="list", name="runs/run/", number=0, trusted=True)
    s.add(listed, "enter", **(s.one("enter").facts | {"epoch": 7}))


@lie()
def epochs_have_one_owner(s: Story) -> None:
    s.add(s.one("enter"), "enter", who="w9")


@lie("drain")
def recorded_bodies_rest(s: Story) -> None:
    claim = s.last("mutation", name="/epochs/")
    first = s.one("mutation", name="/steps/")
    slot = json.loads(first.facts["body"])["value"].partition("|")[0]
    body = s.one("body", slot=slot)
    enter = next(e for e in s.all("enter") if e.who == claim.who)
    again = body.facts | {"epoch": enter.facts["epoch"], "token": f"{slot}|99"}
    s.add(enter, "body", **again)


@lie()
def bodies_repeat_for_a_reason(s: Story) -> None:
    s.add(s.one("body"), "body", token="b0-1|99")


@lie("progress")
def last_values_are_published(s: Story) -> None:
    s.last("mutation", name="/state/progress/").body(value="half-way")


# -- owners ---------------------------------------------------------------------------------------


def _fence(s: Story) -> Told:
    return next(e for e in s.all("mutation", name="workers/") if b'"dead"' in e.facts["body"])


@lie()
def fences_are_justified(s: Story) -> None:
    fence = _fence(s)
    before = [e for e in s.all("mutation", name=fence.facts["name"]) if e.at < fence.at]
    fence.at = before[-1].at + 1.0


@lie()
def no_two_believe(s: Story) -> None:
    _fence(s).facts["holder_trusts"] = True


@lie()
def the_fenced_are_silent(s: Story) -> None:
    fence = _fence(s)
    s.add(fence, "mutation").body(state="alive")


@lie()
def the_fenced_do_nothing(s: Story) -> None:
    fence, body = _fence(s), s.one("body")
    s.move(fence, next(e for e in s.all("body") if e is not body and e.who == body.who))


@lie()
def the_untrusted_do_nothing(s: Story) -> None:
    s.one("body").facts["trusted"] = False


@lie("sequential")
def markers_change_by_their_rules(s: Story) -> None:
    gone = next(e for e in s.all("mutation", name="live/") if e.facts["verb"] == "delete")
    gone.who = "w9"


@lie("sequential")
def holders_have_a_lease(s: Story) -> None:
    s.move(s.one("mutation", name="live/", verb="replace"), s.one("mutation", name="workers/"))


# -- the whole ------------------------------------------------------------------------------------


@lie("sequential")
def nothing_broke(s: Story) -> None:
    s.add(s[-1], "stuck", why="something waits for ever")


@lie("sequential")
def executions_are_known(s: Story) -> None:
    s.add(s.one("enter"), "enter", key="another")


@lie("sequential")
def accepted_is_kept(s: Story) -> None:
    rest = s.one("rest")
    rest.facts["left"] = {n: b for n, b in rest.facts["left"].items() if "/result" not in n}


@lie("sequential")
def what_is_stuck_is_lost(s: Story) -> None:
    rest = s.one("rest")
    left = {n: b for n, b in rest.facts["left"].items() if "/result" not in n}
    rest.kind, rest.facts = "stuck", {"why": "something waits for ever", "left": left}


@lie("concurrent_starts")
def equal_starts_are_one_run(s: Story) -> None:
    s.one("reply", what="start").facts["value"] = "another"


@lie("sequential")
def starts_never_change(s: Story) -> None:
    s.add(s.one("mutation", name="/start"), "mutation", verb="replace")


@lie("sequential")
def clients_are_told_the_record(s: Story) -> None:
    s.one("reply", what="result").facts["value"] = ["invented|999"]


@lie("sequential")
def nothing_is_left(s: Story) -> None:
    rest = s.one("rest")
    rest.facts["left"] = rest.facts["left"] | {"live/default/00000000-run": b"{}"}


@lie("sequential")
def histories_are_complete(s: Story) -> None:
    rest = s.one("rest")
    rest.facts["left"] = {n: b for n, b in rest.facts["left"].items() if "history" not in n}


@lie("sequential")
def no_object_is_hot(s: Story) -> None:
    bell = s.one("mutation", name="bells/")
    for _ in range(20):
        s.add(bell, "mutation")


# -- features -------------------------------------------------------------------------------------


@lie("short_sleep")
def sleeps_keep_their_deadline(s: Story) -> None:
    s.one("slept").at -= 3.0


@lie("events")
def inboxes_are_chains(s: Story) -> None:
    first = s.one("mutation", name="/takes/1")
    first.facts["name"] = first.facts["name"].replace("/takes/1", "/takes/3")


@lie("events")
def events_reach_one_wait(s: Story) -> None:
    s.last("mutation", name="/takes/").body(event="e0")


@lie("events")
def received_events_are_recorded(s: Story) -> None:
    s.one("received", what="event ").facts["what"] = "event e9"


@lie("cancel_in_a_body")
def cancelled_runs_were_asked_to(s: Story) -> None:
    s[:] = [e for e in s if not str(e.facts.get("name")).endswith("/cancel")]


@lie("cancel_in_a_body")
def clients_are_told_of_cancels(s: Story) -> None:
    reply, result = s.one("reply", what="cancel"), s.one("mutation", name="/result")
    reply.facts["value"] = "finished"
    s.move(reply, result)


@lie("undone_by_failure")
def undone_in_reverse(s: Story) -> None:
    one, two = s.all("body", slot="undo-")[:2]
    one.facts["slot"], two.facts["slot"] = two.facts["slot"], one.facts["slot"]


@lie("overdue_in_a_body")
def deadlines_cut_off(s: Story) -> None:
    s.one("mutation", name="/result").body(time=1.0)


@lie("at_most_once")
def at_most_once(s: Story) -> None:
    s.add(s.one("body", slot="once-"), "body", token="once-o0|99")


@lie("death_on_one_host")
def provable_deaths_are_seen(s: Story) -> None:
    _fence(s).at += 9


@lie("children")
def children_are_told_as_recorded(s: Story) -> None:
    s.one("child").facts["value"] = ["invented|999"]


@lie("sequential")
def values_belong_to_their_calls(s: Story) -> None:
    s.add(s.one("received"), "called", slot="another")


@lie("cheap_steps")
def groups_are_a_chain(s: Story) -> None:
    last = s.last("mutation", name="/groups/")
    last.facts["name"] = last.facts["name"] + "0"


@lie("cheap_steps")
def recorded_before_others_see_it(s: Story) -> None:
    s.move(s.one("body", slot="w0"), s.one("mutation", name="/groups/"))


RULES = [
    rule.__name__
    for rule in (
        *INSTANCE_RULES, *GROUP_RULES, *OWNER_RULES, *WHOLE_RULES, *FEATURE_RULES, *CASE_RULES,
    )
]  # fmt: skip


@pytest.mark.parametrize("rule", RULES)
def test_each_rule_finds_its_lie(rule: str) -> None:
    """A history in which the rule was broken is found wrong by that rule."""
    assert rule in lying.broken(*LIES[rule])


@pytest.mark.parametrize("scenario", sorted({scenario for scenario, _ in LIES.values()}))
def test_true_histories_are_sound(scenario: str) -> None:
    """Without a lie no rule is broken."""
    assert lying.broken(scenario) == set()
