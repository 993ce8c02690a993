"""Where the code of a workflow stands, as far as that is seen from outside."""

from __future__ import annotations

import inspect
from dataclasses import dataclass
from pathlib import Path

import msgspec

from durable.runtime.definitions import WorkflowDefinition


@dataclass
class Whereabouts:
    """See the module's docstring. Sync code is not seen: it runs in a thread."""

    _file: str = ""
    _call: object = None

    def seen(self, definition: WorkflowDefinition) -> WorkflowDefinition:
        """The same workflow, whose calls are seen here."""
        if not definition.is_async:
            return definition
        fn = definition.fn
        self._file = fn.__code__.co_filename

        async def call(*args: object, **kwargs: object) -> object:
            self._call = awaited = fn(*args, **kwargs)
            return await awaited

        return msgspec.structs.replace(definition, fn=call)

    def line(self) -> str:
        """The innermost line in the workflow's file that is being awaited: `flow.py:7`."""
        found, awaited = "", self._call
        while inspect.iscoroutine(awaited) and (frame := awaited.cr_frame) is not None:
            if frame.f_code.co_filename == self._file:
                found = f"{Path(self._file).name}:{frame.f_lineno}"
            awaited = awaited.cr_await
        return found
