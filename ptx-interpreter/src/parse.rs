//! Directives, declarations and statements: everything around the instructions.

use std::collections::BTreeMap;

use crate::decode::{self, Names};
use crate::fault::ParseError;
use crate::instruction::{Operation, Type};
use crate::module::{Kernel, Module, Parameter};
use crate::token::{Token, tokens};

/// Parses a whole module.
pub(crate) fn module(source: &str) -> Result<Module, ParseError> {
    let tokens = tokens(source)?;
    let mut cursor = Cursor {
        tokens: &tokens,
        at: 0,
    };
    let mut kernels = BTreeMap::new();
    let mut dynamic = Vec::new();
    while let Some(token) = cursor.next() {
        match token.text {
            ".version" | ".target" | ".address_size" => {
                cursor.next();
                while cursor.take(",") {
                    cursor.next();
                }
            }
            ".visible" => {}
            ".extern" => dynamic.push(dynamic_shared(&mut cursor)?),
            ".entry" => {
                let (name, kernel) = entry(&mut cursor, &dynamic)?;
                kernels.insert(name, kernel);
            }
            other => {
                return Err(ParseError::new(
                    token.line,
                    format!("{other} is not supported"),
                ));
            }
        }
    }
    Ok(Module { kernels })
}

/// A place in the tokens.
pub(crate) struct Cursor<'a> {
    pub(crate) tokens: &'a [Token<'a>],
    pub(crate) at: usize,
}

impl<'a> Cursor<'a> {
    pub(crate) fn peek(&self) -> &'a str {
        self.tokens.get(self.at).map_or("", |t| t.text)
    }

    pub(crate) fn line(&self) -> usize {
        self.tokens
            .get(self.at)
            .or(self.tokens.last())
            .map_or(0, |t| t.line)
    }

    pub(crate) fn next(&mut self) -> Option<Token<'a>> {
        let token = self.tokens.get(self.at).copied();
        self.at += 1;
        token
    }

    pub(crate) fn word(&mut self) -> Result<&'a str, ParseError> {
        let line = self.line();
        self.next()
            .map(|t| t.text)
            .ok_or_else(|| ParseError::new(line, "the text ends too early"))
    }

    pub(crate) fn take(&mut self, text: &str) -> bool {
        let found = self.peek() == text;
        self.at += usize::from(found);
        found
    }

    pub(crate) fn expect(&mut self, text: &str) -> Result<(), ParseError> {
        if self.take(text) {
            return Ok(());
        }
        Err(self.error(format!("expected `{text}`, found `{}`", self.peek())))
    }

    pub(crate) fn number(&mut self) -> Result<usize, ParseError> {
        let line = self.line();
        let word = self.word()?;
        word.parse()
            .map_err(|_| ParseError::new(line, format!("`{word}` is not a number")))
    }

    pub(crate) fn error(&self, message: impl Into<String>) -> ParseError {
        ParseError::new(self.line(), message)
    }
}

/// A variable's `.align N .b8 name[bytes]` with the type before it read: name, alignment, size.
fn variable<'a>(cursor: &mut Cursor<'a>) -> Result<(&'a str, usize, usize), ParseError> {
    let align = if cursor.take(".align") {
        cursor.number()?
    } else {
        1
    };
    let kind = element(cursor)?;
    let name = cursor.word()?;
    let mut count = 1;
    if cursor.take("[") {
        count = if cursor.peek() == "]" {
            0
        } else {
            cursor.number()?
        };
        cursor.expect("]")?;
    }
    cursor.expect(";")?;
    Ok((name, align.max(kind.bytes()), count * kind.bytes()))
}

fn element(cursor: &mut Cursor<'_>) -> Result<Type, ParseError> {
    let line = cursor.line();
    let word = cursor.word()?;
    word.strip_prefix('.')
        .and_then(Type::parse)
        .ok_or_else(|| ParseError::new(line, format!("`{word}` is not a type")))
}

fn dynamic_shared<'a>(cursor: &mut Cursor<'a>) -> Result<&'a str, ParseError> {
    cursor.expect(".shared")?;
    let (name, _, size) = variable(cursor)?;
    if size != 0 {
        return Err(cursor.error("an extern shared array has no size"));
    }
    Ok(name)
}

fn entry<'a>(cursor: &mut Cursor<'a>, dynamic: &[&'a str]) -> Result<(String, Kernel), ParseError> {
    let name = cursor.word()?.to_owned();
    let mut names = Names::default();
    let (parameters, parameter_bytes) = parameters(cursor, &mut names)?;
    let mut max_threads = None;
    while cursor.peek() != "{" {
        match cursor.word()? {
            ".maxntid" => max_threads = Some(product(cursor)?),
            ".reqntid" => max_threads = Some(product(cursor)?),
            ".minnctapersm" => drop(cursor.number()?),
            other => return Err(cursor.error(format!("{other} is not supported"))),
        }
    }
    let mut kernel = Kernel {
        parameters,
        parameter_bytes,
        registers: Vec::new(),
        shared_bytes: 0,
        dynamic_shared: !dynamic.is_empty(),
        max_threads,
        instructions: Vec::new(),
    };
    names.dynamic = dynamic.iter().map(|n| (*n).to_owned()).collect();
    body(cursor, &mut kernel, &mut names)?;
    kernel.registers = names.registers;
    Ok((name, kernel))
}

fn product(cursor: &mut Cursor<'_>) -> Result<u32, ParseError> {
    let mut threads = cursor.number()?;
    while cursor.take(",") {
        threads *= cursor.number()?;
    }
    u32::try_from(threads).map_err(|_| cursor.error("too many threads"))
}

fn parameters(
    cursor: &mut Cursor<'_>,
    names: &mut Names,
) -> Result<(Vec<Parameter>, usize), ParseError> {
    let mut parameters = Vec::new();
    let mut end = 0_usize;
    cursor.expect("(")?;
    while !cursor.take(")") {
        cursor.expect(".param")?;
        let kind = element(cursor)?;
        let name = cursor.word()?;
        let offset = end.next_multiple_of(kind.bytes());
        end = offset + kind.bytes();
        names.parameters.insert(name.to_owned(), offset);
        parameters.push(Parameter { kind, offset });
        cursor.take(",");
    }
    Ok((parameters, end))
}

/// A branch whose label may stand further down: instruction, label, line.
type Jump<'a> = (usize, &'a str, usize);

fn body<'a>(
    cursor: &mut Cursor<'a>,
    kernel: &mut Kernel,
    names: &mut Names,
) -> Result<(), ParseError> {
    cursor.expect("{")?;
    let mut depth = 1;
    let mut labels: BTreeMap<&str, usize> = BTreeMap::new();
    let mut jumps: Vec<Jump<'a>> = Vec::new();
    while depth > 0 {
        let next = cursor.tokens.get(cursor.at + 1).map_or("", |t| t.text);
        match cursor.peek() {
            "{" => {
                depth += 1;
                cursor.next();
            }
            "}" => {
                depth -= 1;
                cursor.next();
            }
            ";" => drop(cursor.next()),
            ".reg" => registers(cursor, names)?,
            ".shared" => shared(cursor, kernel, names)?,
            ".pragma" => while cursor.word()? != ";" {},
            label if next == ":" => {
                labels.insert(label, kernel.instructions.len());
                cursor.at += 2;
            }
            "" => return Err(cursor.error("the kernel does not end")),
            _ => {
                let (instruction, label) = decode::instruction(cursor, names)?;
                if let Some(label) = label {
                    jumps.push((kernel.instructions.len(), label, instruction.line));
                }
                kernel.instructions.push(instruction);
            }
        }
    }
    if names.uses_dynamic_before(kernel.shared_bytes) {
        return Err(cursor.error("a shared variable is declared after the dynamic array is used"));
    }
    resolve(kernel, &labels, &jumps)
}

fn resolve(
    kernel: &mut Kernel,
    labels: &BTreeMap<&str, usize>,
    jumps: &[Jump<'_>],
) -> Result<(), ParseError> {
    for (index, label, line) in jumps {
        let found = labels
            .get(label)
            .ok_or_else(|| ParseError::new(*line, format!("no label {label}")))?;
        if let Operation::Branch { target } = &mut kernel.instructions[*index].operation {
            *target = *found;
        }
    }
    let ends = kernel.instructions.last().is_some_and(|last| {
        last.guard.is_none()
            && matches!(last.operation, Operation::Return | Operation::Branch { .. })
    });
    if ends {
        Ok(())
    } else {
        Err(ParseError::new(0, "a kernel runs off its end"))
    }
}

fn registers(cursor: &mut Cursor<'_>, names: &mut Names) -> Result<(), ParseError> {
    cursor.expect(".reg")?;
    let kind = element(cursor)?;
    loop {
        let name = cursor.word()?;
        if cursor.take("<") {
            for index in 0..cursor.number()? {
                names.declare(format!("{name}{index}"), kind);
            }
            cursor.expect(">")?;
        } else {
            names.declare(name.to_owned(), kind);
        }
        if !cursor.take(",") {
            return cursor.expect(";");
        }
    }
}

fn shared(
    cursor: &mut Cursor<'_>,
    kernel: &mut Kernel,
    names: &mut Names,
) -> Result<(), ParseError> {
    cursor.expect(".shared")?;
    let (name, align, size) = variable(cursor)?;
    let offset = kernel.shared_bytes.next_multiple_of(align);
    kernel.shared_bytes = offset + size;
    names.declare_shared(name.to_owned(), offset, kernel.shared_bytes);
    Ok(())
}
