//! Conversions between forms of a group: splatting a scalar, extracting a group's scalars, half-width and double-width
//! vectors, and conditions as masks.

use super::lanes::{Emitter, Lanes, RegisterClass};
use cranelift_codegen::ir::types::{I8, I8X16, I32, I32X4, I64X2};
use cranelift_codegen::ir::{InstBuilder, Value};

impl Emitter<'_> {
    /// Splats a scalar over a group of class `c`.
    pub(super) fn splat(&mut self, c: RegisterClass, s: Value) -> Lanes {
        let s = match c {
            RegisterClass::Bool => self.mask_of_bool(s),
            _ => s,
        };
        let v = match (c, self.packed) {
            (RegisterClass::I32 | RegisterClass::Bool, 1 | 2) => self.splat_packed(s),
            _ => self.b.ins().splat(c.vector_type(), s),
        };
        vec![v; self.value_count(c)]
    }

    /// Converts 0 or 1 to an I32 of all zeros or all ones.
    fn mask_of_bool(&mut self, s: Value) -> Value {
        let w = self.b.ins().uextend(I32, s);
        self.b.ins().ineg(w)
    }

    /// The scalars of a group, in order. Conditions become I8.
    pub(super) fn extract_scalars(&mut self, c: RegisterClass, x: &Lanes) -> Vec<Value> {
        let x = if c == RegisterClass::Bool {
            self.mask32(x)
        } else {
            x.clone()
        };
        let per = 16 / c.size();
        let mut out = vec![];
        for v in x {
            for k in 0..per {
                let s = self.b.ins().extractlane(v, k as u8);
                out.push(if c == RegisterClass::Bool {
                    let one = self.b.ins().iconst(I32, 1);
                    let bit = self.b.ins().band(s, one);
                    self.b.ins().ireduce(I8, bit)
                } else {
                    s
                });
            }
        }
        out
    }

    /// A group made of these scalars.
    pub(super) fn insert_scalars(&mut self, c: RegisterClass, scalars: &[Value]) -> Lanes {
        let per = 16 / c.size();
        let mut out = vec![];
        for chunk in scalars.chunks(per) {
            let first = self.lane_of(c, chunk[0]);
            let mut v = self.b.ins().scalar_to_vector(c.vector_type(), first);
            for (k, &s) in chunk.iter().enumerate().skip(1) {
                let s = self.lane_of(c, s);
                v = self.b.ins().insertlane(v, s, k as u8);
            }
            out.push(v);
        }
        out
    }

    fn lane_of(&mut self, c: RegisterClass, s: Value) -> Value {
        if c == RegisterClass::Bool {
            self.mask_of_bool(s)
        } else {
            s
        }
    }

    /// Applies `f` to the scalars of groups, lane by lane.
    pub(super) fn per_lane(
        &mut self,
        args: &[(RegisterClass, &Lanes)],
        result: RegisterClass,
        f: impl Fn(&mut Self, &[Value]) -> Value,
    ) -> Lanes {
        if self.scalar {
            let args: Vec<Value> = args.iter().map(|a| a.1[0]).collect();
            return vec![f(self, &args)];
        }
        let args: Vec<Vec<Value>> = args.iter().map(|(c, x)| self.extract_scalars(*c, x)).collect();
        let out: Vec<Value> = (0..args[0].len())
            .map(|i| {
                let args: Vec<Value> = args.iter().map(|a| a[i]).collect();
                self.as_scalar(|e| f(e, &args))
            })
            .collect();
        self.insert_scalars(result, &out)
    }

    /// Selects bytes of two vectors by the sixteen positions in `mask`.
    pub(super) fn shuffle(&mut self, x: Value, y: Value, mask: [u8; 16]) -> Value {
        let ty = self.b.func.dfg.value_type(x);
        let (x, y) = (self.bitcast(I8X16, x), self.bitcast(I8X16, y));
        let mask = self.b.func.dfg.immediates.push(mask.as_slice().into());
        let r = self.b.ins().shuffle(x, y, mask);
        self.bitcast(ty, r)
    }

    /// Selects 32-bit lanes of two vectors by four positions in 0..8.
    pub(super) fn shuffle32(&mut self, x: Value, y: Value, lanes: [u8; 4]) -> Value {
        let mut mask = [0; 16];
        for (i, m) in mask.iter_mut().enumerate() {
            *m = lanes[i / 4] * 4 + i as u8 % 4;
        }
        self.shuffle(x, y, mask)
    }

    /// Narrows vectors of 64-bit lanes to half as many vectors of 32-bit lanes: the low halves of the lanes.
    pub(super) fn narrow64(&mut self, x: &Lanes) -> Lanes {
        let mut out = vec![];
        for p in x.chunks_exact(2) {
            let (mut a, mut b) = (self.bitcast(I32X4, p[0]), self.bitcast(I32X4, p[1]));
            if self.width == 16 {
                out.push(self.shuffle32(a, b, [0, 2, 4, 6]));
                continue;
            }
            // Wider vectors gather each one's low parts in its lower half first.
            (a, b) = (self.shuffle32(a, a, [0, 2, 0, 2]), self.shuffle32(b, b, [0, 2, 0, 2]));
            out.push(self.join_halves(a, b));
        }
        out
    }

    /// The lower halves of two vectors.
    pub(super) fn join_halves(&mut self, a: Value, b: Value) -> Value {
        self.shuffle32(a, b, [0, 1, 4, 5])
    }

    /// Each vector as it is, followed by the vector with its high half moved down.
    pub(super) fn split_halves(&mut self, x: &Lanes) -> Lanes {
        x.iter()
            .flat_map(|&v| [v, self.shuffle32(v, v, [2, 3, 2, 3])])
            .collect()
    }

    /// Sign-extends I32 lanes to I64 lanes.
    pub(super) fn widen32(&mut self, x: &Lanes) -> Lanes {
        let halves = self.split_halves(x);
        self.map1(&halves, |e, x| e.b.ins().swiden_low(x))
    }

    /// A condition as masks of 32-bit lanes.
    pub(super) fn mask32(&mut self, c: &Lanes) -> Lanes {
        if self.scalar || self.b.func.dfg.value_type(c[0]) != I64X2 {
            return c.clone();
        }
        self.narrow64(c)
    }

    /// A condition as masks of 64-bit lanes.
    fn mask64(&mut self, c: &Lanes) -> Lanes {
        if self.scalar || self.b.func.dfg.value_type(c[0]) == I64X2 {
            return c.clone();
        }
        self.widen32(c)
    }

    /// A condition as masks for lanes of class `c`.
    pub(super) fn mask_for(&mut self, c: RegisterClass, m: &Lanes) -> Lanes {
        if c.size() == 8 { self.mask64(m) } else { self.mask32(m) }
    }

    /// An I8 that is nonzero if the condition holds in any lane.
    pub(super) fn any_true(&mut self, c: &Lanes) -> Value {
        if self.scalar {
            return c[0];
        }
        let all = c[1..].iter().fold(c[0], |a, &x| self.b.ins().bor(a, x));
        self.b.ins().vany_true(all)
    }
}
