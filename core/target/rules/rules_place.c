/*
 * rules_place.c - what targets are called, and on which ranks they are.
 *
 * An instance has a name per rank at most. With global numbers there is one; where {N} counts in
 * the rank's share there is one for every owner of the index, each on its own ranks. Ranks are told
 * by coordinates along each axis: those that own the indices, and those that `on` asks for.
 *
 * Placements of one name stand together, by rule: on a rank that several claim the first has it.
 * Refuses a rule that gives one name twice on a rank, and sources that end up nowhere.
 * Read next: rules_value.c.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "core/target/rules/rules.h"

struct placing {
	struct rs__binding *b;
	struct rs__placement *items; /* heap */
	uint64_t n, cap;
};

static const struct rs__rule *says(const struct rs__placement *p)
{
	return p->rule ? p->rule : p->instance->rule;
}

/* Sources that nothing takes come after all rules. */
static uint32_t rule_index(const struct rs__rule *rule)
{
	return rule ? rule->index : RS__NONE;
}

/* ------------------------------------------------------------------ placing */

/* Add @p on the ranks that lie within, and where `on` says. Nowhere is no placement. */
static int add_place(struct placing *pl, struct rs__placement p, const struct rs__coords *on)
{
	struct rs__binding *b = pl->b;
	uint32_t n = b->rules->plan->mesh.n;

	p.where = RS_NEW_N(b->t->arena, struct rs__coords, n, b->err);
	if (!p.where)
		return -1;
	for (uint32_t a = 0; a < n; a++) {
		p.where[a] = p.within[a];
		if (on &&
			rs__coords_meet(&p.within[a], &on[a], b->t->arena, &p.where[a], b->err) < 0)
			return -1;
		if (p.where[a].at && p.where[a].n == 0)
			return 0;
	}
	if (rs_grow(&pl->items, &pl->cap, pl->n + 1, sizeof(*pl->items), b->err) < 0)
		return -1;
	pl->items[pl->n++] = p;
	return 0;
}

/* Does the rule show the local number of this capture in any name? */
static bool is_local(const struct placing *pl, const struct rs__rule *rule, uint32_t capture)
{
	const struct rs__range *ranges = pl->b->rules->plan->ranges;
	const struct rs__pattern *patterns[] = {&rule->to, &rule->scale_of};

	for (uint32_t k = 0; k < 2; k++)
		for (uint32_t i = 0; patterns[k]->text.ptr && i < patterns[k]->n; i++)
			if (patterns[k]->tokens[i].capture == capture &&
				rs__token_local(&patterns[k]->tokens[i], &rule->captures, ranges))
				return true;
	return false;
}

/* Where an instance is, while captures are gone through one by one. */
struct narrowing {
	const struct rs__instance *in;
	struct rs__coords within[RS__MESH_AXES];
	uint32_t local[RS__CAPTURES];
};

static int place_named(struct placing *pl, const struct narrowing *at)
{
	struct rs__binding *b = pl->b;
	const struct rs__plan *plan = b->rules->plan;
	const struct rs__rule *rule = at->in->rule;
	struct rs__placement p = {.instance = at->in, .rule = rule};
	uint32_t n = plan->mesh.n;

	p.within = RS_NEW_N(b->t->arena, struct rs__coords, n, b->err);
	if (!p.within)
		return -1;
	memcpy(p.within, at->within, n * sizeof(*p.within));
	if (rs__pattern_fill(&rule->to, &rule->captures, plan->ranges, at->in->values, at->local,
		    b->t->arena, &p.name, b->err) < 0)
		return -1;
	if (rule->block && rs__pattern_fill(&rule->scale_of, &rule->captures, plan->ranges,
				   at->in->values, at->local, b->t->arena, &p.weight, b->err) < 0)
		return -1;
	return add_place(pl, p, rule->on);
}

/* Narrow down by capture @c and all behind it: to all owners of its index, or to each in turn. */
static int narrow(struct placing *pl, const struct narrowing *at, uint32_t c)
{
	const struct rs__rule *rule = at->in->rule;
	const struct rs__range *r;
	uint64_t index;

	while (c < rule->captures.n &&
		(rule->captures.at[c].range == RS__NONE ||
			(rule->stack.where && !rule->stack.split && c == rule->stack.capture)))
		c++;
	if (c == rule->captures.n)
		return place_named(pl, at);
	r = &pl->b->rules->plan->ranges[rule->captures.at[c].range];
	index = at->in->values[c].number;
	uint32_t first = r->first[index], end = r->first[index + 1];
	uint32_t step = is_local(pl, rule, c) ? 1 : end - first;
	for (uint32_t o = first; o < end; o += step) {
		struct narrowing next = *at;
		struct rs__coords owners = {r->owners + o, step};
		next.local[c] = r->local[o];
		if (rs__coords_meet(&at->within[r->axis], &owners, pl->b->t->arena,
			    &next.within[r->axis], pl->b->err) < 0)
			return -1;
		if (next.within[r->axis].n > 0 && narrow(pl, &next, c + 1) < 0)
			return -1;
	}
	return 0;
}

/* Another name for targets that are there already. */
static int place_alias(struct placing *pl, const struct rs__rule *rule)
{
	struct rs__binding *b = pl->b;
	uint64_t n = pl->n, before = n;
	struct rs__value values[RS__CAPTURES];

	for (uint64_t i = 0; i < n; i++) {
		struct rs__placement p = pl->items[i];
		int rc =
			rs__pattern_match(&rule->alias_of, &rule->captures, p.name, values, b->err);
		if (rc < 0)
			return -1;
		if (!rc)
			continue;
		p.rule = rule;
		if (rs__pattern_fill(&rule->to, &rule->captures, NULL, values, NULL, b->t->arena,
			    &p.name, b->err) < 0)
			return -1;
		if (!rule->on)
			p.within = p.where;
		if (add_place(pl, p, rule->on) < 0)
			return -1;
	}
	if (pl->n > before || rule->optional)
		return 0;
	if (b->missing == RS_MISSING_SKIP) {
		rs_note(&b->t->notes, "%s: no target is called '%s': left out", rule->where,
			RS_SHOW(rule->alias_of.text));
		return 0;
	}
	return rs_fail(b->err, RS_MISSING, "%s: alias_of: no target is called '%s'", rule->where,
		RS_SHOW(rule->alias_of.text));
}

static int place_all(struct placing *pl)
{
	struct rs__rules *r = pl->b->rules;

	for (uint64_t i = 0; i < r->n_instances; i++) {
		struct narrowing at = {.in = &r->instances[i]};
		if (narrow(pl, &at, 0) < 0)
			return -1;
	}
	for (uint32_t i = 0; i < r->plan->n_rules; i++)
		if (r->plan->rules[i].alias_of.text.ptr && place_alias(pl, &r->plan->rules[i]) < 0)
			return -1;
	return 0;
}

/* ------------------------------------------------------------- names and ranks */

static int by_name(const void *a, const void *b)
{
	const struct rs__placement *x = a, *y = b;
	uint32_t i = rule_index(says(x)), k = rule_index(says(y));
	int order = rs_str_cmp(x->name, y->name);

	if (order == 0)
		order = (i > k) - (i < k);
	if (order == 0) { /* aliases of two rules */
		i = rule_index(x->instance->rule);
		k = rule_index(y->instance->rule);
		order = (i > k) - (i < k);
	}
	return order ? order : (x->instance > y->instance) - (x->instance < y->instance);
}

static void group(struct rs__rules *r)
{
	if (r->n_placements)
		qsort(r->placements, r->n_placements, sizeof(*r->placements), by_name);
	for (uint64_t i = 0; i < r->n_placements; i++)
		r->placements[i].first =
			i > 0 && rs_str_eq(r->placements[i - 1].name, r->placements[i].name)
				? r->placements[i - 1].first
				: i;
}

static bool lies_in(
	const struct rs__rules *r, const struct rs__coords *where, const uint32_t *coords)
{
	for (uint32_t a = 0; a < r->plan->mesh.n; a++)
		if (!rs__coords_has(&where[a], coords[a]))
			return false;
	return true;
}

/* Do two sets of ranks have one in common? */
static bool share_rank(
	const struct rs__rules *r, const struct rs__placement *x, const struct rs__placement *y)
{
	for (uint32_t a = 0; a < r->plan->mesh.n; a++) {
		bool common = !x->where[a].at || !y->where[a].at;
		for (uint32_t i = 0; !common && i < x->where[a].n; i++)
			common = rs__coords_has(&y->where[a], x->where[a].at[i]);
		if (!common)
			return false;
	}
	return true;
}

/* A scale is where its weight is, and a weight is no scale. */
static bool claims(const struct rs__rules *r, const struct rs__placement *p, const uint32_t *coords)
{
	if (!lies_in(r, p->where, coords))
		return false;
	return !p->weight.ptr || rs__placement_find(r, p->weight, coords);
}

bool rs__placement_here(
	const struct rs__rules *r, const struct rs__placement *p, const uint32_t *coords)
{
	for (const struct rs__placement *q = &r->placements[p->first]; q < p; q++)
		if (claims(r, q, coords))
			return false;
	return claims(r, p, coords);
}

/* The first placement that is called @name, or n_placements. */
static uint64_t first_called(const struct rs__rules *r, struct rs_str name)
{
	uint64_t low = 0, n = r->n_placements;

	while (n > 0) {
		uint64_t half = n / 2;
		if (rs_str_cmp(r->placements[low + half].name, name) < 0) {
			low += half + 1;
			n -= half + 1;
		} else {
			n = half;
		}
	}
	return low;
}

const struct rs__placement *rs__placement_find(
	const struct rs__rules *r, struct rs_str name, const uint32_t *coords)
{
	for (uint64_t i = first_called(r, name);
		i < r->n_placements && rs_str_eq(r->placements[i].name, name); i++)
		if (!r->placements[i].weight.ptr && lies_in(r, r->placements[i].where, coords))
			return &r->placements[i];
	return NULL;
}

/* ---------------------------------------------------------------------- checks */

/* Every rank on which @p lies belongs to one of the placements before it. */
static bool is_shadowed(const struct rs__rules *r, const struct rs__placement *p)
{
	uint32_t coords[RS__MESH_AXES];
	bool shared = false;

	for (const struct rs__placement *q = &r->placements[p->first]; q < p && !shared; q++)
		shared = share_rank(r, q, p);
	for (uint64_t rank = 0; shared && rank < r->plan->mesh.n_ranks; rank++) {
		rs__mesh_coords(&r->plan->mesh, rank, coords);
		if (rs__placement_here(r, p, coords))
			return false;
	}
	return shared;
}

static int check_overlap(struct rs__binding *b, const struct rs__placement *p)
{
	const struct rs__rules *r = b->rules;

	for (const struct rs__placement *q = &r->placements[p->first]; q < p; q++) {
		if (!p->rule || p->rule != q->rule || p->rule->alias_of.text.ptr ||
			!share_rank(r, q, p))
			continue;
		const struct rs__origin *x = p->instance->origins[0], *y = q->instance->origins[0];
		rs_fail(b->err, RS_USAGE, "%s: '%s' would be made from '%s' and from '%s'",
			p->rule->where, RS_SHOW(p->name), y ? RS_SHOW(y->name) : "another",
			x ? RS_SHOW(x->name) : "another");
		return rs_hint(b->err,
			"every capture that tells sources apart belongs in \"to\", or "
			"the range in \"stack\"");
	}
	return 0;
}

/* A scale names a weight that is a target, with as many sources. */
static int check_weight(struct rs__binding *b, const struct rs__placement *p)
{
	const struct rs__rules *r = b->rules;

	if (!p->weight.ptr)
		return 0;
	for (uint64_t i = first_called(r, p->weight);
		i < r->n_placements && rs_str_eq(r->placements[i].name, p->weight); i++) {
		const struct rs__placement *w = &r->placements[i];
		if (w->weight.ptr || !share_rank(r, w, p))
			continue;
		if (w->instance->rule &&
			w->instance->rule->n_operands == p->instance->rule->n_operands &&
			w->instance->n_origins == p->instance->n_origins)
			return 0;
		return rs_fail(b->err, RS_USAGE,
			"%s: '%s' is made from %" PRIu64 " tensors, '%s' from %" PRIu64,
			p->instance->rule->where, RS_SHOW(p->weight), w->instance->n_origins,
			RS_SHOW(p->name), p->instance->n_origins);
	}
	return rs_fail(b->err, RS_MISSING, "%s: scale_of: no target is called '%s' where '%s' is",
		p->instance->rule->where, RS_SHOW(p->weight), RS_SHOW(p->name));
}

/* A stack takes the shares of the ranks where it is, and no others. */
static void mark_used(const struct rs__rules *r, const struct rs__placement *p)
{
	const struct rs__instance *in = p->instance;
	const struct rs__stack *s = in->rule ? &in->rule->stack : NULL;
	const struct rs__range *range =
		s && s->where && !s->split ? &r->plan->ranges[s->range] : NULL;
	uint64_t n = range ? in->rule->n_operands : in->n_origins;

	for (uint64_t i = 0; i < in->n_origins; i++) {
		bool taken = !range;
		for (uint32_t o = range ? range->first[i / n] : 0;
			range && !taken && o < range->first[i / n + 1]; o++)
			taken = rs__coords_has(&p->where[range->axis], range->owners[o]);
		if (taken && in->origins[i])
			in->origins[i]->used = true;
	}
}

static int check_places(struct rs__binding *b)
{
	const struct rs__rules *r = b->rules;

	for (uint64_t i = 0; i < r->n_placements; i++) {
		const struct rs__placement *p = &r->placements[i];
		if (check_overlap(b, p) < 0 || check_weight(b, p) < 0)
			return -1;
		if (!is_shadowed(r, p))
			mark_used(r, p);
	}
	return 0;
}

/* ------------------------------------------------------------------ unmatched */

/* A rule whose pattern fits, but whose ranges do not have the index. */
static const struct rs__rule *almost(const struct rs__rules *r, struct rs_str name)
{
	struct rs__value values[RS__CAPTURES];

	for (uint32_t i = 0; i < r->plan->n_rules; i++)
		for (uint32_t k = 0; k < r->plan->rules[i].n_operands; k++)
			if (rs__pattern_match(&r->plan->rules[i].operands[k].from,
				    &r->plan->rules[i].captures, name, values, NULL) == 1)
				return &r->plan->rules[i];
	return NULL;
}

static int refuse_unmatched(struct rs__binding *b, const struct rs__origin *first, uint64_t n)
{
	const struct rs__rule *rule = almost(b->rules, first->name);
	char more[40] = "";

	if (n > 1)
		snprintf(more, sizeof(more), " and %" PRIu64 " more", n - 1);
	rs_fail(b->err, RS_MISSING, "%s: tensor '%s'%s: no rule takes it to any rank",
		b->rules->plan->name, RS_SHOW(first->name), more);
	if (rule)
		return rs_hint(b->err,
			"the pattern of %s fits: is its index outside of the range, or does an "
			"earlier rule make the same name?",
			rule->where);
	return rs_hint(b->err, "add a rule, or {\"drop\": \"...\"}; \"strict\": {\"unmatched\": "
			       "\"drop\"} (or -o default=drop) leaves all such tensors out");
}

/* Whole, to every rank, under its own name. */
static int replicate(struct placing *pl, struct rs__origin *o)
{
	struct rs__binding *b = pl->b;
	struct rs__instance *in = RS_NEW(b->t->arena, struct rs__instance, b->err);
	struct rs__origin **origins = RS_NEW(b->t->arena, struct rs__origin *, b->err);
	struct rs__placement p = {.name = o->name, .instance = in};

	if (!in || !origins)
		return -1;
	*origins = o;
	*in = (struct rs__instance){.origins = origins, .n_origins = 1};
	p.within = RS_NEW_N(b->t->arena, struct rs__coords, b->rules->plan->mesh.n, b->err);
	return p.within ? add_place(pl, p, NULL) : -1;
}

static int place_unmatched(struct placing *pl)
{
	struct rs__binding *b = pl->b;
	struct rs__origin *first = NULL;
	char more[60];
	uint64_t n = 0;

	for (uint64_t i = 0; i < b->rules->n_origins; i++) {
		struct rs__origin *o = &b->rules->origins[i];
		if (o->used || o->dropped != RS__NONE)
			continue;
		first = n++ ? first : o;
		if (b->unmatched == RS__UNMATCHED_REPLICATE && replicate(pl, o) < 0)
			return -1;
	}
	if (n && b->unmatched == RS__UNMATCHED_ERROR)
		return refuse_unmatched(b, first, n);
	if (n == 1)
		snprintf(more, sizeof(more), " matches");
	else
		snprintf(more, sizeof(more), " and %" PRIu64 " more tensors match", n - 1);
	if (n)
		rs_note(&b->t->notes, "'%s'%s no rule: %s", RS_SHOW(first->name), more,
			b->unmatched == RS__UNMATCHED_DROP ? "left out"
							   : "given whole to every rank");
	return 0;
}

/* ------------------------------------------------------------------------ all of it */

/* The list so far becomes the one that everybody reads. */
static int publish(struct placing *pl)
{
	struct rs__binding *b = pl->b;

	b->rules->placements = RS_NEW_N(b->t->arena, struct rs__placement, pl->n, b->err);
	if (!b->rules->placements)
		return -1;
	if (pl->n)
		memcpy(b->rules->placements, pl->items, pl->n * sizeof(*pl->items));
	b->rules->n_placements = pl->n;
	group(b->rules);
	return 0;
}

int rs__bind_places(struct rs__binding *b)
{
	struct placing pl = {.b = b};
	uint64_t before;
	int rc = -1;

	if (place_all(&pl) < 0 || publish(&pl) < 0 || check_places(b) < 0)
		goto out;
	before = pl.n;
	if (place_unmatched(&pl) < 0 || (pl.n > before && publish(&pl) < 0))
		goto out;
	rc = 0;
out:
	rs_free(pl.items);
	return rc;
}
