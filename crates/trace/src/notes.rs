//! From a line of the table ([`crate::pointee`]) to what a program does and where an event holds it.
//!
//! Members of one object that lie close together are read by one probe read, straight into the record; a pointer among
//! them is a cell there, from which the next read goes on. A failed probe read leaves zeros, and reads through a zero
//! fail in turn: so a program follows pointers without a branch, and whoever decodes tells by the cell that there was
//! none.

use crate::kernel::Kernel;
use crate::layout::{StringField, take};
use crate::pointee::{self, Format, Pointee, Show};
use crate::walk::{self, PathField, Walk};
use btf::{Btf, Kind, Shape, TypeId};
use std::cell::RefCell;
use std::collections::HashMap;

/// Something shown of the object behind a pointer.
#[derive(Clone, Debug)]
pub struct NoteField {
    /// What it is called.
    pub label: &'static str,
    /// How it reads, where its type does not say.
    pub format: Format,
    /// What lies there.
    pub kind: NoteKind,
    /// Offset of the pointer that it was reached through: if that is NULL, there is nothing.
    pub(crate) pointer: u32,
    /// How that pointer was had, the last read first. None if it is the argument itself.
    pub(crate) way: Vec<Hop>,
    /// Only then.
    pub(crate) when: Option<Condition>,
}

/// A read that had a pointer in it. Offsets are the record's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Hop {
    /// Its status.
    pub status: u32,
    /// The pointer that it read through.
    pub from: u32,
}

/// What a note holds.
#[derive(Clone, Debug)]
pub enum NoteKind {
    /// A text.
    Text(StringField),
    /// A member's bytes.
    Value {
        /// Offset of the read's status: `i32`, 0 or a negative error.
        status: u32,
        /// Offset of the value.
        offset: u32,
        /// Bytes of the value.
        size: u32,
        /// How the value reads.
        shape: Shape,
        /// A pointer to a function.
        function: bool,
    },
    /// A path.
    Path(PathField),
}

/// A number in the record that must be one of some.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Condition {
    /// Its offset.
    pub at: u32,
    /// Its bytes: 1, 2, 4 or 8.
    pub size: u32,
    /// The numbers.
    pub values: &'static [u64],
}

/// One thing that a program does. Offsets are the record's.
#[derive(Clone, Debug)]
pub(crate) struct Step {
    pub what: &'static str,
    pub when: Option<Condition>,
    /// Where the pointer to begin with lies.
    pub pointer: u32,
    pub kind: StepKind,
}

/// See [`Step`].
#[derive(Clone, Debug)]
pub(crate) enum StepKind {
    /// `size` bytes at `add` from the pointer go to `to + 8`, the status to `to`.
    Read { add: u32, size: u32, to: u32, user: bool },
    /// A text that begins at `add` from the pointer.
    Text { add: u32, to: StringField },
    /// A text of as many bytes as the `u32` at `len` says.
    Counted { len: u32, to: StringField },
    /// A walk to the root, the pointer being that of a `struct dentry`; `mount` is where that of a `struct vfsmount` lies.
    Path { mount: Option<u32>, to: PathField, walk: Walk },
}

/// What is shown of one object, and how it is had.
#[derive(Clone, Debug, Default)]
pub(crate) struct Behind {
    pub notes: Vec<NoteField>,
    pub steps: Vec<Step>,
}

/// Structures that the table needs by name, in the kernel's own BTF.
#[derive(Debug)]
pub(crate) struct Views {
    types: HashMap<&'static str, TypeId>,
    walk: Option<Walk>,
    /// Members of the kernel's own types, by the type and the place of what is shown in the table: most functions of a glob take
    /// the same few structures.
    found: RefCell<HashMap<(TypeId, usize), Option<Found>>>,
}

impl Views {
    pub fn of(btf: &Btf) -> Views {
        let mut names: Vec<&'static str> = pointee::views().chain(walk::STRUCTS).collect();
        names.sort_unstable();
        names.dedup();
        let wanted: Vec<_> = names.iter().map(|name| (Kind::Struct, *name)).collect();
        let found = btf.find_many(&wanted);
        let types: HashMap<_, _> =
            names.into_iter().zip(found).filter_map(|(name, ty)| Some((name, ty?))).collect();
        let walk = Walk::of(btf, |name| types.get(name).copied());
        Views { types, walk, found: RefCell::default() }
    }

    fn get(&self, name: &str) -> Option<TypeId> {
        self.types.get(name).copied()
    }
}

/// Members read together may have this much between them: a second probe read costs more than copying it.
const GAP: u32 = 64;

/// Most bytes of a member that is shown as a value; longer texts are read as texts.
const NOTE_SIZE: u32 = 64;

/// What is wanted of an object: a member's place.
#[derive(Clone, Copy)]
struct Want {
    offset: u32,
    size: u32,
    when: When,
}

type When = Option<(&'static str, &'static [u64])>;

/// An object on the way.
struct Object {
    /// Which object, and where in it, the pointer to this one lies; `None` for what the argument points to.
    from: Option<(usize, u32)>,
    wants: Vec<Want>,
    groups: Vec<Group>,
}

/// Bytes read together.
struct Group {
    begin: u32,
    end: u32,
    /// Only then, if all in it are.
    when: When,
    /// Where in the record: the status; the bytes begin 8 later.
    to: u32,
}

/// A member at the end of a path.
#[derive(Clone, Debug)]
struct Found {
    /// Offsets of the pointers on the way, each in its own object.
    hops: Vec<u32>,
    /// Offset in the last object.
    offset: u32,
    leaf: Leaf,
}

/// Where a path of members leads.
struct Route {
    object: usize,
    offset: u32,
}

/// Follows a path of members from an object of type `root`: pointers on the way, the offset in the last object, and the type;
/// `None` where this kernel has no such member.
fn follow(btf: &Btf, root: TypeId, path: &str) -> Option<(Vec<u32>, u32, TypeId)> {
    let mut hops = Vec::new();
    let (mut ty, mut offset) = (root, 0);
    for (at, segment) in path.split("->").enumerate() {
        if at > 0 {
            hops.push(offset);
            let pointer = btf.get(btf.resolve(ty)).ok().filter(|t| t.kind() == Kind::Ptr)?;
            (ty, offset) = (btf.resolve(pointer.target()?), 0);
        }
        for name in segment.split('.').filter(|name| !name.is_empty()) {
            let (name, first) = match name.strip_suffix("[0]") {
                Some(name) => (name, true),
                None => (name, false),
            };
            let member = btf.member(ty, name).ok().filter(|m| m.bitfield_size == 0)?;
            offset = member.byte_offset().checked_add(offset)?;
            ty = member.ty;
            if first {
                ty = btf.get(btf.resolve(ty)).ok()?.array()?.element;
            }
        }
    }
    Some((hops, offset, ty))
}

/// Everything but the places in the record.
struct Sketch {
    objects: Vec<Object>,
}

impl Sketch {
    fn object(&mut self, from: Option<(usize, u32)>) -> usize {
        if let Some(at) = self.objects.iter().position(|o| o.from == from) {
            return at;
        }
        self.objects.push(Object { from, wants: Vec::new(), groups: Vec::new() });
        self.objects.len() - 1
    }

    fn want(&mut self, object: usize, offset: u32, size: u32, when: When) {
        if let Some(object) = self.objects.get_mut(object) {
            object.wants.push(Want { offset, size, when });
        }
    }

    /// Wants the pointers on the way to a member.
    fn follow(&mut self, found: &Found, when: When) -> Route {
        let mut object = self.object(None);
        for hop in &found.hops {
            self.want(object, *hop, POINTER, when);
            object = self.object(Some((object, *hop)));
        }
        Route { object, offset: found.offset }
    }

    /// Puts what is wanted of each object into groups, and those into the record.
    fn place(&mut self, at: &mut u32) {
        for object in &mut self.objects {
            object.wants.sort_by_key(|w| (w.offset, w.size));
            for want in &object.wants {
                // From a whole word on, so that pointers are aligned in the record.
                // But nothing beyond the last byte that is wanted: it may be the object's last.
                let (begin, end) = (want.offset & !7, want.offset + want.size);
                match object.groups.last_mut() {
                    Some(group) if begin <= group.end.saturating_add(GAP) => {
                        if group.when != want.when {
                            group.when = None;
                        }
                        group.end = group.end.max(end);
                    }
                    _ => object.groups.push(Group { begin, end, when: want.when, to: 0 }),
                }
            }
            for group in &mut object.groups {
                group.to = take(at, 8 + group.end - group.begin);
            }
        }
    }

    /// Where in the record a member lies: its status and itself.
    fn find(&self, object: usize, offset: u32) -> Option<(u32, u32)> {
        let object = self.objects.get(object)?;
        let group = object.groups.iter().find(|g| (g.begin..g.end).contains(&offset))?;
        Some((group.to, group.to + 8 + offset - group.begin))
    }

    /// Where in the record the pointer to an object lies.
    fn pointer(&self, object: usize, root: u32) -> Option<u32> {
        match self.objects.get(object)?.from {
            None => Some(root),
            Some((from, offset)) => self.find(from, offset).map(|(_, at)| at),
        }
    }

    /// How the pointer at `offset` of an object is had, the last read first.
    fn way(&self, object: usize, offset: u32, root: u32) -> Vec<Hop> {
        let mut way = Vec::new();
        let mut next = Some((object, offset));
        while let Some((object, offset)) = next {
            let (Some((status, _)), Some(from)) = (self.find(object, offset), self.pointer(object, root))
            else {
                break;
            };
            way.push(Hop { status, from });
            next = self.objects.get(object).and_then(|o| o.from);
        }
        way
    }
}

/// Bytes of a pointer.
const POINTER: u32 = 8;

/// What a member turns out to be.
#[derive(Clone, Debug)]
enum Leaf {
    /// A text behind the `char *` at the route's end.
    TextBehind,
    /// A text in place.
    TextHere,
    Value {
        size: u32,
        shape: Shape,
        function: bool,
    },
    /// The object itself is a `struct dentry`.
    Dentry,
    /// Offsets of mount and dentry from the object.
    Path {
        mount: u32,
        dentry: u32,
    },
    /// Offsets of length and pointer from the object.
    Name {
        len: u32,
        name: u32,
    },
}

/// What is shown of the object that a pointer of type `ty`, at `pointer` in the record, points to; takes room from `at` on.
///
/// # Errors
/// None: what this kernel does not have is left out.
pub(crate) fn behind(
    kernel: &Kernel,
    btf: &Btf,
    line: &'static Pointee,
    object: TypeId,
    pointer: u32,
    at: &mut u32,
    string_size: u32,
) -> Behind {
    let named = |ty: TypeId, name: &str| {
        let is = btf.get(ty).ok().and_then(|t| t.name()) == Some(name);
        if is { Some(ty) } else { kernel.views().get(name) }
    };
    let Some(root) = line.view.map_or(Some(object), |view| named(object, view)) else {
        return Behind::default();
    };
    let mut sketch = Sketch { objects: Vec::new() };
    sketch.object(None);
    let look = |show: &Show| {
        let (hops, offset, ty) = show.path.split('|').find_map(|path| {
            let (cast, path) = pointee::split_cast(path);
            let from = cast.map_or(Some(root), |cast| named(root, cast))?;
            follow(btf, from, path)
        })?;
        Some(Found { hops, offset, leaf: leaf(btf, show.format, ty)? })
    };
    // Ids are of one BTF; those of modules are few.
    let own = std::ptr::eq(btf, &*kernel.btf);
    let mut found: Vec<(&Show, Route, Leaf)> = Vec::new();
    for show in line.show {
        let place = if own {
            let mut all = kernel.views().found.borrow_mut();
            all.entry((root, std::ptr::from_ref(show).addr())).or_insert_with(|| look(show)).clone()
        } else {
            look(show)
        };
        let Some(place) = place else { continue };
        let route = sketch.follow(&place, show.when);
        let leaf = place.leaf;
        match leaf {
            Leaf::TextHere | Leaf::Dentry => {}
            Leaf::TextBehind => sketch.want(route.object, route.offset, POINTER, show.when),
            Leaf::Value { size, .. } => sketch.want(route.object, route.offset, size, show.when),
            Leaf::Path { mount, dentry } => {
                sketch.want(route.object, route.offset + mount, POINTER, show.when);
                sketch.want(route.object, route.offset + dentry, POINTER, show.when);
            }
            Leaf::Name { len, name } => {
                sketch.want(route.object, route.offset + len, 4, show.when);
                sketch.want(route.object, route.offset + name, POINTER, show.when);
            }
        }
        found.push((show, route, leaf));
    }
    sketch.place(at);
    let conditions: Vec<(&str, Condition)> = found
        .iter()
        .filter_map(|(show, route, leaf)| match leaf {
            Leaf::Value { size: size @ (1 | 2 | 4 | 8), .. } => {
                let (_, at) = sketch.find(route.object, route.offset)?;
                Some((show.label, Condition { at, size: *size, values: &[] }))
            }
            _ => None,
        })
        .collect();
    let condition = |(label, values): (&str, &'static [u64])| {
        let on = conditions.iter().find(|(l, _)| *l == label)?;
        Some(Condition { values, ..on.1 })
    };
    let steps = reads(&sketch, line, pointer, &condition);
    let mut behind = Behind { notes: Vec::with_capacity(found.len()), steps };
    for (show, route, leaf) in &found {
        // Where what it depends on is not there, it is not shown.
        let when = match show.when.map(&condition) {
            Some(None) => continue,
            when => when.flatten(),
        };
        let placed = place_note(&sketch, kernel, route, leaf, pointer, at, string_size);
        let Some((through, kind, step)) = placed else { continue };
        let place = match leaf {
            Leaf::TextBehind => Some((route.object, route.offset)),
            Leaf::Path { dentry, .. } => Some((route.object, route.offset + dentry)),
            Leaf::Name { name, .. } => Some((route.object, route.offset + name)),
            Leaf::TextHere | Leaf::Value { .. } | Leaf::Dentry => {
                sketch.objects.get(route.object).and_then(|o| o.from)
            }
        };
        let way = place.map_or(Vec::new(), |(object, offset)| sketch.way(object, offset, pointer));
        let (label, format) = (show.label, show.format);
        behind.notes.push(NoteField { label, format, kind, pointer: through, way, when });
        if let Some((pointer, kind)) = step {
            behind.steps.push(Step { what: show.label, when, pointer, kind });
        }
    }
    behind
}

/// The probe reads, in an order in which each finds its pointer and its condition.
fn reads(
    sketch: &Sketch,
    line: &Pointee,
    root: u32,
    condition: &impl Fn((&'static str, &'static [u64])) -> Option<Condition>,
) -> Vec<Step> {
    let mut steps = Vec::new();
    for conditional in [false, true] {
        for (index, object) in sketch.objects.iter().enumerate() {
            let Some(pointer) = sketch.pointer(index, root) else { continue };
            for group in object.groups.iter().filter(|g| g.when.is_some() == conditional) {
                let when = group.when.and_then(condition);
                if group.when.is_some() && when.is_none() {
                    continue;
                }
                let kind = StepKind::Read {
                    add: group.begin,
                    size: group.end - group.begin,
                    to: group.to,
                    user: line.user && index == 0,
                };
                steps.push(Step { what: "members", when, pointer, kind });
            }
        }
    }
    steps
}

/// A note's pointer, where it lies, and what is to be done for it beside the reads: from which pointer, and what.
type Placed = (u32, NoteKind, Option<(u32, StepKind)>);

fn place_note(
    sketch: &Sketch,
    kernel: &Kernel,
    route: &Route,
    leaf: &Leaf,
    root: u32,
    at: &mut u32,
    string_size: u32,
) -> Option<Placed> {
    let object = sketch.pointer(route.object, root)?;
    let cell = |offset: u32| sketch.find(route.object, route.offset + offset).map(|(_, at)| at);
    Some(match leaf {
        Leaf::TextBehind => {
            let pointer = cell(0)?;
            let to = StringField { offset: take(at, 4 + string_size), size: string_size, user_too: true };
            (pointer, NoteKind::Text(to), Some((pointer, StepKind::Text { add: 0, to })))
        }
        Leaf::TextHere => {
            let to = StringField { offset: take(at, 4 + string_size), size: string_size, user_too: true };
            (object, NoteKind::Text(to), Some((object, StepKind::Text { add: route.offset, to })))
        }
        Leaf::Value { size, shape, function } => {
            let (status, offset) = sketch.find(route.object, route.offset)?;
            let shape = shape.clone();
            (object, NoteKind::Value { status, offset, size: *size, shape, function: *function }, None)
        }
        Leaf::Dentry => {
            // An object inside another has no pointer in the record.
            let walk = kernel.views().walk.filter(|_| route.offset == 0)?;
            let to = PathField { offset: take(at, PathField::SIZE) };
            (object, NoteKind::Path(to), Some((object, StepKind::Path { mount: None, to, walk })))
        }
        Leaf::Path { mount, dentry } => {
            let walk = kernel.views().walk?;
            let to = PathField { offset: take(at, PathField::SIZE) };
            let dentry = cell(*dentry)?;
            let step = StepKind::Path { mount: Some(cell(*mount)?), to, walk };
            (dentry, NoteKind::Path(to), Some((dentry, step)))
        }
        Leaf::Name { len, name } => {
            let to = StringField { offset: take(at, 4 + string_size), size: string_size, user_too: false };
            let pointer = cell(*name)?;
            (pointer, NoteKind::Text(to), Some((pointer, StepKind::Counted { len: cell(*len)?, to })))
        }
    })
}

/// What a member is, by what the line says of it and by its type.
fn leaf(btf: &Btf, format: Format, ty: TypeId) -> Option<Leaf> {
    let resolved = btf.get(btf.resolve(ty)).ok()?;
    let at = |path| btf.member(ty, path).ok().map(|m| m.byte_offset());
    match format {
        Format::Path if resolved.name() == Some("dentry") => return Some(Leaf::Dentry),
        Format::Path => return Some(Leaf::Path { mount: at("mnt")?, dentry: at("dentry")? }),
        Format::Name => return Some(Leaf::Name { len: at("len")?, name: at("name")? }),
        _ => {}
    }
    if btf.is_char_ptr(ty).is_some() {
        return Some(Leaf::TextBehind);
    }
    let size = u32::try_from(btf.size_of(ty).ok()?).ok()?;
    if size > NOTE_SIZE {
        let text = matches!(Shape::of(btf, ty, &btf::Limits::default()), Shape::Text { .. });
        return text.then_some(Leaf::TextHere);
    }
    let shape = Shape::of(btf, ty, &btf::Limits::default());
    Some(Leaf::Value { size, shape, function: is_function_pointer(btf, ty) })
}

/// Whether values are addresses of code.
pub(crate) fn is_function_pointer(btf: &Btf, ty: TypeId) -> bool {
    let pointer = btf.get(btf.resolve(ty)).ok().filter(|t| t.kind() == Kind::Ptr);
    let target = pointer.and_then(|p| p.target()).and_then(|t| btf.get(btf.resolve(t)).ok());
    target.is_some_and(|t| t.kind() == Kind::FuncProto)
}
