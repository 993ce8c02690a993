"""Object names of runs, workers and hints: built and parsed here and nowhere else.

Those of users' own claims, documents and leases are in `durable.protocol.primitives`.

Whatever a user may type (run ids, queue names, step names, keys) is percent-encoded one-to-one
before it becomes part of a name, so two ids never share an object and none leaves its folder.
All names are relative to the store's prefix.
"""

from __future__ import annotations

import functools
import hashlib
from typing import NamedTuple
from urllib.parse import quote, unquote

from durable.errors import InvalidId

ID_BYTES_MAX = 200  # after encoding; leaves room under GCS's 1,024 bytes for the rest of a name
HASH_DIGITS = 8  # hexadecimal
SCOPE_BYTES_MAX = 300  # longer scope paths become a hash; the full path is in the record


@functools.lru_cache(maxsize=4096)  # the same run ids and step names come again and again
def encode_part(text: str, *, safe: str = ".") -> str:
    """One user-made part of an object name, percent-encoded one-to-one."""
    return quote(text, safe=safe)


def check_id(text: str, *, what: str = "run id") -> str:
    """The encoded form of an id.

    Raises:
        InvalidId: it is empty, `.`, `..`, over 200 bytes once encoded, or has control characters.
    """
    if not isinstance(text, str):
        raise InvalidId(f"the {what} must be a string, not {type(text).__name__}")
    if not text:
        raise InvalidId(f"the {what} is empty")
    if text in {".", ".."}:
        raise InvalidId(f"{text!r} cannot be a {what}")
    if any(ord(c) < 32 or 127 <= ord(c) < 160 for c in text):
        raise InvalidId(f"the {what} {text!r} has control characters")
    try:
        encoded = encode_part(text)
    except UnicodeEncodeError as e:
        raise InvalidId(f"the {what} {text!r} is not valid Unicode") from e
    if len(encoded) > ID_BYTES_MAX:
        raise InvalidId(
            f"the {what} {text[:40]!r}... takes {len(encoded)} bytes once encoded; "
            f"at most {ID_BYTES_MAX} fit"
        )
    return encoded


def run_hash(run: str) -> str:
    """First 8 hex digits of SHA-256 of the run id: spreads markers over the key space."""
    return hashlib.sha256(run.encode()).hexdigest()[:HASH_DIGITS]


# -- a run's folder ------------------------------------------------------------------------------


def run_folder(run: str) -> str:
    return f"runs/{encode_part(run)}/"


def start(run: str) -> str:
    # Instances are hex, so `start` sorts after them: a list of the folder reads it last,
    # which is the order that deciding from facts asks for.
    return f"{run_folder(run)}start"


def instance_folder(run: str, instance: str) -> str:
    return f"{run_folder(run)}{instance}/"


def step(run: str, instance: str, path: str) -> str:
    return step_in(instance_folder(run, instance), path)


def step_in(folder: str, path: str) -> str:
    """As `step`, in the folder of an instance."""
    return f"{folder}steps/{path_part(path)}"


def group(run: str, instance: str, k: int) -> str:
    return f"{instance_folder(run, instance)}groups/{k}"


def attempt(run: str, instance: str, path: str, number: int) -> str:
    return f"{instance_folder(run, instance)}attempts/{path_part(path)}/{number}"


def begin(run: str, instance: str, path: str, number: int) -> str:
    return f"{instance_folder(run, instance)}starts/{path_part(path)}/{number}"


def beat(run: str, instance: str, path: str, number: int) -> str:
    return f"{instance_folder(run, instance)}beats/{path_part(path)}/{number}"


def state_folder(run: str, instance: str) -> str:
    return f"{instance_folder(run, instance)}state/"


def state(run: str, instance: str, name: str, number: int) -> str:
    return f"{state_folder(run, instance)}{encode_part(name)}/{number}"


def undo(run: str, instance: str, path: str) -> str:
    return f"{instance_folder(run, instance)}undo/{path_part(path)}"


def epoch(run: str, instance: str, number: int) -> str:
    return f"{instance_folder(run, instance)}epochs/{number}"


def cancel(run: str, instance: str) -> str:
    return f"{instance_folder(run, instance)}cancel"


def result(run: str, instance: str) -> str:
    return f"{instance_folder(run, instance)}result"


def wait(run: str, instance: str, path: str) -> str:
    return f"{instance_folder(run, instance)}waits/{path_part(path)}"


def take(run: str, instance: str, k: int) -> str:
    return f"{instance_folder(run, instance)}takes/{k}"


def events_folder(run: str, instance: str) -> str:
    return f"{instance_folder(run, instance)}events/"


def event(run: str, instance: str, name: str, key: str) -> str:
    return f"{events_folder(run, instance)}{encode_part(name)}/{encode_part(key)}"


def parse_event(rest: str) -> tuple[str, str]:
    """Name and key of the event whose object's name ends `events/<rest>`."""
    name, _, key = rest.partition("/")
    return unquote(name), unquote(key)


def path_part(path: str) -> str:
    """A call's path as it stands in names: long scopes are hashed, the last part is kept."""
    if len(path) <= SCOPE_BYTES_MAX:
        return path
    digest = hashlib.sha256(path.encode()).hexdigest()[:32]
    last = path.rsplit("/", 1)[-1]
    return f"~{digest}/{last}" if len(last) <= SCOPE_BYTES_MAX else f"~{digest}"


class Fact(NamedTuple):
    """What an object of a run's folder is: its instance, its kind and the rest of its name."""

    instance: str
    kind: str
    rest: str


def parse_fact(run: str, name: str) -> Fact | None:
    """The fact an object of this run's folder holds; None for `start` and for strangers."""
    folder = run_folder(run)
    if not name.startswith(folder):
        return None
    parts = name[len(folder) :].split("/", 2)
    if len(parts) < 2:
        return None
    return Fact(parts[0], parts[1], parts[2] if len(parts) == 3 else "")


# -- hints and registers -------------------------------------------------------------------------


LIVE = "live/"


def marker_folder(queue: str) -> str:
    return f"{LIVE}{encode_part(queue)}/"


def marker(queue: str, run: str) -> str:
    return f"{marker_folder(queue)}{run_hash(run)}-{encode_part(run)}"


def marker_run(name: str) -> str | None:
    """The run id in a marker's name; None if it is not the name of one."""
    digits, dash, run = name.rsplit("/", 1)[-1].partition("-")
    return unquote(run) if dash and digits == run_hash(unquote(run)) else None


def markers_between(queue: str, place: int, places: int) -> tuple[str, str]:
    """Where the part of a queue's markers starts and ends that has this place, from 0.

    The parts are equal ranges of hashes; an empty name is no bound.
    """
    folder, hashes = marker_folder(queue), 16**HASH_DIGITS
    first, end = (f"{folder}{hashes * at // places:0{HASH_DIGITS}x}" for at in (place, place + 1))
    return first if place else "", end if place + 1 < places else ""


def attention_folder(queue: str) -> str:
    return f"attention/{encode_part(queue)}/"


def attention(queue: str, run: str) -> str:
    return f"{attention_folder(queue)}{encode_part(run)}"


TIMERS = "timers/"
NEVER = "never"  # sorts behind every time


def timer(due: str, run: str, instance: str, path: str) -> str:
    """`due` is a time in UTC as in `history`, or NEVER. The path stands there as its hash."""
    digest = hashlib.sha256(path.encode()).hexdigest()[:16]
    return f"{TIMERS}{due}/{encode_part(run)}/{instance}/{digest}"


def timer_due(name: str) -> str:
    """The due time in the name of a timer hint."""
    return name[len(TIMERS) :].split("/", 1)[0]


def timer_run(name: str) -> str:
    """The run in the name of a timer hint."""
    return unquote(name[len(TIMERS) :].split("/", 2)[1])


def timer_instance(name: str) -> str:
    """The instance in the name of a timer hint."""
    return name[len(TIMERS) :].split("/", 3)[2]


def history(ended: str, run: str) -> str:
    """`ended` is the recorded end in UTC, `2026-11-29T19:04:43.123Z`."""
    day, clock = ended.split("T")
    return f"history/{day}/{clock[:2]}/{ended}-{encode_part(run)}"


LOCKS = "locks/"
PAUSES = "pauses"
QUEUES = "queues/"
SCHEDULES = "schedules/"
SCHEDULES_CHANGED = "bells/schedules"
WORKERS = "workers/"
PRESENCE = "presence/"
WORKER_BELLS = "bells/worker-"


def schedule(name: str) -> str:
    return f"{SCHEDULES}{encode_part(name)}"


def queue_folder(queue: str) -> str:
    return f"{QUEUES}{encode_part(queue)}/"


def queue_settings(queue: str) -> str:
    return f"{queue_folder(queue)}settings"


def queue_rate(queue: str) -> str:
    return f"{queue_folder(queue)}rate"


def slots(queue: str) -> str:
    return f"{queue_folder(queue)}slots/"


def slot(queue: str, index: int) -> str:
    return f"{slots(queue)}{index}"


def slot_index(name: str) -> int | None:
    """The number in a slot's name; None if it is not the name of one."""
    last = name.rsplit("/", 1)[-1]
    return int(last) if last.isascii() and last.isdigit() else None


def pendings(queue: str) -> str:
    return f"{queue_folder(queue)}pending/"


def pending(queue: str, priority: int, created: str, run: str) -> str:
    """`created` is when the run was started, in UTC. Byte order is the order of turns."""
    return f"{pendings(queue)}{1000 + priority:04d}-{created}-{encode_part(run)}"


def pending_queue(name: str) -> str | None:
    """The queue in the name of a place in line; None if it is not the name of one."""
    parts = name.split("/")
    return unquote(parts[1]) if len(parts) == 4 and parts[2] == "pending" else None


def dedup_key(queue: str, key: str) -> str:
    return f"{queue_folder(queue)}keys/{encode_part(key)}"


def debounce_key(queue: str, workflow: str, key: str) -> str:
    folder = f"{queue_folder(queue)}debounce/{path_part(encode_part(workflow))}"
    return f"{folder}/{encode_part(key)}"


def lock(key: str) -> str:
    return f"{LOCKS}{encode_part(key)}"


def waiters(key: str) -> str:
    return f"{lock(key)}/wait/"


def waiter(key: str, since: str, run: str) -> str:
    """`since` is when the run was started, in UTC, so that names sort in that order."""
    return f"{waiters(key)}{since}-{encode_part(run)}"


def worker(worker_id: str) -> str:
    return f"{WORKERS}{worker_id}"


def presence(worker_id: str) -> str:
    return f"{PRESENCE}{worker_id}"


def of_version(workflow: str, version: str) -> str:
    """One version of a workflow, as workers show what they serve."""
    return f"{workflow}@{version}"


def queue_bell(queue: str) -> str:
    return f"bells/queue-{encode_part(queue)}"


def worker_bell(worker_id: str) -> str:
    return f"{WORKER_BELLS}{worker_id}"


def last_part(name: str) -> str:
    """The decoded last part of a name."""
    return unquote(name.rsplit("/", 1)[-1])
