"""Exceptions taken apart and made again without running any of their own code.

Python keeps an exception's data in three places: `args`, its `__dict__`, and slots (builtin
ones such as `OSError.filename` included). All three are read and written past `__init__`,
`__new__`, `__setattr__` and properties, through the builtin base's own descriptors.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from types import GetSetDescriptorType, MemberDescriptorType, ModuleType
from typing import Any, Final

_HEAP_TYPE: Final = 1 << 9  # Py_TPFLAGS_HEAPTYPE: a class that Python code made
# `obj` and `object` may hold anything and are not needed to say what went wrong.
_SKIPPED: Final = frozenset({"args", "characters_written", "exceptions", "obj", "object"})
# Would tell the event loop or a generator something that is not so.
_NEVER_REBUILT: Final = frozenset(
    {
        "asyncio.exceptions.CancelledError",
        "trio.Cancelled",
        "builtins.GeneratorExit",
        "builtins.SystemExit",
    }
)
_SLOT = MemberDescriptorType | GetSetDescriptorType


def type_of(error: BaseException) -> str:
    """`module.qualname` of the error's class."""
    return _name(type(error))


def message_of(error: BaseException) -> str:
    """`str(error)`, which users may have overridden badly."""
    try:
        return str(error)
    except Exception as e:  # noqa: BLE001  # it is the user's
        return f"<its __str__ raised {type(e).__name__}>"


def attributes_of(error: BaseException) -> dict[str, object]:
    """What is stored on the error, by name; notes and what Python itself keeps left out."""
    found: dict[str, object] = {}
    for name, slot in _slots(type(error)):
        value = _read(slot, error)
        if value is not None:
            found.setdefault(name, value)
    found.update(_dict_of(error))
    found.pop("__notes__", None)
    return found


def notes_of(error: BaseException) -> list[str]:
    """What `add_note` added."""
    notes = _dict_of(error).get("__notes__")
    return [note for note in notes if isinstance(note, str)] if isinstance(notes, list) else []


def put_notes(error: BaseException, notes: Sequence[str]) -> None:
    """As `add_note` for each of them."""
    if notes:
        _dict_of(error)["__notes__"] = list(notes)


def find_class(
    name: str, known: Mapping[str, type[BaseException]] | None = None
) -> type[BaseException] | None:
    """The exception class called `name` (`module.qualname`), if it is already imported.

    Nothing is imported, and no module's or class's `__getattr__` is asked.
    """
    if name in _NEVER_REBUILT:
        return None
    if known and name in known:
        return known[name]
    parts = name.split(".")
    for cut in range(len(parts) - 1, 0, -1):
        module = sys.modules.get(".".join(parts[:cut]))
        if isinstance(module, ModuleType):
            found = _walk(module, parts[cut:])
            # The name must be the class's own: `os.error` is not how an OSError is recorded.
            if isinstance(found, type) and issubclass(found, BaseException):
                return found if _name(found) == name else None
    return None


def make(
    cls: type[BaseException], args: tuple[object, ...], attributes: Mapping[str, object]
) -> BaseException:
    """An instance of `cls` with these arguments and attributes.

    Raises:
        Exception: the builtin base refuses the arguments.
    """
    base: Any = cls
    while base.__flags__ & _HEAP_TYPE:
        base = base.__base__
    instance: BaseException = base.__new__(cls, *args)
    if not issubclass(cls, BaseExceptionGroup):
        _initialise(base, instance, args)
    slots = dict(_slots(cls))
    for name, value in attributes.items():
        if name in slots:
            _write(slots[name], instance, value)
        else:
            _dict_of(instance)[name] = value
    return instance


def says_its_arguments(cls: type[BaseException]) -> bool:
    """Whether `str()` of its instances is a builtin class's, so follows from arguments alone."""
    owner: Any = next(base for base in cls.__mro__ if "__str__" in vars(base))
    return not owner.__flags__ & _HEAP_TYPE


def _initialise(base: Any, instance: BaseException, args: tuple[object, ...]) -> None:
    # Refused if a subclass passed its base something else; then the slots hold the rest.
    with suppress(Exception):
        base.__init__(instance, *args)
    put(instance, "args", args)


def put(error: BaseException, name: str, value: object) -> None:
    """Set what Python keeps on every exception: `args`, `__cause__`, `__context__`, ..."""
    vars(BaseException)[name].__set__(error, value)


def _name(cls: type) -> str:
    return f"{cls.__module__}.{cls.__qualname__}"


def _walk(module: ModuleType, names: list[str]) -> object:
    space: Mapping[str, object] = object.__getattribute__(module, "__dict__")
    found: object = None
    for name in names:
        found = space.get(name)
        if not isinstance(found, type):
            return None
        space = type.__getattribute__(found, "__dict__")
    return found


def _slots(cls: type) -> Iterator[tuple[str, Any]]:
    for part in cls.__mro__:
        for name, slot in vars(part).items():
            if isinstance(slot, _SLOT) and name not in _SKIPPED and not name.startswith("__"):
                yield name, slot


def _read(slot: Any, error: BaseException) -> object:
    try:
        return slot.__get__(error)
    except Exception:  # noqa: BLE001  # an empty slot, or one that this exception does not fill
        return None


def _write(slot: Any, error: BaseException, value: object) -> None:
    with suppress(Exception):  # read-only: then the arguments have already set it
        slot.__set__(error, value)


def _dict_of(error: BaseException) -> dict[str, object]:
    found: dict[str, object] = vars(BaseException)["__dict__"].__get__(error)
    return found
