"""The cost table of the documentation: what each thing that durable does asks of a bucket."""

from __future__ import annotations

from typing import Any

import pytest

from benchmarks import billing, workloads
from benchmarks.billing import Count
from tests.runtime.clocks import BACKENDS, virtual

pytestmark = pytest.mark.anyio


class TestAtTheServer:
    """Counted at the HTTP server, every call between two moments."""

    async def test_a_start_is_two_creates_and_a_bell(self) -> None:
        """Marker, `start` and the bell; a bell that rings already is refused, which is free.

        Before, once in a process, the bucket's settings are read.
        """
        assert await billing.starting() == {
            "a process's first start or run: its look at the bucket": Count(b=1),
            "start from a client, idle system": Count(a=3),
            "start from a client, the bell rings": Count(a=2, unbilled=1),
        }

    async def test_a_run_in_one_process_costs_its_facts(self) -> None:
        """Two creates to start, one a step, one more a failed attempt, two to finish; no reads."""
        assert await billing.running() == {
            "start and run in one process": Count(a=2),
            "a step that succeeds": Count(a=1),
            "a failed attempt": Count(a=1),
            "finishing": Count(a=2, free=1),
        }

    async def test_a_worker_picks_a_run_up_with_a_swap_and_a_list(self) -> None:
        """The marker is swapped and the run's folder listed; nothing is read."""
        assert await billing.picking_up() == {"a worker picks up a run": Count(a=2)}

    async def test_waiting_for_a_result_is_free(self) -> None:
        """A look asks for the outcome and for an attention hint, and neither is there."""
        assert await billing.waiting() == {
            "waiting for a result elsewhere, a look": Count(unbilled=2)
        }

    async def test_one_list_reads_a_run(self) -> None:
        """Small records come with the list, whatever their number; nothing else is read."""
        assert await billing.reading() == {"reading the 20 steps of a run": Count(a=1)}


class TestByTheClock:
    """Counted at a bucket in memory, on a virtual clock."""

    @pytest.fixture(params=BACKENDS)
    def anyio_backend(self, request: pytest.FixtureRequest) -> Any:
        return virtual(request.param)

    @pytest.mark.parametrize("runs", [1, 50])
    async def test_a_lease_costs_one_write_a_period_whatever_it_stands_for(self, runs: int) -> None:
        """One run or fifty, a process that runs its own asks for nothing else that is billed."""
        rows = await billing.holding(runs)

        mine = rows["a process that holds its own runs, per ttl/3"]
        assert (mine.a, mine.b) == (1, 0)
        assert rows["a worker that holds runs, per ttl/3: lease"] == Count(a=1)

    async def test_a_full_worker_lists_no_more_than_an_idle_one(self) -> None:
        """Beyond the renewal of its lease, whatever it holds: presence and the slow lists."""
        rows = await billing.holding(50)

        everything = rows["a worker that holds runs, per ttl/3: all"]
        assert 1.3 <= everything.a <= 1.6
        assert everything.b == 0

    async def test_an_idle_worker_costs_four_calls_a_minute(self) -> None:
        """Presence, queue, hints with leases in one list; polls of absent bells are free."""
        [idle] = (await billing.idling()).values()

        assert 4.0 <= idle.a <= 4.5
        assert idle.b == 0
        assert 55 <= idle.unbilled <= 65

    async def test_a_parked_run_costs_nothing(self) -> None:
        """A worker beside runs that wait for a human asks for no more than one without."""
        [beside] = (await billing.parking()).values()

        assert 4.0 <= beside.a <= 4.5
        assert beside.b == 0

    async def test_a_lone_run_costs_what_its_bell_stirs_up(self) -> None:
        """Start, lists while the bell rings, lease, facts and clean-up of one run of one step."""
        [told] = (await billing.waking()).values()

        # 3 to start, 6 of the run itself and 1 for the lease; its renewals until it is given up,
        # one to four, and two lists at each of two or three looks while the bell hangs; each look
        # reads the lease of whoever holds the run by then. Of 100 jitters one comes to 20.
        assert 15 <= told.a <= 20
        assert told.b <= 5

    async def test_an_approval_after_a_month_costs_no_more_than_one_after_a_minute(self) -> None:
        """Two workers' lifetimes, a month between them: what is asked about the run itself."""
        told = await workloads.approved()

        assert 12 <= told.a <= 15
        assert told.b <= 5
