/*
 * str.c - counted strings: order, numbers, UTF-8, and names from files made safe to print.
 * Names are data: nothing here copies or keeps them. Next: arena.c, where copies live.
 */
#include <stdio.h>

#include "internal.h"

int rs_str_cmp(struct rs_str a, struct rs_str b)
{
	size_t common = a.len < b.len ? a.len : b.len;
	int order = common ? memcmp(a.ptr, b.ptr, common) : 0;

	if (order)
		return order;
	return (a.len > b.len) - (a.len < b.len);
}

bool rs_str_starts(struct rs_str s, const char *prefix)
{
	size_t len = strlen(prefix);

	return len <= s.len && (len == 0 || memcmp(s.ptr, prefix, len) == 0);
}

bool rs_str_ends(struct rs_str s, const char *suffix)
{
	size_t len = strlen(suffix);

	return len <= s.len && (len == 0 || memcmp(s.ptr + s.len - len, suffix, len) == 0);
}

bool rs_str_u64(struct rs_str s, uint64_t *out)
{
	uint64_t value = 0;

	if (s.len == 0)
		return false;
	for (size_t i = 0; i < s.len; i++) {
		if (s.ptr[i] < '0' || s.ptr[i] > '9')
			return false;
		if (!rs_mul(value, 10, &value) ||
			!rs_add(value, (uint64_t)(s.ptr[i] - '0'), &value))
			return false;
	}
	*out = value;
	return true;
}

/*
 * The character at the front of @s: its bytes (0 when they are not UTF-8) and its code point.
 * Overlong forms, surrogates and what is above U+10FFFF are refused by the range of the value.
 */
static size_t next_char(struct rs_str s, uint32_t *point)
{
	static const uint32_t least[] = {0, 0, 0x80, 0x800, 0x10000};
	unsigned char lead = (unsigned char)s.ptr[0];
	size_t n = lead < 0x80 ? 1 : lead < 0xc0 ? 0 : lead < 0xe0 ? 2 : lead < 0xf0 ? 3 : 4;
	uint32_t value;

	if (n == 0 || n > s.len || lead > 0xf4)
		return 0;
	value = n == 1 ? lead : lead & (0x7fu >> n);
	for (size_t i = 1; i < n; i++) {
		unsigned char byte = (unsigned char)s.ptr[i];

		if ((byte & 0xc0) != 0x80)
			return 0;
		value = value << 6 | (byte & 0x3f);
	}
	if (value < least[n] || value > 0x10ffff || (value >= 0xd800 && value <= 0xdfff))
		return 0;
	*point = value;
	return n;
}

bool rs_utf8_ok(struct rs_str s)
{
	uint32_t point;

	while (s.len > 0) {
		size_t n = next_char(s, &point);

		if (n == 0)
			return false;
		s.ptr += n;
		s.len -= n;
	}
	return true;
}

/*
 * Characters that a terminal obeys instead of showing: control codes (also the second set, which
 * some terminals read as escape sequences), line separators, and the marks that reverse the
 * order of what follows.
 */
static bool is_control(uint32_t point)
{
	return point < 0x20 || (point >= 0x7f && point < 0xa0) || point == 0x200e ||
	       point == 0x200f || (point >= 0x2028 && point <= 0x202e) ||
	       (point >= 0x2066 && point <= 0x2069);
}

const char *rs_show(struct rs_str s, char *buf, size_t size)
{
	/* @safe: where "..." still fits behind whole characters, should the rest be too long. */
	size_t used = 0, safe = 0;

	if (size == 0)
		return buf;
	while (s.len > 0) {
		char piece[17];
		uint32_t point = 0;
		size_t n = next_char(s, &point), width = n;

		if (n == 0 || is_control(point)) {
			n = n ? n : 1;
			for (size_t i = 0; i < n; i++)
				snprintf(piece + 4 * i, 5, "\\x%02X", (unsigned char)s.ptr[i]);
			width = 4 * n;
		} else {
			memcpy(piece, s.ptr, n);
		}
		if (width >= size - used) {
			size_t dots = size - 1 - safe < 3 ? size - 1 - safe : 3;

			memcpy(buf + safe, "...", dots);
			used = safe + dots;
			break;
		}
		memcpy(buf + used, piece, width);
		used += width;
		if (size - used > 3)
			safe = used;
		s.ptr += n;
		s.len -= n;
	}
	buf[used] = 0;
	return buf;
}

size_t rs_append(char *buf, size_t size, size_t at, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	int n = vsnprintf(at < size ? buf + at : NULL, at < size ? size - at : 0, fmt, ap);
	va_end(ap);
	return n < 0 ? at : at + (size_t)n;
}
