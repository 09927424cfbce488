/* SPDX-License-Identifier: GPL-2.0 */
/* The module's tracepoint: a string, an enum, an array. */
#undef TRACE_SYSTEM
#define TRACE_SYSTEM btrace_shapes

#if !defined(BTRACE_SHAPES_EVENTS_H) || defined(TRACE_HEADER_MULTI_READ)
#define BTRACE_SHAPES_EVENTS_H

#include <linux/tracepoint.h>

TRACE_EVENT(bs_event,
	TP_PROTO(const char *name, enum bs_color color, const struct bs_list *list, s8 narrow),
	TP_ARGS(name, color, list, narrow),
	TP_STRUCT__entry(__field(int, color)),
	TP_fast_assign(__entry->color = color;),
	TP_printk("color %d", __entry->color)
);

#endif

#undef TRACE_INCLUDE_PATH
#define TRACE_INCLUDE_PATH .
#undef TRACE_INCLUDE_FILE
#define TRACE_INCLUDE_FILE events
#include <trace/define_trace.h>
