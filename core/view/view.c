/*
 * view.c - a view is opened and closed: source, target, their agreement, and which ranks are shown.
 *
 * The order is the one in which a user wants to be told: is there a checkpoint, is there a
 * target, do the options fit both, do the sample's headers fit all of that, and, with
 * verify=headers, does every file. Nothing is mounted before all of it is answered.
 * Refuses ranks= and name= that do not fit the target.
 * Read next: tree.c (inodes and names), build.c (images, threads).
 */
#include <inttypes.h>
#include <unistd.h>

#include "core/view/internal.h"

#define TIMEOUT_DEFAULT_S 60
#define MEMORY_DEFAULT 256000000ull
#define RANKS_MAX (1ull << 40) /* inode numbers are (rank + 1) << 20 */

/* ------------------------------------------------------------------- shape */

static uint32_t builders(uint32_t asked)
{
	long cpus = sysconf(_SC_NPROCESSORS_ONLN);

	if (asked != 0)
		return (uint32_t)rs_min(asked, RS__BUILDERS_MAX);
	return cpus < 2 ? 2 : cpus > 8 ? 8 : (uint32_t)cpus;
}

/* Directories show what SOURCE shows: to a class that may list and search it, all of it. */
static void derive_dirs(struct rs_view *v)
{
	struct rs_identity id = {.mode = 0777};

	if (v->source->dir)
		id = rs_dir_identity(v->source->dir);
	v->dir_mode = 0500;
	if ((id.mode & 0005) == 0005)
		v->dir_mode |= 0055;
	else if ((id.mode & 0050) == 0050)
		v->dir_mode |= 0050;
	v->dir_gid = id.gid;
	v->dir_mtime_ns = id.mtime_ns;
}

/* Every file would fail for the same reason, so none is shown. */
static int check_format(const struct rs_target *target, struct rs_err *err)
{
	char known[80] = "";
	size_t len = 0;

	if (rs_format_find(target->container))
		return 0;
	for (const char *const *name = rs_format_names(); *name; name++)
		len = rs_append(known, sizeof(known), len, "%s%s", len ? ", " : "", *name);
	return rs_fail(err, RS_USAGE, "format=: expected one of %s, found '%s'", known,
		RS_SHOW(rs_str(target->container)));
}

/* Layouts that stand at the root show one list, and names that are theirs. */
static int check_options(
	const struct rs_view_options *opts, const struct rs_target *target, struct rs_err *err)
{
	enum rs_arrangement layout = target->opts.layout;

	if (check_format(target, err) < 0)
		return -1;
	if (opts->ranks && (layout == RS_ARRANGE_HF || layout == RS_ARRANGE_UNIFIED))
		return rs_fail(err, RS_USAGE, "ranks=: this layout= shows no ranks");
	if (opts->name && layout != RS_ARRANGE_RANK)
		return rs_fail(
			err, RS_USAGE, "name=: the files of this layout= have their own names");
	if (target->n_ranks > RANKS_MAX)
		return rs_fail(err, RS_LIMIT, "expected at most %llu target ranks, found %" PRIu64,
			RANKS_MAX, target->n_ranks);
	return opts->name ? rs__pattern_check(opts->name, target->n_ranks, err) : 0;
}

int rs__view_new(const struct rs_view_options *opts, struct rs_source *source,
	struct rs_target *target, struct rs_view **out, struct rs_err *err)
{
	struct rs_view *v = rs_alloc(sizeof(*v), err);

	if (!v)
		return -1;
	pthread_mutex_init(&v->lock, NULL);
	pthread_cond_init(&v->work, NULL);
	pthread_cond_init(&v->settled, NULL);
	v->source = source;
	v->target = target;
	v->memory = opts->memory ? opts->memory : MEMORY_DEFAULT;
	v->n_builders = builders(opts->builders);
	derive_dirs(v);
	if (check_options(opts, target, err) < 0 ||
		rs__ranks_parse(opts->ranks, target->n_ranks, &v->ranks, &v->n_ranks, err) < 0) {
		v->source = NULL; /* still the caller's */
		v->target = NULL;
		rs_view_close(v);
		return -1;
	}
	*out = v;
	return 0;
}

/* -------------------------------------------------------------------- open */

/* Headers of the sample, then everything that strategies, listing and sample tell. */
static int agree(struct rs_view *v, struct rs_err *err)
{
	uint32_t local = UINT32_MAX;

	for (uint64_t i = 0; i < v->n_ranks; i++) {
		uint32_t from = rs_target_local(v->target, v->ranks[i]);

		local = from < local ? from : local;
	}
	if (rs_source_describe(v->source, local, err) < 0)
		return -1;
	return rs_target_check(v->target, v->ranks, v->n_ranks, err);
}

static int set_timeout(
	struct rs_source *source, const struct rs_view_options *opts, struct rs_err *err)
{
	uint32_t seconds = opts->io_timeout_set ? opts->io_timeout_s : TIMEOUT_DEFAULT_S;

	if (seconds == 0)
		return 0;
	return rs_catalog_set_timeout(
		source->cat, (uint32_t)rs_min(seconds, UINT32_MAX / 1000) * 1000, err);
}

int rs_view_open(const struct rs_view_options *opts, struct rs_view **out, struct rs_err *err)
{
	struct rs_source_options source_opts = opts->source;
	struct rs_source *source = NULL;
	struct rs_target *target = NULL;
	struct rs_view *v = NULL;

	/* The same ranks again need no strategy, so its absence is no error. */
	if (opts->target.target && strcmp(opts->target.target, "same") == 0)
		source_opts.any_layout = true;
	if (rs_source_open(&source_opts, &source, err) < 0)
		return -1;
	rs_catalog_set_access(source->cat, opts->access);
	if (set_timeout(source, opts, err) < 0) {
		rs_source_close(source);
		return -1;
	}
	if (rs_target_open(&opts->target, source, &target, err) < 0 ||
		rs__view_new(opts, source, target, &v, err) < 0) {
		if (target)
			rs_target_close(target);
		rs_source_close(source);
		return -1;
	}
	if (agree(v, err) < 0 || rs__view_arrange(v, opts->name, err) < 0 ||
		(opts->proved && rs__view_prove(v, err) < 0)) {
		rs_view_close(v);
		return -1;
	}
	*out = v;
	return 0;
}

static void free_notes(struct rs_notes *notes)
{
	if (notes)
		rs_notes_done(notes);
	rs_free(notes);
}

void rs_view_close(struct rs_view *v)
{
	if (!v)
		return;
	rs__view_stop(v);
	for (uint64_t i = 0; i < v->n_files; i++) {
		rs_free(v->files[i].failure);
		free_notes(v->files[i].notes);
	}
	rs_free(v->files);
	rs_free(v->dirs);
	rs_free(v->ranks);
	if (v->target)
		rs_target_close(v->target);
	if (v->source)
		rs_source_close(v->source);
	pthread_cond_destroy(&v->settled);
	pthread_cond_destroy(&v->work);
	pthread_mutex_destroy(&v->lock);
	rs_free(v);
}

struct rs_source *rs_view_source(const struct rs_view *v)
{
	return v->source;
}

struct rs_target *rs_view_target(const struct rs_view *v)
{
	return v->target;
}
