//! The Mersenne twister MT19937 (Matsumoto & Nishimura 1998), seeded and read as torch's CPU generator does.

const N: usize = 624;
const M: usize = 397;

/// The generator's state.
#[derive(Clone)]
pub(super) struct Twister {
    state: [u32; N],
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
        Twister { state, next: N }
    }

    fn refill(&mut self) {
        for i in 0..N {
            let y = (self.state[i] & 0x8000_0000) | (self.state[(i + 1) % N] & 0x7fff_ffff);
            let odd = if y & 1 == 1 { 0x9908_b0df } else { 0 };
            self.state[i] = self.state[(i + M) % N] ^ (y >> 1) ^ odd;
        }
        self.next = 0;
    }

    /// The next 32 bits.
    pub(super) fn next_u32(&mut self) -> u32 {
        if self.next == N {
            self.refill();
        }
        let mut y = self.state[self.next];
        self.next += 1;
        y ^= y >> 11;
        y ^= (y << 7) & 0x9d2c_5680;
        y ^= (y << 15) & 0xefc6_0000;
        y ^ (y >> 18)
    }

    /// The next 64 bits: two draws, the first in the high half.
    pub(super) fn next_u64(&mut self) -> u64 {
        let high = self.next_u32() as u64;
        high << 32 | self.next_u32() as u64
    }
}
