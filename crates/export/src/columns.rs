//! What a table has: names, types, meanings; and the columns of calls.

/// Type of a column.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Type {
    /// A number below 2^63, as a signed one of 64 bits.
    Number,
    /// The same, of which few come twice, and most are near the one of the row before.
    Near,
    /// A number of 64 bits with a fraction.
    Fraction,
    /// 64 bits, unsigned: a mask, or the word of a page.
    Bits,
    /// Text, one of a few.
    Name,
    /// Text.
    Text,
    /// Yes or no.
    Flag,
}

/// A column.
#[derive(Debug, Clone, Copy)]
pub struct Column {
    /// Its name.
    pub name: &'static str,
    /// Its type.
    pub of: Type,
    /// Whether each row has it; the others have nothing there in some.
    pub always: bool,
}

pub(crate) const fn always(name: &'static str, of: Type) -> Column {
    Column { name, of, always: true }
}

pub(crate) const fn maybe(name: &'static str, of: Type) -> Column {
    Column { name, of, always: false }
}

macro_rules! columns {
    ($($index:ident $which:ident $name:literal $of:ident;)*) => {
        /// The places of the columns in a row.
        #[derive(Debug, Clone, Copy)]
        pub(crate) enum At { $($index,)* }
        /// All columns of a table of calls, in their order.
        pub const COLUMNS: [Column; [$(At::$index),*].len()] = [$($which($name, Type::$of),)*];
    };
}

columns! {
    Number always "number" Near;
    TimeNs always "time_ns" Near;
    Call always "call" Name;
    Process maybe "process" Number;
    Page maybe "page" Near;
    Pages maybe "pages" Number;
    ToPage maybe "to_page" Near;
    MappingPage maybe "mapping_page" Near;
    MappingPages maybe "mapping_pages" Number;
    Object maybe "object" Near;
    TickMs maybe "tick_ms" Near;
    Most maybe "most" Number;
    Result maybe "result" Name;
    Codec maybe "codec" Number;
    Len maybe "len" Number;
    Unit maybe "unit" Near;
    FromUnit maybe "from_unit" Near;
    Word maybe "word" Bits;
    Moved maybe "moved" Bits;
    Dropped maybe "dropped" Bits;
    File maybe "file" Bits;
    Origin maybe "origin" Name;
    Entropy maybe "entropy" Number;
    Slots maybe "slots" Number;
    Epoch maybe "epoch" Number;
    Flag maybe "flag" Flag;
    List maybe "list" Text;
}
