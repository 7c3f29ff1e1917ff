/*
 * fmt_mindspore.c - the .ckpt file as MindSpore's save_checkpoint writes it, byte for byte.
 *
 * One protobuf message per tensor (or per 512 MiB of one), each its own `Checkpoint` with one
 * `Value`; joined they are one valid message again. No magic, no index, no trailer:
 *
 *   0A vl(V)                          Checkpoint.value
 *      0A vl(t) name                  Value.tag
 *      12 vl(T)                       Value.tensor
 *         08 vl(d) ...                TensorProto.dims, one field an axis, not packed
 *         12 vl(y) type               TensorProto.tensor_type, "Float32"
 *         1A vl(n) content            TensorProto.tensor_content
 *
 * Refuses dtypes that .ckpt has no word for, and a file without entries (it would be empty, and
 * loaders take that for damage). Leaves tensors without elements out, as the framework does.
 * Format: docs/formats/mindspore.md, section 1. Read next: fmt_safetensors.c.
 */
#include "core/image/internal.h"

/* Content above this is spread over Values of the same name; borders ignore rows and elements. */
#define CHUNK_BYTES (512ull << 20)

/* Two short runs of bytes lie around the name; both have a small bound (8 axes, 10-byte varints).
 */
struct small {
	uint8_t bytes[160];
	uint64_t len;
};

static void put_varint(struct small *to, uint64_t value)
{
	while (value > 0x7f) {
		to->bytes[to->len++] = (uint8_t)(value | 0x80);
		value >>= 7;
	}
	to->bytes[to->len++] = (uint8_t)value;
}

static uint64_t varint_bytes(uint64_t value)
{
	uint64_t n = 1;

	while (value > 0x7f) {
		value >>= 7;
		n++;
	}
	return n;
}

static void put_tag(struct small *to, uint8_t tag, uint64_t value)
{
	to->bytes[to->len++] = tag;
	put_varint(to, value);
}

/* The dims fields. A text always says [0]; a scalar says nothing, or [0] if its source did. */
static void put_dims(struct small *to, const struct rs_wanted *item)
{
	if (item->dtype == RS_DT_STR || (item->shape.n_axes == 0 && item->zero_dims)) {
		put_tag(to, 0x08, 0);
		return;
	}
	for (uint32_t i = 0; i < item->shape.n_axes; i++)
		put_tag(to, 0x08, item->shape.dims[i]);
}

/* All of a Value but the last @content bytes. */
static int emit_head(const struct rs_wanted *item, const char *type, uint64_t content,
	struct rs_sink *to, struct rs_err *err)
{
	const uint64_t name_bytes = item->name.len, type_bytes = strlen(type);
	struct small dims = {0}, front = {0}, tensor = {0};
	uint64_t tensor_bytes, value_bytes;

	put_dims(&dims, item);
	tensor_bytes = dims.len + 2 + type_bytes + 1 + varint_bytes(content) + content;
	value_bytes = 1 + varint_bytes(name_bytes) + name_bytes + 1 + varint_bytes(tensor_bytes) +
		      tensor_bytes;

	put_tag(&front, 0x0a, value_bytes);
	put_tag(&front, 0x0a, name_bytes);

	put_tag(&tensor, 0x12, tensor_bytes);
	memcpy(tensor.bytes + tensor.len, dims.bytes, dims.len);
	tensor.len += dims.len;
	put_tag(&tensor, 0x12, type_bytes);
	memcpy(tensor.bytes + tensor.len, type, type_bytes);
	tensor.len += type_bytes;
	put_tag(&tensor, 0x1a, content);

	if (rs_sink_bytes(to, front.bytes, front.len, err) < 0 ||
		rs_sink_bytes(to, item->name.ptr, name_bytes, err) < 0)
		return -1;
	return rs_sink_bytes(to, tensor.bytes, tensor.len, err);
}

static int emit_item(const struct rs_list *list, uint64_t i, const char *type, uint64_t bytes,
	struct rs_sink *to, struct rs_err *err)
{
	const struct rs_wanted *item = &list->items[i];

	/* An empty text is written as one zero code point: numpy has no string of no characters. */
	if (bytes == 0) {
		if (emit_head(item, type, 4, to, err) < 0)
			return -1;
		return rs_sink_fill(to, 0, 4, err);
	}
	for (uint64_t at = 0; at < bytes; at += CHUNK_BYTES) {
		uint64_t content = rs_min(CHUNK_BYTES, bytes - at);

		if (emit_head(item, type, content, to, err) < 0)
			return -1;
		if (rs_sink_slice(to, i, at, content, err) < 0)
			return -1;
	}
	return 0;
}

static int refuse_dtype(const struct rs_wanted *item, struct rs_err *err)
{
	rs_fail(err, RS_UNSUPPORTED, "tensor '%s': .ckpt files have no word for its dtype %s",
		RS_SHOW(item->name), rs_dtype_name(item->dtype));
	return rs_hint(err, "ask for -o format=safetensors");
}

static int emit(const struct rs_list *list, bool mindspore, struct rs_sink *to,
	struct rs_notes *notes, struct rs_err *err)
{
	const uint64_t before = to->size;

	(void)mindspore; /* a .ckpt carries no metadata */
	if (list->raw)
		return rs__list_raw(list, to, err);
	for (uint64_t i = 0; i < list->n; i++) {
		const struct rs_wanted *item = &list->items[i];
		const char *type = rs_dtype_mindspore(item->dtype);
		uint64_t bytes;

		if (!type)
			return refuse_dtype(item, err);
		if (rs__wanted_bytes(item, &bytes, err) < 0)
			return -1;
		if (bytes == 0 && item->dtype != RS_DT_STR) {
			rs_note(notes,
				"tensor '%s' %s has no elements and is left out, as MindSpore does",
				RS_SHOW(item->name), RS_SHAPE_SHOW(&item->shape));
			continue;
		}
		if (emit_item(list, i, type, bytes, to, err) < 0)
			return -1;
	}
	if (to->size > before)
		return 0;
	rs_fail(err, RS_MISSING, "expected a tensor to store, found none: a .ckpt would be empty");
	return rs_hint(err, "loaders refuse empty files; leave the rank out with -o ranks=, or ask "
			    "for -o format=safetensors");
}

const struct rs_format_ops rs__format_mindspore = {
	.name = "ckpt",
	.suffix = ".ckpt",
	.emit = emit,
};
