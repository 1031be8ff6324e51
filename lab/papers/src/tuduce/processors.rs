//! Costs of the Pentium 4 and the G5.
//!
//! WKdm's times are published for a Pentium Pro and taken in proportion to the clock. All else is
//! assumed to be as much slower than today as WKdm's compression.

use crate::lab::costs;
use memfit_codec::CodecId;
use memfit_sim::cost::CostTable;
use std::sync::Arc;

/// Nanoseconds that WKdm takes for a page on a Pentium Pro, and its clock.
const COMPRESS_NS: f64 = 250_000.0;
const DECOMPRESS_NS: f64 = 150_000.0;
const PENTIUM_PRO_MHZ: f64 = 180.0;

/// A processor of the paper.
#[derive(Debug, Clone, Copy)]
pub struct Processor {
    /// Name in the texts of its costs.
    pub name: &'static str,
    /// Clock.
    pub mhz: u32,
}

/// The PC.
pub const PENTIUM_4: Processor = Processor { name: "Pentium 4", mhz: 2600 };
/// The machine of all that did not run on the PC.
pub const G5: Processor = Processor { name: "G5", mhz: 1800 };

impl Processor {
    /// Its costs.
    pub fn costs(self) -> Arc<CostTable> {
        let by_clock = |ns: f64| ns * PENTIUM_PRO_MHZ / f64::from(self.mhz);
        let compress = by_clock(COMPRESS_NS);
        let today = costs("measured");
        let slower = compress / today.codec(CodecId::WKDM.0).compress_ns as f64;
        let of = |ns: u64| (ns as f64 * slower).round();
        costs(&format!(
            r#"
name = "tuduce05"
summary = "the {} at {} MHz of Tuduce and Gross"
source = "WKdm: 0.25 and 0.15 ms a page on a Pentium Pro at 180 MHz, Wilson, Kaplan, Smaragdakis, USENIX 1999, by the clock; all else assumed: costs/measured.toml, {slower:.1} times, as WKdm"
fault_ns = {}
copy_ns = {}
around_ns = {}
zero_ns = {}
fill_ns = {}
move_ns = {}
stage_ns = {}
drop_ns = {}
entropy_ns = {}
[codec.any]
compress_ns = {compress:.0}
decompress_ns = {:.0}
"#,
            self.name,
            self.mhz,
            of(today.fault_ns),
            of(today.copy_ns),
            of(today.around_ns),
            of(today.zero_ns),
            of(today.fill_ns),
            of(today.move_ns),
            of(today.stage_ns),
            of(today.drop_ns),
            of(today.entropy_ns),
            by_clock(DECOMPRESS_NS),
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wkdm_goes_with_the_clock_and_all_else_with_wkdm() {
        let of = |processor: Processor| {
            let costs = processor.costs();
            let wkdm = costs.codec(CodecId::WKDM.0);
            (wkdm.compress_ns, wkdm.decompress_ns)
        };
        assert_eq!(of(PENTIUM_4), (17_308, 10_385));
        assert_eq!(of(G5), (25_000, 15_000));
        let (today, then) = (costs("measured"), G5.costs());
        let slower = |then: u64, today: u64| then as f64 / today as f64;
        let wkdm = slower(25_000, today.codec(CodecId::WKDM.0).compress_ns);
        assert!((slower(then.fault_ns, today.fault_ns) / wkdm - 1.0).abs() < 0.01);
        assert!((slower(then.drop_ns, today.drop_ns) / wkdm - 1.0).abs() < 0.01);
    }
}
