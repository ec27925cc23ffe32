//! Remainders and rounded quotients of floats, exact as in C and torch.
//!
//! `|x| - trunc(|x| / |y|) |y|` is exact with one rounding while the quotient has fewer bits than a float: the rounded
//! quotient is at most one too large. Larger quotients are reduced in steps, out of line.

use super::lanes::{Emitter, Lanes, RegisterClass};
use cranelift_codegen::ir::condcodes::FloatCC;
use cranelift_codegen::ir::{BlockArg, InstBuilder};

/// The powers of two with which divisors are scaled, so that no quotient overflows.
struct Scales {
    /// Quotients below this take one step.
    near: f64,
    /// Divisors below this are scaled twice by `tiny`.
    limit: f64,
    tiny: f64,
    /// Divisors from `limit` to 1 are scaled by this.
    small: f64,
}

fn scales(c: RegisterClass) -> Scales {
    let p = |n: i32| 2f64.powi(n);
    match c {
        RegisterClass::F32 => Scales {
            near: p(22),
            limit: p(-64),
            tiny: p(95),
            small: p(64),
        },
        _ => Scales {
            near: p(51),
            limit: p(-500),
            tiny: p(700),
            small: p(500),
        },
    }
}

impl Emitter<'_> {
    /// C's `fmod`: the remainder with the sign of `x`. Needs fused multiply-add.
    pub(super) fn fmod(&mut self, c: RegisterClass, x: &Lanes, y: &Lanes) -> Lanes {
        let (a, b) = (self.fabs(c, x), self.fabs(c, y));
        let q = self.fdiv(&a, &b);
        let q = self.map1(&q, |e, q| e.b.ins().trunc(q));
        let r = self.minus_product(c, &q, &b, &a);
        let less = self.fcmp(FloatCC::LessThan, &a, &b);
        let r = self.choose(&less, &a, &r);
        let one_step = self.float_like(c, &q, scales(c).near);
        let inf = self.float_like(c, &a, f64::INFINITY);
        let zero = self.float_like(c, &b, 0.0);
        let conditions = [
            self.fcmp(FloatCC::GreaterThanOrEqual, &q, &one_step),
            self.fcmp(FloatCC::LessThan, &a, &inf),
            self.fcmp(FloatCC::GreaterThan, &b, &zero),
        ];
        let several_steps = self.band(&conditions[0], &conditions[1]);
        let several_steps = self.band(&several_steps, &conditions[2]);
        let r = self.unless_any(&several_steps, &r, |e| {
            let exact = e.fmod_by_steps(c, &a, &b);
            e.choose(&several_steps, &exact, &r)
        });
        let zero = self.float_like(c, &r, 0.0);
        let under = self.fcmp(FloatCC::LessThan, &r, &zero);
        let up = self.fadd(&r, &b);
        let r = self.choose(&under, &up, &r);
        self.copysign(c, &r, x)
    }

    /// `z - x y`, rounded once.
    fn minus_product(&mut self, c: RegisterClass, x: &Lanes, y: &Lanes, z: &Lanes) -> Lanes {
        let x = self.fneg(c, x);
        self.fma(&x, y, z)
    }

    /// A number congruent to `a` modulo `b` whose magnitude is below `b`.
    fn fmod_by_steps(&mut self, c: RegisterClass, a: &Lanes, b: &Lanes) -> Lanes {
        let s = scales(c);
        let scaled = |e: &mut Self, x: &Lanes, k: f64| {
            let k = e.float_like(c, x, k);
            e.fmul(x, &k)
        };
        let limit = self.float_like(c, b, s.limit);
        let tiny = self.fcmp(FloatCC::LessThan, b, &limit);
        let one = self.float_like(c, b, 1.0);
        let small = self.fcmp(FloatCC::LessThan, b, &one);
        let once = scaled(self, b, s.tiny);
        let twice = scaled(self, &once, s.tiny);
        let other = scaled(self, b, s.small);
        let first = self.choose(&small, &other, b);
        let first = self.choose(&tiny, &twice, &first);
        let second = self.choose(&tiny, &once, b);
        let r = self.reduce_below(c, a, &first);
        let r = self.reduce_below(c, &r, &second);
        self.reduce_below(c, &r, b)
    }

    /// Subtracts multiples of `d` from `r` until no magnitude is `d` or more. Each step is exact.
    fn reduce_below(&mut self, c: RegisterClass, r: &Lanes, d: &Lanes) -> Lanes {
        let (head, body, done) = (self.b.create_block(), self.b.create_block(), self.b.create_block());
        let types: Vec<_> = r.iter().map(|&v| self.b.func.dfg.value_type(v)).collect();
        let state: Lanes = types.iter().map(|&t| self.b.append_block_param(head, t)).collect();
        let args = |r: &Lanes| r.iter().map(|&v| v.into()).collect::<Vec<BlockArg>>();
        self.b.ins().jump(head, &args(r));
        self.b.switch_to_block(head);
        self.b.set_cold_block(head);
        let size = self.fabs(c, &state);
        let unfinished = self.fcmp(FloatCC::GreaterThanOrEqual, &size, d);
        let any = self.any_true(&unfinished);
        self.b.ins().brif(any, body, &[], done, &[]);
        self.b.seal_block(body);
        self.b.set_cold_block(body);
        self.b.switch_to_block(body);
        let q = self.fdiv(&state, d);
        let q = self.map1(&q, |e, q| e.b.ins().trunc(q));
        let next = self.minus_product(c, &q, d, &state);
        self.b.ins().jump(head, &args(&next));
        self.b.seal_block(head);
        self.b.seal_block(done);
        self.b.set_cold_block(done);
        self.b.switch_to_block(done);
        state
    }

    /// Where `rest` is not zero and has another sign than `y`.
    fn rest_off(&mut self, c: RegisterClass, rest: &Lanes, y: &Lanes) -> Lanes {
        let zero = self.float_like(c, y, 0.0);
        let negative = self.fcmp(FloatCC::LessThan, y, &zero);
        let above = self.fcmp(FloatCC::GreaterThan, rest, &zero);
        let below = self.fcmp(FloatCC::LessThan, rest, &zero);
        // Where the divisor is negative, the positive remainders; elsewhere, the negative ones.
        let x = self.band(&negative, &above);
        let not = self.not(&negative);
        let other = self.band(&not, &below);
        self.bor(&x, &other)
    }

    /// The remainder with the divisor's sign: `fmod`, then one correction.
    pub(super) fn float_mod(&mut self, c: RegisterClass, x: &Lanes, y: &Lanes) -> Lanes {
        let rest = self.fmod(c, x, y);
        let off = self.rest_off(c, &rest, y);
        let moved = self.fadd(&rest, y);
        self.choose(&off, &moved, &rest)
    }

    /// torch's `div_floor_floating`: Python's algorithm, except that `x / 0` follows IEEE 754.
    pub(super) fn float_floor_div(&mut self, c: RegisterClass, x: &Lanes, y: &Lanes) -> Lanes {
        let rest = self.fmod(c, x, y);
        let plain = self.fdiv(x, y);
        let q = self.fsub(x, &rest);
        let q = self.fdiv(&q, y);
        let off = self.rest_off(c, &rest, y);
        let one = self.float_like(c, &q, 1.0);
        let less = self.fsub(&q, &one);
        let q = self.choose(&off, &less, &q);
        let floor = self.map1(&q, |e, q| e.b.ins().floor(q));
        let over = self.fsub(&q, &floor);
        let half = self.float_like(c, &q, 0.5);
        let over = self.fcmp(FloatCC::GreaterThan, &over, &half);
        let one = self.float_like(c, &q, 1.0);
        let up = self.fadd(&floor, &one);
        let r = self.choose(&over, &up, &floor);
        let zero = self.float_like(c, &q, 0.0);
        let none = self.fcmp(FloatCC::Equal, &q, &zero);
        let signed = self.copysign(c, &zero, &plain);
        let r = self.choose(&none, &signed, &r);
        let zero = self.float_like(c, y, 0.0);
        let by_zero = self.fcmp(FloatCC::Equal, y, &zero);
        self.choose(&by_zero, &plain, &r)
    }
}
