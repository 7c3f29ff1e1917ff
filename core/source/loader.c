/*
 * loader.c - opens files beneath the fence, reads their headers, and names them for messages.
 *
 * Refuses a header that belongs to another state of its file: while it was read somebody may have
 * been writing. Several files of one unit are joined (table.c). Next: safetensors.c and ckpt.c, the
 * headers; core/catalog/load.c, which calls this once per unit.
 */
#include "core/source/loader.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/stat.h>

/* A file's path in the catalog, and what it is called in messages: with SOURCE in front. */
struct name {
	const char *path, *shown;
};
struct loader {
	struct rs_source *src;
	rs__header_fn header;
	uint32_t first_raw; /* number of the first file that is no data */
	struct name *names; /* by path */
	uint64_t n_names;
};

static int by_path(const void *a, const void *b)
{
	const struct name *x = a, *y = b;
	return strcmp(x->path, y->path);
}

static int open_file(void *self, const char *path, struct rs_file *out, struct rs_err *err)
{
	const struct loader *l = self;
	const struct name key = {.path = path};
	const struct name *name = bsearch(&key, l->names, l->n_names, sizeof(*l->names), by_path);
	const char *shown = name ? name->shown : path;

	return rs_dir_file(l->src->dir, path[0] ? path : l->src->file, shown, out, err);
}

/* ------------------------------------------------------------------ headers */

static int load_file(const struct loader *l, const struct rs_file *file, struct rs_table **out,
	struct rs_err *err)
{
	if (l->header(file, out, err) < 0)
		return -1;
	if (rs_file_check(file, err) < 0)
		goto fail;
	if ((*out)->file_bytes[0] == file->size)
		return 0;
	(void)rs_fail(err, RS_CORRUPT,
		"%s: expected %" PRIu64 " bytes by its header, found %" PRIu64, file->name,
		(*out)->file_bytes[0], file->size);
fail:
	rs_arena_free((*out)->arena);
	return -1;
}

/* A table without entries, for a file that nobody looks into. */
static int load_raw(const struct rs_file *file, struct rs_table **out, struct rs_err *err)
{
	struct rs_arena *arena = rs_arena_new(4096, err);
	struct rs_table *t = arena ? RS_NEW(arena, struct rs_table, err) : NULL;
	uint64_t *bytes = t ? RS_NEW(arena, uint64_t, err) : NULL;

	if (!bytes) {
		rs_arena_free(arena);
		return -1;
	}
	*bytes = file->size;
	*t = (struct rs_table){.file_bytes = bytes, .n_files = 1, .arena = arena};
	if (rs_table_finish(t, file->name, err) < 0) {
		rs_arena_free(arena);
		return -1;
	}
	*out = t;
	return 0;
}

static int load_unit(void *self, const struct rs_unit *unit, const struct rs_file *const *files,
	struct rs_table **out, struct rs_err *err)
{
	const struct loader *l = self;

	if (unit->first_file >= l->first_raw)
		return load_raw(files[0], out, err);
	struct rs_table **parts = rs_alloc(unit->n_files * sizeof(struct rs_table *), err);
	uint32_t n = 0;
	int status = -1;
	if (!parts)
		return -1;
	while (n < unit->n_files && load_file(l, files[n], &parts[n], err) == 0)
		n++;
	if (n == unit->n_files) {
		status = rs_table_join(parts, n, out, err);
		n = 0; /* taken over */
	}
	while (n > 0)
		rs_arena_free(parts[--n]->arena);
	rs_free(parts);
	return status;
}

/* -------------------------------------------------------------------- names */

static int add_names(struct loader *l, struct rs_err *err)
{
	struct rs_arena *arena = rs_catalog_arena(l->src->cat);
	const char *source = l->src->opts.path;
	size_t len = strlen(source);
	const char *slash = len && source[len - 1] == '/' ? "" : "/";

	l->n_names = rs_catalog_n_files(l->src->cat);
	l->names = RS_NEW_N(arena, struct name, l->n_names, err);
	if (!l->names)
		return -1;
	for (uint32_t i = 0; i < l->n_names; i++) {
		const char *path = rs_catalog_file_info(l->src->cat, i)->path;
		const char *shown =
			path[0] ? rs_arena_printf(arena, err, "%s%s%s", source, slash, path)
				: source;
		if (!shown)
			return -1;
		l->names[i] = (struct name){path, shown};
	}
	if (l->n_names)
		qsort(l->names, l->n_names, sizeof(*l->names), by_path);
	return 0;
}

int rs__loader_set(struct rs_source *src, rs__header_fn header, uint32_t n_data, struct rs_err *err)
{
	struct loader *l = RS_NEW(rs_catalog_arena(src->cat), struct loader, err);

	if (!l)
		return -1;
	*l = (struct loader){.src = src, .header = header};
	l->first_raw = n_data < rs_catalog_n_units(src->cat)
			       ? rs_catalog_unit(src->cat, n_data)->first_file
			       : UINT32_MAX;
	if (add_names(l, err) < 0)
		return -1;
	rs_catalog_set_loader(
		src->cat, (struct rs_loader){.open = open_file, .load = load_unit, .self = l});
	return 0;
}

void rs__close_behind(struct rs_identity *file, const struct rs_identity *dir)
{
	if (!(dir->mode & S_IXOTH))
		file->mode &= ~(uint32_t)S_IROTH;
	/*
	 * A group of the file's own must be able to pass as group and, when the directory belongs
	 * to another one, as anybody.
	 */
	if (!(dir->mode & S_IXGRP) || (dir->gid != file->gid && !(dir->mode & S_IXOTH)))
		file->mode &= ~(uint32_t)S_IRGRP;
}

/* ---------------------------------------------------------------- several at a time */

#define LOADERS 8 /* header reads wait for the disk; more bring little, also on one CPU */

struct crew {
	struct rs_catalog *cat;
	uint32_t n;
	atomic_uint_fast64_t next;
	pthread_mutex_t lock;
	uint64_t failed; /* the lowest unit that failed, and why; guarded by lock */
	struct rs_err why;
};

static void *work(void *arg)
{
	struct crew *crew = arg;
	struct rs_err why;

	for (;;) {
		uint64_t i = atomic_fetch_add(&crew->next, 1);
		if (i >= crew->n)
			return NULL;
		why = (struct rs_err){0};
		if (rs_catalog_table(crew->cat, (uint32_t)i, &why))
			continue;
		/* Units are taken in order, so a lower one can fail later but not be left out. */
		atomic_store(&crew->next, crew->n);
		pthread_mutex_lock(&crew->lock);
		if (i < crew->failed) {
			crew->failed = i;
			crew->why = why;
		}
		pthread_mutex_unlock(&crew->lock);
	}
}

int rs__load_units(struct rs_catalog *cat, uint32_t n, struct rs_err *err)
{
	struct crew crew = {.cat = cat, .n = n, .failed = UINT64_MAX};
	pthread_t threads[LOADERS];
	uint32_t started = 0;

	pthread_mutex_init(&crew.lock, NULL);
	/* A thread that cannot be started is no loss: this one does the rest. */
	while (started + 1 < rs_min(LOADERS, n) &&
		pthread_create(&threads[started], NULL, work, &crew) == 0)
		started++;
	work(&crew);
	for (uint32_t i = 0; i < started; i++)
		pthread_join(threads[i], NULL);
	pthread_mutex_destroy(&crew.lock);
	if (crew.failed == UINT64_MAX)
		return 0;
	if (err)
		*err = crew.why;
	return -1;
}
