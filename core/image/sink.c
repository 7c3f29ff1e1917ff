/*
 * sink.c - where the description of a file goes: into a sum (measuring) or into segments
 * (building). A format speaks three verbs and never learns which.
 *
 * Refuses a file that would pass 2^63 - 1 bytes, because no off_t can name its end.
 * Read next: fmt_mindspore.c, which speaks, and image.c, which listens.
 */
#include <inttypes.h>

#include "core/image/internal.h"

/* Count first: the verbs of a sink see the offset behind their own bytes in sink->size. */
static int advance(struct rs_sink *s, uint64_t len, struct rs_err *err)
{
	uint64_t size;

	if (!rs_add(s->size, len, &size) || size > INT64_MAX)
		return rs_fail(err, RS_LIMIT, "expected a file below 2^63 bytes, found more");
	s->size = size;
	return 0;
}

int rs_sink_bytes(struct rs_sink *s, const void *p, uint64_t len, struct rs_err *err)
{
	if (len == 0)
		return 0;
	if (advance(s, len, err) < 0)
		return -1;
	return s->bytes(s, p, len, err);
}

int rs_sink_slice(struct rs_sink *s, uint64_t item, uint64_t skip, uint64_t len, struct rs_err *err)
{
	if (len == 0)
		return 0;
	if (advance(s, len, err) < 0)
		return -1;
	return s->slice(s, item, skip, len, err);
}

int rs_sink_fill(struct rs_sink *s, uint8_t byte, uint64_t len, struct rs_err *err)
{
	if (len == 0)
		return 0;
	if (advance(s, len, err) < 0)
		return -1;
	return s->fill(s, byte, len, err);
}

/* --------------------------------------------------------------- measuring */

static int forget_bytes(struct rs_sink *s, const void *p, uint64_t len, struct rs_err *err)
{
	(void)s, (void)p, (void)len, (void)err;
	return 0;
}

static int forget_slice(
	struct rs_sink *s, uint64_t item, uint64_t skip, uint64_t len, struct rs_err *err)
{
	(void)s, (void)item, (void)skip, (void)len, (void)err;
	return 0;
}

static int forget_fill(struct rs_sink *s, uint8_t byte, uint64_t len, struct rs_err *err)
{
	(void)s, (void)byte, (void)len, (void)err;
	return 0;
}

struct rs_sink rs__sink_measure(void)
{
	return (struct rs_sink){.bytes = forget_bytes, .slice = forget_slice, .fill = forget_fill};
}

/* ---------------------------------------------------------------- building */

static int append(
	struct rs__builder *b, uint64_t start, const struct rs_segment *segment, struct rs_err *err)
{
	if (rs_grow(&b->stretches, &b->cap_stretches, b->n_stretches + 1, sizeof(*b->stretches),
		    err) < 0)
		return -1;
	b->stretches[b->n_stretches++] = (struct rs__stretch){start, *segment};
	return 0;
}

/* The growing blob ends where anything else begins. */
static int flush_literal(struct rs__builder *b, struct rs_err *err)
{
	struct rs_segment segment = {.kind = RS_SEGMENT_LITERAL};

	if (b->literal_len == 0)
		return 0;
	segment.data = rs_arena_copy(b->arena, b->literal, b->literal_len, err);
	if (!segment.data)
		return -1;
	b->literal_len = 0;
	return append(b, b->literal_start, &segment, err);
}

static int build_bytes(struct rs_sink *s, const void *p, uint64_t len, struct rs_err *err)
{
	struct rs__builder *b = (struct rs__builder *)s;

	if (b->literal_len == 0)
		b->literal_start = s->size - len;
	if (rs_grow(&b->literal, &b->literal_cap, b->literal_len + len, 1, err) < 0)
		return -1;
	memcpy(b->literal + b->literal_len, p, len);
	b->literal_len += len;
	return 0;
}

/* Have the read path show a tensor in another dtype than its sources have. */
static int set_cast(struct rs_segment *segment, const struct rs_wanted *item, struct rs_err *err)
{
	if (rs_wanted_stored(item) == item->dtype)
		return 0;
	if (!rs_cast_known(item->stored, item->dtype))
		return rs_fail(err, RS_UNSUPPORTED, "tensor '%s': %s cannot be shown as %s",
			RS_SHOW(item->name), rs_dtype_name(item->stored),
			rs_dtype_name(item->dtype));
	segment->cast_from = item->stored;
	segment->cast_to = item->dtype;
	return 0;
}

static int build_slice(
	struct rs_sink *s, uint64_t item, uint64_t skip, uint64_t len, struct rs_err *err)
{
	struct rs__builder *b = (struct rs__builder *)s;
	struct rs_segment segment = {.kind = RS_SEGMENT_SLICE, .skip = skip};
	uint64_t shown = 0, planned = 0;

	/* A format that asks for more than the tensor has would make the read path walk off a nest.
	 */
	if (item < b->list->n) {
		const struct rs_wanted *w = &b->list->items[item];

		if (rs__wanted_bytes(w, &shown, err) < 0 || set_cast(&segment, w, err) < 0)
			return -1;
		segment.nest = b->nests[item];
		if (!rs_shape_bytes(&w->shape, rs_wanted_stored(w), &planned) ||
			planned != segment.nest->bytes)
			shown = 0;
	}
	if (!rs_range_ok(skip, len, shown))
		return rs_fail(err, RS_CORRUPT,
			"item %" PRIu64 ": bytes [%" PRIu64 ", +%" PRIu64
			") are not bytes of its tensor",
			item, skip, len);
	if (flush_literal(b, err) < 0)
		return -1;
	return append(b, s->size - len, &segment, err);
}

static int build_fill(struct rs_sink *s, uint8_t byte, uint64_t len, struct rs_err *err)
{
	struct rs__builder *b = (struct rs__builder *)s;
	struct rs_segment segment = {.kind = RS_SEGMENT_FILL, .byte = byte};

	if (flush_literal(b, err) < 0)
		return -1;
	return append(b, s->size - len, &segment, err);
}

/* One byte of a tensor, read while its image is built. */
static int build_peek(struct rs_sink *s, uint64_t item, uint8_t *byte, struct rs_err *err)
{
	const struct rs__builder *b = (const struct rs__builder *)s;
	const struct rs_file *file;
	struct rs_rows rows;
	struct rs_walk w;

	if (item >= b->list->n)
		return rs_fail(err, RS_CORRUPT, "item %" PRIu64 " is not in the list", item);
	rs_walk_init(&w, b->cat, b->nests[item], 0, 1);
	if (!rs_walk_next(&w, &rows) || rows.file == RS_ROWS_ZERO) {
		*byte = 0;
		return 0;
	}
	file = rs_catalog_file(b->cat, rows.file, err);
	if (!file)
		return -1;
	if ((rows.encoded ? rs_content_gather(file, &rows, byte, err)
			  : rs_io_gather(file, &rows, byte, err)) < 0)
		return -1;
	return rs_file_check(file, err);
}

void rs__builder_init(struct rs__builder *b, struct rs_arena *arena, struct rs_catalog *cat,
	const struct rs_list *list, const struct rs_nest *const *nests)
{
	*b = (struct rs__builder){
		.sink = {.bytes = build_bytes,
			.slice = build_slice,
			.fill = build_fill,
			.peek = cat ? build_peek : NULL},
		.arena = arena,
		.cat = cat,
		.list = list,
		.nests = nests,
	};
}

int rs__builder_finish(struct rs__builder *b, struct rs_image *img, struct rs_err *err)
{
	struct rs_segment *segments;
	uint64_t *start;

	if (flush_literal(b, err) < 0)
		return -1;
	segments = RS_NEW_N(b->arena, struct rs_segment, b->n_stretches, err);
	start = RS_NEW_N(b->arena, uint64_t, b->n_stretches + 1, err);
	if (!segments || !start)
		return -1;
	for (uint64_t i = 0; i < b->n_stretches; i++) {
		start[i] = b->stretches[i].start;
		segments[i] = b->stretches[i].segment;
	}
	start[b->n_stretches] = b->sink.size;
	img->size = b->sink.size;
	img->n_segments = b->n_stretches;
	img->start = start;
	img->segments = segments;
	return 0;
}

void rs__builder_done(struct rs__builder *b)
{
	rs_free(b->stretches);
	rs_free(b->literal);
	b->stretches = NULL;
	b->literal = NULL;
}
