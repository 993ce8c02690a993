"""`leases`: who holds leases and the locks of singletons, and how to free them."""

from __future__ import annotations

import argparse

import anyio

from durable.cli import exits, output, stores
from durable.client import Client, LockSummary
from durable.errors import NotFound, UsageError
from durable.leases import LeaseEntry

_FORMS = "name it as the list does: lease:KEY or lock:KEY"


def leases(arguments: argparse.Namespace) -> int:
    """List what is held, or release one."""
    if arguments.verb == "list":
        if arguments.key is not None or arguments.force:
            raise UsageError(
                "`durable leases list` takes no KEY and no --force",
                hint="`durable leases release KEY` frees one",
            )
        return _list(arguments)
    if arguments.key is None:
        raise UsageError("`durable leases release` needs a KEY", hint=_FORMS)
    named = anyio.run(_release, arguments)
    if arguments.json:
        output.document({"released": named})
    else:
        print(f"{named} is free")
    return exits.DONE


# -- list -----------------------------------------------------------------------------------------


def _list(arguments: argparse.Namespace) -> int:
    leases, locks, now = anyio.run(_read, arguments)
    if arguments.json:
        output.document(
            {
                "leases": [_lease_document(lease) for lease in leases],
                "locks": [_lock_document(lock) for lock in locks],
            }
        )
    elif leases or locks:
        rows = [_lease_row(lease) for lease in leases] + [_lock_row(lock, now) for lock in locks]
        output.table(("key", "state", "held by", "for", "waiters"), rows)
    else:
        print("no leases")
    return exits.DONE


async def _read(
    arguments: argparse.Namespace,
) -> tuple[list[LeaseEntry], list[LockSummary], float]:
    async with stores.existing(arguments) as client:
        leases = [lease async for lease in client.leases.list() if lease.status != "free"]
        locks = [lock async for lock in client.locks.list()]
        return leases, locks, client.store.now()


def _lease_document(lease: LeaseEntry) -> dict[str, object]:
    return {
        "key": lease.key, "state": lease.status, "label": lease.label, "holder": lease.holder,
        "epoch": lease.epoch, "age": lease.age, "ttl": lease.ttl,
    }  # fmt: skip


def _lock_document(lock: LockSummary) -> dict[str, object]:
    return {
        "key": lock.key, "state": lock.status, "run": lock.run or None,
        "workflow": lock.workflow or None, "since": lock.since, "until": lock.until,
        "waiters": lock.waiters,
    }  # fmt: skip


def _lease_row(lease: LeaseEntry) -> tuple[str, ...]:
    holder = f"{lease.label} ({lease.holder})"
    return f"lease:{lease.key}", lease.status, holder, output.lasting(lease.age), ""


def _lock_row(lock: LockSummary, now: float) -> tuple[str, ...]:
    held = "" if lock.since is None else output.lasting(max(0.0, now - lock.since))
    run = f"run {lock.run}" if lock.run else ""
    return f"lock:{lock.key}", lock.status, run, held, output.cut(", ".join(lock.waiters))


# -- release --------------------------------------------------------------------------------------


async def _release(arguments: argparse.Namespace) -> str:
    async with stores.existing(arguments) as client:
        kind, key = await _meant(client, arguments.key)
        if kind == "lease":
            await client.leases.release(key, force=arguments.force)
        else:
            await client.locks.release(key, force=arguments.force)
        return f"{kind}:{key}"


async def _meant(client: Client, named: str) -> tuple[str, str]:
    """The kind and the key: as named, or the only one of that key."""
    kind, colon, key = named.partition(":")
    if colon and kind in {"lease", "lock"}:
        return kind, key
    is_lease = await client.leases.get(named) is not None
    is_lock = named in [lock.key async for lock in client.locks.list()]
    if is_lease and is_lock:
        raise UsageError(f"there is a lease and a lock of the key {named!r}", hint=_FORMS)
    if not is_lease and not is_lock:
        raise NotFound(f"there is no lease and no lock {named!r}", hint="`durable leases` lists")
    return ("lease" if is_lease else "lock"), named
