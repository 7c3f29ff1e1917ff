/*
 * json.c - a strict pull reader of JSON (RFC 8259) that allocates only for escaped strings.
 *
 * Headers of safetensors files reach 100 MB, come from strangers, and hold 64-bit offsets: so
 * UTF-8 is proved once for the whole text, strings are scanned eight bytes at a time and returned
 * in place, and numbers stay exact. The list of what is refused stands in codec.h; the state of
 * the grammar is one byte. Next: jsontree.c, which checks small documents with this reader.
 */
#include <inttypes.h>
#include <stdio.h>

#include "reshardfs/codec.h"

enum expect {
	WANT_VALUE,        /* at the start, after a key, after a comma in an array */
	WANT_VALUE_OR_END, /* after '[' */
	WANT_KEY,          /* after a comma in an object */
	WANT_KEY_OR_END,   /* after '{' */
	WANT_SEPARATOR,    /* after a value: a comma, a bracket, or at depth 0 the end */
};

/* ------------------------------------------------------------------ refusals */

static uint64_t offset(const struct rs_json *j, const uint8_t *at)
{
	return j->in.base_off + (uint64_t)(at - j->in.base);
}

static int refuse_found(
	struct rs_json *j, const uint8_t *at, const char *expected, const char *found)
{
	j->in.failed = true;
	return rs_fail(j->in.err, RS_CORRUPT, "%s@%" PRIu64 ": expected %s, found %s", j->in.file,
		offset(j, at), expected, found);
}

static int refuse(struct rs_json *j, const uint8_t *at, const char *expected)
{
	char found[24];

	if (at >= j->in.end)
		return refuse_found(j, at, expected, "the end of the text");
	if (*at >= 0x20 && *at < 0x7f)
		(void)snprintf(found, sizeof(found), "'%c'", *at);
	else
		(void)snprintf(found, sizeof(found), "byte 0x%02x", *at);
	return refuse_found(j, at, expected, found);
}

/* Where rs_utf8_ok said no: the first character that is not valid by itself. */
static const uint8_t *utf8_bad(const uint8_t *p, const uint8_t *end)
{
	while (p < end) {
		size_t len = *p < 0x80 ? 1 : *p < 0xe0 ? 2 : *p < 0xf0 ? 3 : 4;

		if (len > (size_t)(end - p) || !rs_utf8_ok((struct rs_str){(const char *)p, len}))
			return p;
		p += len;
	}
	return p;
}

void rs_json_init(struct rs_json *j, struct rs_str text, uint64_t base_off, const char *file,
	struct rs_arena *arena, struct rs_err *err)
{
	*j = (struct rs_json){.arena = arena, .expect = WANT_VALUE};
	rs_read_init(&j->in, text.ptr, text.len, base_off, file, err);
	if (text.len >= 3 && memcmp(text.ptr, "\xef\xbb\xbf", 3) == 0)
		(void)refuse_found(j, j->in.pos, "JSON", "a byte order mark");
	else if (!rs_utf8_ok(text))
		(void)refuse(j, utf8_bad(j->in.base, j->in.end), "UTF-8");
}

/* ------------------------------------------------------------------- strings */

#define EACH(byte) (UINT64_C(0x0101010101010101) * (byte))

/*
 * The first byte from @p on that is no plain part of a string: a quote, a backslash or a control
 * byte. x - 1 borrows into the top bit of a byte that is 0, and x - 0x20 of one below 0x20;
 * "& ~x" forgets bytes that had the top bit set themselves. A false alarm costs eight single steps.
 */
static const uint8_t *plain_end(const uint8_t *p, const uint8_t *end)
{
	while (end - p >= 8) {
		uint64_t v, quote, slash;

		memcpy(&v, p, 8);
		quote = v ^ EACH('"');
		slash = v ^ EACH('\\');
		if ((((v - EACH(0x20)) & ~v) | ((quote - EACH(1)) & ~quote) |
			    ((slash - EACH(1)) & ~slash)) &
			EACH(0x80))
			break;
		p += 8;
	}
	while (p < end && *p >= 0x20 && *p != '"' && *p != '\\')
		p++;
	return p;
}

static bool hex4(const uint8_t *p, const uint8_t *end, uint32_t *out)
{
	*out = 0;
	if (end - p < 4)
		return false;
	for (int i = 0; i < 4; i++) {
		uint8_t c = p[i] | 0x20;

		if (p[i] >= '0' && p[i] <= '9')
			*out = *out << 4 | (uint32_t)(p[i] - '0');
		else if (c >= 'a' && c <= 'f')
			*out = *out << 4 | (uint32_t)(c - 'a' + 10);
		else
			return false;
	}
	return true;
}

static uint8_t *put_utf8(uint8_t *to, uint32_t c)
{
	if (c < 0x80) {
		*to++ = (uint8_t)c;
	} else if (c < 0x800) {
		*to++ = (uint8_t)(0xc0 | c >> 6);
		*to++ = (uint8_t)(0x80 | (c & 0x3f));
	} else if (c < 0x10000) {
		*to++ = (uint8_t)(0xe0 | c >> 12);
		*to++ = (uint8_t)(0x80 | (c >> 6 & 0x3f));
		*to++ = (uint8_t)(0x80 | (c & 0x3f));
	} else {
		*to++ = (uint8_t)(0xf0 | c >> 18);
		*to++ = (uint8_t)(0x80 | (c >> 12 & 0x3f));
		*to++ = (uint8_t)(0x80 | (c >> 6 & 0x3f));
		*to++ = (uint8_t)(0x80 | (c & 0x3f));
	}
	return to;
}

/* The \uXXXX at @p, or the pair of them that UTF-16 needs beyond U+FFFF; NULL when refused. */
static const uint8_t *escape_unicode(
	struct rs_json *j, const uint8_t *p, const uint8_t *end, uint32_t *c)
{
	uint32_t low;

	if (!hex4(p + 2, end, c)) {
		(void)refuse_found(j, p, "four hexadecimal digits after \\u", "something else");
		return NULL;
	}
	if (*c < 0xd800 || *c > 0xdfff)
		return p + 6;
	if (*c > 0xdbff || end - p < 12 || p[6] != '\\' || p[7] != 'u' || !hex4(p + 8, end, &low) ||
		low < 0xdc00 || low > 0xdfff) {
		(void)refuse_found(j, p, "a pair of surrogates", "a lone one");
		return NULL;
	}
	*c = 0x10000 + ((*c - 0xd800) << 10) + (low - 0xdc00);
	return p + 12;
}

/* Decode the escape at @p, where two bytes are known to be there; NULL when refused. */
static const uint8_t *escape(struct rs_json *j, const uint8_t *p, const uint8_t *end, uint32_t *c)
{
	static const char from[] = "\"\\/bfnrt", to[] = "\"\\/\b\f\n\r\t";
	const char *at;

	if (p[1] == 'u')
		return escape_unicode(j, p, end, c);
	at = p[1] ? strchr(from, p[1]) : NULL;
	if (!at) {
		(void)refuse(j, p + 1, "one of \"\\/bfnrtu after a backslash");
		return NULL;
	}
	*c = (uint32_t)to[at - from];
	return p + 2;
}

/* An escape is never shorter than what it stands for, so the raw length is room enough. */
static int unescape(struct rs_json *j, const uint8_t *p, const uint8_t *end, struct rs_str *out)
{
	uint8_t *buf = rs_arena_alloc(j->arena, (uint64_t)(end - p), j->in.err), *to = buf;

	if (!buf) {
		j->in.failed = true;
		return -1;
	}
	while (p < end) {
		const uint8_t *plain = plain_end(p, end);
		uint32_t c;

		memcpy(to, p, (size_t)(plain - p));
		to += plain - p;
		if (plain == end)
			break;
		p = escape(j, plain, end, &c);
		if (!p)
			return -1;
		to = put_utf8(to, c);
	}
	*out = (struct rs_str){(const char *)buf, (size_t)(to - buf)};
	return 0;
}

static int string(struct rs_json *j, struct rs_str *out)
{
	const uint8_t *start = j->in.pos + 1, *end = j->in.end, *p = plain_end(start, end);
	bool escaped = false;

	while (p < end && *p == '\\' && end - p >= 2) {
		escaped = true;
		p = plain_end(p + 2, end);
	}
	if (p == end || *p == '\\')
		return refuse(j, end, "the closing quote of a string");
	if (*p != '"')
		return refuse(j, p, "no raw control character in a string");
	j->in.pos = p + 1;
	*out = (struct rs_str){(const char *)start, (size_t)(p - start)};
	return escaped ? unescape(j, start, p, out) : 0;
}

/* -------------------------------------------------------------- other values */

static const uint8_t *digits(const uint8_t *p, const uint8_t *end)
{
	while (p < end && *p >= '0' && *p <= '9')
		p++;
	return p;
}

static int number(struct rs_json *j, struct rs_json_token *out)
{
	const uint8_t *start = j->in.pos, *end = j->in.end, *p, *from;
	const uint8_t *first = start + (*start == '-');
	bool plain = first == start;

	p = digits(first, end);
	if (p == first)
		return refuse(j, p, "a digit");
	if (*first == '0' && p - first > 1)
		return refuse_found(j, start, "a number without leading zeros", "one with");
	if (p < end && *p == '.') {
		plain = false;
		from = p + 1;
		p = digits(from, end);
		if (p == from)
			return refuse(j, p, "a digit after the decimal point");
	}
	if (p < end && (*p == 'e' || *p == 'E')) {
		plain = false;
		from = p + 1;
		from += from < end && (*from == '+' || *from == '-');
		p = digits(from, end);
		if (p == from)
			return refuse(j, p, "a digit in the exponent");
	}
	out->text = (struct rs_str){(const char *)start, (size_t)(p - start)};
	out->type = plain && rs_str_u64(out->text, &out->u) ? RS_JSON_UINT : RS_JSON_NUMBER;
	j->in.pos = p;
	return 0;
}

static int word(
	struct rs_json *j, struct rs_json_token *out, const char *spelling, enum rs_json_type type)
{
	size_t len = strlen(spelling);

	if ((size_t)(j->in.end - j->in.pos) < len || memcmp(j->in.pos, spelling, len) != 0)
		return refuse_found(j, j->in.pos, spelling, "another word");
	j->in.pos += len;
	out->type = type;
	return 0;
}

static int enter(struct rs_json *j, struct rs_json_token *out, uint8_t kind)
{
	if (j->depth == RS_JSON_DEPTH)
		return refuse_found(j, j->in.pos, "at most 128 levels of nesting", "more");
	j->stack[j->depth++] = kind;
	j->in.pos++;
	out->type = kind == 'o' ? RS_JSON_OBJECT : RS_JSON_ARRAY;
	j->expect = kind == 'o' ? WANT_KEY_OR_END : WANT_VALUE_OR_END;
	return 0;
}

static int leave(struct rs_json *j, struct rs_json_token *out)
{
	out->type = j->stack[--j->depth] == 'o' ? RS_JSON_OBJECT_END : RS_JSON_ARRAY_END;
	j->in.pos++;
	j->expect = WANT_SEPARATOR;
	return 0;
}

/* -------------------------------------------------------------------- grammar */

static void skip_space(struct rs_json *j)
{
	const uint8_t *p = j->in.pos;

	while (p < j->in.end && (*p == ' ' || *p == '\n' || *p == '\r' || *p == '\t'))
		p++;
	j->in.pos = p;
}

static bool next_is(const struct rs_json *j, char c)
{
	return j->in.pos < j->in.end && *j->in.pos == (uint8_t)c;
}

/* A key takes its colon with it: a token later there is nothing left to say about it. */
static int key(struct rs_json *j, struct rs_json_token *out)
{
	if (!next_is(j, '"'))
		return refuse(j, j->in.pos, j->expect == WANT_KEY ? "a key" : "a key or '}'");
	out->type = RS_JSON_KEY;
	if (string(j, &out->text) < 0)
		return -1;
	skip_space(j);
	if (!next_is(j, ':'))
		return refuse(j, j->in.pos, "':' after a key");
	j->in.pos++;
	j->expect = WANT_VALUE;
	return 0;
}

static int value(struct rs_json *j, struct rs_json_token *out)
{
	uint8_t before = j->expect;

	if (j->in.pos == j->in.end)
		return refuse(j, j->in.pos, "a value");
	j->expect = WANT_SEPARATOR;
	switch (*j->in.pos) {
	case '{':
		return enter(j, out, 'o');
	case '[':
		return enter(j, out, 'a');
	case '"':
		out->type = RS_JSON_STRING;
		return string(j, &out->text);
	case 't':
		return word(j, out, "true", RS_JSON_TRUE);
	case 'f':
		return word(j, out, "false", RS_JSON_FALSE);
	case 'n':
		return word(j, out, "null", RS_JSON_NULL);
	case '-':
	case '0' ... '9':
		return number(j, out);
	default:
		return refuse(j, j->in.pos, before == WANT_VALUE ? "a value" : "a value or ']'");
	}
}

/* After a value: 0 to go on with the next one, 1 when @out was filled, -1 when refused. */
static int separator(struct rs_json *j, struct rs_json_token *out)
{
	bool object = j->depth > 0 && j->stack[j->depth - 1] == 'o';

	if (j->depth == 0) {
		if (j->in.pos != j->in.end)
			return refuse(j, j->in.pos, "nothing after the value");
		out->type = RS_JSON_END;
		return 1;
	}
	if (next_is(j, object ? '}' : ']'))
		return leave(j, out) < 0 ? -1 : 1;
	if (!next_is(j, ','))
		return refuse(j, j->in.pos, object ? "',' or '}'" : "',' or ']'");
	j->in.pos++;
	j->expect = object ? WANT_KEY : WANT_VALUE;
	skip_space(j);
	return 0;
}

int rs_json_next(struct rs_json *j, struct rs_json_token *out)
{
	int rc;

	*out = (struct rs_json_token){.type = RS_JSON_END};
	if (j->in.failed)
		return -1;
	skip_space(j);
	if (j->expect == WANT_SEPARATOR) {
		out->off = offset(j, j->in.pos);
		rc = separator(j, out);
		if (rc != 0)
			return rc < 0 ? -1 : 0;
	}
	out->off = offset(j, j->in.pos);
	if (j->expect == WANT_KEY_OR_END && next_is(j, '}'))
		return leave(j, out);
	if (j->expect == WANT_VALUE_OR_END && next_is(j, ']'))
		return leave(j, out);
	if (j->expect == WANT_KEY || j->expect == WANT_KEY_OR_END)
		return key(j, out);
	return value(j, out);
}

/* A key stands for its value, too, so that `skip(key)` passes a member that nobody asked for. */
int rs_json_skip(struct rs_json *j, const struct rs_json_token *tok)
{
	struct rs_json_token t = *tok;
	uint32_t depth;

	if (t.type == RS_JSON_KEY && rs_json_next(j, &t) < 0)
		return -1;
	if (t.type != RS_JSON_OBJECT && t.type != RS_JSON_ARRAY)
		return j->in.failed ? -1 : 0;
	depth = j->depth - 1;
	while (j->depth > depth)
		if (rs_json_next(j, &t) < 0)
			return -1;
	return 0;
}
