//! The image of libmemfit.so, for programs whose dynamic linker does not load it.
//!
//! The library needs no other one: each symbol that it looks for elsewhere is weak, and has address
//! 0 in such a program.

use memfit_wire::{ENTRY_MARK, PAGE_BYTES};
use object::elf::{PF_R, PF_W, PF_X, R_X86_64_GLOB_DAT, R_X86_64_RELATIVE, SHT_RELR};
use object::read::elf::{ElfFile64, SectionHeader};
use object::{LittleEndian, Object, ObjectSegment, ObjectSymbol, ObjectSymbolTable, RelocationFlags, RelocationTarget};
use object::{SegmentFlags, SymbolSection};
use std::io;

/// Largest image, bytes.
const BYTES_MAX: u64 = 16 << 20;

/// The image at address 0, and what changes when it is elsewhere.
#[derive(Debug)]
pub struct Image {
    memory: Vec<u8>,
    /// Offsets of the words that are addresses in the image. Each has an offset until the image has
    /// an address.
    words: Vec<usize>,
    parts: Vec<Part>,
    entry: u64,
}

/// Whole pages of an image with one access.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Part {
    /// Offset of the first byte, and of the first one after it.
    pub start: u64,
    #[allow(missing_docs)]
    pub end: u64,
    /// PROT_READ, PROT_WRITE, PROT_EXEC.
    pub access: u64,
    /// Where the part begins in the file. `None` if it is writable: its memory is then not that of
    /// the file.
    pub offset: Option<u64>,
}

impl Image {
    /// Reads the bytes of the library's file.
    ///
    /// # Errors
    /// It is not a library for this processor, or needs more than this can do.
    pub fn of(file: &[u8]) -> io::Result<Image> {
        let bad = |what: &str| io::Error::new(io::ErrorKind::InvalidData, format!("libmemfit.so: {what}"));
        let elf = ElfFile64::<LittleEndian, _>::parse(file).map_err(|error| bad(&error.to_string()))?;
        let end = elf.segments().map(|part| part.address().saturating_add(part.size())).max().unwrap_or(0);
        if end == 0 || end > BYTES_MAX {
            return Err(bad("its size"));
        }
        let page = PAGE_BYTES as u64;
        let mut memory = vec![0; end.next_multiple_of(page) as usize];
        let mut parts = Vec::new();
        for part in elf.segments() {
            let data = part.data().map_err(|error| bad(&error.to_string()))?;
            let at = part.address() as usize;
            memory.get_mut(at..at + data.len()).ok_or_else(|| bad("a segment"))?.copy_from_slice(data);
            let SegmentFlags::Elf { p_flags, .. } = part.flags() else { return Err(bad("a segment")) };
            let access = [(PF_R, libc::PROT_READ), (PF_W, libc::PROT_WRITE), (PF_X, libc::PROT_EXEC)];
            let access =
                access.iter().filter(|&&(flag, _)| (p_flags & flag).0 != 0).map(|&(_, access)| access as u64).sum();
            let (start, end) = (part.address() / page * page, (part.address() + part.size()).next_multiple_of(page));
            let offset = part.file_range().0 / page * page;
            let writable = access & libc::PROT_WRITE as u64 != 0;
            parts.push(Part { start, end, access, offset: (!writable).then_some(offset) });
        }
        let endian = elf.endian();
        if elf.elf_section_table().iter().any(|section| section.sh_type(endian) == SHT_RELR) {
            return Err(bad("packed relocations"));
        }
        let symbols = elf.dynamic_symbol_table();
        let mut words = Vec::new();
        for (at, relocation) in elf.dynamic_relocations().into_iter().flatten() {
            let RelocationFlags::Elf { r_type } = relocation.flags() else { return Err(bad("a relocation")) };
            let value = match (r_type, relocation.target()) {
                (R_X86_64_RELATIVE, _) => Some(relocation.addend() as u64),
                (R_X86_64_GLOB_DAT, RelocationTarget::Symbol(index)) => {
                    let symbol = symbols.as_ref().and_then(|symbols| symbols.symbol_by_index(index).ok());
                    let symbol = symbol.ok_or_else(|| bad("a symbol"))?;
                    match symbol.section() {
                        SymbolSection::Undefined if symbol.is_weak() => None,
                        SymbolSection::Undefined => return Err(bad("it needs another library")),
                        _ => Some(symbol.address()),
                    }
                }
                _ => return Err(bad("a kind of relocation")),
            };
            if !parts.iter().any(|part| part.offset.is_none() && (part.start..part.end).contains(&at)) {
                return Err(bad("a relocation of its code"));
            }
            let at = at as usize;
            let word = memory.get_mut(at..at + 8).ok_or_else(|| bad("a relocation"))?;
            word.copy_from_slice(&value.unwrap_or(0).to_le_bytes());
            words.extend(value.map(|_| at));
        }
        let mark = memory.windows(ENTRY_MARK.len()).position(|bytes| bytes == ENTRY_MARK);
        let entry = mark.ok_or_else(|| bad("its entry"))? as u64 + ENTRY_MARK.len() as u64;
        Ok(Image { memory, words, parts, entry })
    }

    /// Bytes of all pages.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.memory.len() as u64
    }

    /// Offset of the `syscall` instruction that makes the stub thread.
    #[must_use]
    pub fn entry(&self) -> u64 {
        self.entry
    }

    /// Its parts, in order of their addresses.
    #[must_use]
    pub fn parts(&self) -> &[Part] {
        &self.parts
    }

    /// The contents of a part when the image is at `base`.
    #[must_use]
    pub fn contents(&self, part: &Part, base: u64) -> Vec<u8> {
        let (start, end) = (part.start as usize, part.end as usize);
        let mut bytes = self.memory[start..end].to_vec();
        for &at in self.words.iter().filter(|at| (start..end).contains(at)) {
            let word = &mut bytes[at - start..at - start + 8];
            let offset = u64::from_le_bytes(std::array::from_fn(|i| word[i]));
            word.copy_from_slice(&base.wrapping_add(offset).to_le_bytes());
        }
        bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Bytes of a header, or of a table with entries of numbers of these sizes.
    fn bytes(numbers: &[(u64, usize)]) -> Vec<u8> {
        numbers.iter().flat_map(|&(number, size)| number.to_le_bytes()[..size].to_vec()).collect()
    }

    /// A library with a page of code, which has the mark, and a page of variables. Its relocation
    /// of this type has the place `at` and the addend 0x1234.
    fn library(at: u64, kind: u64) -> Vec<u8> {
        library_with(at, kind, 4)
    }

    /// As `library`, with its relocations in a section of another type.
    fn library_with(at: u64, kind: u64, section_type: u64) -> Vec<u8> {
        let (code, variables, table, sections) = (0x1000u64, 0x2000u64, 0x3000u64, 0x4000u64);
        let mut file = vec![0; 0x4000];
        let mut put = |at: u64, part: Vec<u8>| file[at as usize..][..part.len()].copy_from_slice(&part);
        put(0, b"\x7fELF\x02\x01\x01".to_vec());
        let header = [(3, 2), (62, 2), (1, 4), (0, 8), (64, 8), (sections, 8), (0, 4), (64, 2), (56, 2), (2, 2)];
        put(16, bytes(&header));
        put(58, bytes(&[(64, 2), (4, 2), (3, 2)]));
        let load =
            |flags, at: u64| bytes(&[(1, 4), (flags, 4), (at, 8), (at, 8), (at, 8), (16, 8), (16, 8), (4096, 8)]);
        put(64, [load(5, code), load(6, variables)].concat());
        put(code, ENTRY_MARK.to_vec());
        put(table, bytes(&[(at, 8), (kind, 8), (0x1234, 8)]));
        // No section; the relocations; the symbols, of which there are none; their names.
        let section = |kind, at: u64, size, link, entry| {
            bytes(&[(0, 4), (kind, 4), (2, 8), (at, 8), (at, 8), (size, 8), (link, 4), (0, 4), (8, 8), (entry, 8)])
        };
        let all = [
            section(0, 0, 0, 0, 0),
            section(section_type, table, 24, 2, 24),
            section(11, table, 0, 3, 24),
            section(3, 0x800, 1, 0, 0),
        ]
        .concat();
        file.extend(all);
        file
    }

    #[test]
    fn variables_are_relocated() {
        let image = Image::of(&library(0x2008, 8)).unwrap();
        assert_eq!((image.bytes(), image.entry()), (0x3000, 0x1008));
        let [code, variables] = image.parts() else { panic!("{:?}", image.parts()) };
        assert_eq!((code.offset, code.access, variables.offset), (Some(0x1000), 5, None));
        let contents = image.contents(variables, 0x7000_0000);
        assert_eq!(contents[8..16], 0x7000_1234u64.to_le_bytes());
        assert!(contents[..8].iter().chain(&contents[16..]).all(|&byte| byte == 0));
    }

    #[test]
    fn what_cannot_be_loaded_is_refused() {
        let why = |file: &[u8]| Image::of(file).unwrap_err().to_string();
        assert_eq!(why(&library(0x1008, 8)), "libmemfit.so: a relocation of its code");
        assert_eq!(why(&library(0x2008, 5)), "libmemfit.so: a kind of relocation");
        assert_eq!(why(&library_with(0x2008, 8, 19)), "libmemfit.so: packed relocations");
        assert!(why(b"#!/bin/sh").starts_with("libmemfit.so: "));
        assert_eq!(why(&library(0x9000, 8)), "libmemfit.so: a relocation of its code");
    }
}
