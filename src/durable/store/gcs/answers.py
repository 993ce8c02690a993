"""From a status code to what it means for the caller. Pure.

What a verb expects (created, refused by the precondition, absent) the backend looks for itself.
Everything else comes here and is one of two: not answered, so that the call is repeated, or a
definite no, whose message says what to do.
"""

from __future__ import annotations

from typing import NamedTuple

import msgspec

from durable.errors import StoreError, StoreRefused, StoreUnavailable
from durable.store.gcs.place import GOOGLE, Place
from durable.store.gcs.tokens import LOGIN

TEXT_MAX = 300  # characters of an answer that are quoted

_BUSY = frozenset({408, 429})
_RATE_REASONS = frozenset({"rateLimitExceeded", "userRateLimitExceeded"})
_KEEP_WORDS = ("retention", "hold")
_PAYER_WORDS = ("requester pays", "user project", "userproject")
_STATUSES = "https://cloud.google.com/storage/docs/json_api/v1/status-codes"


class Answer(NamedTuple):
    """What came back: the status, the body, and when on the boot clock."""

    status: int
    body: bytes
    received: float


class _Detail(msgspec.Struct):
    reason: str = ""


class _Error(msgspec.Struct):
    message: str = ""
    errors: list[_Detail] = []  # a Struct copies it


class _Body(msgspec.Struct):
    error: _Error


_decode = msgspec.json.Decoder(_Body).decode


def no_bucket(answer: Answer) -> bool:
    """Whether a 404 is about the bucket, not about the object."""
    return b"bucket does not exist" in answer.body


def trouble(place: Place, what: str, answer: Answer) -> StoreError:
    """The error for an answer that `what` ("create of 'a'") did not expect."""
    status = answer.status
    reason, text = _said(answer.body)
    said = f"the bucket {place.bucket!r} answered the {what} with {status}"
    said = f"{said}: {text}" if text else said
    if status >= 500 or status in _BUSY or (status == 403 and reason in _RATE_REASONS):
        return StoreUnavailable(said, hint="It may have been carried out; ask again later.")
    if status < 400:
        return StoreUnavailable(said, hint="Something between here and the bucket answers for it.")
    if status == 404:
        said = f"there is no bucket {place.bucket!r}, or this account may not see it"
    return StoreRefused(said, hint=_advice(place, status, reason, text))


def nonsense(place: Place, what: str, error: Exception) -> StoreError:
    """The error for a success whose body cannot be read."""
    return StoreUnavailable(
        f"the bucket {place.bucket!r} answered the {what} with what cannot be read: {error}",
        hint="It may have been carried out; ask again later.",
    )


def silence(place: Place, what: str, error: Exception) -> StoreError:
    """The error for a request that was not answered."""
    text = " ".join(str(error).replace(" ssl:default", "").split()) or type(error).__name__
    host = "Google Cloud Storage" if place.endpoint == GOOGLE else place.endpoint
    return StoreUnavailable(
        f"{host} did not answer the {what}: {text[:TEXT_MAX]}",
        hint="Check that it can be reached from here: network, proxy, STORAGE_EMULATOR_HOST.",
    )


def on_payer(place: Place, status: int, text: str) -> str:
    """What to do if the project that pays is missing or wrong; empty if it is something else."""
    lower = text.lower()
    if status == 403 and "serviceusage.services.use" in lower:
        return (
            "Allow this account to have that project pay: gcloud projects add-iam-policy-binding "
            f"{place.user_project or 'PROJECT'} --member=ACCOUNT "
            "--role=roles/serviceusage.serviceUsageConsumer"
        )
    if status != 400 or not any(word in lower for word in _PAYER_WORDS):
        return ""
    if place.user_project:
        said = f"The project {place.user_project!r} is none that can pay"
        return f"{said}; name another: {place}?userProject=PROJECT"
    return f"Name the project that pays: {place}?userProject=PROJECT"


def meaning_of(status: int) -> str:
    """Where a status is explained of which nothing better is known."""
    return f"What Google means by {status}: {_STATUSES}"


def _advice(place: Place, status: int, reason: str, text: str) -> str:
    bucket = f"gs://{place.bucket}"
    lower = f"{reason} {text}".lower()
    if payer := on_payer(place, status, lower):
        return payer
    if status == 404:
        return f"Check the name, or make the bucket: durable init {bucket}"
    if status == 401:
        return f"Sign in again: {LOGIN}"
    if status == 403 and any(word in lower for word in _KEEP_WORDS):
        return (
            "durable replaces and deletes objects, so the bucket must allow it: "
            f"gcloud storage buckets update {bucket} --clear-retention-period "
            "--no-default-event-based-hold"
        )
    if status == 403:
        return (
            "Allow this account to read, write and list objects: gcloud storage buckets "
            f"add-iam-policy-binding {bucket} --member=ACCOUNT --role=roles/storage.objectUser"
        )
    return meaning_of(status)


def _said(body: bytes) -> tuple[str, str]:
    """The reason and the message of an error body: JSON, or plain text of a media request."""
    try:
        error = _decode(body).error
    except msgspec.MsgspecError:
        reason, text = "", body[: 2 * TEXT_MAX].decode(errors="replace")
    else:
        reason, text = error.errors[0].reason if error.errors else "", error.message
    return reason, " ".join(text.split())[:TEXT_MAX]
