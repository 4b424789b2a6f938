//! The production machine in clusters that fail.

#![allow(clippy::unwrap_used, unreachable_pub)]

mod cases;
mod checked;
mod counts;
mod explore;
mod histories;
#[cfg(feature = "mutants")]
mod mutants;
mod scale;
mod scenarios;
mod world;

#[path = "../examples/sms-gateway.rs"]
mod sms_gateway;

#[test]
fn a_killed_gateway_loses_nothing() {
    let success = format!("{:?}", std::process::ExitCode::SUCCESS);
    assert_eq!(format!("{:?}", sms_gateway::main()), success);
}
