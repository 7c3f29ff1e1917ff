/*
 * presets.c - finds the plans that are built into the program.
 *
 * They are data: one file in core/target/plans/ and nothing else makes a new one. Next: short.c.
 */
#include "core/target/short/presets.h"

bool rs__preset_find(struct rs_str name, struct rs_str *text)
{
	for (uint32_t i = 0; i < rs__n_presets; i++)
		if (rs_str_is(name, rs__presets[i].name)) {
			*text = (struct rs_str){rs__presets[i].text, rs__presets[i].len};
			return true;
		}
	return false;
}

const char *rs__preset_names(struct rs_arena *arena)
{
	const char *names = "";

	for (uint32_t i = 0; i < rs__n_presets && names; i++)
		if (!strchr(rs__presets[i].name, '.'))
			names = rs_arena_printf(arena, NULL, "%s%s%s", names, *names ? " " : "",
				rs__presets[i].name);
	return names ? names : "";
}
