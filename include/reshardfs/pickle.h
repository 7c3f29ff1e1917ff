/*
 * pickle.h - floor 1, room codec: pickles as data. Nothing is ever imported, resolved or called.
 *
 * A pickle is a program for a small stack machine, and loading one in Python runs whatever it
 * names. This machine knows the opcodes that build values, and builds a tree of inert nodes
 * with them. Where Python would call something, a pattern is matched: the handful of calls by
 * which numpy, collections and the frameworks describe data become values; a call that is known
 * to be hostile refuses the whole file; any other leaves an opaque node that nobody looks into.
 * Payloads (bytes, long texts) are stepped over and known by their place in the file.
 * Format: docs/formats/pickle.md.
 */
#ifndef RESHARDFS_PICKLE_H
#define RESHARDFS_PICKLE_H

#include "reshardfs/base.h"

#define RS_PICKLE_OPS (UINT64_C(64) << 20) /* opcodes of one pickle; a tensor costs 20 to 60 */
#define RS_PICKLE_MARKS 1000               /* open marks */
#define RS_PICKLE_TEXT 4096                /* longer texts are not read: payloads, not names */
#define RS_PICKLE_ATTRIBUTES 64            /* of an instance; the classes of data have seven */
#define RS_PICKLE_INT_BYTES 16             /* of a long integer; torch's magic has ten */

enum rs_value_type {
	RS_VALUE_NONE,
	RS_VALUE_BOOL,   /* truth */
	RS_VALUE_INT,    /* number */
	RS_VALUE_BIGINT, /* text: two's complement, little-endian, over 8 bytes */
	RS_VALUE_DOUBLE, /* real */
	RS_VALUE_STR,    /* text; off is the file offset of its first byte */
	RS_VALUE_BYTES,  /* bytes; off is the file offset of the first byte */
	RS_VALUE_TUPLE,  /* n items */
	RS_VALUE_LIST,   /* n items */
	RS_VALUE_SET,    /* n items */
	RS_VALUE_DICT,   /* 2 n items, key and value by turns, as they were set */
	RS_VALUE_GLOBAL, /* global: a name, never looked up */
	RS_VALUE_DTYPE,  /* text: numpy's code ("f4"); n: byte order '<' '>' '|' '=', 0: structured
			  */
	RS_VALUE_ARRAY,  /* array */
	RS_VALUE_INSTANCE, /* object: of a known class of data */
	RS_VALUE_CALL,     /* object: known data with a meaning of its framework (torch tensors) */
	RS_VALUE_PERSISTENT, /* object: state is the id (torch storages) */
	RS_VALUE_OPAQUE,     /* object: something unknown, carried but never looked into */
};

struct rs_value;

/* A name in the file that would have been imported. */
struct rs_pickle_global {
	struct rs_str module, name;
	uint32_t kind; /* private to the codec */
};
/* A numpy array. Any part may be missing or of another type: who needs the array checks. */
struct rs_pickle_array {
	const struct rs_value *dtype; /* DTYPE */
	const struct rs_value *shape; /* TUPLE of INT */
	const struct rs_value *data; /* BYTES; STR of Python 2 (n is 1: raw bytes); LIST: objects */
	char order;                  /* 'C', 'F', or what else the file says; 0: never filled */
};
struct rs_value {
	enum rs_value_type type;
	/* Items or pairs; of a STR 1 when it is bytes of Python 2; see DTYPE. */
	uint32_t n;
	uint64_t off; /* file offset of the opcode that made it; see STR, BYTES */
	union {
		bool truth;
		int64_t number;
		double real;
		struct rs_str text; /* of a STR, ptr NULL: over RS_PICKLE_TEXT bytes, not read */
		struct {
			uint64_t len; /* bytes in the file */
			bool latin1;  /* they are UTF-8 of the latin-1 characters that are meant */
		} bytes;
		struct {
			struct rs_value **items;
			uint64_t cap;
		} list;
		struct {
			const struct rs_value *cls; /* GLOBAL; NULL for PERSISTENT */
			const struct rs_value
				*state; /* INSTANCE: DICT, TUPLE or NULL; else arguments */
		} object;
		struct rs_pickle_global *global;
		struct rs_pickle_array *array;
	};
};

struct rs_pickle_options {
	uint64_t max_ops; /* 0: RS_PICKLE_OPS */
	bool persistent;  /* persistent ids are data (torch); else they are refused */
};
struct rs_pickle {
	const struct rs_value *top;
	uint32_t protocol;
	uint64_t end; /* file offset behind STOP: legacy torch goes on there */
	uint64_t n_ops;
};

/*
 * rs_pickle_read - the one value of the pickle at [@begin, @end) of @file.
 * @opts: NULL for the defaults. Memory: O(file) at most, payloads are not read; @arena owns the
 * tree, and its limit is the limit. The tree may have cycles and shared nodes: walk it by schema.
 * Errors: RS_UNSUPPORTED "unsafe pickle: FILE: offset N: REDUCE of posix.system (never executed)"
 * or "unsupported pickle: ..."; RS_CORRUPT "damaged pickle: ..."; RS_LIMIT, RS_IO, RS_CHANGED.
 */
int rs_pickle_read(const struct rs_file *file, uint64_t begin, uint64_t end,
	const struct rs_pickle_options *opts, struct rs_arena *arena, struct rs_pickle *out,
	struct rs_err *err);

/* Looking at a tree. NULL values have no type, no attributes and no items. */
bool rs_value_is(const struct rs_value *v, enum rs_value_type type);
/* rs_value_name - "a list", "an instance of Metadata": for messages, in @buf. */
const char *rs_value_show(const struct rs_value *v, char *buf, size_t size);
#define RS_VALUE_SHOW(v) rs_value_show((v), (char[RS_SHOW_MAX]){0}, RS_SHOW_MAX)
/* rs_value_str - false unless @v is a text that was read. */
bool rs_value_str(const struct rs_value *v, struct rs_str *out);
bool rs_value_int(const struct rs_value *v, int64_t *out);
/* rs_value_list - items of a TUPLE or LIST; false for anything else. */
bool rs_value_list(const struct rs_value *v, struct rs_value *const **items, uint32_t *n);
/* rs_value_of - an INSTANCE or OPAQUE of a class called @name, in whatever module. */
bool rs_value_of(const struct rs_value *v, const char *name);
/* rs_value_get - what a DICT holds under @key, or NULL. The last one counts. O(n). */
const struct rs_value *rs_value_get(const struct rs_value *dict, const char *key);
/* rs_value_attr - an attribute of an INSTANCE, or NULL. */
const struct rs_value *rs_value_attr(const struct rs_value *object, const char *name);

struct rs_pickle_pair {
	struct rs_str key;
	const struct rs_value *value;
};
/*
 * rs_value_pairs - the pairs of a DICT whose keys are texts, each key once: the last value at the
 * place of the first, as in Python. Others are left out. O(n log n).
 * @n_other: keys that are no texts; @n_twice: values that were replaced; both may be NULL.
 */
int rs_value_pairs(const struct rs_value *dict, struct rs_arena *arena, struct rs_pickle_pair **out,
	uint64_t *n, uint64_t *n_other, uint64_t *n_twice, struct rs_err *err);

#endif
