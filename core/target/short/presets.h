/*
 * presets.h - private to short*.c: the plans that the program brings along, as text.
 *
 * They are the files core/target/plans/NAME.json; the build turns them into the table below. NAME
 * is the model_type of a config.json; NAME.vllm are the rules of its fused form.
 */
#ifndef RESHARDFS_CORE_TARGET_PRESETS_H
#define RESHARDFS_CORE_TARGET_PRESETS_H

#include "reshardfs/base.h"

struct rs__preset {
	const char *name;
	const char *text; /* not terminated */
	size_t len;
};
extern const struct rs__preset rs__presets[];
extern const uint32_t rs__n_presets;

bool rs__preset_find(struct rs_str name, struct rs_str *text);
/* rs__preset_names - "bert gpt2 llama ...", without the fused forms; "" when memory is out. */
const char *rs__preset_names(struct rs_arena *arena);

#endif
