//! `memfit trace export`: writes a recording as a table.

use super::{cut, grouped, length, open, unreadable};
use crate::args::{TableFormat, TraceExportArgs};
use crate::errors::{tell, Failure};
use crate::output::{distinct, OutputFile};
use memfit_export::{export, ExportError, Format, Rows};

/// Writes the table.
///
/// # Errors
/// When that fails; no table is left then.
pub fn run(args: &TraceExportArgs) -> Result<i32, Failure> {
    let format = format(args)?;
    let name = args.file.display();
    distinct(&[("-o", Some(&args.output))], [("the recording", &*args.file)])?;
    let mut reader = open(&args.file)?;
    let mut output = OutputFile::open("-o", &args.output)?;
    let (of, rows) = if args.contents { (Rows::Contents, "rows") } else { (Rows::Calls, "calls") };
    let exported = match export(&mut reader, of, format, output.file()) {
        Ok(exported) => exported,
        Err(ExportError::Write(error)) => return Err(output.failure(&error)),
        Err(ExportError::Read(error)) => return Err(unreadable(&args.file, &error)),
        Err(error) => return Err(Failure::here(format!("{name}: {error}"))),
    };
    output.place()?;
    if let Some(error) = exported.cut {
        let cut = cut(&error, length(&args.file));
        tell(&format!("{name}: {cut}; the table has the {} {rows} before", grouped(exported.rows)));
    }
    if args.contents && exported.rows == 0 {
        tell(&format!("{name}: has no contents, and the table no rows; memfit run --record-contents records them"));
    }
    Ok(0)
}

fn format(args: &TraceExportArgs) -> Result<Format, Failure> {
    let chosen = args.format.map(|format| match format {
        TableFormat::Parquet => Format::Parquet,
        TableFormat::Csv => Format::Csv,
    });
    let by_name = || match args.output.extension()?.to_str()? {
        "parquet" => Some(Format::Parquet),
        "csv" => Some(Format::Csv),
        _ => None,
    };
    chosen.or_else(by_name).ok_or_else(|| {
        let name = args.output.display();
        Failure::usage(format!("-o {name}: name it .parquet or .csv, or say --format parquet or --format csv"))
    })
}
