# `make demo` and `make test` are all that a fresh machine needs; each sets up what it lacks.
PYTHON ?= python3
BIN := .venv/bin
SETUP := .venv/.argus-setup
DEMO := .venv/.argus-demo
TORCH := .venv/.argus-torch
FRAMEWORKS := .venv/.argus-frameworks
TRACEML := .venv/.argus-traceml
HELM := .venv/.argus-helm
export PATH := $(CURDIR)/$(BIN):$(PATH)
# The tests start some thousand Pythons: without files of bytecode, each compiles anew what it imports.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := all
.PHONY: all help setup torch frameworks traceml helm chart demo check test prometheus verify lint fmt generate preview preview-grafana dist images clean

all: fmt generate lint test  ## format, generate, lint, test

help:  ## list the targets
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:[^#]*## */\t/' | expand -t 12

setup: $(SETUP)  ## virtual environment, packages, Prometheus tools (once)
SOURCES := pyproject.toml tools/setup.sh tools/cupti_headers.py native/CMakeLists.txt native/older_glibc.cpp $(wildcard native/*/*.cpp native/*/*.h native/*/*.hpp native/*/CMakeLists.txt)
$(SETUP): $(SOURCES)
	@PYTHON=$(PYTHON) tools/setup.sh
	@touch $@

torch: $(TORCH)  ## PyTorch, for the training demo and the training tests (once)
$(TORCH): $(SETUP) tests/frameworks/packages.txt
	@PYTHON=$(PYTHON) tools/setup.sh --torch
	@touch $@

$(FRAMEWORKS): $(TORCH) tests/frameworks/packages.txt
	@PYTHON=$(PYTHON) tools/setup.sh --frameworks
	@touch $@

frameworks: $(FRAMEWORKS)  ## real training programs under ARGUS, and docs/frameworks.md from what they showed
	@python -m tests.frameworks

traceml: $(TRACEML)  ## TraceML, which bench.overhead then measures beside ARGUS (once)
$(TRACEML): $(TORCH) bench/traceml.txt
	@PYTHON=$(PYTHON) tools/setup.sh --traceml
	@touch $@

helm: $(HELM)  ## Helm as a library, for the chart and its tests (once)
$(HELM): $(SETUP)
	@PYTHON=$(PYTHON) tools/setup.sh --helm
	@touch $@

chart: helm  ## the Helm chart into dist/, linted, and compared with what kustomize makes
	@python -m tools.chart

# What the demo needs is there much sooner than what development does; on a machine that has the latter it is enough.
$(DEMO): $(SOURCES)
	@PYTHON=$(PYTHON) tools/setup.sh --demo
	@touch $@

demo: $(if $(wildcard $(SETUP)),setup,$(DEMO)) $(if $(filter torch,$(TRAINING)),torch)  ## a slow rank found, routed and explained (KEEP=1, DEMO_SEED=n, TRAINING=torch)
	@argus-simulator demo --seed $(or $(DEMO_SEED),0) $(if $(KEEP),--keep) $(if $(TRAINING),--training $(TRAINING))

check: torch lint  ## at every commit, in 3 minutes: lint, types, the tests that are quick and start no server
	@pytest -q -n 2 --dist worksteal --check $(PYTEST_ARGS)

test: torch $(FRAMEWORKS) $(HELM) lint  ## everything that CI checks; with CI=true a skip that is not in tests/skips.py fails
	@pytest -q -n 3 --dist worksteal -m "not e2e" $(PYTEST_ARGS)  # on 2 cores: many wait for servers and clocks
	@pytest -q -m e2e --durations=30 --durations-min=10 $(PYTEST_ARGS)  # alone: real servers and training jobs need the cores

prometheus: setup  ## a newer Prometheus than Debian 12 has, into .venv/prometheus (SUITE=trixie)
	@tools/newer_prometheus.sh $(or $(SUITE),sid)

verify: setup  ## the long proofs and all benchmarks on a newer Prometheus, ending in one table
	@test -x .venv/prometheus/prometheus || $(MAKE) --no-print-directory prometheus || echo "verify: with the Prometheus that is here"
	@PATH="$(CURDIR)/.venv/prometheus:$$PATH" python -m bench.verify

lint: setup  ## ruff, mypy, jsonnet format, generated files, rules, names, labels, runbooks, Alertmanager
	@ruff check . && ruff format --check .
	@lint-imports --no-cache --no-logo
	@mypy
	@jsonnetfmt --test $$(git ls-files '*.jsonnet' '*.libsonnet')
	@python -m tools.generate --check
	@python -m tools.lint

fmt: setup  ## format Python and jsonnet
	@ruff format . && ruff check --fix --quiet .
	@jsonnetfmt -i $$(git ls-files '*.jsonnet' '*.libsonnet')

generate: setup  ## rules, dashboards and reference pages from their sources
	@python -m tools.generate

preview: setup  ## dashboards as pages and pictures over a simulated fleet, into build/preview
	@PYTHONPATH=dashboards:. python -m argus_preview $(PREVIEW_ARGS)

preview-grafana: setup  ## the same by Grafana's own components, of a faulty and a healthy job, checked, and docs/img (npm, 0.5 GB, into build/grafana)
	@PYTHONPATH=dashboards:. python -m argus_preview.in_grafana --pictures docs/img $(PREVIEW_ARGS)

dist: setup $(HELM)  ## wheels, sdist, chart and images into dist/, checked; the last line is JSON
	@python -m tools.dist

images: setup  ## the images of exporter and worker into dist/, of the wheel there, and started
	@python -m tools.images

clean:  ## remove what the build made
	@rm -rf .venv build dist .mypy_cache .ruff_cache .pytest_cache .run
