/*
 * fuzz_json.c - hostile text for the strict reader, the tree and the writer.
 *
 * Beyond "no crash": what the reader accepts it reads again, with the same tokens, from what the
 * writer makes of it; stepping over a document agrees with walking it; the tree takes nothing
 * that the reader refuses, and cJSON refuses nothing that is handed on to it.
 */
#include <cjson/cJSON.h>

#include "reshardfs/codec.h"

#define ARENA_MAX (1 << 20)

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void must(bool truth)
{
	if (!truth)
		__builtin_trap();
}

static bool inside(struct rs_str outer, struct rs_str s)
{
	return s.ptr >= outer.ptr && s.len <= outer.len && s.ptr + s.len <= outer.ptr + outer.len;
}

/* Write a token as the writer would; numbers that are no integers become 0. */
static void write_token(struct rs_jsonw *w, const struct rs_json_token *t)
{
	switch (t->type) {
	case RS_JSON_OBJECT:
	case RS_JSON_ARRAY:
		rs_jsonw_open(w, t->type == RS_JSON_OBJECT ? '{' : '[');
		break;
	case RS_JSON_OBJECT_END:
	case RS_JSON_ARRAY_END:
		rs_jsonw_close(w, t->type == RS_JSON_OBJECT_END ? '}' : ']');
		break;
	case RS_JSON_KEY:
		rs_jsonw_key(w, t->text);
		break;
	case RS_JSON_STRING:
		rs_jsonw_str(w, t->text);
		break;
	case RS_JSON_UINT:
	case RS_JSON_NUMBER:
		rs_jsonw_uint(w, t->u);
		break;
	case RS_JSON_TRUE:
	case RS_JSON_FALSE:
		rs_jsonw_bool(w, t->type == RS_JSON_TRUE);
		break;
	case RS_JSON_NULL:
		rs_jsonw_null(w);
		break;
	case RS_JSON_END:
		break;
	}
}

/* Walk @text, copying it to @w; true when it is one valid document. */
static bool copy(struct rs_str text, struct rs_arena *arena, struct rs_jsonw *w)
{
	struct rs_err err = {0};
	struct rs_json_token t;
	struct rs_json j;
	uint64_t last = 0;

	rs_json_init(&j, text, 0, "fuzz", arena, &err);
	do {
		if (rs_json_next(&j, &t) < 0) {
			must(err.code == RS_CORRUPT || err.code == RS_LIMIT);
			must(err.msg[0] != 0);
			return false;
		}
		must(t.off >= last && t.off <= text.len);
		must(t.type != RS_JSON_NUMBER || inside(text, t.text));
		must(rs_utf8_ok(t.text));
		last = t.off;
		write_token(w, &t);
	} while (t.type != RS_JSON_END);
	return true;
}

/* The same tokens in both texts, up to numbers that the writer turned into 0. */
static void compare(struct rs_str a, struct rs_str b, struct rs_arena *arena)
{
	struct rs_json_token ta, tb;
	struct rs_json ja, jb;

	rs_json_init(&ja, a, 0, "a", arena, NULL);
	rs_json_init(&jb, b, 0, "b", arena, NULL);
	do {
		must(rs_json_next(&ja, &ta) == 0);
		must(rs_json_next(&jb, &tb) == 0);
		if (ta.type == RS_JSON_NUMBER)
			continue;
		must(ta.type == tb.type && ta.u == tb.u);
		must(rs_str_eq(ta.text, tb.text));
	} while (ta.type != RS_JSON_END);
}

static bool skip(struct rs_str text, struct rs_arena *arena)
{
	struct rs_json_token t;
	struct rs_json j;

	rs_json_init(&j, text, 0, "skip", arena, NULL);
	if (rs_json_next(&j, &t) < 0 || rs_json_skip(&j, &t) < 0 || rs_json_next(&j, &t) < 0)
		return false;
	must(t.type == RS_JSON_END);
	return true;
}

static void tree(struct rs_str text, bool valid)
{
	struct rs_err err = {0};
	struct cJSON *root;

	if (rs_json_parse(text, "tree", &root, &err) == 0) {
		must(valid);
		cJSON_Delete(root);
		return;
	}
	must(root == NULL);
	must(err.code == RS_CORRUPT || err.code == RS_LIMIT);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct rs_str text = {(const char *)data, size};
	struct rs_arena *arena = rs_arena_new(ARENA_MAX, NULL);
	struct rs_jsonw w;
	uint64_t len = 0;
	bool valid;
	char *made;

	if (!arena)
		return 0;
	/* Small enough that no run of escapes meets the limit of the arena, which compare() bars.
	 */
	if (size > ARENA_MAX / 32)
		text.len = ARENA_MAX / 32;
	rs_jsonw_init(&w, size % 2);
	valid = copy(text, arena, &w);
	made = rs_jsonw_take(&w, &len, NULL);
	must(made != NULL);
	if (valid)
		compare(text, (struct rs_str){made, len}, arena);
	must(skip(text, arena) == valid);
	tree(text, valid);
	rs_free(made);
	rs_arena_free(arena);
	return 0;
}
