//! The rules answer as the real libraries did when the transcripts beside were recorded (`examples/conformance.rs`).

#[allow(dead_code, reason = "random calls are for the example")]
mod conformance;

use conformance::{Answer, Call, Rules};
use vgpu_remoting::api::{Class, Parameter, Type};
use vgpu_remoting::cudnn::Version;
use vgpu_remoting::cudnn::table::Function;
use vgpu_remoting::descriptor::MAX_DIMS;
use vgpu_remoting::wire::MAX_WORDS;

fn lines(transcript: &str) -> Vec<(Call, Answer)> {
    let lines = transcript.lines().skip(1);
    lines
        .map(|line| {
            let (call, answer) = line.split_once(" = ").unwrap();
            (call.parse().unwrap(), answer.parse().unwrap())
        })
        .collect()
}

fn check(version: Version, transcript: &str) {
    let mut rules = Rules::new(version);
    let lines = lines(transcript);
    let (calls, mut failed) = (lines.len(), 0);
    for (call, answer) in lines {
        assert_eq!(rules.answer(&call), answer, "{call}");
        failed += usize::from(answer.status != 0);
    }
    assert!(failed * 10 >= 3 * calls, "{failed} of {calls}");
}

#[test]
fn answers_as_cudnn_8_does() {
    check(Version::V8, include_str!("conformance/cudnn8.txt"));
}

#[test]
fn answers_as_cudnn_9_does() {
    check(Version::V9, include_str!("conformance/cudnn9.txt"));
}

#[test]
fn each_function_is_in_the_transcripts_with_success() {
    let lines = lines(include_str!("conformance/cudnn9.txt"));
    let alone = |function: &&Function| !function.signature().class.sent();
    for function in Function::ALL.iter().filter(alone) {
        let mut calls = lines.iter().filter(|(call, _)| call.function == *function);
        assert!(calls.any(|(_, answer)| answer.status == 0), "{function:?}");
    }
}

#[test]
fn an_array_comes_after_its_count() {
    for function in Function::ALL {
        let mut types = function.signature().arguments.iter().map(|argument| argument.r#type);
        let mut counted = false;
        types.by_ref().for_each(|r#type| match r#type {
            Type::I32 => counted = true,
            Type::Ints => assert!(counted, "{function:?}"),
            _ => {}
        });
    }
}

#[test]
fn every_call_and_answer_fits_into_a_record() {
    let size = |of: &[Parameter]| {
        of.iter().map(|one| if one.r#type == Type::Ints { 1 + MAX_DIMS } else { 1 }).sum::<usize>()
    };
    for function in Function::ALL {
        let signature = function.signature();
        assert!(size(signature.arguments) < MAX_WORDS && size(signature.results) < MAX_WORDS, "{function:?}");
    }
}

#[test]
fn classes_say_which_descriptors_are_written() {
    for function in Function::ALL {
        let signature = function.signature();
        let writes = matches!(signature.class, Class::Create | Class::Set | Class::Seed | Class::Destroy);
        assert_eq!(writes, signature.writes().is_some(), "{function:?}");
    }
}
