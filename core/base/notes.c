/*
 * notes.c - remarks for people, each once, in the order in which they came up. A remark that cannot
 * be kept (no memory, or too many) is dropped: remarks are a courtesy and never a reason to fail.
 * Next: the `plan` verb, which prints them.
 */
#include <stdio.h>

#include "internal.h"

/*
 * Nobody reads more, and looking for repetitions stays cheap. What is over is told as one last
 * remark.
 */
#define NOTES_MAX 500
#define NOTE_BYTES 1024

static bool stands(const struct rs_notes *notes, const char *text)
{
	for (uint64_t i = 0; i < notes->n; i++)
		if (strcmp(notes->items[i], text) == 0)
			return true;
	return false;
}

static void add(struct rs_notes *notes, const char *text)
{
	size_t len = strlen(text);
	char *copy;

	if (rs_grow(&notes->items, &notes->cap, notes->n + 1, sizeof(*notes->items), NULL) < 0)
		return;
	copy = rs_alloc(len + 1, NULL);
	if (!copy)
		return;
	memcpy(copy, text, len + 1);
	notes->items[notes->n++] = copy;
}

void rs_note(struct rs_notes *notes, const char *fmt, ...)
{
	char text[NOTE_BYTES];
	va_list ap;
	int len;

	if (!notes || notes->n > NOTES_MAX)
		return;
	va_start(ap, fmt);
	len = vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	if (len < 0)
		return;
	rs__scrub(text);
	if (!stands(notes, text))
		add(notes, notes->n < NOTES_MAX ? text : "more remarks are left out");
}

void rs_notes_done(struct rs_notes *notes)
{
	for (uint64_t i = 0; i < notes->n; i++)
		rs_free(notes->items[i]);
	rs_free(notes->items);
	*notes = (struct rs_notes){0};
}
