"""How a record becomes the body of its object."""

from __future__ import annotations

import msgspec

_encode = msgspec.json.Encoder().encode


def encode(record: msgspec.Struct) -> bytes:
    """A record as the JSON that its object's body holds."""
    return _encode(record)
