"""Call paths: where a call stands in the workflow's call tree (promise P5).

A path is fixed synchronously when the call is made: scope path, name, and the ordinal among the
calls of that name in that scope (`charge.1`, `charge.2`), or a key (`charge=ORD`). It never
depends on completion order, scheduling, arguments, source text or chance. So adding or
removing an unrelated call moves no other.
"""

from __future__ import annotations

from durable.errors import UsageError
from durable.protocol.names import encode_part


class Ordinals:
    """Hands out the paths of one scope."""

    def __init__(self, scope: str) -> None:
        self._scope = scope
        self._counts: dict[str, int] = {}
        self._keys: set[str] = set()

    def path(self, name: str, key: str | None = None) -> str:
        """The next path for a call of `name`, or the one path for that key.

        Raises:
            UsageError: the key was used before in this scope.
        """
        part = encode_part(name, safe="").replace(".", "%2E")
        if key is None:
            number = self._counts[part] = self._counts.get(part, 0) + 1
            return f"{self._scope}{part}.{number}"
        path = f"{self._scope}{part}={encode_part(key, safe='').replace('.', '%2E')}"
        if path in self._keys:
            raise UsageError(
                f"key {key!r} is used twice for {name!r} in one scope",
                hint="give each call a key of its own, or leave the key out",
            )
        self._keys.add(path)
        return path
