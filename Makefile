# Two commands on a fresh machine: `make demo` and `make test`. Each sets up all it needs in .venv and touches nothing else.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
ONCE ?=
# Tests at the same time; 0 runs them in one process. A process that dies ends the run: one started in its place was seen to stand still.
JOBS ?= 2

.PHONY: demo test lint setup lock clean

$(VENV)/.ready: requirements/base.lock requirements/torch.txt pyproject.toml
	@echo "setting up $(VENV) (once; the largest download is torch)"
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements/base.lock
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -r requirements/torch.txt
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e .
	@touch $@

setup: $(VENV)/.ready

demo: $(VENV)/.ready
	@$(BIN)/gatekeeper demo $(if $(ONCE),--once)

test: $(VENV)/.ready
	@if command -v npm >/dev/null && [ ! -d tests/node/node_modules ]; then npm ci --silent --prefix tests/node || true; fi
	@$(BIN)/python -m pytest -n $(JOBS) --dist worksteal --max-worker-restart 0 $(ARGS)

lint: $(VENV)/.ready
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy
	@$(BIN)/lint-imports

lock:
	@python3 -m venv /tmp/gatekeeper-lock && /tmp/gatekeeper-lock/bin/pip install --quiet pip-tools
	@/tmp/gatekeeper-lock/bin/pip-compile --quiet --strip-extras --generate-hashes --allow-unsafe --no-emit-index-url --no-emit-trusted-host --no-emit-find-links \
		--extra dev --output-file requirements/base.lock pyproject.toml requirements/build.in

clean:
	@rm -rf $(VENV) var build *.egg-info
