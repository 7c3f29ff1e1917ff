/*
 * sniff.c - recognise what people find in place of a checkpoint.
 *
 * A download or a copy that went wrong leaves something readable under the right name, and a
 * decoder could only say "length past the end". This looks at the first 4 KB once and says what the
 * file is and how to get the real one. Decoders call it before they complain.
 */
#include <ctype.h>
#include <inttypes.h>
#include <stdio.h>

#include "reshardfs/codec.h"

#define HEAD_MAX 4096

static const char lfs_line[] = "version https://git-lfs.github.com/spec/v1";

static void show_size(uint64_t bytes, char *buf, size_t size)
{
	static const char *const units[] = {"bytes", "kB", "MB", "GB", "TB", "PB", "EB"};
	double value = (double)bytes;
	int unit = 0;

	/* 999.95 would be printed as 1000.0. */
	for (; value >= (unit ? 999.95 : 1000) && unit < 6; unit++)
		value /= 1000;
	(void)snprintf(buf, size, unit ? "%.1f %s" : "%.0f %s", value, units[unit]);
}

/* Three lines of text: version, oid, size. The size is that of the file which it stands for. */
static int refuse_lfs(const struct rs_file *file, struct rs_str head, struct rs_err *err)
{
	const char *at = memmem(head.ptr, head.len, "\nsize ", 6);
	struct rs_str digits = RS_STR("");
	char real[32] = "unknown size";
	uint64_t bytes;

	if (at) {
		digits.ptr = at + 6;
		while (digits.ptr + digits.len < head.ptr + head.len &&
			isdigit((unsigned char)digits.ptr[digits.len]))
			digits.len++;
	}
	if (rs_str_u64(digits, &bytes))
		show_size(bytes, real, sizeof(real));
	(void)rs_fail(err, RS_CORRUPT,
		"%s: expected a checkpoint, found a Git LFS pointer to a file of %s", file->name,
		real);
	return rs_hint(err, "fetch the real file: run `git lfs pull` in the repository");
}

static bool is_html(struct rs_str head)
{
	static const char *const openings[] = {"<!doctype", "<html"};

	while (head.len > 0 && strchr(" \t\r\n", *head.ptr) && *head.ptr) {
		head.ptr++;
		head.len--;
	}
	for (size_t i = 0; i < sizeof(openings) / sizeof(*openings); i++) {
		size_t len = strlen(openings[i]);

		if (head.len >= len && strncasecmp(head.ptr, openings[i], len) == 0)
			return true;
	}
	return false;
}

/*
 * A text conversion turns every byte that is no UTF-8 into U+FFFD (EF BF BD), such as the length
 * after the tag 0A of a .ckpt. That alone could be a true length (one in two million), so all
 * of the head must be UTF-8, too, which weights are not.
 */
static bool is_converted(struct rs_str head, bool whole)
{
	if (head.len < 4 || memcmp(head.ptr, "\x0a\xef\xbf\xbd", 4) != 0)
		return false;
	if (rs_utf8_ok(head))
		return true;
	for (size_t cut = 1; !whole && cut <= 3; cut++) /* the head may end inside a character */
		if (rs_utf8_ok((struct rs_str){head.ptr, head.len - cut}))
			return true;
	return false;
}

/* The first word of a file that MindSpore encrypted, and the cipher that it stands for. */
static const char *cipher(struct rs_str head)
{
	static const char *const names[] = {"AES-GCM", "AES-CBC", "SM4-CBC"};
	struct rs_reader r;
	uint32_t magic;

	rs_read_init(&r, head.ptr, head.len, 0, "", NULL);
	magic = rs_read_le32(&r, "magic");
	return magic >= 0x7f3a5ed8 && magic <= 0x7f3a5eda ? names[magic - 0x7f3a5ed8] : NULL;
}

int rs_sniff_foreign(const struct rs_file *file, struct rs_err *err)
{
	char buf[HEAD_MAX];
	struct rs_str head = {buf, (size_t)rs_min(file->size, sizeof(buf))};

	if (file->size == 0) {
		(void)rs_fail(err, RS_CORRUPT, "%s: expected a checkpoint, found an empty file",
			file->name);
		return rs_hint(err, "saving or copying it was interrupted; copy it again");
	}
	if (rs_file_read(file, 0, buf, head.len, err) < 0)
		return -1;
	if (rs_str_starts(head, lfs_line))
		return refuse_lfs(file, head, err);
	if (is_html(head)) {
		(void)rs_fail(err, RS_CORRUPT, "%s: expected a checkpoint, found an HTML page",
			file->name);
		return rs_hint(err, "a download saved an error or login page; download it again");
	}
	if (is_converted(head, head.len == file->size)) {
		(void)rs_fail(err, RS_CORRUPT,
			"%s: expected a checkpoint, found one that went through a text conversion"
			" (bytes 0A EF BF BD)",
			file->name);
		return rs_hint(
			err, "bytes are lost for good; copy the original again in binary mode");
	}
	if (cipher(head)) {
		(void)rs_fail(err, RS_UNSUPPORTED,
			"%s: expected a plain checkpoint, found one that MindSpore encrypted (%s)",
			file->name, cipher(head));
		return rs_hint(err, "load it in MindSpore with its key and save it without one");
	}
	return 0;
}
