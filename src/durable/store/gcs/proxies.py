"""The proxy that the environment names for a host."""

from __future__ import annotations

from base64 import b64encode
from typing import NamedTuple
from urllib.parse import unquote, urlsplit, urlunsplit
from urllib.request import getproxies, proxy_bypass

from durable.errors import UsageError
from durable.store.gcs.place import is_endpoint

_LOOPBACK = frozenset({"localhost", "127.0.0.1", "::1"})


class Proxy(NamedTuple):
    """Where it is, and the headers that authorise us there."""

    url: str
    headers: dict[str, str]


def proxy_for(endpoint: str) -> Proxy | None:
    """The one on the way to `endpoint`; None if requests go there directly.

    Raises:
        UsageError: what the environment names cannot be one.
    """
    url = urlsplit(endpoint)
    host = url.hostname or ""
    found = getproxies().get(url.scheme) or getproxies().get("all")
    if not found or host in _LOOPBACK or proxy_bypass(host):
        return None
    proxy = urlsplit(found if "://" in found else f"http://{found}")
    headers = {}
    if proxy.username:
        login = f"{unquote(proxy.username)}:{unquote(proxy.password or '')}".encode()
        headers["Proxy-Authorization"] = f"Basic {b64encode(login).decode()}"
    bare = urlunsplit(proxy._replace(netloc=proxy.netloc.rpartition("@")[2]))
    if not is_endpoint(bare):
        raise UsageError(
            f"the environment names a proxy for {url.scheme} that requests cannot go through",
            hint=f"Write {url.scheme}_proxy as http://host:port, or add {host} to no_proxy.",
        )
    return Proxy(bare, headers)
