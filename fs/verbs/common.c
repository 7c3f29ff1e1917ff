/*
 * common.c - the beginning and the end of every verb, and the small tools between.
 *
 * Everything that is printed for machines passes through one frame, so that a failure is an object,
 * too, and stdout holds nothing else. Refuses paths that the virtual tree does not have.
 * Read next: verbs.h (the contracts), then any verb.
 */
#include "verbs.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <unistd.h>

/* ------------------------------------------------------------- start and end */

struct rs_view_options fs__verb_view(const struct fs_options *o)
{
	struct rs_view_options view = o->view;
	const char *target = view.target.target;

	view.source.path = o->args[0];
	view.proved = false;
	if (target == NULL || strcmp(target, "same") == 0)
		view.source.any_layout = true;
	return view;
}

int fs__verb_fail(const struct fs_options *o, const char *verb, const struct rs_err *err)
{
	int code = fs_report(err);
	struct rs_jsonw w;

	if (!o->json)
		return code;
	fs__json_begin(&w, verb);
	fs__json_err(&w, "error", err);
	return fs__json_end(&w, code);
}

/* ----------------------------------------------------------------------- JSON */

void fs__json_begin(struct rs_jsonw *w, const char *verb)
{
	char schema[48];

	rs_jsonw_init(w, true);
	rs_jsonw_open(w, '{');
	snprintf(schema, sizeof(schema), "reshardfs.%s/1", verb);
	fs__json_str(w, "schema", schema);
}

int fs__json_end(struct rs_jsonw *w, int exit_code)
{
	struct rs_err err = {0};
	uint64_t len;
	char *text;

	rs_jsonw_close(w, '}');
	text = rs_jsonw_take(w, &len, &err);
	if (text == NULL)
		return fs_report(&err);
	fwrite(text, 1, (size_t)len, stdout);
	putchar('\n');
	rs_free(text);
	return exit_code;
}

void fs__json_uint(struct rs_jsonw *w, const char *key, uint64_t value)
{
	rs_jsonw_key(w, rs_str(key));
	rs_jsonw_uint(w, value);
}

void fs__json_bool(struct rs_jsonw *w, const char *key, bool value)
{
	rs_jsonw_key(w, rs_str(key));
	rs_jsonw_bool(w, value);
}

void fs__json_str(struct rs_jsonw *w, const char *key, const char *value)
{
	rs_jsonw_key(w, rs_str(key));
	if (value != NULL)
		rs_jsonw_str(w, rs_str(value));
	else
		rs_jsonw_null(w);
}

void fs__json_err_value(struct rs_jsonw *w, const struct rs_err *err)
{
	rs_jsonw_open(w, '{');
	fs__json_str(w, "code", rs_code_name(err->code));
	fs__json_uint(w, "exit", (uint64_t)fs_exit_code(err->code));
	fs__json_str(w, "message", err->msg);
	fs__json_str(w, "hint", err->hint[0] != '\0' ? err->hint : NULL);
	rs_jsonw_close(w, '}');
}

void fs__json_err(struct rs_jsonw *w, const char *key, const struct rs_err *err)
{
	rs_jsonw_key(w, rs_str(key));
	if (err->code == RS_OK)
		rs_jsonw_null(w);
	else
		fs__json_err_value(w, err);
}

static int by_text(const void *a, const void *b)
{
	const char *const *x = a, *const *y = b;

	return strcmp(*x, *y);
}

int fs__json_notes(
	struct rs_jsonw *w, const struct rs_notes *const *lists, uint64_t n, struct rs_err *err)
{
	const char **all = NULL, *last = NULL;
	uint64_t n_all = 0, cap = 0;

	for (uint64_t i = 0; i < n; i++) {
		for (uint64_t j = 0; lists[i] != NULL && j < lists[i]->n; j++) {
			if (rs_grow(&all, &cap, n_all + 1, sizeof(*all), err) < 0) {
				rs_free(all);
				return -1;
			}
			all[n_all++] = lists[i]->items[j];
		}
	}
	if (n_all > 0)
		qsort(all, (size_t)n_all, sizeof(*all), by_text);
	rs_jsonw_key(w, RS_STR("notes"));
	rs_jsonw_open(w, '[');
	for (uint64_t i = 0; i < n_all; i++) {
		if (last == NULL || strcmp(last, all[i]) != 0)
			rs_jsonw_str(w, rs_str(all[i]));
		last = all[i];
	}
	rs_jsonw_close(w, ']');
	rs_free(all);
	return 0;
}

void fs__json_dims(struct rs_jsonw *w, const char *key, uint32_t n, const uint64_t *dims)
{
	rs_jsonw_key(w, rs_str(key));
	rs_jsonw_open(w, '[');
	for (uint32_t i = 0; i < n; i++)
		rs_jsonw_uint(w, dims[i]);
	rs_jsonw_close(w, ']');
}

/* ----------------------------------------------------------------- parallelism */

#define MAX_WORKERS 8 /* header reads overlap well up to here, also on one CPU */

struct crew {
	atomic_uint_fast64_t next;
	uint64_t n;
	void (*job)(void *arg, uint64_t i);
	void *arg;
};

static void *work(void *arg)
{
	struct crew *crew = arg;

	for (;;) {
		uint64_t i = atomic_fetch_add(&crew->next, 1);

		if (i >= crew->n)
			return NULL;
		crew->job(crew->arg, i);
	}
}

void fs__parallel(uint64_t n, void (*job)(void *arg, uint64_t i), void *arg)
{
	struct crew crew = {.n = n, .job = job, .arg = arg};
	long cpus = sysconf(_SC_NPROCESSORS_ONLN);
	uint64_t want = rs_min(rs_max(cpus > 0 ? (uint64_t)cpus : 1, 2), MAX_WORKERS);
	pthread_t threads[MAX_WORKERS];
	uint32_t started = 0;

	/* A thread that cannot be started is no loss: this one does the rest. */
	while (started + 1 < rs_min(want, n) &&
		pthread_create(&threads[started], NULL, work, &crew) == 0)
		started++;
	work(&crew);
	for (uint32_t i = 0; i < started; i++)
		pthread_join(threads[i], NULL);
}

/* ------------------------------------------------------------------- names, paths */

#define NEAR_MAX 160 /* longer names are compared by their first bytes */

uint32_t fs__nearness(struct rs_str a, struct rs_str b)
{
	uint32_t row[NEAR_MAX + 1];
	size_t n_a = a.len < NEAR_MAX ? a.len : NEAR_MAX, n_b = b.len < NEAR_MAX ? b.len : NEAR_MAX;

	for (size_t j = 0; j <= n_b; j++)
		row[j] = (uint32_t)j;
	for (size_t i = 1; i <= n_a; i++) {
		uint32_t diagonal = row[0];

		row[0] = (uint32_t)i;
		for (size_t j = 1; j <= n_b; j++) {
			uint32_t cost = diagonal + (a.ptr[i - 1] != b.ptr[j - 1]);

			diagonal = row[j];
			if (row[j] + 1 < cost)
				cost = row[j] + 1;
			if (row[j - 1] + 1 < cost)
				cost = row[j - 1] + 1;
			row[j] = cost;
		}
	}
	return row[n_b];
}

int fs__view_path(const struct rs_view *v, const char *path, uint64_t *inode, struct rs_err *err)
{
	uint64_t at = RS_INODE_ROOT;
	const char *rest = path;

	while (*rest != '\0') {
		char name[256];
		size_t len = strcspn(rest, "/");

		if (len == 0) {
			rest++;
			continue;
		}
		if (len < sizeof(name)) {
			memcpy(name, rest, len);
			name[len] = '\0';
		}
		if (len >= sizeof(name) || rs_view_node(v, at) == RS_NODE_FILE)
			at = 0;
		else if (strcmp(name, ".") != 0)
			at = rs_view_child(v, at, name);
		if (at == 0) {
			rs_fail(err, RS_USAGE, "%s: no such path in the virtual tree",
				RS_SHOW(rs_str(path)));
			return rs_hint(
				err, "reshardfs ls with the same options lists what there is");
		}
		rest += len;
	}
	*inode = at;
	return 0;
}

void fs__view_name(const struct rs_view *v, uint64_t inode, char *path)
{
	const struct rs_output *o = rs_view_output(v, inode);

	if (!o)
		snprintf(path, FS_VIEW_PATH_MAX, "rank_%" PRIu64, rs_view_inode_rank(v, inode));
	else if (o->at_root)
		snprintf(path, FS_VIEW_PATH_MAX, "%.255s", o->name);
	else
		snprintf(path, FS_VIEW_PATH_MAX, "rank_%" PRIu64 "/%.255s", o->rank, o->name);
}

/* -------------------------------------------------------------- about the source */

int fs__catalog_owners(const struct rs_catalog *cat, struct rs_arena *arena, uint32_t **file_unit,
	uint64_t **unit_rank, struct rs_err *err)
{
	uint32_t n_units = rs_catalog_n_units(cat);
	uint64_t ranks = (uint64_t)rs_catalog_n_stages(cat) * rs_catalog_stage_devices(cat);

	*file_unit = RS_NEW_N(arena, uint32_t, rs_catalog_n_files(cat), err);
	*unit_rank = RS_NEW_N(arena, uint64_t, n_units, err);
	if (*file_unit == NULL || *unit_rank == NULL)
		return -1;
	for (uint32_t u = 0; u < n_units; u++) {
		const struct rs_unit *unit = rs_catalog_unit(cat, u);

		(*unit_rank)[u] = UINT64_MAX;
		for (uint32_t f = 0; f < unit->n_files; f++)
			(*file_unit)[unit->first_file + f] = u;
	}
	for (uint64_t r = 0; r < ranks; r++) {
		uint32_t u = rs_catalog_rank_unit(cat, r);

		if (u != RS_NO_UNIT)
			(*unit_rank)[u] = r;
	}
	return 0;
}

const char *fs__source_file_name(const struct rs_source *src, uint32_t file)
{
	const char *path = rs_catalog_file_info(src->cat, file)->path;

	return path[0] != '\0' ? path : src->opts.path;
}

uint32_t fs__source_n_units(const struct rs_source *src)
{
	return rs_catalog_n_units(src->cat) - (uint32_t)src->n_companions;
}

uint32_t fs__source_n_files(const struct rs_source *src)
{
	return rs_catalog_n_files(src->cat) - (uint32_t)src->n_companions;
}

uint64_t fs__source_bytes_on_disk(const struct rs_source *src)
{
	uint64_t sum = 0;

	for (uint32_t f = 0; f < fs__source_n_files(src); f++)
		sum += rs_catalog_file_info(src->cat, f)->id.size;
	return sum;
}

uint64_t fs__source_bytes_unique(const struct rs_source *src)
{
	uint64_t sum = 0, bytes;

	for (uint64_t i = 0; i < rs_catalog_n_tensors(src->cat); i++) {
		const struct rs_tensor *t = rs_catalog_tensor(src->cat, i);

		if (rs_shape_bytes(&t->shape, t->dtype, &bytes))
			sum += bytes;
	}
	return sum;
}

void fs__json_source(struct rs_jsonw *w, const struct rs_source *src)
{
	rs_jsonw_key(w, RS_STR("source"));
	rs_jsonw_open(w, '{');
	fs__json_str(w, "path", src->opts.path);
	fs__json_str(w, "format", src->ops->name);
	fs__json_str(w, "container", src->container);
	fs__json_uint(w, "ranks", src->n_ranks);
	fs__json_uint(w, "stages", rs_catalog_n_stages(src->cat));
	fs__json_uint(w, "stage_devices", rs_catalog_stage_devices(src->cat));
	fs__json_str(w, "strategy", src->strategy != NULL ? src->strategy->path : NULL);
	fs__json_uint(w, "tensors", rs_catalog_n_tensors(src->cat));
	fs__json_uint(w, "bytes_unique", fs__source_bytes_unique(src));
	fs__json_uint(w, "bytes_on_disk", fs__source_bytes_on_disk(src));
	rs_jsonw_close(w, '}');
}

void fs__json_target(struct rs_jsonw *w, const struct rs_target *t)
{
	const struct rs_strategy *s = t->strategy;

	rs_jsonw_key(w, RS_STR("target"));
	rs_jsonw_open(w, '{');
	fs__json_str(w, "target", t->opts.target);
	fs__json_str(w, "container", t->container);
	fs__json_uint(w, "ranks", t->n_ranks);
	if (s != NULL) {
		fs__json_uint(w, "stages", s->n_stages);
		fs__json_uint(w, "stage_devices", s->stage_devices);
	}
	rs_jsonw_close(w, '}');
}
