/*
 * emit_plan.c - a target as the plan that makes the same files: for reading, for changing by hand.
 *
 * Cells of all tensors become digits of the rank, the digits of all tensors one mesh, and every
 * tensor a rule; tensors that differ by their layer alone share one:
 *
 *   {"to":"model.layers.{N}.wo","from":"model.layers.{N}.wo","cut":[{"dim":1,"axis":"tp"}]}
 *
 * Options that act on names or types (only=, exclude=, rename=, dtype=) are not part of it. Refuses
 * what rules cannot say: slices kept as stored, names with braces, cuts of no common mesh.
 * Targets that go by rules: emit_rules.c. Read next: emit_layers.c.
 */
#include "core/target/emit/emit_plan.h"

#include <inttypes.h>
#include <stdlib.h>

/* ------------------------------------------------------------------------- mesh */

static int by_value(const void *a, const void *b)
{
	const uint32_t *x = a, *y = b;
	return (*x > *y) - (*x < *y);
}

static void add_border(struct rs__emit *e, uint32_t border)
{
	for (uint32_t i = 0; i < e->n_borders; i++)
		if (e->borders[i] == border)
			return;
	if (e->n_borders < RS__BORDERS_MAX)
		e->borders[e->n_borders++] = border;
}

/* Where any digit of any tensor begins or ends, an axis of the mesh does. */
static int find_borders(struct rs__emit *e, struct rs_err *err)
{
	const struct rs__survey *s = &e->survey;
	struct rs__digit digits[RS__DIGITS_MAX];
	uint32_t n;

	add_border(e, 1);
	add_border(e, s->devices);
	for (uint64_t i = 0; i < s->n; i++)
		for (uint32_t stage = 0; stage < s->n_stages; stage++) {
			const uint32_t *cells = s->items[i].cells + (uint64_t)stage * s->devices;
			if (cells[0] == RS__ABSENT)
				continue;
			if (!rs__digits(&s->items[i], cells, s->devices, digits, &n))
				return rs__digits_fail(e->t, &s->items[i], err);
			for (uint32_t k = 0; k < n; k++) {
				add_border(e, digits[k].stride);
				add_border(e, digits[k].stride * digits[k].extent);
			}
		}
	qsort(e->borders, e->n_borders, sizeof(e->borders[0]), by_value);
	for (uint32_t i = 1; i < e->n_borders; i++)
		if (e->borders[i] % e->borders[i - 1] || e->n_borders == RS__BORDERS_MAX) {
			rs_fail(err, RS_USAGE,
				"target %s: no mesh of ranks has axes for all of its cuts",
				e->t->opts.target);
			return rs_hint(err, "a plan has one mesh; this target stays a strategy");
		}
	return 0;
}

/* The words of a short target name the axes, where they are its axes. */
static int name_axes(struct rs__emit *e, struct rs_err *err)
{
	struct rs__short s;
	uint32_t n = 0, at = 0;

	for (uint32_t i = 0; i + 1 < e->n_borders; i++) {
		e->sizes[n] = e->borders[i + 1] / e->borders[i];
		e->axes[n] = rs_arena_printf(e->t->arena, err, "m%" PRIu32, n + 1);
		if (!e->axes[n++])
			return -1;
	}
	e->n_axes = n;
	if (!rs__short_is(rs_str(e->t->opts.target)) ||
		rs__short_parse(rs_str(e->t->opts.target), &s, NULL) < 0)
		return 0;
	for (uint32_t pass = 0; pass < 2; pass++) {
		at = 0;
		for (uint32_t i = 0; i < s.n_words; i++) {
			if (s.words[i].size == 1 || rs_str_is(s.words[i].name, "pp"))
				continue;
			if (at == n || s.words[i].size != e->sizes[at])
				return 0;
			if (pass == 1 && !(e->axes[at] = rs_arena_copy(e->t->arena,
						   s.words[i].name.ptr, s.words[i].name.len, err)))
				return -1;
			at++;
		}
		if (at != n)
			return 0;
	}
	return 0;
}

static void put_axis(struct rs_jsonw *w, const char *name, uint64_t size)
{
	rs_jsonw_open(w, '{');
	w->pretty = false;
	rs_jsonw_key(w, RS_STR("name"));
	rs_jsonw_str(w, rs_str(name));
	rs_jsonw_key(w, RS_STR("size"));
	rs_jsonw_uint(w, size);
	rs_jsonw_close(w, '}');
	w->pretty = true;
}

static void put_mesh(struct rs__emit *e)
{
	struct rs_jsonw *w = &e->w;

	rs_jsonw_key(w, RS_STR("mesh"));
	rs_jsonw_open(w, '{');
	rs_jsonw_key(w, RS_STR("axes"));
	rs_jsonw_open(w, '[');
	if (e->survey.n_stages > 1 || e->n_axes == 0)
		put_axis(w, "pp", e->survey.n_stages);
	for (uint32_t i = e->n_axes; i-- > 0;)
		put_axis(w, e->axes[i], e->sizes[i]);
	rs_jsonw_close(w, ']');
	rs_jsonw_close(w, '}');
}

/* ------------------------------------------------------------------------ rules */

static int by_weight(const void *a, const void *b)
{
	const struct rs__digit *x = a, *y = b;

	if (x->axis != y->axis)
		return x->axis < y->axis ? -1 : 1;
	return (x->weight < y->weight) - (x->weight > y->weight);
}

/* A digit may span several axes of the mesh: the outermost is the most significant. */
static void put_digit(struct rs__emit *e, const struct rs__digit *d)
{
	for (uint32_t i = e->n_axes; i-- > 0;)
		if (e->borders[i] >= d->stride && e->borders[i + 1] <= d->stride * d->extent) {
			rs_jsonw_open(&e->w, '{');
			rs_jsonw_key(&e->w, RS_STR("dim"));
			rs_jsonw_uint(&e->w, d->axis);
			rs_jsonw_key(&e->w, RS_STR("axis"));
			rs_jsonw_str(&e->w, rs_str(e->axes[i]));
			rs_jsonw_close(&e->w, '}');
		}
}

static void put_cuts(struct rs__emit *e, const struct rs__seen *item, const uint32_t *cells)
{
	struct rs__digit digits[RS__DIGITS_MAX];
	uint32_t n;

	if (!rs__digits(item, cells, e->survey.devices, digits, &n) || n == 0)
		return; /* there is no other case: the mesh was made of them */
	qsort(digits, n, sizeof(*digits), by_weight);
	rs_jsonw_key(&e->w, RS_STR("cut"));
	rs_jsonw_open(&e->w, '[');
	for (uint32_t i = 0; i < n; i++)
		put_digit(e, &digits[i]);
	rs_jsonw_close(&e->w, ']');
}

/* Stages of @item that are cut as @first is. @done: those that are told; marks the others so. */
static void put_stages(
	struct rs__emit *e, const struct rs__seen *item, uint32_t first, uint8_t *done, bool say)
{
	const struct rs__survey *s = &e->survey;
	size_t bytes = s->devices * sizeof(uint32_t);
	const uint32_t *like = item->cells + (uint64_t)first * s->devices;

	if (say) {
		rs_jsonw_key(&e->w, RS_STR("on"));
		rs_jsonw_open(&e->w, '{');
		rs_jsonw_key(&e->w, RS_STR("pp"));
		rs_jsonw_open(&e->w, '[');
	}
	for (uint32_t stage = first; stage < s->n_stages; stage++)
		if (memcmp(item->cells + (uint64_t)stage * s->devices, like, bytes) == 0) {
			done[stage] = 1;
			if (say)
				rs_jsonw_uint(&e->w, stage);
		}
	if (say) {
		rs_jsonw_close(&e->w, ']');
		rs_jsonw_close(&e->w, '}');
	}
}

static void put_rule(struct rs__emit *e, const struct rs__seen *item, struct rs_str to,
	struct rs_str from, uint32_t stage, uint8_t *done, bool say_stages)
{
	struct rs_jsonw *w = &e->w;

	rs_jsonw_open(w, '{');
	w->pretty = false;
	rs_jsonw_key(w, RS_STR("to"));
	rs_jsonw_str(w, to);
	rs_jsonw_key(w, RS_STR("from"));
	rs_jsonw_str(w, from);
	put_cuts(e, item, item->cells + (uint64_t)stage * e->survey.devices);
	put_stages(e, item, stage, done, say_stages);
	if (item->dtype != item->stored) {
		rs_jsonw_key(w, RS_STR("dtype"));
		rs_jsonw_str(w, rs_str(rs_dtype_name(item->dtype)));
	}
	rs_jsonw_close(w, '}');
	w->pretty = true;
}

/* Does every stage hold it, and cut alike? */
static bool everywhere(const struct rs__survey *s, const struct rs__seen *item)
{
	for (uint32_t stage = 0; stage < s->n_stages; stage++)
		if (item->cells[(uint64_t)stage * s->devices] == RS__ABSENT ||
			memcmp(item->cells, item->cells + (uint64_t)stage * s->devices,
				s->devices * sizeof(*item->cells)) != 0)
			return false;
	return true;
}

static void put_item(struct rs__emit *e, const struct rs__seen *item, uint8_t *done)
{
	memset(done, 0, e->survey.n_stages);
	for (uint32_t stage = 0; stage < e->survey.n_stages; stage++)
		if (!done[stage] && item->cells[(uint64_t)stage * e->survey.devices] != RS__ABSENT)
			put_rule(e, item, item->name, item->from, stage, done,
				!everywhere(&e->survey, item));
}

static int check_item(const struct rs__emit *e, const struct rs__seen *item, struct rs_err *err)
{
	if (item->kept) {
		rs_fail(err, RS_USAGE,
			"target %s: slices of tensor '%s' are kept as stored, which no plan says",
			e->t->opts.target, RS_SHOW(item->name));
		return rs_hint(err,
			"-o default=replicate or drop says what becomes of tensors that "
			"the target does not name");
	}
	if (memchr(item->name.ptr, '{', item->name.len) ||
		memchr(item->name.ptr, '}', item->name.len) ||
		memchr(item->from.ptr, '{', item->from.len) ||
		memchr(item->from.ptr, '}', item->from.len))
		return rs_fail(err, RS_USAGE,
			"target %s: tensor '%s' has braces in its name, which stand for captures "
			"in "
			"plans",
			e->t->opts.target, RS_SHOW(item->name));
	return 0;
}

static int by_str(const void *a, const void *b)
{
	return rs_str_cmp(*(const struct rs_str *)a, *(const struct rs_str *)b);
}

/* Tensors of the source that are on no rank are left out on purpose. */
static int put_drops(struct rs__emit *e, struct rs_err *err)
{
	const struct rs_catalog *cat = e->t->source->cat;
	struct rs_str *used = rs_alloc((e->survey.n + 1) * sizeof(*used), err);

	if (!used)
		return -1;
	for (uint64_t i = 0; i < e->survey.n; i++)
		used[i] = e->survey.items[i].from;
	qsort(used, e->survey.n, sizeof(*used), by_str);
	for (uint64_t i = 0; i < rs_catalog_n_tensors(cat); i++) {
		struct rs_str name = rs_catalog_tensor(cat, i)->name;
		if (bsearch(&name, used, e->survey.n, sizeof(*used), by_str))
			continue;
		rs_jsonw_open(&e->w, '{');
		rs_jsonw_key(&e->w, RS_STR("drop"));
		rs_jsonw_str(&e->w, name);
		rs_jsonw_close(&e->w, '}');
	}
	rs_free(used);
	return 0;
}

static int put_rules(struct rs__emit *e, struct rs_err *err)
{
	uint8_t *done = rs_alloc(e->survey.n_stages, err);
	int rc = done ? 0 : -1;

	for (uint64_t i = 0; rc == 0 && i < e->survey.n; i++)
		rc = check_item(e, &e->survey.items[i], err);
	if (rc == 0) {
		rs_jsonw_key(&e->w, RS_STR("rules"));
		rs_jsonw_open(&e->w, '[');
		for (uint64_t i = 0; i < e->survey.n; i++)
			if (!e->shared[i])
				put_item(e, &e->survey.items[i], done);
		for (uint64_t i = 0; i < e->n_groups; i++)
			put_rule(e, &e->survey.items[e->groups[i].item], e->groups[i].pattern,
				e->groups[i].pattern, e->groups[i].stage, done, false);
		rc = put_drops(e, err);
		rs_jsonw_close(&e->w, ']');
	}
	rs_free(done);
	return rc;
}

/* ------------------------------------------------------------------------- plan */

static int put_files(struct rs__emit *e, struct rs_err *err)
{
	const struct rs_target *t = e->t;
	const char *path =
		rs_arena_printf(t->arena, err, "rank_{rank}/%s", t->container_default_name);

	if (!path)
		return -1;
	rs_jsonw_key(&e->w, RS_STR("files"));
	rs_jsonw_open(&e->w, '{');
	rs_jsonw_key(&e->w, RS_STR("path"));
	rs_jsonw_str(&e->w, rs_str(path));
	rs_jsonw_key(&e->w, RS_STR("format"));
	rs_jsonw_str(&e->w, rs_str(t->container));
	if (t->mindspore && !t->source->mindspore) { /* else the source says it already */
		rs_jsonw_key(&e->w, RS_STR("metadata"));
		rs_jsonw_open(&e->w, '{');
		rs_jsonw_key(&e->w, RS_STR("format"));
		rs_jsonw_str(&e->w, RS_STR("ms"));
		rs_jsonw_close(&e->w, '}');
	}
	rs_jsonw_close(&e->w, '}');
	return 0;
}

static void put_ranges(struct rs__emit *e)
{
	if (e->n_groups == 0 || e->survey.n_stages == 1)
		return; /* {N} then stands for any text */
	rs_jsonw_key(&e->w, RS_STR("ranges"));
	rs_jsonw_open(&e->w, '{');
	rs_jsonw_key(&e->w, RS_STR("N"));
	rs_jsonw_open(&e->w, '{');
	rs_jsonw_key(&e->w, RS_STR("axis"));
	rs_jsonw_str(&e->w, RS_STR("pp"));
	rs_jsonw_key(&e->w, RS_STR("count"));
	rs_jsonw_uint(&e->w, e->n_layers);
	rs_jsonw_close(&e->w, '}');
	rs_jsonw_close(&e->w, '}');
}

static int put_plan(struct rs__emit *e, struct rs_err *err)
{
	if (find_borders(e, err) < 0 || name_axes(e, err) < 0 || rs__emit_layers(e, err) < 0)
		return -1;
	rs_jsonw_open(&e->w, '{');
	rs_jsonw_key(&e->w, RS_STR("reshard_plan"));
	rs_jsonw_uint(&e->w, 1);
	put_mesh(e);
	if (put_files(e, err) < 0)
		return -1;
	put_ranges(e);
	if (put_rules(e, err) < 0)
		return -1;
	rs_jsonw_close(&e->w, '}');
	return 0;
}

int rs_target_emit_plan(struct rs_target *t, char **text, uint64_t *len, struct rs_err *err)
{
	struct rs__emit e = {.t = t};
	int rc;

	if (rs__emit_has_rules(t))
		return rs__emit_rules(t, text, len, err);
	if (rs__survey_run(t, &e.survey, err) < 0)
		return -1;
	rs_jsonw_init(&e.w, true);
	rc = put_plan(&e, err);
	*text = rs_jsonw_take(&e.w, len, rc == 0 ? err : NULL);
	if (rc < 0 && *text) {
		rs_free(*text);
		*text = NULL;
	}
	rs_free(e.shared);
	rs_free(e.groups);
	rs__survey_done(&e.survey);
	return *text ? 0 : -1;
}
