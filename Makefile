# The commands of README and docs. Each makes its own .venv from Python 3.11 or newer, through constraints.txt.
PYTHON ?= python3
PIP = .venv/bin/python -m pip install --quiet --disable-pip-version-check -c constraints.txt

# Two test processes that each compute on every core stall each other.
quick test: export OMP_NUM_THREADS = 1
quick test: export OPENCV_FOR_THREADS_NUM = 1

.PHONY: demo quick test fuzz large docs screenshots clean

demo: .venv/installed
	.venv/bin/vgtok sample demo/frame.png --seed 89 --truth demo/truth.json
	.venv/bin/vgtok detect demo/frame.png --budget 0.40 --write picture --write tokens --write coco --out demo
	.venv/bin/vgtok evaluate --data coco:demo/truth.json:demo --predictions demo/detections.json --score-threshold 0.3

# The checks of an inner loop, about a minute: lint, types, and the tests that are not marked slow.
quick: .venv/installed-dev
	.venv/bin/ruff format --check src tests docs examples
	.venv/bin/ruff check src tests docs examples
	.venv/bin/mypy src
	.venv/bin/python -m pytest -n 2 -m 'not slow' tests

test: .venv/installed-dev .venv-timm/installed
	.venv/bin/ruff format --check src tests docs examples
	.venv/bin/ruff check src tests docs examples
	.venv/bin/mypy src
	.venv/bin/python -m pytest -n 2
	.venv-timm/bin/python -m pytest -n 0 tests/hosts/timm_models.py

# Damaged and hostile inputs of every kind; FUZZ="--minutes 5" and the like change the run, FUZZ=--help lists how.
fuzz: .venv/installed-dev
	.venv/bin/python -m tests.fuzz $(FUZZ)

# Detection in a raster of 30,000 x 30,000 px that it makes itself, killed on the way; minutes, and 1 GB of disk.
large: .venv/installed-dev
	.venv/bin/python -m tests.large $(LARGE)

# The theme greets every build with a note on another product; the variable silences it.
docs: .venv/installed-docs
	NO_MKDOCS_2_WARNING=1 .venv/bin/python -m mkdocs build --strict

# The page as the guide shows it; needs chromium.
screenshots: .venv/installed-dev
	.venv/bin/python -m tests.serve.screenshots

.venv/bin/python:
	$(PYTHON) -m venv .venv

.venv/installed: .venv/bin/python pyproject.toml constraints.txt
	$(PIP) -e '.[detect,evaluate]'
	touch $@

.venv/installed-dev: .venv/bin/python pyproject.toml constraints.txt
	$(PIP) -e '.[dev]'
	touch $@

# timm, and the torchvision it imports, beside all packages of .venv; in .venv itself torchvision breaks transformers.
PURELIB = -c 'import sysconfig; print(sysconfig.get_path("purelib"))'
.venv-timm/installed: .venv/installed-dev
	.venv/bin/python -m venv .venv-timm
	echo "import site; site.addsitedir('$$(.venv/bin/python $(PURELIB))')" > "$$(.venv-timm/bin/python $(PURELIB))/venv.pth"
	.venv-timm/bin/python -m pip install --quiet --disable-pip-version-check --no-deps -c constraints.txt timm torchvision
	touch $@

.venv/installed-docs: .venv/bin/python pyproject.toml constraints.txt
	$(PIP) -e '.[docs]'
	touch $@

clean:
	rm -rf .venv .venv-timm demo site .mypy_cache .ruff_cache .hypothesis
