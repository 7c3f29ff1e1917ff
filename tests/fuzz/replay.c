/*
 * replay.c - feed files to a fuzz harness, one after the other, without clang or libFuzzer.
 *
 * `make check` runs every corpus this way: each file there once broke something or shows a form
 * that must go on working. A file that cannot be read is an error, so that a pattern that
 * matched nothing does not pass as success. Each input is a heap block of exactly its length.
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static int feed(const char *path)
{
	FILE *f = fopen(path, "rb");
	uint8_t *data = NULL;
	long size = -1;
	int rc = -1;

	if (f && fseek(f, 0, SEEK_END) == 0)
		size = ftell(f);
	if (size >= 0 && fseek(f, 0, SEEK_SET) == 0)
		data = malloc(size ? (size_t)size : 1);
	if (data && fread(data, 1, (size_t)size, f) == (size_t)size) {
		(void)LLVMFuzzerTestOneInput(data, (size_t)size);
		rc = 0;
	}
	if (rc < 0)
		perror(path);
	free(data);
	if (f)
		(void)fclose(f);
	return rc;
}

int main(int argc, char **argv)
{
	int bad = 0;

	if (argc < 2) {
		(void)fprintf(stderr, "usage: %s FILE...\n", argv[0]);
		return 2;
	}
	for (int i = 1; i < argc; i++)
		bad += feed(argv[i]) < 0;
	(void)printf("%s: %d of %d files replayed\n", argv[0], argc - 1 - bad, argc - 1);
	return bad ? 1 : 0;
}
