"""`python -m vgtok`: the same as `vgtok`, for launchers that start modules."""

from vgtok.cli.main import run

run()
