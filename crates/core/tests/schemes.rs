//! The published schemes, and some rules of our own, through the core's own interface: tiny runs
//! whose every decision follows by hand from the rules of the papers. The numbers of the rules are
//! those of docs/schemes.md.

mod schemes {
    mod around;
    pub mod bench;
    mod cervera99;
    mod ezswap;
    mod hybrid18;
    mod log;
    mod memfit;
    mod tuduce05;
    mod zsmalloc_sr;
}
