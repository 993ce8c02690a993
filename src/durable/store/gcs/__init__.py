"""Objects in a Google Cloud Storage bucket, over its JSON API.

Imported only when a `gs://` store is opened. One call of the port is one attempt; what it means
when the answer is lost is decided above, in `durable.store.Store` (promise P8).

    place        what `gs://bucket/prefix?userProject=p` names, and the URLs that follow from it
    wire         an upload as bytes, a resource as an object; small bodies ride in the metadata
    answers      from status codes to refused, unavailable or a definite no
    responses    HTTP responses, from the bytes of a connection
    connections  those of one event loop: aiohttp opens them, requests are sent here
    proxies      the proxy that the environment names
    http         one request on this event loop's own connections
    tokens       Google's credentials, fetched and refreshed in threads
    clock        the store's time, from what its answers say
    backend      the five verbs

A write is one POST. A read is one GET of the object's resource, which has the body with it when
that is small; a larger body takes a second GET, pinned to the generation of the first. A delete
is one DELETE, a page of a list one GET.

Each is sent once, also on a kept-alive connection that turns out to be dead: whether it was carried
out is for the store above to find out.
"""

from durable.store.gcs.backend import GcsBackend as GcsBackend
from durable.store.gcs.place import Place as Place
