//! Pages that the kernel may drop without an event: they read as zeros then.

use memfit_core::scheme::Scheme;
use memfit_core::{Core, Entry, Fault, Filled, Load, Page, PageRange, ProcId, Source};

mod support;

fn core() -> (Core, ProcId) {
    let mut core = support::core(Scheme::default(), 4096);
    let (id, _) = core.add_process(4096);
    (core, id)
}

fn fault(core: &mut Core, id: ProcId, page: Page) -> (Fault, Vec<Load>) {
    let mut loads = Vec::new();
    (core.fault(id, page, PageRange::ALL, u32::MAX, &mut loads), loads)
}

/// The program had it before the registration, and may have freed it with MADV_FREE.
#[test]
fn a_page_that_a_fill_found_present() {
    let (mut core, id) = core();
    let page = Page(7);
    let (answer, loads) = fault(&mut core, id, page);
    assert_eq!((answer, &loads[0]), (Fault::Load, &Load { page, source: Source::Zero }));
    core.loaded(id, page, Filled::Exists);
    loads[1..].iter().for_each(|load| core.loaded(id, load.page, Filled::Done));
    assert_eq!(core.entry(id, page), Entry::Lazy);
    let (answer, loads) = fault(&mut core, id, page);
    assert_eq!((answer, loads), (Fault::Load, vec![Load { page, source: Source::Zero }]));
    core.loaded(id, page, Filled::Done);
    assert_eq!(core.entry(id, page), Entry::Resident);
}

/// One that memfit filled is never dropped.
#[test]
fn a_page_that_was_filled() {
    let (mut core, id) = core();
    let (_, loads) = fault(&mut core, id, Page(7));
    loads.iter().for_each(|load| core.loaded(id, load.page, Filled::Done));
    assert_eq!(fault(&mut core, id, Page(7)).0, Fault::Present);
}
