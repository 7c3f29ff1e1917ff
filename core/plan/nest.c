/*
 * nest.c - from blocks to a nest of loops, which is the proof that they tile the target.
 *
 * Axis by axis, from the outermost: the borders of all blocks cut the axis into intervals, and in
 * each interval the same blocks are met. One block alone is a strided copy, written down at once.
 * Several blocks make a loop over the interval, and the next axis tells them apart. An interval
 * that no block meets is a hole; several blocks on the last axis overlap. Both end the building, so
 * a nest that exists covers every byte exactly once.
 *
 *   6 x 4, A = rows 0-3 left, B = rows 0-3 right, C = rows 4-5:
 *     axis 0: [0,4) meets {A, B}: a loop of 4 turns; axis 1: [0,2) run of A, [2,4) run of B
 *             [4,6) meets {C}: one run of 2 rows
 */
#include "core/plan/internal.h"

#include <inttypes.h>
#include <stdlib.h>

struct builder {
	const struct rs_wanted *want;
	const struct rs_catalog *cat;
	const struct rs__blocks *blocks;
	struct rs_loop *loops; /* heap */
	uint64_t n_loops, cap_loops;
	struct rs_run *runs; /* heap */
	uint64_t n_runs, cap_runs;
	uint32_t *ids; /* heap: a stack of block numbers; each recursion works above its caller's */
	uint64_t cap_ids;
	uint64_t at[RS_MAX_AXES], end[RS_MAX_AXES]; /* the interval of each axis further out */
	uint64_t inner[RS_MAX_AXES + 1]; /* bytes of one step along axis a - 1: dims[a..] */
	struct rs_err *err;
};

/* The region of the target under work: intervals outside of @axis, [p, q) on it, all inside. */
static struct rs_box region(const struct builder *b, uint32_t axis, uint64_t p, uint64_t q)
{
	struct rs_box box = rs_box_whole(&b->blocks->shape);
	for (uint32_t a = 0; a < axis; a++) {
		box.origin[a] = b->at[a];
		box.len[a] = b->end[a] - b->at[a];
	}
	box.origin[axis] = p;
	box.len[axis] = q - p;
	return box;
}

static int hole(struct builder *b, const struct rs_box *box)
{
	rs_fail(b->err, RS_CORRUPT, "tensor '%s': no piece covers %s of %s", RS_SHOW(b->want->name),
		RS_BOX_SHOW(box), RS_SHAPE_SHOW(&b->want->shape));
	return rs_hint(
		b->err, "the pieces that are there leave a hole: another strategy wrote them?");
}

static const char *block_unit(const struct builder *b, uint32_t id)
{
	const struct rs__block *block = &b->blocks->items[id];
	return block->entry ? rs_catalog_unit(b->cat, block->unit)->name : "padding";
}

static int overlap(struct builder *b, const struct rs_box *box, uint32_t one, uint32_t two)
{
	return rs_fail(b->err, RS_CORRUPT,
		"tensor '%s': %s is covered twice, by different pieces of %s and %s",
		RS_SHOW(b->want->name), RS_BOX_SHOW(box), block_unit(b, one), block_unit(b, two));
}

/* Reserve @n neighbouring loops; *first is the number of the first. */
static int add_loops(struct builder *b, uint32_t n, uint32_t *first)
{
	if (b->n_loops + n > 4ull * RS_MAX_RUNS)
		return rs_fail(b->err, RS_LIMIT, "tensor '%s': more than %u runs",
			RS_SHOW(b->want->name), RS_MAX_RUNS);
	if (rs_grow(&b->loops, &b->cap_loops, b->n_loops + n, sizeof(*b->loops), b->err) < 0)
		return -1;
	*first = (uint32_t)b->n_loops;
	memset(&b->loops[*first], 0, n * sizeof(*b->loops));
	b->n_loops += n;
	return 0;
}

static int add_run(struct builder *b, const struct rs_run *run, uint32_t *number)
{
	if (b->n_runs >= RS_MAX_RUNS)
		return rs_fail(b->err, RS_LIMIT, "tensor '%s': more than %u runs",
			RS_SHOW(b->want->name), RS_MAX_RUNS);
	if (rs_grow(&b->runs, &b->cap_runs, b->n_runs + 1, sizeof(*b->runs), b->err) < 0)
		return -1;
	*number = (uint32_t)b->n_runs;
	b->runs[b->n_runs++] = *run;
	return 0;
}

/* Counts and source pitches (bytes) of a strided copy, outermost first, around a contiguous run. */
struct copy {
	uint32_t n;
	uint64_t count[RS_MAX_AXES], pitch[RS_MAX_AXES];
	uint64_t run_bytes;
};

/*
 * The copy of rows [p, q) of @axis and all of the axes inside it. Neighbouring axes that continue
 * each other in the source become one: a full-width slice is a single run.
 */
static void fold_axes(const struct builder *b, const struct rs__block *block, uint32_t axis,
	uint64_t rows, struct copy *out)
{
	uint64_t element = b->blocks->element_bytes;

	*out = (struct copy){.run_bytes = element};
	for (uint32_t a = b->blocks->shape.n_axes; a-- > axis;) {
		uint64_t count = a == axis ? rows : b->blocks->shape.dims[a];
		uint64_t pitch = block->stride[a] * element;
		if (count == 1)
			continue;
		if (out->n == 0 && (pitch == out->run_bytes || !block->entry)) {
			out->run_bytes *= count;
		} else if (out->n && pitch == out->count[0] * out->pitch[0]) {
			out->count[0] *= count;
		} else {
			memmove(out->count + 1, out->count, out->n * sizeof(out->count[0]));
			memmove(out->pitch + 1, out->pitch, out->n * sizeof(out->pitch[0]));
			out->count[0] = count;
			out->pitch[0] = pitch;
			out->n++;
		}
	}
}

/* Where the run starts, and how it moves with the loops around this interval. */
static void address(const struct builder *b, const struct rs__block *block, uint32_t axis,
	uint64_t p, struct rs_run *run)
{
	uint64_t first = block->first + (p - block->box.origin[axis]) * block->stride[axis];

	for (uint32_t a = 0; a < axis; a++) {
		first += (b->at[a] - block->box.origin[a]) * block->stride[a];
		run->pitch[a] = block->stride[a] * b->blocks->element_bytes;
	}
	run->first = first * b->blocks->element_bytes;
	run->entry = block->entry;
	run->unit = block->unit;
}

/* Interval [p, q) of @axis is met by one block: write the copy down in loop @slot. */
static int single(struct builder *b, uint32_t slot, uint32_t axis, uint64_t p, uint64_t q,
	const struct rs__block *block)
{
	const struct rs_shape *shape = &b->blocks->shape;
	struct copy copy;
	struct rs_run run = {0};
	uint32_t number = 0, next = slot;

	for (uint32_t a = axis + 1; a < shape->n_axes; a++)
		if (block->box.origin[a] != 0 || block->box.len[a] != shape->dims[a]) {
			/* Alone here, yet not as wide as the target: the rest is nobody's. */
			struct rs_box missing = region(b, axis, p, q);
			uint64_t end = block->box.origin[a] + block->box.len[a];
			if (block->box.origin[a] == 0)
				missing.origin[a] = end;
			missing.len[a] =
				block->box.origin[a] ? block->box.origin[a] : shape->dims[a] - end;
			return hole(b, &missing);
		}
	fold_axes(b, block, axis, q - p, &copy);
	address(b, block, axis, p, &run);
	for (uint32_t i = 0; i < copy.n; i++)
		run.pitch[axis + i] = copy.pitch[i];
	if (add_run(b, &run, &number) < 0)
		return -1;

	b->loops[slot].start = p * b->inner[axis + 1];
	uint64_t bytes = (q - p) * b->inner[axis + 1];
	for (uint32_t i = 0; i + 1 < copy.n; i++) {
		if (add_loops(b, 1, &next) < 0)
			return -1;
		struct rs_loop *loop = &b->loops[slot];
		loop->count = copy.count[i];
		loop->bytes = bytes /= copy.count[i];
		loop->child = next;
		loop->n_children = 1;
		slot = next;
	}
	b->loops[slot].count = copy.n ? copy.count[copy.n - 1] : 1;
	b->loops[slot].bytes = copy.run_bytes;
	b->loops[slot].run = number;
	return 0;
}

static int by_origin(const void *x, const void *y, void *arg)
{
	const struct builder *b = ((void **)arg)[0];
	uint32_t axis = *(const uint32_t *)((void **)arg)[1];
	uint64_t p = b->blocks->items[*(const uint32_t *)x].box.origin[axis];
	uint64_t q = b->blocks->items[*(const uint32_t *)y].box.origin[axis];
	return p < q ? -1 : p > q;
}

/* The interval that starts at @p: until the next block begins (@next, a position) or one ends. */
static uint64_t interval_end(
	const struct builder *b, uint32_t axis, const uint32_t *met, uint64_t n_met, uint64_t next)
{
	uint64_t end = next;
	for (uint64_t i = 0; i < n_met; i++) {
		const struct rs_box *box = &b->blocks->items[met[i]].box;
		end = rs_min(end, box->origin[axis] + box->len[axis]);
	}
	return end;
}

static int nest_axis(struct builder *b, uint32_t axis, uint64_t base, uint64_t n, uint32_t *first,
	uint32_t *n_loops);

/* Interval [p, q) of @axis is met by the @n blocks from ids[base]: fill loop @slot. */
static int interval(struct builder *b, uint32_t slot, uint32_t axis, uint64_t p, uint64_t q,
	uint64_t base, uint64_t n)
{
	struct rs_box box = region(b, axis, p, q);
	uint32_t child, n_children;

	if (n == 0)
		return hole(b, &box);
	if (n == 1)
		return single(b, slot, axis, p, q, &b->blocks->items[b->ids[base]]);
	if (axis + 1 == b->blocks->shape.n_axes)
		return overlap(b, &box, b->ids[base], b->ids[base + 1]);
	b->at[axis] = p;
	b->end[axis] = q;
	if (nest_axis(b, axis + 1, base, n, &child, &n_children) < 0)
		return -1;
	b->loops[slot] = (struct rs_loop){.start = p * b->inner[axis + 1],
		.bytes = b->inner[axis + 1],
		.count = q - p,
		.child = child,
		.n_children = n_children};
	return 0;
}

/*
 * Sweep along @axis over the blocks ids[base .. base + n), all of which span the intervals further
 * out. Called twice: without @first it counts the intervals, with it fills loops[first ..].
 * The blocks that an interval meets are kept above ids[base + n]; of no blocks there is no place
 * either, so the array has one more.
 */
static int sweep(struct builder *b, uint32_t axis, uint64_t base, uint64_t n, const uint32_t *first,
	uint32_t *n_intervals)
{
	const struct rs__block *items = b->blocks->items;
	uint64_t dim = b->blocks->shape.dims[axis], met = base + n, n_met = 0, next = 0, p = 0;

	*n_intervals = 0;
	if (rs_grow(&b->ids, &b->cap_ids, met + n + 1, sizeof(*b->ids), b->err) < 0)
		return -1;
	while (p < dim) {
		for (uint64_t i = 0; i < n_met;) { /* drop the blocks that ended at p */
			const struct rs_box *box = &items[b->ids[met + i]].box;
			if (box->origin[axis] + box->len[axis] > p)
				i++;
			else
				b->ids[met + i] = b->ids[met + --n_met];
		}
		while (next < n && items[b->ids[base + next]].box.origin[axis] == p)
			b->ids[met + n_met++] = b->ids[base + next++];
		uint64_t begin = next < n ? items[b->ids[base + next]].box.origin[axis] : dim;
		uint64_t q = interval_end(b, axis, &b->ids[met], n_met, begin);
		if (first && interval(b, *first + *n_intervals, axis, p, q, met, n_met) < 0)
			return -1;
		++*n_intervals;
		p = q;
	}
	return 0;
}

static int nest_axis(struct builder *b, uint32_t axis, uint64_t base, uint64_t n, uint32_t *first,
	uint32_t *n_loops)
{
	void *arg[] = {b, &axis};

	if (n)
		qsort_r(&b->ids[base], n, sizeof(*b->ids), by_origin, arg);
	if (sweep(b, axis, base, n, NULL, n_loops) < 0 || add_loops(b, *n_loops, first) < 0)
		return -1;
	return sweep(b, axis, base, n, first, n_loops);
}

static int build(struct builder *b)
{
	const struct rs_shape *shape = &b->blocks->shape;
	uint32_t root, child, n_children;

	b->inner[shape->n_axes] = b->blocks->element_bytes;
	for (uint32_t a = shape->n_axes; a-- > 0;)
		b->inner[a] = b->inner[a + 1] * shape->dims[a];
	if (rs_grow(&b->ids, &b->cap_ids, b->blocks->n, sizeof(*b->ids), b->err) < 0 ||
		add_loops(b, 1, &root) < 0)
		return -1;
	for (uint64_t i = 0; i < b->blocks->n; i++)
		b->ids[i] = (uint32_t)i;
	if (nest_axis(b, 0, 0, b->blocks->n, &child, &n_children) < 0)
		return -1;
	b->loops[root] = (struct rs_loop){
		.bytes = b->inner[0], .count = 1, .child = child, .n_children = n_children};
	return 0;
}

static struct rs_nest *copy_out(const struct builder *b, struct rs_arena *arena)
{
	struct rs_nest *nest = RS_NEW(arena, struct rs_nest, b->err);
	struct rs_loop *loops = RS_NEW_N(arena, struct rs_loop, b->n_loops, b->err);
	struct rs_run *runs = RS_NEW_N(arena, struct rs_run, b->n_runs, b->err);

	if (!nest || !loops || !runs)
		return NULL;
	memcpy(loops, b->loops, b->n_loops * sizeof(*loops));
	memcpy(runs, b->runs, b->n_runs * sizeof(*runs));
	*nest = (struct rs_nest){.bytes = b->inner[0],
		.loops = loops,
		.runs = runs,
		.n_loops = (uint32_t)b->n_loops,
		.n_runs = (uint32_t)b->n_runs};
	return nest;
}

/* The shape has no size in bytes: too large, or elements below a byte that do not fill bytes. */
static int refuse_size(const struct rs_wanted *want, struct rs_err *err)
{
	enum rs_dtype dt = rs_wanted_stored(want);
	uint64_t count, bits;

	if (rs_shape_count(&want->shape, &count) && rs_mul(count, rs_dtype_bits(dt), &bits))
		return rs_fail(err, RS_UNSUPPORTED,
			"tensor '%s': a cut to %s of %s falls inside a byte", RS_SHOW(want->name),
			RS_SHAPE_SHOW(&want->shape), rs_dtype_name(dt));
	return rs_fail(err, RS_LIMIT, "tensor '%s': %s of %s does not fit 64 bits",
		RS_SHOW(want->name), RS_SHAPE_SHOW(&want->shape), rs_dtype_name(dt));
}

int rs_plan_nest(struct rs_catalog *cat, const struct rs_wanted *want, struct rs_arena *arena,
	struct rs_nest **out, struct rs_err *err)
{
	struct rs__blocks blocks = {0};
	struct builder b = {.want = want, .cat = cat, .blocks = &blocks, .err = err};
	uint64_t bytes;
	int rc = -1;

	if (!rs_shape_bytes(&want->shape, rs_wanted_stored(want), &bytes))
		return refuse_size(want, err);
	if (bytes == 0) { /* covered by nothing, and complete */
		*out = RS_NEW(arena, struct rs_nest, err);
		return *out ? 0 : -1;
	}
	if (rs__blocks_place(cat, want, &blocks, err) == 0 && build(&b) == 0) {
		*out = copy_out(&b, arena);
		rc = *out ? 0 : -1;
	}
	rs_free(blocks.items);
	rs_free(b.loops);
	rs_free(b.runs);
	rs_free(b.ids);
	return rc;
}
