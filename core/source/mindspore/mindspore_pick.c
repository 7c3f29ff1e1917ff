/*
 * mindspore_pick.c - which of two .safetensors files is the later one, as MindSpore's converter
 * says: the one with the larger pair of numbers, the last two of the whole path.
 *
 *   rank_0/net-9_2.safetensors < rank_0/net-10_2.safetensors    (9, 2) < (10, 2)
 *
 * Numbers are compared as digits, for file names may hold longer ones than 64 bits. Next:
 * mindspore_dir.c.
 */
#include "core/source/mindspore/mindspore.h"

#include <ctype.h>

/* The last two numbers of a path, as digits without leading zeros; fewer if there are fewer. */
struct numbers {
	struct rs_str digits[2];
	uint32_t n;
};

static struct numbers last_numbers(const char *path)
{
	struct numbers out = {0};
	const char *end = path + strlen(path);

	while (end > path && out.n < 2) {
		const char *begin = end;
		while (begin > path && isdigit((unsigned char)begin[-1]))
			begin--;
		if (begin == end) {
			end--;
			continue;
		}
		out.digits[1] = out.digits[0];
		while (end - begin > 1 && *begin == '0')
			begin++;
		out.digits[0] = (struct rs_str){begin, (size_t)(end - begin)};
		out.n++;
		while (begin > path && isdigit((unsigned char)begin[-1]))
			begin--;
		end = begin;
	}
	return out;
}

int rs__ms_cmp_numbers(const char *path_a, const char *path_b)
{
	const struct numbers a = last_numbers(path_a), b = last_numbers(path_b);

	for (uint32_t i = 0; i < a.n && i < b.n; i++) {
		if (a.digits[i].len != b.digits[i].len)
			return a.digits[i].len < b.digits[i].len ? -1 : 1;
		int order = rs_str_cmp(a.digits[i], b.digits[i]);
		if (order)
			return order;
	}
	return (a.n > b.n) - (a.n < b.n);
}
