//! What the programs decide, by running them: a small interpreter of the instructions that device programs
//! are made of, and properties over random rules, devices and requests.

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::{Index, select};

use super::*;
use crate::device_rule::granted;

/// One access that a process wants.
#[derive(Clone, Copy, Debug)]
struct Request {
    kind: Kind,
    device: DeviceNumber,
    access: u8,
}

/// Runs a program as the kernel would. Panics where the verifier would refuse it on that path.
fn run(program: &[Insn], request: Request) -> bool {
    let kind = if request.kind == Kind::Block { BLOCK } else { CHAR };
    let context = [u32::from(request.access) << 16 | kind, request.device.major, request.device.minor];
    let mut registers: [Option<u64>; 10] = [None; 10];
    registers[1] = Some(u64::MAX); // the request's address, which only loads may use
    let mut at = 0;
    loop {
        let insn: Insn = program[at];
        let operand = || match insn.code & op::REGISTER {
            0 => i64::from(insn.imm).cast_unsigned(),
            _ => registers[usize::from(insn.src())].expect("register is set"),
        };
        let dst = || registers[usize::from(insn.dst())].expect("register is set");
        let narrow = insn.code & 7 == 4 || insn.code & 7 == 6;
        let width = |value: u64| if narrow { value & 0xffff_ffff } else { value };
        let mut jump = false;
        let written = match (insn.code & 7, insn.code & 0xf0) {
            (1, _) if insn.code == op::LOAD_WORD && insn.src() == 1 => {
                Some(u64::from(context[usize::try_from(insn.off).unwrap() / 4]))
            }
            (4 | 7, 0xb0) => Some(operand()),
            (4 | 7, 0x40) => Some(dst() | operand()),
            (4 | 7, 0x50) => Some(dst() & operand()),
            (4 | 7, 0x60) => Some(width(dst()) << operand()),
            (4 | 7, 0x70) => Some(width(dst()) >> operand()),
            (4 | 7, 0xa0) => Some(dst() ^ operand()),
            (5, 0x90) => return registers[0].expect("register is set") != 0,
            (5, 0x00) => {
                jump = true;
                None
            }
            (5 | 6, 0x40) => {
                jump = width(dst()) & width(operand()) != 0;
                None
            }
            (5 | 6, 0x50) => {
                jump = width(dst()) != width(operand());
                None
            }
            _ => panic!("{insn:?}"),
        };
        if let Some(value) = written {
            registers[usize::from(insn.dst())] = Some(width(value));
        }
        at = at.strict_add(1).strict_add_signed(if jump { insn.off.into() } else { 0 });
    }
}

/// A program of the shape runtimes write: 32-bit operations, each rule decides alone, r1 is overwritten.
fn as_runtimes_do(rules: &[DeviceRule]) -> Vec<Insn> {
    let mut insns = vec![
        Insn::new(0x61, 2, 1, 0, 0),
        Insn::new(0x54, 2, 0, 0, 0xffff),
        Insn::new(0x61, 3, 1, 0, 0),
        Insn::new(0x74, 3, 0, 0, 16),
        Insn::new(0x61, 4, 1, 4, 0),
        Insn::new(0x61, 5, 1, 8, 0),
    ];
    for rule in rules.iter().rev() {
        let verdict = [Insn::new(0xb4, 0, 0, 0, rule.allow.into()), Insn::new(0x95, 0, 0, 0, 0)];
        let mut block = vec![];
        if rule.kind != Kind::All {
            let kind = if rule.kind == Kind::Block { 1 } else { 2 };
            let numbers = [(2, Some(kind)), (4, rule.major), (5, rule.minor)];
            let numbers = numbers.into_iter().filter_map(|(r, number)| Some((r, number?)));
            block.extend(numbers.map(|(r, number)| Insn::new(0x55, r, 0, 0, number.cast_signed())));
            block.push(Insn::new(0xbc, 1, 3, 0, 0));
            block.push(Insn::new(0x54, 1, 0, 0, rule.access.bits().into()));
            block.push(Insn::new(0x5d, 1, 3, 0, 0));
        }
        let end = block.len() + 2;
        for (i, insn) in block.iter_mut().enumerate() {
            insn.off = if insn.code & 7 == 5 { (end - i - 1) as i16 } else { insn.off };
        }
        insns.extend(block.into_iter().chain(verdict));
    }
    insns.extend(leave(DENY));
    insns
}

/// What hardening makes of a program: each constant that is moved, masked or compared with goes through r11,
/// and zero is made by `r ^= r`.
fn blinded(program: &[Insn]) -> Vec<Insn> {
    const KEY: i32 = 0x1234_5678;
    let expand = |insn: Insn| {
        let constant = matches!(insn.code, 0x54..=0x57 | 0x45 | 0x74 | 0x77 | 0xb4 | 0xb7);
        if !constant {
            return vec![insn];
        }
        if insn.imm == 0 && matches!(insn.code, 0xb4 | 0xb7) {
            return vec![Insn::new(op::XOR64_REGISTER, insn.dst(), insn.dst(), 0, 0)];
        }
        let hidden = Insn::new(insn.code | op::REGISTER, insn.dst(), HIDDEN, insn.off, 0);
        vec![Insn::new(0xb7, HIDDEN, 0, 0, insn.imm ^ KEY), Insn::new(0xa7, HIDDEN, 0, 0, KEY), hidden]
    };
    let groups: Vec<Vec<Insn>> = program.iter().map(|insn| expand(*insn)).collect();
    let length = |from: usize, to: usize| groups[from..to].iter().map(Vec::len).sum::<usize>();
    let mut out = vec![];
    for (i, group) in groups.iter().enumerate() {
        let mut group = group.clone();
        let last = group.last_mut().unwrap();
        if last.code & 7 == 5 || last.code & 7 == 6 {
            last.off = length(i + 1, i + 1 + usize::try_from(last.off).unwrap()) as i16;
        }
        out.extend(group);
    }
    out
}

/// Few numbers, so that rules and requests meet; some that differ only in the sign bit or above 16 bits.
fn number() -> impl Strategy<Value = u32> {
    select(vec![0, 1, 3, 5, 136, 195, 255, 0x1_0003, 0x8000_0003, u32::MAX])
}

fn devices() -> impl Strategy<Value = Vec<DeviceNumber>> {
    vec((number(), number()).prop_map(|(major, minor)| DeviceNumber { major, minor }), 0..6)
}

fn rule() -> impl Strategy<Value = DeviceRule> {
    let kind = prop_oneof![1 => Just(Kind::All), 3 => Just(Kind::Block), 12 => Just(Kind::Char)];
    let some = || proptest::option::weighted(0.7, number());
    let access = select(vec!["r", "w", "m", "rw", "rm", "wm", "rwm"]);
    (any::<bool>(), kind, some(), some(), access).prop_map(|(allow, kind, major, minor, access)| DeviceRule {
        allow,
        kind,
        major,
        minor,
        access: access.parse().unwrap(),
    })
}

fn request_strategy() -> impl Strategy<Value = Request> {
    let kind = prop_oneof![1 => Just(Kind::Block), 3 => Just(Kind::Char)];
    (kind, number(), number(), 1..8_u8).prop_map(|(kind, major, minor, access)| Request {
        kind,
        device: DeviceNumber { major, minor },
        access,
    })
}

/// A request that is often about one of `devices`.
fn aimed(request: Request, devices: &[DeviceNumber], aim: Option<Index>) -> Request {
    let device = aim.filter(|_| !devices.is_empty()).map(|aim| *aim.get(devices));
    Request { device: device.unwrap_or(request.device), ..request }
}

fn is_about(request: Request, devices: &[DeviceNumber]) -> bool {
    request.kind == Kind::Char && devices.contains(&request.device)
}

proptest! {
    #[test]
    fn a_prefix_allows_its_devices_and_nothing_else(
        devices in devices(),
        rules in vec(rule(), 0..6),
        request in request_strategy(),
        aim in any::<Option<Index>>(),
    ) {
        let request = aimed(request, &devices, aim);
        for program in [as_runtimes_do(&rules), of_rules(&rules)] {
            let ours = is_about(request, &devices) && request.access & Access::MKNOD.bits() == 0;
            let widened = Prefix::allow(&devices).before(&program);
            prop_assert_eq!(run(&widened, request), ours || run(&program, request));
        }
    }

    #[test]
    fn a_denying_prefix_takes_its_devices_and_nothing_else(
        devices in devices(),
        rules in vec(rule(), 0..6),
        request in request_strategy(),
        aim in any::<Option<Index>>(),
    ) {
        let request = aimed(request, &devices, aim);
        let program = as_runtimes_do(&rules);
        let narrowed = Prefix::deny(&devices).before(&program);
        prop_assert_eq!(run(&narrowed, request), !is_about(request, &devices) && run(&program, request));
    }

    #[test]
    fn a_program_of_rules_does_what_the_rules_say(rules in vec(rule(), 0..8), request in request_strategy()) {
        let all: Vec<_> = rules.iter().chain(&RUNTIME_DEFAULTS).copied().collect();
        let granted = granted(&all, request.kind, request.device).bits();
        prop_assert_eq!(run(&of_rules(&rules), request), request.access & !granted == 0);
    }

    #[test]
    fn blinding_is_undone(rules in vec(rule(), 0..6), request in request_strategy()) {
        for program in [as_runtimes_do(&rules), of_rules(&rules)] {
            let shown = blinded(&program);
            prop_assert!(shown.iter().any(|insn| insn.src() == HIDDEN));
            prop_assert_eq!(run(&reloadable(&shown).unwrap(), request), run(&program, request));
        }
    }

    #[test]
    fn names_tell_prefixes_apart(a in devices(), b in devices()) {
        let name = |devices: &[DeviceNumber]| Prefix::allow(devices).name;
        let set = |devices: &[DeviceNumber]| devices.iter().copied().collect::<BTreeSet<_>>();
        prop_assert_eq!(name(&a) == name(&b), set(&a) == set(&b));
        prop_assert_eq!(name(&a).len(), MAX_NAME);
        if !a.is_empty() {
            prop_assert_ne!(name(&a), Prefix::deny(&a).name);
        }
    }
}

#[test]
fn what_is_not_blinded_stays_as_it_is() {
    let program = as_runtimes_do(&[]);
    assert_eq!(reloadable(&program), Some(program));
}

#[test]
fn blinded_code_without_a_free_register_stays_unread() {
    let mut program: Vec<Insn> = (2..10).map(|register| Insn::new(op::MOV64, register, 0, 0, 0)).collect();
    program.push(Insn::new(op::MOV64, HIDDEN, 0, 0, 0));
    assert_eq!(reloadable(&program), None);
    program.remove(3);
    assert_eq!(reloadable(&program).unwrap()[7], Insn::new(op::MOV64, 5, 0, 0, 0));
}

#[test]
fn calls_and_maps_refer_elsewhere() {
    let call = |register| Insn::new(op::CALL | register, 0, 0, 0, 5);
    let constant = |source| [Insn::new(op::LOAD_CONSTANT, 2, source, 0, 7), Insn::default()];
    assert!(refers_elsewhere(&[call(0)]));
    assert!(refers_elsewhere(&[call(op::REGISTER)]));
    assert!(refers_elsewhere(&constant(1)));
    assert!(!refers_elsewhere(&constant(0)));
    assert!(!refers_elsewhere(&as_runtimes_do(&RUNTIME_DEFAULTS)));
}

#[test]
fn registers_are_where_the_kernel_reads_them() {
    let insn = Insn::new(op::MOV64_REGISTER, 3, 2, 0, 0);
    assert_eq!((insn.dst(), insn.src()), (3, 2));
    let moved = insn.with_registers(4, 11);
    assert_eq!((moved.dst(), moved.src(), moved.code), (4, 11, op::MOV64_REGISTER));
}
