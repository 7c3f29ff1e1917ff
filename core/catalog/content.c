/*
 * content.c - content that is not stored as it is: big-endian elements, and bytes that a pickle of
 * protocol 2 keeps as text.
 *
 * Text is decoded from the nearest point of an index (one per 64 KiB) or from where the last row
 * ended, elements are turned around in a small buffer on the stack. Both refuse what is not what
 * the index promised; neither allocates. Where content is raw, which is nearly always, none of this
 * runs.
 */
#include "reshardfs/catalog.h"

#include <inttypes.h>

#define CHUNK 4096u /* on the stack; a multiple of every element size */

static int corrupt_text(const struct rs_file *file, uint64_t off, struct rs_err *err)
{
	return rs_fail(err, RS_CORRUPT,
		"%s@%" PRIu64 ": expected latin-1 characters in UTF-8, found another byte",
		file->name, off);
}

/*
 * A place in a text, and the bytes behind it. Rows of one call mostly ascend, so the next begins
 * where the last one ended, or a little further; only what lies far is looked up in the index.
 */
struct cursor {
	const struct rs_latin1 *text; /* NULL: nowhere yet */
	uint64_t pos;                 /* of the next decoded byte */
	uint64_t off;                 /* in the file, behind the buffer */
	uint32_t at, n;               /* next and end in the buffer */
	uint8_t in[CHUNK];
};

static void seek(struct cursor *c, const struct rs_latin1 *text, uint64_t pos)
{
	uint64_t point = pos / text->step;

	if (c->text == text && pos >= c->pos && c->pos / text->step >= point)
		return; /* on the way there is no point of the index */
	c->text = text;
	c->pos = point * text->step;
	c->off = text->at[point];
	c->at = c->n = 0;
}

static int refill(struct cursor *c, const struct rs_file *file, struct rs_err *err)
{
	uint64_t n = rs_min(CHUNK, c->text->end - c->off);

	if (n == 0)
		return corrupt_text(file, c->off, err);
	if (rs_file_read(file, c->off, c->in, n, err) < 0) {
		c->text = NULL;
		return -1;
	}
	c->off += n;
	c->at = 0;
	c->n = (uint32_t)n;
	return 0;
}

/* One decoded byte. */
static int take(struct cursor *c, const struct rs_file *file, uint8_t *out, struct rs_err *err)
{
	uint8_t lead = 0;

	for (;;) {
		if (c->at == c->n && refill(c, file, err) < 0)
			return -1;
		uint8_t byte = c->in[c->at++];
		if (!lead && (byte == 0xc2 || byte == 0xc3)) {
			lead = byte;
			continue;
		}
		if (lead ? (byte & 0xc0) != 0x80 : byte >= 0x80)
			return corrupt_text(file, c->off - (c->n - c->at) - 1, err);
		if (lead)
			byte = (uint8_t)((unsigned int)lead << 6 | (byte & 0x3fu));
		*out = byte;
		c->pos++;
		return 0;
	}
}

/* The decoded bytes [pos, pos + len) of one text. */
static int read_text(const struct rs_file *file, const struct rs_latin1 *text, struct cursor *c,
	uint64_t pos, uint8_t *dst, uint64_t len, struct rs_err *err)
{
	uint8_t skipped;

	seek(c, text, pos);
	while (c->pos < pos)
		if (take(c, file, &skipped, err) < 0)
			return -1;
	for (uint64_t i = 0; i < len; i++)
		if (take(c, file, &dst[i], err) < 0)
			return -1;
	return 0;
}

/* Bytes [pos, pos + len) of the content, not turned around; they lie in one span. */
static int read_stored(const struct rs_file *file, const struct rs_entry *e, struct cursor *c,
	uint64_t pos, uint8_t *dst, uint64_t len, struct rs_err *err)
{
	uint32_t i = 0;

	while (pos >= e->spans[i].len)
		pos -= e->spans[i++].len;
	if (e->latin1)
		return read_text(file, &e->latin1[i], c, pos, dst, len, err);
	return rs_file_read(file, e->spans[i].off + pos, dst, len, err);
}

static int read_swapped(const struct rs_file *file, const struct rs_entry *e, struct cursor *c,
	uint64_t pos, uint8_t *dst, uint64_t len, struct rs_err *err)
{
	uint8_t in[CHUNK];

	while (len) {
		uint64_t lead = pos % e->swap; /* the row may begin and end inside an element */
		uint64_t n = rs_min(len, CHUNK - e->swap - lead);
		uint64_t span = (lead + n + e->swap - 1) / e->swap * e->swap;
		if (read_stored(file, e, c, pos - lead, in, span, err) < 0)
			return -1;
		for (uint64_t i = 0; i < n; i++) {
			uint64_t at = lead + i, element = at / e->swap * e->swap;
			dst[i] = in[element + e->swap - 1 - (at - element)];
		}
		pos += n;
		dst += n;
		len -= n;
	}
	return 0;
}

int rs_content_gather(
	const struct rs_file *file, const struct rs_rows *rows, uint8_t *dst, struct rs_err *err)
{
	const struct rs_entry *e = rows->encoded;
	struct cursor c;

	c.text = NULL; /* the rest of it means nothing yet, and the buffer need not be cleared */
	for (uint64_t i = 0; i < rows->count; i++, dst += rows->width) {
		uint64_t pos = rows->off + i * rows->pitch;
		int rc = e->swap ? read_swapped(file, e, &c, pos, dst, rows->width, err)
				 : read_stored(file, e, &c, pos, dst, rows->width, err);
		if (rc < 0)
			return -1;
	}
	return 0;
}
