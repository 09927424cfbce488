// SPDX-License-Identifier: GPL-2.0
/* A second function of a name that shapes.c has too. */
#include <linux/types.h>

int bs_other(int n);

static __attribute__((noipa)) int bs_same(int n)
{
	asm volatile("" ::: "memory");
	return n + 200;
}

int bs_other(int n)
{
	int result = bs_same(n);

	/* Lest it jumps there and never returns itself: that is bs_tail's part. */
	asm volatile("" : "+r" (result));
	return result;
}
