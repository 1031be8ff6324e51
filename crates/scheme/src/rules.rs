//! Combinations of values that cannot work.

use memfit_core::pool::{Leaving, PoolEntry, POOLS};
use memfit_core::replacement::ReplacementEntry;
use memfit_core::scheme::{
    AdmissionKind, Classes, PoolScheme, ReclaimKind, RoutingKind, Scheme, Sizing, SizingKind, SwapFormat,
};

/// A combination of values that cannot work.
pub(super) struct Rule {
    /// The keys of the combination.
    pub keys: &'static [&'static str],
    /// Why a scheme breaks the rule; `None` if it does not.
    pub broken: fn(&Scheme) -> Option<String>,
}

/// Names of the pools that fit.
fn names_of_pools(fits: fn(&PoolEntry) -> bool) -> String {
    POOLS.iter().filter(|pool| fits(pool)).map(|pool| pool.name).collect::<Vec<_>>().join(", ")
}

/// All rules. They are checked when all keys have their values.
pub(super) static RULES: &[Rule] = &[
    Rule {
        keys: &["sizing.low_percent", "sizing.high_percent"],
        broken: |scheme| {
            let Sizing { low_percent, high_percent, .. } = scheme.sizing;
            (low_percent >= high_percent).then(|| {
                format!("`sizing.low_percent` = {low_percent} must be less than `sizing.high_percent` = {high_percent}")
            })
        },
    },
    Rule {
        keys: &["sizing.dense_floor_percent", "sizing.resident_floor_percent"],
        broken: |scheme| {
            let Sizing { dense_floor_percent: dense, resident_floor_percent: floor, .. } = scheme.sizing;
            (dense > floor).then(|| {
                format!("`sizing.dense_floor_percent` = {dense} must not be above `sizing.resident_floor_percent` = {floor}")
            })
        },
    },
    Rule {
        keys: &["sizing.resident_floor_percent", "sizing.high_percent", "reclaim.staging_percent"],
        broken: |scheme| {
            let Sizing { resident_floor_percent: floor, high_percent: high, .. } = scheme.sizing;
            let staging = scheme.reclaim.staging_percent;
            (floor + high + staging > 90).then(|| {
                format!(
                    "`sizing.resident_floor_percent` = {floor}, `sizing.high_percent` = {high} and \
                     `reclaim.staging_percent` = {staging} leave less than 10 percent of the budget for the pool"
                )
            })
        },
    },
    Rule {
        keys: &["reclaim.accessed_bits", "reclaim", "reclaim.kind"],
        broken: |scheme| {
            let is_fifo = scheme.reclaim.kind == ReclaimKind::Fifo;
            (is_fifo && scheme.reclaim.accessed_bits != 0)
                .then(|| "`reclaim.accessed_bits` = 1 needs `reclaim` = bimodal or dueling, not fifo".into())
        },
    },
    Rule {
        keys: &["reclaim.accessed_bits", "classes"],
        broken: |scheme| {
            let files = scheme.classes != Classes::Anonymous;
            (files && scheme.reclaim.accessed_bits != 0).then(|| {
                "`reclaim.accessed_bits` = 1 needs `classes` = anonymous: pages of files are read-only memory, which it keeps"
                    .into()
            })
        },
    },
    Rule {
        keys: &["pool", "pool.kind", "replacement", "replacement.kind"],
        broken: |scheme| {
            let (pool, ReplacementEntry { name, fits, .. }) = (scheme.pool.kind, scheme.replacement.kind);
            (!fits(pool)).then(|| {
                format!("`replacement` = {name} needs one of the pools {}, not {}", names_of_pools(*fits), pool.name)
            })
        },
    },
    Rule {
        keys: &["pool", "pool.kind", "swap_format", "swap_format.kind"],
        broken: |scheme| {
            let written_whole: fn(&PoolEntry) -> bool = |pool| pool.leaving == Leaving::Units;
            let batches = scheme.swap_format.kind == SwapFormat::CompressedBatches;
            (written_whole(scheme.pool.kind) != batches).then(|| {
                let pools = names_of_pools(written_whole);
                format!("`pool` = {pools} and `swap_format` = compressed-batches need each other: what is written is whole buffers")
            })
        },
    },
    Rule {
        keys: &["swap_format", "swap_format.kind", "swap_format.cache_reads"],
        broken: |scheme| {
            let caches = scheme.swap_format.cache_reads != 0;
            (caches && scheme.swap_format.kind != SwapFormat::CompressedBatches).then(|| {
                "`swap_format.cache_reads` = 1 needs `swap_format` = compressed-batches: only there a block is a buffer".into()
            })
        },
    },
    Rule {
        keys: &["pool", "pool.kind", "sizing", "sizing.kind"],
        broken: |scheme| {
            let pool = scheme.pool.kind.name;
            (scheme.sizing.kind == SizingKind::Zones && pool != "zones")
                .then(|| format!("`sizing` = zones needs `pool` = zones, not {pool}"))
        },
    },
    Rule {
        keys: &[
            "swap_format",
            "swap_format.kind",
            "routing",
            "routing.kind",
            "admission",
            "admission.kind",
            "admission.need_permille",
        ],
        broken: |scheme| {
            let all = scheme.admission.kind == AdmissionKind::All && scheme.admission.need_permille == 0;
            let alone = all && scheme.routing.kind != RoutingKind::ByOrigin;
            (scheme.swap_format.kind == SwapFormat::CompressedBatches && !alone).then(|| {
                "`swap_format` = compressed-batches takes pages through the pool alone: it needs `admission` = all, \
                 `admission.need_permille` = 0 and `routing` = coldest-to-swap"
                    .into()
            })
        },
    },
    Rule {
        keys: &["pool.block_bytes", "pool.zone_kib"],
        broken: |scheme| {
            let PoolScheme { block_bytes: block, zone_kib: zone, .. } = scheme.pool;
            if !block.is_power_of_two() {
                return Some(format!("`pool.block_bytes` = {block} must be a power of two"));
            }
            (zone % 4 != 0).then(|| format!("`pool.zone_kib` = {zone} must be a multiple of 4"))
        },
    },
    Rule {
        keys: &["sizing.grow_below_zones", "sizing.shrink_above_zones"],
        broken: |scheme| {
            let Sizing { grow_below_zones: grow, shrink_above_zones: shrink, .. } = scheme.sizing;
            (grow >= shrink).then(|| {
                format!("`sizing.grow_below_zones` = {grow} must be less than `sizing.shrink_above_zones` = {shrink}")
            })
        },
    },
];
