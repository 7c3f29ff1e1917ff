/*
 * blocks.c - from parts and pieces to blocks: boxes of the target with an address behind each.
 *
 * A part says "this box of the target is that box of a source tensor"; the catalog says which
 * pieces that box meets. Each meeting is one block. From here on, source tensors are forgotten:
 * a block has its place in the target and a linear address in the content of a stored entry.
 * Refuses cuts inside a byte. Read next: nest.c.
 */
#include "core/plan/internal.h"

#include <inttypes.h>

struct placing {
	struct rs__blocks *to;
	const struct rs_wanted *want;
	const struct rs_part *part;
};

static int add_block(struct rs__blocks *to, const struct rs__block *b, const struct rs_wanted *want,
	struct rs_err *err)
{
	if (to->n >= RS_MAX_RUNS)
		return rs_fail(err, RS_LIMIT, "tensor '%s': more than %u pieces",
			RS_SHOW(want->name), RS_MAX_RUNS);
	if (rs_grow(&to->items, &to->cap, to->n + 1, sizeof(*to->items), err) < 0)
		return -1;
	to->items[to->n++] = *b;
	return 0;
}

/* The source axis along which axis @a of the target runs. */
static uint32_t source_axis(const struct rs_part *part, uint32_t a)
{
	return part->mapped ? part->axis[a] : a;
}

/* The box of the source tensor that a part copies. */
static struct rs_box source_box(const struct rs_part *part)
{
	struct rs_box box = {.n_axes = part->source->shape.n_axes};

	for (uint32_t s = 0; s < box.n_axes; s++) {
		box.origin[s] = part->origin[s];
		box.len[s] = 1;
	}
	for (uint32_t a = 0; a < part->box.n_axes; a++)
		if (source_axis(part, a) < box.n_axes)
			box.len[source_axis(part, a)] = part->box.len[a];
	return box;
}

/* Every axis of the target runs along another axis of the source, or along none. */
static bool axes_ok(const struct rs_part *part)
{
	uint32_t used = 0;

	if (!part->mapped)
		return part->box.n_axes == part->source->shape.n_axes;
	for (uint32_t a = 0; a < part->box.n_axes; a++) {
		uint32_t s = part->axis[a];
		if (s == RS_AXIS_NONE)
			continue;
		if (s >= part->source->shape.n_axes || used & 1u << s)
			return false;
		used |= 1u << s;
	}
	return true;
}

static int place_piece(void *arg, const struct rs_piece *piece, struct rs_err *err)
{
	const struct placing *p = arg;
	const struct rs_part *part = p->part;
	struct rs_box from = source_box(part), common;
	struct rs__block b = {.entry = piece->entry, .unit = piece->unit, .first = piece->first};

	if (!rs_box_intersect(&piece->box, &from, &common))
		return 0;
	for (uint32_t s = 0; s < common.n_axes; s++)
		b.first += (common.origin[s] - piece->box.origin[s]) * piece->stride[s];
	b.box = part->box;
	for (uint32_t a = 0; a < b.box.n_axes; a++) {
		uint32_t s = source_axis(part, a);
		if (s == RS_AXIS_NONE)
			continue; /* repeated along this axis: stride 0 */
		b.box.origin[a] += common.origin[s] - from.origin[s];
		b.box.len[a] = common.len[s];
		b.stride[a] = piece->stride[s];
	}
	return add_block(p->to, &b, p->want, err);
}

static int place_part(struct rs_catalog *cat, const struct rs_wanted *want,
	const struct rs_part *part, struct rs__blocks *to, struct rs_err *err)
{
	struct placing p = {to, want, part};

	if (!rs_box_inside(&part->box, &want->shape))
		return rs_fail(err, RS_CORRUPT, "tensor '%s': a part at %s lies outside of %s",
			RS_SHOW(want->name), RS_BOX_SHOW(&part->box), RS_SHAPE_SHOW(&want->shape));
	if (rs_box_count(&part->box) == 0)
		return 0;
	if (part->kind == RS_PART_ZERO) {
		struct rs__block zero = {.box = part->box};
		return add_block(to, &zero, want, err);
	}
	struct rs_box from = source_box(part);
	if (!axes_ok(part) || !rs_box_inside(&from, &part->source->shape))
		return rs_fail(err, RS_CORRUPT,
			"tensor '%s': wants %s of '%s', which has the shape %s",
			RS_SHOW(want->name), RS_BOX_SHOW(&from), RS_SHOW(part->source->name),
			RS_SHAPE_SHOW(&part->source->shape));
	return rs_catalog_pieces(cat, part->source, &from, want->prefer, place_piece, &p, err);
}

/* 0-d tensors have no axis to walk along: see them as one axis of one element. */
static void give_axis(struct rs__blocks *blocks)
{
	blocks->shape = (struct rs_shape){.n_axes = 1, .dims = {1}};
	for (uint64_t i = 0; i < blocks->n; i++) {
		blocks->items[i].box = rs_box_whole(&blocks->shape);
		blocks->items[i].stride[0] = 1;
	}
}

/* A single block that is the whole tensor, stored in its own order, is one run of elements. */
static bool flatten(struct rs__blocks *blocks, uint64_t elements)
{
	struct rs__block *b = blocks->items;
	struct rs_box whole = rs_box_whole(&blocks->shape);
	uint64_t step = 1;

	if (blocks->n != 1 || !rs_box_eq(&b->box, &whole))
		return false;
	for (uint32_t a = whole.n_axes; a-- > 0; step *= whole.len[a])
		if (b->entry && b->stride[a] != step)
			return false;
	blocks->shape = (struct rs_shape){.n_axes = 1, .dims = {elements}};
	b->box = rs_box_whole(&blocks->shape);
	b->stride[0] = 1;
	return true;
}

/*
 * Types below a byte are packed along the last axis: measure that axis in groups that fill bytes
 * (two F4, four F6) and refuse what is not a whole number of groups.
 */
static int group_elements(
	struct rs__blocks *blocks, const struct rs_wanted *want, uint32_t bits, struct rs_err *err)
{
	const uint64_t group = bits == 4 ? 2 : 4;
	uint64_t elements;
	uint32_t last = blocks->shape.n_axes - 1;

	blocks->element_bytes = group * bits / 8;
	if (blocks->shape.dims[last] % group && rs_shape_count(&blocks->shape, &elements) &&
		flatten(blocks, elements))
		last = 0;
	uint64_t rest = blocks->shape.dims[last] % group;
	for (uint64_t i = 0; i < blocks->n; i++) {
		struct rs__block *b = &blocks->items[i];
		rest |= b->box.origin[last] % group | b->box.len[last] % group | b->first % group;
		rest |= b->entry && b->stride[last] != 1;
		for (uint32_t a = 0; a < last; a++) {
			rest |= b->stride[a] % group;
			b->stride[a] /= group;
		}
		b->box.origin[last] /= group;
		b->box.len[last] /= group;
		b->first /= group;
	}
	if (rest)
		return rs_fail(err, RS_UNSUPPORTED,
			"tensor '%s': a cut of %s along axis %" PRIu32 " falls inside a byte",
			RS_SHOW(want->name), rs_dtype_name(want->dtype), last);
	blocks->shape.dims[last] /= group;
	return 0;
}

int rs__blocks_place(struct rs_catalog *cat, const struct rs_wanted *want, struct rs__blocks *to,
	struct rs_err *err)
{
	uint32_t bits = rs_dtype_bits(rs_wanted_stored(want));

	for (uint32_t i = 0; i < want->n_parts; i++)
		if (place_part(cat, want, &want->parts[i], to, err) < 0)
			return -1;
	to->shape = want->shape;
	to->element_bytes = bits / 8;
	if (to->shape.n_axes == 0)
		give_axis(to);
	return bits % 8 ? group_elements(to, want, bits, err) : 0;
}
