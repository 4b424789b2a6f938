//! Dovecot and Whimbrel in turn, on the same file system, with the same loads, several times.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
};

use crate::{
    disk,
    error::{Result, io_at},
    process,
    progress::Progress,
    report::{Report, Run},
    scenario::{Context, Scenario, Sizes},
    servers::{Running, certificate, dovecot, whimbrel},
    strace,
    target::Target,
};

/// What is compared.
pub struct Comparison<'a> {
    /// Whimbrel's binary.
    pub whimbrel: PathBuf,
    /// Under it both keep their data.
    pub directory: &'a Path,
    /// Which loads.
    pub scenarios: &'a [Scenario],
    /// How much.
    pub sizes: Sizes,
    /// How often.
    pub runs: usize,
    /// All random choices follow from it.
    pub seed: u64,
    /// Count syncs by strace, too.
    pub strace: bool,
    /// Leave the other server out.
    pub alone: bool,
    /// Shows what is going on.
    pub progress: Progress,
    /// Keeps what was measured so far: a run that is broken off leaves it.
    pub keep: &'a dyn Fn(&Report) -> Result<()>,
}

#[derive(Clone, Copy)]
enum Which {
    Dovecot,
    Whimbrel,
}

impl Comparison<'_> {
    /// Runs everything.
    ///
    /// # Errors
    /// When a server does not start, or answers wrongly.
    pub fn run(&self) -> Result<Report> {
        let mut report = Report::new();
        for which in [Which::Dovecot, Which::Whimbrel] {
            fs::create_dir_all(self.of(which)).map_err(io_at("a directory"))?;
        }
        certificate(&self.of(Which::Dovecot))?;
        for name in ["certificate.pem", "key.pem"] {
            fs::copy(
                self.of(Which::Dovecot).join(name),
                self.of(Which::Whimbrel).join(name),
            )
            .map_err(io_at(name))?;
        }
        for run in 0..self.runs {
            // Load by load and server by server, so that both see the same moments of the machine.
            let mut order = self.servers();
            if run % 2 == 1 {
                order.reverse();
            }
            for scenario in self.scenarios {
                for &which in &order {
                    let made = self.one(which, *scenario, self.seed + run as u64)?;
                    merge(&mut report, made);
                }
                (self.keep)(&report)?;
            }
        }
        if self.strace {
            for which in self.servers() {
                for scenario in [Scenario::Write, Scenario::Lmtp] {
                    if self.scenarios.contains(&scenario) {
                        let made = self.syncs(which, scenario)?;
                        merge(&mut report, made);
                    }
                }
            }
        }
        Ok(report)
    }

    fn servers(&self) -> Vec<Which> {
        if self.alone {
            vec![Which::Whimbrel]
        } else {
            vec![Which::Dovecot, Which::Whimbrel]
        }
    }

    fn of(&self, which: Which) -> PathBuf {
        self.directory.join(match which {
            Which::Dovecot => "dovecot",
            Which::Whimbrel => "whimbrel",
        })
    }

    fn start(&self, which: Which, scenario: Scenario) -> Result<Running> {
        let directory = self.of(which);
        match which {
            Which::Dovecot if scenario == Scenario::Idle => {
                dovecot::start(&directory, dovecot::Manner::Hibernating)
            }
            Which::Dovecot => dovecot::start(&directory, dovecot::Manner::Fast),
            Which::Whimbrel => whimbrel::start(&self.whimbrel, &directory, &[]),
        }
    }

    fn one(&self, which: Which, scenario: Scenario, seed: u64) -> Result<Run> {
        let running = self.start(which, scenario)?;
        let target = Target::new(running.address.clone());
        let mut run = Run {
            server: running.address.label.clone(),
            configuration: running.configuration.clone(),
            seed,
            disk_before: disk::syncs_per_second(self.directory)?,
            machine_load: process::load(),
            ..Run::default()
        };
        let missing = scenario == Scenario::Pop3 && running.address.pop3s.is_none()
            || scenario == Scenario::Smtp && running.address.smtp.is_none();
        self.progress
            .line(&format!("== {} {scenario:?}", run.server));
        if !missing {
            let mut context = Context::new(&target, &self.progress, &self.sizes, seed);
            context.run(scenario)?;
            run.rows = context.rows;
            run.series = context.series;
        }
        run.disk_after = disk::syncs_per_second(self.directory)?;
        running.stop()?;
        Ok(run)
    }

    /// A small load of a kind under strace: syncs of all processes for one operation.
    fn syncs(&self, which: Which, scenario: Scenario) -> Result<Run> {
        let running = self.start(which, scenario)?;
        let target = Target::new(running.address.clone());
        let sizes = Sizes {
            write_sessions: 3,
            deliveries: 200,
            ..self.sizes.clone()
        };
        let mut run = Run {
            server: running.address.label.clone(),
            configuration: format!("{}; strace", running.configuration),
            seed: self.seed + 1_000,
            ..Run::default()
        };
        let mut context = Context::new(&target, &Progress::hidden(), &sizes, run.seed);
        let tree = process::Tree::new(running.address.pid.unwrap_or(0));
        let counter = strace::Counter::attach(tree)?;
        let done = context.run(scenario);
        let syncs = counter.detach()?;
        done?;
        let operations: u64 = context.rows.iter().map(|row| row.count).sum();
        let mut row = crate::measure::Row {
            name: format!("{scenario:?}: syncs by strace").to_lowercase(),
            unit: "operation".to_owned(),
            count: operations,
            ..crate::measure::Row::default()
        };
        row.more = BTreeMap::from([(
            "syncs_each".to_owned(),
            syncs as f64 / operations.max(1) as f64,
        )]);
        self.progress
            .line(&format!("== {} {}", run.server, row.line()));
        run.rows = vec![row];
        running.stop()?;
        Ok(run)
    }
}

/// The loads of one run of a server are one run of the report.
fn merge(report: &mut Report, made: Run) {
    let same = report.runs.iter_mut().rev().find(|run| {
        run.server == made.server
            && run.seed == made.seed
            && run.configuration == made.configuration
    });
    match same {
        Some(run) => {
            run.rows.extend(made.rows);
            run.series.extend(made.series);
            run.disk_after = made.disk_after;
        }
        None => report.runs.push(made),
    }
}
