/*
 * source.c - the table of source formats, and the way from a path to an opened source.
 *
 * Formats bid for SOURCE by its names; the best bid opens it, unless source= names one. Refuses
 * what nobody bids for and what two bid for alike. A new format is one line in the table below; the
 * steps stand in docs/CONTRIBUTING.md. Next: mindspore.c.
 */
#include "core/source/internal.h"
#include "reshardfs/codec.h"

#include <errno.h>
#include <stdio.h>
#include <sys/stat.h>

/* Names, units, tensors and grids of one tree: thousands of ranks, a million tensors. */
#define CATALOG_MAX_BYTES (UINT64_C(1) << 30)

static const struct rs_source_ops *const sources[] = {
	&rs__source_mindspore,
	&rs__source_unified,
	&rs__source_hf,
	&rs__source_paddle,
};
#define N_SOURCES (sizeof(sources) / sizeof(sources[0]))

static const char *const looked_for =
	"rank_0, rank_1, ... with .ckpt or .safetensors files, one such file, safetensors files "
	"with or without an index, Paddle's N.metadata with .distcp files, .pdparams";

const char *const *rs_source_formats(void)
{
	static const char *const names[] = {"mindspore", "unified", "hf", "paddle", NULL};

	_Static_assert(sizeof(names) / sizeof(names[0]) == N_SOURCES + 1, "a name per format");
	return names;
}

/* ----------------------------------------------------------------------- opening */

static int copy_text(struct rs_arena *arena, const char **text, struct rs_err *err)
{
	if (!*text)
		return 0;
	*text = rs_arena_copy(arena, *text, strlen(*text), err);
	return *text ? 0 : -1;
}

static int copy_options(
	struct rs_source *src, const struct rs_source_options *opts, struct rs_err *err)
{
	struct rs_arena *arena = rs_catalog_arena(src->cat);
	struct rs_source_options *o = &src->opts;
	size_t len = strlen(opts->path);

	*o = *opts;
	while (len > 1 && opts->path[len - 1] == '/')
		len--;
	o->path = rs_arena_copy(arena, opts->path, len, err);
	if (!o->path || copy_text(arena, &o->format, err) < 0 ||
		copy_text(arena, &o->strategy, err) < 0 || copy_text(arena, &o->select, err) < 0 ||
		copy_text(arena, &o->unique_id, err) < 0 || copy_text(arena, &o->prefix, err) < 0 ||
		copy_text(arena, &o->beneath, err) < 0)
		return -1;
	return 0;
}

/* SOURCE is a file: open the directory that it stands in, and remember its name there. */
static int open_parent(struct rs_source *src, struct rs_err *err)
{
	struct rs_arena *arena = rs_catalog_arena(src->cat);
	const char *slash = strrchr(src->opts.path, '/');
	const char *dir = slash ? slash == src->opts.path
					  ? "/"
					  : rs_arena_copy(arena, src->opts.path,
						    (uint64_t)(slash - src->opts.path), err)
				: ".";
	struct rs_file file;

	src->file = slash ? slash + 1 : src->opts.path;
	if (!dir ||
		rs_dir_open(dir, src->opts.beneath, !src->opts.deny_links, &src->dir, err) < 0 ||
		rs_dir_file(src->dir, src->file, src->opts.path, &file, err) < 0)
		return -1;
	/* A pointer or a page in place of the file is told before anybody bids for it. */
	int status = rs_sniff_foreign(&file, err);
	rs_file_close(&file);
	return status;
}

static int open_place(struct rs_source *src, struct rs_err *err)
{
	const char *path = src->opts.path;
	struct stat st;
	int status;

	if (stat(path, &st) < 0) {
		(void)rs_fail_sys(err, errno, "%s: expected a checkpoint", path);
		if (err && (err->sys == ENOENT || err->sys == ENOTDIR || err->sys == EACCES ||
				   err->sys == ELOOP || err->sys == ENAMETOOLONG))
			err->code = RS_MISSING;
		return -1;
	}
	status = S_ISDIR(st.st_mode) ? rs_dir_open(path, src->opts.beneath, !src->opts.deny_links,
					       &src->dir, err)
				     : open_parent(src, err);
	/* What the user may not read is no source for this user: exit code 3, not 5. */
	if (status < 0 && err && err->code == RS_IO && (err->sys == EACCES || err->sys == EPERM))
		err->code = RS_MISSING;
	return status;
}

/* ----------------------------------------------------------------------- choosing */

static int hint_formats(struct rs_err *err)
{
	char names[200] = "";
	size_t at = 0;

	for (const char *const *n = rs_source_formats(); *n && at < sizeof(names); n++)
		at += (size_t)snprintf(names + at, sizeof(names) - at, "%s%s", at ? ", " : "", *n);
	return rs_hint(err, "known formats: %s", names);
}

static int choose_named(struct rs_source *src, struct rs_err *err)
{
	for (size_t i = 0; i < N_SOURCES; i++)
		if (strcmp(sources[i]->name, src->opts.format) == 0) {
			src->ops = sources[i];
			return 0;
		}
	(void)rs_fail(err, RS_USAGE, "source=%s: no such format", src->opts.format);
	return hint_formats(err);
}

static int choose_best(struct rs_source *src, struct rs_err *err)
{
	const struct rs_source_ops *rival = NULL;
	int best = 0;

	for (size_t i = 0; i < N_SOURCES; i++) {
		int bid = sources[i]->probe(src->dir, src->file);
		if (bid > best) {
			best = bid;
			src->ops = sources[i];
			rival = NULL;
		} else if (bid && bid == best) {
			rival = sources[i];
		}
	}
	if (!src->ops) {
		/* A probe cannot say that it could not look. */
		struct rs_dirent *entries;
		uint64_t n;
		if (src->dir && rs_dir_list(src->dir, "", rs_catalog_arena(src->cat), &entries, &n,
					err) < 0)
			return -1;
		(void)rs_fail(err, RS_UNSUPPORTED,
			"%s: no checkpoint of a known format (looked for %s)", src->opts.path,
			looked_for);
		return rs_hint(err, "SOURCE is the directory that holds the rank directories");
	}
	if (!rival)
		return 0;
	(void)rs_fail(err, RS_USAGE, "%s: could be %s or %s (both bid %d of 100)", src->opts.path,
		src->ops->name, rival->name, best);
	return rs_hint(err, "say which: -o source=%s or source=%s", src->ops->name, rival->name);
}

int rs_source_open(const struct rs_source_options *opts, struct rs_source **out, struct rs_err *err)
{
	struct rs_source *src = rs_alloc(sizeof(*src), err);

	if (!src)
		return -1;
	src->cat = rs_catalog_new(CATALOG_MAX_BYTES, err);
	if (!src->cat || copy_options(src, opts, err) < 0 || rs__names_set(src, err) < 0 ||
		open_place(src, err) < 0 ||
		(src->opts.format ? choose_named(src, err) : choose_best(src, err)) < 0 ||
		src->ops->list(src, err) < 0) {
		rs_source_close(src);
		return -1;
	}
	*out = src;
	return 0;
}

int rs_source_describe(struct rs_source *src, uint32_t local, struct rs_err *err)
{
	if (src->ops->describe(src, local, err) < 0)
		return -1;
	return rs__names_report(src, err);
}

void rs_source_close(struct rs_source *src)
{
	if (!src)
		return;
	/* A thread in a hung read comes back to files and directory some day, or never. */
	if (src->cat && rs_catalog_hangs(src->cat))
		return;
	if (src->ops && src->ops->done)
		src->ops->done(src);
	rs_catalog_free(src->cat);
	rs__names_done(src->names);
	rs_strategy_free(src->strategy);
	rs_dir_close(src->dir);
	rs_free(src);
}
