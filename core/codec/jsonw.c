/*
 * jsonw.c - write JSON into a growing buffer; commas, escapes and indentation are its business.
 *
 * Escapes are those of the reference safetensors writer (only the quote, the backslash and what
 * is below 0x20), so that our headers equal its headers byte for byte. Failure to grow sticks and
 * is told once, by rs_jsonw_take. Next: core/image/fmt_safetensors.c.
 */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "reshardfs/codec.h"

void rs_jsonw_init(struct rs_jsonw *w, bool pretty)
{
	*w = (struct rs_jsonw){.pretty = pretty};
}

static void put(struct rs_jsonw *w, const char *bytes, uint64_t len)
{
	uint64_t need;

	if (w->failed || len == 0)
		return;
	if (!rs_add(w->len, len, &need) || rs_grow(&w->buf, &w->cap, need, 1, NULL) < 0) {
		w->failed = true;
		return;
	}
	memcpy(w->buf + w->len, bytes, len);
	w->len = need;
}

static void new_line(struct rs_jsonw *w)
{
	put(w, "\n", 1);
	for (uint32_t i = 0; i < w->depth; i++)
		put(w, "  ", 2);
}

/* What stands before a key or a value: nothing after a key, else a comma and a new line. */
static void separate(struct rs_jsonw *w)
{
	if (w->after_key) {
		w->after_key = false;
	} else {
		if (w->comma)
			put(w, ",", 1);
		if (w->pretty && w->depth > 0)
			new_line(w);
	}
	w->comma = true;
}

void rs_jsonw_open(struct rs_jsonw *w, char bracket)
{
	separate(w);
	put(w, &bracket, 1);
	w->depth++;
	w->comma = false;
}

void rs_jsonw_close(struct rs_jsonw *w, char bracket)
{
	if (w->depth > 0)
		w->depth--;
	if (w->pretty && w->comma) /* an empty one stays on its line: {} */
		new_line(w);
	put(w, &bracket, 1);
	w->comma = true;
}

/* Bytes of the valid UTF-8 character at @p, 0 when there is none. */
static size_t character(const char *p, size_t left)
{
	for (size_t len = 1; len <= 4 && len <= left; len++)
		if (rs_utf8_ok((struct rs_str){p, len}))
			return len;
	return 0;
}

static void put_special(struct rs_jsonw *w, char c)
{
	static const char from[] = "\"\\\b\f\n\r\t", to[] = "\"\\bfnrt";
	const char *at = c ? strchr(from, c) : NULL;
	char text[8];
	int n;

	if (at)
		n = snprintf(text, sizeof(text), "\\%c", to[at - from]);
	else
		n = snprintf(text, sizeof(text), "\\u%04x", (unsigned int)(unsigned char)c);
	put(w, text, (uint64_t)n);
}

static void put_string(struct rs_jsonw *w, struct rs_str s)
{
	bool valid = rs_utf8_ok(s);
	size_t done = 0, i = 0;

	put(w, "\"", 1);
	while (i < s.len) {
		unsigned char c = (unsigned char)s.ptr[i];
		size_t len = c < 0x80 || valid ? 1 : character(s.ptr + i, s.len - i);

		if (len > 0 && c >= 0x20 && c != '"' && c != '\\') {
			i += len;
			continue;
		}
		put(w, s.ptr + done, i - done);
		if (len == 0)
			put(w, "\xef\xbf\xbd", 3);
		else
			put_special(w, s.ptr[i]);
		done = ++i;
	}
	put(w, s.ptr + done, s.len - done);
	put(w, "\"", 1);
}

void rs_jsonw_key(struct rs_jsonw *w, struct rs_str key)
{
	separate(w);
	put_string(w, key);
	put(w, ": ", w->pretty ? 2 : 1);
	w->after_key = true;
}

void rs_jsonw_str(struct rs_jsonw *w, struct rs_str value)
{
	separate(w);
	put_string(w, value);
}

void rs_jsonw_uint(struct rs_jsonw *w, uint64_t value)
{
	char text[24];
	int n = snprintf(text, sizeof(text), "%" PRIu64, value);

	separate(w);
	put(w, text, (uint64_t)n);
}

void rs_jsonw_int(struct rs_jsonw *w, int64_t value)
{
	char text[24];
	int n = snprintf(text, sizeof(text), "%" PRId64, value);

	separate(w);
	put(w, text, (uint64_t)n);
}

/* The shortest form that reads back as the same value; JSON has no word for what is not finite. */
void rs_jsonw_double(struct rs_jsonw *w, double value)
{
	char text[32];
	int n = 0;

	if (!isfinite(value)) {
		rs_jsonw_null(w);
		return;
	}
	for (int precision = 15; precision <= 17; precision++) {
		n = snprintf(text, sizeof(text), "%.*g", precision, value);
		if (strtod(text, NULL) == value)
			break;
	}
	separate(w);
	put(w, text, (uint64_t)n);
}

void rs_jsonw_bool(struct rs_jsonw *w, bool value)
{
	separate(w);
	put(w, value ? "true" : "false", value ? 4 : 5);
}

void rs_jsonw_null(struct rs_jsonw *w)
{
	separate(w);
	put(w, "null", 4);
}

char *rs_jsonw_take(struct rs_jsonw *w, uint64_t *len, struct rs_err *err)
{
	char *text;

	put(w, "", 1); /* the 0 byte that terminates it */
	text = w->buf;
	w->buf = NULL;
	if (w->failed) {
		rs_free(text);
		(void)rs_fail(err, RS_NOMEM, "out of memory for JSON output of %" PRIu64 " bytes",
			w->len);
		return NULL;
	}
	*len = w->len - 1;
	return text;
}
