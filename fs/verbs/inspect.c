/*
 * inspect.c - `inspect SRC`: what is this checkpoint, is it complete, and how may it be cut?
 *
 * Needs no target, and tells what it can without a strategy. Every bad file is named on stderr and
 * the first one decides the exit code; what could be read is printed all the same.
 * Read next: survey.c (the looking).
 */
#include "survey.h"

#include <inttypes.h>
#include <stdlib.h>
#include <sys/stat.h>

#define LABEL "%-11s "
#define TP_MAX 1024  /* nobody cuts a tensor over more ranks than that */
#define MESHES_MAX 8 /* device matrices printed */

/* ------------------------------------------------------------------ device matrices */

static int by_mesh(const void *a, const void *b)
{
	const struct rs_layout *const *x = a, *const *y = b;
	uint32_t n = (*x)->n_dev < (*y)->n_dev ? (*x)->n_dev : (*y)->n_dev;

	for (uint32_t i = 0; i < n; i++)
		if ((*x)->dev[i] != (*y)->dev[i])
			return (*x)->dev[i] < (*y)->dev[i] ? -1 : 1;
	return ((*x)->n_dev > (*y)->n_dev) - ((*x)->n_dev < (*y)->n_dev);
}

/* The distinct device matrices of the strategy, sorted; *n of them, in @arena. */
static const struct rs_layout **meshes(
	const struct rs_strategy *s, struct rs_arena *arena, uint64_t *n, struct rs_err *err)
{
	const struct rs_layout **all;

	*n = 0;
	all = RS_NEW_N(arena, const struct rs_layout *, s != NULL ? s->n_layouts : 0, err);
	if (all == NULL || s == NULL || s->n_layouts == 0)
		return all;
	memcpy(all, s->layouts, s->n_layouts * sizeof(*all));
	qsort(all, (size_t)s->n_layouts, sizeof(*all), by_mesh);
	for (uint64_t i = 0; i < s->n_layouts; i++)
		if (*n == 0 || by_mesh(&all[i], &all[*n - 1]) != 0)
			all[(*n)++] = all[i];
	return all;
}

/* ------------------------------------------------------------------------- text */

static void print_ranks(const struct survey *s)
{
	const struct rs_catalog *cat = s->src->cat;
	uint32_t stages = rs_catalog_n_stages(cat);

	if (s->src->n_ranks == 1) {
		printf(LABEL "%" PRIu32, "files", fs__source_n_files(s->src));
		for (uint64_t i = 0; i < s->src->n_companions; i++)
			printf("%s%s", i == 0 ? ", and with them " : ", ",
				RS_SHOW(rs_str(s->src->companions[i].name)));
		putchar('\n');
		return;
	}
	printf(LABEL "%" PRIu64 " of %" PRIu64, "ranks", s->n_found, s->src->n_ranks);
	if (s->src->strategy != NULL)
		printf(" (%" PRIu32 " stage%s x %" PRIu32 " devices)", stages,
			stages == 1 ? "" : "s", rs_catalog_stage_devices(cat));
	putchar('\n');
}

static void print_strategy(
	const struct survey *s, const struct rs_layout *const *mesh, uint64_t n_meshes)
{
	const struct rs_strategy *strategy = s->src->strategy;
	char path[4096];
	struct stat st;
	int len;

	if (strategy != NULL) {
		printf(LABEL "%s", "strategy", RS_SHOW(rs_str(strategy->path)));
		for (uint64_t i = 0; i < n_meshes && i < MESHES_MAX; i++) {
			printf("%s[", i == 0 ? ": device matrices " : " ");
			for (uint32_t d = 0; d < mesh[i]->n_dev; d++)
				printf("%s%" PRIu32, d == 0 ? "" : ", ", mesh[i]->dev[d]);
			putchar(']');
		}
		puts(n_meshes > MESHES_MAX ? " ..." : "");
		return;
	}
	if (s->src->n_ranks == 1) {
		printf(LABEL "none, and none is needed: the tensors are whole\n", "strategy");
		return;
	}
	len = snprintf(path, sizeof(path), "%s/../strategy", s->src->opts.path);
	if (len > 0 && (size_t)len < sizeof(path) && stat(path, &st) == 0 && S_ISDIR(st.st_mode))
		printf(LABEL "none found; there is one beside it: -o src_strategy=%s\n", "strategy",
			RS_SHOW(rs_str(path)));
	else
		printf(LABEL "none found; only target=same can do without (-o src_strategy=PATH)\n",
			"strategy");
}

static void print_tensors(const struct survey *s, bool exact)
{
	const char *label = "dtypes";

	if (!s->known)
		printf(LABEL "%" PRIu64 " names\n", "tensors", s->n_others);
	else if (s->src->n_ranks == 1)
		printf(LABEL "%" PRIu64 "\n", "tensors", s->n_placed + s->n_others);
	else
		printf(LABEL "%" PRIu64 ", %" PRIu64 " placed by the strategy and %" PRIu64
			     " without a layout\n",
			"tensors", s->n_placed + s->n_others, s->n_placed, s->n_others);
	for (int d = 0; d < RS_DT_COUNT; d++) {
		const struct survey_dtype *t = &s->dtypes[d];

		if (t->tensors == 0)
			continue;
		printf(LABEL "%-5s %6" PRIu64 " tensor%s %12s", label,
			rs_dtype_name((enum rs_dtype)d), t->tensors, t->tensors == 1 ? " " : "s",
			FS_SIZE(s->known ? t->bytes : t->bytes_on_disk, exact));
		puts(s->known ? "" : " stored");
		label = "";
	}
	if (s->known)
		printf(LABEL "%s unique, %s on disk\n", "bytes", FS_SIZE(s->bytes, exact),
			FS_SIZE(s->bytes_on_disk, exact));
	else
		printf(LABEL "%s on disk\n", "bytes", FS_SIZE(s->bytes_on_disk, exact));
}

static void print_cuts(const struct survey *s)
{
	if (s->replicas_max > 0 && s->src->n_ranks > 1) {
		printf(LABEL "each slice in %" PRIu32, "replicas", s->replicas_min);
		if (s->replicas_max != s->replicas_min)
			printf(" to %" PRIu32, s->replicas_max);
		printf(" rank%s by the strategy%s\n", s->replicas_max == 1 ? "" : "s",
			s->replicas_max == 1 ? "" : " (equal: not checked)");
	}
	if (s->cut_gcd == 0)
		return;
	printf(LABEL, "tp sizes");
	for (uint64_t i = 1; i <= TP_MAX && i <= s->cut_gcd; i++)
		if (s->cut_gcd % i == 0)
			printf("%" PRIu64 " ", i);
	puts("divide every axis that the strategy cuts");
}

static int print_text(const struct survey *s, const struct fs_options *o, struct rs_err *err)
{
	struct rs_arena *arena = rs_arena_new(UINT64_C(1) << 24, err);
	const struct rs_layout **mesh = NULL;
	uint64_t n_meshes = 0;

	if (arena != NULL)
		mesh = meshes(s->src->strategy, arena, &n_meshes, err);
	if (mesh == NULL) {
		rs_arena_free(arena);
		return -1;
	}
	printf(LABEL "%s\n", "source", RS_SHOW(rs_str(s->src->opts.path)));
	printf(LABEL "%s, %s files\n", "format", s->src->ops->name, s->src->container);
	if (s->src->config.model_type.len > 0)
		printf(LABEL "%s\n", "model type", RS_SHOW(s->src->config.model_type));
	print_ranks(s);
	print_strategy(s, mesh, n_meshes);
	print_tensors(s, o->bytes);
	print_cuts(s);
	if (s->n_crc > 0)
		printf(LABEL "%" PRIu64 " of %" PRIu64 " carry a checksum (not checked)\n",
			"checksums", s->n_crc, s->n_found);
	if (s->n_deduplicated > 0)
		printf(LABEL "%" PRIu64 " of %" PRIu64 " saved without redundancy\n", "dedup",
			s->n_deduplicated, s->n_found);
	for (uint64_t i = 0; i < s->src->n_foreign; i++)
		printf(LABEL "%s: %s\n", i == 0 ? "other files" : "",
			RS_SHOW(rs_str(s->src->foreign[i].path)), s->src->foreign[i].why);
	if (!o->quiet)
		fs_notes(stdout, rs_catalog_notes(s->src->cat));
	rs_arena_free(arena);
	return 0;
}

/* ------------------------------------------------------------------------- JSON */

struct word {
	enum rs_dtype dtype;
	const char *name;
};

static int by_word(const void *a, const void *b)
{
	const struct word *x = a, *y = b;

	return strcmp(x->name, y->name);
}

static void json_dtypes(struct rs_jsonw *w, const struct survey *s)
{
	struct word words[RS_DT_COUNT];
	size_t n = 0;

	for (int d = 0; d < RS_DT_COUNT; d++)
		if (s->dtypes[d].tensors > 0)
			words[n++] =
				(struct word){(enum rs_dtype)d, rs_dtype_name((enum rs_dtype)d)};
	qsort(words, n, sizeof(words[0]), by_word);
	rs_jsonw_key(w, RS_STR("dtypes"));
	rs_jsonw_open(w, '[');
	for (size_t i = 0; i < n; i++) {
		const struct survey_dtype *d = &s->dtypes[words[i].dtype];

		rs_jsonw_open(w, '{');
		fs__json_str(w, "dtype", words[i].name);
		fs__json_uint(w, "tensors", d->tensors);
		if (s->known)
			fs__json_uint(w, "bytes_unique", d->bytes);
		fs__json_uint(w, "bytes_on_disk", d->bytes_on_disk);
		rs_jsonw_close(w, '}');
	}
	rs_jsonw_close(w, ']');
}

static void json_ranks(struct rs_jsonw *w, const struct survey *s)
{
	const struct rs_catalog *cat = s->src->cat;
	bool whole = s->src->without_ranks;

	rs_jsonw_key(w, RS_STR("ranks"));
	rs_jsonw_open(w, '{');
	fs__json_uint(w, "expected", s->src->n_ranks);
	fs__json_uint(w, "found", whole ? s->src->n_ranks : s->n_found);
	rs_jsonw_key(w, RS_STR("missing"));
	rs_jsonw_open(w, '[');
	for (uint64_t r = 0; r < s->src->n_ranks && !whole; r++)
		if (rs_catalog_rank_unit(cat, r) == RS_NO_UNIT)
			rs_jsonw_uint(w, r);
	rs_jsonw_close(w, ']');
	fs__json_uint(w, "stages", rs_catalog_n_stages(cat));
	fs__json_uint(w, "stage_devices", rs_catalog_stage_devices(cat));
	rs_jsonw_close(w, '}');
}

static int json_meshes(struct rs_jsonw *w, const struct survey *s, struct rs_err *err)
{
	struct rs_arena *arena = rs_arena_new(UINT64_C(1) << 24, err);
	const struct rs_layout **mesh = NULL;
	uint64_t n = 0;

	if (arena != NULL)
		mesh = meshes(s->src->strategy, arena, &n, err);
	if (mesh == NULL) {
		rs_arena_free(arena);
		return -1;
	}
	rs_jsonw_key(w, RS_STR("device_matrices"));
	rs_jsonw_open(w, '[');
	for (uint64_t i = 0; i < n; i++) {
		rs_jsonw_open(w, '[');
		for (uint32_t d = 0; d < mesh[i]->n_dev; d++)
			rs_jsonw_uint(w, mesh[i]->dev[d]);
		rs_jsonw_close(w, ']');
	}
	rs_jsonw_close(w, ']');
	rs_arena_free(arena);
	return 0;
}

static void json_cuts(struct rs_jsonw *w, const struct survey *s)
{
	rs_jsonw_key(w, RS_STR("replicas"));
	if (s->replicas_max > 0) {
		rs_jsonw_open(w, '{');
		fs__json_uint(w, "min", s->replicas_min);
		fs__json_uint(w, "max", s->replicas_max);
		rs_jsonw_close(w, '}');
	} else {
		rs_jsonw_null(w);
	}
	rs_jsonw_key(w, RS_STR("tp_sizes"));
	rs_jsonw_open(w, '[');
	for (uint64_t i = 1; i <= TP_MAX && i <= s->cut_gcd; i++)
		if (s->cut_gcd % i == 0)
			rs_jsonw_uint(w, i);
	rs_jsonw_close(w, ']');
}

static void json_companions(struct rs_jsonw *w, const struct survey *s)
{
	rs_jsonw_key(w, RS_STR("model_type"));
	if (s->src->config.model_type.len > 0)
		rs_jsonw_str(w, s->src->config.model_type);
	else
		rs_jsonw_null(w);
	rs_jsonw_key(w, RS_STR("companions"));
	rs_jsonw_open(w, '[');
	for (uint64_t i = 0; i < s->src->n_companions; i++)
		rs_jsonw_str(w, rs_str(s->src->companions[i].name));
	rs_jsonw_close(w, ']');
}

static int by_key(const void *a, const void *b)
{
	const struct rs_flat *const *x = a, *const *y = b;

	return rs_str_cmp((*x)->key, (*y)->key);
}

/* Where flattened keys stood in nested dicts, by key. */
static int json_flat(struct rs_jsonw *w, const struct rs_source *src, struct rs_err *err)
{
	const struct rs_flat **flat = rs_alloc(src->n_flat * sizeof(*flat), err);

	if (flat == NULL)
		return -1;
	for (uint64_t i = 0; i < src->n_flat; i++)
		flat[i] = &src->flat[i];
	qsort(flat, (size_t)src->n_flat, sizeof(*flat), by_key);
	rs_jsonw_key(w, RS_STR("flat_mapping"));
	rs_jsonw_open(w, '[');
	for (uint64_t i = 0; i < src->n_flat; i++) {
		rs_jsonw_open(w, '{');
		rs_jsonw_key(w, RS_STR("key"));
		rs_jsonw_str(w, flat[i]->key);
		rs_jsonw_key(w, RS_STR("path"));
		rs_jsonw_open(w, '[');
		for (uint32_t k = 0; k < flat[i]->n_path; k++)
			rs_jsonw_str(w, flat[i]->path[k]);
		rs_jsonw_close(w, ']');
		rs_jsonw_close(w, '}');
	}
	rs_jsonw_close(w, ']');
	free(flat);
	return 0;
}

static void json_findings(struct rs_jsonw *w, const struct survey *s)
{
	rs_jsonw_key(w, RS_STR("foreign"));
	rs_jsonw_open(w, '[');
	for (uint64_t i = 0; i < s->src->n_foreign; i++) {
		rs_jsonw_open(w, '{');
		fs__json_str(w, "path", s->src->foreign[i].path);
		fs__json_str(w, "why", s->src->foreign[i].why);
		rs_jsonw_close(w, '}');
	}
	rs_jsonw_close(w, ']');
	rs_jsonw_key(w, RS_STR("errors"));
	rs_jsonw_open(w, '[');
	for (uint64_t i = 0; i < s->n_errors; i++)
		fs__json_err_value(w, &s->errors[i]);
	rs_jsonw_close(w, ']');
}

static int print_json(const struct survey *s, int code)
{
	const struct rs_notes *notes = rs_catalog_notes(s->src->cat);
	struct rs_err err = {0};
	struct rs_jsonw w;

	fs__json_begin(&w, "inspect");
	fs__json_str(&w, "source", s->src->opts.path);
	fs__json_str(&w, "format", s->src->ops->name);
	fs__json_str(&w, "container", s->src->container);
	json_ranks(&w, s);
	fs__json_uint(&w, "files", fs__source_n_files(s->src));
	json_companions(&w, s);
	if (json_flat(&w, s->src, &err) < 0)
		w.failed = true;
	fs__json_str(&w, "strategy", s->src->strategy ? s->src->strategy->path : NULL);
	if (json_meshes(&w, s, &err) < 0)
		w.failed = true;
	fs__json_uint(&w, "tensors", s->n_placed + s->n_others);
	fs__json_uint(&w, "tensors_placed", s->n_placed);
	json_dtypes(&w, s);
	rs_jsonw_key(&w, RS_STR("bytes_unique"));
	if (s->known)
		rs_jsonw_uint(&w, s->bytes);
	else
		rs_jsonw_null(&w);
	fs__json_uint(&w, "bytes_on_disk", s->bytes_on_disk);
	json_cuts(&w, s);
	fs__json_uint(&w, "checksummed", s->n_crc);
	fs__json_uint(&w, "deduplicated", s->n_deduplicated);
	json_findings(&w, s);
	if (fs__json_notes(&w, &notes, 1, &err) < 0)
		w.failed = true;
	return fs__json_end(&w, code);
}

int fs_verb_inspect(const struct fs_options *o)
{
	struct rs_view_options opts = fs__verb_view(o);
	struct rs_source *src = NULL;
	struct rs_err err = {0};
	struct survey s = {0};
	int code = FS_EXIT_OK;

	if (rs_source_open(&opts.source, &src, &err) < 0)
		return fs__verb_fail(o, "inspect", &err);
	if (fs__survey_run(&s, src, &err) < 0 || (!o->json && print_text(&s, o, &err) < 0)) {
		code = fs__verb_fail(o, "inspect", &err);
	} else {
		for (uint64_t i = 0; i < s.n_errors; i++)
			fs_report(&s.errors[i]);
		code = s.n_errors > 0 ? fs_exit_code(s.errors[0].code) : FS_EXIT_OK;
		code = o->json ? print_json(&s, code) : code;
	}
	fs__survey_done(&s);
	rs_source_close(src);
	return code;
}
