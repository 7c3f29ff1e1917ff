/*
 * report.c - what people and scripts see of a failure: one sentence on stderr, one hint, one
 * exit code. Also how sizes are written. Refuses nothing; a full or closed stdout is told.
 */
#include <errno.h>
#include <inttypes.h>

#include "fs/fs.h"

int fs_exit_code(enum rs_code code)
{
	switch (code) {
	case RS_OK:
		return FS_EXIT_OK;
	case RS_USAGE:
		return FS_EXIT_USAGE;
	case RS_MISSING:
	case RS_CORRUPT:
		return FS_EXIT_SOURCE;
	case RS_UNSUPPORTED:
		return FS_EXIT_UNSUPPORTED;
	case RS_IO:
	case RS_CHANGED:
		return FS_EXIT_IO;
	case RS_LIMIT:
	case RS_NOMEM:
		return FS_EXIT_LIMIT;
	}
	return FS_EXIT_IO;
}

int fs_report_as(int exit_code, const struct rs_err *err)
{
	fprintf(stderr, "reshardfs: %s\n", err->msg);
	if (err->hint[0])
		fprintf(stderr, "  hint: %s\n", err->hint);
	return exit_code;
}

int fs_report(const struct rs_err *err)
{
	return fs_report_as(fs_exit_code(err->code), err);
}

void fs_notes(FILE *to, const struct rs_notes *notes)
{
	for (uint64_t i = 0; i < notes->n; i++)
		fprintf(to, "warning: %s\n", notes->items[i]);
}

/* Powers of 1000 with one decimal, rounded half up; 999950 bytes are 1.0 MB, not 1000.0 kB. */
const char *fs_size(uint64_t bytes, bool exact, char *buf, size_t size)
{
	static const char *const units[] = {"kB", "MB", "GB", "TB", "PB", "EB"};
	uint64_t unit = 1000;
	size_t i = 0;

	if (exact) {
		snprintf(buf, size, "%" PRIu64, bytes);
		return buf;
	}
	if (bytes < 1000) {
		snprintf(buf, size, "%" PRIu64 " B", bytes);
		return buf;
	}
	while (i < 5 && bytes / unit >= 1000 - (bytes % unit >= unit / 20 * 19)) {
		unit *= 1000;
		i++;
	}
	uint64_t tenths = bytes / (unit / 10) + (bytes % (unit / 10) >= unit / 20);

	snprintf(buf, size, "%" PRIu64 ".%" PRIu64 " %s", tenths / 10, tenths % 10, units[i]);
	return buf;
}

int fs_finish(int exit_code)
{
	struct rs_err err = {0};

	errno = 0;
	if (fflush(stdout) == 0 && !ferror(stdout))
		return exit_code;
	rs_fail_sys(&err, errno ? errno : EIO, "standard output");
	fs_report(&err);
	return exit_code == FS_EXIT_OK ? FS_EXIT_IO : exit_code;
}
