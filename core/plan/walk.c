/*
 * walk.c - the rows behind a stretch of a target tensor, one group at a time.
 *
 * The position alone is the state: each step goes down from the root (a division per loop, a
 * binary search per branching) to the run that covers it, and hands out as many of the run's turns
 * as the stretch holds. An entry that its writer stored in several spans is cut at their borders.
 * No allocation, no callback, nothing to free.
 */
#include "reshardfs/plan.h"

void rs_walk_init(struct rs_walk *w, const struct rs_catalog *cat, const struct rs_nest *nest,
	uint64_t skip, uint64_t len)
{
	uint64_t start = rs_min(skip, nest->bytes);
	*w = (struct rs_walk){.nest = nest,
		.cat = cat,
		.start = start,
		.pos = start,
		.end = start + rs_min(len, nest->bytes - start)};
}

/* The last of the @n children that starts at or before @off. */
static const struct rs_loop *child_at(const struct rs_loop *child, uint32_t n, uint64_t off)
{
	while (n > 1) {
		uint32_t half = n / 2;
		if (child[half].start <= off) {
			child += half;
			n -= half;
		} else {
			n = half;
		}
	}
	return child;
}

/* The run at a position: its loop, the turn and offset in it, and the address in the content. */
struct place {
	const struct rs_loop *loop;
	const struct rs_run *run;
	uint32_t depth;
	uint64_t turn, off, content;
};

static void descend(const struct rs_nest *nest, uint64_t pos, struct place *at)
{
	uint64_t turns[RS_MAX_AXES + 1], off = pos;
	const struct rs_loop *loop = nest->loops;
	uint32_t depth = 0;

	while (loop->n_children) {
		turns[depth] = loop->count == 1 ? 0 : off / loop->bytes;
		off -= turns[depth] * loop->bytes;
		loop = child_at(&nest->loops[loop->child], loop->n_children, off);
		off -= loop->start;
		depth++;
	}
	turns[depth] = loop->count == 1 ? 0 : off / loop->bytes;
	off -= turns[depth] * loop->bytes;

	*at = (struct place){.loop = loop,
		.run = &nest->runs[loop->run],
		.depth = depth,
		.turn = turns[depth],
		.off = off};
	at->content = at->run->first + off;
	for (uint32_t d = 1; d <= depth; d++)
		at->content += turns[d] * at->run->pitch[d - 1];
}

/*
 * Put the file behind content offsets: cut the rows to those that lie in the span of the first
 * byte, down to a part of one row where the span ends inside it.
 */
static void locate(const struct rs_catalog *cat, const struct rs_run *run, uint64_t content,
	struct rs_rows *rows)
{
	const struct rs_span *span = run->entry->spans;
	const uint64_t all = content;

	while (content >= span->len) { /* a span per 512 MiB: few */
		content -= span->len;
		span++;
	}
	rows->file = rs_catalog_unit(cat, run->unit)->first_file + span->file;
	rows->off = span->off + content;
	uint64_t room = span->len - content;
	if (run->entry->latin1 || run->entry->swap) {
		rows->encoded = run->entry;
		rows->off = all;
	}
	if (rows->width > room) {
		rows->width = room;
		rows->count = 1;
	} else if (rows->count > 1 && rows->pitch) {
		rows->count = rs_min(rows->count, (room - rows->width) / rows->pitch + 1);
	}
}

bool rs_walk_next(struct rs_walk *w, struct rs_rows *rows)
{
	struct place at;

	if (w->pos >= w->end)
		return false;
	descend(w->nest, w->pos, &at);

	uint64_t left = w->end - w->pos, whole = left / at.loop->bytes;
	*rows = (struct rs_rows){.file = RS_ROWS_ZERO,
		.pitch = at.depth ? at.run->pitch[at.depth - 1] : 0,
		.target_off = w->pos - w->start};
	if (at.off == 0 && whole > 0) {
		rows->width = at.loop->bytes;
		rows->count = rs_min(at.loop->count - at.turn, whole);
	} else { /* the stretch begins or ends inside a row */
		rows->width = rs_min(at.loop->bytes - at.off, left);
		rows->count = 1;
	}
	if (at.run->entry)
		locate(w->cat, at.run, at.content, rows);
	w->pos += rows->width * rows->count;
	return true;
}
