//! Values of every shape, in arguments and returns: the functions of `crates/xtask/testmod`, each called once with values that
//! are known, and what btrace shows of each, as text and as JSON.

use anyhow::{Context, Result, bail, ensure};
use serde_json::{Value, json};

use super::Check;
use super::judging::{NO_MODULE_TYPES, json, no_loss, refused};
use crate::frames::Ran;

/// Kernels of the lab, as far as the checks tell them apart.
type Since = (u32, u32);

/// The first with types of modules.
const ANY: Since = (5, 11);

/// The first that is built with `-funsigned-char`.
const UNSIGNED_CHAR: Since = (6, 2);

pub(super) const CHECKS: &[Check] = &[
    Check {
        // All at once, for the text, takes the way for many functions; a few at a time, for JSON, that for one.
        name: "case 10: a module's functions with types that its own BTF alone has: all at once and a few; none before 5.11",
        command: r#"
            insmod /lab/btrace_shapes.ko || exit 98
            btrace -v -k 'btrace_shapes:bs_*' -o /tmp/shapes.txt -c 'echo 1 >/sys/module/btrace_shapes/parameters/run' 2>/tmp/shapes.err
            s=$?
            for some in 'int*,bool,char,enum*,pointers,callback,no_code' '*strings,struct*,sockptr,bits,nested,array,tag' \
                'union,six,seven,eight,twelve,straddle,large,variadic,void' 'ret_*'; do
                btrace -k "btrace_shapes:bs_{$some}" --json -c 'echo 1 >/sys/module/btrace_shapes/parameters/run' 2>/dev/null
            done >/tmp/shapes.json
            cat /tmp/shapes.err >&2; dmesg | grep -E 'WARNING|BUG:|Oops' >&2; exit $s"#,
        judge: |ran| {
            if ran.status == 2 {
                return refused(ran, NO_MODULE_TYPES);
            }
            ensure!(ran.status == 0, "exit status {}", ran.status);
            ensure!(ran.stderr.contains(" printed, 0 lost"), "{}", ran.stderr);
            for bad in ["WARNING", "BUG:", "Oops"] {
                ensure!(!ran.stderr.contains(bad), "the kernel said {bad}");
            }
            Ok(())
        },
    },
    Check {
        name: "shapes: integers of 8 bits, with and without sign",
        command: "shape bs_int8",
        judge: |ran| {
            shows(ran, ANY, "(u8)a=255, (s8)b=-1, (u8)c=128, (s8)d=-128", json!([255, -1, 128, -128]), None)
        },
    },
    Check {
        name: "shapes: integers of 16 bits",
        command: "shape bs_int16",
        judge: |ran| {
            shows(ran, ANY, "(u16)a=65535, (s16)b=-32768, (s16)c=-1", json!([65535, -32768, -1]), None)
        },
    },
    Check {
        name: "shapes: integers of 32 bits, the most negative one too",
        command: "shape bs_int32",
        judge: |ran| {
            let text = "(u32)a=4294967295, (s32)b=-2147483648, (s32)c=-1, (u32)d=0";
            shows(ran, ANY, text, json!([4_294_967_295_u32, i32::MIN, -1, 0]), None)
        },
    },
    Check {
        name: "shapes: integers of 64 bits",
        command: "shape bs_int64",
        judge: |ran| {
            let text = "(u64)a=18446744073709551615, (s64)b=-9223372036854775808, (s64)c=-1, (long unsigned int)d=18446744073709551615";
            shows(ran, ANY, text, json!([u64::MAX, i64::MIN, -1, u64::MAX]), None)
        },
    },
    Check {
        name: "shapes: bool and char",
        command: "shape bs_bool; shape bs_char",
        judge: |ran| {
            let [bools, chars] = halves(ran)?;
            shows(&bools, ANY, "(bool)yes=true, (bool)no=false", json!([true, false]), None)?;
            let high = if release(&chars)? < UNSIGNED_CHAR { -1 } else { 255 };
            let text = format!("(char)letter='a', (char)newline=10, (char)high={high}");
            shows(&chars, ANY, &text, json!([97, 10, high]), None)
        },
    },
    Check {
        name: "shapes: enum by name, a negative one and one without a name",
        command: "shape bs_enum",
        judge: |ran| {
            let text = "(enum bs_color)low=BS_LOW, (enum bs_color)red=BS_RED, (enum bs_color)blue=BS_BLUE, (enum bs_color)none=77";
            let name = |value: i32, name: Option<&str>| json!({"value": value, "name": name});
            let values = json!([
                name(-2, Some("BS_LOW")),
                name(0, Some("BS_RED")),
                name(5, Some("BS_BLUE")),
                name(77, None)
            ]);
            shows(ran, ANY, text, values, None)
        },
    },
    Check {
        name: "shapes: enum of 64 bits",
        command: "shape bs_enum64",
        judge: |ran| {
            let text = "(enum bs_wide)small=BS_SMALL, (enum bs_wide)huge=BS_HUGE";
            let values = json!([
                {"value": 1, "name": "BS_SMALL"},
                {"value": 0x10_0000_0001_u64, "name": "BS_HUGE"}
            ]);
            shows(ran, ANY, text, values, None)
        },
    },
    Check {
        name: "shapes: pointers: NULL, structures, one with a flexible array, an error in a pointer",
        command: "shape bs_pointers",
        judge: |ran| {
            let text = "(void *)null=0x0, (struct bs_pair *)pair=PTR, (const struct bs_flex *)flex=PTR, (void **)error=ERR_PTR(-2 ENOENT)";
            shows(ran, ANY, text, json!(["0x0", "PTR", "PTR", "PTR"]), None)
        },
    },
    Check {
        name: "shapes: a function's address is the symbol's",
        command: "shape bs_callback; grep ' bs_int8.*btrace_shapes' /proc/kallsyms >&2",
        judge: |ran| {
            if release(ran)? < ANY {
                return Ok(());
            }
            let symbol = ran.stderr.lines().find_map(|l| l.split_once(" T ").or(l.split_once(" t ")));
            let address = format!("0x{}", symbol.context("no symbol")?.0);
            ensure!(
                ran.stdout.contains(&format!("(void (*)(u8, s8, u8, s8))fn={address}")),
                "{}",
                ran.stdout
            );
            let event = event(ran)?;
            ensure!(event["args"][0]["value"] == *address, "{event}");
            Ok(())
        },
    },
    Check {
        // Before 6.4 a module's data lies right behind its code.
        name: "case 3: a pointer to a module's data, and one to nothing, are not given the name of the last function before",
        command: "shape bs_no_code",
        judge: |ran| {
            let text = "(void (*)(void))data=PTR, (void (*)(void))beyond=PTR";
            shows(ran, ANY, text, json!(["PTR", "PTR"]), None)?;
            if release(ran)? >= ANY {
                let event = event(ran)?;
                for arg in &event["args"].as_array().context("args")?[..] {
                    ensure!(arg["symbol"].is_null() && arg["offset"].is_null(), "{event}");
                }
            }
            Ok(())
        },
    },
    Check {
        name: "shapes: texts: short, just what the room holds, one more, many more: … tells the truth",
        command: "shape bs_strings",
        judge: |ran| {
            let fits = "12345678901234567890123456789012345678901234567890123456789012";
            let text = format!(
                "(const char *)brief=PTR(\"brief\"), (const char *)fits=PTR(\"{fits}\"), (const char *)over=PTR(\"{fits}\"…), (const char *)longer=PTR(\"{fits}\"…)"
            );
            shows(ran, ANY, &text, json!(["PTR", "PTR", "PTR", "PTR"]), None)?;
            texts(ran, &["brief", fits, &format!("{fits}…"), &format!("{fits}…")])
        },
    },
    Check {
        name: "shapes: texts: unprintable bytes, none, NULL; a char * that is not const and in the kernel",
        command: "shape bs_odd_strings",
        judge: |ran| {
            let text = r#"(const char *)odd=PTR("tab\tquote\"back\\slash\x01\xffend"), (const char *)empty=PTR(""), (const char *)null=0x0, (char *)writable=PTR("writable")"#;
            shows(ran, ANY, text, json!(["PTR", "PTR", "0x0", "PTR"]), None)
        },
    },
    Check {
        name: "shapes: a structure of 4 bytes by value, and what follows it",
        command: "shape bs_struct4",
        judge: |ran| {
            let text = "(struct bs_four)s={a=-2, b=255, c=-1}, (int)after=-4";
            shows(ran, ANY, text, json!([{"a": -2, "b": 255, "c": -1}, -4]), None)
        },
    },
    Check {
        name: "shapes: a structure of 8 bytes by value, between others",
        command: "shape bs_struct8",
        judge: |ran| {
            let text = "(int)before=-8, (struct bs_pair)s={first=-1, second=2}, (int)after=8";
            shows(ran, ANY, text, json!([-8, {"first": -1, "second": 2}, 8]), None)
        },
    },
    Check {
        name: "shapes: a structure of 12 bytes by value, in two registers",
        command: "shape bs_struct12",
        judge: |ran| {
            let text = "(struct bs_twelve)s={a=-1, b=2, c=-3}, (int)after=-12";
            shows(ran, ANY, text, json!([{"a": -1, "b": 2, "c": -3}, -12]), None)
        },
    },
    Check {
        name: "shapes: a structure of 16 bytes by value, in two registers, and what follows it",
        command: "shape bs_struct16",
        judge: |ran| {
            let text =
                "(struct bs_sixteen)s={a=-5, b=-6, c=65535, d=-7, e=true}, (s8)after=-16, (int)last=16";
            let sixteen = json!({"a": -5, "b": -6, "c": 65535, "d": -7, "e": true});
            shows(ran, ANY, text, json!([sixteen, -16, 16]), None)
        },
    },
    Check {
        name: "case 5: sockptr_t by value: it and every later argument",
        command: "shape bs_sockptr",
        judge: |ran| {
            let text = "(int)fd=3, (struct bs_sockptr)optval={kernel=PTR, user=PTR, is_kernel=true}, (unsigned int)optlen=4";
            let values = json!([3, {"kernel": "PTR", "user": "PTR", "is_kernel": true}, 4]);
            shows(ran, ANY, text, values, None)
        },
    },
    Check {
        name: "case 7: bit-fields: of 1 to 33 bits, across bytes, negative",
        command: "shape bs_bits",
        judge: |ran| {
            let text = "(struct bs_bits)bits={one=1, three=5, five=-3, rest=8388607, minus=-1, wide=8589934591}, (int)after=-9";
            let bits = json!({"one": 1, "three": 5, "five": -3, "rest": 8_388_607, "minus": -1, "wide": 8_589_934_591_u64});
            shows(ran, ANY, text, json!([bits, -9]), None)
        },
    },
    Check {
        name: "case 7: anonymous unions and structures inside, named ones, arrays",
        command: "shape bs_nested; shape bs_array",
        judge: |ran| {
            let [nested, array] = halves(ran)?;
            let text = "(struct bs_nested)s={low=1, high=2, both=131073, in={x=-1, y=1}, list=[254, 255]}";
            let values =
                json!([{"low": 1, "high": 2, "both": 131_073, "in": {"x": -1, "y": 1}, "list": [254, 255]}]);
            shows(&nested, ANY, text, values, None)?;
            let text = "(struct bs_array)s={v=[-1, 2, -3, 32767]}";
            shows(&array, ANY, text, json!([{"v": [-1, 2, -3, 32767]}]), None)
        },
    },
    Check {
        name: "case 9: char[4] without a terminator is not read past its end",
        command: "shape bs_tag",
        judge: |ran| {
            let text = "(struct bs_tag)s={tag=\"ABCD\", n=-4}";
            shows(ran, ANY, text, json!([{"tag": "ABCD", "n": -4}]), None)
        },
    },
    Check {
        name: "shapes: a union by value, which the trampolines of some kernels do not pass on",
        command: "shape bs_union",
        judge: |ran| {
            let text = "(union bs_union)u={u=4294967294, i=-2, b=[254, 255, 255, 255]}, (int)after=2";
            let values = json!([{"u": 4_294_967_294_u32, "i": -2, "b": [254, 255, 255, 255]}, 2]);
            shows(ran, ANY, text, values, None)
        },
    },
    Check {
        name: "case 6: exactly six arguments",
        command: "shape bs_six",
        judge: |ran| {
            let text = "(int)a=-1, (u8)b=200, (s64)c=-3, (u16)d=60000, (s8)e=-5, (int)f=-6";
            shows(ran, ANY, text, json!([-1, 200, -3, 60000, -5, -6]), None)
        },
    },
    Check {
        name: "case 6: the seventh argument, which lies on the stack",
        command: "shape bs_seven",
        judge: |ran| {
            let text = "(int)a=1, (int)b=-2, (int)c=3, (int)d=-4, (int)e=5, (int)f=-6, (s8)g=-7";
            shows(ran, ANY, text, json!([1, -2, 3, -4, 5, -6, -7]), None)
        },
    },
    Check {
        name: "case 6: eight arguments, and twelve",
        command: "shape bs_eight; shape bs_twelve",
        judge: |ran| {
            let [eight, twelve] = halves(ran)?;
            let text =
                "(int)a=1, (int)b=-2, (int)c=3, (int)d=-4, (int)e=5, (int)f=-6, (s64)g=-7, (u16)h=65535";
            let values = json!([1, -2, 3, -4, 5, -6, -7, 65535]);
            shows(&eight, ANY, text, values, None)?;
            let text = "(int)a=1, (int)b=-2, (int)c=3, (int)d=-4, (int)e=5, (int)f=-6, (int)g=7, (int)h=-8, (int)i=9, (int)j=-10, (int)k=11, (s8)l=-12";
            let values = json!([1, -2, 3, -4, 5, -6, 7, -8, 9, -10, 11, -12]);
            let ret = Some(("(int)-12 ENOMEM", json!(-12)));
            shows(&twelve, ANY, text, values, ret)
        },
    },
    Check {
        name: "shapes: a structure that one free register is too few for, and what follows it",
        command: "shape bs_straddle",
        judge: |ran| {
            let text = "(s64)a=1, (s64)b=2, (s64)c=3, (s64)d=4, (s64)e=5, (struct bs_sixteen)s={a=-5, b=-6, c=65535, d=-7, e=true}, (s64)last=-7";
            let sixteen = json!({"a": -5, "b": -6, "c": 65535, "d": -7, "e": true});
            let values = json!([1, 2, 3, 4, 5, sixteen, -7]);
            shows(ran, ANY, text, values, None)
        },
    },
    Check {
        name: "shapes: a structure of 24 bytes by value, on the stack; the named arguments of a variadic function",
        command: "shape bs_large; shape bs_variadic",
        judge: |ran| {
            let [large, variadic] = halves(ran)?;
            let values = json!([{"a": 1, "b": 2, "c": 3}]);
            shows(&large, ANY, "(struct bs_large)s={a=1, b=2, c=3}", values, None)?;
            shows(&variadic, ANY, "(int)n=1", json!([1]), None)
        },
    },
    Check {
        name: "shapes: thirteen arguments, seven of them on the stack: at the entry, and at the return as they were then",
        command: r"
            for mode in entry exit; do
                btrace -k btrace_shapes:bs_thirteen --mode $mode -c 'echo 1 >/sys/module/btrace_shapes/parameters/run'
            done; uname -r",
        judge: |ran| {
            if release(ran)? < ANY {
                ensure!(ran.stderr.contains(NO_MODULE_TYPES), "{}", ran.stderr);
                return Ok(());
            }
            let args = "btrace_shapes:bs_thirteen args=((int)a=1, (int)b=2, (int)c=3, (int)d=4, (int)e=5, (int)f=6, (int)g=7, (int)h=8, (int)i=9, (int)j=10, (int)k=11, (int)l=12, (int)m=13) ";
            let lines: Vec<&str> = ran.stdout.lines().collect();
            ensure!(lines.len() == 3, "{lines:?} {}", ran.stderr);
            let [entry, exit] = [lines[0], lines[1]].map(|line| line.strip_prefix(args));
            ensure!(entry.is_some_and(|rest| rest.starts_with("cpu=")), "{lines:?}");
            ensure!(
                exit.is_some_and(|rest| rest.starts_with("retval=(int)") || rest.starts_with("cpu=")),
                "{lines:?}"
            );
            ensure!(exit.is_some_and(|rest| rest.contains(" duration=")), "{lines:?}");
            Ok(())
        },
    },
    Check {
        name: "shapes: a structure returned by value: the call without it",
        command: "shape bs_ret_struct",
        judge: |ran| shows(ran, ANY, "", json!([]), None),
    },
    Check {
        name: "shapes: no arguments, no return value",
        command: "shape bs_void",
        judge: |ran| shows(ran, ANY, "", json!([]), None),
    },
    Check {
        name: "shapes: a bool returned in a register that holds more",
        command: "shape bs_ret_true; shape bs_ret_false",
        judge: |ran| {
            let [yes, no] = halves(ran)?;
            shows(&yes, ANY, "", json!([]), Some(("(bool)true", json!(true))))?;
            shows(&no, ANY, "", json!([]), Some(("(bool)false", json!(false))))
        },
    },
    Check {
        name: "shapes: 8 bits returned in a register that holds more",
        command: "shape bs_ret_u8; shape bs_ret_s8",
        judge: |ran| {
            let [unsigned, signed] = halves(ran)?;
            shows(&unsigned, ANY, "", json!([]), Some(("(u8)254", json!(254))))?;
            shows(&signed, ANY, "", json!([]), Some(("(s8)-2", json!(-2))))
        },
    },
    Check {
        name: "shapes: 16 bits, and an enum, returned",
        command: "shape bs_ret_s16; shape bs_ret_enum",
        judge: |ran| {
            let [short, color] = halves(ran)?;
            shows(&short, ANY, "", json!([]), Some(("(s16)-2", json!(-2))))?;
            let low = json!({"value": -2, "name": "BS_LOW"});
            shows(&color, ANY, "", json!([]), Some(("(enum bs_color)BS_LOW", low)))
        },
    },
    Check {
        name: "case 8: an int of -11 is negative, whatever the register's upper half; a u32 of the same bits is not",
        command: "shape bs_ret_int; shape bs_ret_u32",
        judge: |ran| {
            let [signed, unsigned] = halves(ran)?;
            shows(&signed, ANY, "", json!([]), Some(("(int)-11 EAGAIN", json!(-11))))?;
            shows(&unsigned, ANY, "", json!([]), Some(("(u32)4294967285", json!(4_294_967_285_u32))))
        },
    },
    Check {
        name: "case 8: --errors takes an int of -11, and leaves a u32 of the same bits and an int of 101",
        command: r"
            btrace -v -k 'btrace_shapes:{bs_ret_int,bs_ret_long,bs_same,bs_ret_error,bs_ret_null}' --errors -c 'echo 1 >/sys/module/btrace_shapes/parameters/run'
            btrace -k btrace_shapes:bs_ret_u32 --errors -c true; uname -r",
        judge: |ran| {
            if release(ran)? < ANY {
                return Ok(());
            }
            let of = |name: &str| ran.stdout.lines().filter(|l| l.starts_with(name)).count();
            ensure!(
                (
                    of("btrace_shapes:bs_ret_int "),
                    of("btrace_shapes:bs_ret_long "),
                    of("btrace_shapes:bs_ret_error ")
                ) == (1, 1, 1),
                "{}",
                ran.stdout
            );
            ensure!(
                (of("btrace_shapes:bs_same "), of("btrace_shapes:bs_ret_null ")) == (0, 0),
                "{}",
                ran.stdout
            );
            ensure!(ran.stderr.contains("neither a signed number nor a pointer"), "{}", ran.stderr);
            Ok(())
        },
    },
    Check {
        name: "case 22: long, NULL, ERR_PTR(-22) and a text returned",
        command: "shape bs_ret_long; shape bs_ret_null; shape bs_ret_error; shape bs_ret_text",
        judge: |ran| {
            let [long, null, error, text] = parts(ran)?;
            shows(&long, ANY, "", json!([]), Some(("(long int)-11 EAGAIN", json!(-11))))?;
            shows(&null, ANY, "", json!([]), Some(("(struct bs_pair *)0x0", json!("0x0"))))?;
            let value = "(struct bs_pair *)ERR_PTR(-22 EINVAL)";
            shows(&error, ANY, "", json!([]), Some((value, json!("0xffffffffffffffea"))))?;
            shows(&text, ANY, "", json!([]), Some(("(const char *)PTR(\"returned\")", json!("PTR"))))
        },
    },
    Check {
        name: "--mode both and recursion: factorial(5): entries 5 to 1, exits 1 to 120, paired",
        command: "btrace -k btrace_shapes:bs_factorial --mode both --json -c 'echo 1 >/sys/module/btrace_shapes/parameters/run'",
        judge: |ran| {
            if ran.status == 2 {
                return refused(ran, NO_MODULE_TYPES);
            }
            no_loss(ran)?;
            let events = json(ran)?;
            let of = |events: &[Value], key: &dyn Fn(&Value) -> Option<u64>| {
                events.iter().filter_map(key).collect::<Vec<u64>>()
            };
            ensure!(events.len() == 10, "{} events", events.len());
            let (entries, exits) = events.split_at(5);
            ensure!(of(entries, &|e| e["args"][0]["value"].as_u64()) == [5, 4, 3, 2, 1], "{entries:?}");
            ensure!(of(exits, &|e| e["args"][0]["value"].as_u64()) == [1, 2, 3, 4, 5], "{exits:?}");
            ensure!(of(exits, &|e| e["retval"]["value"].as_u64()) == [1, 2, 6, 24, 120], "{exits:?}");
            for (entry, exit) in entries.iter().zip(exits.iter().rev()) {
                ensure!(entry["call"] == exit["call"], "{entry} {exit}");
            }
            let durations = of(exits, &|e| e["duration_ns"].as_u64());
            ensure!(durations.len() == 5 && durations.is_sorted(), "{durations:?}");
            Ok(())
        },
    },
    Check {
        name: "case 1: two static functions of a module with one name: both, once they are found, and it is said",
        command: "btrace -k btrace_shapes:bs_same -c 'echo 1 >/sys/module/btrace_shapes/parameters/run; workloads sleep-ms 4000; echo 1 >/sys/module/btrace_shapes/parameters/run'",
        judge: |ran| {
            if ran.status == 2 {
                return refused(ran, NO_MODULE_TYPES);
            }
            no_loss(ran)?;
            let of = |what: &str| ran.stdout.lines().filter(|l| l.contains(what)).count();
            let (one, other) = (of("(int)n=1) retval=(int)101 "), of("(int)n=2) retval=(int)202 "));
            ensure!(one >= 1 && other >= 1 && one + other >= 3, "{one} and {other}");
            ensure!(ran.stderr.contains("bs_same: 2 functions have this name"), "{}", ran.stderr);
            Ok(())
        },
    },
    Check {
        name: "case 2: a module's function that the compiler has made a copy of to its own liking: found by its base name, its registers shown, and it is said",
        command: "btrace -k bs_suffixed -c 'echo 1 >/sys/module/btrace_shapes/parameters/run'",
        judge: |ran| {
            no_loss(ran)?;
            let lines: Vec<&str> = ran.stdout.lines().collect();
            let [one, other] = lines.as_slice() else { bail!("{lines:?}") };
            for (line, value) in
                [(one, " retval=(unsigned long)0xfffffffc "), (other, " retval=(unsigned long)0xffffffff ")]
            {
                ensure!(
                    line.starts_with("btrace_shapes:bs_suffixed.constprop.0 args=((unsigned long)di="),
                    "{line}"
                );
                ensure!(line.contains(value), "{line}");
            }
            ensure!(
                ran.stderr.contains("no prototype is known for bs_suffixed.constprop.0"),
                "{}",
                ran.stderr
            );
            Ok(())
        },
    },
    Check {
        name: "a function that ends in a jump to another: both return, each with its own arguments",
        command: "btrace -k btrace_shapes:bs_tail,btrace_shapes:bs_tail_called -c 'echo 1 >/sys/module/btrace_shapes/parameters/run'",
        judge: |ran| {
            if ran.status == 2 {
                return refused(ran, NO_MODULE_TYPES);
            }
            no_loss(ran)?;
            for wanted in [
                "btrace_shapes:bs_tail args=((int)n=20) retval=(int)41 ",
                "btrace_shapes:bs_tail_called args=((int)n=40) retval=(int)41 ",
            ] {
                ensure!(ran.stdout.lines().filter(|l| l.starts_with(wanted)).count() == 1, "{}", ran.stdout);
            }
            Ok(())
        },
    },
    Check {
        name: "a module's tracepoint: text, enum, narrow integer; none before 5.11",
        command: "btrace -t btrace_shapes:bs_event -c 'echo 1 >/sys/module/btrace_shapes/parameters/run'; s=$?; uname -r >&2; exit $s",
        judge: |ran| {
            if ran.status == 2 {
                ensure!(ran.stdout.is_empty() && ran.stderr.contains(NO_MODULE_TYPES), "{}", ran.stderr);
                return Ok(());
            }
            ensure!(ran.status == 0 && ran.stdout.lines().count() == 1, "{}", ran.stdout);
            let text = "btrace_shapes:bs_event args=((const char *)name=PTR(\"event\"), (enum bs_color)color=BS_LOW, (const struct bs_list *)list=PTR, (s8)narrow=-8) cpu=";
            ensure!(without_addresses(&ran.stdout).starts_with(text), "{}", ran.stdout);
            Ok(())
        },
    },
    Check {
        name: "case 17: two functions with equal argument lists each show their own",
        command: "btrace -k btrace_shapes:bs_same,btrace_shapes:bs_other -c 'echo 1 >/sys/module/btrace_shapes/parameters/run; echo 1 >/sys/module/btrace_shapes/parameters/run'",
        judge: |ran| {
            if ran.status == 2 {
                return refused(ran, NO_MODULE_TYPES);
            }
            no_loss(ran)?;
            let of = |what: &str| ran.stdout.lines().filter(|l| l.starts_with(what)).count();
            ensure!(of("btrace_shapes:bs_other args=((int)n=2) retval=(int)202 ") == 2, "{}", ran.stdout);
            ensure!(
                of("btrace_shapes:bs_same ") == 2
                    && of("btrace_shapes:bs_same args=((int)n=2) retval=(int)101") == 0,
                "{}",
                ran.stdout
            );
            Ok(())
        },
    },
];

/// What the guest runs, from `uname -r` in the output.
fn release(ran: &Ran) -> Result<Since> {
    let line = ran.stdout.lines().find(|l| l.starts_with(|c: char| c.is_ascii_digit()));
    let mut numbers = line.context("no release")?.split('.').map(|n| n.parse::<u32>().unwrap_or(0));
    Ok((numbers.next().unwrap_or(0), numbers.next().unwrap_or(0)))
}

/// What `shape` said of each of several functions.
fn parts<const N: usize>(ran: &Ran) -> Result<[Ran; N]> {
    let mut parts: Vec<Ran> = Vec::new();
    for line in ran.stdout.lines() {
        if line.starts_with(|c: char| c.is_ascii_digit()) {
            parts.push(Ran { status: ran.status, stdout: String::new(), stderr: ran.stderr.clone() });
        }
        let last = parts.last_mut().with_context(|| format!("before any release: {line}"))?;
        last.stdout += line;
        last.stdout.push('\n');
    }
    let count = parts.len();
    parts.try_into().map_err(|_| anyhow::anyhow!("{count} parts instead of {N}"))
}

fn halves(ran: &Ran) -> Result<[Ran; 2]> {
    parts(ran)
}

/// The one event as JSON.
fn event(ran: &Ran) -> Result<Value> {
    let mut events = ran.stdout.lines().filter(|l| l.starts_with('{'));
    let (Some(line), None) = (events.next(), events.next()) else { bail!("not one event: {}", ran.stdout) };
    Ok(serde_json::from_str(line)?)
}

/// Kernel addresses as `PTR`: they differ at each boot.
fn without_addresses(text: &str) -> String {
    let mut out = String::new();
    let mut rest = text;
    while let Some(at) = rest.find("0xffff") {
        let (before, address) = rest.split_at(at);
        let end = address[2..].find(|c: char| !c.is_ascii_hexdigit()).map_or(address.len(), |end| end + 2);
        out += before;
        out += "PTR";
        rest = &address[end..];
    }
    out + rest
}

fn values(list: &Value) -> Value {
    let values = list.as_array().into_iter().flatten().map(|arg| addressless(&arg["value"]));
    Value::Array(values.collect())
}

fn addressless(value: &Value) -> Value {
    match value {
        Value::String(text) if text.starts_with("0xffff") => "PTR".into(),
        Value::Object(members) => {
            Value::Object(members.iter().map(|(k, v)| (k.clone(), addressless(v))).collect())
        }
        other => other.clone(),
    }
}

/// The function's one event has these arguments and this return value, in text and in JSON. Kernels before `since` refuse
/// it, for want of types of modules.
fn shows(ran: &Ran, since: Since, text: &str, args: Value, ret: Option<(&str, Value)>) -> Result<()> {
    if release(ran)? < since {
        ensure!(!ran.stdout.contains('{'), "not to be expected of this kernel: {}", ran.stdout);
        ensure!(ran.stderr.contains(NO_MODULE_TYPES), "{}", ran.stderr);
        return Ok(());
    }
    let lines: Vec<&str> = ran.stdout.lines().filter(|l| l.contains(" args=(")).collect();
    let [line] = lines.as_slice() else { bail!("not one line: {}", ran.stdout) };
    let line = without_addresses(line);
    let retval = ret.as_ref().map_or(String::new(), |(text, _)| format!(" retval={text}"));
    ensure!(line.contains(&format!(" args=({text}){retval} cpu=")), "{line}");
    let event = event(ran)?;
    ensure!(values(&event["args"]) == args, "{event}");
    let value = match &ret {
        // An error in a pointer is no address.
        Some((_, wanted)) if event["retval"]["value"] == *wanted => wanted.clone(),
        _ => addressless(&event["retval"]["value"]),
    };
    ensure!(value == ret.map_or(Value::Null, |(_, wanted)| wanted), "{event}");
    Ok(())
}

/// The texts of the arguments in JSON.
fn texts(ran: &Ran, wanted: &[&str]) -> Result<()> {
    if release(ran)? < ANY {
        return Ok(());
    }
    let event = event(ran)?;
    let texts: Vec<&str> =
        event["args"].as_array().into_iter().flatten().filter_map(|a| a["text"].as_str()).collect();
    ensure!(texts == wanted, "{event}");
    Ok(())
}
