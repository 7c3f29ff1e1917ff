/*
 * read.c - bytes of a virtual file: find the segment by binary search, then point to bytes that lie
 * in memory, or copy, fill and gather them (struct rs_reply).
 *
 * No lock and no allocation: an image is immutable, a walk lives on the stack, and the files
 * are open or opened once by the catalog. The proof was made when the image was built; what can
 * still fail here is I/O, and a source that is no longer what it was (RS_CHANGED).
 * Read next: core/plan/walk.c for rows, core/base/io.c for what gathers them.
 */
#include <stdatomic.h>
#include <sys/uio.h>
#include <time.h>

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

/* Seconds since boot, never 0, for "was checked within this second". */
static uint32_t coarse_now(void)
{
	struct timespec t = {0};

	clock_gettime(CLOCK_MONOTONIC_COARSE, &t);
	return (uint32_t)t.tv_sec + 1;
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

static uint32_t find_file(const struct rs_image *img, uint32_t file)
{
	uint32_t low = 0, n = img->n_files;

	while (n > 1) {
		uint32_t half = n / 2;

		if (img->files[low + half] <= file)
			low += half;
		n -= half;
	}
	return low;
}

/*
 * Has the file been written to since its header was read? Asked after its bytes were copied, so
 * that they are known to be old ones, and at most once a second for each file of an image. A
 * file that did change is asked about at every read, and so goes on failing.
 */
static int check_file(const struct rs_image *img, uint32_t number, const struct rs_file *file,
	uint32_t now, struct rs_err *err)
{
	_Atomic(uint32_t) *checked = &img->checked[find_file(img, number)];

	if (atomic_load_explicit(checked, memory_order_relaxed) == now)
		return 0;
	if (rs_file_check(file, err) < 0)
		return -1;
	atomic_store_explicit(checked, now, memory_order_relaxed);
	return 0;
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
static int read_slice(const struct rs_image *img, struct rs_catalog *cat,
	const struct rs_nest *nest, uint64_t skip, uint64_t len, struct rs_reply *to,
	struct rs_err *err)
{
	const struct rs_file *file = NULL;
	uint32_t number = RS_ROWS_ZERO;
	uint32_t now = coarse_now();
	struct rs_rows rows;
	struct rs_walk w;

	rs_walk_init(&w, cat, nest, skip, len);
	while (rs_walk_next(&w, &rows)) {
		if (rows.file == RS_ROWS_ZERO) {
			memset(add_room(to, rows.width * rows.count), 0, rows.width * rows.count);
			continue;
		}
		if (rows.file != number) {
			if (file && check_file(img, number, file, now, err) < 0)
				return -1;
			number = rows.file;
			file = rs_catalog_file(cat, number, err);
			if (!file)
				return -1;
		}
		if (add_rows(file, &rows, to, err) < 0)
			return -1;
	}
	return file ? check_file(img, number, file, now, err) : 0;
}

/*
 * Bytes [skip, skip + len) of a tensor that is shown in another dtype: whole elements go through
 * a block on the stack; of an element that the stretch cuts, the part that is asked for is kept.
 */
static int read_cast(const struct rs_image *img, struct rs_catalog *cat,
	const struct rs_segment *segment, uint64_t skip, uint64_t len, struct rs_reply *to,
	struct rs_err *err)
{
	const uint64_t from = rs_dtype_bits(segment->cast_from) / 8;
	const uint64_t shown = rs_dtype_bits(segment->cast_to) / 8;
	uint8_t stored[CAST_BLOCK], one[8];

	while (len > 0) {
		uint64_t first = skip / shown, cut = skip % shown, n = 1;
		uint64_t part = rs_min(len, shown - cut);
		bool whole = cut == 0 && len >= shown;

		if (whole) {
			n = rs_min(len / shown, sizeof(stored) / from);
			part = n * shown;
		}
		struct rs_reply block = {.buf = stored};
		if (read_slice(img, cat, segment->nest, first * from, n * from, &block, err) < 0)
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

static int read_tensor(const struct rs_image *img, struct rs_catalog *cat,
	const struct rs_segment *segment, uint64_t skip, uint64_t len, struct rs_reply *to,
	struct rs_err *err)
{
	skip += segment->skip;
	if (segment->cast_to != RS_DT_NONE)
		return read_cast(img, cat, segment, skip, len, to, err);
	return read_slice(img, cat, segment->nest, skip, len, to, err);
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
			if (read_tensor(img, cat, segment, skip, part, to, err) < 0)
				return -1;
			break;
		}
		off += part;
		len -= part;
	}
	return 0;
}

int rs_image_read(const struct rs_image *img, struct rs_catalog *cat, uint64_t off, uint64_t len,
	uint8_t *dst, struct rs_err *err)
{
	struct rs_reply gathered = {.buf = dst};

	return rs_image_reply(img, cat, off, len, &gathered, err);
}
