/*
 * paddle_dir.c - which save of a Paddle checkpoint directory is meant, and which files are foreign.
 *
 *   0_0.distcp 1_0.distcp 0.metadata      save 0, of two ranks
 *   0_11.distcp 1_11.distcp 11.metadata   save 11, the newest: taken unless unique_id= says another
 *
 * Data files tell which saves there are, as in Paddle. Paddle then selects by suffix, so that save
 * 1 also takes the files of save 11; here ids are matched whole. Names that end in the id but are
 * nobody's own (x_1.metadata) are taken only when one alone fits. Format: docs/formats/paddle.md,
 * section 2. Next: paddle_meta.c.
 */
#include "core/source/paddle/paddle.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

static bool all_digits(struct rs_str s)
{
	for (size_t i = 0; i < s.len; i++)
		if (s.ptr[i] < '0' || s.ptr[i] > '9')
			return false;
	return s.len > 0;
}

/* @name without @suffix, or false. */
static bool stem_of(struct rs_str name, const char *suffix, struct rs_str *stem)
{
	if (!rs_str_ends(name, suffix))
		return false;
	*stem = (struct rs_str){name.ptr, name.len - strlen(suffix)};
	return true;
}

bool rs__pd_data_id(struct rs_str name, struct rs_str *id)
{
	struct rs_str stem, rank;
	const char *line;

	if (!stem_of(name, ".distcp", &stem))
		return false;
	line = memchr(stem.ptr, '_', stem.len);
	if (!line)
		return false;
	rank = (struct rs_str){stem.ptr, (size_t)(line - stem.ptr)};
	*id = (struct rs_str){line + 1, stem.len - rank.len - 1};
	return all_digits(rank) && all_digits(*id);
}

/* Metadata of Paddle: not the nameless one of torch, nor what Paddle derives from safetensors. */
static bool is_metadata(const struct rs_dirent *e)
{
	struct rs_str stem;

	return e->kind == RS_KIND_FILE && stem_of(e->name, ".metadata", &stem) && stem.len &&
	       !rs_str_ends(e->name, ".auto_generated.metadata");
}

const struct rs_dirent *rs__pd_find(const struct rs__pd_dir *dir, struct rs_str name)
{
	uint64_t lo = 0, hi = dir->n_entries;

	while (lo < hi) {
		uint64_t mid = lo + (hi - lo) / 2;
		int order = rs_str_cmp(name, dir->entries[mid].name);
		if (order == 0)
			return &dir->entries[mid];
		if (order < 0)
			hi = mid;
		else
			lo = mid + 1;
	}
	return NULL;
}

/* ------------------------------------------------------------------------- choosing */

/* The greatest id that data files tell; false when none does. @others: there are more ids. */
static bool newest(const struct rs__pd_dir *dir, uint64_t *id, bool *others)
{
	bool found = false;

	*others = false;
	for (uint64_t i = 0; i < dir->n_entries; i++) {
		struct rs_str digits;
		uint64_t value;

		if (!rs__pd_data_id(dir->entries[i].name, &digits) || !rs_str_u64(digits, &value))
			continue;
		*others |= found && value != *id;
		*id = found ? rs_max(*id, value) : value;
		found = true;
	}
	return found;
}

static int refuse_metadata(const struct rs_source *src, const char *id, struct rs_err *err)
{
	const char *path = src->opts.path;

	(void)rs_fail(err, RS_MISSING, "%s: expected metadata in %s.metadata, found none", path,
		id ? id : "N");
	if (src->opts.unique_id)
		return rs_hint(err, "unique_id= names another save? list the directory");
	return rs_hint(err, "the save was interrupted, or rank 0 wrote to another place");
}

/* All metadata files, of any name: those of a directory whose data files tell no id. */
static void take_all(struct rs__pd_dir *dir)
{
	for (uint64_t i = 0; i < dir->n_entries; i++)
		if (is_metadata(&dir->entries[i]))
			dir->metas[dir->n_metas++] = dir->entries[i].name;
}

/* The one name that ends in the id and is not that of another save. */
static void take_suffix(struct rs__pd_dir *dir, const char *id)
{
	for (uint64_t i = 0; i < dir->n_entries; i++) {
		struct rs_str stem;

		if (is_metadata(&dir->entries[i]) &&
			stem_of(dir->entries[i].name, ".metadata", &stem) && !all_digits(stem) &&
			rs_str_ends(stem, id))
			dir->metas[dir->n_metas++] = dir->entries[i].name;
	}
	if (dir->n_metas > 1)
		dir->n_metas = 0;
}

static int take_id(struct rs_source *src, struct rs__pd_dir *dir, struct rs_err *err)
{
	char name[64];
	const struct rs_dirent *e;

	(void)snprintf(name, sizeof(name), "%s.metadata", dir->id);
	e = rs__pd_find(dir, rs_str(name));
	if (e)
		dir->metas[dir->n_metas++] = e->name;
	else
		take_suffix(dir, dir->id);
	return dir->n_metas ? 0 : refuse_metadata(src, dir->id, err);
}

/* The id as a decimal number without leading zeros, which is how files are called. */
static int read_id(const struct rs_source *src, uint64_t *id, struct rs_err *err)
{
	if (rs_str_u64(rs_str(src->opts.unique_id), id))
		return 0;
	(void)rs_fail(err, RS_USAGE, "unique_id=%s: expected a number from 0 on",
		RS_SHOW(rs_str(src->opts.unique_id)));
	return rs_hint(err, "save N has the files 0_N.distcp, 1_N.distcp, ... and N.metadata");
}

int rs__pd_choose(struct rs_source *src, struct rs__pd_dir *out, struct rs_err *err)
{
	struct rs_arena *arena = rs_catalog_arena(src->cat);
	bool others = false;
	uint64_t id;

	if (rs_dir_list(src->dir, "", arena, &out->entries, &out->n_entries, err) < 0)
		return -1;
	out->metas = RS_NEW_N(arena, struct rs_str, out->n_entries, err);
	if (!out->metas)
		return -1;
	if (src->file) { /* SOURCE is the metadata file itself */
		out->metas[out->n_metas++] = rs_str(src->file);
		return 0;
	}
	if (src->opts.unique_id) {
		if (read_id(src, &id, err) < 0)
			return -1;
	} else if (!newest(out, &id, &others)) {
		take_all(out);
		return out->n_metas ? 0 : refuse_metadata(src, NULL, err);
	}
	out->id = rs_arena_printf(arena, err, "%" PRIu64, id);
	if (!out->id)
		return -1;
	if (others)
		rs_note(rs_catalog_notes(src->cat),
			"several saves are there; the newest is taken, %s (unique_id= chooses)",
			out->id);
	return take_id(src, out, err);
}

/* -------------------------------------------------------------------------- foreign */

static bool stands_in(const struct rs_str *names, uint64_t n, struct rs_str name)
{
	for (uint64_t lo = 0, hi = n; lo < hi;) {
		uint64_t mid = lo + (hi - lo) / 2;
		int order = rs_str_cmp(name, names[mid]);
		if (order == 0)
			return true;
		if (order < 0)
			hi = mid;
		else
			lo = mid + 1;
	}
	return false;
}

/* Why an entry is no part of the save; NULL when it is. */
static const char *why_foreign(const struct rs__pd_dir *dir, const struct rs_dirent *e,
	const struct rs_str *files, uint64_t n_files)
{
	struct rs_str id;

	for (uint64_t i = 0; i < dir->n_metas; i++)
		if (rs_str_eq(dir->metas[i], e->name))
			return NULL;
	if (stands_in(files, n_files, e->name))
		return NULL;
	if (e->kind == RS_KIND_DIR)
		return "a directory";
	if (rs_str_ends(e->name, ".metadata.lock"))
		return "the lock of a save, which was perhaps interrupted";
	if (rs_str_ends(e->name, ".tmp") || rs_str_ends(e->name, ".incomplete"))
		return "a half-written file";
	if (rs__pd_data_id(e->name, &id))
		return dir->id && rs_str_is(id, dir->id) ? "not named by the metadata"
							 : "of another save";
	if (rs_str_ends(e->name, ".metadata"))
		return "metadata of another save";
	return "not a file of a checkpoint";
}

int rs__pd_foreign(struct rs_source *src, const struct rs__pd_dir *dir, const struct rs_str *files,
	uint64_t n_files, struct rs_err *err)
{
	struct rs_arena *arena = rs_catalog_arena(src->cat);

	src->foreign = RS_NEW_N(arena, struct rs_foreign, dir->n_entries, err);
	if (!src->foreign)
		return -1;
	for (uint64_t i = 0; i < dir->n_entries; i++) {
		const struct rs_dirent *e = &dir->entries[i];
		const char *why = why_foreign(dir, e, files, n_files);

		if (!why)
			continue;
		src->foreign[src->n_foreign].path =
			rs_arena_copy(arena, e->name.ptr, e->name.len, err);
		if (!src->foreign[src->n_foreign].path)
			return -1;
		src->foreign[src->n_foreign++].why = why;
	}
	return 0;
}
