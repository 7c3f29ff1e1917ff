/*
 * tiny.c - see tiny.h. The files are real, so that permissions, times and changes are; the
 * loader and the target are the least that the contracts of catalog.h and target.h allow.
 */
#include "tiny.h"

#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#define CHECK(expr)                                                                                \
	do {                                                                                       \
		if (!(expr)) {                                                                     \
			fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #expr);                 \
			abort();                                                                   \
		}                                                                                  \
	} while (0)

uint8_t tiny_w(uint64_t row, uint64_t col)
{
	return (uint8_t)((row * TINY_COLS + col) * 7 + 1);
}

void tiny_path(const struct tiny *t, uint32_t rank, char *buf, size_t size)
{
	snprintf(buf, size, "%s/rank_%u/data", t->dir, rank);
}

void tiny_content(uint32_t rank, uint8_t *w, uint8_t *pad)
{
	for (uint32_t r = 0; r < TINY_ROWS; r++)
		for (uint32_t c = 0; c < 4; c++)
			w[r * 4 + c] = tiny_w(r, 4 * rank + c);
	memset(pad, 0, 8);
}

/* ------------------------------------------------------------------ source */

static void write_rank(const struct tiny *t, uint32_t rank)
{
	uint8_t bytes[TINY_LEAD + TINY_SLICE_BYTES] = "leading";
	char path[64];
	int fd;

	snprintf(path, sizeof(path), "%s/rank_%u", t->dir, rank);
	CHECK(mkdir(path, 0755) == 0);
	tiny_path(t, rank, path, sizeof(path));
	for (uint32_t i = 0; i < TINY_SLICE_BYTES; i++)
		bytes[TINY_LEAD + i] = tiny_w(4 * rank + i / TINY_COLS, i % TINY_COLS);
	fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
	CHECK(fd >= 0);
	CHECK(write(fd, bytes, sizeof(bytes)) == sizeof(bytes));
	CHECK(fchmod(fd, 0644) == 0);
	close(fd);
}

static int open_file(void *self, const char *path, struct rs_file *out, struct rs_err *err)
{
	const struct tiny *t = self;

	return rs_dir_file(t->handle, path, path, out, err);
}

static int load(void *self, const struct rs_unit *unit, const struct rs_file *const *files,
	struct rs_table **out, struct rs_err *err)
{
	struct rs_arena *arena = rs_arena_new(1 << 20, err);
	struct rs_table *table = RS_NEW(arena, struct rs_table, err);
	struct rs_entry *entry = RS_NEW(arena, struct rs_entry, err);
	struct rs_span *span = RS_NEW(arena, struct rs_span, err);
	uint64_t *bytes = RS_NEW(arena, uint64_t, err);

	(void)self, (void)unit;
	CHECK(table && entry && span && bytes);
	*span = (struct rs_span){.off = TINY_LEAD, .len = TINY_SLICE_BYTES};
	*entry = (struct rs_entry){.name = RS_STR("w"),
		.dtype = RS_DT_U8,
		.shape = {2, {4, TINY_COLS}},
		.bytes = TINY_SLICE_BYTES,
		.n_spans = 1,
		.spans = span};
	*bytes = files[0]->size;
	*table = (struct rs_table){.entries = entry,
		.n_entries = 1,
		.file_bytes = bytes,
		.n_files = 1,
		.arena = arena};
	*out = table;
	return rs_table_finish(table, "data", err);
}

static void add_ranks(struct tiny *t)
{
	uint32_t units[TINY_RANKS];
	struct rs_err err;

	for (uint32_t r = 0; r < TINY_RANKS; r++) {
		char name[16], path[32];
		struct rs_file file;

		snprintf(name, sizeof(name), "rank_%u", r);
		snprintf(path, sizeof(path), "rank_%u/data", r);
		CHECK(rs_dir_file(t->handle, path, path, &file, &err) == 0);
		struct rs_source_file info = {path, file.id};
		rs_file_close(&file);
		CHECK(rs_catalog_add_unit(t->cat, name, &info, 1, &units[r], &err) == 0);
	}
	CHECK(rs_catalog_set_ranks(t->cat, units, 1, TINY_RANKS, &err) == 0);
}

static void add_tensor(struct tiny *t)
{
	struct rs_arena *arena = rs_catalog_arena(t->cat);
	struct rs_grid *grid = RS_NEW(arena, struct rs_grid, NULL);
	uint32_t *numbers = RS_NEW_N(arena, uint32_t, TINY_RANKS + 1, NULL);

	CHECK(grid && numbers);
	for (uint32_t i = 0; i <= TINY_RANKS; i++)
		numbers[i] = i;
	*grid = (struct rs_grid){.n_axes = 2,
		.cuts = {TINY_RANKS, 1},
		.fields = 1,
		.n_holders = TINY_RANKS,
		.n_cells = TINY_RANKS,
		.cell_of = numbers,
		.first = numbers,
		.holders = numbers};
	t->w = (struct rs_tensor){.name = RS_STR("w"),
		.dtype = RS_DT_U8,
		.shape = {2, {TINY_ROWS, TINY_COLS}},
		.grid = grid};
	CHECK(rs_catalog_add_tensor(t->cat, &t->w, NULL) == 0);
	CHECK(rs_catalog_seal(t->cat, NULL) == 0);
}

/* ------------------------------------------------------------------ target */

static void pass_gate(struct tiny *t)
{
	pthread_mutex_lock(&t->gate_lock);
	t->gate_waiting++;
	pthread_cond_broadcast(&t->gate_moved);
	while (t->gate_closed)
		pthread_cond_wait(&t->gate_moved, &t->gate_lock);
	t->gate_waiting--;
	pthread_mutex_unlock(&t->gate_lock);
}

void tiny_gate(struct tiny *t, bool closed)
{
	pthread_mutex_lock(&t->gate_lock);
	t->gate_closed = closed;
	pthread_cond_broadcast(&t->gate_moved);
	pthread_mutex_unlock(&t->gate_lock);
}

void tiny_gate_wait(struct tiny *t, uint32_t n)
{
	pthread_mutex_lock(&t->gate_lock);
	while (t->gate_waiting < n)
		pthread_cond_wait(&t->gate_moved, &t->gate_lock);
	pthread_mutex_unlock(&t->gate_lock);
}

static int list_raw(struct tiny *t, struct rs_wanted *items, struct rs_part *parts)
{
	parts[0] = (struct rs_part){
		.kind = RS_PART_COPY, .box = {2, {0}, {TINY_ROWS, TINY_COLS}}, .source = &t->w};
	items[0] = (struct rs_wanted){.name = RS_STR("w"),
		.dtype = RS_DT_U8,
		.shape = t->w.shape,
		.parts = parts,
		.n_parts = 1,
		.prefer = RS_PREFER_NONE};
	return 1;
}

static int list_slices(
	struct tiny *t, uint64_t rank, struct rs_wanted *items, struct rs_part *parts)
{
	parts[0] = (struct rs_part){.kind = RS_PART_COPY,
		.box = {2, {0}, {t->rows, 4}},
		.source = &t->w,
		.origin = {0, 4 * rank}};
	items[0] = (struct rs_wanted){.name = RS_STR("w"),
		.dtype = t->strange ? RS_DT_F8_E5M2 : RS_DT_U8,
		.shape = {2, {t->rows, 4}},
		.parts = &parts[0],
		.n_parts = 1,
		.prefer = RS_PREFER_NONE};
	parts[1] = (struct rs_part){.kind = RS_PART_ZERO, .box = {1, {0}, {2}}};
	items[1] = (struct rs_wanted){.name = RS_STR("pad"),
		.dtype = RS_DT_F32,
		.stored = t->pad_stored,
		.shape = {1, {2}},
		.parts = &parts[1],
		.n_parts = 1,
		.prefer = RS_PREFER_NONE};
	return 2;
}

static int list(struct rs_target *target, uint64_t rank, struct rs_arena *arena,
	struct rs_list *out, struct rs_notes *notes, struct rs_err *err)
{
	struct tiny *t = target->priv;
	struct rs_wanted *items = RS_NEW_N(arena, struct rs_wanted, 2, err);
	struct rs_part *parts = RS_NEW_N(arena, struct rs_part, 2, err);

	t->lists[rank]++;
	pass_gate(t);
	if (!items || !parts)
		return -1;
	if (t->fail[rank] != RS_OK)
		return rs_fail(err, t->fail[rank], "the list of %" PRIu64 " failed", rank);
	rs_note(notes, "a remark on rank %" PRIu64, rank);
	out->items = items;
	out->raw = t->raw;
	if (!t->empty)
		out->n = (uint64_t)(t->raw ? list_raw(t, items, parts)
					   : list_slices(t, rank, items, parts));
	return 0;
}

static const struct rs_target_ops ops = {.name = "tiny", .list = list};

/* -------------------------------------------------------------------- both */

void tiny_open(struct tiny *t, void (*change)(const struct tiny *t))
{
	struct rs_err err;

	memset(t, 0, sizeof(*t));
	snprintf(t->dir, sizeof(t->dir), "/tmp/tiny-XXXXXX");
	CHECK(mkdtemp(t->dir));
	CHECK(chmod(t->dir, 0755) == 0);
	for (uint32_t r = 0; r < TINY_RANKS; r++)
		write_rank(t, r);
	if (change)
		change(t);
	CHECK(rs_dir_open(t->dir, NULL, true, &t->handle, &err) == 0);
	t->cat = rs_catalog_new(1 << 20, &err);
	CHECK(t->cat);
	rs_catalog_set_loader(
		t->cat, (struct rs_loader){.open = open_file, .load = load, .self = t});
	add_ranks(t);
	add_tensor(t);
	t->rows = TINY_ROWS;
	pthread_mutex_init(&t->gate_lock, NULL);
	pthread_cond_init(&t->gate_moved, NULL);
	t->source = (struct rs_source){.dir = t->handle,
		.cat = t->cat,
		.opts = {.path = t->dir},
		.container = "ckpt",
		.n_ranks = TINY_RANKS};
	t->target = (struct rs_target){.ops = &ops,
		.source = &t->source,
		.container = "ckpt",
		.container_default_name = "checkpoint_{rank}.ckpt",
		.mindspore = true,
		.n_ranks = TINY_RANKS,
		.arena = rs_arena_new(1 << 20, &err),
		.priv = t};
	CHECK(t->target.arena);
	CHECK(rs_target_arrange(
		      &t->target, (const uint64_t[]){0, 1, 2, 3}, TINY_RANKS, NULL, &err) == 0);
}

void tiny_close(struct tiny *t)
{
	char path[64];

	rs_arena_free(t->target.arena);
	rs_catalog_free(t->cat);
	rs_dir_close(t->handle);
	for (uint32_t r = 0; r < TINY_RANKS; r++) {
		tiny_path(t, r, path, sizeof(path));
		unlink(path);
		snprintf(path, sizeof(path), "%s/rank_%u", t->dir, r);
		rmdir(path);
	}
	rmdir(t->dir);
	pthread_cond_destroy(&t->gate_moved);
	pthread_mutex_destroy(&t->gate_lock);
}
