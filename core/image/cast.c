/*
 * cast.c - floats of one width shown as floats of another, while they are read.
 *
 * Everything goes through the bits of an F32 (or F64) and is rounded once, to nearest, ties to
 * even. A NaN keeps its sign and the upper bits of its payload; narrowed, it becomes quiet, so that
 * it cannot turn into an infinity by losing its lower bits. The loops are plain, over unaligned
 * bytes, for the compiler to make wide ones of.
 * Refuses nothing: rs_cast_known says what may be asked.
 */
#include "reshardfs/image.h"

static uint32_t load32(const uint8_t *p)
{
	uint32_t x;
	memcpy(&x, p, sizeof(x));
	return x;
}

static uint16_t load16(const uint8_t *p)
{
	uint16_t x;
	memcpy(&x, p, sizeof(x));
	return x;
}

static void store32(uint8_t *p, uint32_t x)
{
	memcpy(p, &x, sizeof(x));
}

static void store16(uint8_t *p, uint16_t x)
{
	memcpy(p, &x, sizeof(x));
}

/* Shift right by @n (1 to 63), to nearest, ties to even. */
static uint64_t round_shift(uint64_t x, uint32_t n)
{
	uint64_t half = 1ull << (n - 1), rest = x & ((1ull << n) - 1), kept = x >> n;
	return kept + (rest > half || (rest == half && (kept & 1)));
}

/* F32: 1 sign, 8 exponent, 23 fraction. F16: 1, 5, 10. BF16: the upper half of an F32. */
static uint16_t f32_to_bf16(uint32_t x)
{
	if ((x & 0x7fffffff) > 0x7f800000)
		return (uint16_t)(x >> 16 | 0x40);
	return (uint16_t)(((uint64_t)x + 0x7fff + (x >> 16 & 1)) >> 16);
}

static uint16_t f32_to_f16(uint32_t x)
{
	uint16_t sign = (uint16_t)(x >> 16 & 0x8000);
	uint32_t exponent = x >> 23 & 0xff, fraction = x & 0x7fffff;

	if (exponent == 0xff) /* infinity, or a NaN made quiet */
		return (uint16_t)(sign | 0x7c00 | (fraction ? 0x200 | fraction >> 13 : 0));
	if (exponent >= 113) { /* normal in F16, unless rounding or size makes it infinite */
		uint32_t bits = (exponent - 112) << 23 | fraction;
		uint64_t half = exponent > 142 ? 0x7c00 : round_shift(bits, 13);
		return (uint16_t)(sign | half);
	}
	if (exponent < 102) /* below half of the smallest subnormal */
		return sign;
	return (uint16_t)(sign | round_shift(fraction | 0x800000, 126 - exponent));
}

static uint32_t f16_to_f32(uint16_t h)
{
	uint32_t sign = (uint32_t)(h & 0x8000) << 16, exponent = h >> 10 & 0x1f;
	uint32_t fraction = h & 0x3ff;

	if (exponent == 0x1f)
		return sign | 0x7f800000 | (fraction ? 0x400000 | fraction << 13 : 0);
	if (exponent)
		return sign | (exponent + 112) << 23 | fraction << 13;
	if (!fraction)
		return sign;
	exponent = 113; /* subnormal in F16, normal in F32 */
	while (!(fraction & 0x400)) {
		fraction <<= 1;
		exponent--;
	}
	return sign | exponent << 23 | (fraction & 0x3ff) << 13;
}

/*
 * F64 to a float of @e_bits exponent and @f_bits fraction, rounded once: by way of F32 the last
 * bit could be rounded twice.
 */
static uint32_t f64_to(uint64_t x, uint32_t e_bits, uint32_t f_bits)
{
	uint32_t sign = (uint32_t)(x >> 63) << (e_bits + f_bits), bias = (1u << (e_bits - 1)) - 1;
	uint32_t infinite = ((1u << e_bits) - 1) << f_bits, drop = 52 - f_bits;
	int64_t exponent = (int64_t)(x >> 52 & 0x7ff) - 1023 + bias;
	uint64_t fraction = x & 0xfffffffffffffull;

	if ((x >> 52 & 0x7ff) == 0x7ff)
		return sign | infinite |
		       (fraction ? 1u << (f_bits - 1) | (uint32_t)(fraction >> drop) : 0);
	if (exponent >= (1 << e_bits) - 1)
		return sign | infinite;
	if (exponent > 0)
		return sign | (uint32_t)round_shift((uint64_t)exponent << 52 | fraction, drop);
	if (exponent < -(int64_t)f_bits) /* below half of the smallest subnormal */
		return sign;
	/* An F64 that is subnormal itself never gets here: it is far below every other type. */
	return sign | (uint32_t)round_shift(fraction | 1ull << 52, drop + 1 + (uint32_t)-exponent);
}

/* One loop per pair of widths: the compiler sees the conversion inside it. */
#define LOOP(from_bytes, to_bytes, convert)                                                        \
	for (uint64_t i = 0; i < n; i++) {                                                         \
		const uint8_t *s = src + i * (from_bytes);                                         \
		uint8_t *d = dst + i * (to_bytes);                                                 \
		convert;                                                                           \
	}

static uint64_t load64(const uint8_t *p)
{
	uint64_t x;
	memcpy(&x, p, sizeof(x));
	return x;
}

static void from_f64(enum rs_dtype to, const uint8_t *src, uint8_t *dst, uint64_t n)
{
	if (to == RS_DT_F32)
		LOOP(8, 4, store32(d, f64_to(load64(s), 8, 23)))
	else if (to == RS_DT_F16)
		LOOP(8, 2, store16(d, (uint16_t)f64_to(load64(s), 5, 10)))
	else
		LOOP(8, 2, store16(d, (uint16_t)f64_to(load64(s), 8, 7)))
}

void rs_cast(enum rs_dtype from, enum rs_dtype to, const uint8_t *src, uint8_t *dst, uint64_t n)
{
	if (from == to)
		memcpy(dst, src, n * rs_dtype_bits(from) / 8);
	else if (from == RS_DT_F64)
		from_f64(to, src, dst, n);
	else if (from == RS_DT_F32 && to == RS_DT_BF16)
		LOOP(4, 2, store16(d, f32_to_bf16(load32(s))))
	else if (from == RS_DT_F32)
		LOOP(4, 2, store16(d, f32_to_f16(load32(s))))
	else if (from == RS_DT_BF16 && to == RS_DT_F32)
		LOOP(2, 4, store32(d, (uint32_t)load16(s) << 16))
	else if (from == RS_DT_BF16)
		LOOP(2, 2, store16(d, f32_to_f16((uint32_t)load16(s) << 16)))
	else if (to == RS_DT_F32)
		LOOP(2, 4, store32(d, f16_to_f32(load16(s))))
	else
		LOOP(2, 2, store16(d, f32_to_bf16(f16_to_f32(load16(s)))))
}
