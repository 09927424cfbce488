// SPDX-License-Identifier: GPL-2.0
/* Answers bpf_get_branch_snapshot with records that were given; see README. */
/* As in testmod/shapes.c: built without objtool. */
#undef CONFIG_HAVE_JUMP_LABEL_HACK

#include <linux/kallsyms.h>
#include <linux/kprobes.h>
#include <linux/module.h>
#include <linux/moduleparam.h>
#include <linux/perf_event.h>
#include <linux/sched/task_stack.h>
#include <linux/slab.h>
#include <linux/static_call.h>
#include <linux/string.h>

#define MOST 32

enum { FIXED, PROG, TRAMP, ENTER };

/* An address, or what to add to one that is not known yet. */
struct place { int kind; u64 value; };
struct given { struct place from, to; u64 flags; };

/* Newest first, as they are handed over. */
static struct given given[MOST];
static int count;
static int returned = -1;
static atomic_t asked = ATOMIC_INIT(0);

static unsigned long (*lookup)(const char *name);
static bool (*is_bpf)(unsigned long address);

/* The start of the symbol that covers an address; the address if there is none. */
static u64 start_of(u64 address)
{
	char text[KSYM_SYMBOL_LEN], *plus;
	unsigned long long offset = 0;

	sprint_symbol(text, address);
	plus = strrchr(text, '+');
	if (!plus || sscanf(plus, "+0x%llx", &offset) != 1)
		return address;
	return address - offset;
}

static u64 resolve(const struct place *place, u64 prog, u64 tramp)
{
	switch (place->kind) {
	case PROG:
		return prog + place->value;
	case TRAMP:
		return tramp + place->value;
	case ENTER:
		return start_of(tramp) + place->value;
	default:
		return place->value;
	}
}

/* Its name is one by which the kernel's own are known, too. */
static noinline int btrace_lbr_snapshot_branch_stack(struct perf_branch_entry *entries, unsigned int room)
{
	u64 *frame = __builtin_frame_address(0);
	u64 prog = (u64)__builtin_return_address(0), tramp = 0;
	u64 *caller = (u64 *)frame[0];
	unsigned long stack = (unsigned long)task_stack_page(current);
	int i, have = READ_ONCE(count), said = READ_ONCE(returned);

	atomic_inc(&asked);
	/* The program's frame, which it links as the compiler would with frame pointers. */
	if ((unsigned long)caller > stack && (unsigned long)caller < stack + THREAD_SIZE - 16) {
		tramp = caller[1];
		/* Before 6.10 the helper called us, to which the program's call returns further up. */
		for (frame += 2; !is_bpf(prog) && frame < caller; frame++)
			if (is_bpf(*frame))
				prog = *frame;
	}
	for (i = 0; i < have && i < room; i++) {
		u64 *words = (u64 *)&entries[i];

		BUILD_BUG_ON(sizeof(entries[i]) != 24);
		words[0] = resolve(&given[i].from, prog, tramp);
		words[1] = resolve(&given[i].to, prog, tramp);
		words[2] = given[i].flags;
	}
	return said != -1 ? said : i;
}

static int read_place(const char *text, struct place *place)
{
	char name[KSYM_NAME_LEN];
	unsigned long long offset = 0;
	const char *plus = strchr(text, '+');
	size_t length = plus ? plus - text : strlen(text);

	if (length >= sizeof(name) || (plus && kstrtoull(plus + 1, 0, &offset)))
		return -EINVAL;
	memcpy(name, text, length);
	name[length] = 0;
	place->value = offset;
	place->kind = FIXED;
	if (!strcmp(name, "prog")) {
		place->kind = PROG;
	} else if (!strcmp(name, "tramp")) {
		place->kind = TRAMP;
	} else if (!strcmp(name, "enter")) {
		place->kind = ENTER;
	} else if (!strncmp(name, "0x", 2)) {
		if (kstrtoull(name, 0, &offset))
			return -EINVAL;
		place->value += offset;
	} else {
		unsigned long address = lookup ? lookup(name) : 0;

		if (!address)
			return -ENOENT;
		place->value += address;
	}
	return 0;
}

static int read_record(char *text, struct given *record)
{
	char *to = strchr(text, '>'), *flags = strchr(text, '/');
	unsigned long long number = 0;
	int error;

	if (!to)
		return -EINVAL;
	*to++ = 0;
	if (flags) {
		*flags++ = 0;
		if (kstrtoull(flags, 16, &number))
			return -EINVAL;
	}
	record->flags = number;
	error = read_place(text, &record->from);
	return error ? error : read_place(to, &record->to);
}

static int set_records(const char *text, const struct kernel_param *kp)
{
	char *copy = kstrdup(text, GFP_KERNEL), *rest = copy, *word;
	struct given all[MOST];
	int i, n = 0, error = 0;

	if (!copy)
		return -ENOMEM;
	while (!error && (word = strsep(&rest, " \n"))) {
		if (!*word)
			continue;
		error = n < MOST ? read_record(word, &all[n++]) : -E2BIG;
	}
	kfree(copy);
	if (error)
		return error;
	WRITE_ONCE(count, 0);
	for (i = 0; i < n; i++)
		given[i] = all[n - 1 - i];
	WRITE_ONCE(count, n);
	return 0;
}

static int get_asked(char *buffer, const struct kernel_param *kp)
{
	return sprintf(buffer, "%d\n", atomic_read(&asked));
}

static const struct kernel_param_ops records_ops = { .set = set_records };
static const struct kernel_param_ops asked_ops = { .get = get_asked };
module_param_cb(records, &records_ops, NULL, 0200);
module_param_cb(asked, &asked_ops, NULL, 0400);
module_param(returned, int, 0600);

static int __init btrace_lbr_init(void)
{
	struct kprobe probe = { .symbol_name = "kallsyms_lookup_name" };
	void (*update)(struct static_call_key *key, void *tramp, void *func);
	void *key, *tramp;
	int error = register_kprobe(&probe);

	if (error)
		return error;
	lookup = (void *)probe.addr;
	unregister_kprobe(&probe);
	key = (void *)lookup("__SCK__perf_snapshot_branch_stack");
	tramp = (void *)lookup("__SCT__perf_snapshot_branch_stack");
	update = (void *)lookup("__static_call_update");
	is_bpf = (void *)lookup("is_bpf_text_address");
	if (!key || !tramp || !update || !is_bpf) {
		pr_err("btrace_lbr: this kernel has no static call for branch snapshots\n");
		return -ENOENT;
	}
	update(key, tramp, btrace_lbr_snapshot_branch_stack);
	return 0;
}

module_init(btrace_lbr_init);
MODULE_LICENSE("GPL");
MODULE_DESCRIPTION("Feeds bpf_get_branch_snapshot, for btrace's tests");
