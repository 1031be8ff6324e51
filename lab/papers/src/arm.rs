//! Costs of the boards' processors, Cortex-A7 and Cortex-A9.
//!
//! LZO's is published for an ARMv7 board of 1 GHz and taken in proportion to the clock. All else is
//! assumed.

use crate::lab::costs;
use memfit_sim::cost::CostTable;
use std::sync::Arc;

/// Nanoseconds to compress a page at 1 GHz: 33.0 MB/s.
const LZO_NS: f64 = 4096.0 / 33.0e6 * 1e9;
/// Time to decompress a page for that to compress it, as in costs/measured.toml.
const DECOMPRESS: f64 = 2.7 / 6.1;
/// Time of an entropy for that of LZO, as printed for a Cortex-A7.
const ENTROPY: f64 = 0.14;

/// Costs of a processor at so many MHz.
pub fn arm(name: &str, mhz: u32) -> Arc<CostTable> {
    let lzo = LZO_NS * 1000.0 / f64::from(mhz);
    costs(&format!(
        r#"
name = "arm"
summary = "the {name} at {mhz} MHz"
source = "LZO: 33.0 MB/s at 1 GHz, message of Linux commit c72ac7a1a926 of 2013, by the clock; decompression in proportion to costs/measured.toml; an entropy 14 % of LZO: Kim, Kim, Seo, IEEE Access 2019; all else assumed"
fault_ns = 10_000
copy_ns = 5_000
around_ns = 5_000
zero_ns = 5_000
fill_ns = 5_000
move_ns = 5_000
stage_ns = 1_700
drop_ns = 5_400
entropy_ns = {:.0}
[codec.any]
compress_ns = {lzo:.0}
decompress_ns = {:.0}
"#,
        lzo * ENTROPY,
        lzo * DECOMPRESS,
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use memfit_codec::CodecId;

    #[test]
    fn lzo_goes_with_the_clock() {
        let times = |mhz| {
            let costs = arm("Cortex-A7", mhz);
            let lzo = costs.codec(CodecId::LZO.0);
            [lzo.compress_ns, lzo.decompress_ns, costs.entropy_ns]
        };
        assert_eq!(times(1000), [124_121, 54_939, 17_377]);
        assert_eq!(times(1400), [88_658, 39_242, 12_412]);
    }
}
