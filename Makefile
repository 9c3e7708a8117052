# Two commands for a fresh machine: `make demo` and `make test`. Both set up their own environment in .venv.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
DEMO := demo
HOSPITALS := demo-hospitals

.PHONY: help demo demo-hospitals federation-demo test test-all install equip style lint docs clean

help:
	@echo "make demo             compare four methods on built-in data and write a report to $(DEMO)/"
	@echo "make demo-hospitals   what four hospitals gain by taking part, and a report in $(HOSPITALS)/"
	@echo "make federation-demo  run a real federation on this machine; nodes, server and SuperLink are killed and recover"
	@echo "make test             check style and types, and run all tests but slow ones; without browser or data, some are skipped"
	@echo "make test-all         the same with slow tests and more random cases; a missing browser is a failure"
	@echo "make lint             check style and types only"
	@echo "make docs             build the documentation into site/, and the pages of docs/ that are made from the code"
	@echo "make install          install FedRelay and its tools into $(VENV)"
	@echo "make clean            remove $(VENV) and everything that was generated"

# The stamp files record what is installed; make installs again only when pyproject.toml or constraints.txt is newer.
define install
@command -v $(PYTHON) >/dev/null || { echo "$(PYTHON) not found: Python 3.11 or newer is needed"; exit 1; }
@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "Python 3.11 or newer is needed"; exit 1; }
@test -d $(VENV) || $(PYTHON) -m venv $(VENV)
@$(BIN)/python tools/torch_build.py constraints.txt
@echo "Installing $(1) into $(VENV) (a few minutes the first time) …"
@$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[$(2)]'
endef
comma := ,

$(VENV)/.installed: pyproject.toml constraints.txt
	$(call install,FedRelay,dev)
	@touch $@

# The tests and the federation need Flower and Ray, one example Hugging Face's packages, and one logger wandb; the demo does not.
$(VENV)/.equipped: pyproject.toml constraints.txt
	$(call install,FedRelay$(comma) Flower$(comma) Ray$(comma) transformers and wandb,dev$(comma)flower$(comma)ray$(comma)hf$(comma)wandb)
	@touch $(VENV)/.installed $@

install: $(VENV)/.installed

equip: $(VENV)/.equipped

demo: install
	@rm -rf $(DEMO)
	@$(BIN)/fedrelay demo digits --out $(DEMO)

demo-hospitals: install
	@rm -rf $(HOSPITALS)
	@$(BIN)/fedrelay compare examples/hospitals.yaml --out $(HOSPITALS)
	@echo
	@$(BIN)/fedrelay report $(HOSPITALS)

federation-demo: equip
	@OMP_NUM_THREADS=1 $(BIN)/python examples/federation/demo.py

# Data sets are optional: tests that need one skip where it is not found.
test: export FEDRELAY_DATA := $(or $(FEDRELAY_DATA),$(if $(wildcard ../shared/data/README.md),$(abspath ../shared/data)))
test: export OMP_NUM_THREADS := 1
test: export PYTHONDONTWRITEBYTECODE :=
# mypy, which has one thread, runs beside the tests; what it says comes after them.
test: style
	@$(BIN)/mypy >$(VENV)/mypy.txt 2>&1 & types=$$!; trap 'kill $$types; exit 130' INT TERM; \
	$(BIN)/pytest -q -n 3 --dist loadfile --no-loadscope-reorder $(if $(FEDRELAY_THOROUGH),,-m "not slow"); tests=$$?; \
	wait $$types; types=$$?; cat $(VENV)/mypy.txt; exit $$((types || tests))

test-all: export FEDRELAY_REQUIRE_BROWSER := 1
test-all: export FEDRELAY_THOROUGH := 1
test-all: test

style: equip
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .

lint: style
	@$(BIN)/mypy

$(VENV)/.documented: pyproject.toml constraints.txt
	$(call install,FedRelay and MkDocs,docs)
	@touch $@

# The second variable silences an advertisement. A link that leads nowhere is an error (strict, in mkdocs.yml).
docs: $(VENV)/.documented
	@$(BIN)/python -m fedrelay.report.reference_pages docs
	@echo "Building site/ (a minute) …"
	@OMP_NUM_THREADS=1 NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet
	@echo "open site/index.html with a browser; it needs no network"

clean:
	rm -rf $(VENV) $(DEMO) $(HOSPITALS) site runs .mypy_cache .ruff_cache .pytest_cache .hypothesis
