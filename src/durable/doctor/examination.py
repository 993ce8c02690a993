"""The whole examination, in an order that writes nothing where nothing may be written."""

from __future__ import annotations

from typing import TYPE_CHECKING

from anyio import to_thread

from durable.doctor import settings, speed
from durable.doctor.findings import Finding, Report
from durable.doctor.markers import look_at_markers
from durable.doctor.operations import reach, try_operations
from durable.doctor.probe import Probe
from durable.doctor.races import try_races
from durable.errors import StoreError, StoreRefused
from durable.store import Store

if TYPE_CHECKING:
    from durable.store.gcs import Place

_SETTINGS_ROLE = "roles/storage.legacyBucketReader"


async def examine(store: Store, url: str, place: Place | None = None) -> Report:
    """Try the store. It stops at the first thing that makes the rest pointless.

    Args:
        store: with the patience that a check may have.
        url: of the store, for people.
        place: its bucket, if it is one; then the bucket's settings are looked at too.
    """
    report = Report(url)
    probe = Probe(store)
    try:
        await _examine(probe, place, report)
    except StoreError as e:
        check = "examination" if report.findings else "reach"
        report.findings.append(Finding(check, "refused", e.message, e.hint or ""))
    finally:
        if probe.used:
            report.findings.append(await probe.clean())
    return report


async def _examine(probe: Probe, place: Place | None, report: Report) -> None:
    found = report.findings
    found.append(await reach(probe))
    if report.refused:
        return
    if place is not None:
        found += await _settings(place)
        if report.refused:
            found.append(Finding("operations", "note", "not tried; nothing was written"))
            return
    found += await try_operations(probe)
    if report.refused:
        return
    found += await try_races(probe)
    report.latency = await speed.time_calls(probe)
    found.append(speed.latency_finding(report.latency))
    offset = probe.store.now() - probe.store.system.wall()
    report.clock_offset = round(offset, 3) or 0.0  # no -0.0
    found.append(speed.clock_finding(report.clock_offset))
    found.append(await look_at_markers(probe.store))


async def _settings(place: Place) -> list[Finding]:
    from durable.doctor import buckets

    bucket = f"gs://{place.bucket}"
    try:
        read = await to_thread.run_sync(buckets.read, place)
    except StoreRefused as e:
        grant = (
            f"gcloud storage buckets add-iam-policy-binding {bucket} --member=ACCOUNT "
            f"--role={_SETTINGS_ROLE}"
        )
        return [Finding("settings", "warning", f"they cannot be looked at: {e.message}", grant)]
    return settings.judge(bucket, place.user_project, read)
