/*
 * box.c - shapes and boxes: the geometry that catalog and plan share.
 *
 * A box is [origin, origin + len) per axis. Once a shape has passed rs_shape_bytes, no product of
 * lengths inside it overflows, so the box functions need no checks of their own.
 */
#include "reshardfs/catalog.h"

#include <inttypes.h>

bool rs_shape_eq(const struct rs_shape *a, const struct rs_shape *b)
{
	return a->n_axes == b->n_axes &&
	       memcmp(a->dims, b->dims, a->n_axes * sizeof(a->dims[0])) == 0;
}

bool rs_shape_count(const struct rs_shape *s, uint64_t *out)
{
	*out = 1;
	for (uint32_t a = 0; a < s->n_axes; a++)
		if (!rs_mul(*out, s->dims[a], out))
			return false;
	return true;
}

bool rs_shape_bytes(const struct rs_shape *s, enum rs_dtype dt, uint64_t *out)
{
	uint64_t bits;
	if (!rs_shape_count(s, out) || !rs_mul(*out, rs_dtype_bits(dt), &bits) || bits % 8)
		return false;
	*out = bits / 8;
	return true;
}

struct rs_box rs_box_whole(const struct rs_shape *s)
{
	struct rs_box box = {.n_axes = s->n_axes};
	memcpy(box.len, s->dims, sizeof(box.len));
	return box;
}

struct rs_shape rs_box_shape(const struct rs_box *b)
{
	struct rs_shape shape = {.n_axes = b->n_axes};
	memcpy(shape.dims, b->len, sizeof(shape.dims));
	return shape;
}

uint64_t rs_box_count(const struct rs_box *b)
{
	uint64_t n = 1;
	for (uint32_t a = 0; a < b->n_axes; a++)
		n *= b->len[a];
	return n;
}

bool rs_box_eq(const struct rs_box *a, const struct rs_box *b)
{
	size_t n = a->n_axes * sizeof(a->len[0]);
	return a->n_axes == b->n_axes && memcmp(a->origin, b->origin, n) == 0 &&
	       memcmp(a->len, b->len, n) == 0;
}

bool rs_box_inside(const struct rs_box *b, const struct rs_shape *s)
{
	if (b->n_axes != s->n_axes)
		return false;
	for (uint32_t a = 0; a < b->n_axes; a++)
		if (!rs_range_ok(b->origin[a], b->len[a], s->dims[a]))
			return false;
	return true;
}

bool rs_box_intersect(const struct rs_box *a, const struct rs_box *b, struct rs_box *out)
{
	*out = (struct rs_box){.n_axes = a->n_axes};
	if (a->n_axes != b->n_axes)
		return false;
	for (uint32_t i = 0; i < a->n_axes; i++) {
		uint64_t begin = rs_max(a->origin[i], b->origin[i]);
		uint64_t end = rs_min(a->origin[i] + a->len[i], b->origin[i] + b->len[i]);
		if (begin >= end)
			return false;
		out->origin[i] = begin;
		out->len[i] = end - begin;
	}
	return true;
}

const char *rs_shape_show(const struct rs_shape *s, char *buf, size_t size)
{
	size_t at = rs_append(buf, size, 0, "[");
	for (uint32_t a = 0; a < s->n_axes; a++)
		at = rs_append(buf, size, at, "%s%" PRIu64, a ? ", " : "", s->dims[a]);
	rs_append(buf, size, at, "]");
	return buf;
}

const char *rs_box_show(const struct rs_box *b, char *buf, size_t size)
{
	size_t at = rs_append(buf, size, 0, "[");
	for (uint32_t a = 0; a < b->n_axes; a++)
		at = rs_append(buf, size, at, "%s%" PRIu64 ":%" PRIu64, a ? ", " : "", b->origin[a],
			b->origin[a] + b->len[a]);
	rs_append(buf, size, at, "]");
	return buf;
}
