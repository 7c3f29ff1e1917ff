/*
 * mindspore_dir.c - what stands in a MindSpore tree: rank directories, and which of their files
 * count.
 *
 *   SOURCE/rank_0/net-1_100.ckpt  SOURCE/rank_0/net-2_100.ckpt (picked)  SOURCE/rank_1/...
 *   SOURCE/strategy/...           or SOURCE/full.safetensors alone
 *
 * Names only; no checkpoint is opened. Refuses what could be meant in two ways: both kinds of
 * files, two directories of one rank, several files without rank directories. What is no part of
 * the checkpoint is collected with the reason. Format: docs/formats/mindspore.md, "Trees".
 */
#include "core/source/loader.h"
#include "core/source/mindspore/mindspore.h"

#include <ctype.h>
#include <fnmatch.h>
#include <inttypes.h>
#include <limits.h>
#include <stdlib.h>

#define LISTING_MAX_BYTES (UINT64_C(64) << 20) /* of one directory: some 400 000 names */

const char *rs__ms_container(struct rs_str name)
{
	if (rs_str_ends(name, ".ckpt"))
		return "ckpt";
	return rs_str_ends(name, ".safetensors") ? "safetensors" : NULL;
}

bool rs__ms_rank_of(struct rs_str name, uint64_t *rank)
{
	static const char word[] = "rank_";
	const size_t len = sizeof(word) - 1;
	size_t at = name.len;

	if (!rs_str_starts(name, word) || name.len == len || !isdigit((unsigned char)name.ptr[len]))
		return false;
	while (at < len || memcmp(name.ptr + at - len, word, len) != 0)
		at--; /* ends at the first "rank_" at the latest */
	return rs_str_u64((struct rs_str){name.ptr + at, name.len - at}, rank);
}

int rs__ms_foreign(struct rs_source *src, struct rs__ms_tree *tree, const char *sub,
	struct rs_str name, const char *why, struct rs_err *err)
{
	const char *path = rs_arena_printf(rs_catalog_arena(src->cat), err, "%s%s%.*s", sub,
		sub[0] ? "/" : "", (int)rs_min(name.len, 4096), name.ptr);

	if (!path || rs_grow(&tree->foreign, &tree->cap_foreign, tree->n_foreign + 1,
			     sizeof(*tree->foreign), err) < 0)
		return -1;
	tree->foreign[tree->n_foreign++] = (struct rs_foreign){path, why};
	return 0;
}

void rs__ms_tree_done(struct rs__ms_tree *tree)
{
	rs_free(tree->ranks);
	rs_free(tree->foreign);
}

/* ------------------------------------------------------------- what an entry is */

/* Why @e cannot be a checkpoint file, or NULL when it can. */
static const char *why_not(const struct rs_dirent *e)
{
	if (rs_str_ends(e->name, ".tmp") || rs_str_ends(e->name, ".incomplete"))
		return "a half-written file";
	if (e->kind == RS_KIND_DIR)
		return "a directory";
	if (e->name.ptr[0] == '.')
		return "a hidden file";
	return rs__ms_container(e->name) ? NULL : "not a checkpoint file";
}

/* Put what is no candidate aside. Links that lead nowhere stay candidates: opening tells why. */
static int set_aside(struct rs_source *src, struct rs__ms_tree *tree, const char *sub,
	const struct rs_dirent *e, struct rs_err *err)
{
	const char *why = why_not(e);

	if (rs_str_is(rs_str(why), "a half-written file"))
		rs_note(rs_catalog_notes(src->cat),
			"%s%s%s: a half-written file: is the checkpoint still being saved or "
			"copied?",
			sub, sub[0] ? "/" : "", RS_SHOW(e->name));
	return rs__ms_foreign(src, tree, sub, e->name, why, err);
}

/* Files of one directory that may be picked; the entries are in byte order. */
struct picks {
	const struct rs_dirent **items; /* heap */
	uint64_t n, cap;
};

static int add_pick(struct picks *picks, const struct rs_dirent *e, struct rs_err *err)
{
	if (rs_grow(&picks->items, &picks->cap, picks->n + 1, sizeof(struct rs_dirent *), err) < 0)
		return -1;
	picks->items[picks->n++] = e;
	return 0;
}

/* ------------------------------------------------------------------ which file counts */

/*
 * MindSpore's own choice among several: .ckpt by plain string order, so that x-9_2 comes after
 * x-10_2; .safetensors by the last two numbers of the whole path, so that x-10_2 does.
 */
static int pick_last(const struct rs_source *src, const char *sub, const struct picks *picks,
	struct rs_arena *scratch, uint64_t *last, struct rs_err *err)
{
	const char *best = NULL;

	*last = picks->n - 1;
	if (!rs_str_ends(picks->items[*last]->name, ".safetensors"))
		return 0;
	for (uint64_t i = 0; i < picks->n; i++) {
		const char *path = rs_arena_printf(scratch, err, "%s/%s/%s", rs_dir_path(src->dir),
			sub, picks->items[i]->name.ptr);
		if (!path)
			return -1;
		if (!best || rs__ms_cmp_numbers(path, best) >= 0) {
			best = path;
			*last = i;
		}
	}
	return 0;
}

static bool is_glob(const struct rs_source_options *o)
{
	return o->select && strcmp(o->select, "last") != 0 && strcmp(o->select, "merge") != 0;
}

static bool is_merge(const struct rs_source_options *o)
{
	return o->select && strcmp(o->select, "merge") == 0;
}

/* Both kinds in one tree: each reads as a whole checkpoint, and nobody can say which is meant. */
static int agree_on_kind(struct rs_source *src, struct rs__ms_tree *tree, const char *sub,
	struct rs_str name, struct rs_err *err)
{
	const char *kind = rs__ms_container(name);

	if (!tree->container) {
		tree->container = kind;
		tree->witness = rs_arena_printf(rs_catalog_arena(src->cat), err, "%s%s%s", sub,
			sub[0] ? "/" : "", name.ptr);
		return tree->witness ? 0 : -1;
	}
	if (strcmp(tree->container, kind) == 0)
		return 0;
	(void)rs_fail(err, RS_USAGE, "%s: both kinds of checkpoint files: %s and %s%s%s",
		src->opts.path, RS_SHOW(rs_str(tree->witness)), sub, sub[0] ? "/" : "",
		RS_SHOW(name));
	return rs_hint(err, "choose one kind: -o select=*.ckpt or select=*.safetensors");
}

static int take(struct rs_source *src, struct rs__ms_tree *tree, struct rs__ms_rank *rank,
	const struct rs_dirent *e, struct rs_err *err)
{
	struct rs_source_file *f = &rank->files[rank->n_files];
	const struct rs_identity root = rs_dir_identity(src->dir);

	f->path = rs_arena_printf(rs_catalog_arena(src->cat), err, "%s%s%s",
		tree->in_dirs ? rank->name : "", tree->in_dirs ? "/" : "", e->name.ptr);
	if (!f->path)
		return -1;
	f->id = e->id;
	rs__close_behind(&f->id, &root);
	if (tree->in_dirs)
		rs__close_behind(&f->id, &rank->dir);
	rank->n_files++;
	return 0;
}

/* Of the candidates in directory @sub take what select= says. */
static int pick(struct rs_source *src, struct rs__ms_tree *tree, struct rs__ms_rank *rank,
	const char *sub, struct picks *picks, struct rs_arena *scratch, struct rs_err *err)
{
	uint64_t last = 0;

	if (picks->n == 0)
		return 0;
	/* Kinds are compared over all candidates, as in the framework, not over the picked. */
	for (uint64_t i = 0; i < picks->n; i++)
		if (agree_on_kind(src, tree, sub, picks->items[i]->name, err) < 0)
			return -1;
	bool merge = is_merge(&src->opts);
	rank->files = RS_NEW_N(
		rs_catalog_arena(src->cat), struct rs_source_file, merge ? picks->n : 1, err);
	if (!rank->files || pick_last(src, sub, picks, scratch, &last, err) < 0)
		return -1;
	tree->n_several += picks->n > 1 && !merge;
	for (uint64_t i = 0; i < picks->n; i++) {
		if (!merge && i != last) {
			if (rs__ms_foreign(src, tree, sub, picks->items[i]->name,
				    "not the last of its directory", err) < 0)
				return -1;
		} else if (take(src, tree, rank, picks->items[i], err) < 0) {
			return -1;
		}
	}
	return 0;
}

/* ------------------------------------------------------------------- directories */

/* Candidates of a directory that select= lets through; what is none is set aside. */
static int sift(struct rs_source *src, struct rs__ms_tree *tree, const char *sub,
	const struct rs_dirent *e, struct picks *picks, struct rs_err *err)
{
	if (why_not(e))
		return set_aside(src, tree, sub, e, err);
	if (is_glob(&src->opts) && fnmatch(src->opts.select, e->name.ptr, 0) != 0)
		return rs__ms_foreign(src, tree, sub, e->name, "not selected (select=)", err);
	return add_pick(picks, e, err);
}

static int list_rank(struct rs_source *src, struct rs__ms_tree *tree, struct rs__ms_rank *rank,
	struct rs_err *err)
{
	struct rs_arena *scratch = rs_arena_new(LISTING_MAX_BYTES, err);
	struct picks picks = {0};
	struct rs_dirent *entries;
	uint64_t n;
	int status = -1;

	if (!scratch)
		goto out;
	if (rs_dir_list(src->dir, rank->name, scratch, &entries, &n, err) < 0) {
		if (err && err->code == RS_CORRUPT && !err->hint[0])
			(void)rs_hint(err,
				"if the link is meant, allow it: beneath=DIR, a directory "
				"that holds both the link and what it leads to");
		goto out;
	}
	for (uint64_t i = 0; i < n; i++)
		if (sift(src, tree, rank->name, &entries[i], &picks, err) < 0)
			goto out;
	status = pick(src, tree, rank, rank->name, &picks, scratch, err);
out:
	rs_free(picks.items);
	rs_arena_free(scratch);
	return status;
}

static int by_rank(const void *a, const void *b)
{
	const struct rs__ms_rank *x = a, *y = b;
	return (x->rank > y->rank) - (x->rank < y->rank);
}

static int list_ranks(struct rs_source *src, struct rs__ms_tree *tree, struct rs_err *err)
{
	qsort(tree->ranks, tree->n_ranks, sizeof(*tree->ranks), by_rank);
	for (uint64_t i = 1; i < tree->n_ranks; i++)
		if (tree->ranks[i - 1].rank == tree->ranks[i].rank)
			return rs_fail(err, RS_USAGE, "%s: %s and %s are both rank %" PRIu64,
				src->opts.path, RS_SHOW(rs_str(tree->ranks[i - 1].name)),
				RS_SHOW(rs_str(tree->ranks[i].name)), tree->ranks[i].rank);
	tree->in_dirs = true;
	for (uint64_t i = 0; i < tree->n_ranks; i++)
		if (list_rank(src, tree, &tree->ranks[i], err) < 0)
			return -1;
	return 0;
}

static int add_rank(struct rs_source *src, struct rs__ms_tree *tree, uint64_t rank,
	const struct rs_dirent *e, struct rs_err *err)
{
	if (rs_grow(&tree->ranks, &tree->cap_ranks, tree->n_ranks + 1, sizeof(*tree->ranks), err) <
		0)
		return -1;
	struct rs__ms_rank *r = &tree->ranks[tree->n_ranks];
	*r = (struct rs__ms_rank){.rank = rank, .dir = e->id};
	r->name = rs_arena_copy(rs_catalog_arena(src->cat), e->name.ptr, e->name.len, err);
	if (!r->name)
		return -1;
	tree->n_ranks++;
	return 0;
}

/* ---------------------------------------------------------------- SOURCE itself */

/* A strategy file is called .ckpt or .json like others; its first bytes tell. */
static bool is_strategy(const struct rs_source *src, const struct rs_dirent *e)
{
	struct rs_file file;

	if (e->kind != RS_KIND_FILE ||
		!(rs_str_ends(e->name, ".ckpt") || rs_str_ends(e->name, ".json")) ||
		rs_dir_file(src->dir, e->name.ptr, NULL, &file, NULL) < 0)
		return false;
	bool yes = rs_strategy_is(&file);
	rs_file_close(&file);
	return yes;
}

/* A link that cannot be followed counts as what it is called, so that listing it tells why. */
static bool is_rank(const struct rs_dirent *e, uint64_t *rank)
{
	return e->kind != RS_KIND_FILE && rs__ms_rank_of(e->name, rank);
}

/* The entries of SOURCE that are neither rank directories nor strategies. */
static int sift_root(struct rs_source *src, struct rs__ms_tree *tree,
	const struct rs_dirent *entries, uint64_t n, struct picks *picks, struct rs_err *err)
{
	for (uint64_t i = 0; i < n; i++) {
		const struct rs_dirent *e = &entries[i];
		uint64_t rank;
		int status = 0;

		if (e->kind == RS_KIND_DIR && rs_str_is(e->name, "strategy"))
			tree->strategy_dir = true;
		else if (is_rank(e, &rank) || is_strategy(src, e))
			continue;
		else if (tree->n_ranks && !why_not(e))
			status = rs__ms_foreign(src, tree, "", e->name,
				"a checkpoint file beside the rank directories", err);
		else if (e->kind == RS_KIND_DIR)
			status =
				rs__ms_foreign(src, tree, "", e->name, "not a rank directory", err);
		else
			status = sift(src, tree, "", e, picks, err);
		if (status < 0)
			return -1;
	}
	return 0;
}

/* Directories of files that belong together by an index of their own. */
static int refuse_index(const struct rs_source *src, const struct rs_dirent *entries, uint64_t n,
	struct rs_err *err)
{
	static const struct {
		const char *suffix, *what, *hint;
	} known[] = {
		{".safetensors.index.json", "a sharded Hugging Face checkpoint",
			"-o source=hf reads it"},
		{"param_name_map.json", "a unified checkpoint of MindSpore",
			"-o source=unified reads it"},
		{"metadata.json", "a MindFormers checkpoint of the form that reshards itself",
			"one of its files can be given as SOURCE"},
	};

	for (uint64_t i = 0; i < n; i++)
		for (size_t k = 0; k < sizeof(known) / sizeof(known[0]); k++)
			if (rs_str_ends(entries[i].name, known[k].suffix)) {
				(void)rs_fail(err, RS_UNSUPPORTED,
					"%s: %s (%s): expected rank directories or one file",
					src->opts.path, known[k].what, RS_SHOW(entries[i].name));
				return rs_hint(err, "%s", known[k].hint);
			}
	return 0;
}

/* No rank directories: one file of whole tensors, or nothing that can be told. */
static int take_single(struct rs_source *src, struct rs__ms_tree *tree,
	const struct rs_dirent *entries, uint64_t n, const struct picks *picks, struct rs_err *err)
{
	if (picks->n != 1 && refuse_index(src, entries, n, err) < 0)
		return -1;
	if (picks->n == 0 && is_glob(&src->opts))
		return rs_fail(err, RS_MISSING, "%s: select=%s matches no checkpoint file",
			src->opts.path, src->opts.select);
	if (picks->n == 0) {
		(void)rs_fail(err, RS_MISSING,
			"%s: expected rank_0, rank_1, ... or one .ckpt or .safetensors file",
			src->opts.path);
		return rs_hint(err, "SOURCE is the directory that holds the rank directories");
	}
	for (uint64_t i = 0; i < picks->n; i++)
		if (agree_on_kind(src, tree, "", picks->items[i]->name, err) < 0)
			return -1;
	if (picks->n > 1) {
		(void)rs_fail(err, RS_USAGE,
			"%s: %" PRIu64 " checkpoint files and no rank directory: %s, %s, ...",
			src->opts.path, picks->n, RS_SHOW(picks->items[0]->name),
			RS_SHOW(picks->items[1]->name));
		return rs_hint(err, "give one file as SOURCE, or put rank N's file in rank_N/");
	}
	if (add_rank(src, tree, 0, picks->items[0], err) < 0)
		return -1;
	struct rs__ms_rank *rank = &tree->ranks[0];
	rank->files = RS_NEW(rs_catalog_arena(src->cat), struct rs_source_file, err);
	return rank->files ? take(src, tree, rank, picks->items[0], err) : -1;
}

static int list_root(struct rs_source *src, struct rs__ms_tree *tree,
	const struct rs_dirent *entries, uint64_t n, struct rs_err *err)
{
	struct picks picks = {0};
	uint64_t rank;
	int status = -1;

	for (uint64_t i = 0; i < n; i++)
		if (is_rank(&entries[i], &rank) && add_rank(src, tree, rank, &entries[i], err) < 0)
			goto out;
	if (sift_root(src, tree, entries, n, &picks, err) == 0)
		status = tree->n_ranks ? list_ranks(src, tree, err)
				       : take_single(src, tree, entries, n, &picks, err);
out:
	rs_free(picks.items);
	return status;
}

/* SOURCE is one file: its path in the catalog is "", because it is relative to SOURCE. */
static int take_file(struct rs_source *src, struct rs__ms_tree *tree, struct rs_err *err)
{
	const struct rs_identity dir = rs_dir_identity(src->dir);
	struct rs_dirent e = {.name = rs_str(src->file), .kind = RS_KIND_FILE};
	struct rs_file file;

	if (!rs__ms_container(e.name)) {
		(void)rs_fail(err, RS_UNSUPPORTED, "%s: expected a file .ckpt or .safetensors",
			src->opts.path);
		return rs_hint(err, "the name tells the format; a link with such a name will do");
	}
	if (rs_dir_file(src->dir, src->file, src->opts.path, &file, err) < 0)
		return -1;
	e.id = file.id;
	bool strategy = rs_strategy_is(&file);
	rs_file_close(&file);
	if (strategy) {
		(void)rs_fail(err, RS_USAGE, "%s: expected a checkpoint, found a strategy",
			src->opts.path);
		return rs_hint(err, "SOURCE is what it cut, and -o src_strategy= is for this file");
	}
	if (agree_on_kind(src, tree, "", e.name, err) < 0 || add_rank(src, tree, 0, &e, err) < 0)
		return -1;
	struct rs__ms_rank *rank = &tree->ranks[0];
	rank->files = RS_NEW(rs_catalog_arena(src->cat), struct rs_source_file, err);
	if (!rank->files)
		return -1;
	rank->files[rank->n_files++] = (struct rs_source_file){.path = "", .id = e.id};
	rs__close_behind(&rank->files[0].id, &dir);
	return 0;
}

/* Another rank directory beside SOURCE, in the directory above; its name goes to @name. */
static bool has_sibling(const char *path, struct rs_str self, char *name, size_t size)
{
	struct rs_arena *scratch = rs_arena_new(LISTING_MAX_BYTES, NULL);
	struct rs_dirent *entries;
	struct rs_dir *above = NULL;
	uint64_t n = 0, rank;
	bool found = false;
	char *up = scratch ? rs_arena_printf(scratch, NULL, "%s/..", path) : NULL;

	if (up && rs_dir_open(up, NULL, true, &above, NULL) == 0 &&
		rs_dir_list(above, "", scratch, &entries, &n, NULL) < 0)
		n = 0;
	for (uint64_t i = 0; i < n && !found; i++) {
		found = entries[i].kind == RS_KIND_DIR && !rs_str_eq(entries[i].name, self) &&
			rs__ms_rank_of(entries[i].name, &rank);
		if (found)
			rs_show(entries[i].name, name, size);
	}
	rs_dir_close(above);
	rs_arena_free(scratch);
	return found;
}

/*
 * SOURCE that is called rank_N holds what one rank stores. Taken as whole tensors, slices would be
 * cut again, so it is refused where other ranks stand beside it. Only names are looked at there.
 */
static int check_lone_rank(struct rs_source *src, struct rs_err *err)
{
	char real[PATH_MAX];
	const char *slash = realpath(src->opts.path, real) ? strrchr(real, '/') : NULL;
	struct rs_str self = rs_str(slash ? slash + 1 : "");
	char sibling[RS_SHOW_MAX];
	uint64_t rank;
	int rc = 0;

	if (rs__ms_rank_of(self, &rank)) {
		if (!src->opts.any_layout &&
			has_sibling(src->opts.path, self, sibling, sizeof(sibling))) {
			rs_fail(err, RS_USAGE,
				"%s: one rank of a tree (%s stands beside it): its tensors are "
				"slices",
				src->opts.path, sibling);
			rc = rs_hint(err, "give the directory above, which holds all ranks; or "
					  "target=same for this rank alone");
		} else {
			rs_note(rs_catalog_notes(src->cat),
				"%s is called like a rank directory, but its file is taken as "
				"whole "
				"tensors; for the tree give the directory above",
				src->opts.path);
		}
	}
	return rc;
}

int rs__ms_list(struct rs_source *src, struct rs__ms_tree *tree, struct rs_err *err)
{
	struct rs_arena *scratch;
	struct rs_dirent *entries;
	uint64_t n, picked = 0;
	int status = -1;

	if (src->file)
		return take_file(src, tree, err);
	scratch = rs_arena_new(LISTING_MAX_BYTES, err);
	if (scratch && rs_dir_list(src->dir, "", scratch, &entries, &n, err) == 0)
		status = list_root(src, tree, entries, n, err);
	rs_arena_free(scratch);
	if (status < 0)
		return -1;
	for (uint64_t i = 0; i < tree->n_ranks; i++)
		picked += tree->ranks[i].n_files;
	if (picked == 0)
		return rs_fail(err, RS_MISSING, "%s: no rank directory holds a checkpoint file%s%s",
			src->opts.path, is_glob(&src->opts) ? " that matches select=" : "",
			is_glob(&src->opts) ? src->opts.select : "");
	if (!tree->in_dirs && check_lone_rank(src, err) < 0)
		return -1;
	if (tree->n_several)
		rs_note(rs_catalog_notes(src->cat),
			"%" PRIu64 " rank directories hold several checkpoint files; the last one "
			"counts, as in MindSpore (select= chooses others)",
			tree->n_several);
	return 0;
}
