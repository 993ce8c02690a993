"""A client of the store that a command is about."""

from __future__ import annotations

import argparse
from contextlib import AbstractAsyncContextManager

from durable.cli.exits import PATIENCE
from durable.client import Client, connect


def existing(arguments: argparse.Namespace) -> AbstractAsyncContextManager[Client]:
    """Of a store that has to be there: a slip of the pen makes no empty one, and shows none."""
    return connect(arguments.store, patience=PATIENCE, create=False)


def at_hand(arguments: argparse.Namespace) -> AbstractAsyncContextManager[Client]:
    """Of a store that is made if it is missing, because something is put into it."""
    return connect(arguments.store, patience=PATIENCE)
