//! Columns of tables: names and types; and the columns of the table of calls.

/// Type of a column.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Type {
    /// A number below 2^63, as a signed 64-bit integer.
    Number,
    /// The same, delta-encoded: most values are near the one in the row before, and few repeat.
    Near,
    /// A 64-bit floating-point number.
    Fraction,
    /// 64 bits, unsigned: a mask, or the repeated word of a page.
    Bits,
    /// One of a few texts.
    Name,
    /// Text.
    Text,
    /// A boolean.
    Flag,
}

/// A column.
#[derive(Debug, Clone, Copy)]
pub struct Column {
    /// Its name.
    pub name: &'static str,
    /// Its type.
    pub of: Type,
    /// Whether every row has a value in it.
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
        /// Position of each column in a row.
        #[derive(Debug, Clone, Copy)]
        pub(crate) enum At { $($index,)* }
        /// All columns of the table of calls, in order.
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
    Level maybe "level" Name;
    Gained maybe "gained" Number;
    Unmanaged maybe "unmanaged" Number;
    Facts maybe "facts" Number;
    ReadUs maybe "read_us" Number;
    Flag maybe "flag" Flag;
    List maybe "list" Text;
}
