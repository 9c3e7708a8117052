# Two commands for a fresh machine: `make demo` and `make test`. Both set up their own environment.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
DEMO := demo

.PHONY: help demo federation-demo test install equip lint docs clean

help:
	@echo "make demo   install, compare three methods on embedded data, write the report"
	@echo "make federation-demo   install with Flower, then a real federation here, in which nearly everything dies once"
	@echo "make test   install with Flower and Ray, then ruff, mypy and the whole test suite"
	@echo "make docs   make the pages that follow from the code"
	@echo "make clean  remove the environment and everything that was generated"

# The stamp is older than the files it depends on whenever they change, so nothing is installed twice.
$(VENV)/.installed: pyproject.toml constraints.txt
	@command -v $(PYTHON) >/dev/null || { echo "$(PYTHON) not found: Python 3.11 or newer is needed"; exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "Python 3.11 or newer is needed"; exit 1; }
	@test -d $(VENV) || $(PYTHON) -m venv $(VENV)
	@echo "Installing FedRelay into $(VENV) (a few minutes the first time) …"
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
	@touch $@

# The tests need Flower and Ray; the demo does without.
$(VENV)/.equipped: $(VENV)/.installed
	@echo "Installing Flower and Ray for the tests …"
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev,flower,ray]'
	@touch $@

install: $(VENV)/.installed

equip: $(VENV)/.equipped

demo: install
	@rm -rf $(DEMO)
	@$(BIN)/fedrelay compare examples/digits.yaml --out $(DEMO)
	@echo
	@$(BIN)/fedrelay report $(DEMO)

federation-demo: equip
	@OMP_NUM_THREADS=1 $(BIN)/python examples/federation/demo.py

# Data sets are optional: tests that need one skip where it is not found.
test: export FEDRELAY_DATA := $(or $(FEDRELAY_DATA),$(if $(wildcard ../shared/data/README.md),$(abspath ../shared/data)))
test: export OMP_NUM_THREADS := 1
test: lint
	@$(BIN)/pytest -q -n 2 --dist loadfile --no-loadscope-reorder

lint: equip
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy

docs: install
	@$(BIN)/python -m fedrelay.report.pages docs

clean:
	rm -rf $(VENV) $(DEMO) runs .mypy_cache .ruff_cache .pytest_cache .hypothesis
