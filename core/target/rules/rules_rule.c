/*
 * rules_rule.c - one rule of a plan: its members, and what may stand beside what.
 *
 * A rule makes a target tensor from one source or from parts that are put together, names another
 * target (alias_of), follows one in blocks (scale_of), or leaves sources out (drop). What a rule
 * says twice or in vain is refused, because it would mean something else than its writer thinks.
 * Described in docs/plans.md. Read next: rules_bind.c.
 */
#include <cjson/cJSON.h>
#include <inttypes.h>
#include <stdlib.h>

#include "core/target/rules/rules_read.h"
#include "reshardfs/codec.h"

static int read_few(struct rs__read *r, const struct rs__at *at, const cJSON *v, void *out)
{
	static const char *const words[] = {"error", "replicate", NULL};
	int n;

	if (rs__read_word(r, at, v, words, &n) < 0)
		return -1;
	*(bool *)out = n == 1;
	return 0;
}

static int read_fill(struct rs__read *r, const struct rs__at *at, const cJSON *v, void *out)
{
	static const char *const words[] = {"zero", "last", NULL};
	int n;

	if (rs__read_word(r, at, v, words, &n) < 0)
		return -1;
	*(bool *)out = n == 1;
	return 0;
}

static int read_dtype(struct rs__read *r, const struct rs__at *at, const cJSON *v, void *out)
{
	static const char *const words[] = {"keep", "F32", "F16", "BF16", NULL};
	static const enum rs_dtype dtypes[] = {RS_DT_NONE, RS_DT_F32, RS_DT_F16, RS_DT_BF16};
	int n;

	if (rs__read_word(r, at, v, words, &n) < 0)
		return -1;
	*(enum rs_dtype *)out = dtypes[n];
	return 0;
}

static int read_slice(struct rs__read *r, const struct rs__at *at, const cJSON *v, void *out)
{
	struct rs__slice *s = out;
	struct rs__at inner[3] = {{at, NULL, 0}, {at, NULL, 1}, {at, NULL, 2}};

	if (!cJSON_IsArray(v) || cJSON_GetArraySize(v) != 3)
		return rs__read_unexpected(r, at, "[dim, start, stop]", v);
	if (rs__read_dim(r, &inner[0], cJSON_GetArrayItem(v, 0), &s->dim) < 0 ||
		rs__read_num(r, &inner[1], cJSON_GetArrayItem(v, 1), &s->start) < 0)
		return -1;
	return rs__read_num(r, &inner[2], cJSON_GetArrayItem(v, 2), &s->stop);
}

static int read_slices(struct rs__read *r, const struct rs__at *at, const cJSON *v, void *out)
{
	struct rs__steps *s = out;

	s->slices = rs__read_array(r, at, v, read_slice, sizeof(*s->slices), &s->n_slices);
	return s->slices ? 0 : -1;
}

static int read_transpose(struct rs__read *r, const struct rs__at *at, const cJSON *v, void *out)
{
	struct rs__steps *s = out;
	uint32_t seen = 0;

	s->transpose =
		rs__read_array(r, at, v, rs__read_dim, sizeof(*s->transpose), &s->n_transpose);
	if (!s->transpose)
		return -1;
	for (uint32_t i = 0; i < s->n_transpose; i++)
		seen |= 1u << s->transpose[i];
	if (s->n_transpose == 0 || s->n_transpose > RS_MAX_AXES ||
		seen != (1u << s->n_transpose) - 1)
		return rs__read_refuse(r, at, "expected every axis once, as in [1, 0]");
	return 0;
}

static int read_fit(struct rs__read *r, const struct rs__at *at, const cJSON *v, void *out)
{
	static const struct rs__field fields[] = {
		REQUIRED(rs__fit, "dim", dim, rs__read_dim),
		FIELD(rs__fit, "to", to, rs__read_num),
		FIELD(rs__fit, "multiple", multiple, rs__read_num),
		FIELD(rs__fit, "fill", last, read_fill),
		{0},
	};
	struct rs__fit *fit = out;

	if (rs__read_object(r, at, v, fields, fit) < 0)
		return -1;
	fit->where = rs__read_where(r, at);
	if (!fit->where)
		return -1;
	if (!fit->to.where == !fit->multiple.where)
		return rs__read_refuse(r, at, "expected either 'to' or 'multiple'");
	return 0;
}

static int read_cut(struct rs__read *r, const struct rs__at *at, const cJSON *v, void *out)
{
	static const struct rs__field fields[] = {
		REQUIRED(rs__cut, "dim", dim, rs__read_dim),
		REQUIRED(rs__cut, "axis", axis, rs__read_axis),
		FIELD(rs__cut, "unit", unit, rs__read_num),
		FIELD(rs__cut, "few", replicate, read_few),
		FIELD(rs__cut, "uneven", uneven, rs__read_uneven),
		{0},
	};
	struct rs__cut *cut = out;

	cut->where = rs__read_where(r, at);
	return cut->where ? rs__read_object(r, at, v, fields, cut) : -1;
}

static int read_cuts(struct rs__read *r, const struct rs__at *at, const cJSON *v, void *out)
{
	struct rs__steps *s = out;

	s->cuts = rs__read_array(r, at, v, read_cut, sizeof(*s->cuts), &s->n_cuts);
	return s->cuts ? 0 : -1;
}

static int read_pattern(struct rs__read *r, const struct rs__at *at, const cJSON *v, void *out)
{
	struct rs__pattern *p = out;

	p->where = rs__read_where(r, at);
	return p->where ? rs__read_str(r, at, v, &p->text) : -1;
}

static int check_groups(struct rs__read *r, const struct rs__at *at, const struct rs__steps *s)
{
	if (!s->groups.where || s->n_slices)
		return 0;
	return rs__read_refuse(
		r, at, "'groups' counts in 'slice' (or inside 'concat'); here is no slice");
}

#define STEPS(type, member)                                                                        \
	FIELD(type, "groups", member.groups, rs__read_num),                                        \
		{"slice", read_slices, offsetof(struct type, member), false},                      \
		{"transpose", read_transpose, offsetof(struct type, member), false},               \
		FIELD(type, "trim", member.trim, read_fit),                                        \
		FIELD(type, "pad", member.pad, read_fit),                                          \
	{                                                                                          \
		"cut", read_cuts, offsetof(struct type, member), false                             \
	}

static int read_part(struct rs__read *r, const struct rs__at *at, const cJSON *v, void *out)
{
	static const struct rs__field fields[] = {
		REQUIRED(rs__operand, "from", from, read_pattern),
		STEPS(rs__operand, steps),
		{0},
	};
	struct rs__operand *part = out;

	part->where = part->steps.where = rs__read_where(r, at);
	if (!part->where || rs__read_object(r, at, v, fields, part) < 0)
		return -1;
	return check_groups(r, at, &part->steps);
}

static int read_parts(struct rs__read *r, const struct rs__at *at, const cJSON *v, void *out)
{
	struct rs__concat *c = out;

	c->parts = rs__read_array(r, at, v, read_part, sizeof(*c->parts), &c->n_parts);
	if (!c->parts)
		return -1;
	return c->n_parts ? 0 : rs__read_refuse(r, at, "expected at least one part");
}

static int read_concat(struct rs__read *r, const struct rs__at *at, const cJSON *v, void *out)
{
	static const struct rs__field fields[] = {
		REQUIRED(rs__concat, "dim", dim, rs__read_dim),
		FIELD(rs__concat, "groups", groups, rs__read_num),
		{"parts", read_parts, 0, true},
		{0},
	};
	struct rs__concat *c = out;

	c->where = rs__read_where(r, at);
	return c->where ? rs__read_object(r, at, v, fields, c) : -1;
}

static int read_stack(struct rs__read *r, const struct rs__at *at, const cJSON *v, void *out)
{
	static const struct rs__field fields[] = {
		REQUIRED(rs__stack, "dim", dim, rs__read_dim),
		REQUIRED(rs__stack, "over", over, rs__read_str),
		FIELD(rs__stack, "split", split, rs__read_bool),
		{0},
	};
	struct rs__stack *s = out;

	s->where = rs__read_where(r, at);
	if (!s->where || rs__read_object(r, at, v, fields, s) < 0)
		return -1;
	for (s->range = 0; s->range < r->plan->n_ranges; s->range++)
		if (rs_str_eq(r->plan->ranges[s->range].name, s->over))
			return 0;
	return rs__read_refuse(r, at, "'over' is '%s', which is no range of the plan",
		rs_show(s->over, (char[60]){0}, 60));
}

static int compare_coords(const void *a, const void *b)
{
	uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
	return x < y ? -1 : x > y;
}

/* "first", "last" or [2, 3]: coordinates of one axis, ascending. */
static int read_place(struct rs__read *r, const struct rs__at *at, const cJSON *v, uint64_t size,
	struct rs__coords *out)
{
	uint32_t *coords = RS_NEW_N(
		r->arena, uint32_t, cJSON_IsArray(v) ? (uint64_t)cJSON_GetArraySize(v) : 1, r->err);
	const cJSON *child;

	*out = (struct rs__coords){coords, 0};
	if (!coords)
		return -1;
	if (cJSON_IsString(v) && strcmp(v->valuestring, "first") == 0) {
		coords[out->n++] = 0;
		return 0;
	}
	if (cJSON_IsString(v) && strcmp(v->valuestring, "last") == 0) {
		coords[out->n++] = (uint32_t)(size - 1);
		return 0;
	}
	if (!cJSON_IsArray(v) || cJSON_GetArraySize(v) == 0)
		return rs__read_unexpected(r, at, "first, last or a list of coordinates", v);
	cJSON_ArrayForEach(child, v)
	{
		struct rs__at inner = {.up = at, .index = out->n};
		if (rs__read_index(r, &inner, child, &coords[out->n]) < 0)
			return -1;
		if (coords[out->n] >= size)
			return rs__read_refuse(r, &inner,
				"coordinate %" PRIu32 " of an axis of %" PRIu64, coords[out->n],
				size);
		out->n++;
	}
	qsort(coords, out->n, sizeof(*coords), compare_coords);
	return 0;
}

static int read_on(struct rs__read *r, const struct rs__at *at, const cJSON *v, void *out)
{
	const struct rs__mesh *m = &r->plan->mesh;
	struct rs__coords *on = RS_NEW_N(r->arena, struct rs__coords, m->n, r->err);
	const cJSON *child;

	if (!on)
		return -1;
	if (!cJSON_IsObject(v))
		return rs__read_unexpected(r, at, "an object of axes", v);
	cJSON_ArrayForEach(child, v)
	{
		struct rs__at inner = {.up = at, .key = child->string};
		uint32_t axis = rs__mesh_find(m, rs_str(child->string));
		if (axis == RS__NONE)
			return rs__read_no_axis(r, at, child->string);
		if (read_place(r, &inner, child, m->axes[axis].size, &on[axis]) < 0)
			return -1;
	}
	*(struct rs__coords **)out = on;
	return 0;
}

static int read_block(struct rs__read *r, const struct rs__at *at, const cJSON *v, void *out)
{
	struct rs__rule *rule = out;

	rule->block = rs__read_array(r, at, v, rs__read_u64, sizeof(*rule->block), &rule->n_block);
	if (!rule->block)
		return -1;
	for (uint32_t i = 0; i < rule->n_block; i++)
		if (rule->block[i] == 0)
			return rs__read_refuse(r, at, "expected block lengths above 0");
	if (rule->n_block == 0 || rule->n_block > RS_MAX_AXES)
		return rs__read_refuse(r, at, "expected a length for each axis of the weight");
	return 0;
}

/* ----------------------------------------------------------- what goes with what */

static bool has_steps(const struct rs__steps *s)
{
	return s->n_slices || s->n_transpose || s->trim.where || s->pad.where || s->n_cuts;
}

/* Refuse the first of the members that are there beside @what. */
static int only(struct rs__read *r, const struct rs__at *at, const char *what, bool from,
	bool steps, const struct rs__rule *rule)
{
	const struct {
		bool there;
		const char *name;
	} members[] = {
		{from && rule->from.text.ptr, "from"},
		{from && rule->concat.where, "concat"},
		{from && rule->stack.where, "stack"},
		{steps && has_steps(&rule->steps), "slice, transpose, trim, pad or cut"},
		{from && rule->scale_of.text.ptr, "scale_of"},
		{from && rule->block, "block"},
	};

	for (size_t i = 0; i < sizeof(members) / sizeof(members[0]); i++)
		if (members[i].there)
			return rs__read_refuse(
				r, at, "'%s' and %s exclude each other", what, members[i].name);
	return 0;
}

static int finish_drop(struct rs__read *r, const struct rs__at *at, struct rs__rule *rule)
{
	if (rule->alias_of.text.ptr || rule->on || rule->dtype)
		return rs__read_refuse(r, at, "'drop' stands alone");
	if (only(r, at, "drop", true, true, rule) < 0)
		return -1;
	return rs__pattern_compile(&rule->drop, &rule->captures, true, r->plan->ranges,
		r->plan->n_ranges, r->arena, r->err);
}

/* Names of targets are matched as text: their numbers may be local ones. */
static int finish_alias(struct rs__read *r, const struct rs__at *at, struct rs__rule *rule)
{
	if (only(r, at, "alias_of", true, true, rule) < 0 ||
		rs__pattern_compile(
			&rule->alias_of, &rule->captures, true, NULL, 0, r->arena, r->err) < 0)
		return -1;
	return rs__pattern_compile(&rule->to, &rule->captures, false, NULL, 0, r->arena, r->err);
}

/* A single source is one operand; the parts of concat are several. */
static int take_operands(struct rs__read *r, const struct rs__at *at, struct rs__rule *rule)
{
	if (!rule->from.text.ptr == !rule->concat.where)
		return rs__read_refuse(
			r, at, "expected 'from', 'concat' or 'alias_of' beside 'to'");
	rule->operands = rule->concat.parts;
	rule->n_operands = rule->concat.n_parts;
	if (rule->from.text.ptr) {
		rule->operands = RS_NEW(r->arena, struct rs__operand, r->err);
		if (!rule->operands)
			return -1;
		*rule->operands = (struct rs__operand){.from = rule->from, .where = rule->where};
		rule->n_operands = 1;
	}
	for (uint32_t i = 0; i < rule->n_operands; i++)
		if (rs__pattern_compile(&rule->operands[i].from, &rule->captures, true,
			    r->plan->ranges, r->plan->n_ranges, r->arena, r->err) < 0)
			return -1;
	return 0;
}

/* The stacked range is in the sources' names and not in the target's; split is the inverse. */
static int take_stack(struct rs__read *r, const struct rs__at *at, struct rs__rule *rule)
{
	struct rs__captures *c = &rule->captures;
	struct rs__stack *s = &rule->stack;

	s->capture = RS__NONE;
	if (!s->where)
		return 0;
	for (uint32_t i = 0; i < c->n; i++)
		if (rs_str_eq(c->at[i].name, s->over))
			s->capture = i;
	if (s->split == (s->capture != RS__NONE))
		return rs__read_refuse(r, at,
			s->split
				? "stack with split: '{%s}' belongs in 'to' alone"
				: "stack: '{%s}' belongs in 'from', so that there is what to stack",
			rs_show(s->over, (char[60]){0}, 60));
	if (!s->split)
		return 0;
	if (c->n == RS__CAPTURES)
		return rs__read_refuse(r, at, "more than %d captures", RS__CAPTURES);
	s->capture = c->n;
	c->at[c->n++] = (struct rs__capture){s->over, s->range};
	return 0;
}

static int finish_scale(struct rs__read *r, const struct rs__at *at, struct rs__rule *rule)
{
	if (!rule->scale_of.text.ptr != !rule->block)
		return rs__read_refuse(r, at, "'scale_of' and 'block' belong together");
	if (!rule->block)
		return 0;
	if (only(r, at, "scale_of", false, true, rule) < 0)
		return -1;
	for (uint32_t i = 0; i < rule->n_operands; i++)
		if (has_steps(&rule->operands[i].steps))
			return rs__read_refuse(r, at,
				"'scale_of' takes slices and cuts from its weight: its parts have "
				"'from' alone");
	return rs__pattern_compile(&rule->scale_of, &rule->captures, false, r->plan->ranges,
		r->plan->n_ranges, r->arena, r->err);
}

/* Some operand must name every capture, so that its matches tell all targets that there are. */
static int check_captures(struct rs__read *r, const struct rs__at *at, const struct rs__rule *rule)
{
	const struct rs__stack *s = &rule->stack;

	if (s->where && !s->split && rs__pattern_has(&rule->to, s->capture))
		return rs__read_refuse(r, at, "stack: '{%s}' in 'to' is stacked away",
			rs_show(s->over, (char[60]){0}, 60));
	for (uint32_t i = 0; i < rule->n_operands; i++) {
		uint32_t missing = 0;
		for (uint32_t c = 0; c < rule->captures.n; c++)
			missing += (!s->where || c != s->capture) &&
				   !rs__pattern_has(&rule->operands[i].from, c);
		if (!missing)
			return 0;
	}
	return rs__read_refuse(
		r, at, "expected one part whose 'from' has all the captures of the others");
}

static int finish(struct rs__read *r, const struct rs__at *at, struct rs__rule *rule)
{
	if (!rule->to.text.ptr == !rule->drop.text.ptr)
		return rs__read_refuse(r, at, "expected either 'to' or 'drop'");
	if (rule->drop.text.ptr)
		return finish_drop(r, at, rule);
	if (rule->alias_of.text.ptr)
		return finish_alias(r, at, rule);
	if (take_operands(r, at, rule) < 0 || take_stack(r, at, rule) < 0 ||
		rs__pattern_compile(&rule->to, &rule->captures, false, r->plan->ranges,
			r->plan->n_ranges, r->arena, r->err) < 0)
		return -1;
	if (check_captures(r, at, rule) < 0)
		return -1;
	return finish_scale(r, at, rule);
}

int rs__read_rule(struct rs__read *r, const struct rs__at *at, const cJSON *v, void *out)
{
	static const struct rs__field fields[] = {
		FIELD(rs__rule, "to", to, read_pattern),
		FIELD(rs__rule, "from", from, read_pattern),
		FIELD(rs__rule, "drop", drop, read_pattern),
		FIELD(rs__rule, "concat", concat, read_concat),
		FIELD(rs__rule, "stack", stack, read_stack),
		STEPS(rs__rule, steps),
		FIELD(rs__rule, "on", on, read_on),
		FIELD(rs__rule, "dtype", dtype, read_dtype),
		FIELD(rs__rule, "alias_of", alias_of, read_pattern),
		FIELD(rs__rule, "scale_of", scale_of, read_pattern),
		{"block", read_block, 0, false},
		FIELD(rs__rule, "optional", optional, rs__read_bool),
		{0},
	};
	struct rs__rule *rule = out;

	rule->index = at->index;
	rule->where = rule->steps.where = rs__read_where(r, at);
	if (!rule->where || rs__read_object(r, at, v, fields, rule) < 0 ||
		check_groups(r, at, &rule->steps) < 0)
		return -1;
	return finish(r, at, rule);
}
