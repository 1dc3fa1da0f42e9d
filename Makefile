# demo · test · up · lint · bench. Each does its own set-up; nothing has to be installed before.
PYTHON ?= python3
TOOLS ?=
ARGS ?=
export PYTHON

.PHONY: demo test up lint bench setup lock clean

setup:
	@deploy/setup

demo: setup
	@.venv/bin/python -m examples.demo $(if $(TOOLS),--tools) $(ARGS)

test: lint
	@.venv/bin/python -m tests.support.services -- .venv/bin/python -m pytest $(ARGS)

up: setup
	@.venv/bin/python -m services

lint: setup
	@.venv/bin/ruff format --check .
	@.venv/bin/ruff check .
	@.venv/bin/pyright

bench: export PYTHONPATH = .
bench: setup
	@for script in benchmarks/*.py; do echo "== $$script"; .venv/bin/python $$script || exit 1; done

lock: setup
	@deploy/lock/lock --upgrade

clean:
	rm -rf .venv .osmosis demo-output
