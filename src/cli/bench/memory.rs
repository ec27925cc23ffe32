//! Measures the memory of a compiled model.

use crate::driver::Ready;
use crate::runtime::Executable;
use serde_json::json;

/// Bytes by purpose.
#[derive(Default)]
pub(super) struct MemoryReport {
    /// Constants that the program refers to, in the form that the file has. Constants that share memory count once: a
    /// table that is also the weight of a product counts once, and a table of which only some rows are read counts as
    /// a whole.
    weights: usize,
    /// The part of the weights that contractions read in a packed order. The pages of the originals are released when
    /// they are packed.
    packed: usize,
    arena: usize,
    code: usize,
    /// The maximal resident memory of the process, if the system reports it.
    peak: Option<usize>,
}

impl MemoryReport {
    pub(super) fn from_ready(ready: &Ready) -> MemoryReport {
        let peak = peak_rss();
        let Some(e) = ready.executable() else {
            return MemoryReport {
                peak,
                ..MemoryReport::default()
            };
        };
        MemoryReport {
            weights: e.program().weight_bytes(),
            packed: e.packed_constants().iter().map(|p| p.bytes.bytes().len()).sum(),
            arena: e.program().arena,
            code: code_bytes(e),
            peak,
        }
    }

    pub(super) fn summary_line(&self) -> String {
        let mb = |b: usize| format!("{:.1}", b as f64 / (1 << 20) as f64);
        let peak = self.peak.map_or(String::new(), |p| {
            let additional = p as f64 - (self.weights + self.arena) as f64;
            let additional = additional / (1 << 20) as f64;
            format!(", peak {} ({additional:.1} in addition to weights and arena)", mb(p))
        });
        let [weights, packed, arena, code] = [self.weights, self.packed, self.arena, self.code].map(mb);
        format!("memory MiB: weights {weights}, packed {packed}, arena {arena}, code {code}{peak}")
    }

    pub(super) fn to_json(&self) -> serde_json::Value {
        json!({
            "weights": self.weights,
            "packed": self.packed,
            "arena": self.arena,
            "code": self.code,
            "peak": self.peak,
        })
    }

    pub(super) fn peak_mb(&self) -> Option<usize> {
        self.peak.map(|b| b >> 20)
    }
}

fn code_bytes(e: &Executable) -> usize {
    (0..e.program().kernels.len()).map(|i| e.kernels().code_bytes(i)).sum()
}

fn peak_rss() -> Option<usize> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|l| l.strip_prefix("VmHWM:"))?;
    let kib: usize = line.trim().trim_end_matches("kB").trim().parse().ok()?;
    Some(kib << 10)
}
