"""What a crash run leaves behind, as plain data: the store, the log of bodies, the processes.

Nothing here comes from durable: the checker must not share its mistakes.
"""

from __future__ import annotations

import json
import re
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from tests.crash.store import Object, StoreFile

DATABASE = "durable.db"
OBJECTS = "objects.json"  # of a store that does not outlive the crash run
BODY_LOG = "bodies.log"
STORY = "story.json"
LOGS = "logs"

_FENCED = re.compile(r"worker (\S+) \(.*\) is dead \((\w+)\): fenced")


@dataclass
class Process:
    """One worker process and its fate. Times by the store's clock; 0: it did not happen."""

    name: str
    private: bool  # a runtime folder of its own: its death cannot be proved by its lock
    pid: int = 0
    started: float = 0.0
    killed: float = 0.0
    stops: list[float] = field(default_factory=list)
    wakes: list[float] = field(default_factory=list)
    drained: float = 0.0
    exit_code: int | None = None

    @property
    def is_stopped(self) -> bool:
        return len(self.stops) > len(self.wakes)


@dataclass
class LeaseSeen:
    """A worker's lease as the harness saw it, by looking often. Times by the store's clock."""

    worker: str
    process: str
    ttl: float
    margin: float
    alive: float = 0.0  # the last renewal seen
    dead: float = 0.0  # when it was fenced


@dataclass
class Story:
    """What the harness did and saw."""

    seed: int
    clock_offset: float
    started: dict[str, tuple[str, int]] = field(default_factory=dict)  # run -> workflow, width
    processes: dict[str, Process] = field(default_factory=dict)
    leases: dict[str, LeaseSeen] = field(default_factory=dict)
    troubles: list[str] = field(default_factory=list)  # facts that did not come in time
    struck: dict[str, int] = field(default_factory=dict)  # faults of the store itself, by kind

    def save(self, folder: Path) -> None:
        (folder / STORY).write_text(json.dumps(asdict(self), indent=1))


@dataclass(frozen=True)
class BodyLine:
    """One execution of a body that came to its end. Times by the store's clock."""

    run: str
    slot: str
    key: str
    epoch: int
    attempt: int
    token: str
    outcome: str
    process: str
    began: float
    at: float


@dataclass(frozen=True)
class ReceivedLine:
    """One outcome handed over to one execution of a workflow."""

    run: str
    epoch: int
    index: int
    slot: str
    token: str
    outcome: str
    proof: str
    process: str
    at: float


@dataclass(frozen=True)
class EnterLine:
    """An execution of a workflow begins."""

    run: str
    epoch: int
    process: str
    at: float


@dataclass(frozen=True)
class Fence:
    """A worker said that it fenced another."""

    worker: str
    reason: str
    by: str  # the process that did it


@dataclass
class RunFolder:
    """The objects of one run. Paths are those of the names."""

    start: Object | None = None
    instances: set[str] = field(default_factory=set)
    steps: dict[str, Object] = field(default_factory=dict)
    attempts: dict[tuple[str, int], Object] = field(default_factory=dict)
    epochs: dict[int, Object] = field(default_factory=dict)
    results: list[Object] = field(default_factory=list)
    strangers: list[str] = field(default_factory=list)


@dataclass
class Evidence:
    story: Story
    objects: list[Object] = field(default_factory=list)
    bodies: list[BodyLine] = field(default_factory=list)
    received: list[ReceivedLine] = field(default_factory=list)
    entered: list[EnterLine] = field(default_factory=list)
    fences: list[Fence] = field(default_factory=list)
    torn: int = 0  # lines of the log that a dying process left unfinished

    def folders(self) -> dict[str, RunFolder]:
        """The objects under `runs/`, by run."""
        found: dict[str, RunFolder] = {}
        for stored in self.objects:
            if stored.name.startswith("runs/"):
                _, run, rest = stored.name.split("/", 2)
                _file(found.setdefault(unquote(run), RunFolder()), rest, stored)
        return found

    def under(self, prefix: str) -> list[Object]:
        return [stored for stored in self.objects if stored.name.startswith(prefix)]


def read(folder: Path) -> Evidence:
    """Everything that a harness left in this folder."""
    told = json.loads((folder / STORY).read_text())
    story = Story(
        seed=told["seed"],
        clock_offset=told["clock_offset"],
        started={run: (workflow, width) for run, (workflow, width) in told["started"].items()},
        processes={name: Process(**fate) for name, fate in told["processes"].items()},
        leases={worker: LeaseSeen(**seen) for worker, seen in told["leases"].items()},
        troubles=told["troubles"],
        struck=told["struck"],
    )
    evidence = Evidence(story, objects=_objects(folder))
    _read_bodies(evidence, folder / BODY_LOG)
    for log in sorted((folder / LOGS).glob("*.log")):
        for worker, reason in _FENCED.findall(log.read_text(errors="replace")):
            evidence.fences.append(Fence(worker, reason, log.stem))
    return evidence


def _objects(folder: Path) -> list[Object]:
    if (folder / OBJECTS).exists():
        return [Object(**stored) for stored in json.loads((folder / OBJECTS).read_text())]
    file = StoreFile(folder / DATABASE)
    try:
        return file.objects()
    finally:
        file.close()


def _read_bodies(evidence: Evidence, path: Path) -> None:
    offset = evidence.story.clock_offset
    for text in path.read_text(errors="replace").split("\n"):
        if not text:
            continue
        try:
            line: dict[str, Any] = json.loads(text)
        except ValueError:
            evidence.torn += 1
            continue
        for clock in line.keys() & {"at", "began"}:
            line[clock] += offset
        match line.pop("kind"):
            case "body":
                evidence.bodies.append(BodyLine(**line))
            case "received":
                evidence.received.append(ReceivedLine(**line))
            case _:
                evidence.entered.append(EnterLine(**line))


def _file(folder: RunFolder, rest: str, stored: Object) -> None:
    if rest == "start":
        folder.start = stored
        return
    instance, kind, *more = rest.split("/", 2)
    folder.instances.add(instance)
    match kind, more:
        case "steps", [path]:
            folder.steps[path] = stored
        case "attempts", [path]:
            path, _, number = path.rpartition("/")
            folder.attempts[path, int(number)] = stored
        case "epochs", [number]:
            folder.epochs[int(number)] = stored
        case "result", []:
            folder.results.append(stored)
        case _:
            folder.strangers.append(stored.name)
