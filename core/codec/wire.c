/*
 * wire.c - walk the fields of a protobuf message in a file, stepping over payloads unread.
 *
 * A 16 KB window holds the bytes around the last tag; it is filled again only when the walk leaves
 * it, so that small messages cost one read for many and a large payload costs none. Refuses
 * groups, field number 0, long varints and every length that leaves its message.
 * Next: core/source/ckpt.c, which gives these fields a meaning.
 */
#include <inttypes.h>

#include "reshardfs/codec.h"

#define FIELD_MAX ((1u << 29) - 1) /* of the protobuf encoding */

void rs_wire_init(struct rs_wire *w, const struct rs_file *file, uint64_t begin, uint64_t end,
	struct rs_wire_window *window)
{
	window->off = 0;
	window->len = 0;
	*w = (struct rs_wire){
		.file = file,
		.pos = begin,
		.end = end,
		.window = window->bytes,
		.window_cap = sizeof(window->bytes),
		.window_off = &window->off,
		.window_len = &window->len,
	};
}

struct rs_wire rs_wire_enter(const struct rs_wire *outer, const struct rs_field *f)
{
	struct rs_wire inner = *outer;

	inner.pos = f->body;
	inner.end = f->body + f->len; /* rs_wire_next proved that it fits in @outer */
	return inner;
}

/*
 * The byte at @pos, with all that the window holds behind it. The window may reach past the end
 * of this message: what follows is most likely read next, by the outer walker.
 */
static const uint8_t *look(const struct rs_wire *w, uint64_t pos, uint64_t *n, struct rs_err *err)
{
	uint64_t in = pos - *w->window_off;

	if (pos < *w->window_off || in >= *w->window_len) {
		uint64_t len = rs_min(w->window_cap, w->file->size - pos);

		*w->window_len = 0; /* a failed read leaves an empty window, not an old one */
		if (rs_file_read(w->file, pos, w->window, len, err) < 0)
			return NULL;
		*w->window_off = pos;
		*w->window_len = len;
		in = 0;
	}
	*n = *w->window_len - in;
	return w->window + in;
}

/* The file ends where a message that should go on ends: most likely a copy that was cut short. */
static int hint_cut(const struct rs_wire *w, struct rs_err *err)
{
	if (w->end != w->file->size)
		return -1;
	return rs_hint(err, "the file looks cut off; compare its size with the original");
}

/* Copy @len bytes at *@pos and step over them; they must lie in this message. */
static int fetch(
	const struct rs_wire *w, uint64_t *pos, void *dst, uint64_t len, struct rs_err *err)
{
	uint8_t *to = dst;

	if (len > w->end - *pos) {
		(void)rs_fail(err, RS_CORRUPT,
			"%s@%" PRIu64 ": expected %" PRIu64 " bytes of a field, found the end of "
			"the message at %" PRIu64,
			w->file->name, *pos, len, w->end);
		return hint_cut(w, err);
	}
	while (len > 0) {
		uint64_t n;
		const uint8_t *p = look(w, *pos, &n, err);

		if (!p)
			return -1;
		n = rs_min(n, len);
		memcpy(to, p, n);
		to += n;
		*pos += n;
		len -= n;
	}
	return 0;
}

/* See rs_read_varint for the encoding. */
static int varint(
	const struct rs_wire *w, uint64_t *pos, const char *what, uint64_t *out, struct rs_err *err)
{
	uint64_t start = *pos;

	*out = 0;
	for (uint32_t shift = 0; shift < 70; shift += 7) {
		uint8_t byte;

		if (fetch(w, pos, &byte, 1, err) < 0)
			return -1;
		if (shift == 63 && byte > 1)
			break;
		*out |= (uint64_t)(byte & 0x7f) << shift;
		if (byte < 0x80)
			return 0;
	}
	return rs_fail(err, RS_CORRUPT,
		"%s@%" PRIu64 ": %s: expected a varint of 64 bits in at most ten bytes, found more",
		w->file->name, start, what);
}

static int fixed(
	const struct rs_wire *w, uint64_t *pos, uint32_t bytes, uint64_t *out, struct rs_err *err)
{
	uint8_t raw[8];

	if (fetch(w, pos, raw, bytes, err) < 0)
		return -1;
	*out = 0;
	while (bytes-- > 0)
		*out = *out << 8 | raw[bytes];
	return 0;
}

static int payload(const struct rs_wire *w, uint64_t *pos, struct rs_field *f, struct rs_err *err)
{
	if (varint(w, pos, "length", &f->len, err) < 0)
		return -1;
	f->body = *pos;
	if (f->len > w->end - f->body) {
		(void)rs_fail(err, RS_CORRUPT,
			"%s@%" PRIu64 ": field %u: expected at most %" PRIu64
			" bytes up to the end of the message at %" PRIu64
			", found a length of %" PRIu64,
			w->file->name, f->off, f->number, w->end - f->body, w->end, f->len);
		return hint_cut(w, err);
	}
	*pos += f->len;
	return 0;
}

int rs_wire_next(struct rs_wire *w, struct rs_field *out, struct rs_err *err)
{
	uint64_t pos = w->pos, tag;
	int rc;

	*out = (struct rs_field){.off = pos};
	if (pos > w->end || w->end > w->file->size)
		return rs_fail(err, RS_CORRUPT,
			"%s@%" PRIu64 ": expected a message inside the file of %" PRIu64
			" bytes, found one that ends at %" PRIu64,
			w->file->name, pos, w->file->size, w->end);
	if (pos == w->end)
		return 0;
	if (varint(w, &pos, "tag", &tag, err) < 0)
		return -1;
	if (tag >> 3 == 0 || tag >> 3 > FIELD_MAX)
		return rs_fail(err, RS_CORRUPT,
			"%s@%" PRIu64 ": expected a field number from 1 to %u, found %" PRIu64,
			w->file->name, w->pos, FIELD_MAX, tag >> 3);
	out->number = (uint32_t)(tag >> 3);
	out->wire = (uint32_t)(tag & 7);
	switch (out->wire) {
	case 0:
		rc = varint(w, &pos, "value", &out->value, err);
		break;
	case 1:
		rc = fixed(w, &pos, 8, &out->value, err);
		break;
	case 2:
		rc = payload(w, &pos, out, err);
		break;
	case 5:
		rc = fixed(w, &pos, 4, &out->value, err);
		break;
	default:
		return rs_fail(err, RS_CORRUPT,
			"%s@%" PRIu64 ": field %u: expected wire type 0, 1, 2 or 5, found %u",
			w->file->name, w->pos, out->number, out->wire);
	}
	if (rc < 0)
		return -1;
	w->pos = pos;
	return 1;
}

int rs_wire_bytes(const struct rs_wire *w, const struct rs_field *f, uint64_t skip, void *dst,
	uint64_t len, struct rs_err *err)
{
	uint64_t pos = f->body + skip;

	if (!rs_range_ok(skip, len, f->len))
		return rs_fail(err, RS_CORRUPT,
			"%s@%" PRIu64 ": field %u: expected %" PRIu64 " bytes at %" PRIu64
			" of the payload, found %" PRIu64 " in all",
			w->file->name, f->off, f->number, len, skip, f->len);
	if (len > w->window_cap)
		return rs_file_read(w->file, pos, dst, len, err);
	return fetch(w, &pos, dst, len, err);
}
