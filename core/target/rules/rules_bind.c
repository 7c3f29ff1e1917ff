/*
 * rules_bind.c - the rules of a plan meet the tensors of a source.
 *
 *   rule      to "l.{N}.qkv", parts "l.{N}.q", "l.{N}.k", "l.{N}.v"
 *   source    l.0.k l.0.q l.0.v l.1.k l.1.q l.1.v
 *   instances N = 0: {l.0.q, l.0.k, l.0.v}, N = 1: {l.1.q, l.1.k, l.1.v}
 *
 * Every pattern is matched against every name once; from then on sources are found by name. Ranges
 * are dealt out in between, because one may count what the source has. Refuses instances that lack
 * a source, and indices of a range that the source skips. Read next: rules_place.c; rules_origin.c
 * for what a source has.
 */
#include <inttypes.h>
#include <stdlib.h>

#include "core/target/rules/rules.h"

/* ------------------------------------------------------------------ matching */

/* Values of the captures of a rule, found at a source or made from a range. */
struct match {
	struct rs__value *values;
};
struct matches {
	struct match *items; /* heap */
	uint64_t n, cap;
};
/* All matches, by rule; and per range the highest index found, plus one. */
struct matching {
	struct rs__binding *b;
	struct matches *of;
	uint64_t *found;
};

static int keep_match(struct matching *m, const struct rs__rule *rule,
	const struct rs__value *values, const struct rs_tensor *tensor)
{
	struct matches *to = &m->of[rule->index];
	const struct rs__stack *stack = &rule->stack;
	struct rs__value *copy =
		RS_NEW_N(m->b->scratch, struct rs__value, rs_max(rule->captures.n, 1), m->b->err);

	if (!copy || rs_grow(&to->items, &to->cap, to->n + 1, sizeof(*to->items), m->b->err) < 0)
		return -1;
	memcpy(copy, values, rule->captures.n * sizeof(*copy));
	to->items[to->n++].values = copy;
	for (uint32_t c = 0; c < rule->captures.n; c++) {
		uint32_t range = rule->captures.at[c].range;
		if (range != RS__NONE && copy[c].text.ptr)
			m->found[range] = rs_max(m->found[range], copy[c].number + 1);
	}
	if (stack->where && stack->split && stack->dim < tensor->shape.n_axes)
		m->found[stack->range] =
			rs_max(m->found[stack->range], tensor->shape.dims[stack->dim]);
	return 0;
}

/* Does the pattern tell all values of the rule, but that of the stacked range? */
static bool is_full(const struct rs__rule *rule, const struct rs__pattern *p)
{
	for (uint32_t c = 0; c < rule->captures.n; c++)
		if ((!rule->stack.where || c != rule->stack.capture) && !rs__pattern_has(p, c))
			return false;
	return true;
}

static int match_rule(struct matching *m, const struct rs__rule *rule)
{
	struct rs__rules *r = m->b->rules;
	struct rs__value values[RS__CAPTURES];

	for (uint64_t i = 0; i < r->n_origins; i++) {
		struct rs__origin *o = &r->origins[i];
		if (o->dropped != RS__NONE)
			continue; /* left out by an earlier rule */
		if (rule->drop.text.ptr) {
			int rc = rs__pattern_match(
				&rule->drop, &rule->captures, o->name, values, m->b->err);
			if (rc < 0)
				return -1;
			if (rc)
				o->dropped = rule->index;
		}
		for (uint32_t k = 0; k < rule->n_operands; k++) {
			const struct rs__pattern *p = &rule->operands[k].from;
			int rc = is_full(rule, p) ? rs__pattern_match(p, &rule->captures, o->name,
							    values, m->b->err)
						  : 0;
			if (rc < 0 || (rc && keep_match(m, rule, values, o->tensor) < 0))
				return -1;
		}
	}
	return 0;
}

/* ----------------------------------------------------------------- instances */

/* The values that tell instances of a rule apart: text first, so that indices stand together. */
static int compare_values(const struct rs__rule *rule, const struct rs__value *a,
	const struct rs__value *b, bool text_alone)
{
	int order = 0;

	for (uint32_t c = 0; order == 0 && c < rule->captures.n; c++)
		if (rule->captures.at[c].range == RS__NONE)
			order = rs_str_cmp(a[c].text, b[c].text);
	for (uint32_t c = 0; order == 0 && !text_alone && c < rule->captures.n; c++)
		if (rule->captures.at[c].range != RS__NONE &&
			!(rule->stack.where && c == rule->stack.capture))
			order = (a[c].number > b[c].number) - (a[c].number < b[c].number);
	return order;
}

static int by_values(const void *a, const void *b, void *rule)
{
	const struct match *x = a, *y = b;
	return compare_values(rule, x->values, y->values, false);
}

/* Has every index an owner? What the ranges leave out is for other rules, or unmatched. */
static bool in_ranges(
	const struct rs__plan *plan, const struct rs__rule *rule, const struct rs__value *values)
{
	for (uint32_t c = 0; c < rule->captures.n; c++) {
		uint32_t range = rule->captures.at[c].range;
		if (range != RS__NONE && !(rule->stack.where && c == rule->stack.capture) &&
			!rs__range_owns(&plan->ranges[range], values[c].number))
			return false;
	}
	return true;
}

/* Instances under construction: a heap array. */
struct making {
	struct rs__binding *b;
	struct rs__instance *items;
	uint64_t n, cap;
};

static struct rs__origin *find_origin(struct making *mk, const struct rs__rule *rule, uint32_t k,
	const struct rs__value *values, struct rs_str *name)
{
	struct rs__binding *b = mk->b;
	struct rs__origin *o;

	if (rs__pattern_fill(&rule->operands[k].from, &rule->captures, b->rules->plan->ranges,
		    values, NULL, b->scratch, name, b->err) < 0)
		return NULL;
	o = rs__origin_find(b->rules, *name);
	return o && o->dropped < rule->index ? NULL : o;
}

static int lacks(struct making *mk, const struct rs__rule *rule, struct rs_str name)
{
	struct rs__binding *b = mk->b;

	if (b->missing == RS_MISSING_SKIP) {
		rs_note(&b->t->notes, "%s: '%s' is stored by no source file: left out", rule->where,
			RS_SHOW(name));
		return 0;
	}
	rs_fail(b->err, RS_MISSING, "%s: wants tensor '%s', which no source file stores",
		rule->where, RS_SHOW(name));
	return rs_hint(b->err, "\"optional\": true makes nothing where sources are not there; so "
			       "does -o missing=skip, for all rules");
}

/* Find the sources of one instance. 1: complete; 0: to be left out; -1. */
static int find_origins(struct making *mk, struct rs__instance *in, struct rs__value *values)
{
	const struct rs__rule *rule = in->rule;
	const struct rs__stack *stack = &rule->stack;
	bool stacked = stack->where && !stack->split;
	const struct rs__range *range = stacked ? &mk->b->rules->plan->ranges[stack->range] : NULL;
	uint64_t n = range ? range->total : 1;

	in->n_origins = n * rule->n_operands;
	in->origins = RS_NEW_N(mk->b->t->arena, struct rs__origin *, in->n_origins, mk->b->err);
	if (!in->origins)
		return -1;
	for (uint64_t i = 0; i < n; i++) {
		if (range && !rs__range_owns(range, i))
			continue;
		if (range)
			values[stack->capture].number = i;
		for (uint32_t k = 0; k < rule->n_operands; k++) {
			struct rs_str name = {0};
			struct rs__origin *o = find_origin(mk, rule, k, values, &name);
			if (!o && !name.ptr)
				return -1;
			if (!o)
				return rule->optional ? 0 : lacks(mk, rule, name);
			in->origins[i * rule->n_operands + k] = o;
		}
	}
	return 1;
}

static int add_instance(
	struct making *mk, const struct rs__rule *rule, const struct rs__value *values)
{
	struct rs__binding *b = mk->b;
	struct rs__instance in = {.rule = rule};
	uint32_t n = rule->captures.n;
	struct rs__value *copy = RS_NEW_N(b->t->arena, struct rs__value, rs_max(n, 1), b->err);
	int rc;

	if (!copy)
		return -1;
	memcpy(copy, values, n * sizeof(*copy));
	in.values = copy;
	rc = find_origins(mk, &in, copy);
	if (rc <= 0)
		return rc;
	if (rs_grow(&mk->items, &mk->cap, mk->n + 1, sizeof(*mk->items), b->err) < 0)
		return -1;
	mk->items[mk->n++] = in;
	return 0;
}

/* A tensor that is split over a range makes an instance per index. */
static int add_split(struct making *mk, const struct rs__rule *rule, struct rs__value *values)
{
	const struct rs__range *range = &mk->b->rules->plan->ranges[rule->stack.range];

	for (uint32_t i = 0; i < range->total; i++) {
		if (!rs__range_owns(range, i))
			continue;
		values[rule->stack.capture].number = i;
		if (add_instance(mk, rule, values) < 0)
			return -1;
	}
	return 0;
}

/* -------------------------------------------------------------- completeness */

/* The index after @index that somebody owns; total when there is none. */
static uint64_t next_owned(const struct rs__range *r, uint64_t index)
{
	while (index < r->total && !rs__range_owns(r, index))
		index++;
	return index;
}

/* Captures of a rule that run over all of a range: one target for every index. */
static uint32_t running(const struct rs__rule *rule, uint32_t *captures)
{
	uint32_t n = 0;

	for (uint32_t c = 0; c < rule->captures.n; c++)
		if (rule->captures.at[c].range != RS__NONE &&
			!(rule->stack.where && c == rule->stack.capture))
			captures[n++] = c;
	return n;
}

/*
 * The matches @m[0 .. n) agree in text and are sorted by their numbers: go through all indices of
 * all ranges in the same order, and name the first that is not there.
 */
static int check_group(
	struct making *mk, const struct rs__rule *rule, const struct match *m, uint64_t n)
{
	const struct rs__range *ranges = mk->b->rules->plan->ranges;
	struct rs__value want[RS__CAPTURES];
	uint32_t captures[RS__CAPTURES], n_captures = running(rule, captures), k;
	uint64_t at = 0;

	memcpy(want, m[0].values, rule->captures.n * sizeof(*want));
	for (k = 0; k < n_captures; k++)
		want[captures[k]].number =
			next_owned(&ranges[rule->captures.at[captures[k]].range], 0);
	for (;;) {
		if (at == n || compare_values(rule, want, m[at].values, false) != 0) {
			struct rs_str name = {0};
			for (k = 0; !is_full(rule, &rule->operands[k].from);)
				k++;
			if (rs__pattern_fill(&rule->operands[k].from, &rule->captures, ranges, want,
				    NULL, mk->b->scratch, &name, mk->b->err) < 0)
				return -1;
			return lacks(mk, rule, name);
		}
		while (at < n && compare_values(rule, want, m[at].values, false) == 0)
			at++;
		for (k = n_captures; k-- > 0;) {
			const struct rs__range *r = &ranges[rule->captures.at[captures[k]].range];
			uint64_t *number = &want[captures[k]].number;
			*number = next_owned(r, *number + 1);
			if (*number < r->total)
				break;
			*number = next_owned(r, 0);
		}
		if (k == RS__NONE) /* the odometer has turned over */
			return 0;
	}
}

static int check_complete(struct making *mk, const struct rs__rule *rule, const struct matches *m)
{
	uint32_t captures[RS__CAPTURES];

	if (rule->optional || running(rule, captures) == 0)
		return 0;
	for (uint64_t i = 0, end; i < m->n; i = end) {
		end = i + 1;
		while (end < m->n &&
			compare_values(rule, m->items[i].values, m->items[end].values, true) == 0)
			end++;
		if (check_group(mk, rule, m->items + i, end - i) < 0)
			return -1;
	}
	return 0;
}

/* A rule that finds nothing at all: the first name that it looks for tells most. */
static int found_nothing(struct making *mk, const struct rs__rule *rule)
{
	struct rs__binding *b = mk->b;

	if (rule->optional)
		return 0;
	if (b->missing == RS_MISSING_SKIP) {
		rs_note(&b->t->notes, "%s: no source tensor is called '%s': left out", rule->where,
			RS_SHOW(rule->operands[0].from.text));
		return 0;
	}
	rs_fail(b->err, RS_MISSING, "%s: no source tensor is called '%s'", rule->where,
		RS_SHOW(rule->operands[0].from.text));
	return rs_hint(b->err, "\"optional\": true is for rules that may find nothing; so is -o "
			       "missing=skip, for all of them");
}

static int make_instances(struct making *mk, const struct rs__rule *rule, struct matches *m)
{
	const struct rs__plan *plan = mk->b->rules->plan;
	uint64_t kept = 0;

	for (uint64_t i = 0; i < m->n; i++)
		if (in_ranges(plan, rule, m->items[i].values))
			m->items[kept++] = m->items[i];
	m->n = kept;
	if (m->n == 0)
		return found_nothing(mk, rule);
	qsort_r(m->items, m->n, sizeof(*m->items), by_values,
		mk->b->rules->plan->rules + rule->index);
	if (check_complete(mk, rule, m) < 0)
		return -1;
	for (uint64_t i = 0; i < m->n; i++) {
		struct rs__value *values = m->items[i].values;
		if (i > 0 && compare_values(rule, values, m->items[i - 1].values, false) == 0)
			continue;
		if ((rule->stack.split ? add_split(mk, rule, values)
				       : add_instance(mk, rule, values)) < 0)
			return -1;
	}
	return 0;
}

/* ------------------------------------------------------------------------ all of it */

/* Does any rule that found something, or had to, count with the range? */
static bool counts(const struct matching *m, uint32_t range)
{
	const struct rs__plan *plan = m->b->rules->plan;

	for (uint32_t i = 0; i < plan->n_rules; i++) {
		const struct rs__rule *rule = &plan->rules[i];
		if (m->of[i].n == 0 && rule->optional)
			continue;
		for (uint32_t c = 0; rule->n_operands && c < rule->captures.n; c++)
			if (rule->captures.at[c].range == range)
				return true;
	}
	return false;
}

/* A range that nothing counts with has no indices: its variables may well be unset. */
static int bind_ranges(struct matching *m)
{
	struct rs__plan *plan = m->b->rules->plan;

	for (uint32_t i = 0; i < plan->n_ranges; i++)
		if (counts(m, i) &&
			rs__range_bind(&plan->ranges[i], &plan->mesh, &plan->vars, plan->uneven,
				m->found[i], m->b->t->arena, m->b->err) < 0)
			return -1;
	return 0;
}

int rs__bind_instances(struct rs__binding *b)
{
	struct rs__plan *plan = b->rules->plan;
	struct matching m = {.b = b};
	struct making mk = {.b = b};
	int rc = -1;

	m.of = RS_NEW_N(b->scratch, struct matches, plan->n_rules, b->err);
	m.found = RS_NEW_N(b->scratch, uint64_t, plan->n_ranges, b->err);
	if (!m.of || !m.found)
		return -1;
	for (uint32_t i = 0; i < plan->n_rules; i++)
		if (match_rule(&m, &plan->rules[i]) < 0)
			goto out;
	if (bind_ranges(&m) < 0)
		goto out;
	for (uint32_t i = 0; i < plan->n_rules; i++)
		if (plan->rules[i].n_operands && make_instances(&mk, &plan->rules[i], &m.of[i]) < 0)
			goto out;
	b->rules->instances = RS_NEW_N(b->t->arena, struct rs__instance, mk.n, b->err);
	if (!b->rules->instances)
		goto out;
	if (mk.n)
		memcpy(b->rules->instances, mk.items, mk.n * sizeof(*mk.items));
	b->rules->n_instances = mk.n;
	rc = 0;
out:
	for (uint32_t i = 0; i < plan->n_rules; i++)
		rs_free(m.of[i].items);
	rs_free(mk.items);
	return rc;
}
