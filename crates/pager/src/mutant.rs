//! Test builds with a rule of the design switched off, to show that the torture program notices.
//!
//! With the feature `mutants`, the environment variable `MEMFIT_MUTANT` names the rule. Without it
//! all rules are on, at compile time.

/// Rules of ARCHITECTURE.md that can be switched off.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rule {
    /// 2: pages around thread pointers stay.
    Pins,
    /// 3: no MOVE while events are read; what was posted before an event is cancelled.
    Gate,
    /// 3a: the window decides what moved, not the return value.
    Window,
    /// 5: EAGAIN means that an event must be read first.
    EventPending,
    /// 6: a batch is drained before mremap changes the table.
    DrainBatch,
    /// 8: pages present at a REMOVE event are quarantined.
    Quarantine,
    /// 20: events before faults of the same read.
    EventsFirst,
    /// 21: adoption only when no event is pending.
    AdoptPending,
}

/// Whether the rule is switched off.
pub fn off(rule: Rule) -> bool {
    cfg!(feature = "mutants") && chosen() == Some(rule)
}

fn chosen() -> Option<Rule> {
    static CHOSEN: std::sync::OnceLock<Option<Rule>> = std::sync::OnceLock::new();
    *CHOSEN.get_or_init(|| {
        Some(match std::env::var("MEMFIT_MUTANT").ok()?.as_str() {
            "2" => Rule::Pins,
            "3" => Rule::Gate,
            "3a" => Rule::Window,
            "5" => Rule::EventPending,
            "6" => Rule::DrainBatch,
            "8" => Rule::Quarantine,
            "20" => Rule::EventsFirst,
            "21" => Rule::AdoptPending,
            _ => return None,
        })
    })
}
