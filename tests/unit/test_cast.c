/*
 * test_cast.c - casts against the compiler's own conversions, which share no code with ours.
 *
 * float and double are the machine's; _Float16 is the compiler's where it has one. For BF16,
 * which it lacks, the definition is the judge: no BF16 lies nearer, and of two equally near ones
 * the even one was taken.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>

#include <cmocka.h>

#include "reshardfs/image.h"

#define RANDOM_CASES 2000000

static uint64_t random_state = 88172645463325252u;

static uint64_t rnd(void)
{
	random_state ^= random_state << 13;
	random_state ^= random_state >> 7;
	random_state ^= random_state << 17;
	return random_state;
}

static uint32_t bits32(float f)
{
	uint32_t x;
	memcpy(&x, &f, sizeof(x));
	return x;
}

static float float_of(uint32_t x)
{
	float f;
	memcpy(&f, &x, sizeof(f));
	return f;
}

static double double_of(uint64_t x)
{
	double d;
	memcpy(&d, &x, sizeof(d));
	return d;
}

static uint16_t cast16(enum rs_dtype from, enum rs_dtype to, const void *src)
{
	uint16_t x;
	rs_cast(from, to, src, (uint8_t *)&x, 1);
	return x;
}

static uint32_t cast32(enum rs_dtype from, const void *src)
{
	uint32_t x;
	rs_cast(from, RS_DT_F32, src, (uint8_t *)&x, 1);
	return x;
}

/* Bits that stress rounding: every exponent comes up, and fractions near ties. */
static uint32_t hard32(uint64_t i)
{
	uint32_t x = (uint32_t)rnd();
	if (i & 1)
		x = (x & 0xff800000) | (uint32_t)(1u << (x & 15)) << 8 | (x >> 4 & 3);
	if (i & 2)
		x = (x & 0x807fffff) | (uint32_t)(100 + i / 4 % 48) << 23; /* the range of F16 */
	return x;
}

#ifdef __FLT16_MAX__
static uint16_t bits16(_Float16 h)
{
	uint16_t x;
	memcpy(&x, &h, sizeof(x));
	return x;
}

static void f16_agrees_with_the_compiler(void **state)
{
	(void)state;
	for (uint32_t h = 0; h < 0x10000; h++) {
		uint16_t half = (uint16_t)h;
		_Float16 value;
		memcpy(&value, &half, sizeof(value));
		if (isnan((float)value)) {
			assert_true(isnan(float_of(cast32(RS_DT_F16, &half))));
			continue;
		}
		assert_int_equal(cast32(RS_DT_F16, &half), bits32((float)value));
	}
	for (uint64_t i = 0; i < RANDOM_CASES; i++) {
		uint32_t x = hard32(i);
		uint64_t y = rnd();
		uint16_t ours = cast16(RS_DT_F32, RS_DT_F16, &x);
		if (isnan(float_of(x)))
			assert_true((ours & 0x7fff) > 0x7c00);
		else
			assert_int_equal(ours, bits16((_Float16)float_of(x)));
		if (i & 1) /* doubles near the range of F16 */
			y = (y & 0x800fffffffffffffull) | (uint64_t)(990 + i % 60) << 52;
		if (!isnan(double_of(y)))
			assert_int_equal(
				cast16(RS_DT_F64, RS_DT_F16, &y), bits16((_Float16)double_of(y)));
	}
}
#endif

static void f64_to_f32_agrees_with_the_machine(void **state)
{
	(void)state;
	for (uint64_t i = 0; i < RANDOM_CASES; i++) {
		uint64_t y = rnd();
		if (i & 1) /* the range of F32, subnormals included */
			y = (y & 0x800fffffffffffffull) | (uint64_t)(870 + i % 290) << 52;
		if (i & 2)
			y &= ~0xfffffffull; /* near ties */
		if (isnan(double_of(y)))
			assert_true(isnan(float_of(cast32(RS_DT_F64, &y))));
		else
			assert_int_equal(cast32(RS_DT_F64, &y), bits32((float)double_of(y)));
	}
}

static void bf16_is_the_nearest(void **state)
{
	(void)state;
	for (uint64_t i = 0; i < RANDOM_CASES; i++) {
		uint32_t x = hard32(i);
		uint16_t ours = cast16(RS_DT_F32, RS_DT_BF16, &x);
		if (isnan(float_of(x))) {
			assert_true((ours & 0x7fff) > 0x7f80);
			continue;
		}
		uint16_t below = (uint16_t)(x >> 16), above = (uint16_t)(below + 1);
		double low = fabs((double)float_of(x) - float_of((uint32_t)below << 16));
		/* The step past the largest finite one counts as if exponents went on. */
		double high = isinf(float_of((uint32_t)above << 16))
				      ? fabs(ldexp(1, 128) - fabs((double)float_of(x)))
				      : fabs((double)float_of(x) - float_of((uint32_t)above << 16));
		uint16_t right = low < high   ? below
				 : high < low ? above
				 : below & 1  ? above
					      : below;
		assert_int_equal(ours, (x & 0xffff) ? right : below);
	}
}

static void widening_bf16_is_exact_and_comes_back(void **state)
{
	(void)state;
	for (uint32_t h = 0; h < 0x10000; h++) {
		uint16_t half = (uint16_t)h;
		uint32_t wide = cast32(RS_DT_BF16, &half);
		assert_int_equal(wide, h << 16);
		uint16_t back = cast16(RS_DT_F32, RS_DT_BF16, &wide);
		if ((h & 0x7fff) > 0x7f80) /* a NaN comes back as a NaN of the same sign */
			assert_int_equal(back, h | 0x40);
		else
			assert_int_equal(back, h);
	}
}

static void between_the_halves_rounds_once(void **state)
{
	(void)state;
	for (uint32_t h = 0; h < 0x10000; h++) {
		uint16_t half = (uint16_t)h;
		uint32_t wide = cast32(RS_DT_F16, &half);
		assert_int_equal(
			cast16(RS_DT_F16, RS_DT_BF16, &half), cast16(RS_DT_F32, RS_DT_BF16, &wide));
		wide = (uint32_t)h << 16;
		assert_int_equal(
			cast16(RS_DT_BF16, RS_DT_F16, &half), cast16(RS_DT_F32, RS_DT_F16, &wide));
	}
}

static void only_floats_are_cast(void **state)
{
	(void)state;
	assert_true(rs_cast_known(RS_DT_F32, RS_DT_BF16));
	assert_true(rs_cast_known(RS_DT_F64, RS_DT_F16));
	assert_false(rs_cast_known(RS_DT_F32, RS_DT_F64));
	assert_false(rs_cast_known(RS_DT_I32, RS_DT_F32));
	assert_false(rs_cast_known(RS_DT_F8_E4M3, RS_DT_F16));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
#ifdef __FLT16_MAX__
		cmocka_unit_test(f16_agrees_with_the_compiler),
#endif
		cmocka_unit_test(f64_to_f32_agrees_with_the_machine),
		cmocka_unit_test(bf16_is_the_nearest),
		cmocka_unit_test(widening_bf16_is_exact_and_comes_back),
		cmocka_unit_test(between_the_halves_rounds_once),
		cmocka_unit_test(only_floats_are_cast),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
