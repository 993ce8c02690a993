"""The cost table of the documentation: what each thing that durable does asks of a bucket.

Every count is exact, and by verb, as the log of the strict server has it: a row is all requests
between two moments, and by the clock jitter is at its mean.
"""

from __future__ import annotations

from typing import Any

import pytest

from benchmarks import billing, workloads
from tests.runtime.clocks import BACKENDS, virtual

pytestmark = pytest.mark.anyio


class TestOverSockets:
    """Every request between two moments of a program, or all that are about its run."""

    async def test_a_start_is_two_creates_and_a_bell(self) -> None:
        """Marker, `start` and the bell; a bell that rings already is refused, which is free.

        Before, once in a process, the bucket's settings are read.
        """
        assert await billing.starting() == {
            "a process's first start or run: its look at the bucket": {"buckets.get": 1},
            "start from a client, idle system": {"insert": 3},
            "start from a client, the bell rings": {"insert": 2, "insert 4xx": 1},
        }

    async def test_a_run_in_one_process_costs_its_facts(self) -> None:
        """Two creates to start, one a step, one more a failed attempt, two to finish; no reads.

        At-most-once is a create before the body, undo one before the call.
        """
        assert await billing.running() == {
            "start and run in one process": {"insert": 2},
            "a step that succeeds": {"insert": 1},
            "an at-most-once step": {"insert": 2},
            "a step with undo": {"insert": 2},
            "a failed attempt": {"insert": 1},
            "finishing": {"insert": 2, "delete": 1},
        }

    async def test_a_worker_picks_a_run_up_with_a_swap_and_a_list(self) -> None:
        """The marker is swapped and the run's folder listed; nothing is read."""
        assert await billing.picking_up() == {"a worker picks up a run": {"insert": 1, "list": 1}}

    async def test_waiting_for_a_result_is_free(self) -> None:
        """A look asks for the outcome and for an attention hint, and neither is there."""
        assert await billing.waiting() == {"waiting for a result elsewhere, a look": {"get 4xx": 2}}

    async def test_one_list_reads_a_run(self) -> None:
        """Small records come with the list, whatever their number; nothing else is read."""
        assert await billing.reading() == {"reading the 40 steps of a run": {"list": 1}}


class TestByTheClock:
    """Every request of so long, without sockets, on a virtual clock."""

    @pytest.fixture(params=BACKENDS)
    def anyio_backend(self, request: pytest.FixtureRequest) -> Any:
        return virtual(request.param)

    @pytest.mark.parametrize("runs", [1, 50])
    async def test_a_lease_costs_one_write_a_period_whatever_it_stands_for(self, runs: int) -> None:
        """One run or fifty, a process that runs its own asks for nothing else that is billed."""
        rows = await billing.holding(runs)

        mine = rows["a process that holds its own runs, per ttl/3"]
        assert (mine.a, mine.b) == (1, 0)
        assert rows["a worker that holds runs, per ttl/3: lease"] == {"insert": 1}

    async def test_a_full_worker_lists_no_more_than_an_idle_one(self) -> None:
        """Beyond the renewal of its lease, whatever it holds: presence and the slow lists."""
        rows = await billing.holding(50)

        assert rows["a worker that holds runs, per ttl/3: all"] == {
            "insert": 100 / 90, "list": 33 / 90, "get 4xx": 7,
        }  # fmt: skip

    async def test_an_idle_worker_costs_four_calls_a_minute(self) -> None:
        """Presence, queue, hints with leases in one list; polls of absent bells are free."""
        assert await billing.idling() == {
            "an idle worker, per minute": {"insert": 1, "list": 195 / 60, "get 4xx": 63}
        }

    async def test_an_idle_worker_reads_its_neighbours_lease(self) -> None:
        """The lease of each worker that holds runs, about once a ttl."""
        assert await billing.watching() == {
            "an idle worker's looks at a neighbour, per ttl": {"get": 202 / 180}
        }

    async def test_a_parked_run_costs_nothing(self) -> None:
        """A worker beside runs that sleep, wait or need a human asks for no more than without."""
        assert await billing.parking() == {
            "a parked run, per minute": {},
            "an idle worker beside 60 parked runs, per minute": {
                "insert": 1,
                "list": 196 / 60,
                "get 4xx": 63,
            },
        }

    async def test_a_lone_run_costs_what_its_bell_stirs_up(self) -> None:
        """Start, lists while the bell rings, lease, facts and clean-up of one run of one step."""
        [told] = (await billing.waking()).values()

        # 3 writes to start, 4 of the run itself and 1 for the lease, and its renewals until it is
        # given up after a ttl: two or three, since the third is due at that very moment, and the
        # event loops differ in which of the two goes first.
        assert told.pop("insert") in (3 + 4 + 1 + 2, 3 + 4 + 1 + 3)
        assert told == {"list": 7, "get": 2, "delete": 3, "get 4xx": 41}

    async def test_a_long_sleep_is_six_writes_and_two_lists(self) -> None:
        """Wait, timer; marker, bell, swap; epoch. Timers are listed when due, the run once more.

        All told the bell stirs up lists, and the worker takes its lease again and renews it.
        """
        assert await billing.sleeping_long() == {
            "a long sleep, parked and woken": {
                "insert": 6, "list": 2, "get": 3, "delete": 3, "get 4xx": 4, "delete 4xx": 1,
            },
            "a long sleep, parked and woken, all told": {
                "insert": 9, "list": 5, "get": 3, "delete": 4, "get 4xx": 2, "delete 4xx": 1,
            },
        }  # fmt: skip

    async def test_an_event_wait_is_eight_writes_and_a_list(self) -> None:
        """Wait, hint; event, marker, bell, swap; epoch, `takes/1`. The run is listed once more."""
        assert await billing.asking_long() == {
            "an event wait, parked and woken": {
                "insert": 8, "list": 1, "get": 4, "delete": 3, "get 4xx": 4,
            },
            "an event wait, parked and woken, all told": {
                "insert": 11, "list": 3, "get": 4, "delete": 4, "get 4xx": 2,
            },
        }  # fmt: skip

    async def test_an_approval_after_a_month_costs_no_more_than_one_after_a_minute(self) -> None:
        """Two workers' lifetimes, a month between them: what is asked about the run itself."""
        assert await workloads.approved() == {
            "insert": 12, "list": 2, "get": 3, "delete": 3, "get 4xx": 4,
        }  # fmt: skip
