//! The status that a kernel returns: the faults that its runs met.

/// What can go wrong while a kernel runs. A kernel does not stop at a fault. It records the fault, its results are then
/// unspecified, and the runtime reports it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Fault {
    /// An index is out of range: torch's `IndexError: index out of range`.
    Index,
    /// An integer division by zero: torch's `RuntimeError: ZeroDivisionError`.
    ZeroDivision,
}

/// The set of faults that a run met, as bits. Compiled code returns it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Status(pub u32);

impl Status {
    /// No fault.
    pub const OK: Status = Status(0);

    /// The bit of a fault.
    pub const fn fault_bit(f: Fault) -> u32 {
        match f {
            Fault::Index => 1,
            Fault::ZeroDivision => 2,
        }
    }

    /// Adds a fault.
    pub fn record(&mut self, f: Fault) {
        self.0 |= Self::fault_bit(f);
    }

    /// The faults of both.
    pub fn union(self, other: Status) -> Status {
        Status(self.0 | other.0)
    }

    /// One of the faults, or `None` if there are none.
    pub fn first_fault(self) -> Option<Fault> {
        [Fault::Index, Fault::ZeroDivision]
            .into_iter()
            .find(|&f| self.0 & Self::fault_bit(f) != 0)
    }
}
