"""Paths to verbs. Segments are split before they are decoded: a name may contain `/`."""

from __future__ import annotations

from typing import NamedTuple

from durable.testing.gcs.conditions import OF_SOURCE, OF_TARGET
from durable.testing.gcs.refusals import (
    Refusal,
    invalid,
    not_found,
    not_implemented,
    unknown_parameter,
)
from durable.testing.gcs.uploads import Upload, parse_upload
from durable.testing.gcs.wire import Request, decode

_BUCKET = ("ifMetagenerationMatch", "ifMetagenerationNotMatch", "projection")
# What every call may carry.
_COMMON = frozenset(
    {"alt", "fields", "projection", "userProject", "prettyPrint", "uploadType", "upload_id"}
    | {"upload_protocol", "key", "quotaUser", "userIp", "access_token", "oauth_token"}
    | {"predefinedAcl", "predefinedDefaultObjectAcl", "$.xgafv"}
)
# What each verb may carry besides. A condition on a verb that has none would be ignored
# silently by a lenient server; here it is an error.
_PARAMETERS: dict[str, frozenset[str]] = {
    verb: _COMMON.union(*groups)
    for verb, groups in {
        "insert": (OF_TARGET, ("name", "contentEncoding", "kmsKeyName")),
        "resumable.start": (OF_TARGET, ("name", "contentEncoding", "kmsKeyName")),
        "resumable.put": (OF_TARGET, ("name",)),
        "resumable.cancel": (OF_TARGET, ("name",)),
        "get": (OF_TARGET, ("generation", "softDeleted", "restoreToken")),
        "media": (OF_TARGET, ("generation",)),
        "delete": (OF_TARGET, ("generation",)),
        "patch": (OF_TARGET, ("generation", "overrideUnlockedRetention")),
        "update": (OF_TARGET, ("generation", "overrideUnlockedRetention")),
        "restore": (OF_TARGET, ("generation", "copySourceAcl", "restoreToken")),
        "compose": (("ifGenerationMatch", "ifMetagenerationMatch"), ("destinationPredefinedAcl",)),
        "copy": (OF_TARGET, OF_SOURCE, ("sourceGeneration", "destinationPredefinedAcl")),
        "rewrite": (
            OF_TARGET,
            OF_SOURCE,
            ("sourceGeneration", "destinationPredefinedAcl", "rewriteToken"),
            ("maxBytesRewrittenPerCall",),
        ),
        "move": (OF_TARGET, OF_SOURCE),
        "list": (
            ("prefix", "delimiter", "startOffset", "endOffset", "maxResults", "pageToken"),
            ("versions", "softDeleted", "includeTrailingDelimiter", "matchGlob", "filter"),
            ("includeFoldersAsPrefixes",),
        ),
        "buckets.get": (_BUCKET, ("generation", "softDeleted")),
        "buckets.patch": (_BUCKET,),
        "buckets.update": (_BUCKET,),
        "buckets.delete": (_BUCKET,),
        "buckets.insert": (("project", "enableObjectRetention"),),
        "buckets.list": (("project", "prefix", "maxResults", "pageToken", "softDeleted"),),
        "buckets.lock": (_BUCKET,),
        "buckets.layout": (("prefix",),),
        "buckets.policy": (("optionsRequestedPolicyVersion",),),
        "buckets.permissions": (("permissions",),),
    }.items()
}
_NOT_IMPLEMENTED = ("matchGlob", "filter", "includeFoldersAsPrefixes")

_OBJECT_VERBS = {"GET": "get", "DELETE": "delete", "PATCH": "patch", "PUT": "update"}
_BUCKET_VERBS = {
    "GET": "buckets.get",
    "PATCH": "buckets.patch",
    "PUT": "buckets.update",
    "DELETE": "buckets.delete",
}
_BUCKET_ACTIONS = {
    "storageLayout": {"GET": "buckets.layout"},
    "lockRetentionPolicy": {"POST": "buckets.lock"},
    "iam": {"GET": "buckets.policy"},
    "iam/testPermissions": {"GET": "buckets.permissions"},
}


class Route(NamedTuple):
    """What a request is about.

    Attributes:
        verb: as in the API's method names; `buckets.` before those of buckets.
        name: the object; for a list the prefix.
        target_bucket, target: where a copy or move goes.
        upload: what a POST uploads.
    """

    verb: str
    bucket: str = ""
    name: str = ""
    target_bucket: str = ""
    target: str = ""
    upload: Upload | None = None


def route(request: Request) -> Route:
    """What the request is about, by its method, path and parameters.

    Raises:
        Refusal: 404 or 405, no verb answers there; 400, it has no such parameter.
        Malformed: a name is no UTF-8.
    """
    found = _find(request)
    known = _PARAMETERS[found.verb]
    for name in request.params:
        if name not in known:
            raise unknown_parameter(name, found.verb)
        if name in _NOT_IMPLEMENTED:
            raise not_implemented(f"the parameter {name!r} of {found.verb}")
    return found


def _find(request: Request) -> Route:
    match request.path.split("/"):
        case ["", "upload", "storage", "v1", "b", bucket, "o"]:
            return _upload(request, decode(bucket))
        case ["", "resumable", "upload", "storage", "v1", "b", bucket, "o"]:
            return _upload(request, decode(bucket))
        case ["", "download", "storage", "v1", "b", bucket, "o", name] if request.method == "GET":
            return Route("media", decode(bucket), decode(name))
        case ["", "storage", "v1", "b", *rest]:
            return _storage(request, rest)
    raise not_found()


def _upload(request: Request, bucket: str) -> Route:
    misspelt = request.params.pop("ifMetaGenerationNotMatch", None)
    if misspelt is not None:  # so writes google-cloud-storage, in uploads
        request.params["ifMetagenerationNotMatch"] = misspelt
    session = "upload_id" in request.params
    match request.method:
        case "POST":
            upload = parse_upload(request)
            resumable = request.params["uploadType"] == "resumable"
            verb = "resumable.start" if resumable else "insert"
            return Route(verb, bucket, upload.name, upload=upload)
        case "PUT" if session:
            return Route("resumable.put", bucket)
        case "DELETE" if session:
            return Route("resumable.cancel", bucket)
    raise _no_method(request)


def _storage(request: Request, rest: list[str]) -> Route:
    match rest:
        case []:
            return Route(_pick(request, {"GET": "buckets.list", "POST": "buckets.insert"}))
        case [bucket]:
            return Route(_pick(request, _BUCKET_VERBS), decode(bucket))
        case [bucket, "o"]:
            if request.method == "POST":
                raise invalid("Uploads go to /upload/storage/v1/b/BUCKET/o.")
            verb = _pick(request, {"GET": "list"})
            return Route(verb, decode(bucket), request.params.get("prefix", ""))
        case [bucket, "o", name]:
            verb = _pick(request, _OBJECT_VERBS)
            if verb == "get" and request.params.get("alt") == "media":
                verb = "media"
            return Route(verb, decode(bucket), decode(name))
        case [bucket, "o", name, *action]:
            return _object_action(request, Route("", decode(bucket), decode(name)), action)
        case [bucket, *action]:
            verb = _pick(request, _BUCKET_ACTIONS.get("/".join(action), {}))
            return Route(verb, decode(bucket))
    raise not_found()


def _object_action(request: Request, source: Route, action: list[str]) -> Route:
    match action:
        case ["compose" | "restore"]:
            return source._replace(verb=_pick(request, {"POST": action[0]}))
        case ["moveTo", "o", target]:
            return source._replace(verb=_pick(request, {"POST": "move"}), target=decode(target))
        case ["copyTo" | "rewriteTo" as to, "b", bucket, "o", target]:
            verb = _pick(request, {"POST": "copy" if to == "copyTo" else "rewrite"})
            return source._replace(verb=verb, target_bucket=decode(bucket), target=decode(target))
    raise not_found()


def _pick(request: Request, verbs: dict[str, str]) -> str:
    if not verbs:
        raise not_found()
    verb = verbs.get(request.method)
    if verb is None:
        raise _no_method(request)
    return verb


def _no_method(request: Request) -> Refusal:
    return Refusal(405, "methodNotAllowed", f"{request.method} is not allowed here.")
