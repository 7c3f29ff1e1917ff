/*
 * tree.c - the shape of the virtual tree: inode numbers, names and ranks are arithmetic on each
 * other, so there is no table to fill, to lock or to forget.
 *
 * Everything here is immutable once the view is open, and any thread may ask. Refuses names that
 * could leave their directory or surprise a shell, and ranks that the target does not have.
 * Read next: build.c, for what is behind a file's inode.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "core/view/internal.h"

#define FILE_OFFSET 1u /* inode of the first file of a rank, less that of its directory */

/* ---------------------------------------------------------------- ranks= */

static int refuse_ranks(struct rs_str part, uint64_t n_ranks, struct rs_err *err)
{
	rs_fail(err, RS_USAGE, "ranks=: expected ranks from 0 to %" PRIu64 ", found '%s'",
		n_ranks - 1, RS_SHOW(part));
	return rs_hint(err, "write numbers and ranges joined by +, like ranks=0-3+8");
}

static int parse_range(
	struct rs_str part, uint64_t n_ranks, uint64_t *first, uint64_t *last, struct rs_err *err)
{
	const char *dash = part.len ? memchr(part.ptr, '-', part.len) : NULL;
	struct rs_str low = part, high = part;

	if (dash) {
		low.len = (size_t)(dash - part.ptr);
		high = (struct rs_str){dash + 1, part.len - low.len - 1};
	}
	if (!rs_str_u64(low, first) || !rs_str_u64(high, last) || *first > *last ||
		*last >= n_ranks)
		return refuse_ranks(part, n_ranks, err);
	return 0;
}

static int mark_ranges(const char *text, uint64_t n_ranks, uint8_t *shown, struct rs_err *err)
{
	for (const char *at = text;; at++) {
		const char *end = strchrnul(at, '+');
		uint64_t first, last;

		if (parse_range((struct rs_str){at, (size_t)(end - at)}, n_ranks, &first, &last,
			    err) < 0)
			return -1;
		memset(shown + first, 1, last - first + 1);
		if (*end == '\0')
			return 0;
		at = end;
	}
}

int rs__ranks_parse(
	const char *text, uint64_t n_ranks, uint64_t **ranks, uint64_t *n, struct rs_err *err)
{
	uint8_t *shown;
	uint64_t count = 0;
	int rc = -1;

	*ranks = NULL;
	if (n_ranks == 0)
		return rs_fail(err, RS_MISSING, "expected a target of at least one rank");
	shown = rs_alloc(n_ranks, err);
	if (!shown)
		return -1;
	if (!text)
		memset(shown, 1, n_ranks);
	else if (mark_ranges(text, n_ranks, shown, err) < 0)
		goto out;
	for (uint64_t r = 0; r < n_ranks; r++)
		count += shown[r];
	*ranks = rs_alloc(count * sizeof(**ranks), err);
	if (!*ranks)
		goto out;
	*n = 0;
	for (uint64_t r = 0; r < n_ranks; r++)
		if (shown[r])
			(*ranks)[(*n)++] = r;
	rc = 0;
out:
	rs_free(shown);
	return rc;
}

/* ----------------------------------------------------------------- name= */

static const char rank_word[] = "{rank}";
#define RANK_WORD_LEN (sizeof(rank_word) - 1)

static bool starts_rank(const char *s)
{
	return strncmp(s, rank_word, RANK_WORD_LEN) == 0;
}

static bool plain(char c)
{
	return (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') ||
	       c == '.' || c == '_' || c == '-';
}

int rs__pattern_check(const char *pattern, uint64_t n_ranks, struct rs_err *err)
{
	const struct rs_str shown = rs_str(pattern);
	char digits[24];
	size_t longest = 0;
	size_t rank_len = (size_t)snprintf(digits, sizeof(digits), "%" PRIu64, n_ranks);

	for (const char *at = pattern; *at;) {
		if (starts_rank(at)) {
			longest += rank_len;
			at += RANK_WORD_LEN;
		} else if (plain(*at)) {
			longest++;
			at++;
		} else {
			rs_fail(err, RS_USAGE,
				"name=: expected letters, digits, '.', '_', '-' and {rank}, found "
				"'%s'",
				RS_SHOW(shown));
			return rs_hint(err, "a file name, not a path: checkpoint_{rank}.ckpt");
		}
	}
	if (longest == 0 || longest > RS__NAME_MAX || rs_str_is(shown, ".") ||
		rs_str_is(shown, ".."))
		return rs_fail(err, RS_USAGE,
			"name=: expected a file name of 1 to %d bytes, not '.' or '..', found '%s'",
			RS__NAME_MAX, RS_SHOW(shown));
	return 0;
}

void rs__pattern_name(const char *pattern, uint64_t rank, char *name)
{
	size_t len = 0;

	for (const char *at = pattern; *at && len < RS__NAME_MAX;) {
		if (starts_rank(at)) {
			len += (size_t)snprintf(
				name + len, RS__NAME_MAX + 1 - len, "%" PRIu64, rank);
			at += RANK_WORD_LEN;
		} else {
			name[len++] = *at++;
		}
	}
	name[len < RS__NAME_MAX ? len : RS__NAME_MAX] = '\0';
}

/* ----------------------------------------------------------------- ranks */

static int compare_rank(const void *key, const void *item)
{
	const uint64_t *rank = key;
	const struct rs__vfile *f = item;

	return *rank < f->rank ? -1 : *rank > f->rank;
}

static struct rs__vfile *find_rank(const struct rs_view *v, uint64_t rank)
{
	return bsearch(&rank, v->files, v->n_files, sizeof(*v->files), compare_rank);
}

uint64_t rs_view_n_ranks(const struct rs_view *v)
{
	return v->n_files;
}

uint64_t rs_view_rank(const struct rs_view *v, uint64_t i)
{
	return v->files[i].rank;
}

/* ---------------------------------------------------------------- inodes */

static uint64_t rank_inode(uint64_t rank)
{
	return (rank + 1) << RS_INODE_SHIFT;
}

uint64_t rs__view_inode(const struct rs__vfile *f)
{
	return rank_inode(f->rank) + FILE_OFFSET;
}

/* The file whose directory or self is @inode; @within: 0 for the directory, 1 for the file. */
static struct rs__vfile *split(const struct rs_view *v, uint64_t inode, uint64_t *within)
{
	uint64_t high = inode >> RS_INODE_SHIFT;

	*within = inode & ((1u << RS_INODE_SHIFT) - 1);
	return high == 0 || *within > FILE_OFFSET ? NULL : find_rank(v, high - 1);
}

struct rs__vfile *rs__view_file(const struct rs_view *v, uint64_t inode)
{
	uint64_t within;
	struct rs__vfile *f = split(v, inode, &within);

	return f && within == FILE_OFFSET ? f : NULL;
}

enum rs_node_kind rs_view_node(const struct rs_view *v, uint64_t inode)
{
	uint64_t within;

	if (inode == RS_INODE_ROOT)
		return RS_NODE_ROOT;
	if (!split(v, inode, &within))
		return RS_NODE_NONE;
	return within == FILE_OFFSET ? RS_NODE_FILE : RS_NODE_RANK;
}

uint64_t rs_view_inode_rank(const struct rs_view *v, uint64_t inode)
{
	(void)v;
	return (inode >> RS_INODE_SHIFT) - 1;
}

uint64_t rs_view_parent(const struct rs_view *v, uint64_t inode)
{
	uint64_t within;

	return split(v, inode, &within) && within == FILE_OFFSET ? inode - FILE_OFFSET
								 : RS_INODE_ROOT;
}

/* ----------------------------------------------------------------- names */

/* "rank_12": no leading zero, or two names would lead to one directory. */
static uint64_t child_of_root(const struct rs_view *v, const char *name)
{
	struct rs_str digits = rs_str(name);
	uint64_t rank;

	if (!rs_str_starts(digits, "rank_"))
		return 0;
	digits.ptr += strlen("rank_");
	digits.len -= strlen("rank_");
	if (!rs_str_u64(digits, &rank) || (digits.len > 1 && digits.ptr[0] == '0'))
		return 0;
	return find_rank(v, rank) ? rank_inode(rank) : 0;
}

uint64_t rs_view_child(const struct rs_view *v, uint64_t parent, const char *name)
{
	char expected[RS__NAME_MAX + 1];

	switch (rs_view_node(v, parent)) {
	case RS_NODE_ROOT:
		return child_of_root(v, name);
	case RS_NODE_RANK:
		rs__pattern_name(v->pattern, rs_view_inode_rank(v, parent), expected);
		return strcmp(name, expected) == 0 ? parent + FILE_OFFSET : 0;
	default:
		return 0;
	}
}

bool rs_view_entry(const struct rs_view *v, uint64_t dir, uint64_t i, char *name, uint64_t *inode)
{
	switch (rs_view_node(v, dir)) {
	case RS_NODE_ROOT:
		if (i >= v->n_files)
			return false;
		*inode = rank_inode(v->files[i].rank);
		snprintf(name, RS__NAME_MAX + 1, "rank_%" PRIu64, v->files[i].rank);
		return true;
	case RS_NODE_RANK:
		if (i > 0)
			return false;
		*inode = dir + FILE_OFFSET;
		rs__pattern_name(v->pattern, rs_view_inode_rank(v, dir), name);
		return true;
	default:
		return false;
	}
}
