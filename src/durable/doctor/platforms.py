"""Whether the platform lets a worker run when no request comes. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from durable.doctor.findings import Finding

_SO = "frozen between requests, a worker cannot renew its lease: its runs go to others, in vain"


def judge(environ: Mapping[str, str]) -> list[Finding]:
    """What to know about where this runs; nothing where processes are left alone.

    Whether a service has the processor always cannot be seen from inside, so that is no warning.

    Args:
        environ: the environment's variables; these platforms tell of themselves there.
    """
    if service := environ.get("K_SERVICE"):
        found = f"Cloud Run service {service!r}: {_SO}, unless it has the processor always"
        fix = f"gcloud run services update {service} --no-cpu-throttling --min-instances=1"
        return [Finding("platform", "note", found, fix)]
    if function := environ.get("AWS_LAMBDA_FUNCTION_NAME"):
        found = f"Lambda function {function!r}: {_SO}, and no setting changes that"
        return [Finding("platform", "warning", found, "start runs here, and run workers elsewhere")]
    return []
