/*
 * test_pickle.c - pickles as data: what CPython and numpy write comes out as they meant it, and
 * whatever would run, lie or lead outside is refused with its offset and opcode.
 *
 * The good streams stand in pickle_streams.h; the bad ones here, made by hand, a byte or a name a
 * piece, so that the attack can be read. Next: test_paddle.c, where trees get a meaning.
 */
#include <inttypes.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "reshardfs/pickle.h"
#include "tests/lib/fault.h"

#define COUNT(a) (sizeof(a) / sizeof(*(a)))
#define MEMORY (UINT64_C(16) << 20)

struct stream {
	const char *name;
	const void *bytes;
	size_t len;
	const char *shown;
};
#define BYTES(literal) (literal), sizeof(literal) - 1

#include "tests/unit/pickle_streams.h"

/* ------------------------------------------------------------------ showing a tree */

struct text {
	char at[4096];
	size_t len;
	const struct rs_value *path[32]; /* the nodes around the one that is shown */
	uint32_t depth;
};

__attribute__((format(printf, 2, 3))) static void add(struct text *t, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	int n = vsnprintf(t->at + t->len, sizeof(t->at) - t->len, fmt, ap);
	va_end(ap);
	assert_true(n >= 0 && (size_t)n < sizeof(t->at) - t->len);
	t->len += (size_t)n;
}

static void add_str(struct text *t, struct rs_str s)
{
	if (s.ptr)
		add(t, "'%.*s'", (int)s.len, s.ptr);
	else
		add(t, "'%zu bytes'", s.len);
}

static void show(struct text *t, const struct rs_value *v);

static void show_items(
	struct text *t, const char *open, const struct rs_value *v, const char *close)
{
	add(t, "%s", open);
	for (uint32_t i = 0; i < v->n; i++) {
		add(t, "%s", i ? ", " : "");
		if (v->type == RS_VALUE_DICT) {
			show(t, v->list.items[2 * i]);
			add(t, ": ");
			show(t, v->list.items[2 * i + 1]);
		} else {
			show(t, v->list.items[i]);
		}
	}
	add(t, "%s", close);
}

static void show_array(struct text *t, const struct rs_pickle_array *a)
{
	add(t, "array(");
	show(t, a->dtype);
	add(t, ", ");
	show(t, a->shape);
	add(t, ", %c, ", a->order);
	show(t, a->data);
	add(t, ")");
}

static void show_object(struct text *t, const char *word, const struct rs_value *v)
{
	const struct rs_value *cls = v->object.cls;

	if (v->type == RS_VALUE_INSTANCE) {
		add(t, "%.*s(", (int)cls->global->name.len, cls->global->name.ptr);
		if (v->object.state)
			show(t, v->object.state);
		add(t, ")");
		return;
	}
	add(t, "%s", word);
	if (cls)
		add(t, " %.*s.%.*s", (int)cls->global->module.len, cls->global->module.ptr,
			(int)cls->global->name.len, cls->global->name.ptr);
	if (v->type != RS_VALUE_OPAQUE && v->object.state)
		show(t, v->object.state);
}

static void show_value(struct text *t, const struct rs_value *v)
{
	switch (v->type) {
	case RS_VALUE_NONE:
		add(t, "None");
		break;
	case RS_VALUE_BOOL:
		add(t, "%s", v->truth ? "True" : "False");
		break;
	case RS_VALUE_INT:
		add(t, "%" PRId64, v->number);
		break;
	case RS_VALUE_BIGINT:
		add(t, "big%zu", v->text.len);
		break;
	case RS_VALUE_DOUBLE:
		add(t, "%g", v->real);
		break;
	case RS_VALUE_STR:
		add_str(t, v->text);
		break;
	case RS_VALUE_BYTES:
		add(t, "%s@%" PRIu64 "+%" PRIu64, v->bytes.latin1 ? "text" : "b", v->off,
			v->bytes.len);
		break;
	case RS_VALUE_TUPLE:
		show_items(t, "(", v, ")");
		break;
	case RS_VALUE_LIST:
		show_items(t, "[", v, "]");
		break;
	case RS_VALUE_SET:
		show_items(t, "set(", v, ")");
		break;
	case RS_VALUE_DICT:
		show_items(t, "{", v, "}");
		break;
	case RS_VALUE_GLOBAL:
		add(t, "name %.*s.%.*s", (int)v->global->module.len, v->global->module.ptr,
			(int)v->global->name.len, v->global->name.ptr);
		break;
	case RS_VALUE_DTYPE:
		add_str(t, v->text);
		add(t, " %c", v->n ? (char)v->n : '?');
		break;
	case RS_VALUE_ARRAY:
		show_array(t, v->array);
		break;
	case RS_VALUE_INSTANCE:
		show_object(t, "", v);
		break;
	case RS_VALUE_CALL:
		show_object(t, "call", v);
		break;
	case RS_VALUE_PERSISTENT:
		show_object(t, "id", v);
		break;
	case RS_VALUE_OPAQUE:
		show_object(t, "opaque", v);
		break;
	}
}

static void show(struct text *t, const struct rs_value *v)
{
	assert_non_null(v);
	for (uint32_t i = 0; i < t->depth; i++)
		if (t->path[i] == v) {
			add(t, "...");
			return;
		}
	assert_true(t->depth < COUNT(t->path));
	t->path[t->depth++] = v;
	show_value(t, v);
	t->depth--;
}

/* ---------------------------------------------------------------------- reading */

static int read_bytes(const void *bytes, size_t len, const struct rs_pickle_options *opts,
	struct rs_arena *arena, struct rs_pickle *out, struct rs_err *err)
{
	struct rs_file file;

	rs_file_memory(bytes, len, "file", &file);
	return rs_pickle_read(&file, 0, len, opts, arena, out, err);
}

static void assert_shown(const char *row, const void *bytes, size_t len,
	const struct rs_pickle_options *opts, const char *shown)
{
	struct rs_err err = {0};
	struct rs_arena *arena = rs_arena_new(MEMORY, &err);
	struct text text = {.len = 0};
	struct rs_pickle p;

	if (read_bytes(bytes, len, opts, arena, &p, &err) < 0)
		fail_msg("row '%s': %s", row, err.msg);
	show(&text, p.top);
	if (strcmp(text.at, shown) != 0)
		fail_msg("row '%s': expected %s, got %s", row, shown, text.at);
	assert_int_equal(p.end, len);
	rs_arena_free(arena);
}

static void test_streams(void **state)
{
	(void)state;
	for (size_t i = 0; i < COUNT(streams); i++)
		assert_shown(
			streams[i].name, streams[i].bytes, streams[i].len, NULL, streams[i].shown);
}

/* No stream is complete before its last byte, and each part is refused, not misread. */
static void test_cut_short(void **state)
{
	(void)state;
	for (size_t i = 0; i < COUNT(streams); i++)
		for (size_t len = 0; len < streams[i].len; len++) {
			struct rs_err err = {0};
			struct rs_arena *arena = rs_arena_new(MEMORY, &err);
			/* A block of exactly this length, so that a byte too far is seen. */
			char *copy = malloc(len + 1);
			struct rs_pickle p;

			assert_non_null(copy);
			memcpy(copy, streams[i].bytes, len);
			if (read_bytes(copy, len, NULL, arena, &p, &err) == 0)
				fail_msg("row '%s': %zu of %zu bytes were taken for all",
					streams[i].name, len, streams[i].len);
			assert_int_equal(err.code, RS_CORRUPT);
			assert_non_null(strstr(err.msg, "damaged pickle: file: offset "));
			free(copy);
			rs_arena_free(arena);
		}
}

/* Any one byte changed: a tree or a refusal, and nothing that a sanitizer would mind. */
static void test_changed(void **state)
{
	char copy[4096];

	(void)state;
	for (size_t i = 0; i < COUNT(streams); i++) {
		assert_true(streams[i].len <= sizeof(copy));
		memcpy(copy, streams[i].bytes, streams[i].len);
		for (size_t at = 0; at < streams[i].len; at++)
			for (int bit = 0; bit < 8; bit++) {
				struct rs_err err = {0};
				struct rs_arena *arena = rs_arena_new(MEMORY, &err);
				struct rs_pickle p;

				copy[at] = (char)(copy[at] ^ (1 << bit));
				int status =
					read_bytes(copy, streams[i].len, NULL, arena, &p, &err);
				assert_true(status == 0 ? p.top != NULL : err.code != RS_OK);
				copy[at] = (char)(copy[at] ^ (1 << bit));
				rs_arena_free(arena);
			}
	}
}

/* ---------------------------------------------------------------------- by hand */

#define P2 "\x80\x02"
#define P4 "\x80\x04"
#define GLOBAL(module, name) "c" module "\n" name "\n"
#define STR(c) "\x8c\x01" c
#define ARRAY                                                                                      \
	GLOBAL("numpy.core.multiarray", "_reconstruct")                                            \
	GLOBAL("numpy", "ndarray") "K\x00\x85" STR("b") "\x87R"

static const struct stream by_hand[] = {
	{"nothing but None", BYTES(P2 "N."), "None"},
	{"no frames in protocol 4", BYTES(P4 "\x8c\x02hi\x94."), "'hi'"},
	{"empty batch of items", BYTES(P2 "}(u."), "{}"},
	{"LONG1 of no bytes is 0", BYTES(P2 "\x8a\x00."), "0"},
	{"LONG4", BYTES(P2 "\x8b\x02\x00\x00\x00\xff\xff."), "-1"},
	{"the magic of torch", BYTES(P2 "\x8a\x0al\xfc\x9c\x46\xf9\x20j\xa8P\x19."), "big10"},
	{"nine bytes that fit", BYTES(P2 "\x8a\x09\xff\xff\xff\xff\xff\xff\xff\xff\xff."), "-1"},
	{"BINUNICODE8", BYTES(P4 "\x8d\x02\0\0\0\0\0\0\0hi."), "'hi'"},
	{"BINBYTES8", BYTES(P4 "\x8e\x02\0\0\0\0\0\0\0hi."), "b@11+2"},
	{"BYTEARRAY8", BYTES("\x80\x05\x96\x02\0\0\0\0\0\0\0hi."), "b@11+2"},
	{"a str of Python 2", BYTES(P2 "U\x02hi."), "'hi'"},
	{"bytes of Python 2", BYTES(P2 "T\x01\0\0\0\xff."), "'1 bytes'"},
	{"POP, DUP and POP_MARK",
		BYTES(P2 "K\x01K\x02"
			 "02(K\x03"
			 "1\x86."),
		"(1, 1)"},
	{"POP of a mark", BYTES(P2 "K\x01(0."), "1"},
	{"MEMOIZE counts entries", BYTES(P4 "K\x01\x94K\x02\x94h\x00h\x01\x86\x86\x86."),
		"(1, (2, (1, 2)))"},
	{"a place in the memo written twice",
		BYTES(P2 "K\x01q\x00"
			 "0K\x02q\x00"
			 "0h\x00."),
		"2"},
	{"sets", BYTES(P4 "\x8f(K\x01K\x02\x90."), "set(1, 2)"},
	{"a name alone", BYTES(P2 GLOBAL("torch", "float32") "."), "name torch.float32"},
	{"even a bad one", BYTES(P2 GLOBAL("posix", "system") "."), "name posix.system"},
	{"a call of something unknown", BYTES(P2 GLOBAL("a", "b") ")R."), "opaque a.b"},
	{"what is added to it is forgotten",
		BYTES(P2 GLOBAL("a", "b") ")\x81K\x01"
					  "a}b(K\x01K\x02u."),
		"opaque a.b"},
	{"protocol 2 names of Python 2", BYTES(P2 GLOBAL("__builtin__", "bytes") ")R."), "b@0+0"},
	{"bytearray in protocol 2",
		BYTES(P2 GLOBAL("__builtin__", "bytearray") "X\x02\0\0\0hi"
							    "X\x07\0\0\0latin-1\x86R."),
		"text@30+2"},
	{"an ordered dict of Python 2",
		BYTES(P2 GLOBAL("collections", "OrderedDict") "](]("
							      "U\x01"
							      "aK\x01"
							      "ee\x85R."),
		"{'a': 1}"},
	{"tensors of pickled objects",
		BYTES(P2 GLOBAL("__builtin__", "tuple") "U\x01"
							"aK\x05\x86\x85R."),
		"('a', 5)"},
	{"a dtype by its class",
		BYTES(P2 GLOBAL("numpy", "dtype") GLOBAL("numpy", "float32") "\x85R."), "'f4' ="},
	{"an order in the code", BYTES(P4 GLOBAL("numpy", "dtype") "\x8c\x03>f4\x85R."), "'f4' >"},
	{"copyreg",
		BYTES(P2 GLOBAL("copy_reg", "_reconstructor")
				GLOBAL("paddle.distributed.checkpoint.metadata", "Metadata")
					GLOBAL("__builtin__", "object") "N\x87R}b."),
		"Metadata({})"},
	{"slots",
		BYTES(P2 GLOBAL("paddle.distributed.checkpoint.metadata", "Metadata") ")\x81N}\x86"
										      "b."),
		"Metadata((None, {}))"},
	{"torch.Size", BYTES(P2 GLOBAL("torch", "Size") "K\x02K\x03\x86\x85R."), "(2, 3)"},
	{"a tensor of torch",
		BYTES(P2 GLOBAL("torch._utils", "_rebuild_tensor_v2") "K\x05K\x00\x86R."),
		"call torch._utils._rebuild_tensor_v2(5, 0)"},
	{"Paddle's eval of one array",
		BYTES(P4 GLOBAL("__builtin__", "eval") "\x8c\x04"
						       "data}\x8c\x04"
						       "data" ARRAY "(K\x01K\x02\x85NK\x00N"
						       "tbs\x86R."),
		"array(None, (2), C, None)"},
};

static void test_by_hand(void **state)
{
	static const char persistent[] = P2 "(\x8c\x07storageK\x05tQ.";
	const struct rs_pickle_options torch = {.persistent = true};

	(void)state;
	for (size_t i = 0; i < COUNT(by_hand); i++)
		assert_shown(
			by_hand[i].name, by_hand[i].bytes, by_hand[i].len, NULL, by_hand[i].shown);
	assert_shown(
		"a persistent id", persistent, sizeof(persistent) - 1, &torch, "id('storage', 5)");
}

/* ---------------------------------------------------------------------- refused */

struct row {
	const char *name;
	const void *bytes;
	size_t len;
	enum rs_code code;
	const char *words;
};

#define UNSAFE RS_UNSUPPORTED
static const struct row bad[] = {
	/* what would run */
	{"os.system, protocol 2", BYTES(P2 GLOBAL("posix", "system") "X\x02\0\0\0id\x85R."), UNSAFE,
		"unsafe pickle: file: offset 24: REDUCE of posix.system (never executed)"},
	{"os.system, protocol 4",
		BYTES(P4 "\x8c\x05posix\x94\x8c\x06system\x94\x93\x8c\x02id\x85R."), UNSAFE,
		"REDUCE of posix.system (never executed)"},
	{"in a frame",
		BYTES(P4 "\x95\x17\0\0\0\0\0\0\0\x8c\x05posix\x8c\x06system\x93\x8c\x02id\x85R."),
		UNSAFE, "REDUCE of posix.system"},
	{"names from the memo",
		BYTES(P4 "\x8c\x05posix\x94"
			 "0\x8c\x06system\x94"
			 "0h\x00h\x01\x93)R."),
		UNSAFE, "REDUCE of posix.system"},
	{"INST", BYTES(P2 "(X\x02\0\0\0idiposix\nsystem\n."), UNSAFE,
		"INST of posix.system (never executed)"},
	{"OBJ", BYTES(P2 "(" GLOBAL("posix", "system") "X\x02\0\0\0ido."), UNSAFE,
		"OBJ of posix.system (never executed)"},
	{"OBJ of nothing", BYTES(P2 "(o."), UNSAFE, "OBJ of an object by its class"},
	{"EXT1", BYTES(P2 "\x82\x01."), UNSAFE, "EXT1 of copyreg extension 1"},
	{"EXT2", BYTES(P2 "\x83\x01\x01."), UNSAFE, "EXT2 of copyreg extension 257"},
	{"EXT4", BYTES(P2 "\x84\xff\xff\xff\xff."), UNSAFE, "EXT4 of copyreg extension -1"},
	{"NEWOBJ of a function that runs", BYTES(P2 GLOBAL("posix", "system") ")\x81."), UNSAFE,
		"NEWOBJ of posix.system"},
	{"NEWOBJ of a function of data",
		BYTES(P2 GLOBAL("numpy.core.multiarray", "_reconstruct") ")\x81."), UNSAFE,
		"NEWOBJ of numpy.core.multiarray._reconstruct"},
	{"NEWOBJ of a number", BYTES(P2 "K\x01)\x81."), UNSAFE, "NEWOBJ of an integer"},
	{"NEWOBJ_EX", BYTES(P4 GLOBAL("subprocess", "Popen") ")}\x92."), UNSAFE,
		"NEWOBJ_EX of subprocess.Popen"},
	{"copyreg of a class that runs",
		BYTES(P2 GLOBAL("copyreg", "_reconstructor")
				GLOBAL("subprocess", "Popen") "\x85R."),
		UNSAFE, "REDUCE of subprocess.Popen"},
	{"a path of attributes",
		BYTES(P4 "\x8c\x12numpy.core.numeric\x8c\x0d"
			 "builtins.eval\x93."),
		UNSAFE, "STACK_GLOBAL of numpy.core.numeric.builtins.eval"},
	{"a path of attributes, protocol 2", BYTES(P2 GLOBAL("a", "b.c") "."), UNSAFE,
		"GLOBAL of a.b.c"},
	{"names that are no texts", BYTES(P4 "K\x01K\x02\x93."), UNSAFE,
		"STACK_GLOBAL of an integer and an integer in place of names"},
	{"a call of a result", BYTES(P2 GLOBAL("a", "b") ")R)R."), UNSAFE,
		"REDUCE of something unknown of a.b, which is no name"},
	{"getattr chains",
		BYTES(P2 GLOBAL("__builtin__", "getattr") GLOBAL("a", "b") "U\x01x\x86R)R."),
		UNSAFE, "REDUCE of __builtin__.getattr"},
	{"eval", BYTES(P2 GLOBAL("__builtin__", "eval") "U\x01x\x85R."), UNSAFE,
		"REDUCE of __builtin__.eval"},
	{"Paddle's eval, other code",
		BYTES(P4 GLOBAL("builtins", "eval") "\x8c\x05"
						    "data+}\x8c\x04"
						    "data" ARRAY "s\x86R."),
		UNSAFE, "REDUCE of builtins.eval"},
	{"Paddle's eval, one name more",
		BYTES(P4 GLOBAL("builtins", "eval") "\x8c\x04"
						    "data}(\x8c\x04"
						    "data" ARRAY STR("x") "Nu\x86R."),
		UNSAFE, "REDUCE of builtins.eval"},
	{"Paddle's eval, no array",
		BYTES(P4 GLOBAL("builtins", "eval") "\x8c\x04"
						    "data}\x8c\x04"
						    "dataNs\x86R."),
		UNSAFE, "REDUCE of builtins.eval"},
	{"a state on a name", BYTES(P2 GLOBAL("a", "b") "}b."), UNSAFE,
		"BUILD of a state on the name a.b"},
	{"a state on a tuple", BYTES(P2 ")}b."), UNSAFE, "BUILD of a state on a tuple"},
	{"a state on a text", BYTES(P2 "U\x01x}b."), UNSAFE, "BUILD of a state on the text 'x'"},
	{"another class by state", BYTES(P4 GLOBAL("a", "b") ")\x81}\x8c\x09__class__Nsb."), UNSAFE,
		"BUILD of a state that sets __class__"},
	{"another dict by state", BYTES(P4 GLOBAL("a", "b") ")\x81}\x8c\x08__dict__Nsb."), UNSAFE,
		"sets __dict__"},
	{"a method by state, in slots",
		BYTES(P4 GLOBAL("a", "b") ")\x81N}\x8c\x0c__setstate__Ns\x86"
					  "b."),
		UNSAFE, "sets __setstate__"},
	{"after good data", BYTES(P2 "}(U\x01wK\x01U\x01x" GLOBAL("os", "system") ")Ru."), UNSAFE,
		"REDUCE of os.system"},
	{"before PROTO", BYTES(GLOBAL("posix", "system") ")R."), RS_UNSUPPORTED,
		"unsupported pickle: file: offset 0: GLOBAL: expected PROTO"},
	/* what is not read */
	{"protocol 1", BYTES("\x80\x01N."), RS_UNSUPPORTED, "expected protocol 2 to 5, found 1"},
	{"protocol 6", BYTES("\x80\x06N."), RS_UNSUPPORTED, "expected protocol 2 to 5, found 6"},
	{"a persistent id", BYTES(P2 "NQ."), RS_UNSUPPORTED, "BINPERSID: a persistent id"},
	{"a persistent id as text", BYTES(P2 "Px\n."), RS_UNSUPPORTED, "offset 2: PERSID: "},
	{"a buffer outside", BYTES("\x80\x05\x97."), RS_UNSUPPORTED, "NEXT_BUFFER: a buffer"},
	{"a buffer outside, read-only", BYTES("\x80\x05\x98."), RS_UNSUPPORTED, "READONLY_BUFFER"},
	{"an opcode of protocol 0", BYTES(P2 "I1\n."), RS_UNSUPPORTED,
		"INT: an opcode of protocol 0"},
	{"an integer of 17 bytes",
		BYTES(P2 "\x8a\x11"
			 "1234567890abcdefg."),
		RS_UNSUPPORTED, "LONG1: an integer of 17 bytes"},
	/* what is broken */
	{"an empty file", BYTES(""), RS_CORRUPT, "PROTO: expected 2 bytes, found 0"},
	{"no opcode at the beginning", BYTES("\x00\x00"), RS_CORRUPT, "expected PROTO"},
	{"no opcode", BYTES(P2 "\xff."), RS_CORRUPT,
		"offset 2: opcode: expected an opcode, found ff"},
	{"PROTO again", BYTES(P2 P2 "N."), RS_CORRUPT, "PROTO: stands at the beginning only"},
	{"a payload that is cut",
		BYTES(P4 "C\x05"
			 "abc"),
		RS_CORRUPT, "SHORT_BINBYTES: expected a payload of 5 bytes, found 3"},
	{"2^63 bytes", BYTES(P4 "\x8e\0\0\0\0\0\0\0\x80."), RS_CORRUPT,
		"expected a payload of 9223372036854775808 bytes"},
	{"2^64 - 1 characters", BYTES(P4 "\x8d\xff\xff\xff\xff\xff\xff\xff\xff."), RS_CORRUPT,
		"BINUNICODE8: expected a payload of 18446744073709551615 bytes"},
	{"a negative length", BYTES(P2 "T\xff\xff\xff\xff."), RS_CORRUPT,
		"BINSTRING: a length of -1"},
	{"a negative long", BYTES(P2 "\x8b\xff\xff\xff\xff."), RS_CORRUPT, "LONG4: a length of -1"},
	{"a frame past the end", BYTES(P4 "\x95\x09\0\0\0\0\0\0\0N."), RS_CORRUPT,
		"FRAME: expected a frame of 9 bytes, found 2"},
	{"a frame of 2^64 - 1 bytes", BYTES(P4 "\x95\xff\xff\xff\xff\xff\xff\xff\xffN."),
		RS_CORRUPT, "expected a frame of 18446744073709551615 bytes"},
	{"a frame in a frame", BYTES(P4 "\x95\x0b\0\0\0\0\0\0\0\x95\x01\0\0\0\0\0\0\0N."),
		RS_CORRUPT, "FRAME: a frame inside a frame"},
	{"an opcode across a frame", BYTES(P4 "\x95\x02\0\0\0\0\0\0\0M\x01\x00."), RS_CORRUPT,
		"BININT2: crosses the end of its frame at 13"},
	{"an open frame", BYTES(P4 "\x95\x03\0\0\0\0\0\0\0N.N"), RS_CORRUPT,
		"STOP: the frame goes on to offset 14"},
	{"a memo place that is empty", BYTES(P2 "h\x00."), RS_CORRUPT,
		"BINGET: nothing is kept at memo index 0"},
	{"a memo of 32 GiB", BYTES(P2 "Nr\xff\xff\xff\xff."), RS_CORRUPT,
		"LONG_BINPUT: memo index 4294967295 after 2 opcodes"},
	{"a memo without a value", BYTES(P2 "q\x00."), RS_CORRUPT, "BINPUT: the stack is empty"},
	{"STOP on nothing", BYTES(P2 "."), RS_CORRUPT,
		"STOP: expected one value on the stack, found 0"},
	{"two values", BYTES(P2 "NN."), RS_CORRUPT, "found 2"},
	{"a mark left open", BYTES(P2 "N(."), RS_CORRUPT, "STOP: a mark is still open"},
	{"no mark", BYTES(P2 "t."), RS_CORRUPT, "TUPLE: no mark is open"},
	{"half a pair", BYTES(P2 "}(Nu."), RS_CORRUPT,
		"expected keys and values by turns, found 1"},
	{"items of a list into a dict", BYTES(P2 "}(Ne."), RS_CORRUPT,
		"APPENDS: expected a list below the items, found a dict"},
	{"pairs into a list", BYTES(P2 "](NNu."), RS_CORRUPT, "expected a dict below the items"},
	{"members into a list", BYTES(P4 "](N\x90."), RS_CORRUPT, "expected a set below the items"},
	{"an item of a tuple", BYTES(P2 ")Na."), RS_CORRUPT, "found a tuple"},
	{"values below the mark", BYTES(P2 "NN(\x86."), RS_CORRUPT,
		"TUPLE2: the stack is empty above the mark"},
	{"POP of nothing", BYTES(P2 "0."), RS_CORRUPT, "POP: the stack is empty"},
	{"DUP of nothing", BYTES(P2 "2."), RS_CORRUPT, "DUP: the stack is empty"},
	{"a line without end", BYTES(P2 "cposix"), RS_CORRUPT, "GLOBAL: expected a line"},
	{"arguments that are no tuple", BYTES(P2 GLOBAL("a", "b") "NR."), RS_CORRUPT,
		"expected a tuple of arguments of a.b, found None"},
	{"the state of a dtype",
		BYTES(P4 GLOBAL("numpy", "dtype") "\x8c\x02"
						  "f4\x85RNb."),
		RS_CORRUPT, "expected the state of a dtype, found None"},
	{"the state of an array", BYTES(P4 ARRAY ")b."), RS_CORRUPT,
		"expected the state of an array, found a tuple"},
};

static void assert_refused(const struct row *row)
{
	struct rs_err err = {0};
	struct rs_arena *arena = rs_arena_new(MEMORY, &err);
	struct rs_pickle p;

	if (read_bytes(row->bytes, row->len, NULL, arena, &p, &err) == 0)
		fail_msg("row '%s': not refused", row->name);
	if (err.code != row->code || !strstr(err.msg, row->words))
		fail_msg("row '%s': expected %s with \"%s\", got %s: %s", row->name,
			rs_code_name(row->code), row->words, rs_code_name(err.code), err.msg);
	rs_arena_free(arena);
}

static void test_refused(void **state)
{
	(void)state;
	for (size_t i = 0; i < COUNT(bad); i++)
		assert_refused(&bad[i]);
}

/* Names that must never be called, in both spellings. */
static void test_names_that_run(void **state)
{
	static const char *const names[][2] = {{"builtins", "eval"}, {"builtins", "exec"},
		{"builtins", "getattr"}, {"builtins", "setattr"}, {"builtins", "__import__"},
		{"builtins", "open"}, {"builtins", "compile"}, {"builtins", "globals"},
		{"builtins", "input"}, {"builtins", "map"}, {"builtins", "type"},
		{"builtins", "vars"}, {"__builtin__", "eval"}, {"__builtin__", "execfile"},
		{"__builtin__", "apply"}, {"__builtin__", "file"}, {"os", "system"},
		{"posix", "system"}, {"nt", "system"}, {"os", "popen"}, {"os", "execve"},
		{"posix", "fork"}, {"subprocess", "Popen"}, {"subprocess", "check_output"},
		{"runpy", "run_path"}, {"runpy", "_run_code"}, {"importlib", "import_module"},
		{"importlib.machinery", "SourceFileLoader"}, {"pty", "spawn"}, {"socket", "socket"},
		{"shutil", "rmtree"}, {"ctypes", "CDLL"}, {"webbrowser", "open"},
		{"code", "InteractiveInterpreter"}, {"pdb", "run"}, {"bdb", "Bdb"},
		{"operator", "attrgetter"}, {"operator", "methodcaller"},
		{"_operator", "itemgetter"}, {"functools", "partial"}, {"torch.hub", "load"},
		{"torch.serialization", "load"}, {"torch.storage", "_load_from_bytes"},
		{"numpy.testing._private.utils", "runstring"}, {"timeit", "timeit"},
		{"cProfile", "runctx"}, {"sys", "exit"}, {"io", "open"}, {"_io", "open"},
		{"pickle", "loads"}, {"_pickle", "loads"}, {"marshal", "loads"},
		{"types", "CodeType"}, {"asyncio.unix_events", "_UnixSubprocessTransport"},
		{"multiprocessing.util", "spawnv_passfds"}, {"pip", "main"}, {"dill", "loads"},
		{"joblib", "load"}, {"urllib.request", "urlopen"},
		{"http.client", "HTTPSConnection"}, {"paddle.hub", "load"}};
	char stream[256], words[128];

	(void)state;
	for (size_t i = 0; i < COUNT(names); i++)
		for (int newer = 0; newer < 2; newer++) {
			const char *module = names[i][0], *name = names[i][1];
			int len = newer ? snprintf(stream, sizeof(stream),
						  "\x80\x04\x8c%c%s\x8c%c%s\x93)R.",
						  (int)strlen(module), module, (int)strlen(name),
						  name)
					: snprintf(stream, sizeof(stream),
						  "\x80\x02"
						  "c%s\n%s\n)R.",
						  module, name);
			(void)snprintf(words, sizeof(words), "REDUCE of %s.%s (never executed)",
				module, name);
			assert_refused(
				&(struct row){module, stream, (size_t)len, RS_UNSUPPORTED, words});
		}
}

/* ------------------------------------------------------------------------ limits */

static void test_limits(void **state)
{
	enum { N = 4096 };
	uint8_t *bytes = malloc(N);
	struct rs_pickle_options opts = {.max_ops = 100};
	struct rs_err err = {0};
	struct rs_arena *arena = rs_arena_new(MEMORY, &err);
	struct rs_pickle p;

	(void)state;
	assert_non_null(bytes);
	memcpy(bytes, P2, 2);
	memset(bytes + 2, '(', N - 2);
	assert_int_equal(read_bytes(bytes, N, NULL, arena, &p, &err), -1);
	assert_int_equal(err.code, RS_LIMIT);
	assert_non_null(strstr(err.msg, "MARK: more than 1000 open marks"));

	memset(bytes + 2, 'N', N - 2);
	assert_int_equal(read_bytes(bytes, N, &opts, arena, &p, &err), -1);
	assert_int_equal(err.code, RS_LIMIT);
	assert_non_null(strstr(err.msg, "offset 102: NONE: more than 100 opcodes"));

	/* A list a byte: the arena's limit ends it, not the machine's memory. */
	struct rs_arena *small = rs_arena_new(65536, &err);
	memset(bytes + 2, ']', N - 2);
	assert_int_equal(read_bytes(bytes, N, NULL, small, &p, &err), -1);
	assert_int_equal(err.code, RS_LIMIT);
	rs_arena_free(small);
	rs_arena_free(arena);
	free(bytes);
}

/* Lists that hold the former twice: 2^30 paths through 31 nodes. */
static void test_shared_structure(void **state)
{
	uint8_t stream[512] = {0x80, 4, '(', ']', 0x94};
	size_t len = 5;
	struct rs_err err = {0};
	struct rs_arena *arena = rs_arena_new(MEMORY, &err);
	struct rs_pickle p;

	(void)state;
	for (uint8_t i = 0; i < 30; i++) {
		const uint8_t step[] = {']', 0x94, '(', 'h', i, 'h', i, 'e'};
		memcpy(stream + len, step, sizeof(step));
		len += sizeof(step);
	}
	stream[len++] = 't';
	stream[len++] = '.';
	if (read_bytes(stream, len, NULL, arena, &p, &err) < 0)
		fail_msg("%s", err.msg);
	assert_int_equal(p.top->n, 31);
	assert_true(rs_arena_used(arena) < 65536);
	rs_arena_free(arena);
}

static void test_part_of_a_file(void **state)
{
	static const char two[] = P2 "K\x01." P2 "K\x02.";
	struct rs_err err = {0};
	struct rs_arena *arena = rs_arena_new(MEMORY, &err);
	struct rs_pickle p;
	struct rs_file file;

	(void)state;
	rs_file_memory(two, sizeof(two) - 1, "file", &file);
	assert_int_equal(rs_pickle_read(&file, 0, file.size, NULL, arena, &p, &err), 0);
	assert_int_equal(p.top->number, 1);
	assert_int_equal(p.end, 5);
	assert_int_equal(rs_pickle_read(&file, p.end, file.size, NULL, arena, &p, &err), 0);
	assert_int_equal(p.top->number, 2);
	assert_int_equal(rs_pickle_read(&file, 0, 4, NULL, arena, &p, &err), -1);
	assert_int_equal(rs_pickle_read(&file, 0, 11, NULL, arena, &p, &err), -1);
	assert_int_equal(err.code, RS_CORRUPT);
	rs_arena_free(arena);
}

/* ---------------------------------------------------------------------- looking */

static void test_looking(void **state)
{
	static const char dict[] = P2 "}(U\x01"
				      "aK\x01U\x01"
				      "bK\x02U\x01"
				      "aK\x03K\x07Nu.";
	struct rs_err err = {0};
	struct rs_arena *arena = rs_arena_new(MEMORY, &err);
	struct rs_pickle_pair *pairs;
	uint64_t n, n_other, n_twice;
	struct rs_pickle p;
	int64_t number = 0;

	(void)state;
	assert_int_equal(read_bytes(dict, sizeof(dict) - 1, NULL, arena, &p, &err), 0);
	assert_true(rs_value_int(rs_value_get(p.top, "a"), &number) && number == 3);
	assert_null(rs_value_get(p.top, "c"));
	assert_int_equal(rs_value_pairs(p.top, arena, &pairs, &n, &n_other, &n_twice, &err), 0);
	assert_int_equal(n, 2);
	assert_true(rs_str_is(pairs[0].key, "a") && pairs[0].value->number == 3);
	assert_true(rs_str_is(pairs[1].key, "b") && pairs[1].value->number == 2);
	assert_int_equal(n_other, 1);
	assert_int_equal(n_twice, 1);

	/* Nothing has no type and no parts. */
	struct rs_value *const *items;
	struct rs_str text;
	uint32_t n_items;
	assert_false(rs_value_is(NULL, RS_VALUE_NONE));
	assert_false(rs_value_str(NULL, &text) || rs_value_int(NULL, &number));
	assert_false(rs_value_list(NULL, &items, &n_items) || rs_value_of(NULL, "Metadata"));
	assert_null(rs_value_get(NULL, "a"));
	assert_null(rs_value_attr(NULL, "a"));
	assert_null(rs_value_attr(p.top, "a"));
	assert_string_equal(RS_VALUE_SHOW(NULL), "nothing");
	rs_arena_free(arena);
}

/* ------------------------------------------------------------------------ faults */

static void test_faults(void **state)
{
	char path[] = "/tmp/test_pickle.XXXXXX";
	FILE *f = fdopen(mkstemp(path), "wb");
	struct rs_file file;
	struct rs_err err = {0};
	int64_t live;

	(void)state;
	assert_non_null(f);
	assert_int_equal(
		fwrite(streams[COUNT(streams) - 1].bytes, 1, streams[COUNT(streams) - 1].len, f),
		streams[COUNT(streams) - 1].len);
	assert_int_equal(fclose(f), 0);
	assert_int_equal(rs_file_open(path, NULL, &file, &err), 0);
	live = fault_live();
	for (int what = 0; what < 2; what++)
		for (uint64_t n = 1;; n++) {
			struct rs_arena *arena = rs_arena_new(MEMORY, &err);
			struct rs_pickle p;

			err = (struct rs_err){0};
			if (what)
				fault_read(n, FAULT_EIO);
			else
				fault_alloc(n);
			int status = rs_pickle_read(&file, 0, file.size, NULL, arena, &p, &err);
			bool hit = fault_hit();
			fault_clear();
			rs_arena_free(arena);
			assert_int_equal(fault_live(), live);
			assert_int_equal(status, hit ? -1 : 0);
			if (!hit)
				break;
			assert_int_equal(err.code, what ? RS_IO : RS_NOMEM);
			assert_true(err.msg[0] != 0);
		}
	rs_file_close(&file);
	assert_int_equal(remove(path), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_streams),
		cmocka_unit_test(test_cut_short),
		cmocka_unit_test(test_changed),
		cmocka_unit_test(test_by_hand),
		cmocka_unit_test(test_refused),
		cmocka_unit_test(test_names_that_run),
		cmocka_unit_test(test_limits),
		cmocka_unit_test(test_shared_structure),
		cmocka_unit_test(test_part_of_a_file),
		cmocka_unit_test(test_looking),
		cmocka_unit_test(test_faults),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
