//! The published schemes, and some rules of memfit's own, through the core's public interface: tiny
//! runs in which each decision follows by hand from the rules of the papers. Rules are numbered as
//! in docs/schemes.md.

mod schemes {
    mod around;
    pub mod bench;
    mod cervera99;
    mod ezswap;
    mod hybrid18;
    mod log;
    mod memfit;
    mod swap_cache;
    mod tuduce05;
    mod zsmalloc_sr;
}
