"""`python -m vgtok`: the `vgtok` command, for launchers that run modules."""

from vgtok.cli.main import run

run()
