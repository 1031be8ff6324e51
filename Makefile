# memfit: build, try, test, install. `make help` lists the targets.

CARGO ?= cargo
PREFIX ?= /usr/local
DESTDIR ?=
BENCH_ARGS ?=
PAPERS_ARGS ?=
TORTURE_ARGS ?=
KERNELS ?=
TARGET := $(if $(CARGO_TARGET_DIR),$(CARGO_TARGET_DIR),target)
# Without linking, which takes a C++ compiler and is of use to cargo-fuzz only.
FUZZ_CHECK := --locked --no-default-features --all-targets

.DEFAULT_GOAL := build
.PHONY: help build run test soak gate gate-loaded check torture mutants kernels docs fuzz bench bench-codecs compat papers papers-record papers-sim papers-check install uninstall clean

help: ## this list
	@sed -n 's/^\([a-z-]*\):.*## /  make \1\t/p' Makefile | expand -t 22

build: ## release binaries in target/release
	$(CARGO) build --release --workspace

run: build ## a job that is killed for lack of memory, and finishes with memfit; ten seconds
	@MEMFIT=$(TARGET)/release/memfit examples/demo

test: ## all tests of data and behaviour; those that this machine cannot run are listed at the end
	@tests/run

soak: ## what holds in most runs only, and the long versions of tests; seven minutes
	@tests/run soak

gate: ## .ci/run as it is run before a change is merged: a fresh clone of HEAD, nothing of this shell; passes are noted in target/gate
	@scripts/gate

gate-loaded: ## the same, beside four busy loops and a program that fills memory
	@scripts/gate --loaded

check: ## what every change must pass: format, lints, tests, documentation, dependencies
	$(CARGO) fmt --all --check
	$(CARGO) fmt --manifest-path lab/fuzz/Cargo.toml --check
	$(CARGO) clippy --workspace --all-targets -- -D warnings
	$(CARGO) clippy --manifest-path lab/fuzz/Cargo.toml --target-dir $(TARGET) $(FUZZ_CHECK) -- -D warnings
	scripts/check-no-std
	$(MAKE) test
	RUSTDOCFLAGS="-D warnings" $(CARGO) doc --workspace --no-deps
	scripts/check-deps

torture: ## many seeds of the torture program, from 5 to 90 % of its memory; makes docs/torture.md; minutes to hours; TORTURE_ARGS
	$(CARGO) build --workspace
	lab/torture/scale.py $(TORTURE_ARGS)

mutants: ## the tests notice when a rule of the design is switched off: four minutes
	scripts/mutants

kernels: build ## a part of the tests on several Linux kernels in QEMU; hours; KERNELS="6.12 7" chooses; target/kernels
	scripts/kernels $(KERNELS)

docs: ## the documents as a site in target/book/html; needs mdbook
	@scripts/docs

fuzz: ## decoders and parsers on any input, three minutes each; needs a nightly compiler and cargo-fuzz
	scripts/fuzz

bench: build ## whole programs against kernel swap; hours, root; see lab/bench/README.md
	python3 lab/bench/run.py $(BENCH_ARGS)

compat: build ## fifty real programs with half of their memory, for docs/compat.md; an hour, root
	python3 lab/compat/compat.py $(COMPAT_ARGS)

bench-codecs: ## ratio and time of every codec on generated pages and on pages of real heaps; minutes; see lab/bench/README.md
	$(CARGO) build --release -p memfit-codec --example bench_codecs
	@mkdir -p $(TARGET)/heaps && rm -f $(TARGET)/heaps/*.pages
	@python3 lab/bench/heaps.py $(TARGET)/heaps
	@$(TARGET)/release/examples/bench_codecs $(TARGET)/heaps >$(TARGET)/heaps/codecs.md
	@python3 lab/bench/zram_ratio.py $(TARGET)/heaps >>$(TARGET)/heaps/codecs.md
	@cat $(TARGET)/heaps/codecs.md

papers: build ## the published comparisons of five schemes, run again: 90 minutes of a quiet machine; results in docs/papers
	python3 lab/bench/papers.py --memfit $(TARGET)/release/memfit $(PAPERS_ARGS)

papers-record: build ## the same runs recorded once each, for papers-sim; minutes; target/papers-recordings
	python3 lab/bench/papers.py record --memfit $(TARGET)/release/memfit $(PAPERS_ARGS)

papers-sim: ## the figures and tables of the five papers, simulated: ten minutes; docs/papers, target/papers-sim
	$(CARGO) build --release -p memfit-papers
	$(TARGET)/release/memfit-papers --out $(TARGET)/papers-sim --recordings $(TARGET)/papers-recordings \
		--save docs/papers/simulated.json $(PAPERS_ARGS)
	python3 lab/bench/papers.py pages

papers-check: ## whether docs/papers is what the code gives: ten minutes
	python3 lab/bench/papers.py pages --check
	python3 lab/bench/papers.py factors --check
	$(CARGO) build --release -p memfit-papers
	$(TARGET)/release/memfit-papers --check docs/papers/simulated.json

install: ## installs what build made: PREFIX=/usr/local, DESTDIR=
	@test -x $(TARGET)/release/memfit || { echo "make install: no $(TARGET)/release/memfit: run make first" >&2; exit 1; }
	install -Dm755 $(TARGET)/release/memfit $(DESTDIR)$(PREFIX)/bin/memfit
	install -Dm755 $(TARGET)/release/libmemfit.so $(DESTDIR)$(PREFIX)/lib/memfit/libmemfit.so
	install -d $(DESTDIR)$(PREFIX)/share/man/man1 $(DESTDIR)$(PREFIX)/share/bash-completion/completions
	install -d $(DESTDIR)$(PREFIX)/share/zsh/site-functions $(DESTDIR)$(PREFIX)/share/fish/vendor_completions.d
	$(TARGET)/release/memfit __generate man $(DESTDIR)$(PREFIX)/share/man/man1
	$(TARGET)/release/memfit __generate bash $(DESTDIR)$(PREFIX)/share/bash-completion/completions
	mv $(DESTDIR)$(PREFIX)/share/bash-completion/completions/memfit.bash \
	   $(DESTDIR)$(PREFIX)/share/bash-completion/completions/memfit
	$(TARGET)/release/memfit __generate zsh $(DESTDIR)$(PREFIX)/share/zsh/site-functions
	$(TARGET)/release/memfit __generate fish $(DESTDIR)$(PREFIX)/share/fish/vendor_completions.d

uninstall: ## what install made
	rm -f $(DESTDIR)$(PREFIX)/bin/memfit $(DESTDIR)$(PREFIX)/lib/memfit/libmemfit.so
	rm -f $(DESTDIR)$(PREFIX)/share/man/man1/memfit.1 $(DESTDIR)$(PREFIX)/share/man/man1/memfit-*.1
	rm -f $(DESTDIR)$(PREFIX)/share/bash-completion/completions/memfit
	rm -f $(DESTDIR)$(PREFIX)/share/zsh/site-functions/_memfit
	rm -f $(DESTDIR)$(PREFIX)/share/fish/vendor_completions.d/memfit.fish
	-rmdir $(DESTDIR)$(PREFIX)/lib/memfit

clean: ## what was built
	$(CARGO) clean
