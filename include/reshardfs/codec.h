/*
 * codec.h - floor 1: bytes to values. Containers only: no tensors, ranks or directories.
 *
 * Every decoder runs on a struct rs_file or a block of memory and believes nothing: a cursor
 * that cannot leave its bounds, limits with names, one error with file and offset.
 */
#ifndef RESHARDFS_CODEC_H
#define RESHARDFS_CODEC_H

#include "reshardfs/base.h"

struct cJSON;

/* ------------------------------------------------- bounds-checked memory cursor */

/*
 * A column of reads, one rs_read_ok, then meaning: the first failure sticks in @err, and later
 * reads return 0 or an empty string.
 */
struct rs_reader {
	const uint8_t *base, *pos, *end;
	const char *file;  /* for messages */
	uint64_t base_off; /* file offset of base, for messages */
	struct rs_err *err;
	bool failed;
};

void rs_read_init(struct rs_reader *r, const void *bytes, uint64_t len, uint64_t base_off,
	const char *file, struct rs_err *err);
bool rs_read_ok(const struct rs_reader *r);
uint8_t rs_read_u8(struct rs_reader *r, const char *what);
uint32_t rs_read_le32(struct rs_reader *r, const char *what);
uint64_t rs_read_le64(struct rs_reader *r, const char *what);
/* rs_read_bytes - the next @len bytes, pointing into the block. */
struct rs_str rs_read_bytes(struct rs_reader *r, uint64_t len, const char *what);
/* rs_read_varint - protobuf base-128; more than ten bytes or 64 bits is RS_CORRUPT. */
uint64_t rs_read_varint(struct rs_reader *r, const char *what);

/* ----------------------------------------------------------- protobuf wire walker */

/*
 * Walks the fields of one message inside a file without reading what it steps over, so that
 * the index of a 100 GB checkpoint costs one small read a tensor. Nested messages are entered by
 * a second walker over the payload's range.
 * Format: protobuf encoding, wire types 0, 1, 2, 5; groups (3, 4) are RS_CORRUPT.
 */
struct rs_wire {
	const struct rs_file *file;
	uint64_t pos, end; /* next byte and end of this message, file offsets */
	uint8_t *window;   /* read-ahead; borrowed from the caller, shared by nested walkers */
	uint64_t window_cap;
	uint64_t *window_off; /* file offset of window[0]; shared */
	uint64_t *window_len; /* valid bytes; shared */
};
struct rs_field {
	uint32_t number;
	uint32_t wire;  /* 0 varint, 1 eight bytes, 2 length-delimited, 5 four bytes */
	uint64_t value; /* wire 0, 1, 5 */
	uint64_t off;   /* file offset of the tag byte */
	uint64_t body;  /* wire 2: file offset of the payload */
	uint64_t len;   /* wire 2: payload bytes, proved to lie inside this message */
};
/* What a top-level walker and its nested ones share; put it on the stack or in an arena. */
struct rs_wire_window {
	uint8_t bytes[16384];
	uint64_t off, len;
};
void rs_wire_init(struct rs_wire *w, const struct rs_file *file, uint64_t begin, uint64_t end,
	struct rs_wire_window *window);
/* rs_wire_enter - a walker over the payload of @f, sharing the window of @outer. */
struct rs_wire rs_wire_enter(const struct rs_wire *outer, const struct rs_field *f);
/*
 * rs_wire_next - 1 with the next field in @out, 0 at the end of the message, -1 on error.
 * Errors: RS_CORRUPT (length past the message, bad wire type, field number 0, long varint,
 * message that ends inside a field), RS_IO, RS_CHANGED.
 */
int rs_wire_next(struct rs_wire *w, struct rs_field *out, struct rs_err *err);
/* rs_wire_bytes - read @len bytes of the payload of @f at @skip into @dst. */
int rs_wire_bytes(const struct rs_wire *w, const struct rs_field *f, uint64_t skip, void *dst,
	uint64_t len, struct rs_err *err);

/* --------------------------------------------------------------------------- JSON */

#define RS_JSON_DEPTH 128 /* the nesting at which the reference safetensors reader stops */

enum rs_json_type {
	RS_JSON_END, /* after the one value and white space */
	RS_JSON_OBJECT,
	RS_JSON_OBJECT_END,
	RS_JSON_ARRAY,
	RS_JSON_ARRAY_END,
	RS_JSON_KEY,
	RS_JSON_STRING,
	RS_JSON_UINT,   /* plain digits that fit 64 bits: token.u */
	RS_JSON_NUMBER, /* any other number: token.text as written */
	RS_JSON_TRUE,
	RS_JSON_FALSE,
	RS_JSON_NULL,
};
struct rs_json_token {
	enum rs_json_type type;
	struct rs_str text; /* KEY, STRING: decoded; points into the input or into the arena */
	uint64_t u;
	uint64_t off; /* file offset of the token's first byte */
};
/*
 * A strict pull reader (RFC 8259; refuses a byte order mark, `01`, `1.`, raw control bytes,
 * invalid UTF-8, lone surrogates, trailing commas, comments, text after the value, and nesting
 * over RS_JSON_DEPTH). Numbers stay exact. It does not look for duplicate keys: whoever
 * collects the keys does. Memory: only strings with escapes are copied, to the arena.
 */
struct rs_json {
	struct rs_reader in;
	struct rs_arena *arena;
	uint8_t stack[RS_JSON_DEPTH]; /* 'o' or 'a' per open level */
	uint32_t depth;
	uint8_t expect; /* what may come next; private */
};
void rs_json_init(struct rs_json *j, struct rs_str text, uint64_t base_off, const char *file,
	struct rs_arena *arena, struct rs_err *err);
/* rs_json_next - 0 with the next token (RS_JSON_END again and again at the end), -1 on error. */
int rs_json_next(struct rs_json *j, struct rs_json_token *out);
/* rs_json_skip - step over the whole value that starts with @tok (a key: its value), just read. */
int rs_json_skip(struct rs_json *j, const struct rs_json_token *tok);

/*
 * rs_json_parse - @text as a cJSON tree, for small documents (plans, indexes, strategies).
 * The strict reader goes over the text first, and duplicate keys are refused, because cJSON
 * itself is lenient. Owns: free with cJSON_Delete. Numbers: use rs_json_int.
 */
int rs_json_parse(struct rs_str text, const char *file, struct cJSON **out, struct rs_err *err);
/*
 * rs_json_int - the value as an exact integer; false for anything else and beyond 2^53 - 1,
 * where the doubles of cJSON no longer tell neighbours apart.
 */
bool rs_json_int(const struct cJSON *item, int64_t *out);

/*
 * Writing JSON: a growing heap buffer with commas and escapes taken care of. For output of
 * verbs, headers of safetensors files (compact) and strategy files. Errors stick: check once,
 * with rs_jsonw_take.
 */
struct rs_jsonw {
	char *buf;
	uint64_t len, cap;
	uint32_t depth;
	bool comma, after_key, pretty, failed;
};
void rs_jsonw_init(struct rs_jsonw *w, bool pretty);
void rs_jsonw_open(struct rs_jsonw *w, char bracket);  /* '{' or '[' */
void rs_jsonw_close(struct rs_jsonw *w, char bracket); /* '}' or ']' */
void rs_jsonw_key(struct rs_jsonw *w, struct rs_str key);
void rs_jsonw_str(struct rs_jsonw *w, struct rs_str value); /* invalid UTF-8 becomes U+FFFD */
void rs_jsonw_uint(struct rs_jsonw *w, uint64_t value);
void rs_jsonw_int(struct rs_jsonw *w, int64_t value);
void rs_jsonw_double(struct rs_jsonw *w, double value);
void rs_jsonw_bool(struct rs_jsonw *w, bool value);
void rs_jsonw_null(struct rs_jsonw *w);
/* rs_jsonw_take - the finished text (heap, terminated; rs_free), or NULL with RS_NOMEM. */
char *rs_jsonw_take(struct rs_jsonw *w, uint64_t *len, struct rs_err *err);

/* ------------------------------------------------------------- what is this file? */

/*
 * rs_sniff_foreign - recognise what people find in place of a checkpoint: a Git LFS pointer
 * (with its real size), an HTML page, a file that went through a text conversion
 * (0A EF BF BD), an empty file, an encrypted MindSpore file.
 * Returns 0 when the file is none of them; -1 with RS_CORRUPT or RS_UNSUPPORTED and a hint.
 */
int rs_sniff_foreign(const struct rs_file *file, struct rs_err *err);

#endif
