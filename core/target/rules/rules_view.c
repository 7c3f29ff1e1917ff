/*
 * rules_view.c - tensors seen through the steps of a rule, without touching data.
 *
 * A view is a shape and a list of parts: boxes of it, each an equal box of a source tensor, or
 * zeros. Every step is arithmetic on the list, and all of them come down to one: take the
 * elements [start, stop) along an axis and put them somewhere along the same axis of another view.
 *
 *   up = [4 rows], gate = [4 rows], concat with groups 2:   gate 0-1, up 0-1, gate 2-3, up 2-3
 *
 * Refuses steps that do not fit the shape, with the place in the plan. That parts tile the result
 * is proved again by rs_plan_nest. Read next: rules_bind.c.
 */
#include "core/target/rules/rules.h"

#include <inttypes.h>

/* Parts looked at by one step: beyond, groups and parts multiply to something absurd. */
#define WORK_MAX (1ull << 26)

void rs__view_done(struct rs__view *v)
{
	rs_free(v->parts);
	*v = (struct rs__view){0};
}

static int add_part(struct rs__view *v, const struct rs_part *part, struct rs_err *err)
{
	if (rs_box_count(&part->box) == 0)
		return 0;
	if (v->n == RS_MAX_RUNS)
		return rs_fail(err, RS_LIMIT, "a tensor of more than %u parts", RS_MAX_RUNS);
	if (rs_grow(&v->parts, &v->cap, v->n + 1, sizeof(*v->parts), err) < 0)
		return -1;
	v->parts[v->n++] = *part;
	return 0;
}

/* Put @to in the place of @v. */
static void replace(struct rs__view *v, struct rs__view *to)
{
	rs_free(v->parts);
	*v = *to;
}

int rs__view_source(struct rs__view *v, const struct rs_tensor *t, struct rs_err *err)
{
	struct rs_part part = {.box = rs_box_whole(&t->shape), .source = t, .mapped = true};

	for (uint32_t a = 0; a < t->shape.n_axes; a++)
		part.axis[a] = (uint8_t)a;
	*v = (struct rs__view){.dtype = t->dtype, .shape = t->shape};
	return add_part(v, &part, err);
}

/* Elements [start, stop) of @dim of @from, put at @at of @dim of @to. */
static int take(const struct rs__view *from, uint32_t dim, uint64_t start, uint64_t stop,
	uint64_t at, struct rs__view *to, struct rs_err *err)
{
	for (uint64_t i = 0; i < from->n; i++) {
		struct rs_part part = from->parts[i];
		uint64_t *origin = &part.box.origin[dim], *len = &part.box.len[dim];
		uint64_t low = rs_max(*origin, start), high = rs_min(*origin + *len, stop);

		if (low >= high)
			continue;
		if (part.axis[dim] != RS_AXIS_NONE)
			part.origin[part.axis[dim]] += low - *origin;
		*origin = at + (low - start);
		*len = high - low;
		if (add_part(to, &part, err) < 0)
			return -1;
	}
	return 0;
}

static int check_dim(const struct rs__view *v, uint32_t dim, const char *where, struct rs_err *err)
{
	if (dim < v->shape.n_axes)
		return 0;
	return rs_fail(err, RS_USAGE, "%s: dim %" PRIu32 " of a tensor that is %s", where, dim,
		RS_SHAPE_SHOW(&v->shape));
}

static int check_work(uint64_t groups, uint64_t parts, const char *where, struct rs_err *err)
{
	uint64_t work;

	if (rs_mul(groups, rs_max(parts, 1), &work) && work <= WORK_MAX)
		return 0;
	return rs_fail(
		err, RS_LIMIT, "%s: %" PRIu64 " groups of %" PRIu64 " parts", where, groups, parts);
}

/* -------------------------------------------------------------------- slice */

static int slice(struct rs__view *v, const struct rs__slice *s, uint64_t groups,
	const struct rs__scene *at, struct rs_err *err)
{
	struct rs__view to = {.dtype = v->dtype, .shape = v->shape};
	uint64_t start, stop, len;

	if (check_dim(v, s->dim, s->start.where, err) < 0 ||
		rs__num_value(&s->start, &at->plan->vars, &start, err) < 0 ||
		rs__num_value(&s->stop, &at->plan->vars, &stop, err) < 0 ||
		check_work(groups, v->n, s->start.where, err) < 0)
		return -1;
	len = v->shape.dims[s->dim];
	if (groups == 0 || len % groups)
		return rs_fail(err, RS_USAGE,
			"%s: dim %" PRIu32 " is %" PRIu64 ", expected %" PRIu64 " equal groups",
			s->start.where, s->dim, len, groups);
	len /= groups;
	if (start > stop || stop > len)
		return rs_fail(err, RS_USAGE,
			"%s: [%" PRIu64 ", %" PRIu64 ") of dim %" PRIu32 ", which is %" PRIu64 "%s",
			s->start.where, start, stop, s->dim, len, groups > 1 ? " in a group" : "");
	to.shape.dims[s->dim] = groups * (stop - start);
	for (uint64_t g = 0; g < groups; g++)
		if (take(v, s->dim, g * len + start, g * len + stop, g * (stop - start), &to, err) <
			0) {
			rs__view_done(&to);
			return -1;
		}
	replace(v, &to);
	return 0;
}

/* ---------------------------------------------------------------- transpose */

static int transpose(struct rs__view *v, const struct rs__steps *s, struct rs_err *err)
{
	struct rs__view old = *v;

	if (s->n_transpose != v->shape.n_axes)
		return rs_fail(err, RS_USAGE,
			"%s: transpose: %" PRIu32 " axes in the plan, a tensor that is %s",
			s->where, s->n_transpose, RS_SHAPE_SHOW(&v->shape));
	for (uint32_t a = 0; a < s->n_transpose; a++)
		v->shape.dims[a] = old.shape.dims[s->transpose[a]];
	for (uint64_t i = 0; i < v->n; i++) {
		struct rs_part part = v->parts[i];
		for (uint32_t a = 0; a < s->n_transpose; a++) {
			v->parts[i].box.origin[a] = part.box.origin[s->transpose[a]];
			v->parts[i].box.len[a] = part.box.len[s->transpose[a]];
			v->parts[i].axis[a] = part.axis[s->transpose[a]];
		}
	}
	return 0;
}

/* ----------------------------------------------------------------- trim, pad */

static int pad_zero(struct rs__view *v, uint32_t dim, uint64_t rows, struct rs_err *err)
{
	struct rs_part part = {
		.kind = RS_PART_ZERO, .box = rs_box_whole(&v->shape), .mapped = true};

	memset(part.axis, RS_AXIS_NONE, sizeof(part.axis));
	part.box.origin[dim] = v->shape.dims[dim];
	part.box.len[dim] = rows;
	v->shape.dims[dim] += rows;
	return add_part(v, &part, err);
}

/* The parts of the last row once more, stretched over @rows: repeated, because no axis runs there.
 */
static int pad_last(struct rs__view *v, uint32_t dim, uint64_t rows, struct rs_err *err)
{
	uint64_t last = v->shape.dims[dim] - 1, n = v->n;

	v->shape.dims[dim] += rows;
	for (uint64_t i = 0; i < n; i++) {
		struct rs_part part = v->parts[i];
		uint64_t *origin = &part.box.origin[dim], *len = &part.box.len[dim];

		if (last < *origin || last - *origin >= *len)
			continue;
		if (part.axis[dim] != RS_AXIS_NONE)
			part.origin[part.axis[dim]] += last - *origin;
		part.axis[dim] = RS_AXIS_NONE;
		*origin = last + 1;
		*len = rows;
		if (add_part(v, &part, err) < 0)
			return -1;
	}
	return 0;
}

/* The length that a fit asks for: as it says, or the next multiple, up or down. */
static int fit_length(const struct rs__fit *fit, bool up, const struct rs__scene *at, uint64_t len,
	uint64_t *out, struct rs_err *err)
{
	uint64_t multiple, rest;

	if (fit->to.where)
		return rs__num_value(&fit->to, &at->plan->vars, out, err);
	if (rs__num_value(&fit->multiple, &at->plan->vars, &multiple, err) < 0)
		return -1;
	if (multiple == 0)
		return rs_fail(err, RS_USAGE, "%s: expected a multiple above 0", fit->where);
	rest = len % multiple;
	if (rest && up && !rs_add(len, multiple - rest, &len))
		return rs_fail(err, RS_LIMIT, "%s: a multiple of %" PRIu64 " is too large",
			fit->where, multiple);
	*out = up ? len : len - rest;
	return 0;
}

/* A length is a number of a plan: it must not make shapes whose bytes overflow. */
static int check_size(const struct rs__view *v, const char *where, struct rs_err *err)
{
	uint64_t bytes;

	if (rs_shape_count(&v->shape, &bytes) && rs_mul(bytes, 8, &bytes))
		return 0;
	return rs_fail(
		err, RS_LIMIT, "%s: %s does not fit 64 bits", where, RS_SHAPE_SHOW(&v->shape));
}

static int trim(struct rs__view *v, const struct rs__fit *fit, const struct rs__scene *at,
	struct rs_err *err)
{
	struct rs__view to = {.dtype = v->dtype, .shape = v->shape};
	uint64_t len;

	if (check_dim(v, fit->dim, fit->where, err) < 0 ||
		fit_length(fit, false, at, v->shape.dims[fit->dim], &len, err) < 0)
		return -1;
	if (len > v->shape.dims[fit->dim])
		return rs_fail(err, RS_USAGE,
			"%s: dim %" PRIu32 " is %" PRIu64 ", expected at least %" PRIu64,
			fit->where, fit->dim, v->shape.dims[fit->dim], len);
	to.shape.dims[fit->dim] = len;
	if (take(v, fit->dim, 0, len, 0, &to, err) < 0) {
		rs__view_done(&to);
		return -1;
	}
	replace(v, &to);
	return 0;
}

static int pad(struct rs__view *v, const struct rs__fit *fit, const struct rs__scene *at,
	struct rs_err *err)
{
	struct rs__view would = *v;
	uint64_t len, rows, *dim;

	if (check_dim(v, fit->dim, fit->where, err) < 0 ||
		fit_length(fit, true, at, v->shape.dims[fit->dim], &len, err) < 0)
		return -1;
	dim = &v->shape.dims[fit->dim];
	if (len < *dim)
		return rs_fail(err, RS_USAGE,
			"%s: dim %" PRIu32 " is %" PRIu64 ", expected at most %" PRIu64, fit->where,
			fit->dim, *dim, len);
	rows = len - *dim;
	would.shape.dims[fit->dim] = len;
	if (check_size(&would, fit->where, err) < 0)
		return -1;
	if (rows == 0)
		return 0;
	if (fit->last && *dim == 0)
		return rs_fail(err, RS_USAGE, "%s: dim %" PRIu32 " has no last row to pad with",
			fit->where, fit->dim);
	return fit->last ? pad_last(v, fit->dim, rows, err) : pad_zero(v, fit->dim, rows, err);
}

/* ---------------------------------------------------------------------- cut */

static int cut(
	struct rs__view *v, const struct rs__cut *c, const struct rs__scene *at, struct rs_err *err)
{
	struct rs__view to = {.dtype = v->dtype, .shape = v->shape};
	struct rs__share share;

	if (v->shape.n_axes == 0)
		return 0; /* a 0-d tensor is never cut */
	if (check_dim(v, c->dim, c->where, err) < 0 ||
		rs__cut_share(c, &at->plan->mesh, &at->plan->vars, at->plan->uneven,
			v->shape.dims[c->dim], at->coords[c->axis], &share, err) < 0)
		return -1;
	to.shape.dims[c->dim] = share.stop - share.start;
	if (take(v, c->dim, share.start, share.stop, 0, &to, err) < 0 ||
		(share.pad && pad_zero(&to, c->dim, share.pad, err) < 0)) {
		rs__view_done(&to);
		return -1;
	}
	replace(v, &to);
	return 0;
}

/* ------------------------------------------------------------------ all steps */

/* A text is one thing: it can be handed on, but has no rows to take. */
static int check_text(const struct rs__view *v, const struct rs__steps *s, struct rs_err *err)
{
	if (v->dtype != RS_DT_STR || (s->n_slices == 0 && s->n_transpose == 0 && !s->trim.where &&
					     !s->pad.where && s->n_cuts == 0))
		return 0;
	return rs_fail(
		err, RS_USAGE, "%s: a text cannot be cut, sliced, trimmed or padded", s->where);
}

int rs__view_steps(struct rs__view *v, const struct rs__steps *steps, const struct rs__scene *at,
	struct rs_err *err)
{
	uint64_t groups = 1;

	if (check_text(v, steps, err) < 0)
		return -1;
	if (steps->groups.where && rs__num_value(&steps->groups, &at->plan->vars, &groups, err) < 0)
		return -1;
	for (uint32_t i = 0; i < steps->n_slices; i++)
		if (slice(v, &steps->slices[i], groups, at, err) < 0)
			return -1;
	if (steps->n_transpose && transpose(v, steps, err) < 0)
		return -1;
	if (steps->trim.where && trim(v, &steps->trim, at, err) < 0)
		return -1;
	if (steps->pad.where && pad(v, &steps->pad, at, err) < 0)
		return -1;
	for (uint32_t i = 0; i < steps->n_cuts; i++)
		if (cut(v, &steps->cuts[i], at, err) < 0)
			return -1;
	return 0;
}

/* ------------------------------------------------------------ concat and stack */

/* Views that are put together agree in dtype and in all axes but @but. */
static int check_alike(const struct rs__view *a, const struct rs__view *b, uint32_t but,
	const char *where, struct rs_err *err)
{
	bool same = a->shape.n_axes == b->shape.n_axes;

	for (uint32_t i = 0; same && i < a->shape.n_axes; i++)
		same = i == but || a->shape.dims[i] == b->shape.dims[i];
	if (same && a->dtype == b->dtype)
		return 0;
	return rs_fail(err, RS_USAGE,
		"%s: expected parts that fit each other, found %s %s and %s %s", where,
		rs_dtype_name(a->dtype), RS_SHAPE_SHOW(&a->shape), rs_dtype_name(b->dtype),
		RS_SHAPE_SHOW(&b->shape));
}

int rs__view_concat(struct rs__view *v, const struct rs__view *views, uint32_t n, uint32_t dim,
	uint64_t groups, const char *where, struct rs_err *err)
{
	uint64_t at = 0, parts = 0;

	*v = (struct rs__view){.dtype = views[0].dtype, .shape = views[0].shape};
	if (v->dtype == RS_DT_STR)
		return rs_fail(err, RS_USAGE, "%s: texts cannot be put together", where);
	if (check_dim(v, dim, where, err) < 0)
		return -1;
	v->shape.dims[dim] = 0;
	for (uint32_t i = 0; i < n; i++) {
		uint64_t len = views[i].shape.dims[dim];
		parts += views[i].n;
		if (check_alike(&views[0], &views[i], dim, where, err) < 0)
			return -1;
		if (groups == 0 || len % groups)
			return rs_fail(err, RS_USAGE,
				"%s: dim %" PRIu32 " of part %" PRIu32 " is %" PRIu64
				", expected %" PRIu64 " equal groups",
				where, dim, i, len, groups);
		if (!rs_add(v->shape.dims[dim], len, &v->shape.dims[dim]))
			return rs_fail(err, RS_LIMIT, "%s: the sum does not fit 64 bits", where);
	}
	if (check_size(v, where, err) < 0 || check_work(groups, parts, where, err) < 0)
		return -1;
	for (uint64_t g = 0; g < groups; g++)
		for (uint32_t i = 0; i < n; i++) {
			uint64_t len = views[i].shape.dims[dim] / groups;
			if (take(&views[i], dim, g * len, (g + 1) * len, at, v, err) < 0)
				return -1;
			at += len;
		}
	return 0;
}

int rs__view_stack(struct rs__view *v, const struct rs__view *views, uint32_t n, uint32_t dim,
	const struct rs__view *like, const char *where, struct rs_err *err)
{
	*v = (struct rs__view){.dtype = like->dtype, .shape = like->shape};
	if (dim > like->shape.n_axes || like->shape.n_axes == RS_MAX_AXES ||
		like->dtype == RS_DT_STR)
		return rs_fail(err, RS_USAGE, "%s: no room for a dim %" PRIu32 " in %s %s", where,
			dim, rs_dtype_name(like->dtype), RS_SHAPE_SHOW(&like->shape));
	for (uint32_t a = v->shape.n_axes++; a > dim; a--)
		v->shape.dims[a] = v->shape.dims[a - 1];
	v->shape.dims[dim] = n;
	if (check_size(v, where, err) < 0)
		return -1;
	for (uint32_t i = 0; i < n; i++) {
		if (check_alike(like, &views[i], RS__NONE, where, err) < 0)
			return -1;
		for (uint64_t p = 0; p < views[i].n; p++) {
			struct rs_part part = views[i].parts[p];
			for (uint32_t a = part.box.n_axes++; a > dim; a--) {
				part.box.origin[a] = part.box.origin[a - 1];
				part.box.len[a] = part.box.len[a - 1];
				part.axis[a] = part.axis[a - 1];
			}
			part.box.origin[dim] = i;
			part.box.len[dim] = 1;
			part.axis[dim] = RS_AXIS_NONE;
			if (add_part(v, &part, err) < 0)
				return -1;
		}
	}
	return 0;
}

int rs__view_unstack(
	struct rs__view *v, uint32_t dim, uint64_t index, const char *where, struct rs_err *err)
{
	struct rs__view to = {.dtype = v->dtype, .shape = v->shape};

	if (check_dim(v, dim, where, err) < 0)
		return -1;
	if (take(v, dim, index, index + 1, 0, &to, err) < 0) {
		rs__view_done(&to);
		return -1;
	}
	for (uint32_t a = dim; a + 1 < to.shape.n_axes; a++)
		to.shape.dims[a] = to.shape.dims[a + 1];
	to.shape.n_axes--;
	for (uint64_t p = 0; p < to.n; p++) {
		struct rs_part *part = &to.parts[p];
		part->box.n_axes--;
		for (uint32_t a = dim; a < part->box.n_axes; a++) {
			part->box.origin[a] = part->box.origin[a + 1];
			part->box.len[a] = part->box.len[a + 1];
			part->axis[a] = part->axis[a + 1];
		}
	}
	replace(v, &to);
	return 0;
}

/* ----------------------------------------------------------------- flattening */

/* Are the axes of the part those of its source, one to one? */
static bool is_plain(const struct rs_part *p)
{
	if (p->kind == RS_PART_ZERO)
		return true;
	if (p->box.n_axes != p->source->shape.n_axes)
		return false;
	for (uint32_t a = 0; a < p->box.n_axes; a++)
		if (p->axis[a] != a)
			return false;
	return true;
}

int rs__view_parts(const struct rs__view *v, struct rs_arena *arena, const struct rs_part **parts,
	uint32_t *n, struct rs_err *err)
{
	struct rs_part *copy = RS_NEW_N(arena, struct rs_part, v->n, err);

	if (!copy)
		return -1;
	for (uint64_t i = 0; i < v->n; i++) {
		copy[i] = v->parts[i];
		copy[i].mapped = !is_plain(&copy[i]);
		if (!copy[i].mapped)
			memset(copy[i].axis, 0, sizeof(copy[i].axis));
	}
	*parts = copy;
	*n = (uint32_t)v->n;
	return 0;
}
