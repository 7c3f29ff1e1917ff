/*
 * dtype.c - the table of element types: their width and their words in each format.
 *
 * One row per type; a word that is not in the table is unknown, never guessed as bytes.
 * Formats: docs/formats/safetensors.md (words, order), docs/formats/mindspore.md (words of .ckpt).
 */
#include "reshardfs/catalog.h"

#include <strings.h>

struct row {
	const char *name, *mindspore;
	uint32_t bits;
};

static const struct row rows[RS_DT_COUNT] = {
	[RS_DT_NONE] = {"?", NULL, 0},
	[RS_DT_BOOL] = {"BOOL", "Bool", 8},
	[RS_DT_F4] = {"F4", NULL, 4},
	[RS_DT_F6_E2M3] = {"F6_E2M3", NULL, 6},
	[RS_DT_F6_E3M2] = {"F6_E3M2", NULL, 6},
	[RS_DT_U8] = {"U8", "UInt8", 8},
	[RS_DT_I8] = {"I8", "Int8", 8},
	[RS_DT_F8_E5M2] = {"F8_E5M2", NULL, 8},
	[RS_DT_F8_E4M3] = {"F8_E4M3", NULL, 8},
	[RS_DT_F8_E8M0] = {"F8_E8M0", NULL, 8},
	[RS_DT_F8_E4M3FNUZ] = {"F8_E4M3FNUZ", NULL, 8},
	[RS_DT_F8_E5M2FNUZ] = {"F8_E5M2FNUZ", NULL, 8},
	[RS_DT_I16] = {"I16", "Int16", 16},
	[RS_DT_U16] = {"U16", "UInt16", 16},
	[RS_DT_F16] = {"F16", "Float16", 16},
	[RS_DT_BF16] = {"BF16", "BFloat16", 16},
	[RS_DT_I32] = {"I32", "Int32", 32},
	[RS_DT_U32] = {"U32", "UInt32", 32},
	[RS_DT_F32] = {"F32", "Float32", 32},
	[RS_DT_C64] = {"C64", NULL, 64},
	[RS_DT_F64] = {"F64", "Float64", 64},
	[RS_DT_I64] = {"I64", "Int64", 64},
	[RS_DT_U64] = {"U64", "UInt64", 64},
	[RS_DT_INT4X2] = {"Int4", "Int4", 8},
	[RS_DT_STR] = {"str", "str", 32},
};

static const struct row *row_of(enum rs_dtype dt)
{
	return &rows[(unsigned int)dt < RS_DT_COUNT ? dt : RS_DT_NONE];
}

uint32_t rs_dtype_bits(enum rs_dtype dt)
{
	return row_of(dt)->bits;
}

const char *rs_dtype_name(enum rs_dtype dt)
{
	return row_of(dt)->name;
}

const char *rs_dtype_mindspore(enum rs_dtype dt)
{
	return row_of(dt)->mindspore;
}

enum rs_dtype rs_dtype_from_name(struct rs_str name)
{
	/* Int4 and str are words of ours, not of the format. */
	for (int dt = RS_DT_NONE + 1; dt < RS_DT_INT4X2; dt++)
		if (rs_str_is(name, rows[dt].name))
			return (enum rs_dtype)dt;
	return RS_DT_NONE;
}

enum rs_dtype rs_dtype_from_mindspore(struct rs_str name)
{
	/* Third-party writers prefix the word and change its case; MindSpore itself does not. */
	static const char prefix[] = "mindspore.";
	if (name.len > sizeof(prefix) - 1 &&
		strncasecmp(name.ptr, prefix, sizeof(prefix) - 1) == 0) {
		name.ptr += sizeof(prefix) - 1;
		name.len -= sizeof(prefix) - 1;
	}
	for (int dt = RS_DT_NONE + 1; dt < RS_DT_COUNT; dt++) {
		const char *word = rows[dt].mindspore;
		if (word && strlen(word) == name.len && strncasecmp(word, name.ptr, name.len) == 0)
			return (enum rs_dtype)dt;
	}
	return RS_DT_NONE;
}

bool rs_cast_known(enum rs_dtype from, enum rs_dtype to)
{
	bool source =
		from == RS_DT_F64 || from == RS_DT_F32 || from == RS_DT_F16 || from == RS_DT_BF16;
	return source && (to == RS_DT_F32 || to == RS_DT_F16 || to == RS_DT_BF16);
}
