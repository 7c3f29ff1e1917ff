/*
 * err.c - filling struct rs_err: messages that are cut rather than overrun, carry the system's
 * reason, and never bring a control byte to a terminal. Of codes it knows only those that an errno
 * tells; fs/ turns them into exit codes and errnos. Next: str.c, for names from files.
 */
#include <errno.h>
#include <stdio.h>

#include "internal.h"

/* In a text of @size bytes that was cut, end with "..." behind the last whole character. */
static void end_cut(char *text, size_t size)
{
	size_t end = size - 4;

	while (end > 0 && ((unsigned char)text[end] & 0xc0) == 0x80)
		end--;
	memcpy(text + end, "...", 4);
}

void rs__scrub(char *s)
{
	for (; *s; s++)
		if ((unsigned char)*s < 0x20 || *s == 0x7f)
			*s = '?';
}

static void format_text(char *text, size_t size, const char *fmt, va_list ap)
	__attribute__((format(printf, 3, 0)));

static void format_text(char *text, size_t size, const char *fmt, va_list ap)
{
	int n = vsnprintf(text, size, fmt, ap);

	if (n < 0)
		text[0] = 0;
	else if ((size_t)n >= size)
		end_cut(text, size);
	rs__scrub(text);
}

/* Append to a text that may have been cut already. */
static void append(char *text, size_t size, const char *more)
{
	size_t len = strlen(text), extra = strlen(more);

	if (extra >= size - len) {
		memcpy(text + len, more, size - len - 1);
		text[size - 1] = 0;
		end_cut(text, size);
	} else {
		memcpy(text + len, more, extra + 1);
	}
}

/* Arguments may point into @err itself, so the text is made beside it. */
static void fill(struct rs_err *err, enum rs_code code, int sys, const char *text)
{
	err->code = code;
	err->sys = sys;
	memcpy(err->msg, text, strlen(text) + 1);
	err->hint[0] = 0;
}

int rs_fail(struct rs_err *err, enum rs_code code, const char *fmt, ...)
{
	char text[sizeof(err->msg)];
	va_list ap;

	if (!err)
		return -1;
	va_start(ap, fmt);
	format_text(text, sizeof(text), fmt, ap);
	va_end(ap);
	fill(err, code, 0, text);
	return -1;
}

static enum rs_code code_of(int sys)
{
	switch (sys) {
	case ENOMEM:
		return RS_NOMEM;
	case EMFILE:
	case ENFILE:
		return RS_LIMIT;
	default:
		return RS_IO;
	}
}

int rs_fail_sys(struct rs_err *err, int sys, const char *fmt, ...)
{
	char text[sizeof(err->msg)], reason[128];
	va_list ap;

	if (!err)
		return -1;
	va_start(ap, fmt);
	format_text(text, sizeof(text), fmt, ap);
	va_end(ap);
	append(text, sizeof(text), ": ");
	append(text, sizeof(text), strerror_r(sys, reason, sizeof(reason)));
	fill(err, code_of(sys), sys, text);
	if (sys == EMFILE)
		rs_hint(err, "raise the number of open files (ulimit -n)");
	return -1;
}

bool rs_err_passes(const struct rs_err *err)
{
	return err->code == RS_IO || err->code == RS_NOMEM || (err->code == RS_LIMIT && err->sys);
}

int rs_hint(struct rs_err *err, const char *fmt, ...)
{
	char text[sizeof(err->hint)];
	va_list ap;

	if (!err)
		return -1;
	va_start(ap, fmt);
	format_text(text, sizeof(text), fmt, ap);
	va_end(ap);
	memcpy(err->hint, text, strlen(text) + 1);
	return -1;
}

int rs_err_prefix(struct rs_err *err, const char *fmt, ...)
{
	char text[sizeof(err->msg)];
	va_list ap;

	if (!err)
		return -1;
	va_start(ap, fmt);
	format_text(text, sizeof(text), fmt, ap);
	va_end(ap);
	append(text, sizeof(text), ": ");
	append(text, sizeof(text), err->msg);
	memcpy(err->msg, text, strlen(text) + 1);
	return -1;
}

const char *rs_code_name(enum rs_code code)
{
	switch (code) {
	case RS_OK:
		return "ok";
	case RS_USAGE:
		return "usage";
	case RS_MISSING:
		return "missing";
	case RS_CORRUPT:
		return "corrupt";
	case RS_UNSUPPORTED:
		return "unsupported";
	case RS_IO:
		return "io";
	case RS_CHANGED:
		return "changed";
	case RS_LIMIT:
		return "limit";
	case RS_NOMEM:
		return "nomem";
	}
	return "unknown";
}
