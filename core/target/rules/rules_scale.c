/*
 * rules_scale.c - a tensor of scales is cut like its weight, in blocks.
 *
 *   weight [512, 256], a scale for each block of 128 x 128: scales [4, 2]
 *   the rank's weight = rows 128-255 of 'w'  ->  the rank's scales = row 1 of 's'
 *
 * The weight's parts are known: boxes of it, each from a box of a source tensor. Divided by the
 * block they are the parts of the scales, from the tensor of scales that belongs to each source.
 * Only at the end of a tensor a block may be short. Refuses every other border inside a block.
 */
#include "core/target/rules/rules.h"

#include <inttypes.h>

static uint64_t blocks(uint64_t len, uint64_t block)
{
	return len / block + (len % block > 0);
}

/* The scales that belong to the weights @t: those in the same place of the rule. */
static int partner(const struct rs__instance *weights, const struct rs__instance *scales,
	const struct rs_tensor *t, const struct rs_tensor **out, struct rs_err *err)
{
	*out = NULL;
	for (uint64_t i = 0; i < weights->n_origins; i++) {
		if (!weights->origins[i] || weights->origins[i]->tensor != t)
			continue;
		if (!scales->origins[i] || (*out && *out != scales->origins[i]->tensor))
			return rs_fail(err, RS_USAGE,
				"%s: expected one tensor of scales for '%s', found several or none",
				scales->rule->where, RS_SHOW(t->name));
		*out = scales->origins[i]->tensor;
	}
	return 0;
}

static int check_shape(const struct rs_tensor *weight, const struct rs_tensor *scale,
	const struct rs__rule *rule, struct rs_err *err)
{
	bool fits = weight->shape.n_axes == rule->n_block && scale->shape.n_axes == rule->n_block;

	for (uint32_t a = 0; fits && a < rule->n_block; a++)
		fits = scale->shape.dims[a] == blocks(weight->shape.dims[a], rule->block[a]);
	if (fits)
		return 0;
	rs_fail(err, RS_USAGE, "%s: '%s' %s does not have a scale for each block of '%s' %s",
		rule->where, RS_SHOW(scale->name), RS_SHAPE_SHOW(&scale->shape),
		RS_SHOW(weight->name), RS_SHAPE_SHOW(&weight->shape));
	return rs_hint(err, "\"block\" has a length for each axis of the weight");
}

/* A weight without elements has no part to tell: its axes are those of its source, as stacked. */
static void guess_blocks(
	const struct rs__view *weight, const struct rs__rule *rule, uint64_t *along)
{
	const struct rs__stack *stack = &rule->stack;
	uint32_t s = 0;

	for (uint32_t a = 0; a < weight->shape.n_axes; a++) {
		s += stack->where && stack->split && s == stack->dim;
		along[a] = 1;
		if (s < rule->n_block && !(stack->where && !stack->split && a == stack->dim))
			along[a] = rule->block[s++];
	}
}

/* Target axes run along source axes, and have their blocks; an axis that was stacked has none. */
static int target_blocks(const struct rs__view *weight, const struct rs__rule *rule,
	uint64_t *along, struct rs_err *err)
{
	for (uint32_t a = 0; a < weight->shape.n_axes; a++)
		along[a] = 0;
	if (weight->n == 0)
		guess_blocks(weight, rule, along);
	for (uint64_t i = 0; i < weight->n; i++)
		for (uint32_t a = 0; a < weight->shape.n_axes; a++) {
			uint32_t s = weight->parts[i].axis[a];
			if (s == RS_AXIS_NONE)
				continue;
			if (s >= rule->n_block || (along[a] && along[a] != rule->block[s]))
				return rs_fail(err, RS_USAGE,
					"%s: block has no one length for dim %" PRIu32
					" of the weight",
					rule->where, a);
			along[a] = rule->block[s];
		}
	for (uint32_t a = 0; a < weight->shape.n_axes; a++)
		along[a] = along[a] ? along[a] : 1;
	return 0;
}

/* [*origin, *origin + *len) of an axis of @size, in blocks; false for a border inside of one. */
static bool divide(uint64_t *origin, uint64_t *len, uint64_t size, uint64_t block)
{
	if (*origin % block || (*len % block && *origin + *len != size))
		return false;
	*origin /= block;
	*len = blocks(*len, block);
	return true;
}

static int scale_part(struct rs_part *part, const struct rs__view *weight, const uint64_t *along,
	const struct rs_tensor *scale, const struct rs__rule *rule, struct rs_err *err)
{
	const struct rs_tensor *from = part->source;
	bool whole = true;

	for (uint32_t s = 0; from && s < from->shape.n_axes; s++) {
		uint64_t len = rule->block[s]; /* read at origin alone: any place in a block */
		uint64_t origin = part->origin[s] / len * len;
		for (uint32_t a = 0; a < part->box.n_axes; a++)
			if (part->axis[a] == s) {
				origin = part->origin[s];
				len = part->box.len[a];
			}
		whole &= divide(&origin, &len, from->shape.dims[s], rule->block[s]);
		part->origin[s] = origin;
	}
	for (uint32_t a = 0; a < part->box.n_axes; a++)
		whole &= divide(
			&part->box.origin[a], &part->box.len[a], weight->shape.dims[a], along[a]);
	if (!whole)
		return rs_fail(err, RS_USAGE, "%s: the weight '%s' is cut inside a block",
			rule->where, from ? RS_SHOW(from->name) : "with padding");
	part->source = scale;
	return 0;
}

int rs__view_scale(struct rs__view *v, const struct rs__view *weight,
	const struct rs__instance *weights, const struct rs__instance *scales, struct rs_err *err)
{
	const struct rs__rule *rule = scales->rule;
	const struct rs_tensor *any = NULL;
	uint64_t along[RS_MAX_AXES];

	for (uint64_t i = 0; !any && i < scales->n_origins; i++)
		any = scales->origins[i] ? scales->origins[i]->tensor : NULL;
	*v = (struct rs__view){.dtype = any->dtype, .shape = weight->shape};
	if (target_blocks(weight, rule, along, err) < 0 ||
		rs_grow(&v->parts, &v->cap, weight->n, sizeof(*v->parts), err) < 0)
		return -1;
	for (uint64_t i = 0; i < weight->n; i++) {
		struct rs_part part = weight->parts[i];
		const struct rs_tensor *scale = NULL;

		if (part.kind == RS_PART_COPY &&
			(partner(weights, scales, part.source, &scale, err) < 0 ||
				check_shape(part.source, scale, rule, err) < 0))
			return -1;
		if (scale && scale->dtype != any->dtype)
			return rs_fail(err, RS_USAGE, "%s: scales of %s and of %s", rule->where,
				rs_dtype_name(any->dtype), rs_dtype_name(scale->dtype));
		if (scale_part(&part, weight, along, scale, rule, err) < 0)
			return -1;
		v->parts[v->n++] = part;
	}
	for (uint32_t a = 0; a < v->shape.n_axes; a++)
		v->shape.dims[a] = blocks(v->shape.dims[a], along[a]);
	return 0;
}
