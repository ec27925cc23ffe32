//! A content hash at memory speed: 128 bits, enough to distinguish files that differ by accident. It is not
//! cryptographic.

use std::fmt;

/// The primes of XXH64 (<https://github.com/Cyan4973/xxHash/blob/dev/doc/xxhash_spec.md>), whose rounds the lanes use.
const PRIME_1: u64 = 0x9e37_79b1_85eb_ca87;
const PRIME_2: u64 = 0xc2b2_ae3d_27d4_eb4f;
const PRIME_3: u64 = 0x1656_67b1_9e37_79f9;

/// The number of independent lanes, enough for their multiplications to overlap.
const LANES: usize = 8;
const STRIPE: usize = LANES * 8;

/// The size of a piece in bytes. Threads hash different pieces.
pub(super) const PIECE: usize = 4 << 20;

/// The maximum number of threads that hash one file. With more, memory bandwidth is the limit.
const MAX_THREADS: usize = 8;

/// A hash of bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Digest([u64; 2]);

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}{:016x}", self.0[0], self.0[1])
    }
}

impl Digest {
    /// Parses the form that [`Display`](fmt::Display) writes.
    pub(super) fn parse(text: &str) -> Option<Digest> {
        let (high, low) = text.split_at_checked(16).filter(|_| text.len() == 32)?;
        let word = |t| u64::from_str_radix(t, 16).ok();
        Some(Digest([word(high)?, word(low)?]))
    }
}

/// Hashes a list of items. The lengths are part of the hash, so that `["ab", "c"]` and `["a", "bc"]` differ.
#[derive(Default)]
pub(super) struct Hasher(Vec<u8>);

impl Hasher {
    /// Adds an item.
    pub(super) fn add(&mut self, bytes: &[u8]) {
        self.add_with(bytes, &|_| {});
    }

    /// [`Hasher::add`] for bytes in a mapped file. Calls `done` with each piece that has been read.
    pub(super) fn add_with(&mut self, bytes: &[u8], done: &(dyn Fn(std::ops::Range<usize>) + Sync)) {
        self.0.extend_from_slice(&(bytes.len() as u64).to_le_bytes());
        for digest in hash_pieces(bytes, done) {
            self.0.extend(digest.0.iter().flat_map(|w| w.to_le_bytes()));
        }
    }

    /// The hash of all items.
    pub(super) fn finish(&self) -> Digest {
        hash_piece(&self.0)
    }
}

/// The hashes of the pieces, in order.
fn hash_pieces(bytes: &[u8], done: &(dyn Fn(std::ops::Range<usize>) + Sync)) -> Vec<Digest> {
    let count = bytes.len().div_ceil(PIECE);
    let piece = |i: usize| {
        let range = i * PIECE..bytes.len().min((i + 1) * PIECE);
        let digest = hash_piece(&bytes[range.clone()]);
        done(range);
        digest
    };
    let available = std::thread::available_parallelism().map_or(1, |n| n.get());
    let threads = available.min(MAX_THREADS).min(count / 2).max(1);
    let share = count.div_ceil(threads);
    let part = |t: usize| (t * share..count.min((t + 1) * share)).map(piece).collect::<Vec<_>>();
    if threads == 1 {
        return part(0);
    }
    std::thread::scope(|scope| {
        let part = &part;
        let workers: Vec<_> = (0..threads).map(|t| scope.spawn(move || part(t))).collect();
        let parts = workers.into_iter().flat_map(|w| w.join().unwrap_or_default());
        parts.collect()
    })
}

fn hash_piece(bytes: &[u8]) -> Digest {
    let mut lanes: [u64; LANES] = std::array::from_fn(|i| PRIME_3.wrapping_mul(i as u64 + 1));
    let (stripes, rest) = bytes.as_chunks::<STRIPE>();
    for stripe in stripes {
        add_stripe(&mut lanes, stripe);
    }
    let mut last = [0; STRIPE];
    last[..rest.len()].copy_from_slice(rest);
    add_stripe(&mut lanes, &last);
    let fold = |seed: u64, lanes: &mut dyn Iterator<Item = &u64>| {
        let mixed = lanes.fold(seed, |h, &lane| {
            (h ^ round(0, lane)).rotate_left(27).wrapping_mul(PRIME_1)
        });
        finish_word(mixed)
    };
    let len = bytes.len() as u64;
    Digest([
        fold(len, &mut lanes.iter()),
        fold(len.wrapping_mul(PRIME_2) ^ PRIME_3, &mut lanes.iter().rev()),
    ])
}

fn add_stripe(lanes: &mut [u64; LANES], stripe: &[u8; STRIPE]) {
    let (words, _) = stripe.as_chunks::<8>();
    for (lane, word) in lanes.iter_mut().zip(words) {
        *lane = round(*lane, u64::from_le_bytes(*word));
    }
}

fn round(lane: u64, word: u64) -> u64 {
    let sum = lane.wrapping_add(word.wrapping_mul(PRIME_2));
    sum.rotate_left(31).wrapping_mul(PRIME_1)
}

fn finish_word(mut h: u64) -> u64 {
    h ^= h >> 33;
    h = h.wrapping_mul(PRIME_2);
    h ^= h >> 29;
    h = h.wrapping_mul(PRIME_3);
    h ^ h >> 32
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;
    use std::sync::Mutex;

    fn digest(items: &[&[u8]]) -> Digest {
        let mut h = Hasher::default();
        items.iter().for_each(|i| h.add(i));
        h.finish()
    }

    #[test]
    fn every_bit_and_every_length_counts() {
        let bytes = vec![0u8; 200];
        let mut seen: HashSet<Digest> = (0..=200).map(|n| digest(&[&bytes[..n]])).collect();
        for bit in 0..8 * bytes.len() {
            let mut other = bytes.clone();
            other[bit / 8] ^= 1 << (bit % 8);
            seen.insert(digest(&[&other]));
        }
        assert_eq!(seen.len(), 201 + 1600);
        let halves: HashSet<u64> = seen.iter().flat_map(|d| d.0).collect();
        assert_eq!(halves.len(), 2 * seen.len());
    }

    #[test]
    fn items_do_not_run_together() {
        let all = [
            digest(&[b"ab", b"c"]),
            digest(&[b"a", b"bc"]),
            digest(&[b"abc"]),
            digest(&[b"abc", b""]),
        ];
        assert_eq!(all.iter().collect::<HashSet<_>>().len(), all.len());
    }

    #[test]
    fn pieces_that_threads_hash_are_those_of_one_thread() {
        let bytes: Vec<u8> = (0..4 * PIECE as u64 + 77).map(|i| ((i * i) >> 7) as u8).collect();
        let done = Mutex::new(0);
        let got = hash_pieces(&bytes, &|r| *done.lock().unwrap() += r.len());
        let want: Vec<Digest> = bytes.chunks(PIECE).map(hash_piece).collect();
        assert_eq!(got, want);
        assert_eq!(*done.lock().unwrap(), bytes.len());
    }
}
