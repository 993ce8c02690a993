"""Random workflow programs, made as source text so that a failing one can be read.

A program is deterministic given the order in which outcomes are handed over, and sensitive to
it: everything it receives goes into a log, and the log decides which calls come later and with
which arguments.

The words it is written in (see `Vocabulary` in harness.py):

    s(i, ...)   a step that succeeds        f(i)  one that fails        r(i)  fails, then succeeds
    u(i)        one that is undone unless the run completes
    c(i, ...)   a cheap one, recorded together with others, with another value each time
    note(x)     awaits x, logs what came    log(x), seen(), pick(n)     the log, read and written
    gather, dmap   durable.gather, durable.map
"""

from __future__ import annotations

import random
import sys
from collections.abc import Callable
from dataclasses import dataclass, field

SIZE = 14  # calls a program may make, roughly
DEPTH = 3  # of constructs within constructs

# Before, `asyncio.timeout` in a task that was cancelled once raises CancelledError now and then
# where it is to raise TimeoutError (https://github.com/python/cpython/issues/102780).
TIMEOUTS_WORK = sys.version_info >= (3, 11, 3)

# Before, of two groups within each other that fail at once, one leaves the task cancelled once
# more than it was (https://github.com/python/cpython/issues/116720).
NESTED_GROUPS_WORK = sys.version_info >= (3, 13)

Emit = Callable[[int], None]


@dataclass
class Writer:
    """Writes one program.

    Attributes:
        native: asyncio's own constructs may be used.
        cancelled: the run may be cancelled; some statements have to do with that.
        cheap: of a hundred steps so many are recorded together with others.
        layers: most tasks between a call and the reader of its outcome.
    """

    chance: random.Random
    native: bool
    layers: int = 2
    cancelled: bool = False
    cheap: int = 0
    lines: list[str] = field(default_factory=list)
    indent: int = 1
    budget: int = SIZE
    names: int = 0
    helpers: list[list[str]] = field(default_factory=list)
    sub_workflows: int = 0
    beside: int = 0  # task groups around the statement

    def put(self, line: str) -> None:
        self.lines.append("    " * self.indent + line)

    def name(self, prefix: str) -> str:
        self.names += 1
        return f"{prefix}{self.names}"

    # -- expressions ----------------------------------------------------------------------------

    def call(self) -> str:
        """A durable call, not awaited."""
        self.budget -= 1
        i = self.name("")
        kind = self.chance.choice("sssuuffr" if self.cancelled else "sssssffr")
        if kind == "s" and self.cheap and self.chance.randrange(100) < self.cheap:
            kind = "c"
        if kind in "sc" and self.chance.random() < 0.3:
            return f"{kind}({i}, seen())"
        return f"{kind}({i})"

    def noted(self) -> str:
        """An awaitable that logs, with some tasks around it."""
        text = f"note({self.call()})"
        if self.native:
            for _ in range(self.chance.randint(0, self.layers - 1)):
                kinds = ["through({})", "asyncio.create_task(through({}))"]
                text = self.chance.choice(kinds).format(text)
        elif self.chance.random() < 0.3:
            text = f"through({text})"
        return text

    def seconds(self) -> float:
        return self.chance.choice([0.0, 0.3, 1.0, 2.0, 5.0])

    # -- statements --------------------------------------------------------------------------------

    def block(self, depth: int, most: int = 3) -> None:
        for _ in range(self.chance.randint(1, most)):
            self.statement(depth)

    def statement(self, depth: int) -> None:
        simple: list[Emit] = [
            self.sequential, self.sequential, self.guarded, self.branching, self.twice, self.early,
        ]  # fmt: skip
        compound: list[Emit] = [
            self.durable_gather, self.durable_gather, self.durable_map, self.nested, self.inline,
            self.task_group, self.task_group, self.timeout, self.finally_, self.shielded,
        ]  # fmt: skip
        if self.native:
            compound += [
                self.native_gather, self.native_gather, self.created, self.created,
                self.native_group, self.completed, self.first_completed, self.first_completed,
                self.wait_for, *([self.native_timeout] if TIMEOUTS_WORK else []),
                self.native_shield,
            ]  # fmt: skip
        if self.cancelled:
            compound += [self.finally_, self.finally_, self.cleaned, self.swallowed]
        if self.beside:
            avoided = self.timeouts()
            if not NESTED_GROUPS_WORK:
                avoided.append(self.native_group)
            compound = [kind for kind in compound if kind not in avoided]
        deep = depth >= DEPTH or self.budget <= 0
        self.chance.choice(simple if deep else simple + compound)(depth)

    def sequential(self, depth: int) -> None:
        self.put(f"await note({self.call()})" if self.chance.random() < 0.7 else self.plain())

    def plain(self) -> str:
        self.budget -= 1
        return f"log(await s({self.name('')}))"

    def guarded(self, depth: int) -> None:
        self.put("try:")
        self.put(f"    log(await {self.call()})")
        self.put("except ValueError as e:")
        self.put("    log(str(e))")

    def branching(self, depth: int) -> None:
        self.put("if pick(2):")
        self.put(f"    {self.plain()}")
        self.put("else:")
        self.put(f"    {self.plain()}")

    def twice(self, depth: int) -> None:
        call = self.name("c")
        self.put(f"{call} = {self.call()}")
        self.put(f"await note({call})")
        self.put(f"await note({call})")

    def early(self, depth: int) -> None:
        call = self.name("c")
        self.put(f"{call} = {self.call()}")
        self.put(self.plain())
        self.put(f"await note({call})")

    def within(self, head: str, depth: int, most: int = 3) -> None:
        self.put(head)
        self.indent += 1
        self.block(depth + 1, most)
        self.indent -= 1

    def in_sequence(self, head: str, depth: int) -> None:
        """A bare timeout: calls one after the other.

        Around tasks it may end while a call in one of them is being recorded, and the program
        sees both the outcome and the timeout; only `durable.timeout` records which came first.
        """
        self.put(head)
        self.indent += 1
        for _ in range(self.chance.randint(1, 3)):
            kinds: list[Emit] = [self.sequential, self.guarded, self.branching, self.twice]
            self.chance.choice(kinds)(depth)
        self.indent -= 1

    def timeouts(self) -> list[Emit]:
        return [self.timeout, self.wait_for, self.native_timeout]

    def beside_tasks(self, depth: int) -> None:
        """The body of a task group, without bare timeouts.

        If one runs out while a sibling's failure is being recorded, both cancel the same call,
        and its record does not tell which came first.
        """
        self.beside += 1
        self.block(depth + 1, 2)
        self.beside -= 1

    def attempt(self, body: Emit, depth: int, *, star: bool = False) -> None:
        """The statement in a try, usually."""
        if self.chance.random() < 0.15:
            body(depth)
            return
        self.put("try:")
        self.indent += 1
        body(depth)
        self.indent -= 1
        self.put("except* ValueError as e:" if star else "except (ValueError, TimeoutError) as e:")
        self.put("    log(sorted(leaves(e)))" if star else "    log(repr(e))")

    def helper(self, depth: int) -> str:
        """A nested coroutine function with durable calls of its own."""
        name = self.name("h")
        self.put(f"async def {name}(x=0):")
        self.indent += 1
        self.block(depth + 1)
        if self.chance.random() < 0.3:
            self.put(f"log(await s({self.name('')}, x))")
        self.put(f"return {self.name('')}")
        self.indent -= 1
        return name

    def branches(self, depth: int) -> str:
        parts = []
        for _ in range(self.chance.randint(2, 3)):
            if self.chance.random() < 0.5:
                parts.append(f"{self.helper(depth)}()")
            else:
                parts.append(self.call() if self.chance.random() < 0.4 else self.noted())
        return ", ".join(parts)

    def durable_gather(self, depth: int) -> None:
        parts = self.branches(depth)
        self.attempt(lambda d: self.put(f"log(await gather({parts}))"), depth)

    def durable_map(self, depth: int) -> None:
        helper, limit = self.helper(depth), self.chance.randint(1, 3)
        items = list(range(self.chance.randint(2, 4)))
        self.budget -= 2
        self.attempt(
            lambda d: self.put(f"log(await dmap({helper}, {items}, limit={limit}))"), depth
        )

    def nested(self, depth: int) -> None:
        helper = self.helper(depth)
        self.attempt(lambda d: self.put(f"log(await {helper}())"), depth)

    def inline(self, depth: int) -> None:
        self.sub_workflows += 1
        self.put(f"@sub({self.sub_workflows})")
        helper = self.helper(depth)
        self.attempt(lambda d: self.put(f"log(await {helper}())"), depth)

    def finally_(self, depth: int) -> None:
        self.within("try:", depth)
        self.within("finally:", depth, most=1)

    def cleaned(self, depth: int) -> None:
        self.within("try:", depth)
        self.put("except RunCancelled:")
        self.put("    log('cleaned')")
        self.indent += 1
        self.block(depth + 1, 2)
        self.put("raise")
        self.indent -= 1

    def swallowed(self, depth: int) -> None:
        self.within("try:", depth)
        self.put("except RunCancelled:")
        self.put("    log('swallowed')")

    def shielded(self, depth: int) -> None:
        self.within("with anyio.CancelScope(shield=True):", depth)

    def timeout(self, depth: int) -> None:
        scope, seconds = self.name("m"), self.seconds()
        if self.chance.random() < 0.5:
            self.in_sequence(f"with anyio.move_on_after({seconds}) as {scope}:", depth)
            self.put(f"log({scope}.cancelled_caught)")
        else:
            head = f"with anyio.fail_after({seconds}):"
            self.attempt(lambda d: self.in_sequence(head, d), depth)

    def task_group(self, depth: int) -> None:
        def body(depth: int) -> None:
            group = self.name("g")
            self.put(f"async with anyio.create_task_group() as {group}:")
            self.indent += 1
            for _ in range(self.chance.randint(1, 3)):
                if self.chance.random() < 0.3:
                    self.budget -= 1
                    self.put(f"{group}.start_soon(s, {self.name('')})")
                else:
                    self.put(f"{group}.start_soon(note, {self.call()})")
            if self.chance.random() < 0.4:
                self.beside_tasks(depth)
            self.indent -= 1

        self.attempt(body, depth, star=True)

    # -- asyncio's own -----------------------------------------------------------------------------

    def listed(self) -> str:
        return ", ".join(self.noted() for _ in range(self.chance.randint(2, 4)))

    def native_gather(self, depth: int) -> None:
        parts = self.listed()
        if self.chance.random() < 0.5:
            self.put(f"log(names(await asyncio.gather({parts}, return_exceptions=True)))")
            return
        tasks = self.name("t")
        self.put(f"{tasks} = [asyncio.ensure_future(x) for x in [{parts}]]")
        self.attempt(lambda d: self.put(f"log(await asyncio.gather(*{tasks}))"), depth)
        self.put(f"log(names(await asyncio.gather(*{tasks}, return_exceptions=True)))")

    def created(self, depth: int) -> None:
        task = self.name("t")
        self.put(f"{task} = asyncio.ensure_future({self.noted()})")
        self.block(depth + 1, 2)
        self.attempt(lambda d: self.put(f"log(await {task})"), depth)

    def native_group(self, depth: int) -> None:
        def body(depth: int) -> None:
            group = self.name("g")
            self.put(f"async with asyncio.TaskGroup() as {group}:")
            self.indent += 1
            for _ in range(self.chance.randint(1, 3)):
                self.put(f"{group}.create_task(through({self.noted()}))")
            if self.chance.random() < 0.4:
                self.beside_tasks(depth)
            self.indent -= 1

        self.attempt(body, depth, star=True)

    def completed(self, depth: int) -> None:
        parts = self.listed()
        self.put(f"for x in asyncio.as_completed([{parts}]):")
        self.indent += 1
        self.attempt(lambda d: self.put("log(await x)"), depth)
        self.indent -= 1

    def first_completed(self, depth: int) -> None:
        tasks = self.name("t")
        parts = self.listed()
        self.put(f"{tasks} = [asyncio.ensure_future(x) for x in [{parts}]]")
        self.put(f"done, _ = await asyncio.wait({tasks}, return_when=asyncio.FIRST_COMPLETED)")
        self.put(f"log([i for i, t in enumerate({tasks}) if t in done])")
        if self.chance.random() < 0.5:
            self.block(depth + 1, 1)
        if self.chance.random() < 0.6:
            self.put(f"for t in {tasks}:")
            self.put("    t.cancel()")
        self.put(f"log(names(await asyncio.gather(*{tasks}, return_exceptions=True)))")

    def wait_for(self, depth: int) -> None:
        text = f"log(await asyncio.wait_for({self.noted()}, {self.seconds() or 0.1}))"
        self.attempt(lambda d: self.put(text), depth)

    def native_timeout(self, depth: int) -> None:
        head = f"async with asyncio.timeout({self.seconds()}):"
        self.attempt(lambda d: self.in_sequence(head, d), depth)

    def native_shield(self, depth: int) -> None:
        task = self.name("t")
        self.put(f"{task} = asyncio.ensure_future({self.noted()})")
        self.attempt(lambda d: self.put(f"log(await asyncio.shield({task}))"), depth)
        self.attempt(lambda d: self.put(f"log(await {task})"), depth)


def program(
    seed: int, *, native: bool, layers: int = 2, cancelled: bool = False, cheap: int = 0
) -> str:
    """The source of one workflow function without arguments, named `program`."""
    writer = Writer(
        random.Random(seed), native=native, layers=layers, cancelled=cancelled, cheap=cheap
    )
    writer.put("log('begin')")
    while writer.budget > 0:
        writer.statement(0)
    writer.put("log(await s(0, seen()))")
    return "async def program():\n" + "\n".join(writer.lines) + "\n"
