# reshardfs: one non-recursive Makefile. `make help` lists targets and variables.

B ?= release
CC ?= gcc
PREFIX ?= /usr/local
BINDIR ?= $(PREFIX)/bin
SBINDIR ?= /sbin
VERSION := 0.1.0

OUT := build/$(B)
GEN := build/gen
PKGS := fuse3 libprotobuf-c libcjson

WARN = -Wall -Wextra -Wshadow -Wconversion -Wstrict-prototypes -Wmissing-prototypes -Wformat=2 \
       -Wcast-qual -Wpointer-arith -Wundef -Wvla -Wimplicit-fallthrough $(if $(WERROR),-Werror)
release = -O2 -g -U_FORTIFY_SOURCE -D_FORTIFY_SOURCE=2
debug = -O0 -g3
asan = -O1 -g -fsanitize=address,undefined -fno-sanitize-recover=all -fno-omit-frame-pointer
tsan = -O1 -g -fsanitize=thread -fno-omit-frame-pointer
cov = -O0 -g --coverage
fuzz = -O1 -g -fsanitize=fuzzer-no-link,address,undefined -fno-sanitize-recover=all -fno-omit-frame-pointer

ifeq ($(filter $(B),release debug asan tsan cov fuzz),)
$(error B is release, debug, asan, tsan, cov or fuzz, not '$(B)')
endif

BASE_CFLAGS := -std=gnu17 -D_GNU_SOURCE -D_FILE_OFFSET_BITS=64 -DFUSE_USE_VERSION=314 \
	-DRS_VERSION='"$(VERSION)"' -Iinclude -I. -I$(GEN) -MMD -MP -pthread -fno-common -fstack-protector-strong
# Looked up lazily, so that `make deps` works before the libraries are there.
PKG_CFLAGS = $(shell pkg-config --cflags $(PKGS) 2>/dev/null)
PKG_LIBS = $(shell pkg-config --libs $(PKGS) 2>/dev/null)
ALL_CFLAGS = $(BASE_CFLAGS) $(PKG_CFLAGS) $($(B)) $(CFLAGS)
ALL_LDFLAGS = $($(B)) -pthread $(LDFLAGS)

CORE_SRC := $(wildcard core/*/*.c core/*/*/*.c)
PROTO_C := $(GEN)/strategy.pb-c.c
PLANS := $(sort $(wildcard core/target/plans/*.json))
CORE_OBJ := $(CORE_SRC:%.c=$(OUT)/%.o) $(OUT)/gen/strategy.pb-c.o $(OUT)/gen/plans.o
FS_SRC := $(wildcard fs/*.c fs/mount/*.c fs/verbs/*.c)
FS_OBJ := $(FS_SRC:%.c=$(OUT)/%.o)
LIB := $(OUT)/libreshard.a
PROG := $(OUT)/reshardfs

UNIT_SRC := $(wildcard tests/unit/test_*.c)
UNIT_BIN := $(UNIT_SRC:tests/unit/%.c=$(OUT)/tests/%)
TESTLIB_OBJ := $(patsubst %.c,$(OUT)/%.o,$(wildcard tests/lib/*.c))
FUZZ_SRC := $(wildcard tests/fuzz/fuzz_*.c)
FUZZ_REPLAY := $(FUZZ_SRC:tests/fuzz/%.c=$(OUT)/tests/%_replay)
FUZZ_BIN := $(FUZZ_SRC:tests/fuzz/%.c=$(OUT)/tests/%)
C_FILES := $(shell git ls-files '*.c' '*.h' 2>/dev/null)

.PHONY: all help deps check check-mount unit lint format format-check fuzz fuzz-replay bench tidy \
	test demo install clean
.DEFAULT_GOAL := all
all: $(PROG)

help:
	@echo 'targets:'
	@echo '  all           the program: build/$$B/reshardfs (default)'
	@echo '  deps          install the Debian packages that are missing'
	@echo '  demo          write a small checkpoint, mount it under another strategy, compare'
	@echo '  test          install what is missing and run the whole suite'
	@echo '  check         unit tests, lint and fuzz corpora: seconds, no /dev/fuse'
	@echo '  check-mount   integration tests on real mounts'
	@echo '  fuzz          coverage-guided fuzzing, FUZZ_SECONDS each (clang)'
	@echo '  bench         read ratios against cat of the materialized twin'
	@echo '  tidy format   clang-tidy and cppcheck; clang-format in place'
	@echo '  install       DESTDIR= PREFIX= SBINDIR='
	@echo 'variables: B=release|debug|asan|tsan|cov|fuzz  CC=gcc|clang  WERROR=1  FUZZ_SECONDS=60'

# ------------------------------------------------------------------ compiling
$(GEN)/strategy.pb-c.c $(GEN)/strategy.pb-c.h &: core/layout/strategy.proto
	@mkdir -p $(GEN)
	protoc-c --c_out=$(GEN) --proto_path=core/layout $<

# The plans that the program brings along are data, built in as text.
$(GEN)/plans.c: core/target/plans core/target/plans/embed.sh $(PLANS)
	@mkdir -p $(GEN)
	sh core/target/plans/embed.sh $(PLANS) > $@.tmp && mv $@.tmp $@

$(OUT)/gen/%.o: $(GEN)/%.c
	@mkdir -p $(@D)
	$(CC) $(ALL_CFLAGS) -c -o $@ $<

# Only the strategy reader sees the generated header; -MMD knows it only after a first build.
$(patsubst %.c,$(OUT)/%.o,$(wildcard core/layout/strategy*.c)): $(GEN)/strategy.pb-c.h
$(OUT)/%.o: %.c
	@mkdir -p $(@D)
	$(CC) $(ALL_CFLAGS) $(WARN) -c -o $@ $<

$(LIB): $(CORE_OBJ)
	@rm -f $@
	ar rcs $@ $^

$(PROG): $(FS_OBJ) $(LIB)
	$(CC) $(ALL_LDFLAGS) -o $@ $^ $(PKG_LIBS)

$(OUT)/tests/test_%: $(OUT)/tests/unit/test_%.o $(TESTLIB_OBJ) $(LIB)
	@mkdir -p $(@D)
	$(CC) $(ALL_LDFLAGS) -o $@ $(filter %.o,$^) $(LIB) $(PKG_LIBS) -lcmocka -lm

# Rooms of the program are tested with their own objects.
FS_TESTED = $(addprefix $(OUT)/fs/,$(1))
$(OUT)/tests/test_options: $(call FS_TESTED,options.o options_table.o report.o)
$(OUT)/tests/test_ops: $(call FS_TESTED,mountinfo.o $(addprefix mount/,init.o log.o ops.o readonly.o \
	reply.o wait.o xattr.o))

$(OUT)/tests/fuzz_%_replay: $(OUT)/tests/fuzz/fuzz_%.o $(OUT)/tests/fuzz/replay.o $(LIB)
	@mkdir -p $(@D)
	$(CC) $(ALL_LDFLAGS) -o $@ $^ $(PKG_LIBS)

$(OUT)/tests/fuzz_%: $(OUT)/tests/fuzz/fuzz_%.o $(LIB)
	@mkdir -p $(@D)
	$(CC) $(ALL_LDFLAGS) -fsanitize=fuzzer -o $@ $^ $(PKG_LIBS)

-include $(shell find $(OUT) -name '*.d' 2>/dev/null)
.SECONDARY:

# -------------------------------------------------------------------- checking
unit: $(UNIT_BIN)
	@set -e; for t in $(UNIT_BIN); do echo "== $$t"; $$t; done

lint:
	@sh tests/lint/floors.sh
	@sh tests/lint/headers.sh "$(CC)" "$(BASE_CFLAGS)"

format:
	clang-format -i $(C_FILES)
format-check:
	@clang-format --dry-run --Werror $(C_FILES)

fuzz-replay: $(FUZZ_REPLAY)
	@set -e; for t in $(FUZZ_REPLAY); do n=$$(basename $$t _replay); \
	  $$t tests/fuzz/corpus/$${n#fuzz_}/*; done

check: unit lint format-check fuzz-replay

check-mount: $(PROG)
	RESHARDFS=$(abspath $(PROG)) sh tests/lib/pytest.sh tests/integration $(PYTEST_ARGS)

FUZZ_SECONDS ?= 60
fuzz:
	sh tests/fuzz/run.sh $(FUZZ_SECONDS)

bench: $(PROG)
	RESHARDFS=$(abspath $(PROG)) /usr/bin/python3 tests/bench/bench.py

tidy:
	@sh mount-helpers/packaging/install-packages.sh tidy
	clang-tidy --quiet $(filter core/%.c fs/%.c,$(C_FILES)) -- $(filter-out -MMD -MP,$(BASE_CFLAGS)) $(PKG_CFLAGS)
	cppcheck --quiet --error-exitcode=1 --std=c17 --inline-suppr -I. -Iinclude -I$(GEN) \
		--suppress=missingIncludeSystem $(filter core/%.c fs/%.c,$(C_FILES))

# ------------------------------------------------------- the README's two commands
deps:
	@sh mount-helpers/packaging/install-packages.sh

demo: deps
	@echo 'building build/release/reshardfs, a minute on two cores ...'
	@$(MAKE) --no-print-directory -s all
	@RESHARDFS=$(abspath build/release/reshardfs) sh tests/lib/demo.sh

test: deps
	sh tests/lib/run-all.sh

install: $(PROG)
	install -D -m 755 $(PROG) $(DESTDIR)$(BINDIR)/reshardfs
	install -D -m 755 mount-helpers/mount.reshardfs $(DESTDIR)$(SBINDIR)/mount.reshardfs
	ln -sf mount.reshardfs $(DESTDIR)$(SBINDIR)/mount.fuse.reshardfs

clean:
	rm -rf build
