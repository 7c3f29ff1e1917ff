/*
 * pickler.h - private to the image room: opcodes of a pickle, protocol 4, as CPython's C pickler
 * writes them: which objects are written once and named by number afterwards (the memo), and how
 * opcodes are gathered into frames.
 */
#ifndef RESHARDFS_CORE_IMAGE_PICKLER_H
#define RESHARDFS_CORE_IMAGE_PICKLER_H

#include "reshardfs/image.h"

#define RS__NO_MEMO UINT32_MAX /* an object that has not been written yet */

/* A payload that lies in the open frame, behind @at bytes of text. */
struct rs__payload {
	uint64_t at, item, bytes;
};

/* The first failure sticks: check failed once, or the result of rs__pickler_end. */
struct rs__pickler {
	struct rs_sink *to;
	struct rs_err *err;
	bool failed;
	bool open;     /* a frame has begun */
	uint8_t *text; /* of the open frame, without payloads; heap, as the next */
	uint64_t text_len, text_cap;
	struct rs__payload *payloads;
	uint64_t n_payloads, cap_payloads;
	uint64_t frame_bytes; /* text and payloads */
	uint32_t next;        /* number of the next object */
};

void rs__pickler_begin(struct rs__pickler *p, struct rs_sink *to, struct rs_err *err);
/* rs__pickler_end - STOP, and the last frame. -1 when anything failed. */
int rs__pickler_end(struct rs__pickler *p);
void rs__pickler_done(struct rs__pickler *p); /* in any case */

/*
 * rs__pickler_object - a new object begins: here, and nowhere else, may a frame end. The functions
 * below that write a whole object (int, str, bytes, get) do this themselves.
 */
void rs__pickler_object(struct rs__pickler *p);
void rs__pickler_op(struct rs__pickler *p, char op);
/* rs__pickler_memo - give the object that was just written a number; returns it. */
uint32_t rs__pickler_memo(struct rs__pickler *p);
void rs__pickler_get(struct rs__pickler *p, uint32_t number);

/* Objects that are atoms: None, booleans (by their opcode) and integers are never numbered. */
void rs__pickler_atom(struct rs__pickler *p, char op);
void rs__pickler_int(struct rs__pickler *p, uint64_t value);
void rs__pickler_minus_one(struct rs__pickler *p);
/*
 * rs__pickler_str - a text, or the number under which it was written: *number is RS__NO_MEMO the
 * first time.
 */
void rs__pickler_str(struct rs__pickler *p, struct rs_str s, uint32_t *number);
/* rs__pickler_bytes - a bytes object in memory, of at most 255 bytes; as rs__pickler_str. */
void rs__pickler_bytes(struct rs__pickler *p, const void *bytes, uint8_t len, uint32_t *number);
/* rs__pickler_payload - a bytes object whose @bytes bytes are those of list item @item. */
void rs__pickler_payload(struct rs__pickler *p, uint64_t item, uint64_t bytes);

#endif
