//! The options of `memfit run` about what it does when memory is not enough for the programs.

use clap::builder::NonEmptyStringValueParser;
use clap::{Args, ValueEnum};
use memfit_core::scheme::{Scheme, SizingKind};
use memfit_pager::config::OnFull;

/// Turns of the scheme memfit.
const TURN_SECONDS: u32 = 5;

/// See [`super::RunArgs`].
#[derive(Debug, Args)]
pub struct ShortageArgs {
    /// What to do when the programs do not fit: neither the pool nor the swap tier takes a page,
    /// and they are far over the budget
    ///
    /// Only processes in the background are stopped or killed, and of these the one with most in
    /// memory and outside of it. The command itself is spared. Each time memfit says which one it
    /// was, and why. 'stop' and 'kill' act when the programs are 5 % over the budget, the others
    /// when they are 20 % over it. If there is no such process, the run ends as with 'fail'. See
    /// memfit bg, and --background.
    #[arg(long, value_enum, value_name = "ACT", default_value_t = OnFullArg::Fail)]
    pub on_full: OnFullArg,

    /// Names of processes that --on-full never stops or kills, and that wait for no turn (--turns),
    /// as ps -o comm shows them
    #[arg(long, value_name = "NAME,...", value_delimiter = ',', value_parser = NonEmptyStringValueParser::new())]
    pub protect: Vec<String>,

    /// Seconds of a turn when processes take pages from each other: some wait; 0: nobody waits
    ///
    /// Processes thrash when all wait for pages for longer than they work. If turns get more done,
    /// some wait at their next page fault, and others after each turn. --protect exempts some. By
    /// default 5 with a scheme of adaptive sizing, such as memfit, and 0 with the others: the
    /// published schemes have no turns.
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u32).range(..=60))]
    pub turns: Option<u32>,
}

impl ShortageArgs {
    /// Length of a turn with this scheme, ms; 0: no turns.
    pub fn turn_ms(&self, scheme: &Scheme) -> u64 {
        let usual = if scheme.sizing.kind == SizingKind::Adaptive { TURN_SECONDS } else { 0 };
        u64::from(self.turns.unwrap_or(usual)) * 1000
    }
}

/// What is done when the programs do not fit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum OnFullArg {
    /// End the run, with exit status 1
    Fail,
    /// Go on over the budget, and take what becomes possible; the machine or a limit of the control
    /// group may kill processes then
    Reclaim,
    /// Stop the largest process in the background (SIGSTOP) until there is room, at most for a
    /// minute
    Stop,
    /// Kill the largest process in the background (SIGKILL)
    Kill,
}

impl From<OnFullArg> for OnFull {
    fn from(arg: OnFullArg) -> OnFull {
        match arg {
            OnFullArg::Fail => OnFull::Fail,
            OnFullArg::Reclaim => OnFull::Reclaim,
            OnFullArg::Stop => OnFull::Stop,
            OnFullArg::Kill => OnFull::Kill,
        }
    }
}
