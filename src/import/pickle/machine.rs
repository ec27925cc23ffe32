//! Reads Python's pickles as data: classes and functions are names, and nothing is called.
//!
//! A pickle is a program for a stack machine (`Lib/pickletools.py` documents its opcodes). The machine here builds a table of objects
//! that refer to each other by index, so time and memory are proportional to the pickle however often objects are shared.

use super::super::json::Bad;

/// The index of an object in its pickle.
pub(super) type Id = usize;

/// An object of a pickle.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Object {
    None,
    Bool(bool),
    Int(i64),
    Text(String),
    Tuple(Vec<Id>),
    List(Vec<Id>),
    Dict(Vec<(Id, Id)>),
    /// The class or function `module.name`.
    Global(String),
    /// The result of calling a function with a tuple of arguments.
    Call {
        function: Id,
        args: Id,
    },
    /// The object that the file stores elsewhere under this key.
    Persistent(Id),
    /// A value without use for tensors, such as a float or bytes.
    Other,
}

/// The objects of a pickle.
#[derive(Debug)]
pub(super) struct Pickle {
    objects: Vec<Object>,
    root: Id,
}

impl Pickle {
    /// Reads a pickle of protocol 2 to 5, without out-of-band buffers and extension codes.
    pub(super) fn read(bytes: &[u8]) -> Result<Pickle, Bad> {
        let mut machine = Machine {
            rest: bytes,
            objects: vec![],
            stack: vec![],
            marks: vec![],
            memo: vec![],
        };
        while let Some(opcode) = machine.next_opcode()? {
            machine.run(opcode)?;
        }
        let root = machine.pop()?;
        Ok(Pickle {
            objects: machine.objects,
            root,
        })
    }

    /// The whole object.
    pub(super) fn root(&self) -> Id {
        self.root
    }

    /// All dicts and their items.
    pub(super) fn dicts(&self) -> impl Iterator<Item = (Id, &[(Id, Id)])> {
        self.objects.iter().enumerate().filter_map(|(id, o)| match o {
            Object::Dict(items) => Some((id, &items[..])),
            _ => None,
        })
    }

    /// An object.
    pub(super) fn get(&self, id: Id) -> &Object {
        &self.objects[id]
    }
}

/// Opcodes, as `pickletools` names them.
mod op {
    pub(super) const MARK: u8 = b'(';
    pub(super) const STOP: u8 = b'.';
    pub(super) const POP: u8 = b'0';
    pub(super) const POP_MARK: u8 = b'1';
    pub(super) const DUP: u8 = b'2';
    pub(super) const BINBYTES: u8 = b'B';
    pub(super) const SHORT_BINBYTES: u8 = b'C';
    pub(super) const BINFLOAT: u8 = b'G';
    pub(super) const BININT: u8 = b'J';
    pub(super) const BININT1: u8 = b'K';
    pub(super) const BININT2: u8 = b'M';
    pub(super) const NONE: u8 = b'N';
    pub(super) const BINPERSID: u8 = b'Q';
    pub(super) const REDUCE: u8 = b'R';
    pub(super) const BINUNICODE: u8 = b'X';
    pub(super) const APPEND: u8 = b'a';
    pub(super) const BUILD: u8 = b'b';
    pub(super) const GLOBAL: u8 = b'c';
    pub(super) const APPENDS: u8 = b'e';
    pub(super) const BINGET: u8 = b'h';
    pub(super) const LONG_BINGET: u8 = b'j';
    pub(super) const EMPTY_LIST: u8 = b']';
    pub(super) const BINPUT: u8 = b'q';
    pub(super) const LONG_BINPUT: u8 = b'r';
    pub(super) const SETITEM: u8 = b's';
    pub(super) const TUPLE: u8 = b't';
    pub(super) const SETITEMS: u8 = b'u';
    pub(super) const EMPTY_DICT: u8 = b'}';
    pub(super) const EMPTY_TUPLE: u8 = b')';
    pub(super) const PROTO: u8 = 0x80;
    pub(super) const NEWOBJ: u8 = 0x81;
    pub(super) const TUPLE1: u8 = 0x85;
    pub(super) const TUPLE2: u8 = 0x86;
    pub(super) const TUPLE3: u8 = 0x87;
    pub(super) const NEWTRUE: u8 = 0x88;
    pub(super) const NEWFALSE: u8 = 0x89;
    pub(super) const LONG1: u8 = 0x8a;
    pub(super) const SHORT_BINUNICODE: u8 = 0x8c;
    pub(super) const STACK_GLOBAL: u8 = 0x93;
    pub(super) const MEMOIZE: u8 = 0x94;
    pub(super) const FRAME: u8 = 0x95;
}

struct Machine<'a> {
    rest: &'a [u8],
    objects: Vec<Object>,
    stack: Vec<Id>,
    /// The heights of the stack at the marks.
    marks: Vec<usize>,
    memo: Vec<Id>,
}

impl<'a> Machine<'a> {
    /// The next opcode, unless it ends the pickle.
    fn next_opcode(&mut self) -> Result<Option<u8>, Bad> {
        Ok(Some(self.bytes(1)?[0]).filter(|&o| o != op::STOP))
    }

    fn run(&mut self, opcode: u8) -> Result<(), Bad> {
        match opcode {
            op::PROTO => self.bytes(1).map(drop),
            op::FRAME => self.bytes(8).map(drop),
            op::MARK => {
                self.marks.push(self.stack.len());
                Ok(())
            }
            op::POP => self.pop().map(drop),
            op::POP_MARK => self.pop_to_mark().map(drop),
            op::DUP => {
                let top = self.top()?;
                self.stack.push(top);
                Ok(())
            }
            op::BINPUT | op::LONG_BINPUT | op::MEMOIZE | op::BINGET | op::LONG_BINGET => self.run_memo(opcode),
            op::APPEND | op::APPENDS | op::SETITEM | op::SETITEMS | op::BUILD => self.extend_container(opcode),
            _ => {
                let object = self.create(opcode)?;
                self.push(object);
                Ok(())
            }
        }
    }

    fn run_memo(&mut self, opcode: u8) -> Result<(), Bad> {
        match opcode {
            op::BINPUT => self.unsigned(1).and_then(|i| self.memoize(i)),
            op::LONG_BINPUT => self.unsigned(4).and_then(|i| self.memoize(i)),
            op::MEMOIZE => self.memoize(self.memo.len()),
            op::BINGET => self.unsigned(1).and_then(|i| self.recall(i)),
            _ => self.unsigned(4).and_then(|i| self.recall(i)),
        }
    }

    /// Python numbers memoized objects in order.
    fn memoize(&mut self, index: usize) -> Result<(), Bad> {
        let top = self.top()?;
        match index.cmp(&self.memo.len()) {
            std::cmp::Ordering::Less => self.memo[index] = top,
            std::cmp::Ordering::Equal => self.memo.push(top),
            std::cmp::Ordering::Greater => return Err("its pickle numbers objects out of order".into()),
        }
        Ok(())
    }

    fn recall(&mut self, index: usize) -> Result<(), Bad> {
        let id = *self
            .memo
            .get(index)
            .ok_or("its pickle refers to an object that does not exist")?;
        self.stack.push(id);
        Ok(())
    }

    /// Adds items to the list or dict below them. The state of other objects, which `BUILD` sets, is dropped.
    fn extend_container(&mut self, opcode: u8) -> Result<(), Bad> {
        let items = match opcode {
            op::APPEND | op::BUILD => vec![self.pop()?],
            op::SETITEM => self.pop_many(2)?,
            _ => self.pop_to_mark()?,
        };
        let container = self.top()?;
        match (&mut self.objects[container], opcode) {
            (_, op::BUILD) => {}
            (Object::List(list), op::APPEND | op::APPENDS) => list.extend(items),
            (Object::Dict(dict), op::SETITEM | op::SETITEMS) => {
                dict.extend(items.chunks_exact(2).map(|pair| (pair[0], pair[1])));
            }
            // An `OrderedDict` or a class of the user's.
            (Object::Call { .. }, _) => {}
            _ => return Err("its pickle adds items to an object that is not a container".into()),
        }
        Ok(())
    }

    /// The new object that an opcode pushes.
    fn create(&mut self, opcode: u8) -> Result<Object, Bad> {
        Ok(match opcode {
            op::NONE => Object::None,
            op::NEWTRUE => Object::Bool(true),
            op::NEWFALSE => Object::Bool(false),
            op::BININT1 => Object::Int(self.unsigned(1)? as i64),
            op::BININT2 => Object::Int(self.unsigned(2)? as i64),
            op::BININT => Object::Int(i64::from(self.unsigned(4)? as u32 as i32)),
            op::LONG1 => self.long()?,
            op::BINUNICODE => Object::Text(self.text(4)?),
            op::SHORT_BINUNICODE => Object::Text(self.text(1)?),
            op::BINFLOAT => self.bytes(8).map(|_| Object::Other)?,
            op::BINBYTES => self.counted(4).map(|_| Object::Other)?,
            op::SHORT_BINBYTES => self.counted(1).map(|_| Object::Other)?,
            op::EMPTY_LIST => Object::List(vec![]),
            op::EMPTY_DICT => Object::Dict(vec![]),
            op::EMPTY_TUPLE => Object::Tuple(vec![]),
            op::TUPLE => Object::Tuple(self.pop_to_mark()?),
            op::TUPLE1 | op::TUPLE2 | op::TUPLE3 => Object::Tuple(self.pop_many(usize::from(opcode - op::TUPLE1) + 1)?),
            op::GLOBAL => Object::Global(format!("{}.{}", self.line()?, self.line()?)),
            op::STACK_GLOBAL => self.stack_global()?,
            op::REDUCE | op::NEWOBJ => {
                let call = self.pop_many(2)?;
                Object::Call {
                    function: call[0],
                    args: call[1],
                }
            }
            op::BINPERSID => Object::Persistent(self.pop()?),
            _ => {
                return Err(Bad::unsupported(format!("its pickle has the opcode {opcode:#04x}")));
            }
        })
    }

    fn stack_global(&mut self) -> Result<Object, Bad> {
        let names = self.pop_many(2)?;
        match (&self.objects[names[0]], &self.objects[names[1]]) {
            (Object::Text(module), Object::Text(name)) => Ok(Object::Global(format!("{module}.{name}"))),
            _ => Err("its pickle names a class by objects that are not text".into()),
        }
    }

    /// A little-endian integer of up to 8 bytes.
    fn long(&mut self) -> Result<Object, Bad> {
        let digits = self.counted(1)?;
        if digits.len() > 8 {
            return Ok(Object::Other);
        }
        let negative = digits.last().is_some_and(|b| b & 0x80 != 0);
        let mut bytes = [if negative { 0xff } else { 0 }; 8];
        bytes[..digits.len()].copy_from_slice(digits);
        Ok(Object::Int(i64::from_le_bytes(bytes)))
    }

    fn text(&mut self, width: usize) -> Result<String, Bad> {
        let bytes = self.counted(width)?;
        // Python also writes lone surrogates, which are not UTF-8.
        Ok(String::from_utf8_lossy(bytes).into_owned())
    }

    /// As many bytes as the integer before them says, which has `width` bytes.
    fn counted(&mut self, width: usize) -> Result<&'a [u8], Bad> {
        let len = self.unsigned(width)?;
        self.bytes(len)
    }

    /// The text up to the end of the line.
    fn line(&mut self) -> Result<String, Bad> {
        let end = self.rest.iter().position(|b| *b == b'\n').ok_or(CUT)?;
        let line = self.bytes(end)?;
        self.bytes(1)?;
        Ok(String::from_utf8_lossy(line).into_owned())
    }

    /// A little-endian integer of up to 4 bytes.
    fn unsigned(&mut self, width: usize) -> Result<usize, Bad> {
        let bytes = self.bytes(width)?;
        Ok(bytes.iter().rev().fold(0, |n, b| n << 8 | usize::from(*b)))
    }

    fn bytes(&mut self, len: usize) -> Result<&'a [u8], Bad> {
        let (head, rest) = self.rest.split_at_checked(len).ok_or(CUT)?;
        self.rest = rest;
        Ok(head)
    }

    fn push(&mut self, object: Object) {
        self.stack.push(self.objects.len());
        self.objects.push(object);
    }

    /// The height of the stack that the objects after the last mark begin at.
    fn floor(&self) -> usize {
        self.marks.last().copied().unwrap_or(0)
    }

    fn top(&self) -> Result<Id, Bad> {
        self.stack[self.floor()..].last().copied().ok_or(EMPTY.into())
    }

    fn pop(&mut self) -> Result<Id, Bad> {
        let top = self.top()?;
        self.stack.pop();
        Ok(top)
    }

    /// The last `n` objects, in the order in which they were pushed.
    fn pop_many(&mut self, n: usize) -> Result<Vec<Id>, Bad> {
        let at = self.stack.len().checked_sub(n).filter(|at| *at >= self.floor());
        Ok(self.stack.split_off(at.ok_or(EMPTY)?))
    }

    fn pop_to_mark(&mut self) -> Result<Vec<Id>, Bad> {
        let at = self.marks.pop().ok_or("its pickle lacks a mark")?;
        Ok(self.stack.split_off(at))
    }
}

const CUT: &str = "its pickle ends early";
const EMPTY: &str = "its pickle takes an object from an empty stack";

#[cfg(test)]
#[path = "machine_tests.rs"]
mod tests;
