"""The machine underneath: its clocks and its chance. The only reader of either.

Everything above takes a `System`, so that tests and the simulator own time and chance.
"""

from __future__ import annotations

import os
import random
import secrets
import socket
import threading
import time
from collections.abc import Callable
from functools import partial

import msgspec

# CLOCK_BOOTTIME counts suspend, CLOCK_MONOTONIC on Linux does not; on macOS CLOCK_MONOTONIC does.
_BOOT_CLOCK = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


_boot_seconds: Callable[[], float] = partial(time.clock_gettime, _BOOT_CLOCK)


_TOKENS_AT_ONCE = 64
_TOKEN_LENGTH = 16  # characters: 12 bytes
_tokens: list[str] = []


def _token() -> str:
    # Drawn in batches: each question to the system for chance lets another thread have the
    # processor, and a step needs a token. Each list operation here is one, whatever threads do.
    try:
        return _tokens.pop()
    except IndexError:
        text = secrets.token_urlsafe(12 * (_TOKENS_AT_ONCE + 1))
        drawn = [text[at : at + _TOKEN_LENGTH] for at in range(0, len(text), _TOKEN_LENGTH)]
        token = drawn.pop()
        _tokens.extend(drawn)
        return token


if hasattr(os, "register_at_fork"):  # not on Windows
    os.register_at_fork(after_in_child=_tokens.clear)  # parent and child must never share one


class System(msgspec.Struct, frozen=True):
    """Clocks and chance of one process.

    Attributes:
        boot: seconds on a clock that never jumps and counts suspend; differences only.
        wall: seconds since the epoch, UTC, as this machine believes it. Never compared with
            another machine's.
        token: a fresh random string of 96 bits, URL-safe.
        uniform: a random float between two bounds, for jitter.
    """

    boot: Callable[[], float] = _boot_seconds
    wall: Callable[[], float] = time.time
    token: Callable[[], str] = _token
    uniform: Callable[[float, float], float] = random.uniform


def boot_id() -> str:
    """An id of this boot of the machine; another value after a reboot."""
    try:
        with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
            return file.read().strip()
    except OSError:
        # macOS and others: the moment of boot, to the minute, tells one boot from the next.
        return f"boot-{round((time.time() - _boot_seconds()) / 60)}"


def process_id() -> int:
    """This process's id, for people."""
    return os.getpid()


def cores() -> int:
    """How many things this machine computes at once."""
    return os.cpu_count() or 1


def label() -> str:
    """A name for people: host and process id. Never compared to decide anything."""
    return f"{socket.gethostname()}:{os.getpid()}"


def always_park() -> bool:
    """Whether a whole test run is made in the mode in which every wait parks its run."""
    return os.environ.get("DURABLE_ALWAYS_PARK") == "1"


def watches(*, usually: bool = False) -> bool:
    """Whether to warn of what workflows do that is not repeatable, as far as that has a price."""
    return os.environ.get("DURABLE_WATCH", "1" if usually else "0") == "1"


def thread_id() -> int:
    """The identity of the calling thread."""
    return threading.get_ident()
