/*
 * emit_layers.c - tensors of an emitted plan that differ by their layer alone become one rule.
 *
 * A group is made only if the pattern says exactly what it holds: every layer from 0 on is there,
 * all are cut alike, and with several stages layer i of L is on stage i * P / L, as ranges deal
 * indices out. Whatever does not fit keeps a rule of its own. Read next: emit_plan.c.
 */
#include "core/target/emit/emit_plan.h"

#include <stdlib.h>

struct member {
	struct rs_str pattern;
	uint64_t layer, item;
};

static int by_pattern(const void *a, const void *b)
{
	const struct member *x = a, *y = b;
	int order = rs_str_cmp(x->pattern, y->pattern);

	return order ? order : (x->layer > y->layer) - (x->layer < y->layer);
}

/* "model.layers.3.wo" -> "model.layers.{N}.wo", 3; 0 when there is no layer in the name. */
static int make_member(struct rs__emit *e, uint64_t i, struct member *m, struct rs_err *err)
{
	struct rs_str name = e->survey.items[i].name, stem;

	if (!rs__layer_of(name, &stem, &m->layer))
		return 0;
	size_t digits = stem.len + 1, rest = digits;
	while (name.ptr[rest] != '.')
		rest++;
	if (name.ptr[digits] == '0' && rest > digits + 1)
		return 0; /* "007" is not what a number is printed as */
	char *text = rs_arena_alloc(e->t->arena, name.len + 4, err);
	if (!text)
		return -1;
	memcpy(text, name.ptr, digits);
	memcpy(text + digits, "{N}", 3);
	memcpy(text + digits + 3, name.ptr + rest, name.len - rest);
	m->pattern = (struct rs_str){text, name.len - (rest - digits) + 3};
	m->item = i;
	return 1;
}

/* The one stage that has the item, or n_stages; with one stage 0. */
static uint32_t only_stage(const struct rs__survey *s, const struct rs__seen *item)
{
	uint32_t found = s->n_stages;

	for (uint32_t stage = 0; stage < s->n_stages; stage++)
		if (item->cells[(uint64_t)stage * s->devices] != RS__ABSENT) {
			if (found != s->n_stages)
				return s->n_stages;
			found = stage;
		}
	return found;
}

static bool alike(const struct rs__survey *s, const struct rs__seen *a, const struct rs__seen *b)
{
	uint32_t x = only_stage(s, a), y = only_stage(s, b);

	return x < s->n_stages && y < s->n_stages && a->whole.n_axes == b->whole.n_axes &&
	       a->dtype == b->dtype && a->stored == b->stored && a->loose == b->loose &&
	       memcmp(a->cuts, b->cuts, a->whole.n_axes * sizeof(a->cuts[0])) == 0 &&
	       memcmp(a->cells + (uint64_t)x * s->devices, b->cells + (uint64_t)y * s->devices,
		       s->devices * sizeof(*a->cells)) == 0;
}

/* Do the members @m[0 .. n) make a group? */
static bool fits(const struct rs__emit *e, const struct member *m, uint64_t n)
{
	const struct rs__survey *s = &e->survey;

	if (n < 2 || n != e->n_layers || e->n_layers % s->n_stages)
		return false;
	for (uint64_t i = 0; i < n; i++) {
		const struct rs__seen *item = &s->items[m[i].item];
		if (m[i].layer != i || !rs_str_eq(item->name, item->from) ||
			!alike(s, &s->items[m[0].item], item) ||
			only_stage(s, item) != i * s->n_stages / e->n_layers)
			return false;
	}
	return true;
}

static int make_groups(struct rs__emit *e, const struct member *m, uint64_t n, struct rs_err *err)
{
	for (uint64_t i = 0, next; i < n; i = next) {
		for (next = i + 1; next < n && rs_str_eq(m[next].pattern, m[i].pattern);)
			next++;
		if (!fits(e, m + i, next - i))
			continue;
		if (rs_grow(&e->groups, &e->cap_groups, e->n_groups + 1, sizeof(*e->groups), err) <
			0)
			return -1;
		e->groups[e->n_groups++] =
			(struct rs__layers){.pattern = m[i].pattern, .item = m[i].item};
		for (uint64_t k = i; k < next; k++)
			e->shared[m[k].item] = true;
	}
	return 0;
}

int rs__emit_layers(struct rs__emit *e, struct rs_err *err)
{
	struct member *members = rs_alloc((e->survey.n + 1) * sizeof(*members), err);
	uint64_t n = 0;
	int rc = 0;

	e->shared = rs_alloc(e->survey.n + 1, err);
	if (!members || !e->shared)
		rc = -1;
	for (uint64_t i = 0; rc >= 0 && i < e->survey.n; i++) {
		rc = make_member(e, i, &members[n], err);
		if (rc > 0) {
			e->n_layers = rs_max(e->n_layers, members[n].layer + 1);
			n++;
		}
	}
	if (rc >= 0) {
		qsort(members, n, sizeof(*members), by_pattern);
		rc = make_groups(e, members, n, err);
	}
	rs_free(members);
	return rc < 0 ? -1 : 0;
}
