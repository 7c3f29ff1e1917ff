/*
 * rules_value.c - what a placement is on one rank: its rule, worked out as a view.
 *
 *   for each index of the rank's share of the stacked range (or once):
 *       each source: slice, transpose, trim, pad, cut; then concat; then the steps of the rule
 *   then stack
 *
 * A scale is worked out from its weight instead. Refuses what does not fit the shapes, naming the
 * target tensor and the place in the plan. Read next: rules_scale.c, rules.c.
 */
#include "core/target/rules/rules.h"

#include <inttypes.h>

/* What the rank stacks: its indices, or, without a stack, the one thing that there is. */
static struct rs__coords share_of(
	const struct rs__rules *r, const struct rs__rule *rule, const uint32_t *coords)
{
	static const uint32_t once = 0;
	const struct rs__range *range;

	if (!rule || !rule->stack.where || rule->stack.split)
		return (struct rs__coords){&once, 1};
	range = &r->plan->ranges[rule->stack.range];
	return range->shares[coords[range->axis]];
}

struct valuing {
	const struct rs__rules *r;
	const struct rs__instance *in;
	struct rs__scene scene;
	struct rs_err *err;
};

static int value_operand(
	struct valuing *x, uint32_t operand, const struct rs__origin *o, struct rs__view *v)
{
	const struct rs__rule *rule = x->in->rule;
	const struct rs__stack *s = &rule->stack;

	if (rs__view_source(v, o->tensor, x->err) < 0)
		return -1;
	if (s->where && s->split) {
		const struct rs__range *range = &x->r->plan->ranges[s->range];
		uint64_t len = s->dim < v->shape.n_axes ? v->shape.dims[s->dim] : 0;
		if (len != range->total)
			return rs_fail(x->err, RS_USAGE,
				"%s: dim %" PRIu32 " of %s is no %" PRIu32 " of '%s'", s->where,
				s->dim, RS_SHAPE_SHOW(&v->shape), range->total, RS_SHOW(s->over));
		if (rs__view_unstack(
			    v, s->dim, x->in->values[s->capture].number, s->where, x->err) < 0)
			return -1;
	}
	return rs__view_steps(v, &rule->operands[operand].steps, &x->scene, x->err);
}

/* Index @index of the stacked range, put together. */
static int value_element(struct valuing *x, uint64_t index, struct rs__view *out)
{
	const struct rs__rule *rule = x->in->rule;
	const struct rs__concat *c = &rule->concat;
	uint32_t n = rule->n_operands;
	struct rs__view *parts = rs_alloc(n * sizeof(*parts), x->err);
	uint64_t groups = 1;
	int rc = parts ? 0 : -1;

	for (uint32_t k = 0; rc == 0 && k < n; k++)
		rc = value_operand(x, k, x->in->origins[index * n + k], &parts[k]);
	if (rc == 0 && c->where) {
		if (c->groups.where)
			rc = rs__num_value(&c->groups, &x->r->plan->vars, &groups, x->err);
		if (rc == 0)
			rc = rs__view_concat(out, parts, n, c->dim, groups, c->where, x->err);
	} else if (rc == 0) {
		*out = parts[0];
		parts[0] = (struct rs__view){0};
	}
	if (rc == 0)
		rc = rs__view_steps(out, &rule->steps, &x->scene, x->err);
	for (uint32_t k = 0; parts && k < n; k++)
		rs__view_done(&parts[k]);
	rs_free(parts);
	return rc;
}

static int value_stack(struct valuing *x, struct rs__coords share, struct rs__view *out)
{
	const struct rs__rule *rule = x->in->rule;
	const struct rs__range *range = &x->r->plan->ranges[rule->stack.range];
	struct rs__view *each = rs_alloc((uint64_t)(share.n + 1) * sizeof(*each), x->err);
	uint32_t any = 0;
	int rc = each ? 0 : -1;

	for (uint32_t i = 0; rc == 0 && i < share.n; i++)
		rc = value_element(x, share.at[i], &each[i]);
	/* A rank with an empty share holds a tensor of no rows: ask another index for its shape. */
	while (any < range->total && !rs__range_owns(range, any))
		any++;
	if (rc == 0 && share.n == 0)
		rc = any < range->total
			     ? value_element(x, any, &each[0])
			     : rs_fail(x->err, RS_USAGE, "%s: nothing to stack", rule->stack.where);
	if (rc == 0)
		rc = rs__view_stack(
			out, each, share.n, rule->stack.dim, &each[0], rule->stack.where, x->err);
	for (uint32_t i = 0; each && i <= share.n; i++)
		rs__view_done(&each[i]);
	rs_free(each);
	return rc;
}

/* The tensor that an instance makes on this rank. */
static int value_instance(struct valuing *x, struct rs__view *out)
{
	const struct rs__rule *rule = x->in->rule;

	if (!rule)
		return rs__view_source(out, x->in->origins[0]->tensor, x->err);
	if (rule->stack.where && !rule->stack.split)
		return value_stack(x, share_of(x->r, rule, x->scene.coords), out);
	return value_element(x, 0, out);
}

/* The weight on this rank, with every tensor of weights in it exchanged for its scales. */
static int value_scale(struct valuing *x, const struct rs__placement *p, struct rs__view *out)
{
	const struct rs__placement *w = rs__placement_find(x->r, p->weight, x->scene.coords);
	struct valuing of_weight = *x;
	struct rs__view weight = {0};
	int rc;

	if (!w)
		return rs_fail(x->err, RS_MISSING, "%s: no '%s' on this rank", x->in->rule->where,
			RS_SHOW(p->weight));
	of_weight.in = w->instance;
	rc = value_instance(&of_weight, &weight);
	if (rc == 0)
		rc = rs__view_scale(out, &weight, w->instance, x->in, x->err);
	rs__view_done(&weight);
	return rc;
}

int rs__placement_view(const struct rs__rules *r, const struct rs__placement *p,
	const uint32_t *coords, struct rs__view *v, const struct rs__origin **first,
	struct rs_err *err)
{
	struct valuing x = {r, p->instance, {r->plan, coords}, err};
	struct rs__coords share = share_of(r, p->instance->rule, coords);
	uint64_t n = p->instance->rule ? p->instance->rule->n_operands : 1, at;
	int rc;

	*v = (struct rs__view){0};
	at = share.n ? share.at[0] * n : 0;
	while (!p->instance->origins[at]) /* the lowest index that anybody owns */
		at++;
	*first = p->instance->origins[at];
	rc = p->weight.ptr ? value_scale(&x, p, v) : value_instance(&x, v);
	if (rc == 0)
		return 0;
	rs__view_done(v);
	return rs_err_prefix(err, "tensor '%s'", RS_SHOW(p->name));
}
