/*
 * emit_rules.c - the plan of a target that goes by one: its text, with the mesh that is used.
 *
 * A plan file is printed as it stands; the rules behind a short target get the sizes of its words.
 * Read next: emit_plan.c, for targets that have no rules.
 */
#include "core/target/emit/emit_plan.h"
#include "core/target/rules/rules.h"

#include <cjson/cJSON.h>

bool rs__emit_has_rules(const struct rs_target *t)
{
	return t->ops->list == rs__rules_list;
}

static int find_text(
	const struct rs_target *t, struct rs_str *text, const char **name, struct rs_err *err)
{
	struct rs_file file;
	char *bytes;
	int rc = -1;

	if (rs__short_is(rs_str(t->opts.target)))
		return rs__short_plan(t, text, name, err);
	*name = t->opts.target;
	if (rs_file_open(t->opts.target, NULL, &file, err) < 0)
		return -1;
	bytes = rs_arena_alloc(t->arena, file.size + 1, err);
	if (bytes)
		rc = rs_file_read(&file, 0, bytes, file.size, err);
	*text = (struct rs_str){bytes, (size_t)file.size};
	rs_file_close(&file);
	return rc;
}

static void put_value(struct rs_jsonw *w, const cJSON *v)
{
	int64_t number;

	if (cJSON_IsObject(v) || cJSON_IsArray(v)) {
		bool object = cJSON_IsObject(v), was = w->pretty;
		rs_jsonw_open(w, object ? '{' : '[');
		w->pretty = was && w->depth < 3; /* a rule is a line */
		for (const cJSON *c = v->child; c; c = c->next) {
			if (object)
				rs_jsonw_key(w, rs_str(c->string));
			put_value(w, c);
		}
		rs_jsonw_close(w, object ? '}' : ']');
		w->pretty = was;
	} else if (rs_json_int(v, &number)) {
		rs_jsonw_int(w, number);
	} else if (cJSON_IsString(v)) {
		rs_jsonw_str(w, rs_str(v->valuestring));
	} else if (cJSON_IsBool(v)) {
		rs_jsonw_bool(w, cJSON_IsTrue(v));
	} else if (cJSON_IsNumber(v)) {
		rs_jsonw_double(w, v->valuedouble);
	} else {
		rs_jsonw_null(w);
	}
}

static void put_mesh(struct rs_jsonw *w, const struct rs_target *t)
{
	rs_jsonw_open(w, '{');
	rs_jsonw_key(w, RS_STR("axes"));
	rs_jsonw_open(w, '[');
	w->pretty = false;
	for (uint32_t i = 0; i < t->n_axes; i++) {
		rs_jsonw_open(w, '{');
		rs_jsonw_key(w, RS_STR("name"));
		rs_jsonw_str(w, t->axes[i].name);
		rs_jsonw_key(w, RS_STR("size"));
		rs_jsonw_uint(w, t->axes[i].size);
		rs_jsonw_close(w, '}');
	}
	rs_jsonw_close(w, ']');
	w->pretty = true;
	rs_jsonw_close(w, '}');
}

int rs__emit_rules(struct rs_target *t, char **text, uint64_t *len, struct rs_err *err)
{
	struct rs_jsonw w;
	struct rs_str plan;
	const char *name;
	cJSON *root;

	if (find_text(t, &plan, &name, err) < 0 || rs_json_parse(plan, name, &root, err) < 0)
		return -1;
	rs_jsonw_init(&w, true);
	rs_jsonw_open(&w, '{');
	for (const cJSON *c = root->child; c; c = c->next) {
		rs_jsonw_key(&w, rs_str(c->string));
		if (strcmp(c->string, "mesh") == 0)
			put_mesh(&w, t);
		else
			put_value(&w, c);
	}
	rs_jsonw_close(&w, '}');
	cJSON_Delete(root);
	*text = rs_jsonw_take(&w, len, err);
	return *text ? 0 : -1;
}
