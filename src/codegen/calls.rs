//! Calls from compiled code into Rust: for a whole group where there is vector code, else lane by lane.

use super::lanes::{Emitter, Lanes, RegisterClass};
use crate::code::{host_function, lane_symbol};
use crate::math::functions::LaneOp;
use crate::scalar::{Binary, Unary};
use cranelift_codegen::ir::types::I64;
use cranelift_codegen::ir::{
    AbiParam, ExtFuncData, ExternalName, FuncRef, Function, InstBuilder, Signature, StackSlot, StackSlotData,
    StackSlotKind, Type, UserExternalName, Value,
};

/// The namespace of external names that index the list of host functions, until the function is added to a module.
const HOST: u32 = 1;

/// The index of the host function that a name refers to while the function is being built.
pub(super) fn host_function_of(name: &ExternalName, func: &Function) -> Option<usize> {
    let ExternalName::User(r) = name else { return None };
    let name = &func.params.user_named_funcs()[*r];
    (name.namespace == HOST).then_some(name.index as usize)
}

/// The greatest size of a group in bytes: 64 lanes of eight bytes.
const GROUP: i32 = 512;

impl Emitter<'_> {
    /// Calls the host function `symbol`. Its arguments and result have the same type.
    fn call_host(&mut self, symbol: &str, ty: Type, args: &[Value]) -> Value {
        let f = self.import_host(symbol, &vec![ty; args.len()], Some(ty));
        let call = self.b.ins().call(f, args);
        self.b.inst_results(call)[0]
    }

    fn import_host(&mut self, symbol: &str, params: &[Type], result: Option<Type>) -> FuncRef {
        let n = host_function(symbol).unwrap_or_else(|| panic!("`{symbol}` is a host function"));
        let known = self.b.func.dfg.ext_funcs.iter();
        let known = known.filter(|(_, f)| host_function_of(&f.name, self.b.func) == Some(n));
        if let Some((f, _)) = { known }.next() {
            return f;
        }
        let mut signature = Signature::new(self.b.func.signature.call_conv);
        signature.params.extend(params.iter().map(|&ty| AbiParam::new(ty)));
        signature.returns.extend(result.map(AbiParam::new));
        let signature = self.b.import_signature(signature);
        let name = UserExternalName::new(HOST, n as u32);
        let name = self.b.func.declare_imported_user_function(name);
        self.b.import_function(ExtFuncData {
            name: ExternalName::user(name),
            signature,
            colocated: false,
            patchable: false,
        })
    }

    /// Calls a host function of I64 numbers and addresses that returns nothing.
    pub(super) fn call_routine(&mut self, symbol: &str, args: &[Value]) {
        let f = self.import_host(symbol, &vec![I64; args.len()], None);
        self.b.ins().call(f, args);
    }

    /// A function of floats, computed for the whole group. The operands and the result go through the stack.
    fn call_lanes(&mut self, op: LaneOp, c: RegisterClass, args: [&Lanes; 2]) -> Lanes {
        let symbol = lane_symbol(op, c == RegisterClass::F64);
        let f = self.import_host(&symbol, &[I64; 4], None);
        let slot = self.group_slot();
        let ty = self.lane_type(c);
        let step = ty.bytes() as i32;
        let write = |e: &mut Self, x: &Lanes, first: i32| {
            for (i, &v) in x.iter().enumerate() {
                e.b.ins().stack_store(I64, v, slot, first + i as i32 * step);
            }
        };
        write(self, args[0], 0);
        write(self, args[1], GROUP);
        let n = args[0].len() as i64 * (step as i64 / c.size() as i64);
        let n = self.b.ins().iconst(I64, n);
        let [x, y] = [0, GROUP].map(|group| self.b.ins().stack_addr(I64, slot, group));
        self.b.ins().call(f, &[n, x, y, x]);
        (0..args[0].len())
            .map(|i| self.b.ins().stack_load(I64, ty, slot, i as i32 * step))
            .collect()
    }

    /// The memory through which groups go, for two operands.
    fn group_slot(&mut self) -> StackSlot {
        if let Some(slot) = self.groups {
            return slot;
        }
        let data = StackSlotData::new(StackSlotKind::ExplicitSlot, 2 * GROUP as u32, 4);
        *self.groups.insert(self.b.create_sized_stack_slot(data))
    }

    /// A unary float function.
    pub(super) fn call_unary(&mut self, op: Unary, c: RegisterClass, x: &Lanes) -> Lanes {
        self.call_lanes(LaneOp::Unary(op), c, [x, x])
    }

    /// A binary float function.
    pub(super) fn call_binary(&mut self, op: Binary, c: RegisterClass, x: &Lanes, y: &Lanes) -> Lanes {
        if host_function(&lane_symbol(LaneOp::Binary(op), false)).is_some() {
            return self.call_lanes(LaneOp::Binary(op), c, [x, y]);
        }
        let symbol = format!("fxc_{op:?}_{}", symbol_suffix(c));
        self.per_lane(&[(c, x), (c, y)], c, |e, a| e.call_host(&symbol, c.scalar_type(), a))
    }

    /// `x ** y` or the greatest common divisor of I64 scalars.
    pub(super) fn call_int(&mut self, op: Binary, x: Value, y: Value) -> Value {
        let symbol = match op {
            Binary::Pow => "fxc_Pow_i64",
            _ => "fxc_Gcd_i64",
        };
        self.call_host(symbol, I64, &[x, y])
    }
}

fn symbol_suffix(c: RegisterClass) -> &'static str {
    if c == RegisterClass::F32 { "f32" } else { "f64" }
}
