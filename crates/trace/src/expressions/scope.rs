//! What an expression can name at a target.

use crate::error::Error;
use crate::kernel::Kernel;
use crate::layout::End;
use crate::target::Target;
use btf::{Btf, Kind};
use expr::{IntTy, Scope, Symbol, Tid, Ty, Types, Variable};

pub(super) fn of<'a>(
    kernel: &'a Kernel,
    own: &'a Btf,
    target: &Target,
    end: End,
    symbol: &'a dyn Fn(&str) -> Symbol,
    untold: &'a dyn Fn(&str) -> Option<String>,
) -> Result<Scope<'a>, Error> {
    // A program's types stand alone; a module's continue the kernel's.
    let spaces = if target.program.is_some() { vec![own, &*kernel.btf] } else { vec![own] };
    let types = Types::new(spaces);
    let declared = |name: &str, index: usize, id| {
        let (btf, id) = target.argument_type(kernel, own, index, id);
        let space = if std::ptr::eq(btf, own) { 0 } else { types.kernel() };
        let tid = Tid { space, id };
        Variable { name: name.into(), ty: types.ty(tid), spelled: Some(tid) }
    };
    let registers = |name: &str| Variable { name: name.into(), ty: Ty::ULONG, spelled: None };
    let args: Vec<Variable> = match &target.syscall {
        Some(call) if end.at_exit && call.overwrites_registers() => Vec::new(),
        Some(call) => {
            let arg = |p: &crate::syscalls::Param| {
                let signed = matches!(p.shape, btf::Shape::Int { signed: true, .. });
                let int = Ty::Int(IntTy { size: p.size.min(8) as u8, signed });
                let ty = expr::spelled(&types, &p.type_name).filter(Ty::is_scalar).unwrap_or(int);
                Variable { name: p.name.clone(), ty, spelled: None }
            };
            call.params.iter().map(arg).collect()
        }
        None if target.address.is_some() => target.params.iter().map(|p| registers(&p.name)).collect(),
        None => target.params.iter().enumerate().map(|(i, p)| declared(&p.name, i, p.ty)).collect(),
    };
    let kind = own.get(own.resolve(target.ret))?.kind();
    let returns = kind != Kind::Void && !kind.is_composite();
    let retval = (end.at_exit && returns).then(|| {
        if target.address.is_some() {
            registers("retval")
        } else {
            declared("retval", usize::MAX, target.ret)
        }
    });
    let no_retval = if kind == Kind::Void && target.kind != crate::TargetKind::Tracepoint {
        format!("{} returns nothing", target.label())
    } else if target.kind == crate::TargetKind::Tracepoint {
        "a tracepoint returns nothing".into()
    } else if !returns {
        "a structure is returned by value".into()
    } else {
        "what a function returns is known with --mode exit only".into()
    };
    Ok(Scope {
        target: target.label(),
        types,
        args,
        retval,
        no_retval,
        duration: end.at_exit,
        symbol,
        untold,
    })
}
