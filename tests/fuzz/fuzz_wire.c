/*
 * fuzz_wire.c - hostile bytes for the protobuf walker and for what looks at files before it.
 *
 * The walker runs with a window of 1 to 32 bytes, so that every field meets its border, enters
 * every payload as if it were a message, and must agree, field by field and refusal by refusal,
 * with a plain reading of the same block from memory.
 */
#include "reshardfs/codec.h"

#define DEPTH_MAX 6

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void must(bool truth)
{
	if (!truth)
		__builtin_trap();
}

/* The next field as one would read it from memory: 1, 0 at the end, -1. */
static int plain_next(struct rs_reader *r, struct rs_field *f)
{
	uint64_t tag;

	*f = (struct rs_field){.off = r->base_off + (uint64_t)(r->pos - r->base)};
	if (r->pos == r->end)
		return 0;
	tag = rs_read_varint(r, "tag");
	if (!rs_read_ok(r) || tag >> 3 == 0 || tag >> 3 >= UINT64_C(1) << 29)
		return -1;
	f->number = (uint32_t)(tag >> 3);
	f->wire = (uint32_t)(tag & 7);
	switch (f->wire) {
	case 0:
		f->value = rs_read_varint(r, "value");
		break;
	case 1:
		f->value = rs_read_le64(r, "value");
		break;
	case 2:
		f->len = rs_read_varint(r, "length");
		f->body = r->base_off + (uint64_t)(r->pos - r->base);
		(void)rs_read_bytes(r, f->len, "payload");
		break;
	case 5:
		f->value = rs_read_le32(r, "value");
		break;
	default:
		return -1;
	}
	return rs_read_ok(r) ? 1 : -1;
}

static void check_payload(const struct rs_wire *w, const struct rs_field *f)
{
	uint8_t buf[64];
	uint64_t len = rs_min(f->len, sizeof(buf)), skip = f->len - len;
	struct rs_err err = {0};

	must(rs_wire_bytes(w, f, skip, buf, len, &err) == 0);
	must(len == 0 || memcmp(buf, w->file->mem + f->body + skip, len) == 0);
	must(rs_wire_bytes(w, f, skip + 1, buf, len, &err) == -1);
	must(err.code == RS_CORRUPT);
}

static void walk(struct rs_wire w, int depth)
{
	struct rs_err err = {0};
	struct rs_reader plain;
	struct rs_field f, p;
	int rc, plain_rc;

	rs_read_init(&plain, w.file->mem + w.pos, w.end - w.pos, w.pos, "plain", NULL);
	do {
		rc = rs_wire_next(&w, &f, &err);
		plain_rc = plain_next(&plain, &p);
		must(rc == plain_rc);
		must(f.off == p.off);
		if (rc <= 0)
			break;
		must(f.number == p.number && f.wire == p.wire && f.value == p.value);
		if (f.wire != 2)
			continue;
		must(f.body == p.body && f.len == p.len);
		check_payload(&w, &f);
		if (depth < DEPTH_MAX)
			walk(rs_wire_enter(&w, &f), depth + 1);
	} while (rc > 0);
	must(rc == 0 || (err.code == RS_CORRUPT && err.msg[0] != 0));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct rs_wire_window window;
	struct rs_err err = {0};
	struct rs_file file;
	struct rs_wire w;

	rs_file_memory(data, size, "fuzz", &file);
	rs_wire_init(&w, &file, 0, size, &window);
	w.window_cap = 1 + size % 32;
	walk(w, 0);
	if (rs_sniff_foreign(&file, &err) < 0)
		must(err.hint[0] != 0 && (err.code == RS_CORRUPT || err.code == RS_UNSUPPORTED));
	return 0;
}
