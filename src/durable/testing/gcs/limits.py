"""Limits that GCS sets to objects: length of names, size of custom metadata, rate of mutations."""

from __future__ import annotations

from collections.abc import Mapping

from durable.testing.gcs.refusals import invalid, required, too_fast

NAME_BYTES_MAX = 1024
METADATA_BYTES_MAX = 8192
MUTATION_SECONDS_MIN = 1.0  # between two of one object
_REMEMBERED_MAX = 100_000  # names; beyond that those whose second is over are forgotten


class MutationLimit:
    """One mutation per second and object; refused ones do not count.

    Args:
        seconds: the least time between two mutations.
    """

    def __init__(self, seconds: float = MUTATION_SECONDS_MIN) -> None:
        self.seconds = seconds
        self._last: dict[tuple[str, str], float] = {}

    def admit(self, bucket: str, names: tuple[str, ...], now: float) -> None:
        """Count a mutation of each of these objects that is about to be committed.

        Raises:
            Refusal: 429; then none is counted.
        """
        for name in names:
            last = self._last.get((bucket, name))
            if last is not None and now - last < self.seconds:
                raise too_fast(bucket, name)
        if len(self._last) >= _REMEMBERED_MAX:
            self._last = {key: at for key, at in self._last.items() if now - at < self.seconds}
        for name in names:
            self._last[bucket, name] = now


def check_name(name: str) -> None:
    """Can an object have that name?

    Raises:
        Refusal: 400, no object can have that name.
    """
    if not name:
        raise required("name")
    if len(name) > NAME_BYTES_MAX or not name.isascii():
        if len(name.encode()) > NAME_BYTES_MAX:
            raise invalid(f"The name of an object is at most {NAME_BYTES_MAX} bytes of UTF-8.")
    if "\r" in name or "\n" in name or name in (".", ".."):
        raise invalid(f"{name!r} cannot be the name of an object.")
    if name.startswith(".well-known/acme-challenge/"):
        raise invalid("Names of objects cannot start with .well-known/acme-challenge/.")


def check_metadata(metadata: Mapping[str, str]) -> None:
    """Is that little enough custom metadata?

    Raises:
        Refusal: 400, there is too much of it.
    """
    size = 0
    for key, value in metadata.items():
        size += len(key.encode()) + len(value.encode())
    if size > METADATA_BYTES_MAX:
        raise invalid(
            f"The custom metadata of an object is at most {METADATA_BYTES_MAX} bytes, keys "
            f"included; this is {size}."
        )
