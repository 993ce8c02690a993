"""What a bucket's settings mean for a store that replaces small objects all the time. Pure."""

from __future__ import annotations

import msgspec

from durable.doctor.findings import Finding
from durable.protocol import keeping
from durable.protocol.leases import TTL_DEFAULT, Terms

LEASE_BYTES = 1_000  # of a worker's lease: its body, and the copy of it in the metadata
GB_MONTH = 0.020  # dollars, Standard storage in a single region


class Settings(msgspec.Struct, frozen=True):
    """The settings of a bucket that matter here; durations in seconds."""

    location: str = ""
    uniform_access: bool = False
    retention: int = 0
    retention_locked: bool = False
    default_hold: bool = False
    versioning: bool = False
    soft_delete: int = 0
    hierarchical: bool = False
    requester_pays: bool = False


def judge(bucket: str, payer: str, settings: Settings) -> list[Finding]:
    """One finding for each setting.

    Args:
        bucket: its URL without a prefix.
        payer: the project that the store's URL names; empty if it names none.
    """
    return [
        _retention(bucket, settings),
        _hold(bucket, settings),
        _versioning(bucket, settings),
        _soft_delete(bucket, settings),
        _namespace(settings),
        _requester_pays(payer, settings),
    ]


def dead_copies(kept: float, ttl: float = TTL_DEFAULT) -> tuple[int, float]:
    """What soft delete keeps of one worker's lease: copies, and dollars a month for them.

    Args:
        kept: how long soft delete keeps a replaced object, in seconds.
        ttl: of the worker's lease, in seconds; it is renewed every third of it.
    """
    copies = round(kept / Terms.of(ttl).period)
    return copies, copies * LEASE_BYTES / 1e9 * GB_MONTH


def _retention(bucket: str, settings: Settings) -> Finding:
    kept = keeping.by_retention(bucket, settings.retention, locked=settings.retention_locked)
    if kept is None:
        return Finding("retention", "ok", "objects may be replaced and deleted at any time")
    return Finding("retention", "refused", kept.found, kept.fix)


def _hold(bucket: str, settings: Settings) -> Finding:
    kept = keeping.by_hold(bucket, by_default=settings.default_hold)
    if kept is None:
        return Finding("hold", "ok", "new objects are under no hold")
    return Finding("hold", "refused", kept.found, kept.fix)


def _versioning(bucket: str, settings: Settings) -> Finding:
    if not settings.versioning:
        return Finding("versioning", "ok", "off")
    found = "on: every renewal of a lease leaves a copy that is kept and billed for ever"
    return Finding("versioning", "warning", found, keeping.update(bucket, "--no-versioning"))


def _soft_delete(bucket: str, settings: Settings) -> Finding:
    if not settings.soft_delete:
        return Finding("soft-delete", "ok", "off")
    copies, dollars = dead_copies(settings.soft_delete)
    found = (
        f"on for {keeping.lasting(settings.soft_delete)}: a worker that renews its lease every "
        f"{Terms.of(TTL_DEFAULT).period:.1f} s has {copies:,} dead copies of it, ${dollars:.4f} "
        f"a month (1,000 workers: ${1000 * dollars:.2f}); results that are deleted are billed "
        "for as long"
    )
    return Finding("soft-delete", "warning", found, keeping.update(bucket, "--clear-soft-delete"))


def _namespace(settings: Settings) -> Finding:
    if not settings.hierarchical:
        return Finding("namespace", "ok", "flat")
    found = (
        "hierarchical: each new folder is billed as one more write, three for a run, and a "
        "write costs 30 % more; it cannot be changed"
    )
    return Finding("namespace", "warning", found, "durable init gs://ANOTHER-BUCKET")


def _requester_pays(payer: str, settings: Settings) -> Finding:
    if not settings.requester_pays:
        return Finding("requester-pays", "ok", "off: the bucket's owner pays")
    found = f"on: the project {payer!r} pays, as the store's URL says (userProject)"
    return Finding("requester-pays", "note", found)
