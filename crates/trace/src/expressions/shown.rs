//! What an event shows of an expression: where it lies in the record, and how it reads.

use crate::kernel::Kernel;
use crate::layout::{Captures, take};
use crate::notes::{Behind, NoteField, Step, behind};
use crate::pointee::{self, Form};
use btf::{Kind, Limits, Shape, TypeId};
use expr::tree::{BytesFormat, Expr, Format, Output, PathOf, Text};
use expr::{Room, Scope, Tid, Ty, Types};

/// Bytes before the value in an output's room, which tell whether it is there.
pub(crate) const VALUE: u32 = 8;

/// An output of an expression.
#[derive(Clone, Debug)]
pub struct Shown {
    /// As it was written.
    pub text: String,
    /// Its type in C.
    pub type_name: String,
    /// What it is.
    pub kind: ShownKind,
    /// What is shown of the object that it points to.
    pub notes: Vec<NoteField>,
    /// How that is put in text.
    pub form: Form,
    pub(crate) output: Output,
    pub(crate) room: Room,
    /// How the program has what is behind it.
    pub(crate) steps: Vec<Step>,
}

/// What kind of value it is.
#[derive(Clone, Debug)]
pub enum ShownKind {
    /// A number.
    Number {
        /// How its bytes read.
        shape: Shape,
        /// How many of the eight are its own.
        size: u32,
        /// How it is shown.
        format: Format,
    },
    /// Bytes.
    Bytes {
        /// How they read.
        shape: Shape,
        /// How many.
        len: u32,
        /// How they are shown.
        format: BytesFormat,
    },
    /// Bytes, at most so many.
    Buffer {
        /// At most.
        most: u32,
        /// How they are shown.
        format: BytesFormat,
    },
    /// Part of what is passed by value.
    Value {
        /// How it reads.
        shape: Shape,
        /// Bytes before it.
        skip: u32,
        /// How many.
        len: u32,
    },
    /// A text, of which so many bytes are read at most.
    Text {
        /// Terminator included.
        room: u32,
        /// It ends there, however full the room is.
        whole: bool,
    },
    /// A path: the first of the notes.
    Path,
}

impl Shown {
    /// Where its value lies in the record, and how many bytes are for it.
    pub fn room(&self) -> (u32, u32) {
        (self.room.offset + VALUE, self.room.size - VALUE)
    }

    pub(super) fn new(
        kernel: &Kernel,
        scope: &Scope<'_>,
        text: &str,
        output: Output,
        captures: Captures,
        at: &mut u32,
    ) -> Shown {
        let types = &scope.types;
        let (ty, spelled) = type_of(&output);
        let len = types.size(&ty).unwrap_or(8) as u32;
        let room = Room::of(&output, *at, captures.string_size, len);
        let offset = take(at, room.size);
        let pointer = offset + VALUE;
        let kind = match &output {
            Output::Scalar(_, format) => {
                let size = ty.word().map_or(8, |int| int.size.into());
                ShownKind::Number { shape: shape(types, &ty, spelled), size, format: *format }
            }
            Output::Bytes { len, format, .. } => {
                ShownKind::Bytes { shape: shape(types, &ty, spelled), len: *len, format: *format }
            }
            Output::Buffer { most, format, .. } => ShownKind::Buffer { most: *most, format: *format },
            Output::Value(place) => ShownKind::Value {
                shape: shape(types, &ty, spelled),
                skip: (place.offset.max(0) % 8) as u32,
                len,
            },
            Output::Text(..) => ShownKind::Text { room: room.text, whole: room.whole },
            Output::Path(..) => ShownKind::Path,
        };
        let found = match &output {
            Output::Path(_, of) => {
                let name = match of {
                    PathOf::File => "file",
                    PathOf::Path => "path",
                    PathOf::Dentry => "dentry",
                };
                pointee::of(name).zip(kernel.btf.find(Kind::Struct, name)).map(|line| (&*kernel.btf, line))
            }
            Output::Scalar(..) if captures.pointees => match &ty {
                Ty::Ptr(to) => match **to {
                    Ty::Composite(tid) => types.btf(tid.space).and_then(|btf| {
                        let line = pointee::of(btf.get(tid.id).ok()?.name()?)?;
                        Some((btf, (line, tid.id)))
                    }),
                    _ => None,
                },
                _ => None,
            },
            _ => None,
        };
        let (mut notes, mut steps, mut form) = (Vec::new(), Vec::new(), Form::default());
        if let Some((btf, (line, object))) = found {
            let object: TypeId = object;
            let found = behind(kernel, btf, line, object, pointer, at, captures.string_size);
            Behind { notes, steps } = found;
            form = line.form;
        }
        let type_name = type_name(types, &output);
        Shown { text: text.into(), type_name, kind, notes, form, output, room, steps }
    }
}

/// A type in C, as declared if it was.
pub(super) fn name(types: &Types<'_>, ty: &Ty, spelled: Option<Tid>) -> String {
    spelled.and_then(|tid| Some(types.btf(tid.space)?.type_name(tid.id))).unwrap_or_else(|| types.name(ty))
}

/// The type of what is shown in C, by its name.
pub(super) fn type_name(types: &Types<'_>, output: &Output) -> String {
    match output {
        // It is shown by one of four names, as an enumeration is.
        Output::Scalar(_, Format::Context) => "enum context".into(),
        // As the kernel's own types are spelled.
        Output::Text(Text::Comm, _) => "char[16]".into(),
        _ => {
            let (ty, spelled) = type_of(output);
            name(types, &ty, spelled)
        }
    }
}

/// The type of what is shown, and as declared.
pub(super) fn type_of(output: &Output) -> (Ty, Option<Tid>) {
    let of = |e: &Expr| (e.ty.clone(), e.spelled);
    match output {
        Output::Scalar(e, _) | Output::Path(e, _) => of(e),
        Output::Bytes { ty, spelled, .. } => (ty.clone(), *spelled),
        Output::Buffer { pointer, .. } => of(pointer),
        Output::Value(place) => (place.ty.clone(), place.spelled),
        Output::Text(Text::Comm, _) => (Ty::Array(Box::new(Ty::Char { signed: true }), 16), None),
        Output::Text(Text::Memory { pointer, .. }, _) => of(pointer),
    }
}

/// How the bytes of a type read.
pub(super) fn shape(types: &Types<'_>, ty: &Ty, spelled: Option<Tid>) -> Shape {
    let of = |tid: Tid| {
        types
            .btf(tid.space)
            .map_or(Shape::Opaque { size: 8 }, |btf| Shape::of(btf, tid.id, &Limits::default()))
    };
    if let Some(tid) = spelled {
        return of(tid);
    }
    match ty {
        Ty::Bool => Shape::Bool { size: 1 },
        Ty::Char { signed } => Shape::Char { signed: *signed },
        Ty::Int(int) => Shape::Int { size: int.size, signed: int.signed },
        Ty::Ptr(to) => Shape::Ptr { ty: types.name(ty).into(), code: matches!(**to, Ty::Func(_)) },
        Ty::Enum(tid, _) | Ty::Composite(tid) | Ty::Other(tid) | Ty::Incomplete(tid) | Ty::Func(tid) => {
            of(*tid)
        }
        Ty::Array(element, len) => Shape::Array {
            element: Box::new(shape(types, element, None)),
            stride: types.size(element).unwrap_or(1) as u32,
            len: *len,
            shown: Limits::default().elements,
        },
        Ty::Void => Shape::Void,
    }
}
