//! What the runtime says of the device in one struct. Touches nothing.

use std::ffi::c_int;

use crate::device::attributes::{NAME, UUID, attribute};

/// `cudaDeviceProp`
#[derive(Clone, Copy)]
#[repr(C)]
pub struct Properties {
    oldest: Oldest,
    newer: [c_int; 13],
    reserved: [c_int; 63],
}

/// As much of it as there was before CUDA 12.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct Oldest {
    name: [u8; 256],
    uuid: [u8; 16],
    /// Of Windows: the device's number there, and a mask.
    luid: [u8; 12],
    memory: usize,
    shared_memory_of_block: usize,
    registers_and_warp: [c_int; 2],
    pitch: usize,
    threads_and_blocks: [c_int; 7],
    clock: c_int,
    constant_memory: usize,
    capability: [c_int; 2],
    texture_alignment: usize,
    texture_pitch_alignment: usize,
    overlap_to_mode: [c_int; 6],
    /// How large textures and surfaces can be, of which there are none.
    textures: [c_int; 40],
    surface_alignment: usize,
    kernels_to_caches: [c_int; 16],
    shared_memory_of_multiprocessor: usize,
    registers_to_cooperation: [c_int; 12],
    shared_memory_of_block_at_most: usize,
    tables_to_policies: [c_int; 4],
    reserved_shared_memory: usize,
}

// As they are in C, wherefore a program has room for them.
const _: () = assert!(size_of::<Properties>() == 1032 && size_of::<Oldest>() == 728);

/// By the numbers of their attributes.
fn all<const N: usize>(numbers: [c_int; N]) -> [c_int; N] {
    numbers.map(|number| attribute(number).unwrap_or_default())
}

fn size(number: c_int) -> usize {
    attribute(number).and_then(|size| size.try_into().ok()).unwrap_or_default()
}

impl Properties {
    /// Of a device with so much memory.
    pub fn new(memory: usize) -> Self {
        Self {
            oldest: Oldest::new(memory),
            newer: all([99, 112, 113, 114, 115, 116, 117, 118, 119, 121, 125, 120, 129]),
            reserved: [0; 63],
        }
    }

    /// As much of it as there was before CUDA 12.
    pub fn oldest(self) -> Oldest {
        self.oldest
    }
}

impl Oldest {
    fn new(memory: usize) -> Self {
        let mut name = [0; 256];
        name[..NAME.count_bytes()].copy_from_slice(NAME.to_bytes());
        Self {
            name,
            uuid: UUID,
            luid: [0; 12],
            memory,
            shared_memory_of_block: size(8),
            registers_and_warp: all([12, 10]),
            pitch: size(11),
            threads_and_blocks: all([1, 2, 3, 4, 5, 6, 7]),
            clock: all([13])[0],
            constant_memory: size(9),
            capability: all([75, 76]),
            texture_alignment: size(14),
            texture_pitch_alignment: size(51),
            overlap_to_mode: all([15, 16, 17, 18, 19, 20]),
            textures: [0; 40],
            surface_alignment: size(30),
            kernels_to_caches: all([31, 32, 33, 34, 50, 35, 40, 41, 36, 37, 38, 108, 39, 78, 79, 80]),
            shared_memory_of_multiprocessor: size(81),
            registers_to_cooperation: all([82, 83, 84, 85, 86, 87, 88, 89, 90, 91, 95, 96]),
            shared_memory_of_block_at_most: size(97),
            tables_to_policies: all([100, 101, 106, 109]),
            reserved_shared_memory: size(111),
        }
    }
}
