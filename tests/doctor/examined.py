"""Examinations for the tests: of a backend, and of a bucket on a server."""

from __future__ import annotations

import anyio

from durable.doctor import Finding, Report, examine
from durable.store import Backend, Store
from durable.store.gcs import GcsBackend, Place


def examined(
    backend: Backend, *, place: Place | None = None, patience: float | None = 30.0
) -> Report:
    """The report on a backend, which is closed afterwards."""

    async def work() -> Report:
        try:
            return await examine(Store(backend, patience=patience), "some:url", place)
        finally:
            await backend.aclose()

    return anyio.run(work)


def examined_bucket(url: str, *, payer: str = "", patience: float | None = 30.0) -> Report:
    """The report on the bucket `some-bucket` of the server at `url`."""
    place = Place("some-bucket", "shop/", payer, url, anonymous=True)
    return examined(GcsBackend(place), place=place, patience=patience)


def finding(report: Report, check: str) -> Finding:
    """The one finding of that check."""
    (found,) = [one for one in report.findings if one.check == check]
    return found


def levels(report: Report) -> dict[str, str]:
    """The level of each check, in order."""
    return {one.check: one.level for one in report.findings}
