//! Device programs as data: ours that goes in front of another, one built from a list of rules, and the
//! reading of what the kernel shows of a loaded one. Pure.
//!
//! A device program gets the request in r1 (`struct bpf_cgroup_dev_ctx`) and leaves 1, allow, or 0, deny,
//! in r0. Registers other than r1 hold nothing at its start, so what runs in front of it may use them.

use std::collections::{BTreeMap, BTreeSet};

use crate::device_rule::{Access, DeviceRule, Kind};
use crate::sys::bpf::{Insn, MAX_NAME};
use crate::types::DeviceNumber;

const ALLOW: i32 = 1;
const DENY: i32 = 0;

/// The request, spread over registers by [`request`].
const KIND: u8 = 2;
const ACCESS: u8 = 3;
const MAJOR: u8 = 4;
const MINOR: u8 = 5;

/// `BPF_DEVCG_DEV_*`
const BLOCK: u32 = 1;
const CHAR: u32 = 2;

/// What runtimes allow every container without saying so in the spec. Only what both runc 1.1 and crun 1.8
/// do: crun's 5:1 and runc's 10:200 are given to nobody who might not have had them.
const RUNTIME_DEFAULTS: [DeviceRule; 10] = [
    every(Kind::Char, None, Access::MKNOD),
    every(Kind::Block, None, Access::MKNOD),
    one(1, 3),                                 // null
    one(1, 5),                                 // zero
    one(1, 7),                                 // full
    one(1, 8),                                 // random
    one(1, 9),                                 // urandom
    one(5, 0),                                 // tty
    one(5, 2),                                 // ptmx
    every(Kind::Char, Some(136), Access::ALL), // pts
];

const fn every(kind: Kind, major: Option<u32>, access: Access) -> DeviceRule {
    DeviceRule { allow: true, kind, major, minor: None, access }
}

const fn one(major: u32, minor: u32) -> DeviceRule {
    DeviceRule::allow_char(DeviceNumber { major, minor }, Access::ALL)
}

/// Instructions that decide on some devices and leave all else to the program behind them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Prefix {
    insns: Vec<Insn>,
    /// Names the whole program after the instructions of its prefix: the kernel shows the name even where
    /// it does not show instructions, so a program that has the prefix already is known by it.
    pub name: String,
}

impl Prefix {
    /// Reading and writing these character devices is allowed. Creating nodes is left to the other program.
    pub fn allow(devices: &[DeviceNumber]) -> Self {
        let mut insns = request();
        insns.push(Insn::new(op::AND64, ACCESS, 0, 0, !i32::from(Access::READ_WRITE.bits())));
        insns.extend(when(&[(KIND, CHAR), (ACCESS, 0)], &decide_on(devices, ALLOW)));
        Self { name: name(&insns), insns }
    }

    /// Nothing may be done with these character devices.
    pub fn deny(devices: &[DeviceNumber]) -> Self {
        let mut insns = request();
        insns.extend(when(&[(KIND, CHAR)], &decide_on(devices, DENY)));
        Self { name: name(&insns), insns }
    }

    /// The prefix, then `program`.
    pub fn before(&self, program: &[Insn]) -> Vec<Insn> {
        [&self.insns, program].concat()
    }
}

/// Minors are asked for beneath their major: what the verifier has to look at, about 1 µs an instruction,
/// then grows with the number of devices and no faster.
fn decide_on(devices: &[DeviceNumber], verdict: i32) -> Vec<Insn> {
    let mut minors = BTreeMap::<u32, BTreeSet<u32>>::new();
    for device in devices {
        minors.entry(device.major).or_default().insert(device.minor);
    }
    let one = |minor: &u32| when(&[(MINOR, *minor)], &leave(verdict));
    let driver = |(major, minors): (&u32, &BTreeSet<u32>)| {
        when(&[(MAJOR, *major)], &minors.iter().flat_map(one).collect::<Vec<_>>())
    };
    minors.iter().flat_map(driver).collect()
}

/// `vgpu` and as much of a hash as fits.
fn name(insns: &[Insn]) -> String {
    let bytes = insns.iter().flat_map(|insn| {
        let ([a, b], [c, d, e, f]) = (insn.off.to_le_bytes(), insn.imm.to_le_bytes());
        [insn.code, insn.dst(), insn.src(), a, b, c, d, e, f]
    });
    // FNV-1a: nobody but root could gain by a collision.
    let hash = bytes.fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
    });
    let mut name = format!("vgpu{hash:016x}");
    name.truncate(MAX_NAME);
    name
}

/// The program a runtime makes of a spec's device list: of the rules that are about a device, the last one
/// decides; the runtimes' defaults come after them all.
pub fn of_rules(spec: &[DeviceRule]) -> Vec<Insn> {
    let mut insns = request();
    // Now the verifier knows that nothing is left once `rwm` is taken away, and looks at each path once.
    insns.push(Insn::new(op::AND64, ACCESS, 0, 0, i32::from(Access::ALL.bits())));
    for rule in spec.iter().chain(&RUNTIME_DEFAULTS).rev() {
        insns.extend(of_rule(rule));
    }
    insns.extend(leave(DENY));
    insns
}

/// The program that stands in nobody's way.
pub fn allow_all() -> Vec<Insn> {
    leave(ALLOW).to_vec()
}

/// From the last rule to the first, each takes out of `ACCESS` what it decides.
fn of_rule(rule: &DeviceRule) -> Vec<Insn> {
    let kind = match rule.kind {
        Kind::All => return decide(rule),
        Kind::Block => BLOCK,
        Kind::Char => CHAR,
    };
    let numbers = [(MAJOR, rule.major), (MINOR, rule.minor)];
    let numbers = numbers.into_iter().filter_map(|(register, number)| Some((register, number?)));
    let is_it: Vec<_> = std::iter::once((KIND, kind)).chain(numbers).collect();
    when(&is_it, &decide(rule))
}

fn decide(rule: &DeviceRule) -> Vec<Insn> {
    let bits = i32::from(rule.effective_access().bits());
    if rule.allow {
        let mut insns = vec![Insn::new(op::AND64, ACCESS, 0, 0, !bits)];
        insns.extend(when(&[(ACCESS, 0)], &leave(ALLOW)));
        insns
    } else {
        let [verdict, exit] = leave(DENY);
        vec![Insn::new(op::JSET, ACCESS, 0, 1, bits), Insn::new(op::JA, 0, 0, 2, 0), verdict, exit]
    }
}

/// Spreads the request over registers. 64-bit operations only: on some processors the verifier adds an
/// instruction after each 32-bit one.
fn request() -> Vec<Insn> {
    vec![
        Insn::new(op::LOAD_WORD, KIND, 1, 0, 0),
        Insn::new(op::MOV64_REGISTER, ACCESS, KIND, 0, 0),
        Insn::new(op::AND64, KIND, 0, 0, 0xffff),
        Insn::new(op::RSH64, ACCESS, 0, 0, 16),
        Insn::new(op::LOAD_WORD, MAJOR, 1, 4, 0),
        Insn::new(op::LOAD_WORD, MINOR, 1, 8, 0),
    ]
}

/// Runs `then` where every register holds its value, else jumps behind it.
fn when(all: &[(u8, u32)], then: &[Insn]) -> Vec<Insn> {
    let jumps = all.iter().enumerate().map(|(i, (register, value))| {
        let behind = i16::try_from(all.len() - 1 - i + then.len()).expect("fewer than 10,000 devices");
        Insn::new(op::JNE32, *register, 0, behind, value.cast_signed())
    });
    jumps.chain(then.iter().copied()).collect()
}

fn leave(verdict: i32) -> [Insn; 2] {
    [Insn::new(op::MOV64, 0, 0, 0, verdict), Insn::new(op::EXIT, 0, 0, 0, 0)]
}

/// Instruction codes (linux/bpf.h): class, size or operation, and whether the operand is a register.
mod op {
    pub const LOAD_WORD: u8 = 0x61;
    pub const MOV64: u8 = 0xb7;
    pub const MOV64_REGISTER: u8 = 0xbf;
    pub const AND64: u8 = 0x57;
    pub const RSH64: u8 = 0x77;
    pub const XOR64_REGISTER: u8 = 0xaf;
    pub const JA: u8 = 0x05;
    pub const JNE32: u8 = 0x56;
    pub const JSET: u8 = 0x45;
    pub const CALL: u8 = 0x85;
    pub const REGISTER: u8 = 0x08;
    pub const LOAD_CONSTANT: u8 = 0x18;
    pub const EXIT: u8 = 0x95;
}

/// The register that the kernel keeps for itself (`BPF_REG_AX`). Constant blinding goes through it:
/// `r11 = a; r11 ^= b; … r11` in the place of `… constant`, and `r = 0` becomes `r ^= r`.
const HIDDEN: u8 = 11;

/// Makes what the kernel shows of a program loadable again. A blinded program is the same program with one
/// more register, so it gets one that it does not use. `None`: there is none left.
pub fn reloadable(shown: &[Insn]) -> Option<Vec<Insn>> {
    let uses = |register: u8| shown.iter().any(|insn| insn.dst() == register || insn.src() == register);
    let spare = if uses(HIDDEN) { (2..10).rev().find(|register| !uses(*register))? } else { HIDDEN };
    let renamed = |register: u8| if register == HIDDEN { spare } else { register };
    let unblinded = |insn: &Insn| match insn.code {
        // The verifier takes it for the reading of a register that was never set.
        op::XOR64_REGISTER if insn.dst() == insn.src() => Insn::new(op::MOV64, insn.dst(), 0, 0, 0),
        _ => insn.with_registers(renamed(insn.dst()), renamed(insn.src())),
    };
    Some(shown.iter().map(unblinded).collect())
}

/// Does the program call something or refer to something outside of itself? What the kernel shows of that
/// is an id or an address; loaded again it would mean something else.
pub fn refers_elsewhere(shown: &[Insn]) -> bool {
    let refers = |insn: &Insn| match insn.code {
        code if code & !op::REGISTER == op::CALL => true,
        op::LOAD_CONSTANT => insn.src() != 0,
        _ => false,
    };
    shown.iter().any(refers)
}

#[cfg(test)]
mod tests;
