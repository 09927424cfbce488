/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* A 32-bit program: openat, read, pread64 and close, with known arguments, and exit with status 0. */
	.section .rodata
path:	.asciz "/no/such/file32"

	.text
	.globl _start
_start:
	movl $295, %eax		/* openat(AT_FDCWD, path, O_RDONLY, 0644) */
	movl $-100, %ebx
	movl $path, %ecx
	xorl %edx, %edx
	movl $0644, %esi
	int $0x80

	movl $3, %eax		/* read(9, 0xfffff000, 77) */
	movl $9, %ebx
	movl $0xfffff000, %ecx
	movl $77, %edx
	int $0x80

	movl $180, %eax		/* pread64(9, 0xfffff000, 78, 0x123456789) */
	movl $9, %ebx
	movl $0xfffff000, %ecx
	movl $78, %edx
	movl $0x23456789, %esi
	movl $1, %edi
	int $0x80

	movl $6, %eax		/* close(9) */
	movl $9, %ebx
	int $0x80

	movl $1, %eax
	xorl %ebx, %ebx
	int $0x80

	.section .note.GNU-stack, "", @progbits
