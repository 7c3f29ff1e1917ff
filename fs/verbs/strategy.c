/*
 * strategy.c - `strategy merge DIR OUT`, `strategy show FILE`, `strategy convert IN OUT`,
 * `strategy emit SOURCE OUT`.
 *
 * What merge_pipeline_strategys and a look into a strategy file are in MindSpore, without it; and
 * the strategy of a tree that a mount would show, for a second mount on top of it. OUT
 * is JSON when its name ends in .json, else protobuf; it appears complete or not at all, and never
 * replaces anything (exit 8). Before it is written, what would be written is read and checked.
 * Read next: layout.h, rs_strategy_read. Format: docs/formats/mindspore-strategy.md.
 */
#include "verbs.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "reshardfs/layout.h"

#define USAGE "strategy merge DIR OUT | show FILE | convert IN OUT | emit SOURCE OUT --target T"
#define TABLE_MAX (UINT64_C(1) << 30) /* bytes of the printed layouts of one file */

/* --------------------------------------------------------------------- writing OUT */

static int refuse_existing(const char *path, struct rs_err *err)
{
	struct stat st;

	if (lstat(path, &st) < 0)
		return 0;
	rs_fail(err, RS_USAGE, "%s: exists already", RS_SHOW(rs_str(path)));
	return rs_hint(err, "choose another name, or remove it first");
}

/* A failure of the destination is exit 8, whatever its code. */
static int fail_out(const struct fs_options *o, const struct rs_err *err)
{
	int code = fs_report_as(FS_EXIT_DEST, err);
	struct rs_jsonw w;

	if (!o->json)
		return code;
	fs__json_begin(&w, "strategy");
	rs_jsonw_key(&w, RS_STR("error"));
	rs_jsonw_open(&w, '{');
	fs__json_str(&w, "code", "destination");
	fs__json_uint(&w, "exit", FS_EXIT_DEST);
	fs__json_str(&w, "message", err->msg);
	fs__json_str(&w, "hint", err->hint[0] ? err->hint : NULL);
	rs_jsonw_close(&w, '}');
	return fs__json_end(&w, code);
}

static int write_all(int fd, const char *bytes, uint64_t len)
{
	while (len > 0) {
		ssize_t n = write(fd, bytes, (size_t)rs_min(len, 1u << 30));

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return -1;
		bytes += n;
		len -= (uint64_t)n;
	}
	return 0;
}

/* Where a rename is durable only after this; file systems that cannot are left alone. */
static void sync_parent(const char *path)
{
	const char *slash = strrchr(path, '/');
	char *dir = slash ? strndup(path, slash == path ? 1 : (size_t)(slash - path)) : strdup(".");
	int fd = dir ? open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC) : -1;

	if (fd >= 0) {
		(void)fsync(fd);
		close(fd);
	}
	free(dir);
}

/* Give @temp its name; somebody else's file of that name, made meanwhile, is not replaced. */
static int publish(const char *temp, const char *path)
{
	if (renameat2(AT_FDCWD, temp, AT_FDCWD, path, RENAME_NOREPLACE) == 0)
		return 0;
	if (errno != EINVAL && errno != ENOSYS)
		return -1;
	if (link(temp, path) < 0) /* a file system without the flag, NFS for one */
		return -1;
	(void)unlink(temp);
	return 0;
}

static int fill(int fd, const char *bytes, uint64_t len)
{
	mode_t mask = umask(0);

	(void)umask(mask);
	if (write_all(fd, bytes, len) < 0 || fchmod(fd, 0666 & ~mask) < 0 || fsync(fd) < 0)
		return -1;
	return 0;
}

static int write_out(const char *path, const char *bytes, uint64_t len, struct rs_err *err)
{
	char *temp = NULL;
	int fd, failed;

	if (refuse_existing(path, err) < 0)
		return -1;
	if (asprintf(&temp, "%s.tmp.XXXXXX", path) < 0)
		return rs_fail(err, RS_NOMEM, "out of memory");
	fd = mkostemp(temp, O_CLOEXEC);
	if (fd < 0) {
		failed = errno;
		free(temp);
		return rs_fail_sys(err, failed, "%s: cannot be written", RS_SHOW(rs_str(path)));
	}
	failed = fill(fd, bytes, len) < 0 ? errno : 0;
	if (close(fd) < 0 && !failed)
		failed = errno;
	if (!failed && publish(temp, path) < 0)
		failed = errno;
	if (failed)
		(void)unlink(temp);
	free(temp);
	if (failed)
		return rs_fail_sys(err, failed, "%s: cannot be written", RS_SHOW(rs_str(path)));
	sync_parent(path);
	return 0;
}

/* ---------------------------------------------------------------- merge and convert */

static void summary(const struct rs_strategy *s, const char *out)
{
	printf("%s: %" PRIu32 " stage%s of %" PRIu32 " device%s, %" PRIu64 " parameter%s\n",
		RS_SHOW(rs_str(out)), s->n_stages, s->n_stages == 1 ? "" : "s", s->stage_devices,
		s->stage_devices == 1 ? "" : "s", s->n_params, s->n_params == 1 ? "" : "s");
}

static int report_written(
	const struct fs_options *o, const struct rs_strategy *s, const char *out, uint64_t bytes)
{
	struct rs_jsonw w;

	if (!o->json) {
		if (!o->quiet)
			summary(s, out);
		return FS_EXIT_OK;
	}
	fs__json_begin(&w, "strategy");
	fs__json_str(&w, "path", out);
	fs__json_str(&w, "form", s->json ? "json" : "protobuf");
	fs__json_bool(&w, "merged", s->merged);
	fs__json_uint(&w, "stages", s->n_stages);
	fs__json_uint(&w, "stage_devices", s->stage_devices);
	fs__json_uint(&w, "n_parameters", s->n_params);
	fs__json_uint(&w, "bytes", bytes);
	return fs__json_end(&w, FS_EXIT_OK);
}

/* Encode @in, prove that the result is a strategy that can be used, and write it to @path. */
static int put_strategy(
	const struct fs_options *o, const struct rs_strategy *in, bool merged, const char *path)
{
	bool json = rs_str_ends(rs_str(path), ".json");
	struct rs_strategy *s = NULL;
	struct rs_err err = {0};
	char *bytes = NULL;
	uint64_t len;
	int code;

	if (rs_strategy_encode(in, json, merged, &bytes, &len, &err) < 0 ||
		rs_strategy_read_memory(bytes, len, in->path, &s, &err) < 0 ||
		rs_strategy_check(s, &err) < 0)
		code = fs__verb_fail(o, "strategy", &err);
	else if (write_out(path, bytes, len, &err) < 0)
		code = fail_out(o, &err);
	else
		code = report_written(o, s, path, len);
	rs_strategy_free(s);
	rs_free(bytes);
	return code;
}

static int merge(const struct fs_options *o)
{
	struct rs_strategy *s;
	struct rs_err err = {0};
	struct stat st;
	int code;

	if (refuse_existing(o->args[2], &err) < 0)
		return fail_out(o, &err);
	if (stat(o->args[1], &st) == 0 && !S_ISDIR(st.st_mode)) {
		rs_fail(&err, RS_USAGE, "%s: expected a directory of stage files, found a file",
			RS_SHOW(rs_str(o->args[1])));
		rs_hint(&err, "one file needs no merge; reshardfs strategy convert IN OUT "
			      "changes its form");
		return fs__verb_fail(o, "strategy", &err);
	}
	if (rs_strategy_read(o->args[1], &s, &err) < 0)
		return fs__verb_fail(o, "strategy", &err);
	code = put_strategy(o, s, true, o->args[2]);
	rs_strategy_free(s);
	return code;
}

static int convert(const struct fs_options *o)
{
	struct rs_strategy *s;
	struct rs_err err = {0};
	int code;

	if (refuse_existing(o->args[2], &err) < 0)
		return fail_out(o, &err);
	if (rs_strategy_read(o->args[1], &s, &err) < 0)
		return fs__verb_fail(o, "strategy", &err);
	code = put_strategy(o, s, s->merged, o->args[2]);
	rs_strategy_free(s);
	return code;
}

/* ---------------------------------------------------------------------------- emit */

/* Of several stages, names carry their stage, so the file counts as merged. */
static int emit(const struct fs_options *o)
{
	struct rs_view_options opts = fs__verb_view(o);
	struct rs_view *v = NULL;
	struct rs_strategy *s = NULL;
	struct rs_err err = {0};
	int code;

	if (refuse_existing(o->args[2], &err) < 0)
		return fail_out(o, &err);
	opts.source.path = o->args[1];
	if (!opts.target.target)
		rs_fail(&err, RS_USAGE, "strategy emit: no target");
	else if (rs_view_open(&opts, &v, &err) == 0)
		rs_target_emit_strategy(rs_view_target(v), &s, &err);
	code = s ? put_strategy(o, s, s->n_stages > 1, o->args[2])
		 : fs__verb_fail(o, "strategy", &err);
	rs_strategy_free(s);
	rs_view_close(v);
	return code;
}

/* ---------------------------------------------------------------------------- show */

/* What is printed of a layout, made once for the thousands of parameters that share it. */
struct shown {
	const struct rs_layout *layout;
	char text[RS_SHOW_MAX];
	char pieces[RS_SHOW_MAX]; /* "8 x 1": slices per axis, optimizer shard included */
	uint64_t replicas;
};
struct table {
	struct shown *rows;
	uint64_t n;
	int text_width, pieces_width;
};

static int by_layout(const void *a, const void *b)
{
	const struct shown *x = a, *y = b;

	return ((uintptr_t)x->layout > (uintptr_t)y->layout) -
	       ((uintptr_t)x->layout < (uintptr_t)y->layout);
}

static void show_pieces(const struct rs_layout *l, struct shown *row)
{
	struct rs_arena *arena = rs_arena_new(TABLE_MAX, NULL);
	struct rs_grid *g;
	size_t at = 0;

	snprintf(row->pieces, sizeof(row->pieces), "%s", "?");
	if (arena && rs_layout_grid(l, l->n_axes, arena, &g, NULL) == 0) {
		snprintf(row->pieces, sizeof(row->pieces), "%s", "whole");
		for (uint32_t a = 0; a < g->n_axes && at < sizeof(row->pieces); a++)
			at += (size_t)snprintf(row->pieces + at, sizeof(row->pieces) - at,
				"%s%" PRIu32, a ? " x " : "", g->cuts[a]);
		row->replicas = g->n_holders / g->n_cells;
	}
	rs_arena_free(arena);
}

static int make_table(const struct rs_strategy *s, struct table *t, struct rs_err *err)
{
	*t = (struct table){.n = s->n_layouts, .text_width = 6, .pieces_width = 6};
	t->rows = rs_alloc(t->n * sizeof(*t->rows), err);
	if (!t->rows)
		return -1;
	for (uint64_t i = 0; i < t->n; i++) {
		struct shown *row = &t->rows[i];

		row->layout = s->layouts[i];
		rs_layout_show(row->layout, row->text, sizeof(row->text));
		show_pieces(row->layout, row);
		t->text_width = (int)rs_max((uint64_t)t->text_width, strlen(row->text));
		t->pieces_width = (int)rs_max((uint64_t)t->pieces_width, strlen(row->pieces));
	}
	qsort(t->rows, (size_t)t->n, sizeof(*t->rows), by_layout);
	return 0;
}

/* The stage as the file has it: a check counts a stage's file by itself from 0. */
static uint32_t stage_of(const struct rs_strategy *s, const struct rs_placed *p)
{
	return s->merged ? p->stage : s->file_stage;
}

static void print_head(const struct rs_strategy *s, bool usable)
{
	printf("strategy %s: MindSpore %s, ", RS_SHOW(rs_str(s->path)),
		s->json ? "JSON" : "protobuf");
	if (s->merged)
		printf("merged, ");
	else
		printf("stage %" PRIu32 ", ", s->file_stage);
	if (usable)
		printf("%" PRIu32 " stage%s of %" PRIu32 " devices, ", s->n_stages,
			s->n_stages == 1 ? "" : "s", s->stage_devices);
	printf("%" PRIu64 " parameters, %" PRIu64 " different layouts, %" PRIu64 " operators\n",
		s->n_params, s->n_layouts, s->n_operators);
}

static int print_table(const struct rs_strategy *s, bool usable, struct rs_err *err)
{
	struct table t;

	if (make_table(s, &t, err) < 0)
		return -1;
	print_head(s, usable);
	printf("stage  %-*s  replicas  %-*s  parameter\n", t.pieces_width, "slices", t.text_width,
		"layout");
	for (uint64_t i = 0; i < s->n_params; i++) {
		const struct rs_placed *p = &s->params[s->by_name[i]];
		struct shown key = {.layout = p->layout};
		const struct shown *row =
			bsearch(&key, t.rows, (size_t)t.n, sizeof(key), by_layout);

		printf("%-5" PRIu32 "  %-*s  %8" PRIu64 "  %-*s  %s\n", stage_of(s, p),
			t.pieces_width, row->pieces, row->replicas, t.text_width, row->text,
			RS_SHOW(p->name));
	}
	rs_free(t.rows);
	return 0;
}

static void json_longs(struct rs_jsonw *w, const char *key, const int64_t *items, uint32_t n)
{
	rs_jsonw_key(w, rs_str(key));
	rs_jsonw_open(w, '[');
	for (uint32_t i = 0; i < n; i++)
		rs_jsonw_int(w, items[i]);
	rs_jsonw_close(w, ']');
}

/* One list per axis, whether or not the file has it so: scripts should not have to ask. */
static void json_layout(struct rs_jsonw *w, const struct rs_layout *l)
{
	rs_jsonw_key(w, RS_STR("dev_matrix"));
	rs_jsonw_open(w, '[');
	for (uint32_t i = 0; i < l->n_dev; i++)
		rs_jsonw_uint(w, l->dev[i]);
	rs_jsonw_close(w, ']');
	rs_jsonw_key(w, RS_STR("tensor_map"));
	rs_jsonw_open(w, '[');
	for (uint32_t a = 0; a < l->n_axes; a++) {
		rs_jsonw_open(w, '[');
		for (uint32_t i = l->map_first[a]; i < l->map_first[a + 1]; i++)
			rs_jsonw_int(w, l->map[i]);
		rs_jsonw_close(w, ']');
	}
	rs_jsonw_close(w, ']');
	rs_jsonw_key(w, RS_STR("opt_weight_shard_step"));
	rs_jsonw_int(w, l->opt_step);
	rs_jsonw_key(w, RS_STR("opt_weight_shard_size"));
	rs_jsonw_int(w, l->opt_size);
	fs__json_uint(w, "field", l->field);
	if (l->n_split)
		json_longs(w, "param_split_shape", l->split, l->n_split);
	if (l->n_offsets)
		json_longs(w, "indices_offset", l->offsets, l->n_offsets);
	if (l->n_shape)
		fs__json_dims(w, "tensor_shape", l->n_shape, l->shape);
}

static int print_json(const struct rs_strategy *s, const struct rs_err *unusable, int code)
{
	bool usable = unusable->code == RS_OK;
	struct rs_jsonw w;

	fs__json_begin(&w, "strategy");
	fs__json_str(&w, "path", s->path);
	fs__json_str(&w, "form", s->json ? "json" : "protobuf");
	fs__json_bool(&w, "merged", s->merged);
	fs__json_uint(&w, "current_stage", s->current_stage);
	if (usable) {
		fs__json_uint(&w, "stages", s->n_stages);
		fs__json_uint(&w, "stage_devices", s->stage_devices);
	}
	fs__json_err(&w, "error", unusable);
	fs__json_uint(&w, "n_operators", s->n_operators);
	fs__json_uint(&w, "n_layouts", s->n_layouts);
	fs__json_uint(&w, "n_parameters", s->n_params);
	rs_jsonw_key(&w, RS_STR("parameters"));
	rs_jsonw_open(&w, '[');
	for (uint64_t i = 0; i < s->n_params; i++) {
		const struct rs_placed *p = &s->params[s->by_name[i]];

		rs_jsonw_open(&w, '{');
		rs_jsonw_key(&w, RS_STR("name"));
		rs_jsonw_str(&w, p->name);
		fs__json_uint(&w, "stage", stage_of(s, p));
		json_layout(&w, p->layout);
		rs_jsonw_close(&w, '}');
	}
	rs_jsonw_close(&w, ']');
	return fs__json_end(&w, code);
}

/* A strategy that cannot be used is shown all the same: that is when one wants to look at it. */
static int show(const struct fs_options *o)
{
	struct rs_err err = {0}, unusable = {0};
	struct rs_strategy *s;
	int code = FS_EXIT_OK;

	if (rs_strategy_read(o->args[1], &s, &err) < 0)
		return fs__verb_fail(o, "strategy", &err);
	if (rs_strategy_check(s, &unusable) < 0)
		code = fs_exit_code(unusable.code);
	if (o->json)
		code = print_json(s, &unusable, code);
	else if (print_table(s, code == FS_EXIT_OK, &err) < 0)
		code = fs_report(&err);
	if (unusable.code != RS_OK) {
		fflush(stdout);
		fs_report(&unusable);
	}
	rs_strategy_free(s);
	return code;
}

/* ---------------------------------------------------------------------------- verb */

int fs_verb_strategy(const struct fs_options *o)
{
	static const struct {
		const char *name;
		int words;
		fs_verb_fn run;
	} actions[] = {
		{"merge", 3, merge},
		{"show", 2, show},
		{"convert", 3, convert},
		{"emit", 3, emit},
	};
	struct rs_err err = {0};

	for (size_t i = 0; i < sizeof(actions) / sizeof(*actions) && o->n_args; i++)
		if (strcmp(o->args[0], actions[i].name) == 0 && o->n_args == actions[i].words)
			return actions[i].run(o);
	if (o->n_args)
		rs_fail(&err, RS_USAGE, "strategy: '%s' with %d operand%s is none of its actions",
			RS_SHOW(rs_str(o->args[0])), o->n_args - 1, o->n_args == 2 ? "" : "s");
	else
		rs_fail(&err, RS_USAGE, "strategy: expected an action");
	rs_hint(&err, "usage: reshardfs %s", USAGE);
	return fs__verb_fail(o, "strategy", &err);
}
