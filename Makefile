# Everything a developer or a newcomer runs. `make demo` and `make test` need only Python >= 3.11 and make.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready

.PHONY: demo test test-all fuzz fuzz-forms fuzz-optimizer attack soak kill house check format bench bench-peers docs pictures clean

demo: $(READY)  ## continuous queries over a generated stream, live, about a minute
	$(BIN)/strandline demo

test: $(READY)  ## the fast suite; skipped tests are listed at the end
	$(BIN)/python -m pytest -m "not slow" -n 3 --dist loadfile --no-loadscope-reorder --durations=15 -rs

test-all: $(READY)  ## everything, with the long recovery runs
	STRANDLINE_LONG=1 $(BIN)/python -m pytest --durations=25

SEED ?= 0
fuzz: $(READY)  ## random queries judged by DuckDB and PostgreSQL; N=questions SEED=first seed
	$(BIN)/python tests/fuzz.py $(or $(N),1500) --seed $(SEED)

fuzz-forms: $(READY)  ## those about window functions, table functions and ASOF JOIN, 20,000 instants of each; SEED=first seed
	$(BIN)/python tests/fuzz.py $(or $(N),8000) --forms --seed $(SEED)

fuzz-optimizer: $(READY)  ## random queries, and the plans that rules make of them, must mean the same; N=pairs SEED=first seed
	$(BIN)/python tests/fuzz_optimizer.py $(or $(N),2000) --seed $(SEED)

attack: $(READY)  ## damage, kills, faults and hostile input, about half an hour; N=trials SEED=… MINUTES=… KINDS='kill/* input/*' DOCS=1
	$(BIN)/python tests/attack/run.py --seed $(SEED) $(if $(N),--trials $(N)) $(if $(MINUTES),--minutes $(MINUTES)) \
	  $(foreach kind,$(KINDS),--kind '$(kind)') $(if $(DOCS),--write-docs)

soak: $(READY)  ## 50,000 rows/s on Spark with a kill every two minutes, judged at the end; MINUTES=30 RATE=50000 FILES=1 per second EVERY=120
	$(BIN)/python tests/attack/soak.py --minutes $(or $(MINUTES),30) --rate $(or $(RATE),50000) \
	  --per-second $(or $(FILES),1) --every $(or $(EVERY),120) --seed $(SEED)

kill: $(READY)  ## statements that change a table while queries on Spark read it, killed N=200 times
	$(BIN)/python tests/attack/table_kills.py --kills $(or $(N),200) --seed $(SEED)

house: $(READY)  ## figures of the source tree: sizes, names, the traced run of the README's example
	$(BIN)/python tests/house.py

check: $(READY)  ## format, lint, types
	$(BIN)/ruff format --check src tests examples benchmarks
	$(BIN)/ruff check src tests examples benchmarks
	$(BIN)/mypy

format: $(READY)
	$(BIN)/ruff format src tests examples benchmarks
	$(BIN)/ruff check --fix src tests examples benchmarks

bench: $(READY)  ## all benchmarks, each beside Spark alone
	$(BIN)/strandline bench all

docs: $(READY)  ## the site of docs/, in site/
	$(BIN)/python -m mkdocs build --strict --quiet

pictures: $(READY)  ## the pictures of the docs, from real runs
	$(BIN)/python tests/apps/shell/pictures.py

bench-peers: $(READY)  ## beside Flink, Pathway, Bytewax, DuckDB, Polars: docs/benchmarks.md; ONLY=flink,… WORK=join,… ROWS=…
	$(BIN)/python benchmarks/peers/run.py $(if $(ONLY),--only $(ONLY)) $(if $(WORK),--work $(WORK)) \
	  $(if $(ROWS),--rows $(ROWS)) $(if $(FORMAT),--format $(FORMAT))

# One stamp for the environment: rebuilt when the lock or the project file changes.
$(READY): requirements.lock pyproject.toml
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements.lock
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --editable .
	$(BIN)/strandline warmup
	touch $(READY)

clean:
	rm -rf $(VENV) benchmarks/peers/.envs benchmarks/peers/.data .pytest_cache .mypy_cache .ruff_cache .hypothesis
