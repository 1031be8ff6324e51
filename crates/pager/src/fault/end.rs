//! What ends the service of a process.

use crate::proc::{Broken, Gate};

/// What stops the fault thread.
pub enum End {
    /// The process's memory is gone.
    Gone,
    /// The process must die.
    Broken(Broken),
}

impl Gate {
    /// Whether no MOVE runs; false if somebody has stopped the stub inside of one.
    pub fn is_closed(self) -> Result<bool, End> {
        match self {
            Gate::Closed => Ok(true),
            Gate::Held => Ok(false),
            Gate::Gone => Err(End::Gone),
            Gate::Ended => Err(Broken("its stub ended while it moved pages, and others have its memory".into()).into()),
        }
    }
}

impl End {
    /// Why the process must die, if it must.
    pub fn broken(self) -> Option<String> {
        match self {
            End::Broken(Broken(why)) => Some(why),
            End::Gone => None,
        }
    }
}

impl From<Broken> for End {
    fn from(broken: Broken) -> End {
        End::Broken(broken)
    }
}
