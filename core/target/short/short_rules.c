/*
 * short_rules.c - short targets that go by rules: those of plan=, or those that the program brings
 * along for the model that config.json names.
 *
 * The words give the axes of the plan their sizes. Where a plan NAME.tied stands beside NAME it is
 * for models whose head is their embedding, which are those without a head: whether there is one is
 * known once the source is described. NAME.vllm has the fused names of layout=vllm. Refuses models
 * without rules, and names that are neither a shipped plan nor a file. Read next: presets.c,
 * rules.h.
 */
#include "core/target/rules/rules.h"
#include "core/target/short/presets.h"
#include "core/target/short/short.h"

#include <inttypes.h>

#define PLAN_MAX_BYTES (UINT64_C(16) << 20)

/* Words are innermost first, plans are outermost first. */
static int use_sizes(struct rs_target *t, const struct rs__short *s, struct rs_str text,
	const char *name, struct rs_err *err)
{
	struct rs__axis *sizes = RS_NEW_N(t->arena, struct rs__axis, s->n_words, err);

	if (!sizes)
		return -1;
	for (uint32_t i = 0; i < s->n_words; i++)
		sizes[i] = (struct rs__axis){
			s->words[s->n_words - 1 - i].name, s->words[s->n_words - 1 - i].size};
	if (rs__rules_open(t, text, name, sizes, s->n_words, err) < 0)
		return rs_err_prefix(err, "target %s", t->opts.target);
	return 0;
}

/* ------------------------------------------------------------------- which plan */

static int read_plan(
	const struct rs_target *t, const char *path, struct rs_str *text, struct rs_err *err)
{
	struct rs_file file;
	char *bytes;
	int rc = -1;

	if (rs_file_open(path, NULL, &file, err) < 0) {
		if (!err || err->code != RS_MISSING || strchr(path, '/'))
			return -1;
		rs_fail(err, RS_USAGE, "plan=%s: no such file, and no plan of this name",
			RS_SHOW(rs_str(path)));
		return rs_hint(err, "shipped plans: %s", rs__preset_names(t->arena));
	}
	if (file.size > PLAN_MAX_BYTES) {
		rs_fail(err, RS_LIMIT, "%s: a plan of %" PRIu64 " bytes", path, file.size);
	} else if ((bytes = rs_arena_alloc(t->arena, file.size + 1, err)) != NULL) {
		rc = rs_file_read(&file, 0, bytes, file.size, err);
		*text = (struct rs_str){bytes, (size_t)file.size};
	}
	rs_file_close(&file);
	return rc;
}

/* The shipped plan @wanted, in the form that layout and model ask for. 1: found; 0; -1. */
static int find_shipped(
	const struct rs_target *t, const char *wanted, struct rs_str *text, struct rs_err *err)
{
	bool fused = t->opts.layout == RS_ARRANGE_VLLM && !rs_str_ends(rs_str(wanted), ".vllm");
	bool tied = rs_catalog_n_tensors(t->source->cat) > 0 &&
		    !rs_catalog_find(t->source->cat, RS_STR("lm_head.weight"));
	const char *name = rs_arena_printf(t->arena, err, "%s%s", wanted, fused ? ".vllm" : "");
	const char *twin = name ? rs_arena_printf(t->arena, err, "%s.tied", name) : NULL;

	if (!twin)
		return -1;
	return (tied && rs__preset_find(rs_str(twin), text)) || rs__preset_find(rs_str(name), text);
}

int rs__short_plan(
	const struct rs_target *t, struct rs_str *text, const char **name, struct rs_err *err)
{
	struct rs_str model = t->source->config.model_type;
	const char *wanted = t->opts.plan;
	int found;

	if (!wanted)
		wanted = rs_arena_copy(t->arena, model.ptr, model.len, err);
	if (!wanted)
		return -1;
	*name = rs_arena_printf(t->arena, err, "plan %s", wanted);
	if (!*name)
		return -1;
	found = find_shipped(t, wanted, text, err);
	if (found)
		return found < 0 ? -1 : 0;
	if (t->opts.plan) {
		*name = wanted;
		return read_plan(t, wanted, text, err);
	}
	rs_fail(err, RS_USAGE,
		"target %s: no rules are shipped for model_type '%s' of %s/config.json",
		t->opts.target, RS_SHOW(model), t->source->opts.path);
	return rs_hint(err, "write a plan and say -o plan=FILE, or use one of: %s",
		rs__preset_names(t->arena));
}

/* -------------------------------------------------------------------------- kind */

/* The source is described now: choose once more. */
static int bind_rules(struct rs_target *t, struct rs_err *err)
{
	struct rs__short s;
	struct rs_str text;
	const char *name;

	if (rs__short_parse(rs_str(t->opts.target), &s, err) < 0 ||
		rs__short_plan(t, &text, &name, err) < 0 || use_sizes(t, &s, text, name, err) < 0)
		return -1;
	return rs__rules_bind(t, err);
}

static const struct rs_target_ops by_rules = {
	.name = "short",
	.bind = bind_rules,
	.check = rs__rules_check,
	.needs = rs__rules_needs,
	.list = rs__rules_list,
};

int rs__short_open_rules(struct rs_target *t, const struct rs__short *s, struct rs_err *err)
{
	struct rs_str text;
	const char *name;

	if (s->opt) {
		rs_fail(err, RS_USAGE, "target %s: rules have no optimizer shards", t->opts.target);
		return rs_hint(err, "leave out opt; a strategy as target can ask for them");
	}
	t->ops = &by_rules;
	if (rs__short_plan(t, &text, &name, err) < 0)
		return -1;
	return use_sizes(t, s, text, name, err);
}
