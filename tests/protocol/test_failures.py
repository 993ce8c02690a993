"""Errors as data: the same class comes back where that is safe, and nothing is ever run for it."""

from __future__ import annotations

import asyncio
import builtins
import json
import sys
import types
from typing import Any, Self

import msgspec
import pytest

from durable import errors
from durable.errors import StepFailed, UnencodableResult
from durable.protocol import values
from durable.protocol.failures import Failure, from_exception, rebuild
from tests.protocol.kinds import KINDS, Kind, Order, same

CALLS: list[str] = []  # what must stay empty: the code of the user's classes that was run


class Declined(Exception):
    """Has a constructor of its own, with two required arguments."""

    def __init__(self, code: int, reason: str) -> None:
        CALLS.append("Declined.__init__")
        super().__init__(f"declined with {code}: {reason}")
        self.code = code
        self.reason = reason


class Slotted(ValueError):
    """Keeps its data in a slot and says it in `__str__`."""

    __slots__ = ("place",)

    def __init__(self, place: str) -> None:
        super().__init__()
        self.place = place

    def __str__(self) -> str:
        return f"at {self.place}"


class Guarded(Exception):
    """Runs code wherever a class can: none of it may run when an error is rebuilt."""

    def __new__(cls, *args: object) -> Self:
        CALLS.append("__new__")
        return super().__new__(cls, *args)

    def __init__(self, *args: object) -> None:
        CALLS.append("__init__")
        super().__init__(*args)

    def __setattr__(self, name: str, value: object) -> None:
        CALLS.append("__setattr__")
        super().__setattr__(name, value)

    def __setstate__(self, state: Any) -> None:
        CALLS.append("__setstate__")

    def __reduce__(self) -> Any:
        CALLS.append("__reduce__")
        return super().__reduce__()


class HttpError(OSError):
    """Derives from a builtin that has slots and a constructor with a mind of its own."""

    def __init__(self, status: int, url: str) -> None:
        super().__init__(status, "HTTP error", url)
        self.status = status


class Urgent(BaseException):
    """Not an Exception."""


class Outer:
    """Has a class inside."""

    class Inner(KeyError):
        """Found by its qualified name."""


class Problems(ExceptionGroup[Exception]):
    """A user's exception group."""


def there_and_back(error: BaseException) -> BaseException:
    """Through the JSON of a record, as on replay; checks that live gives the same."""
    CALLS.clear()
    failure = from_exception(error)
    stored = msgspec.json.decode(msgspec.json.encode(failure), type=Failure)
    live, replayed = rebuild(failure), rebuild(stored)
    assert not [call for call in CALLS if call.startswith("__") or "init" in call]
    assert type(live) is type(replayed)
    assert str(live) == str(replayed)
    assert same([live.args, vars(live)], [replayed.args, vars(replayed)])
    return replayed


def raised(error: BaseException) -> BaseException:
    """The error with a traceback."""
    try:
        raise error
    except BaseException as e:
        return e


@pytest.mark.parametrize(
    "error",
    [
        ValueError("x"),
        ValueError(),
        ValueError("x", 3, (1, {2})),
        KeyError("k"),
        KeyError(("a", 1)),
        IndexError("i"),
        OSError(5, "io"),
        OSError("just text"),
        FileNotFoundError(2, "no such file", "a.txt"),
        FileExistsError(17, "exists", "a", None, "b"),
        TimeoutError(),
        UnicodeDecodeError("utf-8", b"\xff", 0, 1, "bad"),
        UnicodeEncodeError("ascii", "é", 0, 1, "bad"),
        SyntaxError("bad", ("f.py", 3, 4, "text\n", 3, 5)),
        ImportError("no", name="m", path="p"),
        StopIteration(3),
        KeyboardInterrupt(),
        ZeroDivisionError("division by zero"),
        RecursionError("deep"),
        Declined(402, "no funds"),
        Slotted("line 3"),
        Guarded("a", 1),
        HttpError(503, "http://x.example/"),
        Urgent("now"),
        Outer.Inner("k"),
        errors.Conflict("taken", hint="use another id", run="r-1"),
        errors.NeedsAttention("stuck", reason="drift"),
        StepFailed("x", type_name="m.T", traceback_text="Traceback..."),
        errors.Fatal("stop"),
        UnencodableResult("no"),
        msgspec.ValidationError("Expected `int`"),
        json.JSONDecodeError("bad", "{", 1),
        ValueError("a\udc80"),
    ],
    ids=lambda error: f"{type(error).__name__}-{error!r:.30}",
)
def test_same_class(error: BaseException) -> None:
    """An error whose class can be imported comes back with class, text, arguments and data."""
    copy = there_and_back(raised(error))

    assert type(copy) is type(error)
    assert str(copy) == str(error)
    assert copy.args == error.args
    assert vars(copy) == vars(error)


def test_slots_of_builtins() -> None:
    """What builtin errors keep outside their arguments comes back too."""
    copy: Any = there_and_back(FileExistsError(17, "exists", "a", None, "b"))
    assert (copy.errno, copy.strerror, copy.filename, copy.filename2) == (17, "exists", "a", "b")

    copy = there_and_back(ImportError("no", name="m", path="p"))
    assert (copy.msg, copy.name, copy.path) == ("no", "m", "p")

    copy = there_and_back(HttpError(503, "u"))
    assert (copy.errno, copy.filename, copy.status) == (503, "u", 503)

    copy = there_and_back(StopIteration([1]))
    assert copy.value == [1]


@pytest.mark.parametrize("kind", [kind for kind in KINDS if not kind.annotated], ids=lambda k: k.id)
def test_each_kind_as_argument(kind: Kind) -> None:
    """Arguments come back exactly, whatever kind of builtin they are."""
    copy = there_and_back(ValueError("x", kind.value))

    assert same(copy.args, ("x", kind.value))


def test_local_class() -> None:
    """An error whose class is local to a function becomes a StepFailed that tells all about it."""

    class Local(ValueError):
        pass

    copy = there_and_back(raised(Local("secret of the local class")))

    assert type(copy) is StepFailed
    assert copy.type_name.endswith("test_local_class.<locals>.Local")
    assert "secret of the local class" in str(copy)
    assert "raise error" in copy.traceback_text


def test_class_that_cannot_say_the_same() -> None:
    """A class that needs what could not be stored is not faked: its text would be wrong."""

    class Holder(Exception):
        def __init__(self, thing: object) -> None:
            super().__init__()
            self.thing = thing

        def __str__(self) -> str:
            return f"about {type(self.thing).__name__}"

    Holder.__qualname__ = "TestHolder"
    sys.modules[__name__].TestHolder = Holder

    copy = there_and_back(Holder(object()))

    assert type(copy) is StepFailed
    assert "about object" in str(copy)


def test_argument_that_cannot_be_stored() -> None:
    """The class survives an argument that cannot be stored, if the text alone says the same."""
    copy = there_and_back(ValueError(Order("A", 1.0)))

    assert type(copy) is ValueError
    assert str(copy) == str(Order("A", 1.0))


def test_attribute_that_cannot_be_stored() -> None:
    """Attributes that cannot be stored are left out, the others come back."""
    error = ValueError("x")
    error.client = object()  # type: ignore[attr-defined]  # wrong on purpose
    error.code = 7  # type: ignore[attr-defined]  # an attribute of the user's

    copy = there_and_back_loosely(error)

    assert type(copy) is ValueError
    assert vars(copy) == {"code": 7}


def there_and_back_loosely(error: BaseException) -> BaseException:
    return rebuild(msgspec.json.decode(msgspec.json.encode(from_exception(error)), type=Failure))


def test_chain_and_notes() -> None:
    """Causes, suppressed contexts and notes come back, each with its class."""
    try:
        try:
            try:
                raise Declined(1, "a")
            except Declined as e:
                raise KeyError("k") from e
        except KeyError:
            raise ValueError("v")  # noqa: B904  # the context is what is tested
    except ValueError as e:
        e.add_note("first")
        e.add_note("second")
        copy = there_and_back(e)

    assert copy.__notes__ == ["first", "second"]
    assert copy.__cause__ is None
    assert not copy.__suppress_context__
    assert type(copy.__context__) is KeyError
    assert copy.__context__.__suppress_context__
    cause = copy.__context__.__cause__
    assert type(cause) is Declined
    assert (cause.code, cause.reason) == (1, "a")


def test_raise_from_none() -> None:
    """`raise ... from None` stays silent about its context."""
    try:
        try:
            raise KeyError("k")
        except KeyError:
            raise ValueError("v") from None
    except ValueError as e:
        copy = there_and_back(e)

    assert copy.__suppress_context__
    assert copy.__context__ is None


@pytest.mark.parametrize(
    "group",
    [
        ExceptionGroup("g", [ValueError("a"), Declined(1, "b"), ExceptionGroup("h", [OSError(5)])]),
        BaseExceptionGroup("g", [KeyboardInterrupt(), ValueError("a")]),
        Problems("p", [ValueError("a")]),
    ],
    ids=lambda group: type(group).__name__,
)
def test_groups(group: BaseExceptionGroup[BaseException]) -> None:
    """Exception groups come back with their members, so `except*` works as it did live."""

    def tree(error: BaseException) -> object:
        members = error.exceptions if isinstance(error, BaseExceptionGroup) else ()
        return type(error), str(error), [tree(member) for member in members]

    failure = from_exception(group)
    copy = rebuild(msgspec.json.decode(msgspec.json.encode(failure), type=Failure))

    assert tree(copy) == tree(group)
    assert isinstance(copy, BaseExceptionGroup)
    assert copy.split(ValueError)[0] is not None


def test_cyclic_causes() -> None:
    """Errors that are each other's cause are recorded once."""
    a, b = ValueError("a"), ValueError("b")
    a.__cause__, b.__cause__ = b, a

    copy = rebuild(from_exception(a))

    assert str(copy.__cause__) == "b"
    assert copy.__cause__ is not None
    assert copy.__cause__.__cause__ is None


def long_chain() -> BaseException:
    error: BaseException = ValueError("0" * 5000)
    for number in range(1000):
        outer = ValueError(f"{number}" * 1000)
        outer.__cause__ = error
        error = outer
    return error


def deep_group() -> BaseException:
    error: Exception = ValueError("x")
    for _ in range(1000):
        error = ExceptionGroup("g", [error])
    return error


def deep_recursion(depth: int = 0) -> BaseException:
    try:
        deep_recursion(depth + 1)
    except RecursionError as e:
        return e
    raise AssertionError


def noted() -> BaseException:
    error = ValueError("x")
    for _ in range(1000):
        error.add_note("n" * 1000)
    return error


@pytest.mark.parametrize(
    "error",
    [
        ValueError("é" * 1_000_000),
        ValueError(*range(1_000_000)),
        ValueError(["x" * 1000] * 1000),
        long_chain(),
        deep_group(),
        ExceptionGroup("wide", [ValueError("x" * 500)] * 10_000),
        ExceptionGroup("g" * 100_000, [ValueError("x")]),
        noted(),
        StepFailed("x" * 100_000, traceback_text="y" * 100_000),
    ],
    ids=["text", "args", "nested-arg", "chain", "deep", "wide", "title", "notes", "attributes"],
)
def test_record_is_bounded(error: BaseException) -> None:
    """A record of an error stays small, however much the error carries, and can be rebuilt."""
    data = msgspec.json.encode(from_exception(error))

    assert len(data) < 160 * 1024
    copy = rebuild(msgspec.json.decode(data, type=Failure))
    assert isinstance(copy, type(error) | StepFailed)


def test_traceback_keeps_its_end() -> None:
    """A traceback that is cut keeps the end, which says where the error was raised."""
    try:
        exec(compile("\n" * 10 + "raise ValueError('v' * 100)", "x" * 9000, "exec"))
    except ValueError as e:
        failure = from_exception(e)

    assert len(failure.traceback) < 9000
    assert failure.traceback.endswith("v" * 100 + "\n")


class Hostile(Exception):
    """Raises from everything that looks at it."""

    def __str__(self) -> str:
        raise RuntimeError("str")

    def __repr__(self) -> str:
        raise RuntimeError("repr")

    def __getattribute__(self, name: str) -> Any:
        raise RuntimeError("getattribute")


def test_recording_never_raises() -> None:
    """An error that raises when it is looked at is still recorded by its class."""
    failure = from_exception(Hostile("x"))

    assert failure.type == f"{__name__}.Hostile"
    assert isinstance(rebuild(failure), Hostile | StepFailed)


@pytest.mark.parametrize(
    "name",
    [
        "os.system",
        "os.error",
        "builtins.eval",
        "builtins.print",
        "builtins.object",
        "builtins.NoSuchError",
        "subprocess.Popen",
        "json.decoder.JSONDecodeError.__init__",
        "antigravity.Error",
        "this",
        "",
        ".",
        "..",
        "builtins.",
        "sys.modules.os.error",
        "asyncio.exceptions.CancelledError",
        "builtins.GeneratorExit",
        "builtins.SystemExit",
        "durable.errors.errors",
    ],
)
def test_hostile_class_names(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A record that names anything but an imported exception class runs and imports nothing."""
    imported: list[str] = []
    monkeypatch.setattr(builtins, "__import__", lambda name, *_: imported.append(name))
    before = set(sys.modules)

    copy = rebuild(Failure(name, "true", args=[msgspec.Raw(b'"true"')]))

    monkeypatch.undo()
    assert type(copy) is StepFailed
    assert copy.type_name == name
    assert not imported
    assert set(sys.modules) == before


def test_lazy_modules_are_not_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    """A module's own `__getattr__`, which may import or run anything, is not called."""
    module = types.ModuleType("lazy_module")
    asked: list[str] = []
    module.__getattr__ = asked.append  # type: ignore[method-assign,assignment]  # a module may have one
    monkeypatch.setitem(sys.modules, "lazy_module", module)

    assert type(rebuild(Failure("lazy_module.Error", "x", args=[]))) is StepFailed
    assert not asked


def test_cancellation_is_not_rebuilt() -> None:
    """A recorded cancellation of the event loop's cannot cancel the task that reads it."""
    assert type(there_and_back(asyncio.CancelledError())) is StepFailed


def test_known_classes() -> None:
    """A class may be given by name, for errors of a script that is now imported otherwise."""
    failure = Failure("__other_main__.Declined", "declined", args=[msgspec.Raw(b'"declined"')])

    assert type(rebuild(failure)) is StepFailed
    assert type(rebuild(failure, {"__other_main__.Declined": Declined})) is Declined


@pytest.mark.parametrize("raw", [b'{"$":"no such tag"}', b"{", b""], ids=repr)
def test_damaged_arguments(raw: bytes) -> None:
    """Damaged arguments cost the class, not the error."""
    copy = rebuild(Failure("builtins.ValueError", "x", args=[msgspec.Raw(raw)]))

    assert type(copy) is StepFailed
    assert "x" in str(copy)


def test_unencodable_result() -> None:
    """The error of a result that cannot be stored is itself stored, with the kept repr."""
    with pytest.raises(UnencodableResult) as caught:
        values.encode_result(Order("A", 1.0), None, name="f")

    copy = there_and_back(caught.value)

    assert type(copy) is UnencodableResult
    assert vars(copy)["value_repr"] == repr(Order("A", 1.0))


def test_traceback_holds_no_locals() -> None:
    """The stored traceback has lines of code, not the values of variables."""

    def failing(password: str) -> None:
        raise ValueError("wrong")

    try:
        failing("hunter" + str(2))
    except ValueError as e:
        data = msgspec.json.encode(from_exception(e))

    assert b"hunter2" not in data
    assert b"in failing" in data
