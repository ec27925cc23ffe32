//! The Mersenne twister MT19937 (Matsumoto & Nishimura 1998), seeded and read as torch's CPU generator does.

use crate::tensor::wide_function;

const N: usize = 624;
const M: usize = 397;
const UPPER: u32 = 0x8000_0000;
const MATRIX: u32 = 0x9908_b0df;

/// The generator's state.
#[derive(Clone)]
pub(super) struct Twister {
    state: [u32; N],
    /// The numbers of this state, of which those from `next` on have not been drawn.
    words: [u32; N],
    next: usize,
}

impl Twister {
    /// The generator for a seed. As in torch, only the low 32 bits of the seed are used.
    pub(super) fn new(seed: u64) -> Twister {
        let mut state = [0u32; N];
        state[0] = seed as u32;
        for i in 1..N {
            let last = state[i - 1];
            state[i] = (last ^ (last >> 30)).wrapping_mul(1_812_433_253).wrapping_add(i as u32);
        }
        Twister {
            state,
            words: [0; N],
            next: N,
        }
    }

    fn refill(&mut self) {
        advance(&mut self.state, &mut self.words);
        self.next = 0;
    }

    /// The next 32 bits.
    #[inline]
    pub(super) fn next_u32(&mut self) -> u32 {
        if self.next == N {
            self.refill();
        }
        self.next += 1;
        self.words[self.next - 1]
    }

    /// The next 64 bits: two draws, the first in the high half.
    #[inline]
    pub(super) fn next_u64(&mut self) -> u64 {
        let high = self.next_u32() as u64;
        high << 32 | self.next_u32() as u64
    }

    /// Draws 32 bits for each element of `out`, in order.
    pub(super) fn fill(&mut self, mut out: &mut [u32]) {
        while !out.is_empty() {
            if self.next == N {
                self.refill();
            }
            let n = out.len().min(N - self.next);
            let (head, rest) = out.split_at_mut(n);
            head.copy_from_slice(&self.words[self.next..self.next + n]);
            self.next += n;
            out = rest;
        }
    }
}

wide_function! {
    /// The next state and its numbers. The loops are split where an index wraps around, so that they are vector code.
    fn advance = advance_body(s: &mut [u32; N], words: &mut [u32; N])
}

#[inline(always)]
fn advance_body(s: &mut [u32; N], words: &mut [u32; N]) {
    for i in 0..N - M {
        s[i] = s[i + M] ^ twist(s[i], s[i + 1]);
    }
    for i in N - M..N - 1 {
        s[i] = s[i + M - N] ^ twist(s[i], s[i + 1]);
    }
    s[N - 1] = s[M - 1] ^ twist(s[N - 1], s[0]);
    for (w, &y) in words.iter_mut().zip(&*s) {
        *w = temper(y);
    }
}

#[inline(always)]
fn twist(a: u32, b: u32) -> u32 {
    let y = (a & UPPER) | (b & !UPPER);
    (y >> 1) ^ ((y & 1).wrapping_neg() & MATRIX)
}

#[inline(always)]
fn temper(mut y: u32) -> u32 {
    y ^= y >> 11;
    y ^= (y << 7) & 0x9d2c_5680;
    y ^= (y << 15) & 0xefc6_0000;
    y ^ (y >> 18)
}
