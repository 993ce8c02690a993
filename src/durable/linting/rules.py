"""What is looked for: a code, what is wrong with it, and what to write instead."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Rule:
    """One kind of finding.

    Attributes:
        what: is wrong, after the name of what was found.
        instead: the durable replacement.
        names: dotted names of the calls that it is about, and of all that lies under them.
    """

    code: str
    what: str
    instead: str
    names: tuple[str, ...] = ()


@dataclass(frozen=True)
class Finding:
    """One place in a file. `line` and `column` count from 1."""

    file: str
    line: int
    column: int
    code: str
    message: str
    instead: str
    function: str


_RULES = (
    Rule(
        "DUR001", "reads the clock, which stands elsewhere on a replay", "durable.now()",
        (
            "time.time", "time.time_ns", "time.monotonic", "time.monotonic_ns",
            "time.perf_counter", "time.perf_counter_ns", "time.localtime", "time.gmtime",
            "time.strftime", "time.ctime", "time.asctime", "time.process_time",
            "datetime.datetime.now", "datetime.datetime.utcnow", "datetime.datetime.today",
            "datetime.date.today",
        ),
    ),
    Rule(
        "DUR002", "takes a chance that falls otherwise on a replay", "durable.random()",
        ("random", "secrets", "numpy.random", "os.urandom"),
    ),
    Rule(
        "DUR003", "makes another id on each replay", "durable.uuid()",
        ("uuid.uuid1", "uuid.uuid4", "uuid.uuid6", "uuid.uuid7"),
    ),
    Rule(
        "DUR004", "talks to the network on each replay", "do it in a step",
        (
            "socket", "requests", "httpx", "aiohttp", "urllib.request", "urllib3", "http.client",
            "smtplib", "ftplib", "imaplib", "poplib", "xmlrpc.client", "asyncio.open_connection",
            "asyncio.open_unix_connection", "anyio.connect_tcp", "anyio.connect_unix",
            "trio.open_tcp_stream", "trio.open_unix_socket",
        ),
    ),
    Rule(
        "DUR005", "touches files on each replay", "do it in a step",
        (
            "open", "io.open", "anyio.open_file", "shutil", "tempfile", "os.listdir", "os.scandir",
            "os.walk", "os.remove", "os.rename", "os.replace", "os.mkdir", "os.makedirs", "os.open",
            "os.stat", "os.unlink", "os.rmdir", "os.path.exists", "os.path.isfile",
            "os.path.isdir", "os.path.getsize", "os.path.getmtime", "glob.glob", "glob.iglob",
            *(
                f"{path}.{verb}"
                for path in ("pathlib.Path", "anyio.Path")
                for verb in (
                    "open", "read_text", "read_bytes", "write_text", "write_bytes", "exists",
                    "iterdir", "glob", "rglob", "unlink", "mkdir", "touch", "stat", "is_file",
                    "is_dir", "rename", "replace", "rmdir",
                )
            ),
        ),
    ),
    Rule(
        "DUR006", "starts a thread or a process, whose order no record fixes",
        "do it in a step, or use durable.gather",
        (
            "threading.Thread", "threading.Timer", "_thread", "concurrent.futures",
            "multiprocessing", "subprocess", "asyncio.to_thread", "asyncio.create_subprocess_exec",
            "asyncio.create_subprocess_shell", "anyio.to_thread.run_sync",
            "anyio.to_process.run_sync", "anyio.run_process", "anyio.open_process", "os.system",
            "trio.to_thread.run_sync",
        ),
    ),
    Rule(
        "DUR007", "is never awaited, so it does not run",
        "write `await` before it, or in sync code `sync.run(...)` around it",
    ),
    Rule("DUR008", "has no order that a replay could keep", "iterate over `sorted(...)`"),
    Rule(
        "DUR009", "goes on with whatever ends first, which may differ on a replay",
        "durable.select", ("asyncio.as_completed", "asyncio.wait"),
    ),
    Rule(
        "DUR010", "may cut off durable calls elsewhere on a replay", "durable.timeout",
        (
            "asyncio.timeout", "asyncio.timeout_at", "asyncio.wait_for", "anyio.fail_after",
            "anyio.move_on_after", "trio.fail_after", "trio.fail_at", "trio.move_on_after",
            "trio.move_on_at",
        ),
    ),
    Rule(
        "DUR011", "sleeps in memory, and again on each replay", "durable.sleep",
        (
            "time.sleep", "asyncio.sleep", "anyio.sleep", "anyio.sleep_until",
            "anyio.sleep_forever", "trio.sleep", "trio.sleep_until", "trio.sleep_forever",
        ),
    ),
)  # fmt: skip

RULES = {rule.code: rule for rule in _RULES}

THREADS, UNAWAITED, UNORDERED, FIRST, TIMEOUT = "DUR006", "DUR007", "DUR008", "DUR009", "DUR010"

_BY_NAME = {name: rule for rule in _RULES for name in rule.names}


def rule_for(name: str) -> Rule | None:
    """The rule about a call of that dotted name, if there is one."""
    parts = name.split(".")
    for length in range(len(parts), 0, -1):
        rule = _BY_NAME.get(".".join(parts[:length]))
        if rule is not None:
            return rule
    return None
