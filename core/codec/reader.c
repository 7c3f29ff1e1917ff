/*
 * reader.c - a cursor over a block of memory that cannot leave its bounds.
 *
 * Decoders read a column of values, ask rs_read_ok once, and then think. The first failure is
 * described with file and offset and sticks; what is read after it is 0 or empty, so that no
 * loop over counts from a file can run away. Next: wire.c (files), json.c (text).
 */
#include <inttypes.h>

#include "reshardfs/codec.h"

void rs_read_init(struct rs_reader *r, const void *bytes, uint64_t len, uint64_t base_off,
	const char *file, struct rs_err *err)
{
	/* An empty block may come as NULL, on which C defines no arithmetic at all. */
	const uint8_t *base = bytes && len ? bytes : (const uint8_t *)"";

	*r = (struct rs_reader){
		.base = base,
		.pos = base,
		.end = base + len,
		.file = file,
		.base_off = base_off,
		.err = err,
	};
}

bool rs_read_ok(const struct rs_reader *r)
{
	return !r->failed;
}

static uint64_t left(const struct rs_reader *r)
{
	return (uint64_t)(r->end - r->pos);
}

static uint64_t offset(const struct rs_reader *r)
{
	return r->base_off + (uint64_t)(r->pos - r->base);
}

/* The next @len bytes, stepped over; NULL when they are not there or an earlier read failed. */
static const uint8_t *take(struct rs_reader *r, uint64_t len, const char *what)
{
	const uint8_t *at = r->pos;

	if (r->failed)
		return NULL;
	if (len > left(r)) {
		r->failed = true;
		(void)rs_fail(r->err, RS_CORRUPT,
			"%s@%" PRIu64 ": %s: expected %" PRIu64 " bytes, found %" PRIu64, r->file,
			offset(r), what, len, left(r));
		return NULL;
	}
	r->pos += len;
	return at;
}

static uint64_t little_endian(const uint8_t *p, uint32_t bytes)
{
	uint64_t v = 0;

	while (bytes-- > 0)
		v = v << 8 | p[bytes];
	return v;
}

uint8_t rs_read_u8(struct rs_reader *r, const char *what)
{
	const uint8_t *p = take(r, 1, what);

	return p ? *p : 0;
}

uint32_t rs_read_le32(struct rs_reader *r, const char *what)
{
	const uint8_t *p = take(r, 4, what);

	return p ? (uint32_t)little_endian(p, 4) : 0;
}

uint64_t rs_read_le64(struct rs_reader *r, const char *what)
{
	const uint8_t *p = take(r, 8, what);

	return p ? little_endian(p, 8) : 0;
}

struct rs_str rs_read_bytes(struct rs_reader *r, uint64_t len, const char *what)
{
	const uint8_t *p = take(r, len, what);

	return p ? (struct rs_str){(const char *)p, (size_t)len} : RS_STR("");
}

/*
 * Seven bits a byte, least significant first, the top bit says that another byte follows:
 * 300 = 0b10_0101100 is AC 02. Ten bytes hold 70 bits, so the tenth may be 0 or 1 only.
 */
uint64_t rs_read_varint(struct rs_reader *r, const char *what)
{
	uint64_t start = offset(r), v = 0;

	for (uint32_t shift = 0; shift < 70; shift += 7) {
		uint8_t byte = rs_read_u8(r, what);

		if (r->failed)
			return 0;
		if (shift == 63 && byte > 1)
			break;
		v |= (uint64_t)(byte & 0x7f) << shift;
		if (byte < 0x80)
			return v;
	}
	r->failed = true;
	(void)rs_fail(r->err, RS_CORRUPT,
		"%s@%" PRIu64 ": %s: expected a varint of 64 bits in at most ten bytes, found more",
		r->file, start, what);
	return 0;
}
