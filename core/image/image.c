/*
 * image.c - a virtual file is made: list what it holds, prove where every byte of every
 * tensor comes from, let the format describe the file into segments.
 *
 * Building is the proof. It ends with the first hole, overlap, missing header or tensor that the
 * format has no words for, and what it hands out can fail for reasons of I/O alone. Reads the
 * headers of the units that the file takes from, and no tensor data.
 * Read next: sink.c (where segments come from), read.c (what becomes of them).
 */
#include "core/image/internal.h"

/*
 * Headers of 100 MB, a million runs a tensor: more than any real file needs, and a fence around
 * what a hostile source can have us allocate for one file.
 */
#define IMAGE_LIMIT (1ull << 30)

#define ID_MIXED UINT32_MAX /* files of several owners or groups */

/* ------------------------------------------------------------------- proof */

static int plan_items(struct rs_image *img, struct rs_catalog *cat, struct rs_err *err)
{
	const struct rs_nest **nests =
		RS_NEW_N(img->arena, const struct rs_nest *, img->list.n, err);

	if (!nests)
		return -1;
	for (uint64_t i = 0; i < img->list.n; i++) {
		struct rs_nest *nest = NULL;

		if (rs_plan_nest(cat, &img->list.items[i], img->arena, &nest, err) < 0)
			return -1;
		nests[i] = nest;
	}
	img->nests = nests;
	return 0;
}

/* @format: NULL for a text, which is there already. */
static int describe(struct rs_image *img, struct rs_target *target, const struct rs_output *output,
	const struct rs_format_ops *format, struct rs_notes *notes, struct rs_err *err)
{
	struct rs__builder b;
	int rc = -1;

	rs__builder_init(&b, img->arena, target->source->cat, &img->list, img->nests);
	if ((format ? format->emit(&img->list, target->mindspore, &b.sink, notes, err)
		    : rs_sink_bytes(&b.sink, output->text.ptr, output->text.len, err)) == 0)
		rc = rs__builder_finish(&b, img, err);
	rs__builder_done(&b);
	return rc;
}

/* ------------------------------------------------------- files and permissions */

/* Mark the files behind the runs of @nest in @used, one byte a file of the catalog. */
static void mark_files(const struct rs_catalog *cat, const struct rs_nest *nest, uint8_t *used)
{
	for (uint32_t r = 0; r < nest->n_runs; r++) {
		const struct rs_entry *entry = nest->runs[r].entry;

		if (!entry)
			continue;
		for (uint32_t s = 0; s < entry->n_spans; s++) {
			uint32_t first = rs_catalog_unit(cat, nest->runs[r].unit)->first_file;

			used[first + entry->spans[s].file] = 1;
		}
	}
}

/*
 * The distinct files behind all segments, ascending (@all: each that there is); and the room to
 * remember when each was checked.
 */
static int collect_files(
	struct rs_image *img, const struct rs_catalog *cat, bool all, struct rs_err *err)
{
	const uint32_t n_all = rs_catalog_n_files(cat);
	const struct rs_nest *last = NULL; /* a tensor in many chunks is looked at once */
	uint8_t *used = rs_alloc(rs_max(n_all, 1), err);
	uint32_t *files, n = 0;

	if (!used)
		return -1;
	memset(used, all, n_all);
	for (uint64_t i = 0; i < img->n_segments; i++) {
		const struct rs_nest *nest = img->segments[i].nest;

		if (nest && nest != last)
			mark_files(cat, nest, used);
		last = nest ? nest : last;
	}
	for (uint32_t f = 0; f < n_all; f++)
		n += used[f];
	files = RS_NEW_N(img->arena, uint32_t, n, err);
	if (files) {
		img->files = files;
		img->n_files = n;
		for (uint32_t f = 0; f < n_all; f++)
			if (used[f])
				*files++ = f;
	}
	rs_free(used);
	return files ? 0 : -1;
}

static void narrow_by_file(struct rs_image *img, const struct rs_identity *id, bool first)
{
	img->mode &= id->mode;
	img->uid = first || img->uid == id->uid ? id->uid : ID_MIXED;
	img->gid = first || img->gid == id->gid ? id->gid : ID_MIXED;
	img->mtime_ns = first || img->mtime_ns < id->mtime_ns ? id->mtime_ns : img->mtime_ns;
}

/* A file is as closed as the directories above it: a class that may not search them loses. */
static void narrow_by_dir(struct rs_image *img, const struct rs_identity *id)
{
	if (!(id->mode & 0001))
		img->mode &= ~0004u;
	if (!(id->mode & (id->gid == img->gid ? 0010 : 0001)))
		img->mode &= ~0040u;
}

/* The directories between SOURCE and the file @path. One that we cannot look at counts as closed.
 */
static void narrow_by_parents(struct rs_image *img, const struct rs_dir *root, const char *path)
{
	for (const char *end = strchr(path, '/'); end; end = strchr(end + 1, '/')) {
		struct rs_identity id = {0};
		enum rs_kind kind;
		char sub[4096]; /* PATH_MAX */
		size_t len = (size_t)(end - path);

		if (len < sizeof(sub)) {
			memcpy(sub, path, len);
			sub[len] = '\0';
			if (rs_dir_stat(root, sub, &kind, &id, NULL) < 0)
				id = (struct rs_identity){0};
		}
		narrow_by_dir(img, &id);
	}
}

static bool same_parent(const char *a, const char *b)
{
	const char *slash_a = strrchr(a, '/'), *slash_b = strrchr(b, '/');
	size_t len_a = slash_a ? (size_t)(slash_a - a) : 0;
	size_t len_b = slash_b ? (size_t)(slash_b - b) : 0;

	return len_a == len_b && memcmp(a, b, len_a) == 0;
}

/* What all files have in common: who owns them, who may read them, and the newest change. */
static void derive_attributes(struct rs_image *img, const struct rs_target *target)
{
	const struct rs_source *source = target->source;
	const char *last = NULL;

	img->mode = 0444;
	img->uid = img->gid = ID_MIXED;
	for (uint32_t i = 0; i < img->n_files; i++)
		narrow_by_file(img, &rs_catalog_file_info(source->cat, img->files[i])->id, i == 0);
	if (source->dir) {
		struct rs_identity id = rs_dir_identity(source->dir);

		narrow_by_dir(img, &id);
		if (img->n_files == 0)
			img->mtime_ns = id.mtime_ns;
	}
	for (uint32_t i = 0; source->dir && i < img->n_files; i++) {
		const char *path = rs_catalog_file_info(source->cat, img->files[i])->path;

		if (!last || !same_parent(last, path))
			narrow_by_parents(img, source->dir, path);
		last = path;
	}
	/* A group of readers that is not one group is protected by what others may do. */
	if (img->gid == ID_MIXED)
		img->mode &= ~0040u;
	if (img->mode & 0004)
		img->mode |= 0040;
}

/* ---------------------------------------------------------------- building */

static int build(struct rs_image *img, struct rs_target *target, const struct rs_output *output,
	struct rs_notes *notes, struct rs_err *err)
{
	const struct rs_format_ops *format = rs_format_find(target->container);
	bool text = output->kind == RS_OUTPUT_TEXT;
	struct rs_catalog *cat = target->source->cat;

	if (!format)
		return rs_fail(err, RS_UNSUPPORTED, "'%s' files cannot be written",
			RS_SHOW(rs_str(target->container)));
	if (rs_target_output(target, output, img->arena, &img->list, notes, err) < 0 ||
		plan_items(img, cat, err) < 0 ||
		describe(img, target, output, text ? NULL : format, notes, err) < 0 ||
		collect_files(img, cat, text, err) < 0)
		return -1;
	derive_attributes(img, target);
	return 0;
}

int rs_image_build(struct rs_target *target, const struct rs_output *output, struct rs_image **out,
	struct rs_notes *notes, struct rs_err *err)
{
	struct rs_arena *arena = rs_arena_new(IMAGE_LIMIT, err);
	struct rs_image *img;

	if (!arena)
		return -1;
	img = RS_NEW(arena, struct rs_image, err);
	if (!img)
		goto fail;
	img->arena = arena;
	if (build(img, target, output, notes, err) < 0)
		goto fail;
	*out = img;
	return 0;
fail:
	rs_arena_free(arena);
	return -1;
}

void rs_image_free(struct rs_image *img)
{
	if (img)
		rs_arena_free(img->arena);
}
