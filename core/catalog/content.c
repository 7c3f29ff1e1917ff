/*
 * content.c - content that is not stored as it is: big-endian elements, and bytes that a pickle of
 * protocol 2 keeps as text.
 *
 * Text is decoded from the nearest point of an index (one per 64 KiB), elements are turned around
 * in a small buffer on the stack. Both refuse what is not what the index promised; neither
 * allocates. Where content is raw, which is nearly always, none of this runs.
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

/* The decoded bytes [pos, pos + len) of one text. */
static int read_text(const struct rs_file *file, const struct rs_latin1 *text, uint64_t pos,
	uint8_t *dst, uint64_t len, struct rs_err *err)
{
	uint8_t in[CHUNK];
	uint64_t point = pos / text->step;
	uint64_t off = text->at[point], skip = pos - point * text->step;
	uint8_t lead = 0;

	while (len) {
		uint64_t n = rs_min(CHUNK, text->end - off);
		if (n == 0)
			return corrupt_text(file, off, err);
		if (rs_file_read(file, off, in, n, err) < 0)
			return -1;
		for (uint64_t i = 0; i < n && len; i++) {
			uint8_t c = in[i];
			if (!lead && (c == 0xc2 || c == 0xc3)) {
				lead = c;
				continue;
			}
			if (lead ? (c & 0xc0) != 0x80 : c >= 0x80)
				return corrupt_text(file, off + i, err);
			if (lead)
				c = (uint8_t)(lead << 6 | (c & 0x3f));
			lead = 0;
			if (skip) {
				skip--;
			} else {
				*dst++ = c;
				len--;
			}
		}
		off += n;
	}
	return 0;
}

/* Bytes [pos, pos + len) of the content, not turned around; they lie in one span. */
static int read_stored(const struct rs_file *file, const struct rs_entry *e, uint64_t pos,
	uint8_t *dst, uint64_t len, struct rs_err *err)
{
	uint32_t i = 0;

	while (pos >= e->spans[i].len)
		pos -= e->spans[i++].len;
	if (e->latin1)
		return read_text(file, &e->latin1[i], pos, dst, len, err);
	return rs_file_read(file, e->spans[i].off + pos, dst, len, err);
}

static int read_swapped(const struct rs_file *file, const struct rs_entry *e, uint64_t pos,
	uint8_t *dst, uint64_t len, struct rs_err *err)
{
	uint8_t in[CHUNK];

	while (len) {
		uint64_t lead = pos % e->swap; /* the row may begin and end inside an element */
		uint64_t n = rs_min(len, CHUNK - e->swap - lead);
		uint64_t span = (lead + n + e->swap - 1) / e->swap * e->swap;
		if (read_stored(file, e, pos - lead, in, span, err) < 0)
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

	for (uint64_t i = 0; i < rows->count; i++, dst += rows->width) {
		uint64_t pos = rows->off + i * rows->pitch;
		int rc = e->swap ? read_swapped(file, e, pos, dst, rows->width, err)
				 : read_stored(file, e, pos, dst, rows->width, err);
		if (rc < 0)
			return -1;
	}
	return 0;
}
