"""A bucket: its configuration as the API shows and changes it, and what that forbids."""

from __future__ import annotations

import re
from typing import Any

import msgspec

from durable.store.memory import Bucket
from durable.testing.gcs.generations import Generations
from durable.testing.gcs.limits import MutationLimit
from durable.testing.gcs.refusals import forbidden, invalid, under_hold, under_retention
from durable.testing.gcs.resources import Place, Version, retained_until, rfc3339

SOFT_DELETE_DEFAULT = 7 * 86_400  # seconds: what GCS gives a new bucket
_SOFT_DELETE_RANGE = range(7 * 86_400, 90 * 86_400 + 1)
_INT64 = {"softDeletePolicy": "retentionDurationSeconds", "retentionPolicy": "retentionPeriod"}
_NAME = re.compile(r"[a-z0-9][a-z0-9._-]{1,220}[a-z0-9]")

DELETE = "storage.objects.delete"

Config = dict[str, Any]  # a JSON object


class Switch(msgspec.Struct):
    enabled: bool = False


class SoftDeletePolicy(msgspec.Struct, rename="camel"):
    retention_duration_seconds: int = 0


class RetentionPolicy(msgspec.Struct, rename="camel"):
    retention_period: int
    is_locked: bool = False


class Billing(msgspec.Struct, rename="camel"):
    requester_pays: bool = False


class Rules(msgspec.Struct, rename="camel"):
    """The part of a configuration that this server acts on."""

    versioning: Switch = msgspec.field(default_factory=Switch)
    soft_delete_policy: SoftDeletePolicy = msgspec.field(default_factory=SoftDeletePolicy)
    retention_policy: RetentionPolicy | None = None
    default_event_based_hold: bool = False
    billing: Billing = msgspec.field(default_factory=Billing)
    hierarchical_namespace: Switch = msgspec.field(default_factory=Switch)


class BucketState:
    """One bucket of the server.

    Args:
        table: its live objects; share it with whatever else shall see them.
        config: its configuration as JSON, e.g. {"versioning": {"enabled": True}}.
        limit: refuses mutations of one object that come too fast; None does not.
        project: the number of the project it belongs to.

    Attributes:
        denied: permissions that the caller lacks, e.g. "storage.objects.delete".
    """

    def __init__(
        self,
        name: str,
        table: Bucket,
        config: Config | None = None,
        *,
        limit: MutationLimit | None = None,
    ) -> None:
        check_bucket_name(name)
        self.name = name
        self.table = table
        self.generations = Generations(table)
        self.limit = limit
        self.denied: set[str] = set()
        self.config: Config = {}
        self.rules = Rules()
        self.metageneration = 0
        self.created = self.updated = table.now()
        self.configure(config or {}, self.created)

    def configure(self, config: Config, now: float) -> None:
        """Take a whole new configuration.

        Raises:
            Refusal: 400, it cannot be.
        """
        rules = _rules(config)
        locked = self.rules.retention_policy
        if locked is not None and locked.is_locked:
            new = rules.retention_policy
            if new is None or new.retention_period < locked.retention_period:
                raise invalid("A locked retention policy cannot be removed or made shorter.")
        self.config, self.rules = _with_int64(config), rules
        self.generations.versioning = rules.versioning.enabled
        self.generations.soft_delete = rules.soft_delete_policy.retention_duration_seconds
        self.metageneration += 1
        self.updated = now

    def place(self, base: str) -> Place:
        """This bucket as seen by who reached the server at `base`."""
        policy = self.rules.retention_policy
        return Place(self.name, base, None if policy is None else policy.retention_period)

    def protect(self, version: Version, now: float) -> None:
        """Nothing may delete or overwrite a generation that is held or retained.

        Raises:
            Refusal: 403.
        """
        if DELETE in self.denied:
            raise forbidden(DELETE, "object")  # overwriting needs it too
        settings, name = version.attributes.settings, version.stored.name
        if settings.get("temporaryHold"):
            raise under_hold(self.name, name, "Temporary")
        if settings.get("eventBasedHold"):
            raise under_hold(self.name, name, "Event-Based")
        policy = self.rules.retention_policy
        if policy is not None:
            until = retained_until(version, policy.retention_period)
            if until is not None and now < until:
                raise under_retention(self.name, name, rfc3339(until))

    def admit(self, now: float, *names: str) -> None:
        """Count a mutation of each of these objects, about to be committed.

        Raises:
            Refusal: 429, the last one is less than a second ago; then none is counted.
        """
        if self.limit is not None:
            self.limit.admit(self.name, names, now)

    def resource(self, base: str) -> dict[str, Any]:
        """The bucket as JSON values."""
        return {
            "kind": "storage#bucket",
            "id": self.name,
            "name": self.name,
            "selfLink": f"{base}/storage/v1/b/{self.name}",
            "projectNumber": "1",
            "metageneration": str(self.metageneration),
            "etag": f"CA{self.metageneration}=",
            "timeCreated": rfc3339(self.created),
            "updated": rfc3339(self.updated),
            "location": "US",
            "locationType": "multi-region",
            "storageClass": "STANDARD",
            **self.config,
        }


def with_defaults(config: Config) -> Config:
    """The configuration of a bucket made through the API: soft delete is on unless switched off."""
    policy = {"retentionDurationSeconds": str(SOFT_DELETE_DEFAULT)}
    return {"softDeletePolicy": policy, **config}


def merge(config: Config, patch: Config) -> Config:
    """JSON merge patch: objects are merged, `null` removes."""
    merged = dict(config)
    for name, value in patch.items():
        if value is None:
            merged.pop(name, None)
        elif isinstance(value, dict) and isinstance(merged.get(name), dict):
            merged[name] = merge(merged[name], value)
        else:
            merged[name] = value
    return merged


def check_bucket_name(name: str) -> None:
    """Can a bucket have that name?

    Raises:
        Refusal: 400, no bucket can have that name.
    """
    if not _NAME.fullmatch(name) or ".." in name:
        raise invalid(f"Invalid bucket name: '{name}'")


def _rules(config: Config) -> Rules:
    try:
        # int64 values come as strings, so numbers may be either.
        rules = msgspec.convert(config, Rules, strict=False)
    except msgspec.ValidationError as e:
        raise invalid(f"The body is no bucket resource: {e}") from e
    seconds = rules.soft_delete_policy.retention_duration_seconds
    if seconds and seconds not in _SOFT_DELETE_RANGE:
        raise invalid("Soft delete retention is 0 or between 7 and 90 days.")
    if rules.retention_policy is not None and rules.retention_policy.retention_period <= 0:
        raise invalid("Retention policy retention period must be positive.")
    # https://docs.cloud.google.com/storage/docs/object-versioning
    if rules.retention_policy is not None and rules.versioning.enabled:
        raise invalid("A bucket cannot have both a retention policy and Object Versioning.")
    return rules


def _with_int64(config: Config) -> Config:
    """The same with int64 values as JSON has them at GCS: strings, however they were sent."""
    shown = dict(config)
    for part, name in _INT64.items():
        if name in (config.get(part) or {}):
            number = msgspec.convert(config[part][name], int, strict=False)
            shown[part] = {**config[part], name: str(number)}
    return shown
