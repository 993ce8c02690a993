"""Reaching the store, and each operation once: is it allowed, does it do what it says?"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from durable.doctor.findings import Finding
from durable.doctor.probe import Probe
from durable.errors import StoreRefused
from durable.store import Written

ROLE = "roles/storage.objectUser"  # all of the permissions below, and no more of a bucket

_BODY = b"{}"
_SOME_GENERATION = 1  # of an object that is not there: only whether one may ask is looked at
_PERMISSIONS = (
    "storage.objects.create",
    "storage.objects.delete",
    "storage.objects.get",
    "storage.objects.list",
)


async def reach(probe: Probe) -> Finding:
    """Whether the store answers.

    Raises:
        StoreUnavailable: it does not.
    """
    try:
        await probe.store.read(f"{probe.folder}absent")
    except StoreRefused as e:
        if _missing(e) is None:
            return Finding("reach", "refused", e.message, e.hint or "")
        # It answers; what it does not allow is found by operation.
    return Finding("reach", "ok", "the store answers")


async def try_operations(probe: Probe) -> list[Finding]:
    """Each of the five operations, on one object that is gone at the end.

    Raises:
        StoreUnavailable: the store does not answer.
    """
    subject = _Subject(probe)
    return [
        await _tried("create", subject.create),
        await _tried("read", subject.read),
        await _tried("list", subject.list),
        await _tried("replace", subject.replace),
        await _tried("delete", subject.delete),
    ]


class _Subject:
    """One object. Each method does one operation and returns what is wrong with its outcome."""

    def __init__(self, probe: Probe) -> None:
        self._probe = probe
        self._store = probe.store
        self._name = probe.name("operations")
        self._created = False
        self._generation = _SOME_GENERATION

    async def create(self) -> str:
        written = await self._store.create(self._name, _BODY, nonce=self._store.system.token())
        if not isinstance(written, Written):
            return "a new name is refused as if it were taken"
        self._created = True
        self._generation = written.generation
        return ""

    async def read(self) -> str:
        stored = await self._store.read(self._name)
        wrong = self._created and (stored is None or stored.body != _BODY)
        return "it does not give back what was written" if wrong else ""

    async def list(self) -> str:
        page = await self._store.page(self._probe.folder)
        wrong = self._created and self._name not in [item.name for item in page.items]
        return "it does not show what was written" if wrong else ""

    async def replace(self) -> str:
        written = await self._store.replace(
            self._name, self._generation, _BODY, nonce=self._store.system.token()
        )
        if isinstance(written, Written):
            self._generation = written.generation
            return ""
        return "an object is not replaced though nobody changed it" if self._created else ""

    async def delete(self) -> str:
        if not await self._store.delete(self._name, self._generation):
            return "an object is not deleted though nobody changed it"
        self._probe.gone(self._name)
        return ""


async def _tried(operation: str, call: Callable[[], Awaitable[str]]) -> Finding:
    try:
        wrong = await call()
    except StoreRefused as e:
        return _refused(operation, e)
    if wrong:
        return Finding(operation, "refused", wrong, "Use another store.")
    return Finding(operation, "ok", "allowed")


def _refused(operation: str, error: StoreRefused) -> Finding:
    permission = _missing(error)
    if permission is None:
        return Finding(operation, "refused", error.message, error.hint or "")
    found = f"not allowed: this account lacks {permission}, which {ROLE} has"
    return Finding(operation, "refused", found, error.hint or "")


def _missing(error: StoreRefused) -> str | None:
    """The permission that Google's text names, if it names one."""
    return next((name for name in _PERMISSIONS if name in error.message), None)
