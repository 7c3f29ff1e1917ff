/*
 * format.c - the table of target formats, and what they have in common.
 *
 * A format is one file in this room and one line in the table below: it describes a list of
 * tensors to a sink, from the first byte of the file to the last. It refuses what the format
 * has no words for. Read next: fmt_mindspore.c (the shortest), fmt_safetensors.c,
 * fmt_pdparams.c.
 */
#include "core/image/internal.h"

static const struct rs_format_ops *const formats[] = {
	&rs__format_mindspore,
	&rs__format_safetensors,
	&rs__format_pdparams,
};
#define N_FORMATS (sizeof(formats) / sizeof(formats[0]))

const struct rs_format_ops *rs_format_find(const char *name)
{
	if (!name)
		return NULL;
	for (size_t i = 0; i < N_FORMATS; i++)
		if (strcmp(formats[i]->name, name) == 0)
			return formats[i];
	return NULL;
}

const char *const *rs_format_names(void)
{
	static const char *const names[N_FORMATS + 1] = {"ckpt", "safetensors", "pdparams", NULL};

	return names;
}

int rs_format_measure(const struct rs_format_ops *f, const struct rs_list *list, bool mindspore,
	uint64_t *size, struct rs_err *err)
{
	struct rs_sink sum = rs__sink_measure();

	if (f->emit(list, mindspore, &sum, NULL, err) < 0)
		return -1;
	*size = sum.size;
	return 0;
}

int rs__wanted_bytes(const struct rs_wanted *item, uint64_t *bytes, struct rs_err *err)
{
	if (rs_shape_bytes(&item->shape, item->dtype, bytes))
		return 0;
	return rs_fail(err, RS_LIMIT,
		"tensor '%s': expected whole bytes and fewer than 2^64 bits, found %s of %s",
		RS_SHOW(item->name), RS_SHAPE_SHOW(&item->shape), rs_dtype_name(item->dtype));
}

int rs__list_raw(const struct rs_list *list, struct rs_sink *to, struct rs_err *err)
{
	uint64_t bytes;

	if (list->n != 1)
		return rs_fail(err, RS_CORRUPT, "expected one source file to show as it is");
	if (rs__wanted_bytes(&list->items[0], &bytes, err) < 0)
		return -1;
	return rs_sink_slice(to, 0, 0, bytes, err);
}
