//! `btrace types`: what the kernel's types look like, so that people can find the member to ask for.

mod find;
mod json;
mod query;

use crate::list::print;
use anyhow::Context;
use btf::{Btf, Kind};
use btrace::cli::TypesArgs;
use find::{Found, Place};
use std::io::Write;
use std::path::Path;
use std::sync::Arc;
use trace::{Kernel, Modules};

/// Prints the definitions of all matches. A pattern that matches nothing is an error once the others have been shown.
pub fn types(args: &TypesArgs) -> anyhow::Result<()> {
    let queries = query::parse(&args.patterns)?;
    let place = open(args.btf.as_deref())?;
    let (mut all, mut error) = (Vec::new(), None);
    for query in &queries {
        match find::find(&place, query) {
            Ok(found) => all.extend(found),
            Err(e) => drop(error.get_or_insert(e)),
        }
    }
    let mut out = Vec::new();
    let mut apart = false;
    for found in &all {
        if args.json {
            serde_json::to_writer(&mut out, &json::object(found, args.expand))?;
            out.push(b'\n');
        } else {
            let text = text(found, args.expand);
            // What takes several lines stands by itself.
            let several = text.contains('\n');
            if !out.is_empty() && (several || apart) {
                out.push(b'\n');
            }
            apart = several;
            writeln!(out, "{text}")?;
        }
    }
    print(&out)?;
    error.map_or(Ok(()), Err)
}

/// The types of the running kernel and its modules, or those in a file.
fn open(file: Option<&Path>) -> anyhow::Result<Place> {
    if let Some(file) = file {
        return Ok(Place { btf: Arc::new(Btf::open(file).context("--btf")?), modules: None });
    }
    let path = Path::new(Kernel::BTF_PATH);
    if let Err(e) = std::fs::metadata(path) {
        return Err(trace::Error::NoBtf { path: path.into(), reason: e.to_string() }.into());
    }
    let btf = Arc::new(Btf::open(path)?);
    let modules = Modules::new(path.parent().unwrap_or(path), Arc::clone(&btf));
    Ok(Place { btf, modules: Some(modules) })
}

/// A definition as C has it, with what C does not tell behind it.
fn text(found: &Found, levels: u32) -> String {
    let mut text = String::new();
    if let Some(module) = &found.module {
        text += &format!("/* module {module} */\n");
    }
    text += &found.btf.definition_expanded(found.id, levels);
    text + &comment(found).unwrap_or_default()
}

/// What is worth saying of something that is told in one line.
fn comment(found: &Found) -> Option<String> {
    let btf = &found.btf;
    let ty = btf.get(found.id).ok()?;
    match ty.kind() {
        Kind::Var => {
            let variable = btf.variable(found.id)?;
            let per_cpu = if variable.is_per_cpu() { ", per-CPU" } else { "" };
            let size = btf.size_of(variable.ty).unwrap_or(variable.size.into());
            Some(format!(" /* size: {size}{per_cpu} */"))
        }
        // A function's has none.
        Kind::Typedef if btf.written_out(ty.target()?, 0).is_none() => {
            let size = btf.size_of(found.id).ok()?;
            Some(format!(" /* {}, size: {size} */", btf.type_name(btf.resolve(found.id))))
        }
        Kind::Fwd => Some(" /* declared, and not defined here */".into()),
        _ => None,
    }
}
