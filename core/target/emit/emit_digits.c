/*
 * emit_digits.c - which digits of a rank's number choose which cells.
 *
 *   8 ranks hold cells 0 1 0 1 2 3 2 3 of an axis cut in 4
 *   ranks 1 apart: cells 1 apart, 2 in a row;  2 apart: the same cell;  4 apart: 2 apart, 2 in a
 * row digits: stride 1, extent 2, weight 1;  stride 4, extent 2, weight 2
 *
 * Found from the inside out and then held against every rank, so a function that only begins like
 * digits is told. Read next: emit_plan.c.
 */
#include "core/target/emit/emit.h"

/* Row-major index of a cell along each axis. */
static void decode(const struct rs__seen *s, uint32_t cell, uint32_t *idx)
{
	for (uint32_t a = s->whole.n_axes; a-- > 0;) {
		idx[a] = cell % s->cuts[a];
		cell /= s->cuts[a];
	}
}

/* The one axis along which @idx is not 0; n_axes when there is none, RS_MAX_AXES + 1 when several.
 */
static uint32_t only_axis(const struct rs__seen *s, const uint32_t *idx)
{
	uint32_t axis = s->whole.n_axes;

	for (uint32_t a = 0; a < s->whole.n_axes; a++)
		if (idx[a]) {
			if (axis != s->whole.n_axes)
				return RS_MAX_AXES + 1;
			axis = a;
		}
	return axis;
}

/* Is the cell of rank @r the one that @k steps of @weight along @axis lead to? */
static bool steps_to(const struct rs__seen *s, uint32_t cell, uint32_t axis, uint64_t far)
{
	uint32_t idx[RS_MAX_AXES];

	decode(s, cell, idx);
	for (uint32_t a = 0; a < s->whole.n_axes; a++)
		if (idx[a] != (a == axis ? far : 0))
			return false;
	return true;
}

/* Every rank's cell is the sum of its digits. */
static bool holds(const struct rs__seen *s, const uint32_t *cells, uint32_t devices,
	const struct rs__digit *digits, uint32_t n)
{
	for (uint32_t r = 0; r < devices; r++) {
		uint32_t idx[RS_MAX_AXES];
		decode(s, cells[r], idx);
		for (uint32_t i = 0; i < n; i++) {
			uint32_t far = r / digits[i].stride % digits[i].extent * digits[i].weight;
			if (far > idx[digits[i].axis])
				return false;
			idx[digits[i].axis] -= far;
		}
		for (uint32_t a = 0; a < s->whole.n_axes; a++)
			if (idx[a])
				return false;
	}
	return true;
}

/* Do the digits of each axis count through all of its cells? */
static bool complete(const struct rs__seen *s, const struct rs__digit *digits, uint32_t n)
{
	for (uint32_t a = 0; a < s->whole.n_axes; a++) {
		uint64_t reached = 1;
		for (bool more = true; more;) {
			more = false;
			for (uint32_t i = 0; i < n; i++)
				if (digits[i].axis == a && digits[i].weight == reached) {
					reached *= digits[i].extent;
					more = true;
					break;
				}
		}
		if (reached != s->cuts[a])
			return false;
	}
	return true;
}

bool rs__digits(const struct rs__seen *s, const uint32_t *cells, uint32_t devices,
	struct rs__digit *out, uint32_t *n)
{
	uint32_t idx[RS_MAX_AXES];

	*n = 0;
	if (cells[0] != 0)
		return false;
	for (uint32_t stride = 1, extent; stride < devices; stride *= extent) {
		decode(s, cells[stride], idx);
		uint32_t axis = only_axis(s, idx);
		if (axis > RS_MAX_AXES)
			return false;
		uint32_t weight = axis < s->whole.n_axes ? idx[axis] : 0;
		for (extent = 2; (uint64_t)extent * stride < devices; extent++)
			if (!steps_to(s, cells[extent * stride], axis, (uint64_t)extent * weight))
				break;
		while (extent > 1 && devices % (extent * stride) != 0)
			extent--;
		if (extent == 1)
			return false;
		if (weight)
			out[(*n)++] = (struct rs__digit){stride, extent, axis, weight};
	}
	return holds(s, cells, devices, out, *n) && complete(s, out, *n);
}

int rs__digits_fail(const struct rs_target *t, const struct rs__seen *s, struct rs_err *err)
{
	rs_fail(err, RS_USAGE,
		"target %s: tensor '%s': which rank holds which slice follows no mesh of ranks",
		t->opts.target, RS_SHOW(s->name));
	return rs_hint(err, "only slices that repeat with the rank's number can be said this way");
}
