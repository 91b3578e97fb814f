# `make help` lists the targets.

SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
MAKEFLAGS += --no-print-directory

# These would replace the static linking that .cargo/config.toml asks for.
unexport RUSTFLAGS CARGO_ENCODED_RUSTFLAGS CARGO_BUILD_TARGET

host = $(shell rustc -vV 2>/dev/null | sed -n 's/^host: //p')
binary = $(or $(CARGO_TARGET_DIR),target)/$(host)/release/mco-rescue

# What `make install` puts there: one that is built already, as root often has no compiler, or BINARY=FILE.
BINARY ?= $(firstword $(wildcard $(binary) $(or $(CARGO_TARGET_DIR),target)/*/release/mco-rescue) $(binary))

# A binary of the same sources that prints the manual, where BINARY is for another machine.
RUN ?= $(BINARY)

# Where it goes. Below DESTDIR, which a package is made of, in the places where what reads it looks.
PREFIX ?= /usr/local
bindir ?= $(PREFIX)/bin
unitdir ?= $(PREFIX)/lib/systemd/system
mandir ?= $(PREFIX)/share/man
docdir ?= $(PREFIX)/share/doc/mco-rescue
licensedir ?= $(PREFIX)/share/licenses/mco-rescue
bashdir ?= $(PREFIX)/share/bash-completion/completions
zshdir ?= $(PREFIX)/share/zsh/site-functions
fishdir ?= $(PREFIX)/share/fish/vendor_completions.d
catalogdir ?= $(PREFIX)/lib/systemd/catalog
extrasdir ?= $(PREFIX)/share/mco-rescue
# dracut looks in one place only; who installs into a home has none.
dracutdir ?= $(if $(filter /usr /usr/local,$(PREFIX)),/usr,$(PREFIX))/lib/dracut
module = $(dracutdir)/modules.d/50mco-rescue

units = $(notdir $(wildcard systemd/*.service systemd/*.timer))
parts = $(notdir $(wildcard dracut/50mco-rescue/*.sh dracut/50mco-rescue/*.service dracut/50mco-rescue/*.conf))
examples = Containerfile $(notdir $(wildcard examples/*.yaml))
manual = $(sort $(wildcard docs/*.md docs/*.svg docs/*/*.md docs/*/*.json docs/*/*.svg))

# The oldest promised compiler decides which lints are errors: a newer one has more of them, and those only warn.
oldest = $(shell sed -n 's/^rust-version = "\(.*\)"/\1/p' Cargo.toml)
strict = $(if $(filter $(oldest) $(oldest).%,$(word 2,$(shell rustc --version))),-D warnings)

.PHONY: help
help: ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-12s %s\n", $$1, $$2 }' Makefile

.PHONY: demo
demo: ## the main job on an example node; no root, no cluster
	@examples/demo.sh

# Their tests run what is shipped, which also takes less time than a debug build.
test checks vm-test: export TESTED_BINARY = $(abspath $(binary))

.PHONY: test
test: ## formatting, lints, docs, shell scripts, then every test
	@tests/setup.sh
	cargo fmt --check
	@if [[ -z '$(strict)' ]]; then echo 'make test: lints only warn, as this is not Rust $(oldest)'; fi
	@$(MAKE) -j 2 static checks
	@$(MAKE) prove-cargo-install
	@tests/run.sh

# All of `make test` that waits for no release binary. That is linked by one processor, which leaves the other for this.
.PHONY: checks
checks:
	cargo clippy --all-targets --locked -- $(strict)
	RUSTDOCFLAGS='$(strict)' cargo doc --no-deps --locked
	@$(MAKE) shellcheck
	@if grep -rIlE '^(<{7} |>{7} )' --exclude-dir=target --exclude-dir=.git .; then \
	    echo 'These files hold both sides of a merge: leave one of them.' >&2; exit 1; fi
	cargo test --locked --no-run

.PHONY: faults
faults: ## every fault at every system call, every power cut, real disks (as root; minutes)
	@tests/setup.sh
	@begun=$$(date +%s); \
	MCO_RESCUE_FAULTS=all cargo test --locked --test main -- faults:: trial::matrix:: trial::sequences:: os::sticks::an_ --nocapture; \
	echo "make faults: everything held, in $$(($$(date +%s) - begun)) s"

.PHONY: vm-test
vm-test: ## every virtual machine: first boots, power cuts, rescues (as root; KVM or emulation)
	@tests/setup.sh
	@$(MAKE) static
	@table=$$(mktemp); begun=$$(date +%s); status=0; \
	VM_TABLE=$$table VM_CUTS=20 MCO_RESCUE_FAULTS=all tests/run.sh --test vm -- --include-ignored --test-threads 2 || status=$$?; \
	printf '\n%-44s %-7s %9s  %s\n' case result time accelerator; \
	sort -n "$$table" | awk -F '\t' '{ printf "%-44s %-7s %9s  %s\n", $$1, $$2, $$3, $$4 }'; rm "$$table"; \
	echo "make vm-test: $$(($$(date +%s) - begun)) s, images included"; exit $$status

.PHONY: bench
bench: ## speed and memory beside Ignition, tar and cat (as root); QUICK=1: a minute of it
	@tests/setup.sh bench
	@QUICK='$(QUICK)' benches/run

.PHONY: bench-counts
bench-counts: ## instructions by callgrind, against the last time: the same on a busy machine
	@tests/setup.sh bench
	@benches/counts

# Seconds for each target. What is found new is kept below target/, what fails below tests/fuzz/artifacts/.
SECONDS ?= 60

.PHONY: fuzz
fuzz: ## every fuzz target for SECONDS=60 (they need nightly Rust and cargo-fuzz)
	@cargo +nightly --version >/dev/null 2>&1 || { echo 'Fuzzing needs nightly Rust (rustup toolchain install nightly).' >&2; exit 1; }
	@cargo +nightly fuzz --version >/dev/null 2>&1 || { echo 'Fuzzing needs cargo-fuzz (cargo install cargo-fuzz).' >&2; exit 1; }
	cargo +nightly fuzz build --fuzz-dir tests/fuzz --target-dir target/fuzz
	@for path in tests/fuzz/fuzz_targets/*.rs; do \
	    name=$$(basename "$$path" .rs); \
	    corpus=(target/fuzz-corpus/$$name); \
	    mkdir -p "$${corpus[0]}"; \
	    case $$name in document | render) corpus+=(tests/fixtures examples) ;; esac; \
	    echo "== $$name"; \
	    cargo +nightly fuzz run --fuzz-dir tests/fuzz --target-dir target/fuzz "$$name" "$${corpus[@]}" -- \
	        -dict=tests/fuzz/words.dict -max_total_time=$(SECONDS) -timeout=20 -print_final_stats=1 \
	        2>&1 | grep -vE 'NEW_FUNC|^#[0-9]+[[:space:]]+(NEW|REDUCE|pulse|RELOAD)'; \
	done

.PHONY: deny
deny: ## licences, bans and sources of the dependencies, and their advisories (cargo-deny)
	@cargo deny --version >/dev/null 2>&1 || { echo 'make deny needs cargo-deny: cargo install cargo-deny --locked' >&2; exit 1; }
	cargo deny --locked check licenses bans sources
	@if cargo deny fetch db >/dev/null 2>&1 || compgen -G "$${CARGO_HOME:-$$HOME/.cargo}/advisory-dbs/*/crates" >/dev/null; then \
	    cargo deny --locked check --disable-fetch advisories; \
	else \
	    echo 'SKIP: advisories: the database of RustSec is not here and cannot be fetched'; \
	fi

.PHONY: static
static: ## the release binary, its size, and proof that it is static
	cargo build --release --locked
	@$(MAKE) prove-static

# Where `make dist` and `make release` put what they make; it has to be empty.
OUT ?= target/release-files

.PHONY: dist
dist: ## a tarball of the commit for each architecture that can be built here, not signed
	@RELEASE_KEY= packaging/release.sh '$(OUT)'

.PHONY: release
release: ## the same, signed: RELEASE_KEY=FILE is the ssh key (docs/develop/release.md)
	@if [[ -z '$(RELEASE_KEY)' ]]; then echo 'make release signs: name the ssh key with RELEASE_KEY=FILE, or use make dist.' >&2; exit 1; fi
	@RELEASE_KEY='$(RELEASE_KEY)' packaging/release.sh '$(OUT)'

.PHONY: reproducible
reproducible: ## two builds in two places, of two users and clocks, and that they are equal (minutes)
	@tests/release/reproducible.sh

.PHONY: cross-test
cross-test: ## the library's tests for other architectures, under qemu-user (minutes); TARGETS="..."
	@TARGETS='$(TARGETS)' tests/release/cross.sh

.PHONY: install
install: $(BINARY) ## what a package has, below DESTDIR, with PREFIX=/usr/local
	@umask 022; \
	work=$$(mktemp -d); trap 'rm -rf "$$work"' EXIT; \
	program=$$(realpath '$(BINARY)'); run=$$(realpath '$(RUN)'); \
	mkdir "$$work/man" "$$work/units"; \
	"$$run" man "$$work/man"; "$$run" man --errors >"$$work/errors.html"; \
	for shell in bash zsh fish; do "$$run" completions "$$shell" >"$$work/$$shell"; done; \
	for unit in $(units); do sed 's|/usr/local/bin|$(bindir)|g' "systemd/$$unit" >"$$work/units/$$unit"; done; \
	put() { install -D -m "$$1" -- "$$2" '$(DESTDIR)'"$$3"; }; \
	put 0755 "$$program" '$(bindir)/mco-rescue'; \
	for unit in $(units); do put 0644 "$$work/units/$$unit" "$(unitdir)/$$unit"; done; \
	for part in $(parts); do put 0644 "dracut/50mco-rescue/$$part" "$(module)/$$part"; done; \
	chmod 0755 '$(DESTDIR)$(module)/module-setup.sh'; \
	put 0644 dracut/mco-rescue.conf '$(dracutdir)/dracut.conf.d/50-mco-rescue.conf'; \
	for page in "$$work"/man/*; do put 0644 "$$page" "$(mandir)/man8/$${page##*/}"; done; \
	put 0644 "$$work/bash" '$(bashdir)/mco-rescue'; \
	put 0644 "$$work/zsh" '$(zshdir)/_mco-rescue'; \
	put 0644 "$$work/fish" '$(fishdir)/mco-rescue.fish'; \
	put 0644 systemd/mco-rescue.catalog '$(catalogdir)/mco-rescue.catalog'; \
	put 0644 packaging/sos/mco_rescue.py '$(extrasdir)/sos/mco_rescue.py'; \
	put 0755 packaging/greenboot/50_mco_rescue.sh '$(extrasdir)/greenboot/50_mco_rescue.sh'; \
	put 0755 packaging/kubectl/kubectl-mco_rescue '$(extrasdir)/kubectl/kubectl-mco_rescue'; \
	put 0644 LICENSE '$(licensedir)/LICENSE'; \
	put 0644 README.md '$(docdir)/README.md'; \
	put 0644 "$$work/errors.html" '$(docdir)/errors.html'; \
	for example in $(examples); do put 0644 "examples/$$example" "$(docdir)/examples/$$example"; done; \
	for page in $(manual); do put 0644 "$$page" "$(docdir)/$$page"; done; \
	echo "make install: $$("$$run" --version) is at $(DESTDIR)$(bindir)/mco-rescue"

.PHONY: uninstall
uninstall: ## takes exactly that away again
	@at='$(DESTDIR)'; \
	rm -f -- "$$at$(bindir)/mco-rescue" $(units:%="$$at$(unitdir)/%") $(parts:%="$$at$(module)/%") \
	    "$$at$(dracutdir)/dracut.conf.d/50-mco-rescue.conf" \
	    "$$at$(mandir)/man8/mco-rescue.8" "$$at$(mandir)"/man8/mco-rescue-*.8 \
	    "$$at$(bashdir)/mco-rescue" "$$at$(zshdir)/_mco-rescue" "$$at$(fishdir)/mco-rescue.fish" \
	    "$$at$(catalogdir)/mco-rescue.catalog" "$$at$(extrasdir)/sos/mco_rescue.py" \
	    "$$at$(extrasdir)/greenboot/50_mco_rescue.sh" "$$at$(extrasdir)/kubectl/kubectl-mco_rescue" \
	    "$$at$(licensedir)/LICENSE" "$$at$(docdir)/README.md" "$$at$(docdir)/errors.html" $(examples:%="$$at$(docdir)/examples/%") \
	    $(manual:%="$$at$(docdir)/%"); \
	for directory in '$(extrasdir)/sos' '$(extrasdir)/greenboot' '$(extrasdir)/kubectl' '$(extrasdir)' '$(module)' '$(licensedir)' '$(docdir)/examples' $(patsubst %/,'$(docdir)/%',$(sort $(filter-out docs/,$(dir $(manual))))) \
	    '$(docdir)/docs' '$(docdir)'; do \
	    if [[ -d $$at$$directory ]]; then rmdir --ignore-fail-on-non-empty -- "$$at$$directory"; fi; \
	done

# Without help text: parts of the targets above.

$(binary):
	cargo build --release --locked

.PHONY: prove-static
prove-static:
	@size=$$(stat -c %s '$(binary)'); \
	printf '%s\n%d bytes (%d.%02d MB)\n' '$(binary)' "$$size" $$((size / 1000000)) $$((size % 1000000 / 10000)); \
	if command -v readelf >/dev/null; then \
	    headers=$$(LC_ALL=C readelf -lW -d '$(binary)'); \
	    if dynamic=$$(grep -E 'INTERP|NEEDED' <<<"$$headers"); then \
	        printf 'not static:\n%s\n' "$$dynamic" >&2; exit 1; \
	    fi; \
	    echo 'static: no interpreter, no needed library (readelf)'; \
	else \
	    linked=$$(LC_ALL=C ldd '$(binary)' 2>&1 || true); \
	    case $$linked in \
	        *'statically linked'* | *'not a dynamic executable'*) echo 'static: no needed library (ldd)' ;; \
	        *) printf 'not static:\n%s\n' "$$linked" >&2; exit 1 ;; \
	    esac; \
	fi; \
	if command -v file >/dev/null; then file -b '$(binary)' | fold -s -w 80; fi

# What cargo installs is the program that `make static` has built: nothing is compiled again.
.PHONY: prove-cargo-install
prove-cargo-install:
	@at=$$(mktemp -d); trap 'rm -rf "$$at"' EXIT; \
	cargo install --path . --locked --quiet --root "$$at"; \
	cmp '$(binary)' "$$at/bin/mco-rescue"; \
	echo "cargo install: $$("$$at/bin/mco-rescue" --version)"

# Every shell script of the checkout; in an unpacked tarball, of the tree.
.PHONY: shellcheck
shellcheck:
	@scripts=(); \
	while IFS= read -r -d '' path; do \
	    [[ -f $$path && ! -L $$path ]] || continue; \
	    case $$path in \
	        *.sh | *.bash) scripts+=("$$path") ;; \
	        *) if head -c 128 -- "$$path" | head -n 1 | grep -qaE '^#! ?/.*[/ ](ba|da)?sh( |$$)'; then scripts+=("$$path"); fi ;; \
	    esac; \
	done < <(if [[ -e .git ]]; then \
	    git ls-files -z --cached --others --exclude-standard --deduplicate; \
	else \
	    find . -path ./target -prune -o -type f -print0; \
	fi); \
	echo "shellcheck: $${#scripts[@]} scripts"; \
	shellcheck -- "$${scripts[@]}"
