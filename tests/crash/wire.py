"""What goes wrong between the workers and the bucket: at random, by seed, a second or two each."""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Callable
from typing import Any

import anyio

FAULTS = "/_durable/faults"
OUTAGE = "/_durable/outage"
OUTAGE_SECONDS = 1.0
GAP = (0.4, 1.4)  # seconds between the beginnings of two faults
LENGTH = (0.4, 1.2)  # seconds that one lasts
DELAY = (0.05, 0.8)  # seconds until what is late is carried out
RESTARTED = "restarted"  # the server is gone for a second, with all connections
LATENCY = "delayed"  # always: each call takes 10 to 20 ms
REFUSED = "refused"  # 503 or 429, not carried out
LOST_BEFORE = "unsent"  # the connection is reset, and nothing was carried out
LOST_AFTER = "reply_lost"  # the connection is reset, but it was carried out
LIED = "reply_replaced"  # 503, but it was carried out
LATE = "late"  # the connection is reset, and it is carried out later, maybe after a repetition
TWICE = "twice"  # carried out twice, and the second answer is the one that is heard
KINDS = (REFUSED, LOST_BEFORE, LOST_AFTER, LIED, LATE, TWICE, RESTARTED)

Ask = Callable[[str, str, object], bytes | None]


class WireFaults:
    """Faults of a strict server, made through its own endpoints.

    Args:
        ask: sends a request to the server.
        chance: decides what happens when.
    """

    def __init__(self, ask: Ask, chance: random.Random) -> None:
        self._ask = ask
        self._chance = chance
        self._struck = Counter(dict.fromkeys(KINDS, 0))

    async def strike(self) -> None:
        """One after the other, each kind as often as the others, until this is cancelled."""
        self._ask("POST", FAULTS, self._latency())
        while True:
            kinds = list(KINDS)
            self._chance.shuffle(kinds)
            for kind in kinds:
                await anyio.sleep(self._chance.uniform(*GAP))  # real: workers get on
                if kind == RESTARTED:
                    self._ask("POST", OUTAGE, {"seconds": OUTAGE_SECONDS})
                    self._struck[RESTARTED] += 1
                else:
                    self._ask("POST", FAULTS, self._fault(kind))

    def calm(self) -> dict[str, int]:
        """Nothing but latency any more. Returns how often each kind has struck so far."""
        report = self._ask("GET", FAULTS, None)
        self._ask("DELETE", FAULTS, None)
        for rule in json.loads(report or b"[]"):
            if rule["fault"]["kind"] != LATENCY:
                self._struck[rule["fault"]["kind"]] += rule["struck"]
        self._ask("POST", FAULTS, self._latency())
        return dict(self._struck)

    def end(self) -> None:
        """No faults and no latency."""
        self._ask("DELETE", FAULTS, None)

    def _fault(self, kind: str) -> dict[str, Any]:
        late = {"seconds": self._chance.uniform(*DELAY)} if kind == LATE else {}
        return late | {
            "kind": kind,
            "verb": "" if kind == REFUSED else "mutations",
            "status": self._chance.choice([503, 503, 500, 429]) if kind == REFUSED else 503,
            "share": self._chance.choice([0.3, 0.6, 1.0]),
            "seed": self._chance.randrange(10**6),
            "end": self._chance.uniform(*LENGTH),
        }

    def _latency(self) -> list[dict[str, Any]]:
        """10 ms, and for some calls up to 10 ms more, in two steps that chance adds up."""
        return [
            {"kind": LATENCY, "seconds": 0.010},
            {"kind": LATENCY, "seconds": 0.004, "share": 0.5, "seed": 1},
            {"kind": LATENCY, "seconds": 0.006, "share": 0.5, "seed": 2},
        ]
