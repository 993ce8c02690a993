"""Testing workflows: virtual time, stubs, faults, and a crash at every call of the store.

    from durable.testing import crash_at_every_call, environment, run

- `run(workflow, *args)`: to its end, in no time;
- `environment()`: a client, a worker and a clock for one test, async or sync;
- `assert_replays(files)`: whether today's code goes on with runs that were exported;
- `crash_at_every_call(workflow, *args)`: once for each call of the store, with a crash there;
- `Faults`: what goes wrong with the store, on demand.

`durable.testing.gcs` is a strict server of Google's API; the rest is for durable's own tests.
"""

from __future__ import annotations

from durable.testing.crashing import CrashReport as CrashReport
from durable.testing.crashing import crash_at_every_call as crash_at_every_call
from durable.testing.environment import BlockingEnvironment as BlockingEnvironment
from durable.testing.environment import Environment as Environment
from durable.testing.environment import environment as environment
from durable.testing.environment import run as run
from durable.testing.faults import Faults as Faults
from durable.testing.hosting import Stuck as Stuck
from durable.testing.judging import CrashTestFailed as CrashTestFailed
from durable.testing.replays import assert_replays as assert_replays
from durable.testing.stubs import Stub as Stub
from durable.testing.stubs import StubCall as StubCall

__all__ = [
    "BlockingEnvironment",
    "CrashReport",
    "CrashTestFailed",
    "Environment",
    "Faults",
    "Stub",
    "StubCall",
    "Stuck",
    "assert_replays",
    "crash_at_every_call",
    "environment",
    "run",
]
