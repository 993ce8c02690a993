"""Which permission each verb needs. The caller has all of them but those a bucket denies."""

from __future__ import annotations

from durable.testing.gcs.buckets import DELETE, BucketState
from durable.testing.gcs.refusals import forbidden

_CREATE, _GET, _LIST = "storage.objects.create", "storage.objects.get", "storage.objects.list"
_UPDATE, _RESTORE = "storage.objects.update", "storage.objects.restore"

_SOURCE_NEEDS: dict[str, tuple[str, ...]] = {
    "insert": (_CREATE,),
    "resumable.start": (_CREATE,),
    "get": (_GET,),
    "media": (_GET,),
    "list": (_LIST,),
    "delete": (DELETE,),
    "patch": (_UPDATE,),
    "update": (_UPDATE,),
    "restore": (_RESTORE, _CREATE),
    "compose": (_GET, _CREATE),
    "copy": (_GET,),
    "rewrite": (_GET,),
    "move": (_GET, _CREATE, DELETE),
    "buckets.get": ("storage.buckets.get",),
    "buckets.layout": (_LIST,),
    "buckets.patch": ("storage.buckets.update",),
    "buckets.update": ("storage.buckets.update",),
    "buckets.lock": ("storage.buckets.update",),
    "buckets.delete": ("storage.buckets.delete",),
    "buckets.policy": ("storage.buckets.getIamPolicy",),
}
_TARGET_NEEDS = {"copy": (_CREATE,), "rewrite": (_CREATE,)}


def check_permissions(verb: str, source: BucketState, target: BucketState) -> None:
    """May the caller do that?

    Raises:
        Refusal: 403, the bucket denies what the verb needs.
    """
    for bucket, needs in ((source, _SOURCE_NEEDS), (target, _TARGET_NEEDS)):
        if bucket.denied:
            for permission in needs.get(verb, ()):
                if permission in bucket.denied:
                    what = "bucket" if permission.startswith("storage.buckets.") else "object"
                    raise forbidden(permission, what)
