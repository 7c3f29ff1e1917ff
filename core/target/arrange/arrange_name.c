/*
 * arrange_name.c - names of files: patterns of plans and options for a rank, parts of a file, and
 * what sources call things.
 *
 *   "rank_{rank}/model-{tp}.safetensors", rank 5 of dp 3, tp 2   rank_5/model-1.safetensors
 *   "../x"                                                      %2E.%2Fx
 *
 * Names have letters, digits, '.', '_' and '-'; what else stands in one becomes %XX, so that no
 * name is ever a path. Refuses words in braces that are no axis, and names over 255 bytes. Read
 * next: arrange_path.c.
 */
#include "core/target/arrange/arrange.h"

#include <inttypes.h>
#include <stdio.h>

static bool plain(char c)
{
	return (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') ||
	       c == '.' || c == '_' || c == '-';
}

/* A growing name; the caller has made room for three bytes a character. */
struct name {
	char *buf;
	size_t len;
};

static void put_char(struct name *n, char c, bool as_is)
{
	static const char hex[] = "0123456789ABCDEF";
	unsigned char u = (unsigned char)c;

	if (as_is) {
		n->buf[n->len++] = c;
		return;
	}
	n->buf[n->len++] = '%';
	n->buf[n->len++] = hex[u >> 4];
	n->buf[n->len++] = hex[u & 15];
}

char *rs__name_escape(struct rs_arena *arena, struct rs_str name, struct rs_err *err)
{
	struct name n = {.buf = rs_arena_alloc(arena, 3 * (uint64_t)name.len + 1, err)};

	if (!n.buf)
		return NULL;
	/* A first dot would make "." and ".." possible, and names that belong to the mount itself.
	 */
	for (size_t i = 0; i < name.len; i++)
		put_char(&n, name.ptr[i], plain(name.ptr[i]) && !(i == 0 && name.ptr[i] == '.'));
	if (n.len == 0 || n.len > RS__FILE_NAME_MAX) {
		rs_fail(err, RS_LIMIT, "'%s': expected a file name of 1 to %d bytes, found %zu",
			RS_SHOW(name), RS__FILE_NAME_MAX, n.len);
		return NULL;
	}
	return n.buf;
}

/* ------------------------------------------------------------------ expansion */

static int refuse_word(const struct rs_target *t, struct rs_str word, struct rs_err *err)
{
	char axes[160] = "";
	size_t len = 0;

	for (uint32_t i = 0; i < t->n_axes; i++)
		len = rs_append(axes, sizeof(axes), len, ", {%.*s}",
			(int)rs_min(t->axes[i].name.len, 32), t->axes[i].name.ptr);
	rs_fail(err, RS_USAGE, "path of files: '{%s}' is no axis of the mesh", RS_SHOW(word));
	return rs_hint(err, "what may stand there: {rank}%s", axes);
}

/* What {@word} is for @rank. */
static int value_of(const struct rs_target *t, struct rs_str word, uint64_t rank, uint64_t *out,
	struct rs_err *err)
{
	uint64_t rest = rank;

	*out = rank;
	if (rs_str_is(word, "rank"))
		return 0;
	for (uint32_t i = t->n_axes; i-- > 0;) { /* the last axis varies fastest */
		*out = rest % t->axes[i].size;
		rest /= t->axes[i].size;
		if (rs_str_eq(t->axes[i].name, word))
			return 0;
	}
	return refuse_word(t, word, err);
}

#define DIGITS 20 /* of 2^64 - 1 */

static int expand(const struct rs_target *t, const char *pattern, uint64_t rank, struct name *n,
	struct rs_err *err)
{
	uint64_t value;

	for (const char *at = pattern; *at; at++) {
		const char *end = *at == '{' ? strchr(at, '}') : NULL;

		if (!end) {
			put_char(n, *at, plain(*at) || *at == '/');
			continue;
		}
		if (value_of(t, (struct rs_str){at + 1, (size_t)(end - at - 1)}, rank, &value,
			    err) < 0)
			return -1;
		n->len += (size_t)snprintf(n->buf + n->len, DIGITS + 1, "%" PRIu64, value);
		at = end;
	}
	n->buf[n->len] = '\0';
	return 0;
}

int rs__path_expand(const struct rs_target *t, const char *pattern, uint64_t rank, char **out,
	struct rs_err *err)
{
	/* {x} is three characters and at most 20 digits. */
	struct name n = {.buf = rs_alloc(strlen(pattern) * DIGITS + 1, err)};
	int rc = n.buf ? expand(t, pattern, rank, &n, err) : -1;

	*out = rc == 0 ? rs_arena_copy(t->arena, n.buf, n.len, err) : NULL;
	rs_free(n.buf);
	return *out ? 0 : -1;
}

/* ---------------------------------------------------------------------- parts */

char *rs__part_name(struct rs_arena *arena, const char *name, uint32_t part, uint32_t n_parts,
	struct rs_err *err)
{
	const char *dot = strrchr(name, '.');
	size_t stem = dot && dot != name ? (size_t)(dot - name) : strlen(name);
	char *full;

	if (n_parts == 1)
		return rs_arena_copy(arena, name, strlen(name), err);
	full = rs_arena_printf(arena, err, "%.*s-%05" PRIu32 "-of-%05" PRIu32 "%s", (int)stem, name,
		part + 1, n_parts, name + stem);
	if (full && strlen(full) > RS__FILE_NAME_MAX) {
		rs_fail(err, RS_LIMIT, "'%s': expected a file name of at most %d bytes", full,
			RS__FILE_NAME_MAX);
		return NULL;
	}
	return full;
}
