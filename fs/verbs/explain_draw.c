/*
 * explain_draw.c - a two-dimensional tensor as a picture: a letter a source file, scaled down to
 * what a terminal shows. For a 4 x 6 slice from two files:
 *
 *              0     6
 *            0 +------+
 *              |AAAABB|
 *              |AAAABB|
 *              |AAAABB|
 *              |AAAABB|
 *            4 +------+
 *              A rank_0/x.ckpt
 *              B rank_1/x.ckpt
 *
 * A cell of the picture shows the element in its middle. Read next: nest.c, fs__nest_at.
 */
#include "explain.h"

#include <inttypes.h>

#define COLUMNS 64
#define LINES 16
#define LETTERS 26

/* Letters in order of first appearance; files beyond Z share '#'. */
struct legend {
	uint32_t units[LETTERS];
	uint32_t n;
	bool more, zeros;
};

static char letter(struct legend *l, const struct rs_run *run)
{
	if (run == NULL || run->entry == NULL) {
		l->zeros = true;
		return '.';
	}
	for (uint32_t i = 0; i < l->n; i++)
		if (l->units[i] == run->unit)
			return (char)('A' + i);
	if (l->n == LETTERS) {
		l->more = true;
		return '#';
	}
	l->units[l->n] = run->unit;
	return (char)('A' + l->n++);
}

/* The element in the middle of cell @i when @n cells show @dim elements. */
static uint64_t middle(uint64_t i, uint64_t n, uint64_t dim)
{
	return (uint64_t)((unsigned __int128)(2 * i + 1) * dim / (2 * n));
}

static void rule(FILE *to, uint64_t row, uint64_t columns)
{
	fprintf(to, "%12" PRIu64 " +", row);
	for (uint64_t i = 0; i < columns; i++)
		fputc('-', to);
	fputs("+\n", to);
}

static void explain_legend(FILE *to, const struct explain *x, const struct legend *l)
{
	for (uint32_t i = 0; i < l->n; i++) {
		const struct rs_unit *unit = rs_catalog_unit(x->src->cat, l->units[i]);

		fprintf(to, "%13s %c %s\n", "", (char)('A' + i),
			RS_SHOW(rs_str(fs__source_file_name(x->src, unit->first_file))));
	}
	if (l->more)
		fprintf(to, "%13s # other files\n", "");
	if (l->zeros)
		fprintf(to, "%13s . zeros\n", "");
}

void fs__explain_draw(FILE *to, const struct explain *x)
{
	const struct rs_shape *s = &x->want->shape;
	uint64_t lines = rs_min(s->dims[0], LINES), columns = rs_min(s->dims[1], COLUMNS);
	struct legend legend = {0};
	uint64_t row_bytes;

	if (s->n_axes != 2 || x->nest->bytes == 0)
		return;
	row_bytes = x->nest->bytes / s->dims[0];
	fprintf(to, "%12s 0%*" PRIu64 "\n", "", (int)columns + 1, s->dims[1]);
	rule(to, 0, columns);
	for (uint64_t i = 0; i < lines; i++) {
		uint64_t row = middle(i, lines, s->dims[0]);

		fprintf(to, "%13s|", "");
		for (uint64_t k = 0; k < columns; k++) {
			uint64_t column = middle(k, columns, s->dims[1]);
			/* Divided last: elements of some types are smaller than a byte. */
			uint64_t at =
				(uint64_t)((unsigned __int128)column * row_bytes / s->dims[1]);

			fputc(letter(&legend, fs__nest_at(x->nest, row * row_bytes + at)), to);
		}
		fputs("|\n", to);
	}
	rule(to, s->dims[0], columns);
	explain_legend(to, x, &legend);
}
