/*
 * strategy_build.c - put a strategy together, whatever it is made from.
 *
 * Checks names (UTF-8, no zero byte, RS_MAX_NAME), shares equal layouts, tells a merged file from
 * one stage's file and indexes parameters by (name, stage). Refuses a parameter that stands twice:
 * MindSpore lets the later one win, but no file of its own making has two, so it is damage.
 * Read next: strategy_pb.c and strategy_json.c, which pour files in.
 */
#include <stdlib.h>

#include "core/layout/strategy_internal.h"

#define FIRST_SLOTS 256

int rs__build_begin(struct rs__build *b, const char *path, uint64_t n_operators, uint64_t n_params,
	struct rs_err *err)
{
	struct rs_arena *arena;
	struct rs_strategy *s;

	*b = (struct rs__build){.max_operators = n_operators, .max_params = n_params};
	if (n_params > RS_MAX_TENSORS || n_operators > RS_MAX_TENSORS)
		return rs_fail(err, RS_LIMIT,
			"%s: %llu parameters and %llu operators, expected at most %d each", path,
			(unsigned long long)n_params, (unsigned long long)n_operators,
			RS_MAX_TENSORS);
	arena = rs_arena_new(RS_STRATEGY_MEMORY, err);
	if (!arena)
		return -1;
	s = RS_NEW(arena, struct rs_strategy, err);
	if (!s) {
		rs_arena_free(arena);
		return -1;
	}
	s->arena = arena;
	b->s = s;
	s->path = rs_arena_copy(arena, path, strlen(path), err);
	s->operators = RS_NEW_N(arena, struct rs_operator, n_operators, err);
	s->params = RS_NEW_N(arena, struct rs_placed, n_params, err);
	b->slots = rs_alloc(FIRST_SLOTS * sizeof(*b->slots), err);
	b->n_slots = FIRST_SLOTS;
	if (!s->path || !s->operators || !s->params || !b->slots) {
		rs__build_drop(b);
		return -1;
	}
	return 0;
}

void rs__build_drop(struct rs__build *b)
{
	rs_free(b->slots);
	rs_free(b->list);
	rs_strategy_free(b->s);
	*b = (struct rs__build){0};
}

static int check_name(
	const struct rs__build *b, const char *what, struct rs_str name, struct rs_err *err)
{
	if (name.len > RS_MAX_NAME)
		return rs_fail(err, RS_LIMIT, "%s: %s '%s': name of %zu bytes, expected at most %d",
			b->s->path, what, RS_SHOW(name), name.len, RS_MAX_NAME);
	if (memchr(name.ptr, 0, name.len) || !rs_utf8_ok(name))
		return rs_fail(err, RS_CORRUPT, "%s: %s '%s': expected a name in UTF-8", b->s->path,
			what, RS_SHOW(name));
	return 0;
}

/* ------------------------------------------------------------------ operators */

int rs__cuts_input(struct rs__cuts *c, struct rs_err *err)
{
	if (c->n_inputs == RS_MAX_INPUTS)
		return rs_fail(err, RS_LIMIT, "expected at most %d inputs", RS_MAX_INPUTS);
	if (rs_grow(&c->first, &c->cap_first, c->n_inputs + 2, sizeof(*c->first), err) < 0)
		return -1;
	c->first[c->n_inputs++] = c->n_dims;
	c->first[c->n_inputs] = c->n_dims;
	return 0;
}

int rs__cuts_dim(struct rs__cuts *c, uint32_t dim, struct rs_err *err)
{
	if (rs_grow(&c->dims, &c->cap_dims, c->n_dims + 1, sizeof(*c->dims), err) < 0)
		return -1;
	c->dims[c->n_dims++] = dim;
	c->first[c->n_inputs] = c->n_dims;
	return 0;
}

void rs__cuts_reset(struct rs__cuts *c)
{
	c->n_dims = 0;
	c->n_inputs = 0;
}

void rs__cuts_done(struct rs__cuts *c)
{
	rs_free(c->dims);
	rs_free(c->first);
	*c = (struct rs__cuts){0};
}

int rs__build_operator(struct rs__build *b, struct rs_str name, uint32_t stage,
	const struct rs__cuts *cuts, struct rs_err *err)
{
	struct rs_arena *arena = b->s->arena;
	struct rs_operator *op = &b->s->operators[b->s->n_operators];
	const uint32_t **lists;
	uint32_t *counts, *dims;
	uint64_t i;

	if (b->s->n_operators == b->max_operators)
		return rs_fail(err, RS_LIMIT, "%s: more operators than announced", b->s->path);
	if (stage == UINT32_MAX)
		return rs_fail(err, RS_CORRUPT, "%s: operator '%s': expected a stage, found %u",
			b->s->path, RS_SHOW(name), stage);
	if (check_name(b, "operator", name, err) < 0 ||
		rs_arena_str(arena, name, &op->name, err) < 0)
		return -1;
	lists = RS_NEW_N(arena, const uint32_t *, cuts->n_inputs, err);
	counts = RS_NEW_N(arena, uint32_t, cuts->n_inputs, err);
	dims = RS_NEW_N(arena, uint32_t, cuts->n_dims, err);
	if (!lists || !counts || !dims)
		return -1;
	if (cuts->n_dims)
		memcpy(dims, cuts->dims, cuts->n_dims * sizeof(*dims));
	for (i = 0; i < cuts->n_inputs; i++) {
		lists[i] = dims + cuts->first[i];
		counts[i] = (uint32_t)(cuts->first[i + 1] - cuts->first[i]);
	}
	op->stage = stage;
	op->n_inputs = (uint32_t)cuts->n_inputs;
	op->cuts = lists;
	op->n_cuts = counts;
	b->s->n_operators++;
	return 0;
}

/* -------------------------------------------------------------------- layouts */

int rs__layout_add_dev(struct rs_layout *l, uint64_t extent, struct rs_err *err)
{
	if (l->n_dev == RS_MAX_DEVICE_DIMS)
		return rs_fail(
			err, RS_LIMIT, "expected at most %d device dimensions", RS_MAX_DEVICE_DIMS);
	if (extent == 0 || extent > UINT32_MAX)
		return rs_fail(err, RS_CORRUPT,
			"expected a positive extent of device dimension %u, found %llu", l->n_dev,
			(unsigned long long)extent);
	l->dev[l->n_dev++] = (uint32_t)extent;
	return 0;
}

int rs__layout_open_axis(struct rs_layout *l, struct rs_err *err)
{
	if (l->n_axes == RS_MAX_AXES)
		return rs_fail(
			err, RS_LIMIT, "expected at most %d axes in the tensor map", RS_MAX_AXES);
	l->n_axes++;
	l->map_first[l->n_axes] = l->map_first[l->n_axes - 1];
	return 0;
}

int rs__layout_add_map(struct rs_layout *l, int64_t value, struct rs_err *err)
{
	uint32_t *end = &l->map_first[l->n_axes];

	if (*end - l->map_first[l->n_axes - 1] == RS_MAX_DEVICE_DIMS)
		return rs_fail(err, RS_LIMIT, "axis %u: expected at most %d device dimensions",
			l->n_axes - 1, RS_MAX_DEVICE_DIMS);
	if (value < RS_MAP_NONE || value > INT32_MAX)
		return rs_fail(err, RS_CORRUPT,
			"axis %u: expected a device dimension or -1, found %lld", l->n_axes - 1,
			(long long)value);
	l->map[(*end)++] = (int32_t)value;
	return 0;
}

int rs__layout_close(struct rs_layout *l, struct rs_err *err)
{
	uint32_t i;

	if (l->n_dev == 0)
		l->dev[l->n_dev++] = 1; /* pure pipeline runs of older releases */
	if (l->n_axes == 0)
		l->nested = false;
	for (i = 0; i < l->n_split; i++)
		if (l->split[i] < 0)
			return rs_fail(err, RS_CORRUPT,
				"param_split_shape: expected rows of piece %u, found %lld", i,
				(long long)l->split[i]);
	return 0;
}

static bool same_words(const void *a, const void *b, uint64_t n, size_t size)
{
	return n == 0 || memcmp(a, b, n * size) == 0;
}

/* Equal to the last detail, unlike rs_layout_eq: what is shared must be written back alike. */
static bool identical(const struct rs_layout *a, const struct rs_layout *b)
{
	return a->n_dev == b->n_dev && a->n_axes == b->n_axes && a->nested == b->nested &&
	       a->opt_step == b->opt_step && a->opt_size == b->opt_size && a->field == b->field &&
	       a->n_split == b->n_split && a->n_offsets == b->n_offsets &&
	       a->n_shape == b->n_shape &&
	       same_words(a->dev, b->dev, a->n_dev, sizeof(a->dev[0])) &&
	       same_words(a->map_first, b->map_first, a->n_axes + 1, sizeof(uint32_t)) &&
	       same_words(a->map, b->map, a->map_first[a->n_axes], sizeof(a->map[0])) &&
	       same_words(a->split, b->split, a->n_split, sizeof(*a->split)) &&
	       same_words(a->offsets, b->offsets, a->n_offsets, sizeof(*a->offsets)) &&
	       same_words(a->shape, b->shape, a->n_shape, sizeof(*a->shape));
}

static uint64_t mix(uint64_t h, const void *bytes, uint64_t n, size_t size)
{
	const uint8_t *p = bytes;
	uint64_t i;

	for (i = 0; i < n * size; i++)
		h = (h ^ p[i]) * UINT64_C(0x100000001b3);
	return h * UINT64_C(0x9e3779b97f4a7c15) + n;
}

static uint64_t layout_hash(const struct rs_layout *l)
{
	const int64_t scalars[] = {l->nested, l->opt_step, l->opt_size, l->field};
	uint64_t h = UINT64_C(0xcbf29ce484222325);

	h = mix(h, scalars, 4, sizeof(scalars[0]));
	h = mix(h, l->dev, l->n_dev, sizeof(l->dev[0]));
	h = mix(h, l->map_first, l->n_axes + 1, sizeof(uint32_t));
	h = mix(h, l->map, l->map_first[l->n_axes], sizeof(l->map[0]));
	h = mix(h, l->split, l->n_split, sizeof(*l->split));
	h = mix(h, l->offsets, l->n_offsets, sizeof(*l->offsets));
	h = mix(h, l->shape, l->n_shape, sizeof(*l->shape));
	return h ^ (h >> 29);
}

/* The slot where @l stands, or the empty one where it belongs; half of the slots stay empty. */
static const struct rs_layout **slot_of(const struct rs__build *b, const struct rs_layout *l)
{
	uint64_t i = layout_hash(l);

	for (;; i++) {
		const struct rs_layout **slot = &b->slots[i & (b->n_slots - 1)];

		if (!*slot || identical(*slot, l))
			return slot;
	}
}

static int more_slots(struct rs__build *b, struct rs_err *err)
{
	const struct rs_layout **old = b->slots;
	uint64_t i, n = b->n_slots;

	b->slots = rs_alloc(2 * n * sizeof(*b->slots), err);
	if (!b->slots) {
		b->slots = old;
		return -1;
	}
	b->n_slots = 2 * n;
	for (i = 0; i < n; i++)
		if (old[i])
			*slot_of(b, old[i]) = old[i];
	rs_free(old);
	return 0;
}

static int copy_words(struct rs_arena *arena, const void *src, uint64_t n, size_t size, void **out,
	struct rs_err *err)
{
	*out = NULL;
	if (n == 0)
		return 0;
	*out = rs_arena_array(arena, n, size, err);
	if (!*out)
		return -1;
	memcpy(*out, src, n * size);
	return 0;
}

/* The one shared copy of @l in the arena of the strategy. */
static const struct rs_layout *intern(
	struct rs__build *b, const struct rs_layout *l, struct rs_err *err)
{
	struct rs_arena *arena = b->s->arena;
	const struct rs_layout **slot = slot_of(b, l);
	void *split, *offsets, *shape;
	struct rs_layout *mine;

	if (*slot)
		return *slot;
	mine = RS_NEW(arena, struct rs_layout, err);
	if (!mine || copy_words(arena, l->split, l->n_split, sizeof(*l->split), &split, err) < 0 ||
		copy_words(arena, l->offsets, l->n_offsets, sizeof(*l->offsets), &offsets, err) <
			0 ||
		copy_words(arena, l->shape, l->n_shape, sizeof(*l->shape), &shape, err) < 0 ||
		rs_grow(&b->list, &b->cap_list, b->n_list + 1, sizeof(*b->list), err) < 0)
		return NULL;
	*mine = *l;
	mine->split = split;
	mine->offsets = offsets;
	mine->shape = shape;
	*slot = mine;
	b->list[b->n_list++] = mine;
	if (2 * b->n_list > b->n_slots && more_slots(b, err) < 0)
		return NULL;
	return mine;
}

/* ----------------------------------------------------------------- parameters */

int rs__build_param(struct rs__build *b, struct rs_str name, uint32_t stage,
	const struct rs_layout *l, struct rs_err *err)
{
	struct rs_placed *p = &b->s->params[b->s->n_params];

	if (b->s->n_params == b->max_params)
		return rs_fail(err, RS_LIMIT, "%s: more parameters than announced", b->s->path);
	if (name.len == 0)
		return rs_fail(err, RS_CORRUPT, "%s: parameter %llu has no name", b->s->path,
			(unsigned long long)b->s->n_params);
	if (check_name(b, "parameter", name, err) < 0 ||
		rs_arena_str(b->s->arena, name, &p->name, err) < 0)
		return -1;
	p->layout = intern(b, l, err);
	if (!p->layout)
		return -1;
	p->stage = stage;
	b->s->n_params++;
	return 0;
}

/* "3-model.w": stage 3, "model.w". */
static bool take_prefix(struct rs_str name, uint32_t *stage, struct rs_str *rest)
{
	const char *dash = memchr(name.ptr, '-', name.len);
	uint64_t number;

	if (!dash)
		return false;
	*rest = (struct rs_str){dash + 1, name.len - (size_t)(dash + 1 - name.ptr)};
	if (!rs_str_u64((struct rs_str){name.ptr, (size_t)(dash - name.ptr)}, &number) ||
		number >= UINT32_MAX || rest->len == 0)
		return false;
	*stage = (uint32_t)number;
	return true;
}

void rs__build_name_stages(struct rs__build *b)
{
	struct rs_strategy *s = b->s;
	struct rs_str rest;
	uint32_t stage;
	uint64_t i;

	s->file_stage = s->n_operators ? s->operators[0].stage : 0;
	s->merged = s->n_params > 0;
	for (i = 0; i < s->n_params && s->merged; i++)
		s->merged = take_prefix(s->params[i].name, &stage, &rest);
	for (i = 0; i < s->n_params; i++)
		if (!s->merged ||
			!take_prefix(s->params[i].name, &s->params[i].stage, &s->params[i].name))
			s->params[i].stage = s->file_stage;
}

static int by_name_then_stage(const void *a, const void *b, void *arg)
{
	const struct rs_placed *params = arg;
	const struct rs_placed *x = &params[*(const uint32_t *)a];
	const struct rs_placed *y = &params[*(const uint32_t *)b];
	int c = rs_str_cmp(x->name, y->name);

	return c ? c : (x->stage > y->stage) - (x->stage < y->stage);
}

static int index_names(struct rs_strategy *s, struct rs_err *err)
{
	uint32_t *index = RS_NEW_N(s->arena, uint32_t, s->n_params, err);
	uint64_t i;

	if (!index)
		return -1;
	for (i = 0; i < s->n_params; i++)
		index[i] = (uint32_t)i;
	qsort_r(index, s->n_params, sizeof(*index), by_name_then_stage, s->params);
	for (i = 1; i < s->n_params; i++)
		if (by_name_then_stage(&index[i - 1], &index[i], s->params) == 0)
			return rs_fail(err, RS_CORRUPT,
				"%s: parameter '%s': expected one layout in stage %u, found two",
				s->path, RS_SHOW(s->params[index[i]].name),
				s->params[index[i]].stage);
	s->by_name = index;
	return 0;
}

int rs__build_seal(struct rs__build *b, struct rs_strategy **out, struct rs_err *err)
{
	struct rs_strategy *s = b->s;
	void *list;

	if (s->n_params == 0) {
		rs_fail(err, RS_CORRUPT, "%s: expected layouts of parameters, found none", s->path);
		rs_hint(err, "an empty strategy: was the network compiled in parallel mode?");
		goto fail;
	}
	if (index_names(s, err) < 0 ||
		copy_words(s->arena, b->list, b->n_list, sizeof(*b->list), &list, err) < 0)
		goto fail;
	s->layouts = list;
	s->n_layouts = b->n_list;
	b->s = NULL;
	rs__build_drop(b);
	*out = s;
	return 0;
fail:
	rs__build_drop(b);
	return -1;
}
