/*
 * arrange_index.c - the texts of index files, byte for byte as Python's json module writes them for
 * transformers (two spaces, sorted keys, a new line at the end) and for MindSpore (four spaces, in
 * order, none).
 *
 *   {
 *     "metadata": {
 *       "total_size": 16060522496
 *     },
 *     "weight_map": {
 *       "lm_head.weight": "model-00004-of-00004.safetensors",
 *
 * Everything but printable ASCII is \uXXXX there, so jsonw.c, which writes UTF-8, is not for us.
 * Refuses names that are no UTF-8, and one name in two files. Read next: arrange.c.
 */
#include "core/target/arrange/arrange.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

/* A growing text; the first failure sticks. */
struct text {
	char *buf; /* heap */
	uint64_t len, cap;
	struct rs_err *err;
	bool failed;
};

static void put(struct text *t, const char *bytes, uint64_t len)
{
	if (t->failed || len == 0)
		return;
	if (rs_grow(&t->buf, &t->cap, t->len + len, 1, t->err) < 0) {
		t->failed = true;
		return;
	}
	memcpy(t->buf + t->len, bytes, len);
	t->len += len;
}

static void puts_text(struct text *t, const char *s)
{
	put(t, s, strlen(s));
}

/* ------------------------------------------------------------------- strings */

/* The code point at @p of valid UTF-8, and its bytes. */
static uint32_t code_point(const char *p, size_t *len)
{
	const unsigned char *u = (const unsigned char *)p;

	if (u[0] < 0x80) {
		*len = 1;
		return u[0];
	}
	if (u[0] < 0xe0) {
		*len = 2;
		return (u[0] & 0x1fu) << 6 | (u[1] & 0x3fu);
	}
	if (u[0] < 0xf0) {
		*len = 3;
		return (u[0] & 0x0fu) << 12 | (u[1] & 0x3fu) << 6 | (u[2] & 0x3fu);
	}
	*len = 4;
	return (u[0] & 0x07u) << 18 | (u[1] & 0x3fu) << 12 | (u[2] & 0x3fu) << 6 | (u[3] & 0x3fu);
}

static void put_escaped(struct text *t, uint32_t c)
{
	static const char from[] = "\"\\\b\f\n\r\t", to[] = "\"\\bfnrt";
	const char *at = c && c < 0x80 ? strchr(from, (int)c) : NULL;
	char out[16];

	if (at)
		snprintf(out, sizeof(out), "\\%c", to[at - from]);
	else if (c < 0x10000)
		snprintf(out, sizeof(out), "\\u%04" PRIx32, c);
	else
		snprintf(out, sizeof(out), "\\u%04" PRIx32 "\\u%04" PRIx32,
			0xd800 + ((c - 0x10000) >> 10), 0xdc00 + ((c - 0x10000) & 0x3ff));
	puts_text(t, out);
}

static void put_string(struct text *t, struct rs_str s)
{
	size_t plain = 0, len;

	puts_text(t, "\"");
	for (size_t i = 0; i < s.len; i += len) {
		uint32_t c = code_point(s.ptr + i, &len);

		if (c >= ' ' && c <= '~' && c != '"' && c != '\\')
			continue;
		put(t, s.ptr + plain, i - plain);
		put_escaped(t, c);
		plain = i + len;
	}
	put(t, s.ptr + plain, s.len - plain);
	puts_text(t, "\"");
}

/* ------------------------------------------------------------------- indexes */

/* @step: spaces of one level. Python writes an empty object as {}. */
static void put_index(
	struct text *t, const struct rs__mapped *map, uint64_t n, uint64_t total_size, int step)
{
	char line[96];

	snprintf(line, sizeof(line),
		"{\n%*s\"metadata\": {\n%*s\"total_size\": %" PRIu64
		"\n%*s},\n%*s\"weight_map\": {",
		step, "", 2 * step, "", total_size, step, "", step, "");
	puts_text(t, line);
	for (uint64_t i = 0; i < n && !t->failed; i++) {
		snprintf(line, sizeof(line), "%s\n%*s", i ? "," : "", 2 * step, "");
		puts_text(t, line);
		put_string(t, map[i].name);
		puts_text(t, ": ");
		put_string(t, rs_str(map[i].file));
	}
	if (n > 0) {
		snprintf(line, sizeof(line), "\n%*s", step, "");
		puts_text(t, line);
	}
	puts_text(t, "}\n}");
}

static int check_names(const struct rs__mapped *map, uint64_t n, struct rs_err *err)
{
	for (uint64_t i = 0; i < n; i++)
		if (!rs_utf8_ok(map[i].name))
			return rs_fail(err, RS_UNSUPPORTED,
				"tensor '%s': expected a name in UTF-8, as safetensors and JSON "
				"require",
				RS_SHOW(map[i].name));
	return 0;
}

static int take(struct text *t, struct rs_arena *arena, struct rs_str *out, struct rs_err *err)
{
	char *copy = t->failed ? NULL : rs_arena_copy(arena, t->buf, t->len, err);

	rs_free(t->buf);
	*out = (struct rs_str){copy, t->len};
	return copy ? 0 : -1;
}

static int by_name(const void *a, const void *b)
{
	const struct rs__mapped *x = a, *y = b;

	return rs_str_cmp(x->name, y->name); /* of UTF-8: by code point, as Python sorts */
}

int rs__index_hf(struct rs__mapped *map, uint64_t n, uint64_t total_size, struct rs_arena *arena,
	struct rs_str *out, struct rs_err *err)
{
	struct text t = {.err = err};

	if (check_names(map, n, err) < 0)
		return -1;
	if (n > 0)
		qsort(map, n, sizeof(*map), by_name);
	for (uint64_t i = 1; i < n; i++)
		if (rs_str_eq(map[i - 1].name, map[i].name)) {
			rs_fail(err, RS_USAGE, "an index would name tensor '%s' in %s and in %s",
				RS_SHOW(map[i].name), map[i - 1].file, map[i].file);
			return rs_hint(
				err, "files of ranks that cut a tensor have no common index");
		}
	put_index(&t, map, n, total_size, 2);
	puts_text(&t, "\n");
	return take(&t, arena, out, err);
}

int rs__index_unified(const struct rs__mapped *map, uint64_t n, uint64_t total_size,
	struct rs_arena *arena, struct rs_str *out, struct rs_err *err)
{
	struct text t = {.err = err};

	if (check_names(map, n, err) < 0)
		return -1;
	put_index(&t, map, n, total_size, 4);
	return take(&t, arena, out, err);
}
