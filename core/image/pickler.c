/*
 * pickler.c - a pickle of protocol 4 is described to a sink, byte for byte as CPython's C pickler
 * would write it.
 *
 *   80 04                        PROTO 4
 *   95 <length, 8 bytes> ...     a frame: opcodes and short payloads, at least 64 KiB of them
 *   42 <length, 4 bytes> ...     a payload of 64 KiB or more stands outside of frames
 *   95 ...                       the next frame
 *
 * A frame ends before the first object that begins when it has 65536 bytes or more. Its length
 * comes first, so the text of the open frame is kept; payloads are counted and never looked at.
 * Refuses nothing: what can be pickled is decided by fmt_pdparams.c, which speaks.
 * Format: Lib/pickletools.py and Modules/_pickle.c of CPython (3.8 to 3.13 agree).
 */
#include "core/image/pickler.h"

#define FRAME_TARGET 65536u /* a frame that has this much is full; so is a payload for itself */
#define FRAME_MIN 4u        /* shorter ones go without a frame opcode */

enum {
	OP_PROTO = 0x80,
	OP_FRAME = 0x95,
	OP_STOP = '.',
	OP_MEMOIZE = 0x94,
	OP_BINGET = 'h',
	OP_LONG_BINGET = 'j',
	OP_BININT1 = 'K',
	OP_BININT2 = 'M',
	OP_BININT = 'J',
	OP_LONG1 = 0x8a,
	OP_SHORT_BINUNICODE = 0x8c,
	OP_BINUNICODE = 'X',
	OP_SHORT_BINBYTES = 'C',
	OP_BINBYTES = 'B',
	OP_BINBYTES8 = 0x8e,
};

/* An opcode and its little-endian argument of @n bytes. */
struct head {
	uint8_t bytes[9];
	uint32_t len;
};

static struct head head_of(int op, uint64_t argument, uint32_t n)
{
	struct head h = {.bytes = {(uint8_t)op}, .len = 1 + n};

	for (uint32_t i = 0; i < n; i++)
		h.bytes[1 + i] = (uint8_t)(argument >> (8 * i));
	return h;
}

/* ------------------------------------------------------------------- frames */

static void send(struct rs__pickler *p, const void *bytes, uint64_t len)
{
	if (!p->failed && rs_sink_bytes(p->to, bytes, len, p->err) < 0)
		p->failed = true;
}

static void commit(struct rs__pickler *p)
{
	struct head frame = head_of(OP_FRAME, p->frame_bytes, 8);
	uint64_t at = 0;

	if (p->open && p->frame_bytes >= FRAME_MIN)
		send(p, frame.bytes, frame.len);
	for (uint64_t i = 0; i < p->n_payloads; i++) {
		const struct rs__payload *piece = &p->payloads[i];

		send(p, p->text + at, piece->at - at);
		at = piece->at;
		if (!p->failed && rs_sink_slice(p->to, piece->item, 0, piece->bytes, p->err) < 0)
			p->failed = true;
	}
	send(p, p->text + at, p->text_len - at);
	p->open = false;
	p->text_len = p->n_payloads = p->frame_bytes = 0;
}

static void write_text(struct rs__pickler *p, const void *bytes, uint64_t len)
{
	if (p->failed || len == 0)
		return;
	if (rs_grow(&p->text, &p->text_cap, p->text_len + len, 1, p->err) < 0) {
		p->failed = true;
		return;
	}
	memcpy(p->text + p->text_len, bytes, len);
	p->text_len += len;
	p->frame_bytes += len;
	p->open = true;
}

static void write_head(struct rs__pickler *p, int op, uint64_t argument, uint32_t n)
{
	struct head h = head_of(op, argument, n);

	write_text(p, h.bytes, h.len);
}

void rs__pickler_object(struct rs__pickler *p)
{
	if (p->open && p->frame_bytes >= FRAME_TARGET)
		commit(p);
}

void rs__pickler_begin(struct rs__pickler *p, struct rs_sink *to, struct rs_err *err)
{
	struct head proto = head_of(OP_PROTO, 4, 1);

	*p = (struct rs__pickler){.to = to, .err = err};
	send(p, proto.bytes, proto.len);
}

int rs__pickler_end(struct rs__pickler *p)
{
	rs__pickler_op(p, OP_STOP);
	commit(p);
	return p->failed ? -1 : 0;
}

void rs__pickler_done(struct rs__pickler *p)
{
	rs_free(p->text);
	rs_free(p->payloads);
}

/* ------------------------------------------------------------------ objects */

void rs__pickler_op(struct rs__pickler *p, char op)
{
	write_text(p, &op, 1);
}

uint32_t rs__pickler_memo(struct rs__pickler *p)
{
	write_head(p, OP_MEMOIZE, 0, 0);
	return p->next++;
}

void rs__pickler_get(struct rs__pickler *p, uint32_t number)
{
	rs__pickler_object(p);
	if (number < 256)
		write_head(p, OP_BINGET, number, 1);
	else
		write_head(p, OP_LONG_BINGET, number, 4);
}

void rs__pickler_atom(struct rs__pickler *p, char op)
{
	rs__pickler_object(p);
	rs__pickler_op(p, op);
}

/* Bytes of the shortest two's complement that keeps @value positive, as the pickler counts them. */
static uint32_t long_bytes(uint64_t value)
{
	return (64 - (uint32_t)__builtin_clzll(value)) / 8 + 1;
}

void rs__pickler_int(struct rs__pickler *p, uint64_t value)
{
	rs__pickler_object(p);
	if (value <= UINT8_MAX) {
		write_head(p, OP_BININT1, value, 1);
	} else if (value <= UINT16_MAX) {
		write_head(p, OP_BININT2, value, 2);
	} else if (value <= INT32_MAX) {
		write_head(p, OP_BININT, value, 4);
	} else {
		uint32_t n = long_bytes(value);

		write_head(p, OP_LONG1, n, 1);
		for (uint32_t i = 0; i < n; i++) { /* a ninth byte keeps the sign of 64 bits */
			uint8_t byte = (uint8_t)(i < 8 ? value >> (8 * i) : 0);

			write_text(p, &byte, 1);
		}
	}
}

void rs__pickler_minus_one(struct rs__pickler *p)
{
	rs__pickler_object(p);
	write_head(p, OP_BININT, UINT32_MAX, 4);
}

void rs__pickler_str(struct rs__pickler *p, struct rs_str s, uint32_t *number)
{
	if (*number != RS__NO_MEMO) {
		rs__pickler_get(p, *number);
		return;
	}
	rs__pickler_object(p);
	if (s.len <= UINT8_MAX)
		write_head(p, OP_SHORT_BINUNICODE, s.len, 1);
	else
		write_head(p, OP_BINUNICODE, s.len, 4);
	write_text(p, s.ptr, s.len);
	*number = rs__pickler_memo(p);
}

void rs__pickler_bytes(struct rs__pickler *p, const void *bytes, uint8_t len, uint32_t *number)
{
	if (*number != RS__NO_MEMO) {
		rs__pickler_get(p, *number);
		return;
	}
	rs__pickler_object(p);
	write_head(p, OP_SHORT_BINBYTES, len, 1);
	write_text(p, bytes, len);
	*number = rs__pickler_memo(p);
}

static struct head payload_head(uint64_t bytes)
{
	if (bytes <= UINT8_MAX)
		return head_of(OP_SHORT_BINBYTES, bytes, 1);
	if (bytes <= UINT32_MAX)
		return head_of(OP_BINBYTES, bytes, 4);
	return head_of(OP_BINBYTES8, bytes, 8);
}

void rs__pickler_payload(struct rs__pickler *p, uint64_t item, uint64_t bytes)
{
	struct head h = payload_head(bytes);

	rs__pickler_object(p);
	if (bytes >= FRAME_TARGET) {
		commit(p);
		send(p, h.bytes, h.len);
		if (!p->failed && rs_sink_slice(p->to, item, 0, bytes, p->err) < 0)
			p->failed = true;
	} else {
		write_text(p, h.bytes, h.len);
		if (!p->failed && rs_grow(&p->payloads, &p->cap_payloads, p->n_payloads + 1,
					  sizeof(*p->payloads), p->err) < 0)
			p->failed = true;
		if (!p->failed) {
			p->payloads[p->n_payloads++] =
				(struct rs__payload){p->text_len, item, bytes};
			p->frame_bytes += bytes;
		}
	}
	rs__pickler_memo(p);
}
