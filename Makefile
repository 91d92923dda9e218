# The one interface for people, hooks and CI. `make help` lists what there is.
SHELL := /bin/bash
.DEFAULT_GOAL := help
VENV := .venv
PY := $(VENV)/bin/python
WITH_DOCKER := config/host/with-docker.sh
# Debian's own interpreter where there is one: every user can read it, so the worker need not stay root.
PYTHON ?= $(shell test -x /usr/bin/python3 && echo /usr/bin/python3 || echo python3)

# Interpreters start by the hundred here: each would compile what it imports anew.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help setup host images demo can-start-docker test test-ci test-rest test-all compat unsteady mutants can-test test-faults check fmt bench docs up clean lock

help: ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: host $(VENV)/ready images ## everything the other targets need; seconds when it is there
	@$(if $(filter setup,$(MAKECMDGOALS)),echo "setup: ready; try: echo 'print(6*7)' | .venv/bin/cellblock run -",:)

host:
	@config/host/setup.sh

$(VENV)/ready: requirements.lock pyproject.toml
	@echo 'setup: Python packages into $(VENV)'
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || config/host/setup.sh
	@test -x $(PY) || $(PYTHON) -m venv $(VENV)
	@$(PY) -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements.lock
	@$(PY) -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e .
	@touch $@

images: host ## the sandbox images (docs: images/README.md)
	@$(WITH_DOCKER) images/build.sh

demo: can-start-docker setup ## 164 HumanEval programs and 20 hostile jobs through Redis, Celery and gVisor
	@$(WITH_DOCKER) $(PY) examples/demo/demo.py

can-start-docker:
	@test "$$(id -u)" = 0 || sudo -n true 2>/dev/null || docker version >/dev/null 2>&1 || { \
		echo 'make: this needs root, sudo without a password, or a Docker daemon that answers you' >&2; exit 2; }

# T: what to run, as pytest takes it. WAY: one way of making sandboxes. LAST=1: what failed last. Any of them
# chooses from all cases, whatever their tier.
T ?=
WAY ?=
LAST ?=
PATHS := $(if $(findstring ::,$(T)),'$(T)',$(T))
CHOSEN := $(if $(WAY),--way '$(WAY)') $(if $(LAST),--last-failed --last-failed-no-failures none) $(PATHS)
# TIER COMMAND…: runs the command, and then each case that failed once more, alone.
ONCE_MORE := env PYTHONPATH=tests $(PY) -m suite.once_more
PYTEST := $(PY) -m pytest -q -n auto
# Their figures are of a host with no other work.
QUIET := $(ONCE_MORE) quiet $(PY) -m pytest -q -n 0 --tier quiet
CLOSING := env PYTHONPATH=tests $(PY) -m suite.closing
TIER := $(if $(strip $(CHOSEN)),all,fast)
# Nothing failed last, so nothing was run: pytest ends with 5.
OR_NOTHING := $(if $(LAST),|| [ $$? = 5 ])
NEEDS := python3 tests/suite/needs.py
# A choice that may hold end-to-end tests needs the images of the composed fleet.
IMAGES := systemd $(if $(strip $(CHOSEN)),$(if $(T),$(if $(findstring e2e,$(T)),worker redis),worker redis))

test: can-test $(VENV)/ready ## the fast tier, or T=tests/ledger, T=FILE::CASE, WAY=gvisor-oci, LAST=1 of all tests
	@if $(NEEDS) --docker $(PATHS); then \
		$(MAKE) --no-print-directory setup && $(WITH_DOCKER) images/build.sh $(IMAGES) && \
		$(WITH_DOCKER) $(ONCE_MORE) $(TIER) $(PYTEST) --tier $(TIER) $(CHOSEN) $(OR_NOTHING); \
	else { $(NEEDS) --installed $(PATHS) || config/host/setup.sh; } && \
		$(ONCE_MORE) all $(PYTEST) --tier all $(CHOSEN) $(OR_NOTHING); fi

test-ci: can-test setup ## what CI runs of the tests: the fast tier, and each case on one of the other ways
	@$(WITH_DOCKER) images/build.sh systemd
	@$(WITH_DOCKER) $(ONCE_MORE) ci $(PYTEST) --tier ci

test-rest: can-test setup ## what `make test` leaves out: every way of making sandboxes, and what takes long
	@$(WITH_DOCKER) images/build.sh worker redis systemd
	@$(WITH_DOCKER) $(ONCE_MORE) rest $(PYTEST) --tier rest; rest=$$?; \
		$(WITH_DOCKER) $(QUIET); quiet=$$?; $(CLOSING) rest quiet && exit $$((rest + quiet))

test-all: can-test setup ## every test, and how much of each part it runs, against the floors in pyproject.toml
	@$(WITH_DOCKER) images/build.sh worker redis systemd
	@rm -rf build/coverage && install -d -m 1777 build/coverage
	@$(WITH_DOCKER) $(ONCE_MORE) all $(PY) -m coverage run -m pytest -q -n auto -p suite.measured --tier all \
		-m 'not quiet_host'; \
		tests=$$?; $(WITH_DOCKER) $(QUIET); quiet=$$?; PYTHONPATH=tests $(PY) -m suite.floors; floors=$$?; \
		$(CLOSING) all quiet && exit $$((tests + quiet + floors))

# SUITE: cpython or data. TARGET: one module, or one group of files of tests/compat/selection.toml.
SUITE ?=
TARGET ?=
QUICK ?=
COMPAT := $(if $(QUICK),--quick) $(foreach way,$(WAY),--way '$(way)') $(if $(SUITE),--suite '$(SUITE)') $(if $(TARGET),--target '$(TARGET)')

compat: can-test setup ## CPython's own tests and the wheels', in every way beside bare; WAY=, SUITE=cpython|data, TARGET=test_os
	@$(WITH_DOCKER) images/build.sh compat systemd
	@$(WITH_DOCKER) env PYTHONPATH=tests $(PY) -m compat $(COMPAT)

# CASE: one case, as pytest names it.
CASE ?=
TIMES ?= 20

unsteady: can-test setup ## how often CASE=tests/FILE::CASE fails in TIMES=20 runs while every processor is busy
	@$(WITH_DOCKER) env PYTHONPATH=tests $(PY) -m suite.unsteady --times '$(TIMES)' '$(CASE)'

mutants: can-test setup ## does the suite notice a wrong line? each one of tests/mutants.toml by itself
	@$(WITH_DOCKER) env PYTHONPATH=tests $(PY) -m suite.mutants

can-test:
	@$(NEEDS) $(PATHS)

test-faults: setup ## every fault; hosts and stores under random ones; 100,000 jobs in a row; a full store; a million archived
	@$(WITH_DOCKER) env EXAMPLES=1000 $(PY) -m pytest -q -s tests/faults tests/ledger
	@$(WITH_DOCKER) env PYTHONPATH=tests $(PY) -m faults.chaos 2000 300 $${SEED:-$$RANDOM}
	@$(WITH_DOCKER) env PYTHONPATH=tests $(PY) -m faults.soak 100000
	@$(WITH_DOCKER) env PYTHONPATH=tests $(PY) -m faults.store_chaos 2000
	@$(WITH_DOCKER) env PYTHONPATH=tests $(PY) -m faults.full_store 60000 24mb
	@env PYTHONPATH=tests $(PY) -m faults.archive_soak 1000000 64mb sqlite
	@env PYTHONPATH=tests $(PY) -m faults.archive_soak 1000000 64mb postgresql

check: $(VENV)/ready ## lint, format, types, seccomp profile
	@$(VENV)/bin/ruff check .
	@$(VENV)/bin/ruff format --check .
	@$(VENV)/bin/mypy
	@$(PY) seccomp/build.py --check

fmt: $(VENV)/ready ## format and fix what can be fixed
	@$(VENV)/bin/ruff check --fix .
	@$(VENV)/bin/ruff format .

# BASE: a commit to compare with.
BASE ?=

bench: setup ## what people wait for (BASE=COMMIT: before and now), latency, stages, throughput, fairness, admission, filters, evaluation, cheats, the store; writes build/bench/*.json
	@$(WITH_DOCKER) env PYTHONPATH=tests $(PY) tests/bench/compare.py $(BASE) HEAD
	@$(WITH_DOCKER) env PYTHONPATH=tests $(PY) tests/bench/hello.py
	@$(WITH_DOCKER) env PYTHONPATH=tests $(PY) tests/bench/fairness.py
	@env PYTHONPATH=tests $(PY) tests/bench/admission.py
	@env PYTHONPATH=tests $(PY) tests/bench/egress/score.py
	@$(WITH_DOCKER) env PYTHONPATH=tests $(PY) tests/bench/evaluation.py
	@$(WITH_DOCKER) env PYTHONPATH=tests $(PY) tests/bench/cheats.py
	@$(WITH_DOCKER) env PYTHONPATH=tests $(PY) tests/bench/stages.py
	@env PYTHONPATH=tests $(PY) tests/bench/ledger_costs.py --idle-workers 250 --json build/bench/ledger-costs.json
	@env PYTHONPATH=tests $(PY) tests/bench/fleet_model.py --costs build/bench/ledger-costs.json

docs: $(VENV)/ready ## the site of the documents into build/site; a broken link is an error
	@NO_MKDOCS_2_WARNING=1 $(VENV)/bin/mkdocs build --quiet --strict && echo "docs: build/site/index.html"

up: setup ## a whole fleet on this machine until Ctrl-C
	@$(WITH_DOCKER) $(VENV)/bin/cellblock up

lock: $(VENV)/ready ## make the lock files again from current releases
	@$(VENV)/bin/pip-compile --quiet --upgrade --all-extras --generate-hashes --strip-extras --allow-unsafe \
		--no-header --no-emit-index-url --no-emit-trusted-host --no-emit-find-links --no-emit-options \
		--output-file requirements.lock pyproject.toml
	@LOCKER=$(VENV)/bin/pip-compile images/lock.sh

clean: ## remove what was built here; images and Debian packages stay
	@rm -rf build/bench build/coverage build/demo build/images build/site build/tests dist $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis
