"""A strict Google Cloud Storage server for tests: the JSON API on 127.0.0.1.

It decides every precondition on every verb and kind of upload at the moment of commit, answers
errors in GCS's words, promises no more than GCS does (generations are in no order, pages may be
short) and goes wrong on demand. In process:

    async with serve({"bucket": Bucket()}) as url: ...        # in the running asyncio loop
    with serving({"bucket": Bucket()}) as server: server.url  # in a thread of its own

without sockets, for a virtual clock:

    GcsBackend(place, transport=Direct(Service({"bucket": Bucket()}), system))

and as a program: `python -m durable.testing.gcs --port 9023`. The table of objects is the memory
store's `Bucket`: what one writes the other sees.

What is not here: the XML API, batches, ACLs, encryption keys, folders, object contexts.
"""

from __future__ import annotations

from durable.testing.gcs.buckets import BucketState as BucketState
from durable.testing.gcs.calls import Calls as Calls
from durable.testing.gcs.direct import Direct as Direct
from durable.testing.gcs.faults import Fault as Fault
from durable.testing.gcs.faults import Faults as Faults
from durable.testing.gcs.service import Service as Service
from durable.testing.gcs.serving import Handle as Handle
from durable.testing.gcs.serving import serve as serve
from durable.testing.gcs.serving import serving as serving

__all__ = [
    "BucketState",
    "Calls",
    "Direct",
    "Fault",
    "Faults",
    "Handle",
    "Service",
    "serve",
    "serving",
]
