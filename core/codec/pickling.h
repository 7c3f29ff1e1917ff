/*
 * pickling.h - what the files of the pickle machine share: pickle.c reads bytes and drives,
 * pickle_ops.c holds the table of opcodes, pickle_call.c matches what Python would call,
 * pickle_names.c knows the names. pickle_value.c looks at the finished tree.
 */
#ifndef RESHARDFS_CORE_CODEC_PICKLING_H
#define RESHARDFS_CORE_CODEC_PICKLING_H

#include "reshardfs/pickle.h"

#define RS__PICKLE_WINDOW 65536 /* read-ahead while opcodes follow each other */
#define RS__PICKLE_PEEK 4096    /* first read behind a payload that was stepped over */

/* What a name means. The order counts for nothing. */
enum rs__pickle_kind {
	RS__NAME_UNKNOWN,     /* a call of it is opaque */
	RS__NAME_UNSAFE,      /* a call of it refuses the file */
	RS__NAME_OPAQUE,      /* known and of no interest */
	RS__NAME_CLASS,       /* an instance with attributes */
	RS__NAME_CALL,        /* data whose meaning the source of its framework knows */
	RS__NAME_ARRAY,       /* numpy _reconstruct */
	RS__NAME_ARRAY_CLASS, /* numpy ndarray */
	RS__NAME_FROMBUFFER,
	RS__NAME_SCALAR,
	RS__NAME_DTYPE,
	RS__NAME_NUMPY_TYPE, /* numpy float32: an argument of dtype */
	RS__NAME_ENCODE,     /* _codecs encode */
	RS__NAME_BYTES,      /* bytes, bytearray */
	RS__NAME_SEQUENCE,   /* tuple, list */
	RS__NAME_SET,        /* set, frozenset */
	RS__NAME_DICT,       /* OrderedDict, Counter */
	RS__NAME_DEFAULT_DICT,
	RS__NAME_EVAL, /* Paddle's eval('data', {'data': array}) */
	RS__NAME_IDENTITY,
	RS__NAME_RECONSTRUCTOR, /* copyreg _reconstructor */
	RS__NAME_NEWOBJ,        /* copyreg __newobj__ */
	RS__NAME_SIZE,          /* torch Size */
	RS__NAME_PATH,          /* pathlib PosixPath */
};
enum rs__pickle_kind rs__pickle_kind(struct rs_str module, struct rs_str name);
/* rs__pickle_code - the code of a numpy scalar type: "f4" for float32; NULL when unknown. */
const char *rs__pickle_code(struct rs_str name);

/* Texts that stand many times in a file share their bytes in memory. */
struct rs__pickle_texts {
	struct rs_str *slots; /* heap */
	uint64_t n, cap;      /* cap: a power of two, or 0 */
};

/* The nodes that never differ, made once. */
struct rs__pickle_pool {
	struct rs_value none, yes, no, empty_tuple;
	struct rs_value *small[256]; /* BININT1 */
};

struct rs__pickle {
	const struct rs_file *file;
	struct rs_arena *arena;
	struct rs_err *err;
	bool persistent;
	uint64_t max_ops;

	/* bytes */
	uint64_t pos, end;
	uint64_t frame_end; /* of the open frame; 0: none */
	uint64_t window_off, window_len;

	/* the opcode under work */
	const char *op;
	uint64_t op_off, n_ops;

	/* the machine; all arrays on the heap */
	struct rs_value **stack;
	uint64_t n_stack, cap_stack;
	uint64_t n_marks;
	struct rs_value **memo;
	uint64_t n_memo, cap_memo; /* places, empty ones too */
	uint64_t n_kept;           /* entries: the number that MEMOIZE goes by */
	struct rs__pickle_texts texts;
	struct rs__pickle_pool *pool; /* in the arena */
	uint64_t marks[RS_PICKLE_MARKS];
	uint8_t window[RS__PICKLE_WINDOW];
};

/* Refusals: "damaged pickle: FILE: offset N: OPCODE: ..."; return -1. */
int rs__pickle_damaged(struct rs__pickle *p, const char *fmt, ...)
	__attribute__((cold, format(printf, 2, 3)));
int rs__pickle_unsupported(struct rs__pickle *p, const char *fmt, ...)
	__attribute__((cold, format(printf, 2, 3)));
/* "unsafe pickle: FILE: offset N: OPCODE of WHAT (never executed)" */
int rs__pickle_unsafe(struct rs__pickle *p, const char *fmt, ...)
	__attribute__((cold, format(printf, 2, 3)));

/* Bytes at the cursor (pickle.c). */
int rs__pickle_take(struct rs__pickle *p, void *dst, uint64_t len);
int rs__pickle_skip(struct rs__pickle *p, uint64_t len);
/* rs__pickle_line - the text up to a newline, which is stepped over; in the arena. */
int rs__pickle_line(struct rs__pickle *p, struct rs_str *out);
int rs__pickle_text(struct rs__pickle *p, const char *bytes, uint64_t len, struct rs_str *out);

/* The machine (pickle.c). */
struct rs_value *rs__pickle_node(struct rs__pickle *p, enum rs_value_type type); /* or NULL */
int rs__pickle_push(struct rs__pickle *p, struct rs_value *v); /* -1 for NULL, too */
/* rs__pickle_pop - NULL and an error when the stack is empty above the last mark. */
struct rs_value *rs__pickle_pop(struct rs__pickle *p);
struct rs_value *rs__pickle_top(struct rs__pickle *p);
/* rs__pickle_unmark - close the last mark: *items of *n values above it, taken off the stack. */
int rs__pickle_unmark(struct rs__pickle *p, struct rs_value *const **items, uint64_t *n);
/* rs__pickle_append - add @n items to a LIST or SET, keys and values by turns to a DICT. */
int rs__pickle_append(
	struct rs__pickle *p, struct rs_value *list, struct rs_value *const *items, uint64_t n);
/* rs__pickle_list - a TUPLE, LIST or SET of @n items, copied. */
struct rs_value *rs__pickle_list(
	struct rs__pickle *p, enum rs_value_type type, struct rs_value *const *items, uint64_t n);

/* What Python would import, call, or hand a state (pickle_call.c). */
int rs__pickle_global(struct rs__pickle *p, struct rs_str module, struct rs_str name);
int rs__pickle_stack_global(struct rs__pickle *p, uint64_t ignored);
int rs__pickle_reduce(struct rs__pickle *p, uint64_t ignored);
int rs__pickle_newobj(struct rs__pickle *p, uint64_t ignored);
int rs__pickle_newobj_ex(struct rs__pickle *p, uint64_t ignored);
int rs__pickle_build(struct rs__pickle *p, uint64_t ignored);
int rs__pickle_persid(struct rs__pickle *p, uint64_t ignored);

/* A call: what is called, and its arguments. */
struct rs__pickle_call {
	struct rs_value *fn, *tuple;
	struct rs_value *const *args;
	uint32_t n;
};
static inline bool rs__pickle_arg_is(
	const struct rs__pickle_call *c, uint32_t i, enum rs_value_type type)
{
	return i < c->n && c->args[i]->type == type;
}
static inline enum rs__pickle_kind rs__pickle_kind_of(const struct rs_value *v)
{
	return v->type == RS_VALUE_GLOBAL ? (enum rs__pickle_kind)v->global->kind
					  : RS__NAME_UNKNOWN;
}
struct rs_value *rs__pickle_opaque(struct rs__pickle *p, const struct rs__pickle_call *c);

/* Calls and states of numpy (pickle_numpy.c); NULL or -1 on error. */
struct rs_value *rs__numpy_dtype(struct rs__pickle *p, const struct rs_value *from);
struct rs_value *rs__numpy_array(struct rs__pickle *p);
struct rs_value *rs__numpy_from_buffer(struct rs__pickle *p, const struct rs__pickle_call *c);
struct rs_value *rs__numpy_scalar(struct rs__pickle *p, const struct rs__pickle_call *c);
int rs__numpy_build_dtype(struct rs__pickle *p, struct rs_value *v, const struct rs_value *state);
int rs__numpy_build_array(struct rs__pickle *p, struct rs_value *v, const struct rs_value *state);

/* An opcode (pickle_ops.c): what stands behind it, and what it does. */
enum rs__pickle_arg {
	RS__ARG_NONE,
	RS__ARG_U8,
	RS__ARG_U16,
	RS__ARG_I32,
	RS__ARG_U32,
	RS__ARG_U64
};
struct rs__pickle_op {
	const char *name; /* NULL: no opcode */
	enum rs__pickle_arg arg;
	int (*run)(struct rs__pickle *p, uint64_t arg); /* an I32 comes sign-extended */
};
extern const struct rs__pickle_op rs__pickle_ops[256];
#define RS__OP_PROTO 0x80
#define RS__OP_FRAME 0x95
#define RS__OP_STOP 0x2e

#endif
