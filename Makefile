# kilowatch: two commands do everything on a fresh machine: `make run` and `make test`.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
SECONDS ?= 600
INPUTS  ?= 1000000
SOAK    ?= 1h
BASE    ?= origin/main
STAMP  := $(VENV)/.installed
HOMEASSISTANT := .homeassistant/.installed

# Bytecode is kept, whatever the environment says: the tests start a thousand processes of kilowatch, and each
# would compile it first, for longer than it then works.
export PYTHONDONTWRITEBYTECODE :=

.DEFAULT_GOAL := help
.PHONY: help setup packages run demo stack cluster gate quick nightly test test-systems inject damages fuzz deb rpm image homeassistant search check format bench bench-short faults cluster-faults docs site screens clean

help:  ## list what can be made
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-14s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

setup: $(STAMP)  ## create .venv with everything that kilowatch needs

$(STAMP): pyproject.toml constraints.txt
	@sh deploy/venv.sh $(PYTHON) $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev,bench,site,ray]'
	@touch $@

packages:  ## install the servers that the tests start, where that is allowed
	@sh deploy/packages.sh

run: setup  ## watch this machine's GPUs; with none, a simulated desktop
	$(BIN)/kilowatch run

demo: setup  ## watch a simulated cluster of two DGX H100
	$(BIN)/kilowatch demo --scenario two-dgx-h100

stack: setup packages  ## a simulated cluster with mosquitto, InfluxDB, Prometheus and Alertmanager
	$(BIN)/python -m deploy.stack

cluster: setup  ## three aggregators as one on this machine, to kill one of them (docs/cluster.md)
	$(BIN)/python -m deploy.cluster

gate: setup packages  ## what CI runs: all checks, the tests that there is time for, and once more alone what failed; `make gate BASE=main`
	$(BIN)/python -m compileall -q telemetry api present power alerts collector aggregator tui kilowatch tests bench docs grafana
	$(BIN)/python -m tests.gate --base $(BASE)

quick: setup  ## the tests nearest to what changed: under two minutes; `make quick BASE=HEAD~1`
	$(BIN)/python -m tests.gate.quick --base $(BASE)

nightly: setup packages homeassistant  ## what searches for hours: long forms, early and late wakes, other orders, repeats
	$(BIN)/python -m tests.gate.nightly

test: setup packages  ## run the fast tests: under 12 minutes on two cores
	$(BIN)/python -m pytest -q -n 3 --dist loadfile -m "not systems"

test-systems: setup packages  ## run the slow tests: whole clusters, faults, kills, benches in short
	$(BIN)/python -m pytest -q -n 3 --dist loadfile --no-loadscope-reorder -m "systems and not alone"
	$(BIN)/python -m pytest -q -m "alone and not long"

inject: setup packages  ## an exception in every function; `make test-systems` takes one of 24
	KILOWATCH_INJECT=all $(BIN)/python -m pytest -q -n 3 --dist load -m systems tests/faults/test_faults_in_*.py

damages: setup packages  ## every file of the data folder damaged in every way; `make test-systems` takes three of each
	KILOWATCH_DAMAGES=all $(BIN)/python -m pytest -q -n 3 --dist load tests/faults/test_damaged_files.py

fuzz: setup packages  ## a million changed messages beside an honest fleet: `make fuzz INPUTS=20000`
	$(BIN)/python -m tests.fuzz --inputs $(INPUTS)

deb: setup  ## build the Debian package into dist/
	@sh deploy/debian/build.sh dist

rpm: deb  ## build the RPM into dist/, from the Debian package
	@sh deploy/rpm/build.sh "$$(ls -t dist/kilowatch_*.deb | head -1)" dist

image: setup  ## gather in dist/image what a container engine builds
	@sh deploy/container/build.sh dist/image

homeassistant: $(HOMEASSISTANT)  ## install Home Assistant's own package beside, to test what it makes of what is published

# What its package declares; what its integrations install when they are set up is bound by its own list.
$(HOMEASSISTANT): tests/aggregator/homeassistant.txt
	@sh deploy/venv.sh $(PYTHON) .homeassistant
	.homeassistant/bin/pip install --quiet --disable-pip-version-check -r $<
	.homeassistant/bin/pip install --quiet --disable-pip-version-check paho-mqtt janus psutil-home-assistant \
	  -c .homeassistant/lib/python3.*/site-packages/homeassistant/package_constraints.txt
	@touch $@

search: setup packages  ## 20,000 small sites whose meters die, and the property tests with fresh seeds: `make search SECONDS=3600`
	KILOWATCH_NIGHT=$$(date +%s) $(BIN)/python -m pytest -q -n 2 tests/power/test_worlds.py
	$(BIN)/python -m tests.fuzz --search $(SECONDS)

check: setup  ## what CI checks beside the tests: format, lint, types, imports, generated files
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy telemetry api present power alerts collector aggregator tui kilowatch bench
	$(BIN)/lint-imports
	$(BIN)/python -m docs.build --check
	$(BIN)/python -m docs.worked_sites --check
	$(BIN)/python -m grafana.build --check
	$(BIN)/python -m kilowatch.prometheus --check
	$(BIN)/python -m mkdocs build --quiet

format: setup  ## put the source in order
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

bench: setup packages  ## measure, and write the figures beside their commands (docs/benchmarks.md)
	$(BIN)/python -m bench

bench-short: setup packages  ## the ratchet: what this tree costs beside a stored commit; ten minutes; `make bench-short BASE=HEAD~1`
	$(BIN)/python -m bench.short $(if $(filter command line,$(origin BASE)),--base $(BASE))

faults: setup packages  ## the long fault campaign; rewrites docs/faults.md: `make faults SOAK=24h`
	$(BIN)/python -m tests.faults --soak $(SOAK)

cluster-faults: setup packages  ## all rows of the failure matrix, then random faults for an hour; rewrites docs/cluster-faults.md
	$(BIN)/python -m pytest -q -m alone
	$(BIN)/python -m tests.cluster

site: setup  ## build the documentation site into build/site
	$(BIN)/python -m mkdocs build --quiet

docs: setup  ## write the generated pages, dashboards and rules for Prometheus
	$(BIN)/python -m docs.build
	$(BIN)/python -m docs.worked_sites
	$(BIN)/python -m grafana.build
	$(BIN)/python -m kilowatch.prometheus

screens: setup packages  ## draw the pictures of the README from seeded demos
	$(BIN)/python -m docs.screens

clean:  ## remove what was built
	rm -rf $(VENV) build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache
