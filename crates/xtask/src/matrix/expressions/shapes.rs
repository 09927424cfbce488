//! Arguments and returns of every shape in expressions: the functions of `crates/xtask/testmod`.

use super::{Check, Run, named, outputs, runs};
use crate::frames::Ran;
use crate::matrix::judging::NO_MODULE_TYPES;
use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

pub(in super::super) const CHECKS: &[Check] =
    &[BY_VALUE, CHARS, STACKED, POINTERS, RETURNS, STALE, TRACEPOINT];

/// A script that traces functions of the module while all of them are called once: `shape NAME FUNCTION OPTIONS…`. Part of each script.
macro_rules! script {
    ($($text:literal),*) => {
        concat!(
            "[ -e /sys/module/btrace_shapes ] || { insmod /lab/btrace_shapes.ko || exit 98; mine=1; }\n",
            "shape() { name=$1; f=$2; shift 2; run $name -k btrace_shapes:$f \"$@\" -c 'echo 1 >/sys/module/btrace_shapes/parameters/run'; }\n",
            $($text,)*
            "\n[ \"$mine\" ] && rmmod btrace_shapes; true"
        )
    };
}

/// The traces; `None` on a kernel that shows no types of modules, where each was refused for it.
fn traces(ran: &Ran) -> Result<Option<Vec<Run>>> {
    let (_, runs) = runs(ran)?;
    if runs.iter().all(|run| run.status == 2 && run.said.contains(NO_MODULE_TYPES)) {
        return Ok(None);
    }
    Ok(Some(runs))
}

/// Each named trace has one event, which shows these values.
fn show(runs: &[Run], wanted: &[(&str, Value)]) -> Result<()> {
    for (name, values) in wanted {
        let run = named(runs, name)?;
        run.has(1)?;
        run.shows(values.as_array().context("values")?)?;
    }
    ensure!(runs.len() == wanted.len(), "{} traces, {} judged", runs.len(), wanted.len());
    Ok(())
}

const BY_VALUE: Check = Check {
    name: "expressions: structures by value, bit-fields, unions, arrays: whole, by member, in filters",
    command: script!(
        r#"
        o=--output-arg; t=--filter-arg
        shape four bs_struct4 $t 's.a == -2 && s.b == 255 && s.c == -1' $o s $o s.a $o s.b $o s.c $o 's.a * s.b' $o after
        shape eight bs_struct8 $t 's.first < 0' $o s.first $o s.second $o s.first+s.second $o before
        shape twelve bs_struct12 $o s.c $o s.b $o s $t 's.c == -3 && after == -12'
        shape sixteen bs_struct16 $o s.a $o s.b $o s.c+1 $o s.d $o s.e $o after $o last $t 's.a > s.b && s.e'
        shape sockptr bs_sockptr $o optval.is_kernel $o '((struct bs_pair *)optval.kernel)->first' $o '*(struct bs_pair *)optval.kernel' $t 'optval.is_kernel'
        shape bits bs_bits $o bits.one $o bits.three $o bits.five $o bits.rest $o bits.minus $o bits.wide $o 'bits.five + bits.three' $o bits $t 'bits.five == -3 && bits.wide == 0x1ffffffff'
        shape nested bs_nested $o s.low $o s.high $o s.both $o s.in.x $o s.in $o 's.list[1]' $o s.list $t 's.list[0] == 254'
        shape array bs_array $o s.v $o 's.v[0]' $o 's.v[3]' $o 's.v[2] * 2' $t 's.v[0] == -1'
        shape tag bs_tag $o s.tag $o 's.tag[1]' $o s.n $t 's.n == -4'
        shape union bs_union $o u.i $o u.u $o 'u.b[0]' $o after $t 'u.i == -2 && u.u > 5'
        shape none bs_struct4 $t 's.a == -2 && s.b == 254'"#
    ),
    judge: |ran| {
        let Some(mut runs) = traces(ran)? else { return Ok(()) };
        runs.pop().context("none")?.has(0)?;
        let bits = json!({"one": 1, "three": 5, "five": -3, "rest": 0x7f_ffff, "minus": -1, "wide": 0x1_ffff_ffff_u64});
        show(
            &runs,
            &[
                ("four", json!([{"a": -2, "b": 255, "c": -1}, -2, 255, -1, -510, -4])),
                ("eight", json!([-1, 2, 1, -8])),
                ("twelve", json!([-3, 2, {"a": -1, "b": 2, "c": -3}])),
                ("sixteen", json!([-5, -6, 65536, -7, true, -16, 16])),
                ("sockptr", json!([true, -1, {"first": -1, "second": 2}])),
                ("bits", json!([1, 5, -3, 0x7f_ffff, -1, 0x1_ffff_ffff_u64, 2, bits])),
                ("nested", json!([1, 2, 0x2_0001, -1, {"x": -1, "y": 1}, 255, [254, 255]])),
                ("array", json!([[-1, 2, -3, 32767], -1, 32767, -6])),
                ("tag", json!(["ABCD", 66, -4])),
                ("union", json!([-2, 4_294_967_294_u32, 254, 2])),
            ],
        )
    },
};

const CHARS: Check = Check {
    name: "expressions: plain char is signed before 6.2 and unsigned from then on, in values, comparisons and constants",
    command: concat!(
        "uname -r\n",
        script!(
            r#"
        o=--output-arg; t=--filter-arg
        shape chars bs_char $t "letter == 'a'" $o letter $o high $o 'high < 0' $o 'high + 1' $o "high == '\xff'" $o '(char)0x80' $o '(signed char)high'"#
        )
    ),
    judge: |ran| {
        let Some(runs) = traces(ran)? else { return Ok(()) };
        let release = ran.stdout.lines().next().context("no release")?;
        let numbers: Vec<u32> =
            release.split(['.', '-']).take(2).map(str::parse).collect::<Result<_, _>>()?;
        let values = if numbers < vec![6, 2] {
            json!([97, -1, 1, 0, 1, -128, -1])
        } else {
            json!([97, 255, 0, 256, 1, 128, -1])
        };
        show(&runs, &[("chars", values)])
    },
};

const STACKED: Check = Check {
    name: "expressions: arguments that lie on the stack, large structures, variadic functions, by number and name",
    command: script!(
        r#"
        o=--output-arg; t=--filter-arg
        shape seven bs_seven $t 'g == -7' $o g $o 'a + g' $o '$args[6]'
        shape eight bs_eight $t 'h == 65535 && g == -7' $o g+h $o h
        shape twelve bs_twelve $t 'l == -12 && $retval == -12' $o l $o '$args[11] + $args[0]' $o '$retval * 2'
        shape straddle bs_straddle $t 'last == -7 && s.b == -6' $o s.a $o s.b $o s.c $o s.d $o s.e $o last $o e
        shape large bs_large $t 's.c == 3' $o s.a $o s.b $o s.c $o s
        shape variadic bs_variadic $t 'n == 1' $o n
        shape enum bs_enum $t 'low == BS_LOW && none == 77 && blue in (BS_BLUE, BS_RED)' $o 'BS_BLUE + 1' $o 'low < red'
        shape enum64 bs_enum64 $t 'huge == BS_HUGE' $o 'huge >> 32' $o 'huge - small == 0x1000000000'
        shape ints bs_int32 $t 'a > 0 && b < 0 && c < a == 0' $o 'a + 1' $o 'b - 1' $o 'c < d' $o '(long)c' $o 'a / 2' $o 'b / -1' $o 'c >> 1' $o 'a >> 1' $o '1 / d' $o 'a % d'
        shape narrow bs_int8 $t 'a == 255 && b == -1' $o 'a + b' $o 'c * 2' $o '~a' $o '-d' $o '(s8)a == b'
        "#
    ),
    judge: |ran| {
        let Some(runs) = traces(ran)? else { return Ok(()) };
        // On 6.1 and later gcc splits none of these. What is refused is refused with a reason: see `shapes.rs` on methods.
        show(
            &runs,
            &[
                ("seven", json!([-7, -6, -7])),
                ("eight", json!([65528, 65535])),
                ("twelve", json!([-12, -11, -24])),
                ("straddle", json!([-5, -6, 65535, -7, true, -7, 5])),
                ("large", json!([1, 2, 3, {"a": 1, "b": 2, "c": 3}])),
                ("variadic", json!([1])),
                ("enum", json!([6, 1])),
                ("enum64", json!([16, 1])),
                (
                    "ints",
                    json!([0, i32::MAX, 0, -1, 0x7fff_ffff, i32::MIN, -1, 0x7fff_ffff, 0, 4_294_967_295_u32]),
                ),
                ("narrow", json!([254, 256, -256, 128, 1])),
            ],
        )
    },
};

const POINTERS: Check = Check {
    name: "expressions: through pointers: NULL, errors, structures, flexible arrays, texts of every length",
    command: script!(
        r#"
        o=--output-arg; t=--filter-arg
        shape pointers bs_pointers $o '*pair' $o pair-'>first' $o 'flex->v[1]' $o '((struct bs_list *)flex)->v' $o '*(int *)null' $o '*error' $o 'null == 0' $o '!null'
        shape null bs_pointers $t '*(int *)null == 0 || *(int *)null != 0'
        shape error bs_pointers $t '*error == 0 || *error != 0'
        shape signed bs_pointers $t 'pair->first == -1 && pair[0].second == 2 && (char *)&pair->second - (char *)pair == 4' $o '&pair->second - &pair->second' $o 'container_of(&pair->second, struct bs_pair, second) == pair'
        shape texts bs_strings $t 'str(brief) == "brief" && fits != over' $o brief $o 'str(fits)' $o 'str(longer, 80)' $o 'str(longer, 5)' $o 'buf(brief, 3)' $o 'brief[1]' $o '*brief'
        shape odd bs_odd_strings $t 'empty == "" && str(writable) == "writable"' $o empty $o writable $o null $o odd
        "#
    ),
    judge: |ran| {
        let Some(runs) = traces(ran)? else { return Ok(()) };
        for name in ["null", "error"] {
            named(&runs, name)?.has(0)?;
        }
        let of = |name: &str| -> Result<&[Value]> {
            let run = named(&runs, name)?;
            run.has(1)?;
            Ok(outputs(&run.events[0]))
        };
        let [pair, first, flexible, cast, null, error, equal, not] = of("pointers")? else {
            anyhow::bail!("pointers")
        };
        ensure!(pair["value"] == json!({"first": -1, "second": 2}) && first["value"] == -1, "{pair} {first}");
        // The list's s16 v[3], from its second byte on.
        ensure!(cast["value"] == json!([-1, 0, 32767]), "{cast}");
        ensure!(flexible["value"] == 32767, "{flexible}");
        ensure!(null["error"] == "NULL" && null["at"] == "(int *)null", "{null}");
        ensure!(error["error"] == "EFAULT" && error["at"] == "*error", "{error}");
        ensure!(equal["value"] == 1 && not["value"] == 1, "{equal} {not}");
        named(&runs, "signed")?.shows(&[json!(0), json!(1)])?;
        of("signed")?;
        let texts: Vec<&Value> = of("texts")?.iter().map(|o| &o["value"]).collect();
        let fits = "12345678901234567890123456789012345678901234567890123456789012";
        let wanted = [
            json!("brief"),
            json!(fits),
            json!("1234567890123456789012345678901234567890123456789012345678901234567890"),
            json!("12345…"),
            json!("627269"),
            json!(114),
            json!(98),
        ];
        ensure!(texts == wanted.iter().collect::<Vec<_>>(), "{texts:?}");
        let [empty, writable, null, odd] = of("odd")? else { anyhow::bail!("odd") };
        ensure!(empty["value"] == "" && writable["value"] == "writable", "{empty} {writable}");
        ensure!(null["value"].is_null() && null["error"] == "NULL", "{null}");
        ensure!(odd["value"] == "tab\tquote\"back\\slash\u{1}\\xffend", "{odd}");
        Ok(())
    },
};

const RETURNS: Check = Check {
    name: "expressions: what functions return: narrow, negative, pointers, texts; recursion by its argument at both ends",
    command: script!(
        r#"
        o=--output-arg; t=--filter-arg
        shape negative 'bs_ret_{s8,u8,s16,int,u32,long,enum}' $t '$retval < 0' $o '$retval'
        shape true 'bs_ret_true' $t '$retval == 1' $o '$retval'
        shape false 'bs_ret_false' $t '!$retval' $o '$retval'
        shape pointer 'bs_ret_null,btrace_shapes:bs_ret_error' $t '$retval' $o '$retval' $o '$retval->first'
        shape text bs_ret_text $t '$retval == "returned"' $o 'str($retval)'
        shape both bs_factorial --mode both $t 'n == 3' $o n $o '$retval' $o 'n * 2'
        shape result bs_factorial $t 'n * 2 == $retval || $retval == 120' $o n $o '$retval'
        shape entry bs_factorial --mode entry $t 'n > 3' $o n
        "#
    ),
    judge: |ran| {
        let Some(runs) = traces(ran)? else { return Ok(()) };
        let negative = named(&runs, "negative")?;
        negative.has(5)?;
        for event in &negative.events {
            let value = |v: &Value| v["value"]["value"].as_i64().or(v["value"].as_i64());
            let wanted = match event["target"].as_str() {
                Some(
                    "btrace_shapes:bs_ret_s8" | "btrace_shapes:bs_ret_s16" | "btrace_shapes:bs_ret_enum",
                ) => -2,
                Some("btrace_shapes:bs_ret_int" | "btrace_shapes:bs_ret_long") => -11,
                _ => 0,
            };
            ensure!(value(&outputs(event)[0]) == Some(wanted), "{event}");
        }
        let one = |name: &str, values: &[Value]| {
            let run = named(&runs, name)?;
            run.has(1)?;
            run.shows(values)
        };
        one("true", &[json!(true)])?;
        one("false", &[json!(false)])?;
        one("text", &[json!("returned")])?;
        let pointer = named(&runs, "pointer")?;
        pointer.has(1)?;
        ensure!(outputs(&pointer.events[0])[1]["error"] == "EFAULT", "{}", pointer.events[0]);
        let shown = |name: &str| -> Result<Vec<Vec<&Value>>> {
            let run = named(&runs, name)?;
            run.is_well()?;
            Ok(run.events.iter().map(|e| outputs(e).iter().map(|o| &o["value"]).collect()).collect())
        };
        let both = shown("both")?;
        ensure!(both == [vec![&json!(3), &json!(6)], vec![&json!(3), &json!(6), &json!(6)]], "{both:?}");
        let result = shown("result")?;
        ensure!(result == [vec![&json!(3), &json!(6)], vec![&json!(5), &json!(120)]], "{result:?}");
        let entry = shown("entry")?;
        ensure!(entry == [vec![&json!(5)], vec![&json!(4)]], "{entry:?}");
        Ok(())
    },
};

const STALE: Check = Check {
    name: "expressions: of calls one after the other each has its own values, NULL and unreadable ones between",
    command: script!(
        r#"
        o=--output-arg; t=--filter-arg; p='((struct sockaddr_in *)address)->sin_port'
        shape all bs_stale $o n $o address-'>sa_family' $o 'str(name->name)' $o "port($p)" $o text
        shape inet bs_stale $t 'address->sa_family == 2' $o n $o "port($p)" $o 'ip4(((struct sockaddr_in *)address)->sin_addr)'
        shape six bs_stale $t 'address->sa_family == 10 && port(((struct sockaddr_in6 *)address)->sin6_port) == 443' $o n
        shape name bs_stale $t 'name->name == "y" || text == ""' $o n
        shape no bs_stale $t 'address->sa_family != 2' $o n
        shape null bs_stale $t '!address || !(address->sa_family == 2)' $o n
        "#
    ),
    judge: |ran| {
        let Some(runs) = traces(ran)? else { return Ok(()) };
        let numbers = |name: &str| -> Result<Vec<u64>> {
            let run = named(&runs, name)?;
            run.is_well()?;
            Ok(run.events.iter().filter_map(|e| outputs(e)[0]["value"].as_u64()).collect())
        };
        ensure!(numbers("inet")? == [1, 3, 7], "{:?}", numbers("inet")?);
        for event in &named(&runs, "inet")?.events {
            ensure!(
                outputs(event)[1]["value"] == 8080 && outputs(event)[2]["text"] == "127.0.0.1",
                "{event}"
            );
        }
        ensure!(numbers("six")? == [5], "{:?}", numbers("six")?);
        ensure!(numbers("name")? == [6, 7], "{:?}", numbers("name")?);
        ensure!(numbers("no")? == [5, 6], "{:?}", numbers("no")?);
        let null = numbers("null")?;
        ensure!(null.starts_with(&[2]) && !null.contains(&1), "{null:?}");
        ensure!(numbers("all")? == [1, 2, 3, 4, 5, 6, 7]);
        for event in &named(&runs, "all")?.events {
            let [n, family, name, port, text] = outputs(event) else { anyhow::bail!("{event}") };
            let error = |of: &Value| of["error"].as_str().unwrap_or("-").to_string();
            let errors = [family, name, port, text].map(error);
            let wanted = match n["value"].as_u64() {
                Some(2) => ["NULL", "NULL", "NULL", "NULL"],
                Some(4) => ["EFAULT", "EFAULT", "EFAULT", "EFAULT"],
                Some(6) => ["-", "EFAULT", "-", "-"],
                _ => ["-", "-", "-", "-"],
            };
            ensure!(errors == wanted, "{event}");
        }
        Ok(())
    },
};

const TRACEPOINT: Check = Check {
    name: "expressions: a module's tracepoint: a text, an enum, a structure behind a pointer",
    command: script!(
        r#"
        [ -e /sys/kernel/btf/btrace_shapes ] && for i in 1; do
            run event -t bs_event --filter-arg 'narrow == -8 && name == "event" && color == BS_LOW' --output-arg '*list' --output-arg 'list->v[2]' --output-arg narrow \
                -c 'echo 1 >/sys/module/btrace_shapes/parameters/run'
            run none -t bs_event --filter-arg 'list->n > 0' -c 'echo 1 >/sys/module/btrace_shapes/parameters/run'
        done || echo '== none 2 this kernel shows no types of modules'"#
    ),
    judge: |ran| {
        let Some(runs) = traces(ran)? else { return Ok(()) };
        let event = named(&runs, "event")?;
        event.has(1)?;
        event.shows(&[json!({"n": -3, "v": [-1, 0, 32767]}), json!(32767), json!(-8)])?;
        named(&runs, "none")?.has(0)
    },
};
