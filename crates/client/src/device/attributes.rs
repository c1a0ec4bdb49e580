//! What the device says of itself. Numbers of attributes are those of `CUdevice_attribute` and `cudaDeviceAttr` alike.
//! Touches nothing.
//!
//! There are no kernels, and so no device that they would run on: the limits are those of compute capability 5.0, the
//! oldest that CUDA 12 and cuDNN 9 serve, so that a program expects no more than every program may: no tensor cores, no
//! arithmetic of half precision.

use std::ffi::CStr;

/// Major and minor.
pub const CAPABILITY: [i32; 2] = [5, 0];

/// As it is called.
pub const NAME: &CStr = c"vgpu";

/// By which programs know it again: no number at random, and no GPU's.
pub const UUID: [u8; 16] = *b"vgpu: one worker";

/// Where it would be on the bus, where it is not.
pub const BUS_ID: &CStr = c"0000:00:00.0";

/// The last of CUDA 12.4.
const LAST: i32 = 134;

/// Those that are not 0.
const VALUES: &[(i32, i32)] = &[
    // Threads of a block, in all and in each dimension; blocks of a grid.
    (1, 1024),
    (2, 1024),
    (3, 1024),
    (4, 64),
    (5, i32::MAX),
    (6, 65_535),
    (7, 65_535),
    // Shared and constant memory; the width of a warp; the pitch of a copy; registers.
    (8, 49_152),
    (9, 65_536),
    (10, 32),
    (11, i32::MAX),
    (12, 65_536),
    // What textures are aligned to.
    (14, 512),
    // Multiprocessors: as few as there can be.
    (16, 1),
    // What surfaces are aligned to; threads of a multiprocessor.
    (30, 512),
    (39, 2048),
    // An address says whose it is, the program's or the device's, and so can be copied from and to without saying so.
    (41, 1),
    // What the pitch of textures is aligned to.
    (51, 32),
    (75, CAPABILITY[0]),
    (76, CAPABILITY[1]),
    // Shared memory and registers of a multiprocessor.
    (81, 65_536),
    (82, 65_536),
    // How much slower double precision is, and how much shared memory a block can be given.
    (87, 32),
    (97, 49_152),
    // Blocks of a multiprocessor.
    (106, 32),
    // There are pools of memory.
    (115, 1),
    // It is near no node of the host's memory in particular.
    (131, -1),
    (134, -1),
];

/// One of them; none where there is no such. Of what is not known, such as clocks, it is 0, and of what there is not:
/// mapped and managed memory, textures, several engines, priorities of streams.
pub fn attribute(number: i32) -> Option<i32> {
    let value = VALUES.iter().find(|(known, _)| *known == number).map_or(0, |(_, value)| *value);
    (1..=LAST).contains(&number).then_some(value)
}
