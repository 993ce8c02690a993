"""`python -m durable.cli`: the same as the `durable` command."""

from durable.cli import main

if __name__ == "__main__":  # child processes of steps load their worker's main module
    raise SystemExit(main())
