"""Settings of a bucket that keep its objects: no lease could be renewed there. Pure."""

from __future__ import annotations

from typing import NamedTuple

_DAY = 86_400


class Kept(NamedTuple):
    """What a rule does to objects, for people, and the command that ends it."""

    found: str
    fix: str


def by_retention(bucket: str, seconds: int, *, locked: bool) -> Kept | None:
    """What a retention policy of so many seconds means; None if there is none.

    Args:
        bucket: its URL without a prefix.
        locked: it can never be taken back.
    """
    if not seconds:
        return None
    kept = f"objects cannot be replaced or deleted for {lasting(seconds)}"
    if locked:
        found = f"{kept}, and that is locked for ever; leases are replaced every few seconds"
        return Kept(found, "durable init gs://ANOTHER-BUCKET")
    found = f"{kept}; leases are replaced every few seconds"
    return Kept(found, update(bucket, "--clear-retention-period"))


def by_hold(bucket: str, *, by_default: bool) -> Kept | None:
    """What an event-based hold on every new object means; None if there is none."""
    if not by_default:
        return None
    found = "new objects are under an event-based hold, so none can be replaced or deleted"
    return Kept(found, update(bucket, "--no-default-event-based-hold"))


def update(bucket: str, flag: str) -> str:
    """The command that changes a setting of the bucket."""
    return f"gcloud storage buckets update {bucket} {flag}"


def lasting(seconds: int) -> str:
    """A duration in days where it is whole days, else in seconds."""
    days, rest = divmod(seconds, _DAY)
    return f"{seconds:,} s" if rest else f"{days:,} day{'s' if days != 1 else ''}"
