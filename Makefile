# Two commands for a fresh machine: `make demo` and `make test`. Both set up their own environment in .venv.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
DEMO := demo

.PHONY: help demo federation-demo test test-all install equip lint docs clean

help:
	@echo "make demo             compare four methods on built-in data and write a report to $(DEMO)/"
	@echo "make federation-demo  run a real federation on this machine; nodes, server and SuperLink are killed and recover"
	@echo "make test             check style and types, then run all tests; tests without their browser or data are skipped"
	@echo "make test-all         the same with more random cases, and a missing browser is a failure"
	@echo "make lint             check style and types only"
	@echo "make docs             rebuild the pages of docs/ that are generated from the code"
	@echo "make install          install FedRelay and its tools into $(VENV)"
	@echo "make clean            remove $(VENV) and everything that was generated"

# The stamp files record what is installed; make installs again only when pyproject.toml or constraints.txt is newer.
define install
@command -v $(PYTHON) >/dev/null || { echo "$(PYTHON) not found: Python 3.11 or newer is needed"; exit 1; }
@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "Python 3.11 or newer is needed"; exit 1; }
@test -d $(VENV) || $(PYTHON) -m venv $(VENV)
@echo "Installing $(1) into $(VENV) (a few minutes the first time) …"
@$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[$(2)]'
endef
comma := ,

$(VENV)/.installed: pyproject.toml constraints.txt
	$(call install,FedRelay,dev)
	@touch $@

# The tests and the federation need Flower and Ray, and one example Hugging Face's packages; the demo does not.
$(VENV)/.equipped: pyproject.toml constraints.txt
	$(call install,FedRelay$(comma) Flower$(comma) Ray and transformers,dev$(comma)flower$(comma)ray$(comma)hf)
	@touch $(VENV)/.installed $@

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
	@$(BIN)/pytest -q -n 3 --dist loadfile --no-loadscope-reorder

test-all: export FEDRELAY_REQUIRE_BROWSER := 1
test-all: export FEDRELAY_THOROUGH := 1
test-all: test

lint: equip
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy

docs: install
	@$(BIN)/python -m fedrelay.report.reference_pages docs

clean:
	rm -rf $(VENV) $(DEMO) runs .mypy_cache .ruff_cache .pytest_cache .hypothesis
