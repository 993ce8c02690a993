"""`python -m durable.cli`: the same as the `durable` command."""

from durable.cli import main

raise SystemExit(main())
