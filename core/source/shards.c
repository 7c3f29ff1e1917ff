/*
 * shards.c - safetensors files that together hold whole tensors, as a catalog.
 *
 * Every file is a unit and every tensor one listed piece, in the order of file names and, inside a
 * file, of offsets. All headers are read before anything is served. Refuses a tensor in two files,
 * and any difference between an index and the files, because loaders disagree about what it means:
 * some skip what the index does not list, some load it, some leave weights uninitialised. Format:
 * docs/formats/huggingface.md. Next: shard_index.c, hf.c, unified.c.
 */
#include "core/source/shards.h"
#include "core/source/loader.h"

#include <inttypes.h>
#include <stdlib.h>

#define LISTING_MAX_BYTES (UINT64_C(64) << 20) /* of one directory: some 400 000 names */

struct rs__shards *rs__shards_new(struct rs_source *src, struct rs_err *err)
{
	struct rs__shards *s = RS_NEW(rs_catalog_arena(src->cat), struct rs__shards, err);

	if (!s)
		return NULL;
	s->src = src;
	s->loose = RS_NO_UNIT;
	src->priv = s;
	src->container = "safetensors";
	src->n_ranks = 1;
	src->without_ranks = true;
	return s;
}

void rs__shards_done(struct rs_source *src)
{
	struct rs__shards *s = src->priv;

	if (s && s->indexed)
		rs__index_done(&s->index);
}

/* --------------------------------------------------------------------- listing */

int rs__shards_listing(struct rs_source *src, struct rs_arena **scratch, struct rs_dirent **entries,
	uint64_t *n, struct rs_err *err)
{
	*scratch = rs_arena_new(LISTING_MAX_BYTES, err);
	if (!*scratch || rs_dir_list(src->dir, "", *scratch, entries, n, err) < 0)
		return -1;
	src->foreign = RS_NEW_N(rs_catalog_arena(src->cat), struct rs_foreign, *n, err);
	return src->foreign ? 0 : -1;
}

int rs__shards_foreign(
	struct rs_source *src, const struct rs_dirent *e, const char *why, struct rs_err *err)
{
	const char *path = rs_arena_copy(rs_catalog_arena(src->cat), e->name.ptr, e->name.len, err);

	if (!path)
		return -1;
	if (rs_str_ends(e->name, ".tmp") || rs_str_ends(e->name, ".incomplete")) {
		why = "a half-written file";
		rs_note(rs_catalog_notes(src->cat),
			"%s: a half-written file: is the checkpoint still being saved or copied?",
			RS_SHOW(e->name));
	}
	src->foreign[src->n_foreign++] = (struct rs_foreign){path, why};
	return 0;
}

const char *rs__shards_why_not(const struct rs_dirent *e)
{
	if (e->kind == RS_KIND_DIR)
		return "a directory";
	if (e->name.ptr[0] == '.')
		return "a hidden file";
	return rs_str_ends(e->name, ".safetensors") ? NULL : "not a safetensors file";
}

/* "SOURCE/NAME", for messages. */
static const char *shown(const struct rs_source *src, const char *name, struct rs_err *err)
{
	const char *path = src->opts.path;
	size_t len = strlen(path);

	return rs_arena_printf(rs_catalog_arena(src->cat), err, "%s%s%s", path,
		len && path[len - 1] == '/' ? "" : "/", name);
}

int rs__shards_index(struct rs__shards *s, const char *name, bool bare, struct rs_err *err)
{
	const char *full = shown(s->src, name, err);
	struct rs_file file;

	if (!full || rs_dir_file(s->src->dir, name, full, &file, err) < 0)
		return -1;
	s->indexed = true; /* to be freed, also after a failure */
	int status = rs__index_read(&file, bare, &s->index, err);
	rs_file_close(&file);
	return status;
}

/* -------------------------------------------------------------------- data files */

/* Which tensor is the first that the index expects in file number @file. */
static struct rs_str first_of(const struct rs__index *x, uint32_t file)
{
	for (uint64_t i = 0; i < x->n_weights; i++)
		if (x->weights[i].file == file)
			return x->weights[i].name;
	return RS_STR("");
}

static int refuse_absent(const struct rs__shards *s, const char *path, struct rs_err *err)
{
	struct rs_str tensor = first_of(&s->index, rs__index_file(&s->index, path));

	(void)rs_fail(err, RS_MISSING,
		"%s: expected the file '%s' that it names (for tensor '%s' and others), found none",
		s->index.name, RS_SHOW(rs_str(path)), RS_SHOW(tensor));
	return rs_hint(err, "an interrupted download? fetch the file, or the index of the files "
			    "that are there");
}

/* Who may not search a directory between SOURCE and the file cannot read the file. */
static int close_behind(
	const struct rs__shards *s, const char *path, struct rs_identity *id, struct rs_err *err)
{
	const struct rs_identity root = rs_dir_identity(s->src->dir);

	rs__close_behind(id, &root);
	for (const char *slash = strchr(path, '/'); slash; slash = strchr(slash + 1, '/')) {
		struct rs_identity dir;
		enum rs_kind kind;
		char *above = rs_arena_copy(
			rs_catalog_arena(s->src->cat), path, (uint64_t)(slash - path), err);

		if (!above || rs_dir_stat(s->src->dir, above, &kind, &dir, err) < 0)
			return -1;
		rs__close_behind(id, &dir);
	}
	return 0;
}

/* What the file is now. It is opened for that, so that what cannot be is told here. */
static int identify(
	const struct rs__shards *s, const char *path, struct rs_identity *id, struct rs_err *err)
{
	const char *full = path[0] ? shown(s->src, path, err) : s->src->opts.path;
	struct rs_err why = {0};
	struct rs_file file;

	if (!full)
		return -1;
	if (rs_dir_file(s->src->dir, path[0] ? path : s->src->file, full, &file, &why) < 0) {
		if (why.code == RS_MISSING && s->indexed)
			return refuse_absent(s, path, err);
		if (err)
			*err = why;
		return -1;
	}
	*id = file.id;
	rs_file_close(&file);
	return close_behind(s, path, id, err);
}

static int add_file(struct rs__shards *s, const char *path, uint32_t *unit, struct rs_err *err)
{
	struct rs_source_file file = {.path = path};

	if (identify(s, path, &file.id, err) < 0)
		return -1;
	return rs_catalog_add_unit(s->src->cat, path[0] ? path : s->src->file, &file, 1, unit, err);
}

int rs__shards_add(struct rs__shards *s, const char *const *paths, uint32_t n, const char *loose,
	struct rs_err *err)
{
	if (s->indexed) {
		s->unit_of =
			RS_NEW_N(rs_catalog_arena(s->src->cat), uint32_t, s->index.n_files, err);
		if (!s->unit_of)
			return -1;
	}
	for (uint32_t i = 0; i < n; i++) {
		uint32_t unit, file;
		if (add_file(s, paths[i], &unit, err) < 0)
			return -1;
		if (loose && strcmp(paths[i], loose) == 0)
			s->loose = unit;
		file = s->indexed ? rs__index_file(&s->index, paths[i]) : 0;
		if (s->indexed && file < s->index.n_files)
			s->unit_of[file] = unit;
	}
	s->n_units = n;
	return 0;
}

int rs__shards_companion(
	struct rs__shards *s, const struct rs_dirent *e, uint32_t *unit, struct rs_err *err)
{
	struct rs_source_file file = {.path = e->name.ptr, .id = e->id};

	if (close_behind(s, file.path, &file.id, err) < 0)
		return -1;
	return rs_catalog_add_unit(s->src->cat, file.path, &file, 1, unit, err);
}

/* ----------------------------------------------------------- the index and the files */

static const char *path_of(const struct rs__shards *s, uint32_t unit)
{
	const struct rs_unit *u = rs_catalog_unit(s->src->cat, unit);
	const char *path = rs_catalog_file_info(s->src->cat, u->first_file)->path;
	return path[0] ? path : s->src->opts.path;
}

/* A tensor that a file holds: is it what the index says? */
static int check_listed(struct rs__shards *s, uint32_t unit, struct rs_str name, struct rs_err *err)
{
	struct rs__weight *w = rs__index_find(&s->index, name);

	if (w && s->unit_of[w->file] == unit) {
		w->seen = true;
		return 0;
	}
	if (w)
		(void)rs_fail(err, RS_CORRUPT, "%s/%s: tensor '%s' is here, expected in %s by %s",
			s->src->opts.path, RS_SHOW(rs_str(path_of(s, unit))), RS_SHOW(name),
			RS_SHOW(rs_str(s->index.files[w->file])), s->index.name);
	else
		(void)rs_fail(err, RS_CORRUPT, "%s/%s: tensor '%s' is here, not listed by %s",
			s->src->opts.path, RS_SHOW(rs_str(path_of(s, unit))), RS_SHOW(name),
			s->index.name);
	return rs_hint(err, "%s", s->escape);
}

static int check_seen(const struct rs__shards *s, struct rs_err *err)
{
	for (uint64_t i = 0; i < s->index.n_weights; i++) {
		const struct rs__weight *w = &s->index.weights[i];
		if (w->seen)
			continue;
		(void)rs_fail(err, RS_MISSING,
			"%s/%s: tensor '%s': expected here by %s, found none", s->src->opts.path,
			RS_SHOW(rs_str(s->index.files[w->file])), RS_SHOW(w->name), s->index.name);
		return rs_hint(err, "%s", s->escape);
	}
	return 0;
}

/* ------------------------------------------------------------------------ tensors */

struct adding {
	struct rs__shards *s;
	struct rs_piece *pieces;
	uint64_t n_pieces, bytes;
	struct rs_err *err;
};

static int add_tensor(struct adding *a, uint32_t unit, const struct rs_entry *e)
{
	struct rs_piece *piece = &a->pieces[a->n_pieces];

	*piece = (struct rs_piece){.box = rs_box_whole(&e->shape), .unit = unit, .entry = e};
	rs_piece_row_major(piece);
	struct rs_tensor t = {
		.name = e->name,
		.dtype = e->dtype,
		.shape = e->shape,
		.pieces = piece,
		.n_pieces = 1,
		.order = (uint32_t)a->n_pieces++,
		.unplaced = unit == a->s->loose,
		.witness = unit,
	};
	a->bytes += e->bytes;
	return rs_catalog_add_tensor(a->s->src->cat, &t, a->err);
}

static int add_unit(struct adding *a, uint32_t unit)
{
	const struct rs_table *table = rs_catalog_table(a->s->src->cat, unit, a->err);

	if (!table)
		return -1;
	if (table->leading_space)
		rs_note(rs_catalog_notes(a->s->src->cat),
			"%s: the header begins with white space, which the format forbids",
			RS_SHOW(rs_str(path_of(a->s, unit))));
	for (uint64_t i = 0; i < table->n_entries; i++) {
		const struct rs_entry *e = &table->entries[i];
		if (a->s->indexed && unit != a->s->loose &&
			check_listed(a->s, unit, e->name, a->err) < 0)
			return -1;
		if (add_tensor(a, unit, e) < 0)
			return -1;
	}
	return 0;
}

static int add_tensors(struct adding *a)
{
	struct rs_catalog *cat = a->s->src->cat;
	uint64_t n = 0;

	for (uint32_t u = 0; u < a->s->n_units; u++) {
		const struct rs_table *table = rs_catalog_table(cat, u, a->err);
		if (!table)
			return -1;
		n += table->n_entries;
	}
	if (n > UINT32_MAX)
		return rs_fail(a->err, RS_LIMIT, "%s: %" PRIu64 " tensors, the limit is 2^32 - 1",
			a->s->src->opts.path, n);
	a->pieces = RS_NEW_N(rs_catalog_arena(cat), struct rs_piece, n, a->err);
	if (!a->pieces)
		return -1;
	for (uint32_t u = 0; u < a->s->n_units; u++)
		if (add_unit(a, u) < 0)
			return -1;
	return 0;
}

int rs__shards_describe(struct rs_source *src, uint32_t local, struct rs_err *err)
{
	struct rs__shards *s = src->priv;
	struct adding a = {.s = s, .err = err};
	const struct rs__index *x = &s->index;

	(void)local;
	if (rs__load_units(src->cat, s->n_units, err) < 0 || add_tensors(&a) < 0 ||
		(s->indexed && check_seen(s, err) < 0))
		return -1;
	if (rs_catalog_seal(src->cat, err) < 0) {
		(void)rs_err_prefix(err, "%s", src->opts.path);
		return rs_hint(err, "%s", s->escape);
	}
	/* MindSpore counts replicas in, and four bytes an element, so its number says nothing. */
	if (s->indexed && x->has_total_size && !src->mindspore && x->total_size != a.bytes)
		rs_note(rs_catalog_notes(src->cat),
			"%s: total_size is %" PRIu64 ", the files hold %" PRIu64
			" bytes of tensors",
			x->name, x->total_size, a.bytes);
	return 0;
}
