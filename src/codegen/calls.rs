//! Calls from compiled code into Rust, lane by lane, for functions without vector code.

use super::lanes::{Emitter, Lanes, RegisterClass};
use crate::code::host_function;
use crate::scalar::{Binary, Unary};
use cranelift_codegen::ir::types::I64;
use cranelift_codegen::ir::{
    AbiParam, ExtFuncData, ExternalName, FuncRef, Function, InstBuilder, Signature, Type, UserExternalName, Value,
};

/// The namespace of external names that index the list of host functions, until the function is added to a module.
const HOST: u32 = 1;

/// The index of the host function that a name refers to while the function is being built.
pub(super) fn host_function_of(name: &ExternalName, func: &Function) -> Option<usize> {
    let ExternalName::User(r) = name else { return None };
    let name = &func.params.user_named_funcs()[*r];
    (name.namespace == HOST).then_some(name.index as usize)
}

impl Emitter<'_> {
    /// Calls the host function `symbol`. Its arguments and result have the same type.
    fn call_host(&mut self, symbol: &str, ty: Type, args: &[Value]) -> Value {
        let f = self.import_host(symbol, ty, args.len());
        let call = self.b.ins().call(f, args);
        self.b.inst_results(call)[0]
    }

    fn import_host(&mut self, symbol: &str, ty: Type, arity: usize) -> FuncRef {
        let n = host_function(symbol).unwrap_or_else(|| panic!("`{symbol}` is a host function"));
        let known = self.b.func.dfg.ext_funcs.iter();
        let known = known.filter(|(_, f)| host_function_of(&f.name, self.b.func) == Some(n));
        if let Some((f, _)) = { known }.next() {
            return f;
        }
        let mut signature = Signature::new(self.b.func.signature.call_conv);
        signature.params.extend((0..arity).map(|_| AbiParam::new(ty)));
        signature.returns.push(AbiParam::new(ty));
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

    /// A unary float function, by calls to the host.
    pub(super) fn call_unary(&mut self, op: Unary, c: RegisterClass, x: &Lanes) -> Lanes {
        let symbol = format!("fxc_{op:?}_{}", symbol_suffix(c));
        self.per_lane(&[(c, x)], c, |e, x| e.call_host(&symbol, c.scalar_type(), x))
    }

    /// A binary float function, by calls to the host.
    pub(super) fn call_binary(&mut self, op: Binary, c: RegisterClass, x: &Lanes, y: &Lanes) -> Lanes {
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
