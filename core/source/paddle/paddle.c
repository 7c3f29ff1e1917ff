/*
 * paddle.c - Paddle checkpoints as a source: a directory of .distcp files with its .metadata, or
 * one .pdparams or .pdopt file.
 *
 *   0.metadata   which shard of which tensor is in which file (read when SOURCE is opened)
 *   0_0.distcp   the shards of rank 0: a pickled dict of arrays (read at the first need)
 *
 * Only files that the metadata names count. A file that is missing ends the plans of the tensors
 * it holds, not of others. Pickles are read as data and nothing in them runs.
 * Format: docs/formats/paddle.md. Next: paddle_dir.c.
 */
#include "core/source/paddle/paddle.h"
#include "core/source/internal.h"
#include "reshardfs/codec.h"

#include <inttypes.h>
#include <stdlib.h>

/* ------------------------------------------------------------------------ probing */

#define PROBE_MAX_BYTES (UINT64_C(64) << 20)

static bool is_single(const char *file)
{
	struct rs_str name = rs_str(file);

	return rs_str_ends(name, ".pdparams") || rs_str_ends(name, ".pdopt");
}

/* Pickles of protocol 2 and later begin with this byte. */
static bool begins_as_pickle(const struct rs_dir *dir, const char *name)
{
	struct rs_file file;
	uint8_t byte = 0;

	if (rs_dir_file(dir, name, name, &file, NULL) < 0)
		return false;
	if (file.size > 0 && rs_file_read(&file, 0, &byte, 1, NULL) < 0)
		byte = 0;
	rs_file_close(&file);
	return byte == 0x80;
}

static int probe(const struct rs_dir *dir, const char *file)
{
	struct rs_arena *scratch;
	struct rs_dirent *entries;
	struct rs_str id;
	uint64_t n;
	bool data = false, metadata = false;

	if (file) {
		if (is_single(file))
			return begins_as_pickle(dir, file) ? 95 : 50;
		return rs_str_ends(rs_str(file), ".metadata") && begins_as_pickle(dir, file) ? 60
											     : 0;
	}
	scratch = rs_arena_new(PROBE_MAX_BYTES, NULL);
	if (scratch && rs_dir_list(dir, "", scratch, &entries, &n, NULL) == 0)
		for (uint64_t i = 0; i < n; i++) {
			data |= rs__pd_data_id(entries[i].name, &id);
			/* Torch calls its own just so, and writes __0_0.distcp beside it. */
			metadata |= rs_str_ends(entries[i].name, ".metadata") &&
				    !rs_str_is(entries[i].name, ".metadata") &&
				    !rs_str_ends(entries[i].name, ".auto_generated.metadata");
		}
	rs_arena_free(scratch);
	return data && metadata ? 95 : data ? 70 : metadata ? 45 : 0;
}

/* ---------------------------------------------------------------------- the loader */

static int by_path(const void *a, const void *b)
{
	const struct rs__pd_name *x = a, *y = b;
	return strcmp(x->path, y->path);
}

static const struct rs__pd_name *find_name(const struct rs__paddle *p, const char *path)
{
	const struct rs__pd_name key = {.path = path};
	return p->n_names ? bsearch(&key, p->names, p->n_names, sizeof(*p->names), by_path) : NULL;
}

static int open_file(void *self, const char *path, struct rs_file *out, struct rs_err *err)
{
	const struct rs__paddle *p = self;
	const struct rs__pd_name *name = find_name(p, path);

	return rs_dir_file(
		p->src->dir, path[0] ? path : p->src->file, name ? name->shown : path, out, err);
}

static int load_unit(void *self, const struct rs_unit *unit, const struct rs_file *const *files,
	struct rs_table **out, struct rs_err *err)
{
	const struct rs__paddle *p = self;
	uint64_t left_out;

	(void)unit;
	if (rs__pd_header(files[0], &p->keys, &left_out, out, err) < 0)
		return -1;
	/* The header was read while somebody may have been writing: it must belong to this state.
	 */
	if (rs_file_check(files[0], err) == 0)
		return 0;
	rs_arena_free((*out)->arena);
	return -1;
}

/* ------------------------------------------------------------------------- listing */

const char *rs__pd_shown(struct rs_source *src, struct rs_str name, struct rs_err *err)
{
	const char *path = src->opts.path;
	size_t len = strlen(path);

	if (src->file)
		return path;
	return rs_arena_printf(rs_catalog_arena(src->cat), err, "%s%s%.*s", path,
		len && path[len - 1] == '/' ? "" : "/", (int)name.len, name.ptr);
}

/* A unit for every data file that the metadata names, in byte order; also for those not there. */
static int add_units(struct rs__paddle *p, const struct rs__pd_dir *dir, struct rs_err *err)
{
	struct rs_source *src = p->src;
	struct rs_arena *arena = rs_catalog_arena(src->cat);
	uint64_t n_absent = 0;

	p->names = RS_NEW_N(arena, struct rs__pd_name, p->meta.n_files, err);
	if (!p->names)
		return -1;
	for (uint64_t i = 0; i < p->meta.n_files; i++) {
		struct rs_str file = p->meta.files[i];
		const struct rs_dirent *e = rs__pd_find(dir, file);
		struct rs_source_file info = {
			.path = rs_arena_copy(arena, file.ptr, file.len, err)};
		struct rs__pd_name *name = &p->names[p->n_names];

		if (e)
			info.id = e->id;
		if (!info.path)
			return -1;
		name->path = info.path;
		name->shown = src->file ? info.path : rs__pd_shown(src, file, err);
		if (!name->shown ||
			rs_catalog_add_unit(src->cat, info.path, &info, 1, &name->unit, err) < 0)
			return -1;
		if (!e)
			rs_catalog_set_absent(src->cat, name->unit);
		n_absent += !e;
		p->n_names++;
	}
	if (n_absent)
		rs_note(rs_catalog_notes(src->cat),
			"%" PRIu64 " of %" PRIu64 " data files that the metadata names are missing",
			n_absent, p->meta.n_files);
	return 0;
}

uint32_t rs__pd_unit(const struct rs__paddle *p, struct rs_str file)
{
	uint64_t lo = 0, hi = p->n_names;

	while (hi - lo > 1) { /* every file of a place is in the list */
		uint64_t mid = lo + (hi - lo) / 2;
		if (rs_str_cmp(file, rs_str(p->names[mid].path)) < 0)
			hi = mid;
		else
			lo = mid;
	}
	return p->names[lo].unit;
}

static int list_directory(struct rs__paddle *p, struct rs_err *err)
{
	struct rs_source *src = p->src;
	struct rs__pd_dir dir = {0};

	src->container = "distcp";
	if (rs__pd_choose(src, &dir, err) < 0 || rs__pd_meta_read(src, &dir, &p->meta, err) < 0 ||
		add_units(p, &dir, err) < 0)
		return -1;
	return src->file ? 0 : rs__pd_foreign(src, &dir, p->meta.files, p->meta.n_files, err);
}

static int list_single(struct rs__paddle *p, struct rs_err *err)
{
	struct rs_source *src = p->src;
	struct rs_source_file info = {.path = ""};
	enum rs_kind kind;

	src->container = "pdparams";
	p->names = RS_NEW(rs_catalog_arena(src->cat), struct rs__pd_name, err);
	if (!p->names || rs_dir_stat(src->dir, src->file, &kind, &info.id, err) < 0 ||
		rs_catalog_add_unit(src->cat, src->file, &info, 1, &p->names->unit, err) < 0)
		return -1;
	p->names->path = info.path;
	p->names->shown = src->opts.path;
	p->n_names = 1;
	return 0;
}

static int list(struct rs_source *src, struct rs_err *err)
{
	struct rs__paddle *p = RS_NEW(rs_catalog_arena(src->cat), struct rs__paddle, err);

	if (!p)
		return -1;
	p->src = src;
	src->priv = p;
	src->n_ranks = 1;
	src->target_container = "safetensors";
	src->without_ranks = true;
	rs_catalog_set_loader(
		src->cat, (struct rs_loader){.open = open_file, .load = load_unit, .self = p});
	return src->file && is_single(src->file) ? list_single(p, err) : list_directory(p, err);
}

/* ---------------------------------------------------------------------- describing */

/* One file of whole tensors: each entry is the one piece of its tensor. */
static int describe_single(struct rs__paddle *p, struct rs_err *err)
{
	struct rs_catalog *cat = p->src->cat;
	struct rs_arena *arena = rs_catalog_arena(cat);
	const struct rs_table *table = rs_catalog_table(cat, 0, err);
	struct rs_piece *pieces =
		table ? RS_NEW_N(arena, struct rs_piece, table->n_entries, err) : NULL;

	if (!pieces)
		return -1;
	for (uint64_t i = 0; i < table->n_entries; i++) {
		const struct rs_entry *e = &table->entries[i];
		struct rs_tensor t = {.name = e->name,
			.dtype = e->dtype,
			.shape = e->shape,
			.pieces = &pieces[i],
			.n_pieces = 1,
			.distinct = true,
			.order = (uint32_t)i};

		/* Left to be looked up, as pieces of other files are: that also sets the strides.
		 */
		pieces[i].box = rs_box_whole(&e->shape);
		rs_piece_row_major(&pieces[i]);
		if (rs_catalog_add_tensor(cat, &t, err) < 0)
			return -1;
	}
	return rs_catalog_seal(cat, err);
}

static int describe(struct rs_source *src, uint32_t local, struct rs_err *err)
{
	struct rs__paddle *p = src->priv;
	int status;

	(void)local;
	if (src->file && is_single(src->file))
		return describe_single(p, err);
	status = rs__pd_describe(src, err);
	rs__pd_meta_done(&p->meta);
	return status;
}

static void done(struct rs_source *src)
{
	struct rs__paddle *p = src->priv;

	if (p)
		rs__pd_meta_done(&p->meta);
}

const struct rs_source_ops rs__source_paddle = {
	.name = "paddle",
	.probe = probe,
	.list = list,
	.describe = describe,
	.done = done,
};
