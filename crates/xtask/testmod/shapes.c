// SPDX-License-Identifier: GPL-2.0
/* A function for each kind of argument and return value; see README. */
/*
 * The module is built without objtool, which would turn the jumps of static branches into the kernel's no-ops: let them be
 * no-ops from the start (arch/x86/include/asm/jump_label.h).
 */
#undef CONFIG_HAVE_JUMP_LABEL_HACK

#include <linux/dcache.h>
#include <linux/err.h>
#include <linux/in.h>
#include <linux/in6.h>
#include <linux/module.h>
#include <linux/moduleparam.h>
#include <linux/socket.h>
#include <linux/types.h>

/* Not static, and opaque to the compiler's analysis across functions: the prototype is what the registers hold. */
#define SHAPE __attribute__((noipa))
#define OPAQUE asm volatile("" ::: "memory")

enum bs_color { BS_LOW = -2, BS_RED = 0, BS_BLUE = 5 };
enum bs_wide { BS_SMALL = 1, BS_HUGE = 0x1000000001ULL };

struct bs_list { s32 n; s16 v[3]; };
struct bs_pair { s32 first; u32 second; };
struct bs_four { s16 a; u8 b; s8 c; };
struct bs_twelve { s32 a, b, c; };
struct bs_sixteen { s64 a; s32 b; u16 c; s8 d; bool e; };
struct bs_sockptr { union { void *kernel; void *user; }; bool is_kernel : 1; };
struct bs_bits { u32 one : 1; u32 three : 3; s32 five : 5; u32 rest : 23; s64 minus : 2; u64 wide : 33; u64 : 0; };
struct bs_nested { union { struct { u16 low, high; }; u32 both; }; struct { s8 x, y; } in; u8 list[2]; };
struct bs_array { s16 v[4]; };
struct bs_tag { char tag[4]; s32 n; };
union bs_union { u32 u; s32 i; u8 b[4]; };
struct bs_flex { int n; int v[]; };
struct bs_large { u64 a, b, c; };

#define CREATE_TRACE_POINTS
#include "events.h"

SHAPE void bs_int8(u8 a, s8 b, u8 c, s8 d) { OPAQUE; }
SHAPE void bs_int16(u16 a, s16 b, s16 c) { OPAQUE; }
SHAPE void bs_int32(u32 a, s32 b, s32 c, u32 d) { OPAQUE; }
SHAPE void bs_int64(u64 a, s64 b, s64 c, unsigned long d) { OPAQUE; }
SHAPE void bs_bool(bool yes, bool no) { OPAQUE; }
SHAPE void bs_char(char letter, char newline, char high) { OPAQUE; }
SHAPE void bs_enum(enum bs_color low, enum bs_color red, enum bs_color blue, enum bs_color none) { OPAQUE; }
SHAPE void bs_enum64(enum bs_wide small, enum bs_wide huge) { OPAQUE; }
SHAPE void bs_pointers(void *null, struct bs_pair *pair, const struct bs_flex *flex, void **error) { OPAQUE; }
SHAPE void bs_callback(void (*fn)(u8, s8, u8, s8)) { OPAQUE; }
SHAPE void bs_no_code(void (*data)(void), void (*beyond)(void)) { OPAQUE; }
SHAPE void bs_stale(int n, const char *text, struct sockaddr *address, struct qstr *name) { OPAQUE; }
SHAPE void bs_strings(const char *brief, const char *fits, const char *over, const char *longer) { OPAQUE; }
SHAPE void bs_odd_strings(const char *odd, const char *empty, const char *null, char *writable) { OPAQUE; }
SHAPE void bs_struct4(struct bs_four s, int after) { OPAQUE; }
SHAPE void bs_struct8(int before, struct bs_pair s, int after) { OPAQUE; }
SHAPE void bs_struct12(struct bs_twelve s, int after) { OPAQUE; }
SHAPE void bs_struct16(struct bs_sixteen s, s8 after, int last) { OPAQUE; }
SHAPE void bs_sockptr(int fd, struct bs_sockptr optval, unsigned int optlen) { OPAQUE; }
SHAPE void bs_bits(struct bs_bits bits, int after) { OPAQUE; }
SHAPE void bs_nested(struct bs_nested s) { OPAQUE; }
SHAPE void bs_array(struct bs_array s) { OPAQUE; }
SHAPE void bs_tag(struct bs_tag s) { OPAQUE; }
SHAPE void bs_union(union bs_union u, int after) { OPAQUE; }
SHAPE void bs_six(int a, u8 b, s64 c, u16 d, s8 e, int f) { OPAQUE; }
SHAPE void bs_seven(int a, int b, int c, int d, int e, int f, s8 g) { OPAQUE; }
SHAPE void bs_eight(int a, int b, int c, int d, int e, int f, s64 g, u16 h) { OPAQUE; }
SHAPE int bs_twelve(int a, int b, int c, int d, int e, int f, int g, int h, int i, int j, int k, s8 l) { OPAQUE; return -12; }
SHAPE void bs_thirteen(int a, int b, int c, int d, int e, int f, int g, int h, int i, int j, int k, int l, int m) { OPAQUE; }
/* The structure does not fit the one register that is left: it goes onto the stack whole, and what follows takes that one. */
SHAPE void bs_straddle(s64 a, s64 b, s64 c, s64 d, s64 e, struct bs_sixteen s, s64 last) { OPAQUE; }
SHAPE void bs_large(struct bs_large s) { OPAQUE; }
SHAPE void bs_variadic(int n, ...) { OPAQUE; }
SHAPE void bs_void(void) { OPAQUE; }

/* Returns that leave in the upper part of the register what no reader may take for the value. */
#define RETURNS(type, name, value) \
	SHAPE type name(void) \
	{ \
		unsigned long word = value; \
		type result; \
		asm volatile("" : "=a" (result) : "0" (word)); \
		return result; \
	}
RETURNS(bool, bs_ret_true, 0x1234567812345601UL)
RETURNS(bool, bs_ret_false, 0x1234567812345600UL)
RETURNS(u8, bs_ret_u8, 0x12345678123456feUL)
RETURNS(s8, bs_ret_s8, 0x12345678123456feUL)
RETURNS(s16, bs_ret_s16, 0x123456781234fffeUL)
RETURNS(int, bs_ret_int, 0x12345678fffffff5UL)
RETURNS(u32, bs_ret_u32, 0x12345678fffffff5UL)
SHAPE long bs_ret_long(void) { OPAQUE; return -11; }
SHAPE enum bs_color bs_ret_enum(void) { OPAQUE; return BS_LOW; }
SHAPE struct bs_pair *bs_ret_null(void) { OPAQUE; return NULL; }
SHAPE struct bs_pair *bs_ret_error(void) { OPAQUE; return ERR_PTR(-22); }
SHAPE const char *bs_ret_text(void) { OPAQUE; return "returned"; }
SHAPE struct bs_pair bs_ret_struct(void) { OPAQUE; return (struct bs_pair){ 1, 2 }; }

SHAPE u64 bs_factorial(unsigned int n)
{
	u64 rest = 1;

	if (n > 1)
		rest = bs_factorial(n - 1);
	/* Lest the compiler make a loop of it. */
	asm volatile("" : "+r" (rest));
	return n * rest;
}

static SHAPE int bs_same(int n)
{
	OPAQUE;
	return n + 100;
}

int bs_other(int n);

SHAPE int bs_tail_called(int n) { OPAQUE; return n + 1; }
/* Ends in a jump to the other. */
SHAPE int bs_tail(int n) { return bs_tail_called(n * 2); }

/* The compiler makes a copy of its own liking of this one, and drops the original. */
static noinline int bs_suffixed(struct bs_pair *pair, int constant, int n)
{
	OPAQUE;
	return pair->first * constant + n;
}

/* No memory is here: between the modules' and the fixed mappings. */
#define NOWHERE 0xffffffffff000000UL

/* Calls of one function, each of which has less than the one before it. */
static void stale(void)
{
	static struct sockaddr_in in = { .sin_family = AF_INET };
	static struct sockaddr_in6 in6 = { .sin6_family = AF_INET6 };
	static struct sockaddr unspecified = { .sa_family = AF_UNSPEC };
	static struct qstr whole, brief, lost;

	in.sin_port = htons(8080);
	in.sin_addr.s_addr = htonl(0x7f000001);
	in6.sin6_port = htons(443);
	whole.name = (const unsigned char *)"the first name";
	whole.len = 14;
	brief.name = (const unsigned char *)"y";
	brief.len = 1;
	lost.name = (const unsigned char *)NOWHERE;
	lost.len = 5;
	bs_stale(1, "a text to be left over", (struct sockaddr *)&in, &whole);
	bs_stale(2, NULL, NULL, NULL);
	bs_stale(3, "a text to be left over", (struct sockaddr *)&in, &whole);
	bs_stale(4, (const char *)NOWHERE, (struct sockaddr *)NOWHERE, (struct qstr *)NOWHERE);
	bs_stale(5, "a text to be left over", (struct sockaddr *)&in6, &whole);
	bs_stale(6, "", &unspecified, &lost);
	bs_stale(7, "x", (struct sockaddr *)&in, &brief);
}

static int run(const char *value, const struct kernel_param *param)
{
	static char writable[] = "writable";
	static struct bs_pair pair = { -1, 2 };
	static struct bs_list list = { -3, { -1, 0, 32767 } };
	static const char odd[] = "tab\tquote\"back\\slash\001\377end";
	static const char fits[] = "12345678901234567890123456789012345678901234567890123456789012";
	static const char over[] = "123456789012345678901234567890123456789012345678901234567890123";
	static const char longer[] = "1234567890123456789012345678901234567890123456789012345678901234567890";
	struct bs_sixteen sixteen = { .a = -5, .b = -6, .c = 65535, .d = -7, .e = true };
	struct bs_bits bits = { .one = 1, .three = 5, .five = -3, .rest = 0x7fffff, .minus = -1, .wide = 0x1ffffffffULL };
	struct bs_nested nested = { .low = 1, .high = 2, .in = { -1, 1 }, .list = { 254, 255 } };

	bs_int8(255, -1, 128, -128);
	bs_int16(65535, -32768, -1);
	bs_int32(4294967295U, -2147483647 - 1, -1, 0);
	bs_int64(~0ULL, -9223372036854775807LL - 1, -1, ~0UL);
	bs_bool(true, false);
	bs_char('a', '\n', (char)0xff);
	bs_enum(BS_LOW, BS_RED, BS_BLUE, (enum bs_color)77);
	bs_enum64(BS_SMALL, BS_HUGE);
	bs_pointers(NULL, &pair, (const struct bs_flex *)&list, ERR_PTR(-2));
	bs_callback(bs_int8);
	bs_no_code((void (*)(void))&pair, (void (*)(void))NOWHERE);
	stale();
	bs_strings("brief", fits, over, longer);
	bs_odd_strings(odd, "", NULL, writable);
	bs_struct4((struct bs_four){ -2, 255, -1 }, -4);
	bs_struct8(-8, pair, 8);
	bs_struct12((struct bs_twelve){ -1, 2, -3 }, -12);
	bs_struct16(sixteen, -16, 16);
	bs_sockptr(3, (struct bs_sockptr){ { .kernel = &pair }, true }, 4);
	bs_bits(bits, -9);
	bs_nested(nested);
	bs_array((struct bs_array){ { -1, 2, -3, 32767 } });
	bs_tag((struct bs_tag){ { 'A', 'B', 'C', 'D' }, -4 });
	bs_union((union bs_union){ .i = -2 }, 2);
	bs_six(-1, 200, -3, 60000, -5, -6);
	bs_seven(1, -2, 3, -4, 5, -6, -7);
	bs_eight(1, -2, 3, -4, 5, -6, -7, 65535);
	bs_twelve(1, -2, 3, -4, 5, -6, 7, -8, 9, -10, 11, -12);
	bs_thirteen(1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13);
	bs_straddle(1, 2, 3, 4, 5, sixteen, -7);
	bs_large((struct bs_large){ 1, 2, 3 });
	bs_variadic(1, 2);
	bs_void();
	bs_ret_true();
	bs_ret_false();
	bs_ret_u8();
	bs_ret_s8();
	bs_ret_s16();
	bs_ret_int();
	bs_ret_u32();
	bs_ret_long();
	bs_ret_enum();
	bs_ret_null();
	bs_ret_error();
	bs_ret_text();
	bs_ret_struct();
	bs_factorial(5);
	bs_same(1);
	bs_other(2);
	bs_tail(20);
	/* Twice, lest the call be made in place. */
	if (bs_suffixed(&pair, 3, pair.first) == bs_suffixed(&pair, 3, pair.second))
		return -EINVAL;
	trace_bs_event("event", BS_LOW, &list, -8);
	return 0;
}

static const struct kernel_param_ops operations = { .set = run };
module_param_cb(run, &operations, NULL, 0200);

MODULE_DESCRIPTION("A function for each kind of argument, for the tests of btrace");
MODULE_LICENSE("GPL");
