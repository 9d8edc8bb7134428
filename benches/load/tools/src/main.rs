//! Both ends of a measurement of a whole gateway: `mock`, the upstream behind it, and `load`, its clients.
//!
//! `mock` writes `{"address": "127.0.0.1:port"}` and serves until its standard input closes. `load PLAN` carries out
//! one plan (a JSON object, see `plan.rs`) and writes its marks and result, a JSON object a line.

mod check;
mod client;
mod histogram;
mod http;
mod load;
mod mock;
mod plan;
mod script;

use std::io::{self, Read, Write};
use std::process::ExitCode;

use tokio::task::LocalSet;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let outcome = match arguments
        .iter()
        .map(String::as_str)
        .collect::<Vec<_>>()
        .as_slice()
    {
        ["mock"] => mock(),
        ["load", plan] => load(plan),
        _ => Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            "usage: sluicegate-bench-load mock | load PLAN",
        )),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            writeln!(io::stderr(), "sluicegate-bench-load: {error}").ok();
            ExitCode::FAILURE
        }
    }
}

fn runtime() -> io::Result<tokio::runtime::Runtime> {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
}

fn mock() -> io::Result<()> {
    // So that no mock outlives the orchestrator, however that ends.
    std::thread::spawn(|| {
        io::stdin().read_to_end(&mut Vec::new()).ok();
        std::process::exit(0);
    });
    LocalSet::new().block_on(&runtime()?, async {
        let listener = mock::listen()?;
        let mut output = io::stdout();
        writeln!(
            output,
            "{}",
            serde_json::json!({"address": listener.local_addr()?.to_string()})
        )?;
        output.flush()?;
        mock::serve(listener).await
    })
}

fn load(plan: &str) -> io::Result<()> {
    let plan: plan::Plan = serde_json::from_str(plan)?;
    LocalSet::new().block_on(&runtime()?, load::run(plan, &mut io::stdout().lock()))
}
