/*
 * unified.c - the unified directories of MindSpore (unified_safetensors) as a source: whole tensors
 * in parts, a map from names to parts, and what has no layout in a file of its own.
 *
 *   param_name_map.json  part0.safetensors  part1.safetensors  ...  hyper_param.safetensors
 *
 * A strategy as target gets what load_distributed_checkpoint makes of it: tensors that it names are
 * cut, those that it does not are left out, and every entry of hyper_param goes to every rank.
 * Refuses several parts without a map. Format: docs/formats/mindspore.md, section 6. Next:
 * shards.c.
 */
#include "core/source/internal.h"
#include "core/source/loader.h"
#include "core/source/shards.h"

#include <stdlib.h>

#define PROBE_MAX_BYTES (UINT64_C(64) << 20)

static const char map_name[] = "param_name_map.json";
static const char hyper_name[] = "hyper_param.safetensors";
static const char escape[] = "parts of several runs? unify again; to take all files as they are: "
			     "-o source=hf and select=GLOB";

/* 85 with the map, 70 with a first part: more than hf bids for the files, less than rank_N gets. */
static int probe(const struct rs_dir *dir, const char *file)
{
	struct rs_arena *scratch;
	struct rs_dirent *entries;
	uint64_t n;
	int bid = 0;

	if (file)
		return 0;
	scratch = rs_arena_new(PROBE_MAX_BYTES, NULL);
	if (scratch && rs_dir_list(dir, "", scratch, &entries, &n, NULL) == 0)
		for (uint64_t i = 0; i < n; i++) {
			if (entries[i].kind == RS_KIND_DIR)
				continue;
			if (rs_str_is(entries[i].name, map_name))
				bid = 85;
			else if (bid == 0 && rs_str_is(entries[i].name, "part0.safetensors"))
				bid = 70;
		}
	rs_arena_free(scratch);
	return bid;
}

struct unified {
	struct rs__shards *shards;
	struct rs_arena *scratch;
	struct rs_dirent *entries;
	uint64_t n;
	bool hyper; /* there is a hyper_param.safetensors */
	const char **paths;
	uint32_t n_paths;
};

/* Does the entry belong to the checkpoint? */
static bool taken(const struct unified *u, const struct rs_dirent *e)
{
	const struct rs__index *x = &u->shards->index;

	if (rs_str_is(e->name, map_name) || rs_str_is(e->name, hyper_name))
		return e->kind != RS_KIND_DIR;
	if (u->shards->indexed)
		return rs__index_file(x, e->name.ptr) < x->n_files;
	return !rs__shards_why_not(e);
}

static int refuse_no_map(const struct unified *u, const char *second, struct rs_err *err)
{
	(void)rs_fail(err, RS_MISSING,
		"%s: %s missing: several parts (%s, %s, ...) and nothing tells whether they are "
		"all",
		u->shards->src->opts.path, map_name, RS_SHOW(rs_str(u->paths[0])),
		RS_SHOW(rs_str(second)));
	return rs_hint(err, "copy the map, too; to take all files as they are: -o source=hf");
}

static int by_path(const void *a, const void *b)
{
	const char *const *x = a, *const *y = b;
	return strcmp(*x, *y);
}

/* The files that count, in byte order: those of the map, or the one that is there; and hyper. */
static int choose_paths(struct unified *u, struct rs_err *err)
{
	const struct rs__index *x = &u->shards->index;

	u->paths = RS_NEW_N(u->scratch, const char *, u->n + x->n_files + 1, err);
	if (!u->paths)
		return -1;
	for (uint32_t i = 0; i < x->n_files; i++)
		u->paths[u->n_paths++] = x->files[i];
	for (uint64_t i = 0; i < u->n && !u->shards->indexed; i++) {
		const struct rs_dirent *e = &u->entries[i];
		if (rs__shards_why_not(e) || rs_str_is(e->name, hyper_name))
			continue;
		if (u->n_paths)
			return refuse_no_map(u, e->name.ptr, err);
		u->paths[u->n_paths++] = e->name.ptr;
	}
	if (u->n_paths == 0)
		return rs_fail(err, RS_MISSING, "%s: expected %s and the parts that it names",
			u->shards->src->opts.path, map_name);
	if (u->hyper)
		u->paths[u->n_paths++] = hyper_name;
	qsort(u->paths, u->n_paths, sizeof(*u->paths), by_path);
	return 0;
}

static int list_dir(struct unified *u, struct rs_err *err)
{
	struct rs__shards *s = u->shards;
	bool map = false;

	if (rs__shards_listing(s->src, &u->scratch, &u->entries, &u->n, err) < 0)
		return -1;
	for (uint64_t i = 0; i < u->n; i++) {
		bool file = u->entries[i].kind != RS_KIND_DIR;
		map |= file && rs_str_is(u->entries[i].name, map_name);
		u->hyper |= file && rs_str_is(u->entries[i].name, hyper_name);
	}
	if (map && rs__shards_index(s, map_name, true, err) < 0)
		return -1;
	/* A map that names the file itself says where its tensors belong. */
	if (map && rs__index_file(&s->index, hyper_name) < s->index.n_files)
		u->hyper = false;
	if (choose_paths(u, err) < 0)
		return -1;
	for (uint64_t i = 0; i < u->n; i++) {
		const struct rs_dirent *e = &u->entries[i];
		const char *why = rs__shards_why_not(e);
		if (!taken(u, e) &&
			rs__shards_foreign(s->src, e,
				why ? why : "a file that the map does not name", err) < 0)
			return -1;
	}
	return rs__shards_add(s, u->paths, u->n_paths, u->hyper ? hyper_name : NULL, err);
}

static int refuse_option(
	const struct rs_source *src, const char *option, const char *value, struct rs_err *err)
{
	(void)rs_fail(err, RS_USAGE, "%s=%s: not for the unified directory %s", option, value,
		src->opts.path);
	return rs_hint(err, "leave it out: its tensors are whole, and its map says where they are");
}

static int list(struct rs_source *src, struct rs_err *err)
{
	static const char *const itself[] = {""};
	struct unified u = {.shards = rs__shards_new(src, err)};
	int status;

	if (!u.shards)
		return -1;
	u.shards->escape = escape;
	src->mindspore = true;
	src->strategy_selects = true;
	if (src->opts.strategy)
		return refuse_option(src, "src_strategy", src->opts.strategy, err);
	if (src->opts.select && strcmp(src->opts.select, "last") != 0)
		return refuse_option(src, "select", src->opts.select, err);
	status = src->file ? rs__shards_add(u.shards, itself, 1, NULL, err) : list_dir(&u, err);
	rs_arena_free(u.scratch);
	if (status < 0)
		return -1;
	return rs__loader_set(src, rs_safetensors_header, u.shards->n_units, err);
}

const struct rs_source_ops rs__source_unified = {
	.name = "unified",
	.probe = probe,
	.list = list,
	.describe = rs__shards_describe,
	.done = rs__shards_done,
};
