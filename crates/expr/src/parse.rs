//! Words → parts, by precedence climbing (Pratt): C's operators with C's precedence, and `in`.

use crate::ast::{AggregateNode, BaseType, BinaryOp, Node, NodeKind, Statement, TypeName, UnaryOp};
use crate::error::{Error, Span};
use crate::token::{Token, tokens};
use crate::types::IntTy;

/// Deepest nesting, of brackets and of operators.
pub const MOST_DEPTH: u32 = 100;

/// Functions that gather many events.
pub(crate) const AGGREGATES: [&str; 7] = ["count", "hist", "lhist", "sum", "min", "max", "avg"];

/// Words that begin a type or go on with it.
const TYPE_WORDS: [&str; 13] = [
    "struct", "union", "enum", "void", "char", "short", "int", "long", "signed", "unsigned", "_Bool",
    "const", "volatile",
];

/// What the meaning of words depends on.
pub(crate) struct Words<'w> {
    /// Tells the names of types from others: of `(a)-b` it decides.
    pub is_type: &'w dyn Fn(&str) -> bool,
    /// Plain `char` is unsigned, and what stands between `'` too.
    pub unsigned_char: bool,
}

/// Reads an expression.
pub(crate) fn expression(text: &str, words: &Words<'_>) -> Result<Node, Error> {
    let mut parser = Parser::new(text, words)?;
    let node = parser.whole()?;
    parser.end()?;
    Ok(node)
}

/// Reads an expression or an aggregation.
pub(crate) fn statement(text: &str, words: &Words<'_>) -> Result<Statement, Error> {
    let mut parser = Parser::new(text, words)?;
    let statement = match parser.aggregate()? {
        Some(aggregate) => Statement::Aggregate(aggregate),
        None => Statement::Value(parser.whole()?),
    };
    parser.end()?;
    Ok(statement)
}

/// Reads the name of a type.
pub(crate) fn type_name(text: &str, words: &Words<'_>) -> Result<TypeName, Error> {
    let mut parser = Parser::new(text, words)?;
    let name = parser.type_name()?;
    parser.end()?;
    Ok(name)
}

struct Parser<'p> {
    tokens: Vec<(Token, Span)>,
    at: usize,
    is_type: &'p dyn Fn(&str) -> bool,
    depth: u32,
}

impl<'p> Parser<'p> {
    fn new(text: &str, words: &Words<'p>) -> Result<Parser<'p>, Error> {
        Ok(Parser { tokens: tokens(text, words.unsigned_char)?, at: 0, is_type: words.is_type, depth: 0 })
    }
}

impl Parser<'_> {
    fn peek(&self) -> &Token {
        self.peek_at(0)
    }

    fn peek_at(&self, ahead: usize) -> &Token {
        self.tokens.get(self.at + ahead).map_or(&Token::End, |(token, _)| token)
    }

    /// Of the next word.
    fn span(&self) -> Span {
        let last = || self.tokens.last().map_or(Span::default(), |(_, span)| *span);
        self.tokens.get(self.at).map_or_else(last, |(_, span)| *span)
    }

    /// Of the last word taken.
    fn taken(&self) -> Span {
        self.at.checked_sub(1).and_then(|at| self.tokens.get(at)).map_or(Span::default(), |(_, span)| *span)
    }

    fn next(&mut self) -> (Token, Span) {
        let (token, span) = (self.peek().clone(), self.span());
        self.at = (self.at + 1).min(self.tokens.len());
        (token, span)
    }

    fn is_sign(&self, sign: &str) -> bool {
        matches!(self.peek(), Token::Sign(s) if *s == sign)
    }

    fn take(&mut self, sign: &str) -> bool {
        let is = self.is_sign(sign);
        if is {
            self.at += 1;
        }
        is
    }

    fn expect(&mut self, sign: &str) -> Result<Span, Error> {
        if self.take(sign) {
            return Ok(self.taken());
        }
        Err(self.wrong(&format!("'{sign}' is expected")))
    }

    fn wrong(&self, expected: &str) -> Error {
        Error::new(self.span(), format!("{expected}, not {}", self.peek().describe()))
    }

    fn end(&self) -> Result<(), Error> {
        match self.peek() {
            Token::End => Ok(()),
            Token::Sign("=") => Err(Error::new(self.span(), "nothing can be assigned to; '==' compares")),
            Token::Sign(
                s @ ("++" | "--" | "+=" | "-=" | "*=" | "/=" | "%=" | "&=" | "|=" | "^=" | "<<=" | ">>="),
            ) => Err(Error::new(self.span(), format!("'{s}': nothing can be assigned to"))),
            _ => Err(self.wrong("an operator or the end is expected")),
        }
    }

    fn deeper(&mut self) -> Result<(), Error> {
        self.depth += 1;
        if self.depth > MOST_DEPTH { Err(self.too_deep(self.span())) } else { Ok(()) }
    }

    fn too_deep(&self, span: Span) -> Error {
        Error::new(span, format!("the expression is nested deeper than {MOST_DEPTH}"))
    }

    fn node(&self, kind: NodeKind, span: Span) -> Result<Node, Error> {
        let height = 1 + match &kind {
            NodeKind::Int(..)
            | NodeKind::Str(_)
            | NodeKind::Name(_)
            | NodeKind::Special(_)
            | NodeKind::SizeofType(_) => 0,
            NodeKind::Member { of, .. } => of.height,
            NodeKind::Unary(_, a) | NodeKind::Cast(_, a) | NodeKind::SizeofValue(a) => a.height,
            NodeKind::ContainerOf { pointer, .. } => pointer.height,
            NodeKind::Index(a, b) | NodeKind::Binary(_, a, b) => a.height.max(b.height),
            NodeKind::Cond(a, b, c) => a.height.max(b.height).max(c.height),
            NodeKind::In(a, list) => list.iter().map(|n| n.height).max().unwrap_or(0).max(a.height),
            NodeKind::Call { args, .. } => args.iter().map(|n| n.height).max().unwrap_or(0),
        };
        if height > MOST_DEPTH {
            // Brackets and what stands before a value were counted on the way down: this grew by what follows one another.
            let what = match &kind {
                NodeKind::Binary(..) => "operators",
                NodeKind::Member { .. } | NodeKind::Index(..) => "members",
                _ => return Err(self.too_deep(span)),
            };
            let most = MOST_DEPTH - 1;
            return Err(Error::new(
                span,
                format!("too many {what} one after another: at most {most}, all together"),
            ));
        }
        Ok(Node { kind, span, height })
    }

    /// `a ? b : c`, which binds least.
    fn whole(&mut self) -> Result<Node, Error> {
        self.deeper()?;
        let test = self.binary(0)?;
        let node = if self.take("?") {
            let yes = self.whole()?;
            self.expect(":")?;
            let no = self.whole()?;
            let span = test.span.to(no.span);
            self.node(NodeKind::Cond(Box::new(test), Box::new(yes), Box::new(no)), span)?
        } else {
            test
        };
        self.depth -= 1;
        Ok(node)
    }

    fn binary(&mut self, least: u8) -> Result<Node, Error> {
        let mut left = self.unary()?;
        loop {
            if let Token::Name(name) = self.peek()
                && name == "in"
                && IN >= least
            {
                self.at += 1;
                left = self.list(left)?;
                continue;
            }
            let Some((op, binds)) = self.operator().filter(|(_, binds)| *binds >= least) else {
                return Ok(left);
            };
            if matches!(op, BinaryOp::LogicalAnd | BinaryOp::LogicalOr) {
                let mut chain = vec![left];
                while self.operator().is_some_and(|(next, _)| next == op) {
                    self.at += 1;
                    chain.push(self.binary(binds + 1)?);
                }
                left = self.joined(op, chain)?;
                continue;
            }
            self.at += 1;
            let right = self.binary(binds + 1)?;
            let span = left.span.to(right.span);
            left = self.node(NodeKind::Binary(op, Box::new(left), Box::new(right)), span)?;
        }
    }

    /// `a && b && c && d` as `(a && b) && (c && d)`, which means the same: a long chain is no deep nesting.
    fn joined(&self, op: BinaryOp, mut chain: Vec<Node>) -> Result<Node, Error> {
        while chain.len() > 1 {
            let mut halved = Vec::with_capacity(chain.len().div_ceil(2));
            let mut parts = chain.into_iter();
            while let Some(left) = parts.next() {
                let Some(right) = parts.next() else {
                    halved.push(left);
                    break;
                };
                let span = left.span.to(right.span);
                halved.push(self.node(NodeKind::Binary(op, Box::new(left), Box::new(right)), span)?);
            }
            chain = halved;
        }
        chain.pop().ok_or_else(|| self.wrong("a value is expected"))
    }

    fn list(&mut self, value: Node) -> Result<Node, Error> {
        self.expect("(")?;
        let list = self.comma_list()?;
        if list.is_empty() {
            return Err(Error::new(self.taken(), "an empty list: it would never hold"));
        }
        let span = value.span.to(self.taken());
        self.node(NodeKind::In(Box::new(value), list), span)
    }

    /// Expressions up to the closing bracket, which is taken too.
    fn comma_list(&mut self) -> Result<Vec<Node>, Error> {
        let mut list = Vec::new();
        if self.take(")") {
            return Ok(list);
        }
        loop {
            list.push(self.whole()?);
            if !self.take(",") {
                self.expect(")")?;
                return Ok(list);
            }
        }
    }

    fn operator(&self) -> Option<(BinaryOp, u8)> {
        let Token::Sign(sign) = self.peek() else { return None };
        Some(match *sign {
            "||" => (BinaryOp::LogicalOr, 1),
            "&&" => (BinaryOp::LogicalAnd, 2),
            "|" => (BinaryOp::Or, 3),
            "^" => (BinaryOp::Xor, 4),
            "&" => (BinaryOp::And, 5),
            "==" => (BinaryOp::Eq, 6),
            "!=" => (BinaryOp::Ne, 6),
            "<" => (BinaryOp::Lt, 7),
            "<=" => (BinaryOp::Le, 7),
            ">" => (BinaryOp::Gt, 7),
            ">=" => (BinaryOp::Ge, 7),
            "<<" => (BinaryOp::Shl, 8),
            ">>" => (BinaryOp::Shr, 8),
            "+" => (BinaryOp::Add, 9),
            "-" => (BinaryOp::Sub, 9),
            "*" => (BinaryOp::Mul, 10),
            "/" => (BinaryOp::Div, 10),
            "%" => (BinaryOp::Mod, 10),
            _ => return None,
        })
    }

    fn unary(&mut self) -> Result<Node, Error> {
        self.deeper()?;
        let start = self.span();
        let op = match self.peek() {
            Token::Sign("+") => Some(UnaryOp::Plus),
            Token::Sign("-") => Some(UnaryOp::Neg),
            Token::Sign("~") => Some(UnaryOp::BitNot),
            Token::Sign("!") => Some(UnaryOp::Not),
            Token::Sign("*") => Some(UnaryOp::Deref),
            Token::Sign("&") => Some(UnaryOp::Address),
            _ => None,
        };
        let node = if let Some(op) = op {
            self.at += 1;
            let of = self.unary()?;
            let span = start.to(of.span);
            self.node(NodeKind::Unary(op, Box::new(of)), span)?
        } else if self.is_sign("(") && self.begins_type(1) {
            self.at += 1;
            let ty = self.type_name()?;
            self.expect(")")?;
            let of = self.unary()?;
            let span = start.to(of.span);
            self.node(NodeKind::Cast(ty, Box::new(of)), span)?
        } else if matches!(self.peek(), Token::Name(name) if name == "sizeof") {
            self.sizeof()?
        } else {
            self.postfix()?
        };
        self.depth -= 1;
        Ok(node)
    }

    fn sizeof(&mut self) -> Result<Node, Error> {
        let start = self.next().1;
        if self.is_sign("(") && self.begins_type(1) {
            self.at += 1;
            let ty = self.type_name()?;
            let end = self.expect(")")?;
            return self.node(NodeKind::SizeofType(ty), start.to(end));
        }
        let of = self.unary()?;
        let span = start.to(of.span);
        self.node(NodeKind::SizeofValue(Box::new(of)), span)
    }

    fn begins_type(&self, ahead: usize) -> bool {
        let Token::Name(name) = self.peek_at(ahead) else { return false };
        if TYPE_WORDS.contains(&name.as_str()) {
            return true;
        }
        // `(name *)` cannot be an expression; of `(name)` the name decides.
        let mut next = ahead + 1;
        while matches!(self.peek_at(next), Token::Sign("*")) {
            next += 1;
        }
        matches!(self.peek_at(next), Token::Sign(")")) && (next > ahead + 1 || (self.is_type)(name))
    }

    fn type_name(&mut self) -> Result<TypeName, Error> {
        let start = self.span();
        let base = self.base_type()?;
        let mut pointers = 0;
        loop {
            if self.take("*") {
                pointers += 1;
            } else if matches!(self.peek(), Token::Name(name) if name == "const" || name == "volatile" || name == "__user" || name == "__rcu")
            {
                self.at += 1;
            } else {
                break;
            }
        }
        if pointers > 8 {
            return Err(Error::new(start.to(self.taken()), "a pointer to so many pointers"));
        }
        Ok(TypeName { base, pointers, span: start.to(self.taken()) })
    }

    fn base_type(&mut self) -> Result<BaseType, Error> {
        let start = self.span();
        let mut words: Vec<String> = Vec::new();
        while let Token::Name(name) = self.peek() {
            let name = name.clone();
            if !TYPE_WORDS.contains(&name.as_str()) {
                break;
            }
            self.at += 1;
            match name.as_str() {
                "const" | "volatile" => {}
                "struct" | "union" | "enum" if words.is_empty() => {
                    let Token::Name(tag) = self.peek().clone() else {
                        return Err(self.wrong(&format!("the name of a {name} is expected")));
                    };
                    self.at += 1;
                    while matches!(self.peek(), Token::Name(word) if word == "const" || word == "volatile") {
                        self.at += 1;
                    }
                    return Ok(match name.as_str() {
                        "struct" => BaseType::Struct(tag),
                        "union" => BaseType::Union(tag),
                        _ => BaseType::Enum(tag),
                    });
                }
                _ => words.push(name),
            }
        }
        if words.is_empty() {
            return match self.next() {
                (Token::Name(name), _) => Ok(BaseType::Typedef(name)),
                (token, span) => {
                    Err(Error::new(span, format!("a type is expected, not {}", token.describe())))
                }
            };
        }
        words.sort_unstable();
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        let int = |size, signed| Ok(BaseType::Int(IntTy { size, signed }));
        match words.as_slice() {
            ["void"] => Ok(BaseType::Void),
            ["_Bool"] => Ok(BaseType::Bool),
            ["char"] => Ok(BaseType::Char),
            ["char", "signed"] => int(1, true),
            ["char", "unsigned"] => int(1, false),
            ["short"] | ["int", "short"] | ["short", "signed"] | ["int", "short", "signed"] => int(2, true),
            ["short", "unsigned"] | ["int", "short", "unsigned"] => int(2, false),
            ["int"] | ["signed"] | ["int", "signed"] => int(4, true),
            ["unsigned"] | ["int", "unsigned"] => int(4, false),
            ["long"] | ["long", "long"] | ["int", "long"] | ["int", "long", "long"] => int(8, true),
            ["long", "signed"] | ["int", "long", "signed"] | ["long", "long", "signed"] => int(8, true),
            ["long", "unsigned"] | ["int", "long", "unsigned"] => int(8, false),
            ["long", "long", "unsigned"] | ["int", "long", "long", "unsigned"] => int(8, false),
            _ => Err(Error::new(start.to(self.taken()), "there is no such type")),
        }
    }

    fn postfix(&mut self) -> Result<Node, Error> {
        let mut node = self.primary()?;
        loop {
            if self.take("[") {
                let index = self.whole()?;
                let end = self.expect("]")?;
                let span = node.span.to(end);
                node = self.node(NodeKind::Index(Box::new(node), Box::new(index)), span)?;
            } else if self.is_sign(".") || self.is_sign("->") {
                let arrow = self.is_sign("->");
                self.at += 1;
                let (Token::Name(name), at) = (self.peek().clone(), self.span()) else {
                    return Err(self.wrong("the name of a member is expected"));
                };
                self.at += 1;
                let span = node.span.to(at);
                node = self.node(NodeKind::Member { of: Box::new(node), arrow, name, at }, span)?;
            } else {
                return Ok(node);
            }
        }
    }

    fn primary(&mut self) -> Result<Node, Error> {
        let (token, span) = (self.peek().clone(), self.span());
        match token {
            Token::Int(value, ty) => {
                self.at += 1;
                self.node(NodeKind::Int(value, ty), span)
            }
            Token::Str(mut text) => {
                self.at += 1;
                // As in C, texts side by side are one.
                while let Token::Str(more) = self.peek().clone() {
                    self.at += 1;
                    text.extend(more);
                }
                self.node(NodeKind::Str(text), span.to(self.taken()))
            }
            Token::Special(name) => {
                self.at += 1;
                self.node(NodeKind::Special(name), span)
            }
            Token::Name(name) => {
                self.at += 1;
                if !self.take("(") {
                    return self.node(NodeKind::Name(name), span);
                }
                if name == "container_of" {
                    return self.container_of(span);
                }
                let args = self.comma_list()?;
                let whole = span.to(self.taken());
                self.node(NodeKind::Call { name, at: span, args }, whole)
            }
            Token::Sign("(") => {
                self.at += 1;
                let mut node = self.whole()?;
                let end = self.expect(")")?;
                if let NodeKind::Name(name) = &node.kind
                    && self.begins_value()
                {
                    let message =
                        format!("there is no type '{name}'; of a structure it would be 'struct {name}'");
                    return Err(Error::new(node.span, message));
                }
                node.span = span.to(end);
                Ok(node)
            }
            Token::Sign(sign @ ("++" | "--")) => {
                Err(Error::new(span, format!("'{sign}': nothing can be assigned to")))
            }
            _ => Err(self.wrong("a value is expected")),
        }
    }

    /// Whether what comes can be nothing but a value: after `(name)` the name was meant as that of a type.
    fn begins_value(&self) -> bool {
        match self.peek() {
            Token::Name(word) => word != "in" && word != "by",
            Token::Int(..) | Token::Str(_) | Token::Special(_) => true,
            _ => false,
        }
    }

    fn container_of(&mut self, start: Span) -> Result<Node, Error> {
        let pointer = Box::new(self.whole()?);
        self.expect(",")?;
        let ty = self.type_name()?;
        self.expect(",")?;
        let first = self.span();
        let mut member = String::new();
        loop {
            let Token::Name(name) = self.peek().clone() else {
                return Err(self.wrong("the name of a member is expected"));
            };
            self.at += 1;
            member += &name;
            if !self.take(".") {
                break;
            }
            member.push('.');
        }
        let at = first.to(self.taken());
        let end = self.expect(")")?;
        self.node(NodeKind::ContainerOf { pointer, ty, member, at }, start.to(end))
    }

    /// `hist(e) by (k)`, if that is what comes.
    fn aggregate(&mut self) -> Result<Option<AggregateNode>, Error> {
        let (Token::Name(name), Token::Sign("(")) = (self.peek().clone(), self.peek_at(1)) else {
            return Ok(None);
        };
        if !AGGREGATES.contains(&name.as_str()) {
            return Ok(None);
        }
        let at = self.span();
        self.at += 2;
        let args = self.comma_list()?;
        let mut by = Vec::new();
        if matches!(self.peek(), Token::Name(word) if word == "by") {
            self.at += 1;
            self.expect("(")?;
            by = self.comma_list()?;
            if by.is_empty() {
                return Err(Error::new(self.taken(), "'by' of nothing: leave it out to have one number"));
            }
        }
        Ok(Some(AggregateNode { name, at, args, by, span: at.to(self.taken()) }))
    }
}

/// How tightly `in` binds: as `<`.
const IN: u8 = 7;

#[cfg(test)]
mod tests {
    use super::*;

    /// The parts in brackets, so that precedence shows.
    fn shape(node: &Node) -> String {
        match &node.kind {
            NodeKind::Int(value, _) => value.to_string(),
            NodeKind::Str(text) => format!("{:?}", String::from_utf8_lossy(text)),
            NodeKind::Name(name) => name.clone(),
            NodeKind::Special(name) => format!("${name}"),
            NodeKind::Member { of, arrow, name, .. } => {
                format!("{}{}{name}", shape(of), if *arrow { "->" } else { "." })
            }
            NodeKind::Index(a, b) => format!("{}[{}]", shape(a), shape(b)),
            NodeKind::Unary(op, a) => format!("({op:?} {})", shape(a)),
            NodeKind::Binary(op, a, b) => format!("({} {op:?} {})", shape(a), shape(b)),
            NodeKind::Cond(a, b, c) => format!("({} ? {} : {})", shape(a), shape(b), shape(c)),
            NodeKind::Cast(ty, a) => {
                format!("({:?}{} {})", ty.base, "*".repeat(ty.pointers as usize), shape(a))
            }
            NodeKind::SizeofType(ty) => format!("sizeof {:?}", ty.base),
            NodeKind::SizeofValue(a) => format!("sizeof {}", shape(a)),
            NodeKind::In(a, list) => {
                format!("({} in {})", shape(a), list.iter().map(shape).collect::<Vec<_>>().join(" "))
            }
            NodeKind::Call { name, args, .. } => {
                format!("{name}({})", args.iter().map(shape).collect::<Vec<_>>().join(" "))
            }
            NodeKind::ContainerOf { pointer, ty, member, .. } => {
                format!("container_of({} {:?} {member})", shape(pointer), ty.base)
            }
        }
    }

    fn parse(text: &str) -> Result<Node, Error> {
        expression(text, &Words { is_type: &|name| name == "u32", unsigned_char: false })
    }

    #[test]
    fn precedence_is_c_s() {
        let cases = [
            ("a + b * c", "(a Add (b Mul c))"),
            ("a - b - c", "((a Sub b) Sub c)"),
            ("a && b && c", "((a LogicalAnd b) LogicalAnd c)"),
            ("a || b || c && d || e", "((a LogicalOr b) LogicalOr ((c LogicalAnd d) LogicalOr e))"),
            ("a & b == c", "(a And (b Eq c))"),
            ("a || b && c | d ^ e & f", "(a LogicalOr (b LogicalAnd (c Or (d Xor (e And f)))))"),
            ("a << 1 + 2 < c", "((a Shl (1 Add 2)) Lt c)"),
            ("-a->b[1].c", "(Neg a->b[1].c)"),
            ("*p++", "!"),
            ("!a == b", "((Not a) Eq b)"),
            ("a ? b : c ? d : e", "(a ? b : (c ? d : e))"),
            ("a in (1, B) && c", "((a in 1 B) LogicalAnd c)"),
            ("(u32)-a", "(Typedef(\"u32\") (Neg a))"),
            ("(a)-b", "(a Sub b)"),
            ("(b *)a", "(Typedef(\"b\")* a)"),
            ("(struct x **)a + 1", "((Struct(\"x\")** a) Add 1)"),
            ("(const unsigned long long int)a", "(Int(IntTy { size: 8, signed: false }) a)"),
            ("sizeof(int) + sizeof a", "(sizeof Int(IntTy { size: 4, signed: true }) Add sizeof a)"),
            ("&a->b", "(Address a->b)"),
            ("container_of(p, struct x, a.b)->c", "container_of(p Struct(\"x\") a.b)->c"),
            ("\"a\" \"b\"", "\"ab\""),
        ];
        for (text, wanted) in cases {
            match parse(text) {
                Ok(node) => assert_eq!(shape(&node), wanted, "{text}"),
                Err(error) => assert_eq!(wanted, "!", "{text}: {error}"),
            }
        }
    }

    #[test]
    fn what_is_wrong_is_said_at_its_place() {
        let cases = [
            ("", 0, "a value is expected, not the end"),
            ("a +", 3, "a value is expected, not the end"),
            ("(a", 2, "')' is expected, not the end"),
            ("a b", 2, "an operator or the end is expected, not 'b'"),
            ("a = b", 2, "nothing can be assigned to; '==' compares"),
            ("a->", 3, "the name of a member is expected, not the end"),
            ("a in ()", 6, "an empty list: it would never hold"),
            ("(unsigned struct x)a", 1, "there is no such type"),
            ("f(a,)", 4, "a value is expected, not ')'"),
        ];
        for (text, at, message) in cases {
            let error = parse(text).expect_err(text);
            assert_eq!((error.message.as_str(), error.span.start), (message, at), "{text}");
        }
    }

    #[test]
    fn nesting_is_bounded() {
        for text in [
            format!("{}a{}", "(".repeat(2000), ")".repeat(2000)),
            format!("{}a", "- ".repeat(2000)),
            format!("a{}", "+a".repeat(2000)),
            format!("a{}", "->b".repeat(1300)),
            format!("{}a", "a?a:".repeat(1000)),
            format!("a{}", "[a".repeat(1000)),
        ] {
            let error = parse(&text).expect_err("too deep");
            let expected = match text.get(..3) {
                Some("a+a") => "too many operators one after another: at most 99",
                Some("a->") => "too many members one after another: at most 99",
                _ => "nested deeper than 100",
            };
            assert!(error.message.contains(expected), "{text}: {}", error.message);
        }
    }

    #[test]
    fn a_long_chain_of_tests_is_no_nesting() {
        for op in ["&&", "||"] {
            let node = parse(&vec!["a"; 1000].join(op)).expect(op);
            assert!(node.height < 16, "{}", node.height);
            assert_eq!(node.span, Span { start: 0, end: 2998 });
        }
    }

    #[test]
    fn aggregates_are_told_apart() {
        let statement = |text| statement(text, &Words { is_type: &|_| false, unsigned_char: false });
        let Ok(Statement::Aggregate(a)) = statement("hist($duration) by ($comm, a->b)") else {
            panic!("an aggregate")
        };
        assert_eq!((a.name.as_str(), a.args.len(), a.by.len()), ("hist", 1, 2));
        assert!(matches!(statement("count + 1"), Ok(Statement::Value(_))));
        assert!(statement("count() + 1").is_err());
        assert!(statement("count() by ()").is_err());
    }
}
