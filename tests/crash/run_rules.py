"""The rules that each run of a crash run must keep: one function each, from case to violations.

The names of the promises (P1, S9, ...) are those of the documentation.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator

from tests.crash.case import TICK, Case, Run, saw
from tests.crash.store import Object
from tests.crash.violations import Violation

IN_FLIGHT = 5.0  # seconds that the write of a record may take on a busy machine


# -- records and bodies ---------------------------------------------------------------------------


def one_record_for_each_call(_: Case, run: Run) -> Iterable[Violation]:
    """P1: a path has one outcome, a slot one path, an order number one record."""
    for path, stored in [*run.folder.steps.items(), *_attempt_paths(run)]:
        if stored.body["path"] != path:
            yield Violation("broken", run.name, f"{stored.name} says it is {stored.body['path']!r}")
    for slot, times in Counter(r.slot for r in run.records).items():
        if times > 1:
            paths = [r.path for r in run.records if r.slot == slot]
            yield Violation("changed", run.name, f"slot {slot} is recorded at {paths}")
    orders = [(stored.body["epoch"], stored.body["n"]) for stored in run.folder.steps.values()]
    for place, times in Counter(orders).items():
        if times > 1:
            yield Violation("broken", run.name, f"{times} records have the order number {place}")


def records_are_as_expected(_: Case, run: Run) -> Iterable[Violation]:
    """Each call of the workflow, and no other, has an outcome of the right kind."""
    want = run.expected
    for slot in (want.values.keys() | want.errors.keys()) - run.by_slot.keys():
        yield Violation("lost", run.name, f"slot {slot} has no record")
    for slot, record in run.by_slot.items():
        kind = "error" if slot in want.errors else "value"
        known = slot in want.values or slot in want.errors or slot in want.optional
        if not known or record.outcome != kind:
            yield Violation(
                "changed", run.name, f"{record.path}: unexpected {record.outcome} {slot}"
            )
    tried = Counter(record.slot for record in run.failures)
    for slot, failures in (want.values | want.errors).items():
        if tried[slot] != failures:
            text = f"slot {slot}: {tried[slot]} failed attempts are recorded, not {failures}"
            yield Violation("changed", run.name, text)


def records_are_what_bodies_returned(_: Case, run: Run) -> Iterable[Violation]:
    """Nothing is recorded that no body returned, in that epoch and at that attempt."""
    returned = {body.token: body for body in run.bodies}
    for record in [*run.records, *run.failures]:
        body = returned.get(record.token)
        if body is None:
            yield Violation("changed", run.name, f"{record.path}: no body returned {record.token}")
            continue
        said = (body.slot, body.outcome, body.epoch, body.attempt)
        if said != (record.slot, record.outcome, record.epoch, record.attempt):
            yield Violation("changed", run.name, f"{record.path}: recorded {record}, ran {body}")
        if body.at > record.created + TICK:
            yield Violation("broken", run.name, f"{record.path} was recorded before its body ended")


def keys_name_calls(_: Case, run: Run) -> Iterable[Violation]:
    """An idempotency key is the same for all executions of a call, and no other call has it."""
    pairs = {(body.slot, body.key) for body in run.bodies}
    for what, times in Counter(slot for slot, _ in pairs).items():
        if times > 1:
            yield Violation("broken", run.name, f"slot {what} was run under {times} keys")
    for what, times in Counter(key for _, key in pairs).items():
        if times > 1:
            yield Violation("broken", run.name, f"{times} slots share the key {what}")


# -- what workflows received ----------------------------------------------------------------------


def received_is_recorded(_: Case, run: Run) -> Iterable[Violation]:
    """P1: whatever any execution was handed equals the record."""
    for epoch, lines in run.received.items():
        for line in lines:
            record = run.by_slot.get(line.slot)
            given = (line.token, line.outcome, line.proof)
            if record is None:
                yield Violation(
                    "changed", run.name, f"epoch {epoch} received {line.slot}: no record"
                )
            elif given != (record.token, record.outcome, record.proof):
                text = f"epoch {epoch} received {given} for {line.slot}, recorded is {record}"
                yield Violation("changed", run.name, text)


def executions_agree(case: Case, run: Run) -> Iterable[Violation]:
    """S9: of any two executions, one received the beginning of what the other received."""
    longest: list[str] = []
    for epoch, lines in sorted(run.received.items()):
        if [line.index for line in lines] != list(range(len(lines))):
            yield Violation("broken", run.name, f"epoch {epoch}: lines missing or out of order")
        if case.is_suspect(run, epoch):
            continue
        slots = [line.slot for line in lines]
        common = min(len(slots), len(longest))
        if slots[:common] != longest[:common]:
            text = f"epoch {epoch} received {slots}, an earlier one {longest}"
            yield Violation("changed", run.name, text)
        longest = max(longest, slots, key=len)


def received_in_the_right_order(case: Case, run: Run) -> Iterable[Violation]:
    """The order is the one that the code, or the record, prescribes."""
    suspect = any(case.is_suspect(run, epoch) for epoch in run.entered)
    for epoch, lines in run.received.items():
        slots = [line.slot for line in lines]
        order = run.expected.order
        if order is not None and tuple(slots) != order[: len(slots)]:
            yield Violation("changed", run.name, f"epoch {epoch} received {slots}, not {order}")
        if not run.expected.in_record_order or suspect or not run.by_slot.keys() >= set(slots):
            continue
        recorded = [(run.by_slot[slot].epoch, run.by_slot[slot].n) for slot in slots]
        if recorded != sorted(recorded):
            text = f"epoch {epoch} received {slots} in the order {recorded} of the records"
            yield Violation("changed", run.name, text)


# -- outcomes -------------------------------------------------------------------------------------


def each_run_ends_once(case: Case, run: Run) -> Iterable[Violation]:
    """P2, P4: one instance, one result of the right kind, one entry in the history."""
    if len(run.folder.instances) > 1 or run.folder.start is None:
        yield Violation("broken", run.name, f"instances {run.folder.instances}, not one")
    for name in run.folder.strangers:
        yield Violation("broken", run.name, f"{name} does not belong there")
    if run.result is None:
        yield Violation("lost", run.name, f"it has {len(run.folder.results)} results")
        return
    status = "failed" if run.expected.fails else "completed"
    entries = [e for e in case.evidence.under("history/") if e.body["run"] == run.name]
    if [run.result["status"], *(e.body["status"] for e in entries)] != [status, status]:
        text = f"{status} expected: result {run.result['status']}, history {entries}"
        yield Violation("lost", run.name, text)


def results_follow_from_records(_: Case, run: Run) -> Iterable[Violation]:
    """The result says what the recorded outcomes imply, in the order that its epoch received."""
    result = run.result
    if result is None:
        return
    if run.expected.fails:
        record = run.by_slot.get(run.expected.fails)
        message = result.get("failure", {}).get("message", "")
        if record is None or message.split()[1:] != [record.slot, record.token]:
            yield Violation("changed", run.name, f"failed with {message!r}, recorded is {record}")
        return
    told = [(seen["slot"], seen["token"]) for seen in result.get("value", [])]
    lines = run.received[result["epoch"]]
    if told != [(line.slot, line.token) for line in lines]:
        yield Violation("changed", run.name, f"the result is {told}, its epoch received {lines}")
    needed = run.expected.values.keys() | run.expected.errors.keys()
    slots = [slot for slot, _ in told]
    pairs = [pair for pair in run.expected.either if (pair[0] in slots) == (pair[1] in slots)]
    if pairs or not needed <= set(slots) or len(slots) != len(set(slots)):
        yield Violation("changed", run.name, f"the result has {slots}, needed are {needed} {pairs}")


# -- owners ---------------------------------------------------------------------------------------


def epochs_rise(case: Case, run: Run) -> Iterable[Violation]:
    """S3: numbers without gaps, in the order of time, one process each."""
    claims = sorted(run.folder.epochs.items())
    if [number for number, _ in claims] != list(range(2, len(claims) + 2)):
        yield Violation("broken", run.name, f"epochs {[number for number, _ in claims]}")
    times = [stored.created for _, stored in claims]
    if times != sorted(times):
        yield Violation("broken", run.name, f"epochs were claimed at {times}")
    for number, stored in claims:
        if stored.body["epoch"] != number:
            yield Violation("broken", run.name, f"{stored.name} is {stored.body['epoch']}")
    for epoch, lines in run.entered.items():
        if len(lines) > 1 or epoch not in {1, *run.folder.epochs}:
            yield Violation("broken", run.name, f"epoch {epoch} was executed by {lines}")
    for body in run.bodies:
        owners = {enter.process for enter in run.entered[body.epoch]}
        if owners != {body.process}:
            yield Violation("broken", run.name, f"{body} ran in an epoch of {owners}")


def nothing_recorded_runs_again(case: Case, run: Run) -> Iterable[Violation]:
    """No body runs under a later epoch than its record's, once that epoch could know of it.

    An owner that was only stopped may write late, and what a dead one had sent may land late;
    then the list's summary in the epoch's claim tells what was known. Otherwise an owner has
    written all it ever will before the next one lists.
    """
    for body in run.bodies:
        record = run.by_slot.get(body.slot)
        if record is None or record.epoch >= body.epoch:
            continue
        claim = run.folder.epochs.get(body.epoch)
        known = claim is not None and saw(claim.body, record)
        if known or not case.may_be_late(run, record):
            text = f"{record.path} was recorded in epoch {record.epoch} and ran again: {body}"
            yield Violation("repeated", run.name, text)


def repetitions_have_reasons(case: Case, run: Run) -> Iterable[Violation]:
    """T4: a body whose outcome is not recorded was in flight when its owner died or lost hold."""
    for body in run.bodies:
        if body.token in run.recorded_tokens or case.was_beaten(run, body):
            continue
        if body.slot in run.expected.optional:
            continue  # a decision closed its branch
        process = case.story.processes[body.process]
        fenced = case.fenced_at(run, body.epoch)
        ends = [process.killed] if process.killed else []
        if fenced is not None:  # before that it was stopped, or starved
            ends += [fenced, *(stop for stop in process.stops if stop < fenced)]
        if not any(body.at > end - IN_FLIGHT for end in ends):
            text = f"{body} left no record, and had no reason to"
            yield Violation("repeated", run.name, text)


def attempts_follow_failures(_: Case, run: Run) -> Iterable[Violation]:
    """S17: attempt n runs only after attempt n - 1 has been recorded as failed."""
    failed = {(record.slot, record.attempt): record for record in run.failures}
    for body in run.bodies:
        before = failed.get((body.slot, body.attempt - 1))
        if body.attempt > 1 and (before is None or before.created > body.began):
            yield Violation("broken", run.name, f"{body} ran before attempt {body.attempt - 1}")


RUN_RULES: list[Callable[[Case, Run], Iterable[Violation]]] = [
    one_record_for_each_call,
    records_are_as_expected,
    records_are_what_bodies_returned,
    keys_name_calls,
    received_is_recorded,
    executions_agree,
    received_in_the_right_order,
    each_run_ends_once,
    results_follow_from_records,
    epochs_rise,
    nothing_recorded_runs_again,
    repetitions_have_reasons,
    attempts_follow_failures,
]


def _attempt_paths(run: Run) -> Iterator[tuple[str, Object]]:
    for (path, _), stored in run.folder.attempts.items():
        yield path, stored
