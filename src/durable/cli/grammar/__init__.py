"""What the commands take, by theme; `durable.cli.parsing` puts them together."""
