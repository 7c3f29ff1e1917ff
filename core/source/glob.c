/*
 * glob.c - patterns on whole names: * any bytes, ? one byte, [a-z] and [!a-z] one of a set, \ takes
 * the next byte as it is.
 *
 * Names come from strangers' files and may hold any byte, so this counts lengths and needs no
 * terminator. One step back to the last star is enough, so no name makes it slow. Refuses sets that
 * do not end. Read next: names.c.
 */
#include "core/source/internal.h"

/* Past the set that begins at p[0] == '['; NULL when it does not end. ']' first is a member. */
static const char *set_end(const char *p, const char *end)
{
	p++;
	if (p < end && *p == '!')
		p++;
	if (p < end && *p == ']')
		p++;
	while (p < end && *p != ']')
		p++;
	return p < end ? p + 1 : NULL;
}

static bool in_set(const char *p, const char *past, char c)
{
	bool negated = p[1] == '!', found = false;
	uint8_t byte = (uint8_t)c;

	for (p += 1 + negated; p + 1 < past; p++) {
		uint8_t low = (uint8_t)*p, high = low;
		if (p + 3 < past && p[1] == '-') {
			high = (uint8_t)p[2];
			p += 2;
		}
		found |= low <= byte && byte <= high;
	}
	return found != negated;
}

bool rs__glob_ok(struct rs_str pattern)
{
	const char *p = pattern.ptr, *end = p + pattern.len;

	while (p && p < end) {
		if (*p == '\\' && p + 1 == end)
			return false;
		if (*p == '[')
			p = set_end(p, end);
		else
			p += *p == '\\' ? 2 : 1;
	}
	return p != NULL && pattern.len > 0;
}

/* Does one byte fit what stands at @p? *@next: behind it. */
static bool fits_one(const char *p, const char *end, char c, const char **next)
{
	*next = p + 1;
	switch (*p) {
	case '?':
		return true;
	case '[':
		*next = set_end(p, end);
		if (*next)
			return in_set(p, *next, c);
		*next = p + 1; /* no set: a bracket */
		return c == '[';
	case '\\':
		if (p + 1 < end) {
			*next = p + 2;
			return p[1] == c;
		}
		return c == '\\';
	default:
		return *p == c;
	}
}

bool rs__glob(struct rs_str pattern, struct rs_str name)
{
	const char *p = pattern.ptr, *p_end = p + pattern.len;
	const char *s = name.ptr, *s_end = s + name.len;
	const char *star = NULL, *retry = NULL, *next;

	while (s < s_end) {
		if (p < p_end && *p == '*') {
			star = ++p;
			retry = s;
		} else if (p < p_end && fits_one(p, p_end, *s, &next)) {
			p = next;
			s++;
		} else if (star) {
			p = star;
			s = ++retry;
		} else {
			return false;
		}
	}
	while (p < p_end && *p == '*')
		p++;
	return p == p_end;
}
