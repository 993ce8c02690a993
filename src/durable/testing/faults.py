"""Faults of the store on demand: which calls, and what becomes of them.

    faults = Faults()
    faults.lose_reply("create", "*/steps/charge.1")
    faults.delay("5s", "read", times=3)

They are those of `durable.store.memory.Fault`; a real bucket shows each of them sooner or later.
"""

from __future__ import annotations

import math
import threading
from datetime import timedelta
from fnmatch import fnmatchcase
from typing import Literal, get_args

from durable.errors import UsageError
from durable.protocol import durations
from durable.store.memory import Call, Fault, Verb

AnyVerb = Literal["create", "replace", "read", "list", "delete", "write", "any"]

_WRITES = {"create", "replace", "delete"}


class Planned:
    """A fault that waits for its calls.

    Attributes:
        hits: (verb, name) of the calls that it has met.
    """

    def __init__(self, fault: Fault, verb: AnyVerb, name: str, times: float) -> None:
        if verb not in get_args(AnyVerb):
            raise UsageError(
                f"{verb!r} is no call of a store", hint=f"one of {', '.join(get_args(AnyVerb))}"
            )
        if not times >= 1:
            raise UsageError(f"times={times}: a fault happens at least once")
        self.hits: list[tuple[Verb, str]] = []
        self._fault = fault
        self._verb = verb
        self._name = name
        self._left = times

    def __repr__(self) -> str:
        return f"<fault {self._fault.kind} of {self._verb} {self._name!r}, hits: {len(self.hits)}>"

    def meets(self, call: Call) -> Fault | None:
        """What happens to this call; None: nothing by this fault."""
        fits = self._verb in ("any", call.verb) or (self._verb == "write" and call.verb in _WRITES)
        if self._left < 1 or not fits or not fnmatchcase(call.name, self._name):
            return None
        self._left -= 1
        self.hits.append((call.verb, call.name))
        return self._fault


class Faults:
    """What is to happen to calls of a store; give it to a `MemoryBackend` as `faults`.

    Every method takes the verb (`create`, `replace`, `read`, `list`, `delete`, `write` for any
    of the three that change something, or `any`), a pattern of object names as of the shell, and
    how many calls it happens to. The first planned fault that fits a call decides.
    """

    def __init__(self) -> None:
        self._planned: list[Planned] = []
        self._lock = threading.Lock()

    def __call__(self, call: Call) -> Fault | None:
        with self._lock:
            for planned in self._planned:
                fault = planned.meets(call)
                if fault is not None:
                    return fault
        return None

    def fail(self, verb: AnyVerb = "any", name: str = "*", *, times: float = 1) -> Planned:
        """It does not reach the store, and there is no answer. `math.inf` times is an outage."""
        return self.plan(Fault("unsent"), verb, name, times=times)

    def lose_reply(self, verb: AnyVerb = "write", name: str = "*", *, times: float = 1) -> Planned:
        """It is carried out, and the answer is lost."""
        return self.plan(Fault("reply_lost"), verb, name, times=times)

    def delay(
        self,
        by: float | str | timedelta,
        verb: AnyVerb = "any",
        name: str = "*",
        *,
        times: float = 1,
    ) -> Planned:
        """It is carried out so much later."""
        fault = Fault("delayed", seconds=durations.seconds(by))
        return self.plan(fault, verb, name, times=times)

    def double(self, verb: AnyVerb = "write", name: str = "*", *, times: float = 1) -> Planned:
        """It is carried out twice; the answer is that to the second."""
        return self.plan(Fault("twice"), verb, name, times=times)

    def refuse(self, verb: AnyVerb = "any", name: str = "*", *, times: float = 1) -> Planned:
        """The store says no for good, as for want of a permission."""
        return self.plan(Fault("refused"), verb, name, times=times)

    def outage(self) -> Planned:
        """Nothing is answered until `clear()`."""
        return self.fail(times=math.inf)

    def plan(
        self, fault: Fault, verb: AnyVerb = "any", name: str = "*", *, times: float = 1
    ) -> Planned:
        """Any other fault that the memory store knows."""
        planned = Planned(fault, verb, name, times)
        with self._lock:
            self._planned.append(planned)
        return planned

    def clear(self) -> None:
        """From now on all is well."""
        with self._lock:
            self._planned.clear()
