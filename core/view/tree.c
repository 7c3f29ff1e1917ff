/*
 * tree.c - the shape of the virtual tree: inode numbers are arithmetic on ranks and on the place of
 * a file among its sorted neighbours, so there is no table to lock or to forget.
 *
 * Everything here is immutable once the view is open, and any thread may ask. Refuses names that
 * could leave their directory or surprise a shell, and ranks that the target does not have.
 * Read next: build.c, for what is behind a file's inode.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "core/view/internal.h"

#define ROOT_FILES 16u /* inode of the first file at the root */
#define FILE_OFFSET 1u /* inode of the first file of a rank, less that of its directory */
#define WITHIN_MASK ((1u << RS_INODE_SHIFT) - 1)

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

/* ------------------------------------------------------------------ places */

static uint64_t rank_inode(uint64_t rank)
{
	return (rank + 1) << RS_INODE_SHIFT;
}

/* The outputs are sorted as the tree is: files at the root, then a run of files for each rank. */
static int place_files(struct rs_view *v, struct rs_err *err)
{
	const struct rs_output *outputs = v->target->outputs;

	for (uint64_t i = 0; i < v->n_files; i++) {
		struct rs__vfile *f = &v->files[i];
		struct rs__vdir *dir = v->n_dirs ? &v->dirs[v->n_dirs - 1] : NULL;

		f->output = &outputs[i];
		if (f->output->at_root) {
			f->inode = ROOT_FILES + v->n_root++;
			continue;
		}
		if (!dir || dir->rank != f->output->rank) {
			dir = &v->dirs[v->n_dirs++];
			*dir = (struct rs__vdir){.rank = f->output->rank, .files = f};
		}
		f->inode = rank_inode(dir->rank) + FILE_OFFSET + dir->n_files++;
		if (dir->n_files >= WITHIN_MASK - FILE_OFFSET)
			return rs_fail(
				err, RS_LIMIT, "rank %" PRIu64 ": too many files", dir->rank);
	}
	if (v->n_root >= WITHIN_MASK - ROOT_FILES)
		return rs_fail(err, RS_LIMIT, "too many files at the root");
	return 0;
}

int rs__view_arrange(struct rs_view *v, const char *name, struct rs_err *err)
{
	if (rs_target_arrange(v->target, v->ranks, v->n_ranks, name, err) < 0)
		return -1;
	v->files = rs_alloc(rs_max(v->target->n_outputs, 1) * sizeof(*v->files), err);
	v->dirs = rs_alloc(rs_max(v->n_ranks, 1) * sizeof(*v->dirs), err);
	if (!v->files || !v->dirs)
		return -1;
	v->n_files = v->target->n_outputs;
	return place_files(v, err);
}

/* ----------------------------------------------------------------- ranks */

uint64_t rs_view_n_ranks(const struct rs_view *v)
{
	return v->n_ranks;
}

uint64_t rs_view_rank(const struct rs_view *v, uint64_t i)
{
	return v->ranks[i];
}

static int compare_rank(const void *key, const void *item)
{
	const uint64_t *rank = key;
	const struct rs__vdir *dir = item;

	return *rank < dir->rank ? -1 : *rank > dir->rank;
}

static const struct rs__vdir *find_dir(const struct rs_view *v, uint64_t rank)
{
	return bsearch(&rank, v->dirs, v->n_dirs, sizeof(*v->dirs), compare_rank);
}

/* ---------------------------------------------------------------- inodes */

/* The rank directory whose own number or whose file's number @inode is, and which of them. */
static const struct rs__vdir *split(const struct rs_view *v, uint64_t inode, uint64_t *within)
{
	uint64_t high = inode >> RS_INODE_SHIFT;
	const struct rs__vdir *dir = high == 0 ? NULL : find_dir(v, high - 1);

	*within = inode & WITHIN_MASK;
	return dir && *within < FILE_OFFSET + dir->n_files ? dir : NULL;
}

struct rs__vfile *rs__view_file(const struct rs_view *v, uint64_t inode)
{
	const struct rs__vdir *dir;
	uint64_t within;

	if (inode >= ROOT_FILES && inode < ROOT_FILES + v->n_root)
		return &v->files[inode - ROOT_FILES];
	dir = split(v, inode, &within);
	return dir && within >= FILE_OFFSET ? &dir->files[within - FILE_OFFSET] : NULL;
}

enum rs_node_kind rs_view_node(const struct rs_view *v, uint64_t inode)
{
	uint64_t within;

	if (inode == RS_INODE_ROOT)
		return RS_NODE_ROOT;
	if (rs__view_file(v, inode))
		return RS_NODE_FILE;
	return split(v, inode, &within) ? RS_NODE_RANK : RS_NODE_NONE;
}

uint64_t rs_view_inode_rank(const struct rs_view *v, uint64_t inode)
{
	const struct rs__vfile *f = rs__view_file(v, inode);

	return f ? f->output->rank : (inode >> RS_INODE_SHIFT) - 1;
}

uint64_t rs_view_parent(const struct rs_view *v, uint64_t inode)
{
	const struct rs__vfile *f = rs__view_file(v, inode);

	return f && !f->output->at_root ? rank_inode(f->output->rank) : RS_INODE_ROOT;
}

uint64_t rs_view_n_files(const struct rs_view *v)
{
	return v->n_files;
}

uint64_t rs_view_file(const struct rs_view *v, uint64_t i)
{
	return v->files[i].inode;
}

const struct rs_output *rs_view_output(const struct rs_view *v, uint64_t inode)
{
	const struct rs__vfile *f = rs__view_file(v, inode);

	return f ? f->output : NULL;
}

/* ----------------------------------------------------------------- names */

/* "rank_12": no leading zero, or two names would lead to one directory. */
static uint64_t dir_called(const struct rs_view *v, const char *name)
{
	struct rs_str digits = rs_str(name);
	uint64_t rank;

	if (!rs_str_starts(digits, "rank_"))
		return 0;
	digits.ptr += strlen("rank_");
	digits.len -= strlen("rank_");
	if (!rs_str_u64(digits, &rank) || (digits.len > 1 && digits.ptr[0] == '0'))
		return 0;
	return find_dir(v, rank) ? rank_inode(rank) : 0;
}

static int compare_name(const void *key, const void *item)
{
	const struct rs__vfile *f = item;

	return strcmp(key, f->output->name);
}

static uint64_t file_called(const struct rs__vfile *files, uint64_t n, const char *name)
{
	const struct rs__vfile *f = bsearch(name, files, n, sizeof(*files), compare_name);

	return f ? f->inode : 0;
}

uint64_t rs_view_child(const struct rs_view *v, uint64_t parent, const char *name)
{
	const struct rs__vdir *dir;
	uint64_t within;

	switch (rs_view_node(v, parent)) {
	case RS_NODE_ROOT:
		within = file_called(v->files, v->n_root, name);
		return within ? within : dir_called(v, name);
	case RS_NODE_RANK:
		dir = split(v, parent, &within);
		return file_called(dir->files, dir->n_files, name);
	default:
		return 0;
	}
}

static bool file_entry(
	const struct rs__vfile *files, uint64_t n, uint64_t i, char *name, uint64_t *inode)
{
	if (i >= n)
		return false;
	*inode = files[i].inode;
	snprintf(name, RS__NAME_MAX + 1, "%s", files[i].output->name);
	return true;
}

bool rs_view_entry(const struct rs_view *v, uint64_t dir, uint64_t i, char *name, uint64_t *inode)
{
	const struct rs__vdir *d;
	uint64_t within;

	switch (rs_view_node(v, dir)) {
	case RS_NODE_ROOT:
		if (file_entry(v->files, v->n_root, i, name, inode))
			return true;
		if (i - v->n_root >= v->n_dirs)
			return false;
		d = &v->dirs[i - v->n_root];
		*inode = rank_inode(d->rank);
		snprintf(name, RS__NAME_MAX + 1, "rank_%" PRIu64, d->rank);
		return true;
	case RS_NODE_RANK:
		d = split(v, dir, &within);
		return file_entry(d->files, d->n_files, i, name, inode);
	default:
		return false;
	}
}
