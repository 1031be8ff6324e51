//! `memfit trace generate`: records the simulation of a generated program.

use super::grouped;
use crate::args::TraceGenerateArgs;
use crate::errors::{tell, Failure};
use crate::output::{distinct, OutputFile};
use crate::size_parsing::{human, Size};
use memfit_sim::cost::CostTable;
use memfit_sim::device::Device;
use memfit_sim::generate::Spec;
use memfit_sim::{footprint, Contents, Machine, Recorder, Residents, Setup};
use std::io::BufWriter;
use std::path::Path;
use std::sync::Arc;

/// Size of the swap tier, bytes: more than any workload has.
const SWAP_BYTES: u64 = 16 << 30;

/// Simulates the workload and records it.
///
/// # Errors
/// When the command line is wrong, or the file cannot be written; no file is left then.
pub fn run(args: &TraceGenerateArgs) -> Result<i32, Failure> {
    distinct(&[("-o", Some(&args.output))], [("the scheme", Path::new(&args.scheme))])?;
    let spec = Spec::parse(&args.workload).map_err(|error| Failure::usage(error.to_string()))?;
    let scheme = crate::run::scheme(&args.scheme, &args.set)?;
    let budget = match args.memory {
        Size::Bytes(bytes) => bytes,
        size => {
            let need = footprint(&mut spec.make(), &mut |_| {}).map_err(|error| Failure::here(error.to_string()))?;
            size.resolve(need.pages() * 4096)
        }
    };
    if budget < crate::sim::BUDGET_MIN {
        let least = human(crate::sim::BUDGET_MIN);
        return Err(Failure::usage(format!("-m: {} is too small: at least {least}", human(budget))));
    }
    let embedded = |error| Failure::here(format!("{error}"));
    let setup = Setup {
        scheme: Arc::new(scheme),
        budget,
        swap_bytes: SWAP_BYTES,
        residents: Residents::Simulated,
        rate: 1.0,
        tables_per_frame: 0,
        costs: Arc::new(CostTable::find("measured").map_err(embedded)?),
        device: Arc::new(Device::find("ssd-nvme").map_err(embedded)?),
    };
    let mut output = OutputFile::open("-o", &args.output)?;
    let written = |output: &mut OutputFile| {
        let file = BufWriter::new(output.file().try_clone()?);
        let mut machine = Machine::new(&setup, Contents::new());
        let recorder = Recorder::start(&mut machine, file, vec![spec.to_string()])?;
        for event in spec.make() {
            machine.event(event);
            recorder.now(machine.times().program);
        }
        recorder.finish(&mut machine)?.into_inner().map_err(std::io::IntoInnerError::into_error)?;
        Ok(machine.core().number())
    };
    let calls = written(&mut output).map_err(|error| output.failure(&error))?;
    output.place()?;
    let name = args.output.display();
    tell(&format!("{name}: {} calls of {spec} under {} in {}", grouped(calls), setup.scheme.name, human(budget)));
    Ok(0)
}
