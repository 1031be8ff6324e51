//! Doubly linked lists by index: O(1) removal without pointers or unsafe code.

use crate::ids::NIL;

/// Links of one element, kept inside the element.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Links {
    pub prev: u32,
    pub next: u32,
}

impl Links {
    pub const UNLINKED: Links = Links { prev: NIL, next: NIL };
}

/// Access to the links of element `i`.
pub(crate) trait Linked {
    fn links(&mut self, i: u32) -> &mut Links;
}

/// Head, tail and length; `head` is the oldest.
#[derive(Debug, Clone, Copy)]
pub(crate) struct List {
    pub head: u32,
    pub tail: u32,
    pub len: u32,
}

impl List {
    pub const EMPTY: List = List { head: NIL, tail: NIL, len: 0 };

    pub fn push_back(&mut self, arena: &mut impl Linked, i: u32) {
        *arena.links(i) = Links { prev: self.tail, next: NIL };
        if self.tail == NIL {
            self.head = i;
        } else {
            arena.links(self.tail).next = i;
        }
        self.tail = i;
        self.len += 1;
    }

    pub fn push_front(&mut self, arena: &mut impl Linked, i: u32) {
        *arena.links(i) = Links { prev: NIL, next: self.head };
        if self.head == NIL {
            self.tail = i;
        } else {
            arena.links(self.head).prev = i;
        }
        self.head = i;
        self.len += 1;
    }

    pub fn remove(&mut self, arena: &mut impl Linked, i: u32) {
        let Links { prev, next } = *arena.links(i);
        if prev == NIL {
            debug_assert_eq!(self.head, i);
            self.head = next;
        } else {
            arena.links(prev).next = next;
        }
        if next == NIL {
            debug_assert_eq!(self.tail, i);
            self.tail = prev;
        } else {
            arena.links(next).prev = prev;
        }
        *arena.links(i) = Links::UNLINKED;
        self.len -= 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    impl Linked for Vec<Links> {
        fn links(&mut self, i: u32) -> &mut Links {
            &mut self[i as usize]
        }
    }

    fn order(list: &List, arena: &[Links]) -> Vec<u32> {
        let mut out = Vec::new();
        let mut i = list.head;
        while i != NIL {
            out.push(i);
            i = arena[i as usize].next;
        }
        out
    }

    #[test]
    fn keeps_order_under_removal_at_both_ends_and_in_the_middle() {
        let mut arena = vec![Links::UNLINKED; 5];
        let mut list = List::EMPTY;
        for i in 0..4 {
            list.push_back(&mut arena, i);
        }
        list.push_front(&mut arena, 4);
        assert_eq!(order(&list, &arena), [4, 0, 1, 2, 3]);
        list.remove(&mut arena, 1);
        list.remove(&mut arena, 4);
        list.remove(&mut arena, 3);
        assert_eq!(order(&list, &arena), [0, 2]);
        assert_eq!((list.head, list.tail, list.len), (0, 2, 2));
    }
}
