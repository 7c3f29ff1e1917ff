/*
 * hf.c - Hugging Face checkpoints as a source: one safetensors file, a directory of them, or shards
 * with an index that names the file of every tensor.
 *
 *   model.safetensors.index.json  model-00001-of-00002.safetensors  ...  config.json tokenizer.json
 *
 * Names are taken from the index as they are and never derived. Refuses several indexes, numbered
 * shards that are not all there, and whatever shards.c refuses. Files of other variants and splits
 * are set aside by name. Format: docs/formats/huggingface.md. Next: shards.c.
 */
#include "core/source/internal.h"
#include "core/source/loader.h"
#include "core/source/shards.h"

#include <ctype.h>
#include <fnmatch.h>
#include <inttypes.h>
#include <limits.h>
#include <stdlib.h>

#define PROBE_MAX_BYTES (UINT64_C(64) << 20)

static const char index_suffix[] = ".safetensors.index.json";
static const char suffix[] = ".safetensors";
static const char escape[] =
	"files of several models or saves? fetch index and files anew, or choose files by name "
	"and leave the index aside: -o select=GLOB";

/* ------------------------------------------------------------------------ probing */

/* 70 an index, 60 safetensors files; a link counts as what it is called. */
static int probe(const struct rs_dir *dir, const char *file)
{
	struct rs_arena *scratch;
	struct rs_dirent *entries;
	uint64_t n;
	int bid = 0;

	if (file)
		return rs_str_ends(rs_str(file), suffix) ? 60 : 0;
	scratch = rs_arena_new(PROBE_MAX_BYTES, NULL);
	if (scratch && rs_dir_list(dir, "", scratch, &entries, &n, NULL) == 0)
		for (uint64_t i = 0; i < n; i++) {
			if (entries[i].kind == RS_KIND_DIR)
				continue;
			if (rs_str_ends(entries[i].name, index_suffix))
				bid = 70;
			else if (bid == 0 && !rs__shards_why_not(&entries[i]))
				bid = 60;
		}
	rs_arena_free(scratch);
	return bid;
}

/* ----------------------------------------------------------------- what stands there */

struct hf {
	struct rs__shards *shards;
	struct rs_dirent *entries;
	uint64_t n;
	const struct rs_dirent *index; /* chosen, or NULL */
	const char **paths;            /* of the data files, in byte order; in scratch */
	uint32_t n_paths;
	struct rs_arena *scratch;
};

/* Shown beside the weights by layouts that loaders read. */
static bool is_companion(const struct rs_dirent *e)
{
	static const char *const patterns[] = {"config.json", "generation_config.json",
		"preprocessor_config.json", "special_tokens_map.json", "tokenizer*", "vocab.*",
		"merges.txt", "chat_template*", "*.jinja"};

	for (size_t i = 0; i < sizeof(patterns) / sizeof(patterns[0]); i++)
		if (fnmatch(patterns[i], e->name.ptr, FNM_PERIOD) == 0)
			return e->kind == RS_KIND_FILE && !rs_str_ends(e->name, suffix);
	return false;
}

static bool is_index(const struct rs_dirent *e)
{
	return e->kind != RS_KIND_DIR && e->name.ptr[0] != '.' &&
	       rs_str_ends(e->name, index_suffix);
}

/* select=: a glob over index and data files; its other words are about rank directories. */
static const char *glob_of(const struct rs_source *src)
{
	const char *select = src->opts.select;

	return select && strcmp(select, "last") != 0 && strcmp(select, "merge") != 0 ? select
										     : NULL;
}

static bool selected(const struct rs_source *src, const struct rs_dirent *e)
{
	const char *glob = glob_of(src);
	return !glob || fnmatch(glob, e->name.ptr, 0) == 0;
}

/* The one index that select= lets through. Without one, all files that it does are taken. */
static int choose_index(struct hf *hf, struct rs_err *err)
{
	const struct rs_source *src = hf->shards->src;

	for (uint64_t i = 0; i < hf->n; i++) {
		const struct rs_dirent *e = &hf->entries[i];
		if (!is_index(e) || !selected(src, e))
			continue;
		if (hf->index) {
			(void)rs_fail(err, RS_USAGE, "%s: several indexes: %s, %s", src->opts.path,
				RS_SHOW(hf->index->name), RS_SHOW(e->name));
			return rs_hint(err, "say which: -o select=%s", RS_SHOW(hf->index->name));
		}
		hf->index = e;
	}
	return 0;
}

/*
 * What a safetensors file is that the index does not name. Variants stand before the number:
 * model.fp16-00001-of-00002.safetensors beside model.safetensors.index.json.
 */
static const char *why_stray(const struct hf *hf, const struct rs_dirent *e)
{
	struct rs_str stem = hf->index->name;

	stem.len -= sizeof(index_suffix) - 1;
	if (e->name.len <= stem.len || memcmp(e->name.ptr, stem.ptr, stem.len) != 0)
		return "a file that the index does not name";
	if (e->name.len == stem.len + sizeof(suffix) - 1)
		return "a file that the index does not name";
	return e->name.ptr[stem.len] == '.' ? "another variant: the index does not name it"
					    : "of another split: the index does not name it";
}

static const char *why_aside(const struct hf *hf, const struct rs_dirent *e)
{
	if (is_index(e))
		return "an index that is not selected (select=)";
	if (rs__shards_why_not(e))
		return rs__shards_why_not(e);
	return hf->index ? why_stray(hf, e) : "not selected (select=)";
}

static bool taken(const struct hf *hf, const struct rs_dirent *e)
{
	const struct rs__shards *s = hf->shards;

	if (e == hf->index || is_companion(e))
		return true;
	if (!hf->index)
		return !rs__shards_why_not(e) && selected(s->src, e);
	return rs__index_file(&s->index, e->name.ptr) < s->index.n_files;
}

/* ------------------------------------------------------------------ numbered shards */

/* model-00001-of-00003.safetensors: what stands around its own number, and the number of all. */
struct numbered {
	struct rs_str before, after;
	uint64_t number, of;
	int width;
};

static bool take_digits(struct rs_str *s, uint64_t *out)
{
	size_t n = 0;

	while (n < s->len && isdigit((unsigned char)s->ptr[s->len - 1 - n]))
		n++;
	if (n < 5 || n > 6)
		return false;
	s->len -= n;
	return rs_str_u64((struct rs_str){s->ptr + s->len, n}, out);
}

static bool parse_numbered(struct rs_str name, struct numbered *out)
{
	static const char of[] = "-of-";
	struct rs_str s = name;

	if (!rs_str_ends(s, suffix))
		return false;
	s.len -= sizeof(suffix) - 1;
	if (!take_digits(&s, &out->of) || !rs_str_ends(s, of))
		return false;
	s.len -= sizeof(of) - 1;
	out->after = (struct rs_str){s.ptr + s.len, name.len - s.len};
	size_t end = s.len;
	if (!take_digits(&s, &out->number) || !(rs_str_ends(s, "-") || rs_str_ends(s, "_")))
		return false;
	out->before = s;
	out->width = (int)(end - s.len);
	return true;
}

static int by_path(const void *a, const void *b)
{
	const char *const *x = a, *const *y = b;
	return strcmp(*x, *y);
}

/* The neighbour of @p with number @number must be there. */
static int check_neighbour(
	const struct hf *hf, const struct numbered *p, uint64_t number, struct rs_err *err)
{
	char *name = rs_arena_printf(hf->scratch, err, "%.*s%0*" PRIu64 "%.*s", (int)p->before.len,
		p->before.ptr, p->width, number, (int)p->after.len, p->after.ptr);
	const char *key = name;

	if (!name)
		return -1;
	if (bsearch(&key, hf->paths, hf->n_paths, sizeof(*hf->paths), by_path))
		return 0;
	(void)rs_fail(err, RS_MISSING, "%s: shard %" PRIu64 " of %" PRIu64 " missing (expected %s)",
		hf->shards->src->opts.path, number, p->of, RS_SHOW(rs_str(name)));
	return rs_hint(err, "an interrupted download? fetch the file; to take some of the files "
			    "alone: -o select=GLOB");
}

/* Without an index the numbers in the names tell whether a shard is missing. */
static int check_numbers(const struct hf *hf, struct rs_err *err)
{
	for (uint32_t i = 0; i < hf->n_paths; i++) {
		struct numbered p;
		if (!parse_numbered(rs_str(hf->paths[i]), &p))
			continue;
		if (p.number > 1 && check_neighbour(hf, &p, p.number - 1, err) < 0)
			return -1;
		if (p.number < p.of && check_neighbour(hf, &p, p.number + 1, err) < 0)
			return -1;
	}
	return 0;
}

/* --------------------------------------------------------------------- data files */

static int choose_paths(struct hf *hf, struct rs_err *err)
{
	const struct rs_source *src = hf->shards->src;

	if (hf->index) {
		hf->paths = hf->shards->index.files;
		hf->n_paths = hf->shards->index.n_files;
		return 0;
	}
	hf->paths = RS_NEW_N(hf->scratch, const char *, hf->n, err);
	if (!hf->paths)
		return -1;
	for (uint64_t i = 0; i < hf->n; i++)
		if (!rs__shards_why_not(&hf->entries[i]) && selected(src, &hf->entries[i]))
			hf->paths[hf->n_paths++] = hf->entries[i].name.ptr;
	if (hf->n_paths)
		return glob_of(src) ? 0 : check_numbers(hf, err);
	return rs_fail(err, RS_MISSING, "%s: expected safetensors files%s%s", src->opts.path,
		glob_of(src) ? " that match select=" : "", glob_of(src) ? glob_of(src) : "");
}

/*
 * The cache of Hugging Face keeps files once, in blobs/, and snapshots/REVISION/ full of links to
 * them; the fence that holds both is the directory above the two.
 */
static int hint_cache(const struct rs_source *src, struct rs_err *err)
{
	static const char snapshots[] = "/snapshots";
	char path[PATH_MAX], *slash;

	/* Of all faults of a name only that of a link to a real file outside comes with a hint. */
	if (!err || err->code != RS_CORRUPT || !strstr(err->hint, "beneath=") ||
		!realpath(src->opts.path, path))
		return -1;
	slash = strrchr(path, '/');
	*slash = 0;
	if (!rs_str_ends(rs_str(path), snapshots))
		return -1;
	path[strlen(path) - (sizeof(snapshots) - 1)] = 0;
	return rs_hint(err,
		"the cache keeps the files elsewhere and links to them; allow it: -o beneath=%s",
		path[0] ? path : "/");
}

/* ---------------------------------------------------------------------- companions */

/* A config that cannot be read harms nobody who needs no plan, so it is a remark. */
static void read_config(struct rs_source *src, const struct rs_dirent *e)
{
	struct rs_err why = {0};
	struct rs_file file;

	if (!rs_str_is(e->name, "config.json"))
		return;
	if (rs_dir_file(src->dir, e->name.ptr, NULL, &file, &why) == 0) {
		(void)rs__config_read(&file, rs_catalog_arena(src->cat), &src->config, &why);
		rs_file_close(&file);
	}
	if (why.code)
		rs_note(rs_catalog_notes(src->cat), "%s; nothing is taken from it", why.msg);
}

static int add_companions(struct hf *hf, struct rs_err *err)
{
	struct rs_source *src = hf->shards->src;
	struct rs_arena *arena = rs_catalog_arena(src->cat);
	uint64_t n = 0;

	for (uint64_t i = 0; i < hf->n; i++)
		n += is_companion(&hf->entries[i]);
	src->companions = RS_NEW_N(arena, struct rs_companion, n, err);
	if (!src->companions)
		return -1;
	for (uint64_t i = 0; i < hf->n; i++) {
		const struct rs_dirent *e = &hf->entries[i];
		struct rs_companion *c = &src->companions[src->n_companions];

		if (!is_companion(e))
			continue;
		if (rs__shards_companion(hf->shards, e, &c->unit, err) < 0)
			return -1;
		c->name = rs_catalog_unit(src->cat, c->unit)->name;
		src->n_companions++;
		read_config(src, e);
	}
	return 0;
}

/* -------------------------------------------------------------------------- opening */

static int list_dir(struct hf *hf, struct rs_err *err)
{
	struct rs_source *src = hf->shards->src;

	if (rs__shards_listing(src, &hf->scratch, &hf->entries, &hf->n, err) < 0 ||
		choose_index(hf, err) < 0)
		return -1;
	if (hf->index && rs__shards_index(hf->shards, hf->index->name.ptr, false, err) < 0)
		return hint_cache(src, err);
	if (choose_paths(hf, err) < 0)
		return -1;
	for (uint64_t i = 0; i < hf->n; i++)
		if (!taken(hf, &hf->entries[i]) && rs__shards_foreign(src, &hf->entries[i],
							   why_aside(hf, &hf->entries[i]), err) < 0)
			return -1;
	if (rs__shards_add(hf->shards, hf->paths, hf->n_paths, NULL, err) < 0)
		return hint_cache(src, err);
	return add_companions(hf, err);
}

static int list(struct rs_source *src, struct rs_err *err)
{
	static const char *const itself[] = {""};
	struct hf hf = {.shards = rs__shards_new(src, err)};
	int status;

	if (!hf.shards)
		return -1;
	hf.shards->escape = escape;
	if (src->opts.strategy) {
		(void)rs_fail(err, RS_USAGE, "src_strategy=%s: the tensors of %s are whole",
			src->opts.strategy, src->opts.path);
		return rs_hint(err, "leave it out; target= takes a strategy");
	}
	status = src->file ? rs__shards_add(hf.shards, itself, 1, NULL, err) : list_dir(&hf, err);
	rs_arena_free(hf.scratch);
	if (status < 0)
		return -1;
	return rs__loader_set(src, rs_safetensors_header, hf.shards->n_units, err);
}

const struct rs_source_ops rs__source_hf = {
	.name = "hf",
	.probe = probe,
	.list = list,
	.describe = rs__shards_describe,
	.done = rs__shards_done,
};
