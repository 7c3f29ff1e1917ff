/*
 * rules.c - targets that go by a plan: a JSON file with `reshard_plan`, or the rules of one with
 * the sizes of another mesh.
 *
 * Opening reads the plan. Binding, once the source is described, says what is made from what and
 * on which ranks, after which everything is read-only. Refuses formats that are not written yet,
 * and sources that nobody can join. The language: docs/plans.md. Read next: rules.h, for the other
 * files; rules_list.c, for what a rank holds; rules_check.c, for what is refused early.
 */
#include "core/target/rules/rules.h"

#define TEXT_MAX (64ull << 20) /* as for all small JSON */

/* --------------------------------------------------------------------- opening */

/* All of a file that might be a plan, terminated, in @arena; NULL when it cannot be had. */
static char *read_text(const char *path, struct rs_arena *arena, uint64_t *len, struct rs_err *err)
{
	struct rs_file file;
	char *text = NULL;

	if (rs_file_open(path, NULL, &file, err) < 0)
		return NULL;
	*len = file.size;
	if (file.size > TEXT_MAX)
		rs_fail(err, RS_LIMIT, "%s: a plan of more than %llu bytes", path, TEXT_MAX);
	else
		text = rs_arena_alloc(arena, file.size + 1, err);
	if (text && rs_file_read(&file, 0, text, file.size, err) < 0)
		text = NULL;
	rs_file_close(&file);
	return text;
}

static bool is_plan(const char *target)
{
	struct rs_arena *arena = rs_arena_new(TEXT_MAX + 4096, NULL);
	uint64_t len = 0;
	char *text = arena ? read_text(target, arena, &len, NULL) : NULL;
	bool yes = text && rs__plan_is((struct rs_str){text, len});

	rs_arena_free(arena);
	return yes;
}

static int open_plan(struct rs_target *t, struct rs_err *err)
{
	uint64_t len;
	char *text = read_text(t->opts.target, t->arena, &len, err);

	return text ? rs__rules_open(t, (struct rs_str){text, len}, t->opts.target, NULL, 0, err)
		    : -1;
}

/* Another format= than the plan's: the name of the file says so, too. */
static int take_files(struct rs_target *t, const struct rs__plan *plan, struct rs_err *err)
{
	struct rs_str path = rs_str(plan->files.path), suffix = rs_str(plan->format);
	const char *slash;

	t->files = plan->files;
	if (!t->opts.container)
		t->container = plan->format;
	if (strcmp(t->container, plan->format) != 0 && rs_str_ends(path, suffix.ptr) &&
		path.len > suffix.len && path.ptr[path.len - suffix.len - 1] == '.') {
		struct rs_str stem = {path.ptr, path.len - suffix.len - 1};
		/* model.safetensors in Paddle's words */
		bool state = strcmp(t->container, "pdparams") == 0 &&
			     (rs_str_is(stem, "model") || rs_str_ends(stem, "/model"));

		t->files.path = rs_arena_printf(t->arena, err, "%.*s%s.%s", (int)stem.len, stem.ptr,
			state ? "_state" : "", t->container);
		if (!t->files.path)
			return -1;
	}
	slash = strrchr(t->files.path, '/');
	t->container_default_name = slash ? slash + 1 : t->files.path;
	return 0;
}

/* What the braces of files.path may name. */
static int take_axes(struct rs_target *t, const struct rs__mesh *m, struct rs_err *err)
{
	struct rs_axis *axes = RS_NEW_N(t->arena, struct rs_axis, m->n, err);

	if (!axes)
		return -1;
	for (uint32_t a = 0; a < m->n; a++)
		axes[a] = (struct rs_axis){m->axes[a].name, m->axes[a].size};
	t->axes = axes;
	t->n_axes = m->n;
	return 0;
}

int rs__rules_open(struct rs_target *t, struct rs_str text, const char *name,
	const struct rs__axis *sizes, uint32_t n_sizes, struct rs_err *err)
{
	struct rs__rules *r = RS_NEW(t->arena, struct rs__rules, err);

	if (!r || rs__source_whole(t, err) < 0 ||
		rs__plan_read(text, name, sizes, n_sizes, t->arena, &r->plan, err) < 0)
		return -1;
	if (strcmp(r->plan->format, "pt") == 0) {
		rs_fail(err, RS_UNSUPPORTED, "%s: files.format: pt files are not written yet",
			r->plan->name);
		return rs_hint(err, "safetensors and ckpt are");
	}
	r->plan->vars.config = &t->source->config;
	t->priv = r;
	t->n_ranks = r->plan->mesh.n_ranks;
	t->mindspore = t->source->mindspore;
	if (take_axes(t, &r->plan->mesh, err) < 0)
		return -1;
	return take_files(t, r->plan, err);
}

/* --------------------------------------------------------------------- binding */

int rs__rules_bind(struct rs_target *t, struct rs_err *err)
{
	struct rs__rules *r = t->priv;
	struct rs__binding b = {
		.t = t,
		.rules = r,
		.unmatched = r->plan->unmatched,
		.missing = r->plan->missing,
		.err = err,
	};
	int rc = -1;

	if (t->opts.unknown == RS_DEFAULT_ERROR)
		b.unmatched = RS__UNMATCHED_ERROR;
	if (t->opts.unknown == RS_DEFAULT_REPLICATE)
		b.unmatched = RS__UNMATCHED_REPLICATE;
	if (t->opts.unknown == RS_DEFAULT_DROP)
		b.unmatched = RS__UNMATCHED_DROP;
	if (t->opts.missing == RS_MISSING_SKIP)
		b.missing = RS_MISSING_SKIP;
	b.scratch = rs_arena_new(1ull << 30, err);
	if (!b.scratch)
		return -1;
	if (rs__bind_origins(&b) == 0 && rs__bind_instances(&b) == 0 && rs__bind_places(&b) == 0)
		rc = 0;
	rs_arena_free(b.scratch);
	return rc;
}

const struct rs_target_ops rs__target_plan = {
	.name = "plan",
	.is = is_plan,
	.open = open_plan,
	.bind = rs__rules_bind,
	.check = rs__rules_check,
	.needs = rs__rules_needs,
	.list = rs__rules_list,
};
