//! From a pattern to types: in vmlinux, and where that has none of the name in the loaded modules.

use super::query::{Keyword, Name, Query};
use anyhow::{anyhow, bail};
use btf::{Btf, Kind, Lookup, TypeId};
use std::sync::Arc;
use trace::{Modules, Scope, near_names};

/// What is no module.
const VMLINUX: &str = "vmlinux";

/// Where types are looked for.
pub struct Place {
    /// vmlinux's.
    pub btf: Arc<Btf>,
    /// Those on top of it, where there may be any.
    pub modules: Option<Modules>,
}

/// A type.
pub struct Found {
    /// Its module; `None` for vmlinux.
    pub module: Option<String>,
    /// What it is of.
    pub btf: Arc<Btf>,
    pub id: TypeId,
}

/// All that a pattern matches.
///
/// # Errors
/// There is none; with what may have been meant.
pub fn find(place: &Place, query: &Query) -> anyhow::Result<Vec<Found>> {
    let mut found = Vec::new();
    match &query.scope {
        Scope::Module(module) if module.as_str() != VMLINUX => {
            let Some(modules) = &place.modules else {
                bail!("{module}:{}: no modules with --btf", query.as_str())
            };
            let parts = opened(modules, |name| module.matches(name));
            if parts.is_empty() {
                bail!(
                    "{module}:{}: {}",
                    query.as_str(),
                    match module.is_glob() {
                        true => format!("no loaded module whose types are known matches {module}"),
                        false => modules.absence(module.as_str()),
                    }
                );
            }
            found.extend(parts.iter().flat_map(|(name, btf)| of_module(name, btf, query)));
        }
        _ => {
            found.extend(of_vmlinux(&place.btf, query));
            if let (true, false, Some(modules)) = (found.is_empty(), query.is_glob(), &place.modules) {
                // Opening every module's types is for names that the kernel itself has not.
                found.extend(
                    opened(modules, |_| true).iter().flat_map(|(name, btf)| of_module(name, btf, query)),
                );
            }
        }
    }
    if found.is_empty() { Err(unknown(place, query)) } else { Ok(found) }
}

fn opened(modules: &Modules, wanted: impl Fn(&str) -> bool) -> Vec<(String, Arc<Btf>)> {
    let mut opened = Vec::new();
    for name in modules.names().into_iter().filter(|name| wanted(name)) {
        match modules.types(&name) {
            Ok(btf) => opened.push((name, btf)),
            // Unloaded meanwhile, or built for another kernel: the others are none the worse.
            Err(error) => log::debug!("types of module {name}: {error}"),
        }
    }
    opened
}

fn of_vmlinux(btf: &Arc<Btf>, query: &Query) -> Vec<Found> {
    ids(btf, query).into_iter().map(|id| Found { module: None, btf: Arc::clone(btf), id }).collect()
}

/// Those of a module that are not its base's.
fn of_module(name: &str, btf: &Arc<Btf>, query: &Query) -> Vec<Found> {
    let first = btf.base().map_or(1, |base| base.len());
    let own = ids(btf, query).into_iter().filter(|id| id.0 >= first);
    own.map(|id| Found { module: Some(name.to_owned()), btf: Arc::clone(btf), id }).collect()
}

fn ids(btf: &Btf, query: &Query) -> Vec<TypeId> {
    let pattern = match &query.name {
        Name::Words(words) => return Lookup::new(btf).ty(words).into_iter().collect(),
        Name::Pattern(pattern) => pattern,
    };
    let name = pattern.as_str();
    if pattern.is_glob() {
        let kinds = query.kinds().iter();
        let mut ids: Vec<TypeId> = kinds
            .flat_map(|kind| btf.names(*kind).filter(|(_, name)| pattern.matches(name)).map(|(id, _)| id))
            .collect();
        ids.sort_unstable();
        return ids;
    }
    let mut ids: Vec<TypeId> = query.kinds().iter().flat_map(|kind| btf.find_all(*kind, name)).collect();
    if ids.is_empty() && query.kinds().iter().any(|kind| kind.is_composite()) {
        let declared = btf.find_all(Kind::Fwd, name).into_iter().filter(|id| match query.keyword {
            None => true,
            keyword => btf.get(*id).is_ok_and(|ty| ty.is_union_fwd() == (keyword == Some(Keyword::Union))),
        });
        ids.extend(declared.take(1));
    }
    if ids.is_empty() && query.kinds().contains(&Kind::Enum) {
        // One who knows an enumerator's name looks for its neighbours.
        ids.extend(btf.enumerators_named(name).into_iter().map(|e| e.of));
        ids.dedup();
    }
    ids
}

fn unknown(place: &Place, query: &Query) -> anyhow::Error {
    let name = query.as_str();
    let noun = query.keyword.map_or("type", |keyword| keyword.noun());
    if query.is_glob() {
        let hint = match query.scope {
            Scope::Kernel if place.modules.is_some() => {
                format!(" in vmlinux (*:{name} looks in the loaded modules)")
            }
            _ => String::new(),
        };
        return anyhow!("no {noun} matches {name}{hint}");
    }
    let btf = &place.btf;
    if query.keyword.is_some() {
        let others = [Kind::Struct, Kind::Union, Kind::Enum, Kind::Typedef, Kind::Func, Kind::Var];
        if let Some(kind) = others.into_iter().find(|kind| btf.find(*kind, name).is_some()) {
            return anyhow!("no {noun} is named {name}; there is a {kind} of that name");
        }
    }
    let names = query.kinds().iter().flat_map(|kind| btf.names(*kind)).map(|(_, name)| name);
    let enums = query.kinds().iter().filter(|kind| matches!(kind, Kind::Enum | Kind::Enum64));
    let enums = enums.flat_map(|kind| btf.ids_of(*kind)).filter_map(|id| btf.get(id).ok());
    // An enum is found by its enumerators too.
    let names = names.chain(enums.flat_map(|ty| ty.enumerators()).map(|e| e.name));
    anyhow!("no {noun} is named {name}{}", near_names(name, names))
}
