"""A bucket's settings, read and changed with Google's own client, which blocks: call in a thread.

The only module that imports google-cloud-storage, and only when it is used.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import Any

import msgspec

from durable.doctor.settings import Settings
from durable.errors import StoreError, StoreRefused, StoreUnavailable, UsageError
from durable.store.gcs import Place
from durable.store.gcs.answers import meaning_of, on_payer
from durable.store.gcs.tokens import LOGIN

CALL_SECONDS = 15.0  # of one call, and of all its repetitions
FIRST_PAUSE = 0.2  # seconds, at most, before a repetition; doubles
# Changing a bucket's settings needs more than reading and writing its objects.
_SCOPE = "https://www.googleapis.com/auth/devstorage.full_control"


class Prepared(msgspec.Struct, frozen=True):
    """What was done to a bucket.

    Attributes:
        created: it was not there before.
        changes: what was set otherwise than it was, for people.
    """

    created: bool
    changes: list[str]


def read(place: Place) -> Settings:
    """The settings of the bucket.

    Raises:
        StoreRefused: there is none, or this account may not see its settings.
        StoreUnavailable: Google does not answer.
    """
    with _bucket(place, "look at its settings", "") as bucket:
        bucket.reload(**_patience())
        return _settings(bucket)


def prepare(place: Place, location: str, project: str) -> Prepared:
    """Make the bucket, or set what is there as durable needs it.

    Args:
        location: where a new bucket is; empty: where Google puts it (US).
        project: that a new bucket belongs to; empty: that of the credentials.

    Raises:
        StoreRefused: it may not be made or changed, or its retention policy is locked.
        StoreUnavailable: Google does not answer.
        UsageError: it is there already, elsewhere than in `location`.
    """
    from google.api_core.exceptions import NotFound

    with _bucket(place, "set-up", project) as bucket:
        try:
            bucket.reload(**_patience())
        except NotFound:
            if _create(bucket, location):
                return Prepared(True, [])
            bucket.reload(**_patience())
        found = _settings(bucket)
        _check_changeable(place, found, location)
        changes = _configure(bucket, found)
        if changes:
            # Else a retention policy that is being locked just now could be taken for unlocked.
            bucket.patch(if_metageneration_match=bucket.metageneration, **_patience())
        return Prepared(False, changes)


def _create(bucket: Any, location: str) -> bool:
    """Make it. False: somebody has, which may be a request of ours whose answer was lost."""
    from google.api_core.exceptions import Conflict

    _configure(bucket, Settings(soft_delete=1))  # on, unless a new bucket is told otherwise
    try:
        bucket.create(location=location or None, **_patience())
    except Conflict:
        return False
    return True


def _check_changeable(place: Place, found: Settings, location: str) -> None:
    if found.retention and found.retention_locked:
        raise StoreRefused(
            f"the bucket {place.bucket!r} has a locked retention policy of {found.retention:,} s "
            "and was left as it is: no lease could ever be renewed there",
            hint="Use another bucket: durable init gs://ANOTHER-BUCKET",
        )
    if location and location.upper() != found.location.upper():
        raise UsageError(
            f"the bucket {place.bucket!r} is in {found.location} and cannot be moved to {location}",
            hint="Leave --location away, or use another bucket.",
        )


def _configure(bucket: Any, found: Settings) -> list[str]:
    """Set what is not as it should be, in memory; returns what that is."""
    changes = []
    if not found.uniform_access:
        bucket.iam_configuration.uniform_bucket_level_access_enabled = True
        changes.append("uniform bucket-level access: on")
    if found.soft_delete:
        bucket.soft_delete_policy.retention_duration_seconds = 0
        changes.append(f"soft delete: off (was {found.soft_delete:,} s)")
    if found.versioning:
        bucket.versioning_enabled = False
        changes.append("versioning: off")
    if found.retention:
        bucket.retention_period = None
        changes.append(f"retention policy: none (was {found.retention:,} s)")
    if found.default_hold:
        bucket.default_event_based_hold = False
        changes.append("default event-based hold: off")
    return changes


def _settings(bucket: Any) -> Settings:
    return Settings(
        location=bucket.location or "",
        uniform_access=bool(bucket.iam_configuration.uniform_bucket_level_access_enabled),
        retention=bucket.retention_period or 0,
        retention_locked=bool(bucket.retention_policy_locked),
        default_hold=bool(bucket.default_event_based_hold),
        versioning=bool(bucket.versioning_enabled),
        soft_delete=int(bucket.soft_delete_policy.retention_duration_seconds or 0),
        hierarchical=bool(bucket.hierarchical_namespace_enabled),
        requester_pays=bool(bucket.requester_pays),
    )


@contextmanager
def _bucket(place: Place, what: str, project: str) -> Iterator[Any]:
    """The bucket; inside, Google's errors become ours."""
    from google.api_core.exceptions import GoogleAPICallError, RetryError
    from google.auth.exceptions import GoogleAuthError
    from requests.exceptions import RequestException

    try:
        with closing(_client(place, project)) as client:
            yield client.bucket(place.bucket, user_project=place.user_project or None)
    except GoogleAuthError as e:
        raise StoreRefused(
            f"Google's credentials cannot be used: {_line(e)}", hint=f"Run `{LOGIN}`."
        ) from e
    except GoogleAPICallError as e:
        raise _explained(place, what, e) from e
    except (RetryError, RequestException) as e:
        raise StoreUnavailable(
            f"Google Cloud Storage did not answer about the bucket {place.bucket!r}: {_line(e)}",
            hint="Check that it can be reached from here: network, proxy, STORAGE_EMULATOR_HOST.",
        ) from e


def _client(place: Place, project: str) -> Any:
    import google.auth
    from google.auth.credentials import AnonymousCredentials
    from google.cloud import storage  # type: ignore[import-untyped]  # it has no types

    if place.anonymous:
        options = {"api_endpoint": place.endpoint}
        return storage.Client(project or "durable", AnonymousCredentials(), client_options=options)  # type: ignore[no-untyped-call]  # Google's client has no types
    credentials, found = google.auth.default(scopes=[_SCOPE])
    return storage.Client(project or found, credentials)


def _patience() -> dict[str, Any]:
    from google.cloud.storage.retry import DEFAULT_RETRY  # type: ignore[import-untyped]  # nor has this

    retry = DEFAULT_RETRY.with_timeout(CALL_SECONDS).with_delay(initial=FIRST_PAUSE)
    return {"timeout": CALL_SECONDS, "retry": retry}


def _explained(place: Place, what: str, error: Any) -> StoreError:
    head, _, text = " ".join(str(error.message).split()).partition(": ")
    text = text or head  # without method and URL, which has the name of the project in it, too
    said = f"the bucket {place.bucket!r} answered the {what} with {error.code}: {text}"
    if error.code is None or error.code >= 500 or error.code in (408, 429):
        return StoreUnavailable(said, hint="Ask again later.")
    hint = on_payer(place, error.code, text) or _advice(place, error.code)
    return StoreRefused(said, hint=hint)


def _advice(place: Place, code: int) -> str:
    grant = f"gcloud storage buckets add-iam-policy-binding gs://{place.bucket} --member=ACCOUNT"
    match code:
        case 400:
            return "Name the project of a new bucket (--project), and a location that exists."
        case 403:
            return (
                "Whoever made the bucket may do this, or else the name belongs to somebody "
                f"else. To allow it: {grant} --role=roles/storage.admin"
            )
        case 404:
            return f"Make it: durable init gs://{place.bucket}"
        case 412:
            return "Somebody else changed it at the same moment: run the command again."
        case 401:
            return f"Sign in again: {LOGIN}"
    return meaning_of(code)


def _line(error: Exception) -> str:
    return " ".join(str(error).split())
