/*
 * test_codec.c - the decoders of floor 1 against bytes built here, annotated field by field.
 *
 * Tables: each row is an input with its values, or with the code and the words of its refusal.
 * One property stands beside them: the payload that the wire walker steps over lies in memory that
 * cannot be read. JSON has test_json.c of its own. Next: tests/fuzz/, the same decoders.
 */
#include <inttypes.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cmocka.h>

#include "reshardfs/codec.h"

#define COUNT(a) (sizeof(a) / sizeof(*(a)))
#define BYTES(literal) literal, sizeof(literal) - 1

/* Assert code and words of a refusal; print the row, so that a failure names its line. */
static void assert_refused(
	const char *row, const struct rs_err *err, enum rs_code code, const char *words)
{
	if (err->code != code || !strstr(err->msg, words))
		fail_msg("row '%s': expected %s with \"%s\", got %s: %s", row, rs_code_name(code),
			words, rs_code_name(err->code), err->msg);
}

/* ------------------------------------------------------------------------ reader */

static void reader_reads_a_column(void **state)
{
	static const uint8_t block[] = {
		0x07,                                           /* u8 */
		0x78, 0x56, 0x34, 0x12,                         /* le32 */
		0xef, 0xcd, 0xab, 0x89, 0x67, 0x45, 0x23, 0x01, /* le64 */
		'a', 'b',                                       /* bytes */
		0xac, 0x02,                                     /* varint 300 */
	};
	struct rs_err err = {0};
	struct rs_reader r;
	struct rs_str ab;

	(void)state;
	rs_read_init(&r, block, sizeof(block), 1000, "f", &err);
	assert_int_equal(rs_read_u8(&r, "a"), 7);
	assert_int_equal(rs_read_le32(&r, "b"), 0x12345678);
	assert_true(rs_read_le64(&r, "c") == UINT64_C(0x0123456789abcdef));
	ab = rs_read_bytes(&r, 2, "d");
	assert_true(rs_str_is(ab, "ab"));
	assert_ptr_equal(ab.ptr, block + 13);
	assert_int_equal(rs_read_varint(&r, "e"), 300);
	assert_true(rs_read_ok(&r));
	assert_int_equal(rs_read_bytes(&r, 0, "nothing").len, 0);
	assert_true(rs_read_ok(&r));
	assert_int_equal(err.code, RS_OK);
}

static void reader_failure_sticks(void **state)
{
	struct rs_err err = {0};
	struct rs_reader r;

	(void)state;
	rs_read_init(&r, "\1\2\3", 3, 1000, "f.bin", &err);
	assert_int_equal(rs_read_u8(&r, "kind"), 1);
	assert_int_equal(rs_read_le32(&r, "header length"), 0);
	assert_false(rs_read_ok(&r));
	assert_refused("le32", &err, RS_CORRUPT, "f.bin@1001: header length: expected 4");
	/* Two bytes are left, but the first failure is the one that counts. */
	assert_int_equal(rs_read_u8(&r, "later"), 0);
	assert_int_equal(rs_read_bytes(&r, 1, "later").len, 0);
	assert_int_equal(rs_read_varint(&r, "later"), 0);
	assert_int_equal(rs_read_le64(&r, "later"), 0);
	assert_refused("sticky", &err, RS_CORRUPT, "header length");
}

static void reader_refuses_huge_lengths(void **state)
{
	static const uint64_t lens[] = {5, UINT32_MAX, INT64_MAX, UINT64_MAX};
	struct rs_err err;
	struct rs_reader r;

	(void)state;
	for (size_t i = 0; i < COUNT(lens); i++) {
		err = (struct rs_err){0};
		rs_read_init(&r, "abcd", 4, 0, "f", &err);
		assert_non_null(rs_read_bytes(&r, lens[i], "name").ptr);
		assert_refused("length", &err, RS_CORRUPT, "f@0: name: expected");
	}
	rs_read_init(&r, NULL, 0, 0, "f", NULL); /* an empty block, and nobody to tell */
	assert_int_equal(rs_read_u8(&r, "x"), 0);
	assert_false(rs_read_ok(&r));
}

static const struct varint_row {
	const char *name, *bytes;
	size_t len;
	uint64_t value;
	const char *words; /* NULL: good */
} varints[] = {
	{"zero", BYTES("\x00"), 0, NULL},
	{"127", BYTES("\x7f"), 127, NULL},
	{"128", BYTES("\x80\x01"), 128, NULL},
	{"zero in two bytes", BYTES("\x80\x00"), 0, NULL},
	{"2^32", BYTES("\x80\x80\x80\x80\x10"), UINT64_C(1) << 32, NULL},
	{"2^64-1, or -1", BYTES("\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01"), UINT64_MAX, NULL},
	{"nothing", BYTES(""), 0, "expected 1 bytes, found 0"},
	{"cut", BYTES("\xff\xff"), 0, "expected 1 bytes, found 0"},
	{"65 bits", BYTES("\xff\xff\xff\xff\xff\xff\xff\xff\xff\x02"), 0, "ten bytes"},
	{"tenth goes on", BYTES("\x80\x80\x80\x80\x80\x80\x80\x80\x80\x81\x00"), 0, "ten bytes"},
	{"eleven", BYTES("\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01"), 0, "ten bytes"},
};

static void varint_table(void **state)
{
	(void)state;
	for (size_t i = 0; i < COUNT(varints); i++) {
		const struct varint_row *v = &varints[i];
		struct rs_err err = {0};
		struct rs_reader r;

		rs_read_init(&r, v->bytes, v->len, 0, "f", &err);
		assert_true(rs_read_varint(&r, "count") == v->value);
		assert_int_equal(rs_read_ok(&r), v->words == NULL);
		if (v->words)
			assert_refused(v->name, &err, RS_CORRUPT, v->words);
	}
}

/* -------------------------------------------------------------------------- wire */

/*
 * The fields of a message as text, "1:v300 2:b4+3 3:f5 4:d6 ", and the result of the last call. A
 * number alone is a varint, b is offset+length of a payload, f four bytes, d eight.
 */
static int walk(const void *bytes, uint64_t len, char *text, size_t size, struct rs_err *err)
{
	struct rs_wire_window window;
	struct rs_file file;
	struct rs_field f;
	struct rs_wire w;
	int rc;

	*text = 0;
	rs_file_memory(bytes, len, "m.ckpt", &file);
	rs_wire_init(&w, &file, 0, len, &window);
	while ((rc = rs_wire_next(&w, &f, err)) == 1) {
		size_t at = strlen(text);
		static const char kinds[] = "vdb..f";

		if (f.wire == 2)
			(void)snprintf(text + at, size - at, "%u:b%" PRIu64 "+%" PRIu64 " ",
				f.number, f.body, f.len);
		else
			(void)snprintf(text + at, size - at, "%u:%c%" PRIu64 " ", f.number,
				kinds[f.wire], f.value);
	}
	return rc;
}

static const struct wire_row {
	const char *name, *bytes;
	size_t len;
	const char *fields; /* those before the end or the refusal */
	const char *words;  /* NULL: good */
} wires[] = {
	{"empty message", BYTES(""), "", NULL},
	{"varint", BYTES("\x08\xac\x02"), "1:v300 ", NULL},
	{"eight bytes", BYTES("\x11\x01\x00\x00\x00\x00\x00\x00\x80"), "2:d9223372036854775809 ",
		NULL},
	{"bytes", BYTES("\x1a\x03xyz"), "3:b2+3 ", NULL},
	{"four bytes", BYTES("\x25\x00\x01\x00\x00"), "4:f256 ", NULL},
	{"an empty payload at the end", BYTES("\x08\x01\x12\x00"), "1:v1 2:b4+0 ", NULL},
	{"two-byte tag", BYTES("\x80\x01\x05"), "16:v5 ", NULL},
	{"length in two bytes", BYTES("\x0a\x81\x00z"), "1:b3+1 ", NULL},
	{"largest field number", BYTES("\xf8\xff\xff\xff\x0f\x00"), "536870911:v0 ", NULL},
	{"minus one", BYTES("\x08\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01"),
		"1:v18446744073709551615 ", NULL},

	{"length past the end", BYTES("\x08\x01\x0a\x03xy"), "1:v1 ",
		"m.ckpt@2: field 1: expected at most 2 bytes up to the end of the message at 6, "
		"found a length of 3"},
	{"length that would wrap", BYTES("\x0a\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01"), "",
		"found a length of 18446744073709551615"},
	{"length near 2^63", BYTES("\x0a\xf8\xff\xff\xff\xff\xff\xff\xff\x7f"), "",
		"found a length of 9223372036854775800"},
	{"text-converted length", BYTES("\x0a\xef\xbf\xbd\x01\x0a"), "", "found a length of"},
	{"field number 0", BYTES("\x02\x00"), "", "m.ckpt@0: expected a field number from 1"},
	{"field number 2^29", BYTES("\x80\x80\x80\x80\x10\x00"), "", "536870911, found 536870912"},
	{"tag of 64 bits", BYTES("\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01"), "", "field number"},
	{"group", BYTES("\x08\x01\x0b\x0c"), "1:v1 ",
		"m.ckpt@2: field 1: expected wire type 0, 1, 2 or 5, found 3"},
	{"group end", BYTES("\x0c"), "", "found 4"},
	{"wire type 6", BYTES("\x0e"), "", "found 6"},
	{"wire type 7", BYTES("\x0f\x00"), "", "found 7"},
	{"ends in a tag", BYTES("\x80"), "", "m.ckpt@1: expected 1 bytes"},
	{"ends after a tag", BYTES("\x08"), "", "found the end of the message at 1"},
	{"ends in a value", BYTES("\x08\x80"), "", "m.ckpt@2: expected 1 bytes"},
	{"ends in a length", BYTES("\x0a\x80"), "", "m.ckpt@2: expected 1 bytes"},
	{"ends in eight bytes", BYTES("\x09\1\2\3\4\5\6\7"), "", "m.ckpt@1: expected 8 bytes"},
	{"ends in four bytes", BYTES("\x0d\1\2\3"), "", "m.ckpt@1: expected 4 bytes"},
	{"long varint value", BYTES("\x08\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01"), "",
		"m.ckpt@1: value: expected a varint"},
	{"long varint tag", BYTES("\x88\x80\x80\x80\x80\x80\x80\x80\x80\x80\x00\x01"), "",
		"m.ckpt@0: tag: expected a varint"},
};

static void wire_table(void **state)
{
	(void)state;
	for (size_t i = 0; i < COUNT(wires); i++) {
		const struct wire_row *row = &wires[i];
		struct rs_err err = {0};
		char text[256];
		int rc = walk(row->bytes, row->len, text, sizeof(text), &err);

		if (rc != (row->words ? -1 : 0) || strcmp(text, row->fields) != 0)
			fail_msg("row '%s': %d, \"%s\", %s", row->name, rc, text, err.msg);
		if (row->words)
			assert_refused(row->name, &err, RS_CORRUPT, row->words);
	}
}

/* One entry of a MindSpore checkpoint: `w`, Float32, [1, 2], (1.0, 2.0). */
static const char entry_w[] = "\x0a\x1c"         /* Checkpoint.value, 28 bytes */
			      "\x0a\x01w"        /* .tag */
			      "\x12\x17"         /* .tensor, 23 bytes */
			      "\x08\x01\x08\x02" /* .dims 1, 2: not packed */
			      "\x12\x07"
			      "Float32"                                   /* .tensor_type */
			      "\x1a\x08\x00\x00\x80\x3f\x00\x00\x00\x40"; /* .tensor_content */

static void wire_enters_nested_messages(void **state)
{
	struct rs_field value, tensor, f;
	struct rs_wire outer, inner, inmost;
	struct rs_wire_window window;
	struct rs_err err = {0};
	struct rs_file file;
	char name[8] = "";

	(void)state;
	rs_file_memory(entry_w, sizeof(entry_w) - 1, "w.ckpt", &file);
	rs_wire_init(&outer, &file, 0, file.size, &window);
	assert_int_equal(rs_wire_next(&outer, &value, &err), 1);
	inner = rs_wire_enter(&outer, &value);
	assert_int_equal(rs_wire_next(&inner, &f, &err), 1);
	assert_int_equal(rs_wire_bytes(&inner, &f, 0, name, f.len, &err), 0);
	assert_string_equal(name, "w");
	assert_int_equal(rs_wire_next(&inner, &tensor, &err), 1);
	inmost = rs_wire_enter(&inner, &tensor);
	for (uint64_t dim = 1; dim <= 2; dim++) {
		assert_int_equal(rs_wire_next(&inmost, &f, &err), 1);
		assert_int_equal(f.number, 1);
		assert_int_equal(f.value, dim);
	}
	assert_int_equal(rs_wire_next(&inmost, &f, &err), 1);
	assert_int_equal(rs_wire_bytes(&inmost, &f, 5, name, 2, &err), 0);
	assert_memory_equal(name, "32", 2);
	assert_int_equal(rs_wire_next(&inmost, &f, &err), 1);
	assert_int_equal(f.off, 20);
	assert_int_equal(f.body, 22);
	assert_int_equal(f.len, 8);
	assert_int_equal(rs_wire_next(&inmost, &f, &err), 0);
	assert_int_equal(rs_wire_next(&inmost, &f, &err), 0);
	assert_int_equal(rs_wire_next(&inner, &f, &err), 0);
	assert_int_equal(rs_wire_next(&outer, &f, &err), 0);
}

static void wire_nested_length_stays_inside(void **state)
{
	/* The payload of field 1 has 3 bytes; the field in it says 5, which the file would have. */
	static const char bytes[] = "\x0a\x03\x12\x05z"
				    "\x08\x01\x08\x01\x08\x01";
	struct rs_wire outer, inner;
	struct rs_wire_window window;
	struct rs_err err = {0};
	struct rs_file file;
	struct rs_field f;
	char buf[4];

	(void)state;
	rs_file_memory(bytes, sizeof(bytes) - 1, "n.ckpt", &file);
	rs_wire_init(&outer, &file, 0, file.size, &window);
	assert_int_equal(rs_wire_next(&outer, &f, &err), 1);
	assert_int_equal(rs_wire_bytes(&outer, &f, 1, buf, 3, &err), -1);
	assert_refused("bytes", &err, RS_CORRUPT, "expected 3 bytes at 1 of the payload, found 3");
	assert_int_equal(rs_wire_bytes(&outer, &f, UINT64_MAX, buf, 2, &err), -1);
	assert_int_equal(rs_wire_bytes(&outer, &f, 3, buf, 0, &err), 0);
	inner = rs_wire_enter(&outer, &f);
	assert_int_equal(rs_wire_next(&inner, &f, &err), -1);
	assert_refused("nested", &err, RS_CORRUPT, "n.ckpt@2: field 2: expected at most 1 bytes");
	assert_string_equal(err.hint, "");
	assert_int_equal(rs_wire_next(&inner, &f, &err), -1); /* it does not go on behind it */
	assert_int_equal(rs_wire_next(&outer, &f, &err), 1);
}

static void wire_says_when_a_file_is_cut(void **state)
{
	(void)state;
	for (uint64_t len = 1; len < sizeof(entry_w) - 1; len++) {
		struct rs_err err = {0};
		char text[64];

		assert_int_equal(walk(entry_w, len, text, sizeof(text), &err), -1);
		assert_int_equal(err.code, RS_CORRUPT);
		assert_non_null(strstr(err.hint, "cut off"));
	}
}

static void wire_refuses_a_message_past_the_file(void **state)
{
	struct rs_wire_window window;
	struct rs_err err = {0};
	struct rs_file file;
	struct rs_field f;
	struct rs_wire w;

	(void)state;
	rs_file_memory("\x08\x01", 2, "m", &file);
	rs_wire_init(&w, &file, 0, 3, &window);
	assert_int_equal(rs_wire_next(&w, &f, &err), -1);
	assert_refused("end", &err, RS_CORRUPT, "of 2 bytes, found one that ends at 3");
	rs_wire_init(&w, &file, 2, 1, &window);
	assert_int_equal(rs_wire_next(&w, &f, &err), -1);
}

/*
 * Two fields with payloads of 1 MB, which are mapped without permission to read except for
 * the 64 KB after each tag: whoever reads a payload dies here.
 */
static void wire_never_reads_payloads(void **state)
{
	enum { PAYLOAD = 1 << 20, HEAD = 4, ONE = HEAD + PAYLOAD, READABLE = 1 << 16 };
	static const uint8_t head[HEAD] = {0x0a, 0x80, 0x80, 0x40}; /* field 1, length 2^20 */
	uint64_t page = 4096, whole = 2 * ONE;
	struct rs_wire_window window;
	struct rs_err err = {0};
	struct rs_file file;
	struct rs_field f;
	struct rs_wire w;
	uint8_t *map =
		mmap(NULL, whole, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	(void)state;
	assert_ptr_not_equal(map, MAP_FAILED);
	memcpy(map, head, HEAD);
	memcpy(map + ONE, head, HEAD);
	assert_int_equal(mprotect(map + READABLE, ONE / page * page - READABLE, PROT_NONE), 0);
	assert_int_equal(
		mprotect(map + ONE / page * page + READABLE, PAYLOAD - READABLE, PROT_NONE), 0);
	rs_file_memory(map, whole, "big.ckpt", &file);
	rs_wire_init(&w, &file, 0, whole, &window);
	for (uint64_t i = 0; i < 2; i++) {
		assert_int_equal(rs_wire_next(&w, &f, &err), 1);
		assert_int_equal(f.body, i * ONE + HEAD);
		assert_int_equal(f.len, PAYLOAD);
	}
	assert_int_equal(rs_wire_next(&w, &f, &err), 0);
	assert_int_equal(munmap(map, whole), 0);
}

/* Fields of 3 bytes across three windows of 16384: every alignment of a field to a border. */
static void wire_crosses_window_borders(void **state)
{
	enum { N = 20000 };
	struct rs_wire_window window;
	struct rs_err err = {0};
	struct rs_file file;
	struct rs_field f;
	struct rs_wire w;
	uint8_t *bytes = malloc(3 * N), *copy = malloc(3 * N);

	(void)state;
	assert_non_null(bytes);
	assert_non_null(copy);
	for (uint32_t i = 0; i < N; i++) {
		bytes[3 * i] = 0x08;
		bytes[3 * i + 1] = (uint8_t)(0x80 | (i & 0x7f));
		bytes[3 * i + 2] = (uint8_t)(i >> 7 & 0x7f);
	}
	rs_file_memory(bytes, 3 * N, "m", &file);
	rs_wire_init(&w, &file, 0, file.size, &window);
	for (uint32_t i = 0; i < N; i++) {
		assert_int_equal(rs_wire_next(&w, &f, &err), 1);
		assert_int_equal(f.value, i & 0x3fff);
	}
	assert_int_equal(rs_wire_next(&w, &f, &err), 0);
	/* Payloads longer than the window, and ones that begin before what it holds. */
	f = (struct rs_field){.number = 1, .wire = 2, .body = 1, .len = 3 * N - 1};
	assert_int_equal(rs_wire_bytes(&w, &f, 0, copy, f.len, &err), 0);
	assert_memory_equal(copy, bytes + 1, f.len);
	assert_int_equal(rs_wire_bytes(&w, &f, 16380, copy, 16384, &err), 0);
	assert_memory_equal(copy, bytes + 16381, 16384);
	free(bytes);
	free(copy);
}

/* ------------------------------------------------------------------------- sniff */

#define LFS "version https://git-lfs.github.com/spec/v1\n"
#define OID "oid sha256:4d7a214614ab2935c943f9e0ff69d22eadbb8f32b1258daaa5e2ca24d17e2393\n"

static const struct sniff_row {
	const char *name, *bytes;
	size_t len;
	enum rs_code code;
	const char *words, *hint;
} foreign[] = {
	{"plain .ckpt", BYTES("\x0a\x1c\x0a\x01w\x12\x17"), RS_OK, "", ""},
	{"safetensors", BYTES("\x08\0\0\0\0\0\0\0{}      "), RS_OK, "", ""},
	{"strategy", BYTES("\x08\x01\x12\x00"), RS_OK, "", ""},
	{"one byte", BYTES("\x0a"), RS_OK, "", ""},
	{"JSON with a <", BYTES("{\"<html\":1}"), RS_OK, "", ""},
	{"other version line", BYTES("version 2\n"), RS_OK, "", ""},
	/* 0A EF BF BD 01 is also the true length 3104751; floats behind it are no UTF-8. */
	{"a .ckpt of that length", BYTES("\x0a\xef\xbf\xbd\x01\x0a\x01w\x00\x00\x80\x3f"), RS_OK,
		"", ""},

	{"empty", BYTES(""), RS_CORRUPT, "x.ckpt: expected a checkpoint, found an empty file",
		"copy it again"},
	{"LFS pointer", BYTES(LFS OID "size 1234567890\n"), RS_CORRUPT,
		"x.ckpt: expected a checkpoint, found a Git LFS pointer to a file of 1.2 GB",
		"git lfs pull"},
	{"small LFS pointer", BYTES(LFS OID "size 999\n"), RS_CORRUPT, "file of 999 bytes", "lfs"},
	{"LFS of 999999 bytes", BYTES(LFS OID "size 999999\n"), RS_CORRUPT, "file of 1.0 MB",
		"lfs"},
	{"LFS of 2^64-1", BYTES(LFS OID "size 18446744073709551615"), RS_CORRUPT, "18.4 EB", "lfs"},
	{"LFS of 2^64", BYTES(LFS OID "size 18446744073709551616\n"), RS_CORRUPT, "unknown size",
		"lfs"},
	{"cut LFS pointer", BYTES(LFS), RS_CORRUPT, "Git LFS pointer to a file of unknown size",
		"lfs"},
	{"LFS pointer with a word", BYTES(LFS OID "size big\n"), RS_CORRUPT, "unknown size", "lfs"},
	{"HTML", BYTES("<!DOCTYPE html><html>"), RS_CORRUPT, "found an HTML page", "download"},
	{"HTML, small letters", BYTES("\r\n  <!doctype html>"), RS_CORRUPT, "HTML page",
		"download"},
	{"HTML without doctype", BYTES("\t<HTML><head>"), RS_CORRUPT, "HTML page", "download"},
	{"text-converted", BYTES("\x0a\xef\xbf\xbd\x01\x0a\x01w\x00\x00\xef\xbf\xbd\x3f"),
		RS_CORRUPT, "text conversion (bytes 0A EF BF BD)", "binary"},
	{"AES-GCM", BYTES("\xd8\x5e\x3a\x7f...."), RS_UNSUPPORTED, "encrypted (AES-GCM)",
		"its key"},
	{"AES-CBC", BYTES("\xd9\x5e\x3a\x7f...."), RS_UNSUPPORTED, "encrypted (AES-CBC)",
		"its key"},
	{"SM4-CBC", BYTES("\xda\x5e\x3a\x7f"), RS_UNSUPPORTED, "encrypted (SM4-CBC)", "its key"},
	{"one above", BYTES("\xdb\x5e\x3a\x7f"), RS_OK, "", ""},
	{"three bytes of a magic", BYTES("\xd8\x5e\x3a"), RS_OK, "", ""},
};

static void sniff_table(void **state)
{
	(void)state;
	for (size_t i = 0; i < COUNT(foreign); i++) {
		const struct sniff_row *row = &foreign[i];
		struct rs_err err = {0};
		struct rs_file file;
		int rc;

		rs_file_memory(row->bytes, row->len, "x.ckpt", &file);
		rc = rs_sniff_foreign(&file, &err);
		if (rc != (row->code == RS_OK ? 0 : -1))
			fail_msg("row '%s': returned %d: %s", row->name, rc, err.msg);
		assert_refused(row->name, &err, row->code, row->words);
		assert_non_null(strstr(err.hint, row->hint));
	}
}

/* The 4 KB that are looked at may end inside a character: a 2-byte one is cut at byte 4096. */
static void sniff_head_may_cut_a_character(void **state)
{
	struct rs_err err = {0};
	struct rs_file file;
	char bytes[5000];

	(void)state;
	memcpy(bytes, "\x0a\xef\xbf\xbd\x01", 5);
	for (size_t i = 5; i < sizeof(bytes); i++)
		bytes[i] = i % 2 ? '\xc3' : '\xa9';
	bytes[sizeof(bytes) - 1] = ' ';
	rs_file_memory(bytes, sizeof(bytes), "x.ckpt", &file);
	assert_int_equal(rs_sniff_foreign(&file, &err), -1);
	assert_refused("cut character", &err, RS_CORRUPT, "text conversion");
	/* The same bytes as a whole file of 4096 are no UTF-8. */
	rs_file_memory(bytes, 4096, "x.ckpt", &file);
	assert_int_equal(rs_sniff_foreign(&file, &err), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(reader_reads_a_column),
		cmocka_unit_test(reader_failure_sticks),
		cmocka_unit_test(reader_refuses_huge_lengths),
		cmocka_unit_test(varint_table),
		cmocka_unit_test(wire_table),
		cmocka_unit_test(wire_enters_nested_messages),
		cmocka_unit_test(wire_nested_length_stays_inside),
		cmocka_unit_test(wire_says_when_a_file_is_cut),
		cmocka_unit_test(wire_refuses_a_message_past_the_file),
		cmocka_unit_test(wire_never_reads_payloads),
		cmocka_unit_test(wire_crosses_window_borders),
		cmocka_unit_test(sniff_table),
		cmocka_unit_test(sniff_head_may_cut_a_character),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
