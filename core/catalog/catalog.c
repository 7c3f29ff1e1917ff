/*
 * catalog.c - what a source has: units, files, ranks and tensors; built once, then read by all.
 *
 * Units load their headers on demand and at most once (load.c); pieces are computed from grids
 * (pieces.c). Refuses two tensors of one name, and shapes whose bytes overflow, so that no later
 * arithmetic inside a tensor needs a check.
 */
#include "core/catalog/internal.h"

#include <inttypes.h>
#include <stdlib.h>

struct rs_catalog *rs_catalog_new(uint64_t limit_bytes, struct rs_err *err)
{
	struct rs_catalog *c = rs_alloc(sizeof(*c), err);
	if (!c)
		return NULL;
	c->arena = rs_arena_new(limit_bytes, err);
	if (!c->arena) {
		rs_free(c);
		return NULL;
	}
	pthread_mutex_init(&c->lock, NULL);
	pthread_cond_init(&c->loaded, NULL);
	c->n_stages = c->stage_devices = 1;
	c->access = RS_ACCESS_PREAD;
	return c;
}

bool rs_catalog_hangs(const struct rs_catalog *c)
{
	return rs_pool_hangs(c->pool);
}

void rs_catalog_free(struct rs_catalog *c)
{
	if (!c)
		return;
	for (uint64_t i = 0; i < c->n_files; i++)
		if (atomic_load(&c->files[i].is_open))
			rs_file_close(&c->files[i].file);
	for (uint64_t i = 0; i < c->n_tables; i++)
		rs_arena_free(c->tables[i].table->arena);
	for (uint64_t i = 0; i < c->n_units; i++)
		rs_free(c->units[i].failure);
	if (c->loader.free)
		c->loader.free(c->loader.self);
	pthread_cond_destroy(&c->loaded);
	pthread_mutex_destroy(&c->lock);
	rs_notes_done(&c->notes);
	rs_pool_free(c->pool);
	rs_free(c->tables);
	rs_free(c->units);
	rs_free(c->files);
	rs_free(c->tensors);
	rs_arena_free(c->arena);
	rs_free(c);
}

struct rs_arena *rs_catalog_arena(struct rs_catalog *c)
{
	return c->arena;
}

struct rs_notes *rs_catalog_notes(struct rs_catalog *c)
{
	return &c->notes;
}

void rs_catalog_set_loader(struct rs_catalog *c, struct rs_loader loader)
{
	c->loader = loader;
}

void rs_catalog_set_names(struct rs_catalog *c, rs_name_fn fn, void *arg)
{
	c->name_fn = fn;
	c->name_arg = arg;
}

void rs_catalog_set_access(struct rs_catalog *c, enum rs_access access)
{
	c->access = access;
}

int rs_catalog_set_timeout(struct rs_catalog *c, uint32_t timeout_ms, struct rs_err *err)
{
	rs_pool_free(c->pool);
	c->pool = rs_pool_new(timeout_ms, err);
	return c->pool ? 0 : -1;
}

int rs_catalog_add_unit(struct rs_catalog *c, const char *name, const struct rs_source_file *files,
	uint32_t n_files, uint32_t *unit, struct rs_err *err)
{
	if (c->n_units + 1 >= RS_NO_UNIT || c->n_files + n_files >= UINT32_MAX)
		return rs_fail(err, RS_LIMIT, "%s: more than 2^32 source files", name);
	if (rs_grow(&c->units, &c->cap_units, c->n_units + 1, sizeof(*c->units), err) < 0 ||
		rs_grow(&c->files, &c->cap_files, c->n_files + n_files, sizeof(*c->files), err) < 0)
		return -1;

	struct unit *u = &c->units[c->n_units];
	*u = (struct unit){.pub = {.first_file = (uint32_t)c->n_files, .n_files = n_files}};
	u->pub.name = rs_arena_copy(c->arena, name, strlen(name), err);
	if (!u->pub.name)
		return -1;
	for (uint32_t i = 0; i < n_files; i++) {
		struct source_file *f = &c->files[c->n_files + i];
		*f = (struct source_file){.pub = files[i], .file = {.fd = -1}};
		f->pub.path = rs_arena_copy(c->arena, files[i].path, strlen(files[i].path), err);
		if (!f->pub.path)
			return -1;
	}
	*unit = (uint32_t)c->n_units++;
	c->n_files += n_files;
	return 0;
}

void rs_catalog_set_absent(struct rs_catalog *c, uint32_t unit)
{
	c->units[unit].pub.absent = true;
}

int rs_catalog_set_ranks(struct rs_catalog *c, const uint32_t *units, uint32_t n_stages,
	uint32_t stage_devices, struct rs_err *err)
{
	uint64_t n = (uint64_t)n_stages * stage_devices;
	if (n > RS_MAX_CELLS)
		return rs_fail(err, RS_LIMIT, "%" PRIu64 " source ranks, the limit is %u", n,
			RS_MAX_CELLS);
	c->rank_units = RS_NEW_N(c->arena, uint32_t, n, err);
	if (!c->rank_units)
		return -1;
	memcpy(c->rank_units, units, n * sizeof(*units));
	c->n_stages = n_stages;
	c->stage_devices = stage_devices;
	return 0;
}

int rs_catalog_add_tensor(struct rs_catalog *c, const struct rs_tensor *t, struct rs_err *err)
{
	struct rs_str name = t->name;
	uint64_t bytes;
	int kept = c->name_fn ? c->name_fn(c->name_arg, t, &name, err) : 1;

	if (kept <= 0)
		return kept;
	if (t->shape.n_axes > RS_MAX_AXES || !rs_shape_bytes(&t->shape, t->dtype, &bytes))
		return rs_fail(err, RS_LIMIT, "tensor '%s': %s of %s does not fit 64 bits",
			RS_SHOW(t->name), RS_SHAPE_SHOW(&t->shape), rs_dtype_name(t->dtype));
	if (rs_grow(&c->tensors, &c->cap_tensors, c->n_tensors + 1, sizeof(*c->tensors), err) < 0)
		return -1;
	struct rs_tensor *mine = &c->tensors[c->n_tensors++];
	*mine = *t;
	if (!rs_str_eq(name, t->name)) {
		mine->stored = rs_tensor_stored(t);
		mine->name = name;
	}
	c->sealed = false;
	return 0;
}

static int tensor_order(const void *a, const void *b)
{
	const struct rs_tensor *x = a, *y = b;
	return rs_str_cmp(x->name, y->name);
}

static int refuse_twins(const struct rs_catalog *c, const struct rs_tensor *a,
	const struct rs_tensor *b, struct rs_err *err)
{
	if (!rs_str_eq(rs_tensor_stored(a), rs_tensor_stored(b)))
		return rs_fail(err, RS_USAGE, "tensors '%s' and '%s' would both be called '%s'",
			RS_SHOW(rs_tensor_stored(a)), RS_SHOW(rs_tensor_stored(b)),
			RS_SHOW(a->name));
	return rs_fail(err, RS_CORRUPT, "tensor '%s' stands in %s and in %s", RS_SHOW(a->name),
		rs_catalog_unit(c, a->witness)->name, rs_catalog_unit(c, b->witness)->name);
}

int rs_catalog_seal(struct rs_catalog *c, struct rs_err *err)
{
	if (c->sealed)
		return 0;
	if (c->n_tensors)
		qsort(c->tensors, c->n_tensors, sizeof(*c->tensors), tensor_order);
	for (uint64_t i = 1; i < c->n_tensors; i++)
		if (rs_str_eq(c->tensors[i - 1].name, c->tensors[i].name))
			return refuse_twins(c, &c->tensors[i - 1], &c->tensors[i], err);
	c->sealed = true;
	return 0;
}

uint32_t rs_catalog_n_units(const struct rs_catalog *c)
{
	return (uint32_t)c->n_units;
}

const struct rs_unit *rs_catalog_unit(const struct rs_catalog *c, uint32_t unit)
{
	return &c->units[unit].pub;
}

uint32_t rs_catalog_n_stages(const struct rs_catalog *c)
{
	return c->n_stages;
}

uint32_t rs_catalog_stage_devices(const struct rs_catalog *c)
{
	return c->stage_devices;
}

uint32_t rs_catalog_rank_unit(const struct rs_catalog *c, uint64_t rank)
{
	if (!c->rank_units) /* a source without ranks: everything belongs to rank 0 */
		return rank == 0 && c->n_units == 1 ? 0 : RS_NO_UNIT;
	return rank < (uint64_t)c->n_stages * c->stage_devices ? c->rank_units[rank] : RS_NO_UNIT;
}

uint64_t rs_catalog_n_tensors(const struct rs_catalog *c)
{
	return c->n_tensors;
}

const struct rs_tensor *rs_catalog_tensor(const struct rs_catalog *c, uint64_t i)
{
	return &c->tensors[i];
}

const struct rs_tensor *rs_catalog_find(const struct rs_catalog *c, struct rs_str name)
{
	struct rs_tensor key = {.name = name};
	if (!c->n_tensors)
		return NULL;
	return bsearch(&key, c->tensors, c->n_tensors, sizeof(key), tensor_order);
}

uint32_t rs_catalog_n_files(const struct rs_catalog *c)
{
	return (uint32_t)c->n_files;
}

const struct rs_source_file *rs_catalog_file_info(const struct rs_catalog *c, uint32_t file)
{
	return &c->files[file].pub;
}
