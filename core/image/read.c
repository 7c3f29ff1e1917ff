/*
 * read.c - bytes of a virtual file: find the segment by binary search, then point to bytes that lie
 * in memory, or copy, fill and gather them (struct rs_reply).
 *
 * No lock and no allocation: an image is immutable, a walk lives on the stack, and the files
 * are open or opened once by the catalog. The proof was made when the image was built; what can
 * still fail here is I/O, and a source that is no longer what it was (RS_CHANGED).
 * Read next: core/plan/walk.c for rows, core/base/io.c for what gathers them.
 */
#include <sys/uio.h>

#include "core/image/internal.h"

/* Stored bytes that a cast converts at a time: enough to make a read of them worth its call. */
#define CAST_BLOCK 65536

/* Below this length copying a row costs less than handing the kernel one more piece. */
#define POINT_BYTES 8192

/* ------------------------------------------------------------------- answer */

/* Add bytes that lie in memory; @where may continue the last piece. */
static void add_piece(struct rs_reply *to, const void *where, uint64_t len)
{
	struct iovec *last = to->n ? &to->iov[to->n - 1] : NULL;

	if (last && (const uint8_t *)last->iov_base + last->iov_len == where)
		last->iov_len += len;
	else
		to->iov[to->n++] = (struct iovec){(void *)(uintptr_t)where, len};
}

/* May @n pieces be pointed to? One is kept for gathered bytes, which then follow each other. */
static bool may_point(const struct rs_reply *to, uint64_t n)
{
	return to->n + n < to->max;
}

/* Room for @len gathered bytes, already part of the answer. */
static uint8_t *add_room(struct rs_reply *to, uint64_t len)
{
	uint8_t *room = to->buf + to->used;

	to->used += len;
	if (to->max)
		add_piece(to, room, len);
	return room;
}

/* ------------------------------------------------------------------- change */

/*
 * The source files that an answer takes bytes from. Each is asked whether it was written to, after
 * its bytes were copied, so that they are known to be those that the header spoke of. Asking costs
 * less than a microsecond, and an answer that was not asked about could hold zeros: of a mapped
 * page that lost its end the rest reads as such. Rows of many files alternate, hence the set.
 */
#define TOUCHED_MAX 16
struct touched {
	const struct rs_file *files[TOUCHED_MAX];
	uint32_t n;
};

static int check_touched(struct touched *t, struct rs_err *err)
{
	for (; t->n > 0; t->n--)
		if (rs_file_check(t->files[t->n - 1], err) < 0)
			return -1;
	return 0;
}

/* Remember @file, from which no byte has been taken since it was last asked. */
static int touch(struct touched *t, const struct rs_file *file, struct rs_err *err)
{
	for (uint32_t i = 0; i < t->n; i++)
		if (t->files[i] == file)
			return 0;
	if (t->n == TOUCHED_MAX && check_touched(t, err) < 0)
		return -1;
	t->files[t->n++] = file;
	return 0;
}

/* The greatest i with sorted[i] <= value; sorted[0] <= value. */
static uint64_t find_segment(const uint64_t *sorted, uint64_t n, uint64_t value)
{
	uint64_t low = 0;

	while (n > 1) {
		uint64_t half = n / 2;

		if (sorted[low + half] <= value)
			low += half;
		n -= half;
	}
	return low;
}

/* ------------------------------------------------------------------- slices */

/* Rows of a mapped source that are long enough are pointed to, and never touched by us. */
static bool point_to_rows(
	const struct rs_file *file, const struct rs_rows *rows, struct rs_reply *to)
{
	if (!file->map || rows->encoded || rows->width < POINT_BYTES ||
		!may_point(to, rows->count) ||
		!rs_range_ok(rows->off, (rows->count - 1) * rows->pitch + rows->width, file->size))
		return false;
	for (uint64_t i = 0; i < rows->count; i++)
		add_piece(to, file->map + rows->off + i * rows->pitch, rows->width);
	return true;
}

static int add_rows(const struct rs_file *file, const struct rs_rows *rows, struct rs_reply *to,
	struct rs_err *err)
{
	if (point_to_rows(file, rows, to))
		return 0;
	uint8_t *room = add_room(to, rows->width * rows->count);

	if (rows->encoded)
		return rs_content_gather(file, rows, room, err);
	return rs_io_gather(file, rows, room, err);
}

/* Bytes of a tensor in the dtype of its sources. */
static int read_slice(struct rs_catalog *cat, const struct rs_nest *nest, uint64_t skip,
	uint64_t len, struct rs_reply *to, struct touched *touched, struct rs_err *err)
{
	const struct rs_file *file = NULL;
	uint32_t number = RS_ROWS_ZERO;
	struct rs_rows rows;
	struct rs_walk w;

	rs_walk_init(&w, cat, nest, skip, len);
	while (rs_walk_next(&w, &rows)) {
		if (rows.file == RS_ROWS_ZERO) {
			memset(add_room(to, rows.width * rows.count), 0, rows.width * rows.count);
			continue;
		}
		if (rows.file != number) {
			number = rows.file;
			file = rs_catalog_file(cat, number, err);
			if (!file || touch(touched, file, err) < 0)
				return -1;
		}
		if (add_rows(file, &rows, to, err) < 0)
			return -1;
	}
	return 0;
}

/*
 * Bytes [skip, skip + len) of a tensor that is shown in another dtype: whole elements go through
 * a block on the stack; of an element that the stretch cuts, the part that is asked for is kept.
 */
static int read_cast(struct rs_catalog *cat, const struct rs_segment *segment, uint64_t skip,
	uint64_t len, struct rs_reply *to, struct touched *touched, struct rs_err *err)
{
	const uint64_t from = rs_dtype_bits(segment->cast_from) / 8;
	const uint64_t shown = rs_dtype_bits(segment->cast_to) / 8;
	uint8_t stored[CAST_BLOCK], one[8] = {0};

	while (len > 0) {
		uint64_t first = skip / shown, cut = skip % shown, n = 1;
		uint64_t part = rs_min(len, shown - cut);
		bool whole = cut == 0 && len >= shown;

		if (whole) {
			n = rs_min(len / shown, sizeof(stored) / from);
			part = n * shown;
		}
		struct rs_reply block = {.buf = stored};
		if (read_slice(cat, segment->nest, first * from, n * from, &block, touched, err) <
			0)
			return -1;
		uint8_t *dst = add_room(to, part);
		rs_cast(segment->cast_from, segment->cast_to, stored, whole ? dst : one, n);
		if (!whole)
			memcpy(dst, one + cut, part);
		skip += part;
		len -= part;
	}
	return 0;
}

static int read_tensor(struct rs_catalog *cat, const struct rs_segment *segment, uint64_t skip,
	uint64_t len, struct rs_reply *to, struct touched *touched, struct rs_err *err)
{
	skip += segment->skip;
	if (segment->cast_to != RS_DT_NONE)
		return read_cast(cat, segment, skip, len, to, touched, err);
	return read_slice(cat, segment->nest, skip, len, to, touched, err);
}

static void add_literal(struct rs_reply *to, const uint8_t *bytes, uint64_t len)
{
	if (may_point(to, 1))
		add_piece(to, bytes, len);
	else
		memcpy(add_room(to, len), bytes, len);
}

int rs_image_reply(const struct rs_image *img, struct rs_catalog *cat, uint64_t off, uint64_t len,
	struct rs_reply *to, struct rs_err *err)
{
	struct touched touched = {.n = 0};

	if (!rs_range_ok(off, len, img->size))
		return rs_fail(err, RS_USAGE, "a read that goes past the end of the file");
	if (len == 0)
		return 0;
	for (uint64_t i = find_segment(img->start, img->n_segments, off); len > 0; i++) {
		const struct rs_segment *segment = &img->segments[i];
		uint64_t skip = off - img->start[i];
		uint64_t part = rs_min(len, img->start[i + 1] - off);

		switch (segment->kind) {
		case RS_SEGMENT_LITERAL:
			add_literal(to, (const uint8_t *)segment->data + skip, part);
			break;
		case RS_SEGMENT_FILL:
			memset(add_room(to, part), segment->byte, part);
			break;
		case RS_SEGMENT_SLICE:
			if (read_tensor(cat, segment, skip, part, to, &touched, err) < 0)
				return -1;
			break;
		}
		off += part;
		len -= part;
	}
	return check_touched(&touched, err);
}

int rs_image_read(const struct rs_image *img, struct rs_catalog *cat, uint64_t off, uint64_t len,
	uint8_t *dst, struct rs_err *err)
{
	struct rs_reply gathered = {.buf = dst};

	return rs_image_reply(img, cat, off, len, &gathered, err);
}
