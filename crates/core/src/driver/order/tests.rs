use super::*;

type Event = super::Event<()>;
type Order = super::Order<()>;
type Resolved = super::Resolved<()>;

/// Registered mappings, and the places whose pages refute that an evicted mapping is there.
struct Kernel<F> {
    there: F,
    pages: fn(u64) -> Pages,
    of_all: Pages,
}

impl<F: Fn(u64) -> bool> Now for Kernel<F> {
    fn is_there(&self, page: u64) -> bool {
        (self.there)(page)
    }

    fn pages(&self, from: u64, at: u64, bytes: u64) -> Pages {
        assert_eq!(bytes, B.1 - B.0);
        // Asked of one place only: whether it has evicted pages.
        if from == at {
            self.of_all
        } else {
            (self.pages)(at)
        }
    }
}

fn kernel<F: Fn(u64) -> bool>(there: F) -> Kernel<F> {
    Kernel { there, pages: |_| Pages::Refute, of_all: Pages::Allow }
}

fn order(events: impl IntoIterator<Item = Event>) -> Order {
    Order { events: events.into_iter().collect(), ..Order::default() }
}

const A: Range = (0x1000, 0x2000);
const B: Range = (0x3000, 0x4000);
const C: Range = (0x5000, 0x6000);

fn remap(from: Range, to: Range) -> Event {
    Event::Remap { from: from.0, to: to.0, len: from.1 - from.0 }
}

/// What is done when all is read and some places are occupied at first. Before that, nothing
/// is.
fn resolved(events: impl IntoIterator<Item = Event>, occupied: &[Range], there: &[Range]) -> String {
    let mut order = order(events);
    let next = order.next(|start, end| occupied.iter().any(|&place| overlap(place, (start, end))), || false);
    assert!(next.is_none(), "{next:x?} does not wait");
    let places = order.places();
    let there = |at| {
        assert!(places.contains(&at), "{at:#x} is not in {places:x?}");
        there.iter().any(|&place| covers(place, at))
    };
    format!("{:x?}", order.resolve_all(&kernel(there)))
}

#[test]
fn a_move_waits_until_its_place_was_left() {
    assert_eq!(resolved([remap(A, B), unmap(B)], &[A, B], &[B]), handled([unmap(B), remap(A, B)]));
    let moved = [remap(A, B), remap(B, C), unmap(B)];
    assert_eq!(resolved(moved, &[A, B, C], &[B, C]), handled([remap(B, C), unmap(B), remap(A, B)]));
}

#[test]
fn in_a_chain_of_moves_the_last_place_is_left_first() {
    let events = [remap(A, B), remap(B, C), unmap(B), unmap(C)];
    assert_eq!(resolved(events, &[A, B, C], &[B, C]), handled([unmap(C), remap(B, C), unmap(B), remap(A, B)]));
}

#[test]
fn what_changes_the_moved_pages_stays_behind_the_move() {
    let remove = || Event::Remove { start: A.0, end: A.1 };
    let events = [remap(A, B), remove(), unmap(B)];
    assert_eq!(resolved(events, &[A, B], &[B]), handled([unmap(B), remap(A, B), remove()]));
}

#[test]
fn the_memory_that_came_may_leave_as_well() {
    let events = [remap(A, B), unmap(B), unmap(B)];
    assert_eq!(resolved(events, &[A, B], &[]), handled([unmap(B), remap(A, B), unmap(B)]));
    // Nothing was there: the place is taken for occupied in vain.
    let events = [remap(A, B), remap(B, C), unmap(B)];
    assert_eq!(resolved(events, &[A, B, C], &[C]), handled([remap(A, B), remap(B, C), unmap(B)]));
    let unclear = resolved([remap(A, B), remap(B, C), unmap(B), unmap(B)], &[A, B, C], &[C]);
    assert!(unclear.starts_with("[Unclear(3000)"), "{unclear}");
}

#[test]
fn others_do_not_wait() {
    let mut order = order([remap(A, B), unmap(C)]);
    let next = order.next(|start, end| overlap(B, (start, end)), || false);
    assert_eq!(format!("{next:x?}"), format!("{:x?}", Some(unmap(C))));
}

fn unmap(range: Range) -> Event {
    Event::Unmap { start: range.0, end: range.1 }
}

/// What is done about `later`, read after memory was moved from `A` to `B`, where nothing was
/// known.
fn after_a_move_to_b(later: impl IntoIterator<Item = Event>, there: bool) -> String {
    let mut order = order([remap(A, B)]);
    assert!(order.next(|_, _| false, || false).is_some());
    later.into_iter().for_each(|event| order.push(event));
    while let Some(event) = order.next(|_, _| false, || false) {
        assert!(!leaves(&event) || !overlap(changed(&event), B), "{event:?} does not wait");
    }
    format!("{:x?}", order.resolve_all(&kernel(|_| there)))
}

fn handled(events: impl IntoIterator<Item = Event>) -> String {
    format!("{:x?}", events.into_iter().map(Resolved::Handle).collect::<Vec<_>>())
}

#[test]
fn what_had_left_the_place_before_does_not_touch_what_is_there_now() {
    assert_eq!(after_a_move_to_b([unmap(B)], true), "[]");
    let wide = (B.0 - 0x1000, B.1 + 0x1000);
    let around = [(wide.0, B.0), (B.1, wide.1)].map(unmap);
    assert_eq!(after_a_move_to_b([unmap(wide)], true), handled(around));
    assert_eq!(after_a_move_to_b([remap(B, C), unmap(B)], true), format!("{:x?}", [Resolved::Appeared(C.0, C.1)]));
}

#[test]
fn what_leaves_the_place_after_the_move_takes_the_pages_along() {
    assert_eq!(after_a_move_to_b([unmap(B)], false), handled([unmap(B)]));
    assert_eq!(after_a_move_to_b([remap(B, C), unmap(B)], false), handled([remap(B, C), unmap(B)]));
    // MREMAP_DONTUNMAP.
    assert_eq!(after_a_move_to_b([remap(B, C)], true), handled([remap(B, C)]));
}

#[test]
fn both_before_and_after_the_move() {
    assert_eq!(after_a_move_to_b([unmap(B), unmap(B)], false), handled([unmap(B)]));
}

#[test]
fn whose_move_it_was_may_not_be_known() {
    for moves in [vec![remap(B, C)], vec![remap(B, C), remap(B, A)]] {
        let steps = after_a_move_to_b(moves.into_iter().chain([unmap(B), unmap(B)]), false);
        assert!(steps.starts_with("[Unclear(3000)"), "{steps}");
    }
}

#[test]
fn nothing_waits_after_a_moment_without_unread_events() {
    let mut order = order([remap(A, B)]);
    order.next(|_, _| false, || false);
    order.push(unmap(B));
    assert!(order.next(|_, _| false, || false).is_none());
    order.all_read();
    assert!(order.next(|_, _| false, || false).is_some());
}

#[test]
fn a_single_thread_raises_its_events_in_order() {
    let mut order = order([remap(A, B), unmap(A), remap(B, A)]);
    assert_eq!((0..4).filter(|_| order.next(|_, _| false, || true).is_some()).count(), 3);
}

const D: Range = (0x7000, 0x8000);

/// All that needs no other event, of events that are read one after the other.
fn at_once(order: &mut Order, events: impl IntoIterator<Item = Event>) -> String {
    events.into_iter().for_each(|event| order.push(event));
    format!("{:x?}", std::iter::from_fn(|| order.next(|_, _| false, || false)).collect::<Vec<_>>())
}

fn all(events: &[Event]) -> String {
    format!("{events:x?}")
}

#[test]
fn the_unmap_of_a_move_does_not_touch_what_came_after_it() {
    // The new mapping may leave in both ways, and its events be read before that UNMAP.
    for later in
        [vec![unmap(B), unmap(B)], vec![remap(B, D), unmap(B), unmap(B)], vec![unmap(B), remap(B, D), unmap(B)]]
    {
        let mut order = order([]);
        let moves = [remap(B, C), remap(A, B)];
        assert_eq!(at_once(&mut order, moves), all(&[remap(B, C), remap(A, B)]));
        let count = later.len();
        let mut done = at_once(&mut order, later);
        done += &format!("{:x?}", order.resolve_all(&kernel(|at| covers(C, at) || covers(D, at))));
        assert!(!done.contains("Unclear") && !done.contains("Appeared"), "{done}");
        let (goes, leaves) = (done.find("Remap"), done.find("Unmap").expect("it leaves"));
        assert_eq!(goes.is_some(), count == 3, "{done}");
        assert!(goes.is_none_or(|goes| goes < leaves), "{done}");
    }
    // It stays.
    let mut order = order([]);
    at_once(&mut order, [remap(B, C), remap(A, B)]);
    let wide = (B.0 - 0x1000, B.1 + 0x1000);
    assert_eq!(at_once(&mut order, [unmap(wide)]), all(&[unmap((wide.0, B.0)), unmap((B.1, wide.1))]));
    assert_eq!(at_once(&mut order, [unmap(B)]), "[]", "another UNMAP can be of what came");
}

#[test]
fn what_was_read_before_memory_came_concerns_what_was_there_before() {
    let mut order = order([remap(B, C), remap(A, B)]);
    let c_is_occupied = |start, end| overlap(C, (start, end));
    assert!(order.next(c_is_occupied, || false).is_none());
    [unmap(C), unmap(B), remap(B, D), unmap(B)].into_iter().for_each(|event| order.push(event));
    let steps = order.resolve_all(&kernel(|at| covers(C, at) || covers(D, at)));
    let expected = [unmap(C), remap(B, C), unmap(B), remap(A, B), remap(B, D), unmap(B)];
    assert_eq!(format!("{steps:x?}"), handled(expected));
}

/// What is done about `later`, read after memory was moved from `A` to `B`, where nothing was
/// known, and one of `C` and `D` has pages that refute.
fn judged(later: Vec<Event>, there: &[Range], pages: fn(u64) -> Pages) -> String {
    let mut order = order([]);
    at_once(&mut order, [remap(A, B)]);
    assert_eq!(at_once(&mut order, later), "[]");
    let there = |at| there.iter().any(|&place| covers(place, at));
    format!("{:x?}", order.resolve_all(&Kernel { there, pages, of_all: Pages::Allow }))
}

#[test]
fn pages_in_memory_tell_whose_move_it_was() {
    let one = || vec![remap(B, C), unmap(B), unmap(B)];
    let refuted = format!("{:x?}", [Resolved::Appeared(C.0, C.1), Resolved::Handle(unmap(B))]);
    assert_eq!(judged(one(), &[C], |_| Pages::Refute), refuted);
    assert_eq!(judged(one(), &[C], |_| Pages::NoneEvicted), refuted);
    assert!(judged(one(), &[C], |_| Pages::Allow).starts_with("[Unclear"), "it can have been unmapped");
    assert!(judged(one(), &[], |_| Pages::Refute).starts_with("[Unclear"), "nothing is there to see");
    let changed = || vec![remap(B, C), unmap(B), unmap(B), Event::Remove { start: C.0, end: C.1 }];
    assert!(judged(changed(), &[C], |_| Pages::Refute).starts_with("[Unclear"));
    // Two moves, and what came last is there.
    let two = || vec![remap(B, C), unmap(B), remap(B, D), remap(A, B), unmap(B)];
    let c = [Resolved::Appeared(C.0, C.1), Resolved::Handle(remap(B, D))];
    let went_to_d = judged(two(), &[B, C, D], |at| if at == C.0 { Pages::Refute } else { Pages::Allow });
    assert!(went_to_d.starts_with(format!("{c:x?}").trim_end_matches(']')), "{went_to_d}");
    let went_to_c = judged(two(), &[B, C, D], |at| if at == D.0 { Pages::Refute } else { Pages::Allow });
    let c = format!("{:x?}", [Resolved::Handle(remap(B, C))]);
    assert!(went_to_c.starts_with(c.trim_end_matches(']')) && !went_to_c.contains("Unclear"), "{went_to_c}");
    for pages in [|_| Pages::Refute, |_| Pages::Allow] as [fn(u64) -> Pages; 2] {
        assert!(judged(two(), &[B, C, D], pages).starts_with("[Unclear"));
    }
    // What came later has left as well.
    let three = vec![remap(B, C), unmap(B), remap(A, B), unmap(B), remap(B, D), unmap(B)];
    assert!(judged(three, &[C, D], |_| Pages::Refute).contains("Unclear"));
}

#[test]
fn where_nothing_is_evicted_all_is_forgotten() {
    let mut order = order([remap(A, B), remap(B, C), unmap(B), unmap(B), unmap(D)]);
    let there = |at| covers(C, at);
    let steps = order.resolve_all(&Kernel { there, pages: |_| Pages::Allow, of_all: Pages::NoneEvicted });
    let expected = [A, B, C].map(unmap).map(Resolved::Handle);
    let expected = expected.into_iter().chain([Resolved::Appeared(C.0, C.1), Resolved::Handle(unmap(D))]);
    assert_eq!(format!("{steps:x?}"), format!("{:x?}", expected.collect::<Vec<_>>()));
}

#[test]
fn pages_in_memory_tell_which_of_two_known_mappings_moved() {
    let judged = |before: Pages, came: Pages| {
        struct Two(Pages, Pages);
        impl Now for Two {
            fn is_there(&self, page: u64) -> bool {
                covers(C, page)
            }
            fn pages(&self, from: u64, _: u64, _: u64) -> Pages {
                if from == B.0 {
                    self.0
                } else {
                    self.1
                }
            }
        }
        format!("{:x?}", order([remap(A, B), remap(B, C), unmap(B), unmap(B)]).resolve_all(&Two(before, came)))
    };
    let came_went = handled([unmap(B), remap(A, B), remap(B, C), unmap(B)]);
    assert_eq!(judged(Pages::Refute, Pages::Allow), came_went);
    let before_went = handled([remap(B, C), unmap(B), remap(A, B), unmap(B)]);
    assert_eq!(judged(Pages::Allow, Pages::Refute), before_went);
    for unclear in [(Pages::Allow, Pages::Allow), (Pages::Refute, Pages::Refute)] {
        assert!(judged(unclear.0, unclear.1).starts_with("[Unclear"));
    }
}

#[test]
fn what_mremap_dontunmap_leaves_has_one_unmap() {
    let mut order = order([]);
    let twice = [remap(B, C), remap(B, D), unmap(B), remap(A, B)];
    assert_eq!(at_once(&mut order, twice), all(&[remap(B, C), remap(B, D), unmap(B), remap(A, B)]));
    assert_eq!(at_once(&mut order, [unmap(B)]), "[]", "it is of what came");
    assert_eq!(format!("{:x?}", order.resolve_all(&kernel(|_| false))), handled([unmap(B)]));
    // It is read late.
    at_once(&mut order, [remap(B, C), remap(A, B)]);
    assert_eq!(at_once(&mut order, [unmap(B), unmap(B)]), "[]");
    assert_eq!(format!("{:x?}", order.resolve_all(&kernel(|_| false))), handled([unmap(B)]));
}

#[test]
fn a_fork_among_waiting_events_changes_nothing_for_them() {
    struct Two;
    impl Now for Two {
        fn is_there(&self, page: u64) -> bool {
            covers(C, page)
        }
        fn pages(&self, from: u64, _: u64, _: u64) -> Pages {
            if from == B.0 {
                Pages::Refute
            } else {
                Pages::Allow
            }
        }
    }
    let mut order = order([remap(A, B), remap(B, C), unmap(B), Event::Fork(()), unmap(B)]);
    assert!(order.places().iter().all(|place| [A, B, C].iter().any(|&(s, e)| *place == s || *place == e)));
    let steps = order.resolve_all(&Two);
    assert_eq!(format!("{steps:x?}"), handled([unmap(B), remap(A, B), remap(B, C), Event::Fork(()), unmap(B)]));
}
