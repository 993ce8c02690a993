"""`doctor` and `init`: whether a store can be trusted, and making one that can."""

from __future__ import annotations

import argparse
import os
from pathlib import Path
from typing import TYPE_CHECKING

import anyio

from durable.cli import exits, output
from durable.client.consistency import RunsExamination
from durable.client.load import look_at_load
from durable.configuration import settings
from durable.doctor import Finding, Report, examine, platforms, roles
from durable.errors import StoreRefused, UsageError
from durable.store.opening import open_store, parse_url

if TYPE_CHECKING:
    from durable.store.gcs import Place

PATIENCE = 15.0  # seconds for which one call that is not answered is repeated


def doctor(arguments: argparse.Namespace) -> int:
    """Try the store and print what was found."""
    report = anyio.run(_examine_all, arguments, _url(arguments))
    if arguments.json:
        output.document(_document(report))
    else:
        _print(report)
    return _code(report)


def init(arguments: argparse.Namespace) -> int:
    """Make or set up the store, say what changed, and try it."""
    url = _url(arguments)
    place = _place(url)
    created, changes = _prepare(url, place, arguments)
    if not arguments.json:
        name = url if place is None else f"gs://{place.bucket}"
        _print_changes(name, created, changes)
    report = anyio.run(_examine, url, place, True)
    if arguments.json:
        output.document({"created": created, "changes": changes, **_document(report)})
    else:
        _print(report)
    return _code(report)


def _prepare(
    url: str, place: Place | None, arguments: argparse.Namespace
) -> tuple[bool, list[str]]:
    """Whether the store was made here, and what was changed of one that was there."""
    if place is not None:
        from durable.doctor import buckets

        prepared = buckets.prepare(place, arguments.location, arguments.project)
        return prepared.created, prepared.changes
    if arguments.location or arguments.project:
        raise UsageError(f"--location and --project are of buckets, and {url} is none")
    location = parse_url(url)  # opening a file makes it
    return location.kind == "sqlite" and not Path(location.place).exists(), []


async def _examine_all(arguments: argparse.Namespace, url: str) -> Report:
    """The store, who may do what with it, from where, and what is going on in it."""
    place = _place(url)
    report = await _examine(url, place, create=False)
    report.findings += platforms.judge(os.environ)
    if place is not None and roles.were_tried(report.findings):
        report.findings.append(roles.judge(report.findings))
    if report.refused:
        return report
    store = open_store(url, patience=PATIENCE)
    try:
        report.findings += await look_at_load(store, billed=place is not None)
        if arguments.runs or arguments.repair:
            report.findings += await RunsExamination(store, repair=arguments.repair).findings()
    finally:
        await store.aclose()
    return report


async def _examine(url: str, place: Place | None, create: bool) -> Report:
    try:
        store = open_store(url, patience=PATIENCE, create=create)
    except StoreRefused as e:
        return Report(url, [Finding("reach", "refused", e.message, e.hint or "")])
    try:
        return await examine(store, url, place)
    finally:
        await store.aclose()


def _url(arguments: argparse.Namespace) -> str:
    if arguments.url and arguments.store and arguments.url != arguments.store:
        raise UsageError("two stores are named", hint="Name one, as URL or with --store.")
    return settings(arguments.url or arguments.store, os.environ, Path.cwd()).store


def _place(url: str) -> Place | None:
    location = parse_url(url)
    if location.kind != "gs":
        return None
    from durable.store.gcs import Place

    return Place.parse(location.place)


def _code(report: Report) -> int:
    return exits.STORE if report.refused else exits.DONE


def _document(report: Report) -> dict[str, object]:
    return {
        "store": report.store, "ok": not report.refused, "findings": report.findings,
        "latency": report.latency, "clock_offset": report.clock_offset,
    }  # fmt: skip


def _print_changes(name: str, created: bool, changes: list[str]) -> None:
    if not created and not changes:
        print(f"{name} needed no change")
    for change in changes:
        print(f"{name} was changed: {change}")
    if created:
        print(f"{name} was created")
    print()


def _print(report: Report) -> None:
    rows = [(one.level, one.check, one.found) for one in report.findings]
    output.table(("result", "check", "found"), rows)
    fixes = [one for one in report.findings if one.fix]
    if fixes:
        print("\nto do:")  # lines of their own: a command in a cell could not be copied
    for one in fixes:
        print(f"  {one.check}: {one.fix}")
    refused = ", ".join(dict.fromkeys(one.check for one in report.refused))
    print(f"\ndoctor: refused for {refused}" if refused else "\ndoctor: ok")
