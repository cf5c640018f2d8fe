# The two commands of the README. Each makes its own .venv from Python 3.11 or newer, through constraints.txt.
PYTHON ?= python3
PIP = .venv/bin/python -m pip install --quiet --disable-pip-version-check -c constraints.txt

.PHONY: demo test screenshots clean

demo: .venv/installed
	.venv/bin/vgtok sample demo/frame.png --seed 7
	.venv/bin/vgtok tokenize demo/frame.png --budget 0.40 --out demo

test: .venv/installed-dev
	.venv/bin/ruff format --check src tests
	.venv/bin/ruff check src tests
	.venv/bin/mypy src
	.venv/bin/python -m pytest -n 2

# The page as the guide shows it; needs chromium.
screenshots: .venv/installed-dev
	.venv/bin/python -m tests.serve.screenshots

.venv/bin/python:
	$(PYTHON) -m venv .venv

.venv/installed: .venv/bin/python pyproject.toml constraints.txt
	$(PIP) -e .
	touch $@

.venv/installed-dev: .venv/bin/python pyproject.toml constraints.txt
	$(PIP) -e '.[dev]'
	touch $@

clean:
	rm -rf .venv demo .mypy_cache .ruff_cache .hypothesis
