/*
 * strategy_make.c - a strategy that no file holds, from placements that somebody thought out.
 *
 * It goes through the same builder as what is read from files, so that names, layouts and stages
 * are held to the same rules, and whoever uses it cannot tell. Refuses what the builder refuses.
 * Read next: strategy_build.c.
 */
#include "core/layout/strategy_internal.h"

int rs_strategy_make(const char *name, const struct rs_placed *params, uint64_t n,
	struct rs_strategy **out, struct rs_err *err)
{
	struct rs__build b;

	if (rs__build_begin(&b, name, 0, n, err) < 0)
		return -1;
	b.s->merged = true; /* the stage of a parameter stands with its name, not in an operator */
	b.s->current_stage = 1;
	for (uint64_t i = 0; i < n; i++)
		if (rs__build_param(&b, params[i].name, params[i].stage, params[i].layout, err) <
			0) {
			rs__build_drop(&b);
			return -1;
		}
	if (rs__build_seal(&b, out, err) < 0)
		return -1;
	if (rs_strategy_check(*out, err) == 0)
		return 0;
	rs_strategy_free(*out);
	*out = NULL;
	return -1;
}
