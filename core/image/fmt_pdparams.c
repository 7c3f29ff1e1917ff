/*
 * fmt_pdparams.c - the .pdparams file that Paddle loads: byte for byte what CPython's C pickler
 * makes of pickle.dumps(d, protocol=4), with numpy 1.x, of
 *
 *   d = {key: array, ..., "StructuredToParameterName@@": {key: key, ...}}
 *
 * in the order of the list; bfloat16 as '<u2', as Paddle itself stores it. The first array of a
 * file and of a dtype is spelled out, later ones name the shared objects by number (the memo).
 * Nothing of a payload is read, with one exception: CPython has only one object for each bytes of
 * length 1, so a second tensor of one byte that equals an earlier one is written as its number.
 *
 * Refuses dtypes that numpy lacks, and names that are no UTF-8. Leaves texts out with a note.
 * Format: docs/formats/pdparams.md. Read next: pickler.c, which knows opcodes and frames.
 */
#include <stdio.h>

#include "core/image/internal.h"
#include "core/image/pickler.h"

#define NAME_TABLE "StructuredToParameterName@@"
#define BATCH 1000u /* pairs that one SETITEMS sets */

enum {
	OP_EMPTY_DICT = '}',
	OP_MARK = '(',
	OP_SETITEM = 's',
	OP_SETITEMS = 'u',
	OP_NONE = 'N',
	OP_EMPTY_TUPLE = ')',
	OP_TUPLE = 't',
	OP_REDUCE = 'R',
	OP_BUILD = 'b',
};
/* char is signed where we are read most; these are from 0x80 on. */
#define OP_STACK_GLOBAL ((char)0x93)
#define OP_TUPLE1 ((char)0x85)
#define OP_TUPLE3 ((char)0x87)
#define OP_TRUE ((char)0x88)
#define OP_FALSE ((char)0x89)

/* numpy's words: type code and byte order. NULL where numpy has no such type. */
static const char *numpy_code(enum rs_dtype dtype)
{
	static const char *const codes[RS_DT_COUNT] = {
		[RS_DT_BOOL] = "b1",
		[RS_DT_U8] = "u1",
		[RS_DT_I8] = "i1",
		[RS_DT_I16] = "i2",
		[RS_DT_U16] = "u2",
		[RS_DT_BF16] = "u2",
		[RS_DT_F16] = "f2",
		[RS_DT_I32] = "i4",
		[RS_DT_U32] = "u4",
		[RS_DT_F32] = "f4",
		[RS_DT_I64] = "i8",
		[RS_DT_U64] = "u8",
		[RS_DT_F64] = "f8",
		[RS_DT_C64] = "c8",
	};

	return dtype < RS_DT_COUNT ? codes[dtype] : NULL;
}

/* The objects that are written once, by number; RS__NO_MEMO until then. */
struct shared {
	uint32_t multiarray, reconstruct_name, reconstruct;
	uint32_t numpy, ndarray_name, ndarray, dtype_name, dtype;
	uint32_t little,
		none; /* '<' and '|': byte orders, and one object each as all short texts */
	uint32_t dtypes[RS_DT_COUNT];
	uint32_t empty;     /* the bytes of length 0 */
	uint32_t byte[256]; /* those of length 1 */
};

struct writer {
	struct rs__pickler p;
	const struct rs_list *list;
	struct rs_sink *to;
	struct shared seen;
	uint64_t *items; /* heap: what is written, as indexes into the list */
	uint64_t n;
	uint32_t *keys; /* heap: their names, by number */
};

/* ------------------------------------------------------------------ choosing */

static int check_item(const struct rs_wanted *item, struct rs_err *err)
{
	if (!numpy_code(item->dtype)) {
		rs_fail(err, RS_UNSUPPORTED, "tensor '%s': numpy has no dtype for %s",
			RS_SHOW(item->name), rs_dtype_name(item->dtype));
		return rs_hint(err, "ask for -o format=safetensors");
	}
	if (!rs_utf8_ok(item->name))
		return rs_fail(err, RS_UNSUPPORTED,
			"tensor '%s': expected a name in UTF-8, as Python requires",
			RS_SHOW(item->name));
	if (rs_str_is(item->name, NAME_TABLE))
		return rs_fail(err, RS_UNSUPPORTED,
			"tensor '" NAME_TABLE "': .pdparams files keep this name for themselves");
	return 0;
}

static int choose_items(struct writer *w, struct rs_notes *notes, struct rs_err *err)
{
	w->items = rs_alloc(rs_max(w->list->n, 1) * sizeof(*w->items), err);
	w->keys = rs_alloc(rs_max(w->list->n, 1) * sizeof(*w->keys), err);
	if (!w->items || !w->keys)
		return -1;
	for (uint64_t i = 0; i < w->list->n; i++) {
		const struct rs_wanted *item = &w->list->items[i];

		if (item->dtype == RS_DT_STR) {
			rs_note(notes, "text '%s' is left out: .pdparams holds arrays only",
				RS_SHOW(item->name));
			continue;
		}
		if (check_item(item, err) < 0)
			return -1;
		w->keys[w->n] = RS__NO_MEMO;
		w->items[w->n++] = i;
	}
	return 0;
}

/* ------------------------------------------------------------------- arrays */

/* A class or function: module and name, then STACK_GLOBAL. */
static void put_global(struct rs__pickler *p, const char *module, uint32_t *module_number,
	const char *name, uint32_t *name_number, uint32_t *number)
{
	if (*number != RS__NO_MEMO) {
		rs__pickler_get(p, *number);
		return;
	}
	rs__pickler_object(p);
	rs__pickler_str(p, rs_str(module), module_number);
	rs__pickler_str(p, rs_str(name), name_number);
	rs__pickler_op(p, OP_STACK_GLOBAL);
	*number = rs__pickler_memo(p);
}

/* _reconstruct(ndarray, (0,), b'b'): an empty array, which the state then fills. */
static void put_empty_array(struct writer *w)
{
	struct rs__pickler *p = &w->p;
	struct shared *s = &w->seen;

	put_global(p, "numpy.core.multiarray", &s->multiarray, "_reconstruct", &s->reconstruct_name,
		&s->reconstruct);
	rs__pickler_object(p);
	put_global(p, "numpy", &s->numpy, "ndarray", &s->ndarray_name, &s->ndarray);
	rs__pickler_object(p);
	rs__pickler_int(p, 0);
	rs__pickler_op(p, OP_TUPLE1);
	rs__pickler_memo(p);
	rs__pickler_bytes(p, "b", 1, &s->byte['b']);
	rs__pickler_op(p, OP_TUPLE3);
	rs__pickler_memo(p);
	rs__pickler_op(p, OP_REDUCE);
	rs__pickler_memo(p);
}

/* dtype('f4', False, True), then the state (3, '<', None, None, None, -1, -1, 0). */
static void put_dtype(struct writer *w, enum rs_dtype dtype)
{
	const char *code = numpy_code(dtype);
	uint32_t *number = &w->seen.dtypes[dtype == RS_DT_BF16 ? RS_DT_U16 : dtype];
	uint32_t code_number = RS__NO_MEMO; /* a text of its own for each dtype */
	struct rs__pickler *p = &w->p;
	struct shared *s = &w->seen;

	if (*number != RS__NO_MEMO) {
		rs__pickler_get(p, *number);
		return;
	}
	rs__pickler_object(p);
	put_global(p, "numpy", &s->numpy, "dtype", &s->dtype_name, &s->dtype);
	rs__pickler_object(p);
	rs__pickler_str(p, rs_str(code), &code_number);
	rs__pickler_atom(p, OP_FALSE);
	rs__pickler_atom(p, OP_TRUE);
	rs__pickler_op(p, OP_TUPLE3);
	rs__pickler_memo(p);
	rs__pickler_op(p, OP_REDUCE);
	*number = rs__pickler_memo(p);
	rs__pickler_object(p);
	rs__pickler_op(p, OP_MARK);
	rs__pickler_int(p, 3);
	if (rs_dtype_bits(dtype) == 8)
		rs__pickler_str(p, RS_STR("|"), &s->none);
	else
		rs__pickler_str(p, RS_STR("<"), &s->little);
	for (int i = 0; i < 3; i++)
		rs__pickler_atom(p, OP_NONE);
	rs__pickler_minus_one(p);
	rs__pickler_minus_one(p);
	rs__pickler_int(p, 0);
	rs__pickler_op(p, OP_TUPLE);
	rs__pickler_memo(p);
	rs__pickler_op(p, OP_BUILD);
}

static void put_shape(struct rs__pickler *p, const struct rs_shape *shape)
{
	rs__pickler_object(p);
	if (shape->n_axes == 0) {
		rs__pickler_op(p, OP_EMPTY_TUPLE);
		return;
	}
	if (shape->n_axes > 3)
		rs__pickler_op(p, OP_MARK);
	for (uint32_t a = 0; a < shape->n_axes; a++)
		rs__pickler_int(p, shape->dims[a]);
	rs__pickler_op(
		p, shape->n_axes > 3 ? OP_TUPLE : (char)(OP_TUPLE1 + (int)shape->n_axes - 1));
	rs__pickler_memo(p);
}

static int put_content(struct writer *w, uint64_t i, uint64_t bytes, struct rs_err *err)
{
	uint8_t byte;

	if (bytes == 0) {
		rs__pickler_bytes(&w->p, "", 0, &w->seen.empty);
	} else if (bytes == 1 && w->to->peek) {
		if (w->to->peek(w->to, i, &byte, err) < 0)
			return -1;
		if (w->seen.byte[byte] != RS__NO_MEMO) {
			rs__pickler_get(&w->p, w->seen.byte[byte]);
			return 0;
		}
		w->seen.byte[byte] = w->p.next;
		rs__pickler_payload(&w->p, i, bytes);
	} else {
		rs__pickler_payload(&w->p, i, bytes);
	}
	return 0;
}

static int put_array(struct writer *w, uint64_t i, struct rs_err *err)
{
	const struct rs_wanted *item = &w->list->items[i];
	struct rs__pickler *p = &w->p;
	uint64_t bytes;

	if (rs__wanted_bytes(item, &bytes, err) < 0)
		return -1;
	rs__pickler_object(p);
	put_empty_array(w);
	rs__pickler_object(p);
	rs__pickler_op(p, OP_MARK);
	rs__pickler_int(p, 1);
	put_shape(p, &item->shape);
	put_dtype(w, item->dtype);
	rs__pickler_atom(p, OP_FALSE);
	if (put_content(w, i, bytes, err) < 0)
		return -1;
	rs__pickler_op(p, OP_TUPLE);
	rs__pickler_memo(p);
	rs__pickler_op(p, OP_BUILD);
	return p->failed ? -1 : 0;
}

/* -------------------------------------------------------------------- dicts */

/* The pairs of a dict of @total come in batches: MARK, up to 1000 of them, SETITEMS. */
static void open_pair(struct rs__pickler *p, uint64_t total, uint64_t k)
{
	if (total > 1 && k % BATCH == 0)
		rs__pickler_op(p, OP_MARK);
}

/* A full batch makes the pickler begin another, which may stay empty. A lone pair needs no mark. */
static void close_pair(struct rs__pickler *p, uint64_t total, uint64_t k)
{
	bool last = k + 1 == total, full = (k + 1) % BATCH == 0;

	if (total == 1) {
		rs__pickler_op(p, OP_SETITEM);
		return;
	}
	if (last || full)
		rs__pickler_op(p, OP_SETITEMS);
	if (last && full) {
		rs__pickler_op(p, OP_MARK);
		rs__pickler_op(p, OP_SETITEMS);
	}
}

/* CPython has one object for each text of one character, so a tensor may be called as a byte order.
 */
static void put_key(struct writer *w, uint64_t k)
{
	struct rs_str name = w->list->items[w->items[k]].name;
	uint32_t *number = &w->keys[k];

	if (rs_str_is(name, "<"))
		number = &w->seen.little;
	else if (rs_str_is(name, "|"))
		number = &w->seen.none;
	rs__pickler_str(&w->p, name, number);
}

/* {key: key}: the names of parameters are not stored in checkpoints, and keys will do. */
static void put_name_table(struct writer *w)
{
	struct rs__pickler *p = &w->p;

	rs__pickler_object(p);
	rs__pickler_op(p, OP_EMPTY_DICT);
	rs__pickler_memo(p);
	for (uint64_t k = 0; k < w->n; k++) {
		open_pair(p, w->n, k);
		put_key(w, k);
		put_key(w, k);
		close_pair(p, w->n, k);
	}
}

static int put_state(struct writer *w, struct rs_err *err)
{
	struct rs__pickler *p = &w->p;
	uint32_t table_name = RS__NO_MEMO;

	rs__pickler_object(p);
	rs__pickler_op(p, OP_EMPTY_DICT);
	rs__pickler_memo(p);
	for (uint64_t k = 0; k < w->n; k++) {
		open_pair(p, w->n + 1, k);
		put_key(w, k);
		if (put_array(w, w->items[k], err) < 0)
			return -1;
		close_pair(p, w->n + 1, k);
	}
	open_pair(p, w->n + 1, w->n);
	rs__pickler_str(p, RS_STR(NAME_TABLE), &table_name);
	put_name_table(w);
	close_pair(p, w->n + 1, w->n);
	return rs__pickler_end(p);
}

static int emit(const struct rs_list *list, bool mindspore, struct rs_sink *to,
	struct rs_notes *notes, struct rs_err *err)
{
	struct writer w = {.list = list, .to = to};
	int rc = -1;

	(void)mindspore; /* a .pdparams carries no metadata */
	if (list->raw)
		return rs__list_raw(list, to, err);
	memset(&w.seen, 0xff, sizeof(w.seen)); /* RS__NO_MEMO everywhere */
	rs__pickler_begin(&w.p, to, err);
	if (choose_items(&w, notes, err) == 0)
		rc = put_state(&w, err);
	rs__pickler_done(&w.p);
	rs_free(w.items);
	rs_free(w.keys);
	return rc;
}

const struct rs_format_ops rs__format_pdparams = {
	.name = "pdparams",
	.suffix = ".pdparams",
	.emit = emit,
};
