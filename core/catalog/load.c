/*
 * load.c - what changes in a sealed catalog: units that load their header, files that open.
 *
 * Each happens once, at first need, by whichever thread comes first. One mutex guards the states;
 * it is never held across I/O. Readers of what is ready take no lock: state and is_open are
 * released after what they announce.
 */
#include "core/catalog/internal.h"

#include <inttypes.h>

static bool same_file(const struct rs_identity *a, const struct rs_identity *b)
{
	return a->ino == b->ino && a->size == b->size && a->mtime_ns == b->mtime_ns &&
	       a->ctime_ns == b->ctime_ns;
}

const struct rs_file *rs_catalog_file(struct rs_catalog *c, uint32_t file, struct rs_err *err)
{
	struct source_file *f = &c->files[file];
	struct rs_file opened;

	if (atomic_load_explicit(&f->is_open, memory_order_acquire))
		return &f->file;
	int failed = c->pool ? rs_pool_open(c->pool, c->loader.open, c->loader.self, f->pub.path,
				       &opened, err)
			     : c->loader.open(c->loader.self, f->pub.path, &opened, err);
	if (failed)
		return NULL;
	if (!same_file(&opened.id, &f->pub.id)) {
		rs_file_close(&opened);
		rs_fail(err, RS_CHANGED,
			"%s: changed since it was listed (%" PRIu64 " bytes then, %" PRIu64 " now)",
			f->pub.path, f->pub.id.size, opened.id.size);
		rs_hint(err, "unmount and mount again once the source is complete");
		return NULL;
	}
	rs_file_map(&opened, c->access);
	if (!opened.map)
		opened.pool = c->pool;
	pthread_mutex_lock(&c->lock);
	bool late = atomic_load_explicit(&f->is_open, memory_order_relaxed);
	if (!late) {
		f->file = opened;
		atomic_store_explicit(&f->is_open, true, memory_order_release);
	}
	pthread_mutex_unlock(&c->lock);
	if (late)
		rs_file_close(&opened);
	return &f->file;
}

/* Share @t with an equal table if there is one: the ranks of a stage have equal headers. */
static const struct rs_table *intern(struct rs_catalog *c, struct rs_table *t, struct rs_err *err)
{
	uint64_t hash = rs__table_hash(t);
	for (uint64_t i = 0; i < c->n_tables; i++)
		if (c->tables[i].hash == hash && rs__table_eq(c->tables[i].table, t)) {
			rs_arena_free(t->arena);
			return c->tables[i].table;
		}
	if (rs_grow(&c->tables, &c->cap_tables, c->n_tables + 1, sizeof(*c->tables), err) < 0) {
		rs_arena_free(t->arena);
		return NULL;
	}
	c->tables[c->n_tables++] = (struct shared_table){hash, t};
	return t;
}

static struct rs_table *load(struct rs_catalog *c, const struct rs_unit *u, struct rs_err *err)
{
	struct rs_table *table = NULL;
	const struct rs_file **files = rs_alloc((u->n_files + 1) * sizeof(*files), err);
	if (!files)
		return NULL;
	for (uint32_t i = 0; i < u->n_files; i++) {
		files[i] = rs_catalog_file(c, u->first_file + i, err);
		if (!files[i])
			goto out;
	}
	if (c->loader.load(c->loader.self, u, files, &table, err) < 0)
		table = NULL;
out:
	rs_free(files);
	return table;
}

/* Take the loading of @u upon us, or learn its end. Returns true when the caller must load. */
static bool claim(struct rs_catalog *c, struct unit *u, struct rs_err *err)
{
	bool ours = false;

	pthread_mutex_lock(&c->lock);
	while (atomic_load_explicit(&u->state, memory_order_relaxed) == UNIT_LOADING)
		pthread_cond_wait(&c->loaded, &c->lock);
	enum unit_state state = atomic_load_explicit(&u->state, memory_order_relaxed);
	if (state == UNIT_EMPTY) {
		atomic_store_explicit(&u->state, UNIT_LOADING, memory_order_relaxed);
		ours = true;
	} else if (state == UNIT_FAILED && err) {
		*err = *u->failure;
	}
	pthread_mutex_unlock(&c->lock);
	return ours;
}

const struct rs_table *rs_catalog_table(struct rs_catalog *c, uint32_t unit, struct rs_err *err)
{
	struct unit *u = &c->units[unit];
	struct rs_err why = {0};

	if (atomic_load_explicit(&u->state, memory_order_acquire) == UNIT_READY)
		return u->table;
	if (!claim(c, u, err))
		return atomic_load_explicit(&u->state, memory_order_acquire) == UNIT_READY
			       ? u->table
			       : NULL;
	struct rs_table *table = load(c, &u->pub, &why);
	struct rs_err *kept = table || rs_err_passes(&why) ? NULL : rs_alloc(sizeof(*kept), NULL);
	enum unit_state end = UNIT_READY;

	pthread_mutex_lock(&c->lock);
	u->table = table ? intern(c, table, &why) : NULL;
	if (!u->table) {
		/* What may pass (I/O, memory) is tried again at the next look. */
		end = kept ? UNIT_FAILED : UNIT_EMPTY;
		if (kept)
			*kept = why;
		u->failure = kept;
	}
	atomic_store_explicit(&u->state, end, memory_order_release);
	pthread_cond_broadcast(&c->loaded);
	pthread_mutex_unlock(&c->lock);
	if (!u->table && err)
		*err = why;
	return u->table;
}

bool rs_catalog_loaded(const struct rs_catalog *c, uint32_t unit)
{
	return atomic_load_explicit(&c->units[unit].state, memory_order_acquire) == UNIT_READY;
}
