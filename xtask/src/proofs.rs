//! `cargo xtask proofs`: checks the proofs in `proofs/` with Coq.
//!
//! Compiles every file of `proofs/_CoqProject`, which lists them in the order of their dependencies, in a copy below the target directory, so that
//! the tree stays clean. Then Coq itself is asked on what each main theorem of `proofs/theorems.txt` rests, and its answer compared with what is
//! written there: an axiom that crept in, a proof that was left open, a theorem or a file that is in no list, all fail.
//!
//! The last file that is compiled writes the model as OCaml. With `oracle.ml` it becomes a program, the oracle; random histories are run on it and on
//! the crate `mailbox`, and what both show is compared; and rules of the crate are broken on purpose, to see that the comparison notices each.
//!
//! Before all that what is not proved but looked at in every order: the example `explore` of the crate `replication`.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs, io,
    panic::catch_unwind,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    sync::mpsc,
    thread,
};

use crate::{
    cargo_toml, packages,
    programs::{self, Set},
    step::{self, Count, Counting},
};

/// The logical name of `proofs/`.
const ROOT: &str = "Whimbrel";

/// What Coq says of a theorem that rests on nothing.
const CLOSED: &str = "Closed under the global context";

/// Seeds of the comparison: a minute on two cores. Long runs are started by hand.
const SEEDS: &str = "20000";

/// So many of them must be long and concurrent enough to count.
const HISTORIES_MIN: u64 = 15_000;

/// What is compiled with the model.
const ORACLE: &str = "extraction/oracle.ml";

/// The line before each answer of Coq.
const NEXT: &str = "== next";

/// Words of Coq that leave a proof open or add an axiom. A proof takes what it assumes from the record `execution`.
const OPEN: &[&str] = &[
    "Admitted",
    "admit",
    "give_up",
    "Abort",
    "Axiom",
    "Axioms",
    "Conjecture",
    "Parameter",
    "Parameters",
    "Hypothesis",
    "Hypotheses",
    "Variable",
    "Variables",
];

/// A main theorem as it is listed.
#[derive(Debug, PartialEq, Eq)]
struct Theorem {
    module: String,
    name: String,
    /// What it may rest on, sorted; empty for nothing.
    assumptions: BTreeSet<String>,
}

/// Installs Coq where it is missing, checks everything, compares, and tells how much that was.
pub(crate) fn run() -> Count {
    let installed = packages::install_for_proofs();
    if installed.failed > 0 {
        return installed;
    }
    let (built, programs) = programs::build(Set::Examples);
    let example = |name: &str| programs.iter().find(|program| program.name == name);
    let (Some(explore), Some(compare)) = (example("explore"), example("oracle")) else {
        return built.plus(Count::FAILED);
    };
    let mut explored = step::run(&mut explore.command(), Counting::Explore);
    if explored.passed == 0 {
        println!("proofs: nothing was explored");
        explored = explored.plus(Count::FAILED);
    }
    let proofs = cargo_toml::root().join("proofs");
    let checked = check(&proofs).and_then(|theorems| {
        let oracle = oracle(&proofs, &programs::target().join("proofs"))?;
        Ok((theorems, oracle))
    });
    let (theorems, oracle) = match checked {
        Ok(checked) => checked,
        Err(wrong) => {
            for line in wrong.lines() {
                println!("proofs: {line}");
            }
            return explored.plus(Count::FAILED);
        }
    };
    let comparison = || {
        let mut command = compare.command();
        command.env("WHIMBREL_ORACLE", &oracle);
        command
    };
    let mutants = step::run(comparison().arg("--mutants"), Counting::Mutants);
    let mut histories = step::run(comparison().env("WHIMBREL_SEEDS", SEEDS), Counting::Oracle);
    if histories.passed == 0 {
        println!("proofs: the comparison did not come to its end");
    } else {
        println!(
            "proofs: theorems={theorems} histories={} disagreements={}",
            histories.passed + histories.failed,
            histories.failed
        );
    }
    if histories.passed + histories.failed < HISTORIES_MIN {
        println!("proofs: fewer than {HISTORIES_MIN} histories of {SEEDS} seeds count");
        histories = histories.plus(Count::FAILED);
    }
    let theorems = Count {
        passed: theorems as u64,
        failed: 0,
    };
    let compared = theorems.plus(mutants).plus(histories);
    built.plus(compared).plus(explored)
}

/// Looks at every order of events; words are names of bounds, or `--mutants`.
pub(crate) fn explore(arguments: &[&str]) -> Count {
    let (built, programs) = programs::build(Set::Examples);
    let Some(explore) = programs.iter().find(|program| program.name == "explore") else {
        return built.plus(Count::FAILED);
    };
    let counting = if arguments.contains(&"--mutants") {
        Counting::Mutants
    } else {
        Counting::Explore
    };
    step::run(explore.command().args(arguments), counting)
}

/// Makes the oracle's program of what was extracted.
fn oracle(proofs: &Path, build: &Path) -> Result<PathBuf, String> {
    let main = build.join("oracle.ml");
    fs::write(&main, read(&proofs.join(ORACLE))?)
        .map_err(|e| format!("{}: {e}", main.display()))?;
    let mut command = Command::new("ocamlopt");
    command.current_dir(build).args(["-w", "-a"]);
    command.args(["model.mli", "model.ml"]);
    // What Coq writes is as it is; what we write has no warning.
    command.args(["-w", "+a-4-9-40..42-44-45-70", "-warn-error", "+a"]);
    command.args(["oracle.ml", "-o", "oracle"]);
    match step::run(&mut command, Counting::Status) {
        Count { failed: 0, .. } => Ok(build.join("oracle")),
        _ => Err(format!("{ORACLE} does not compile")),
    }
}

fn check(proofs: &Path) -> Result<usize, String> {
    let modules = modules(&read(&proofs.join("_CoqProject"))?);
    let theorems = theorems(&read(&proofs.join("theorems.txt"))?)?;
    let mut sources = Vec::new();
    for module in &modules {
        sources.push((module.as_str(), read(&proofs.join(format!("{module}.v")))?));
    }
    let mut wrong = unlisted(proofs, &modules)?;
    for (module, source) in &sources {
        wrong.extend(
            open_proofs(source)
                .into_iter()
                .map(|word| format!("{module}.v: {word}")),
        );
        wrong.extend(unlisted_theorems(module, source, &theorems));
    }
    if theorems.is_empty() {
        wrong.push("theorems.txt: lists nothing".to_owned());
    }
    if !wrong.is_empty() {
        return Err(wrong.join("\n"));
    }
    let build = programs::target().join("proofs");
    compile(&build, &sources)?;
    let answers = answers(&ask(&build, &theorems)?);
    if answers.len() != theorems.len() {
        return Err(format!("Coq answers {} questions", answers.len()));
    }
    for (theorem, answer) in theorems.iter().zip(answers) {
        let rests_on = assumptions(&answer)
            .ok_or_else(|| format!("{}: Coq answers {answer:?}", theorem.name))?;
        if rests_on != theorem.assumptions {
            return Err(format!(
                "{} rests on {rests_on:?}, listed is {:?}",
                theorem.name, theorem.assumptions
            ));
        }
        let mut on: Vec<&str> = rests_on.iter().map(String::as_str).collect();
        if on.is_empty() {
            on.push("nothing");
        }
        let (module, name) = (&theorem.module, &theorem.name);
        println!("proofs: {module}.{name} rests on {}", on.join(", "));
    }
    Ok(theorems.len())
}

/// The modules of `_CoqProject`, in its order, which is that of their dependencies.
fn modules(project: &str) -> Vec<String> {
    project
        .lines()
        .filter_map(|line| line.trim().strip_suffix(".v"))
        .map(str::to_owned)
        .collect()
}

/// Lines `MODULE THEOREM: nothing` or `MODULE THEOREM: AXIOM AXIOM`; `#` begins a comment.
fn theorems(list: &str) -> Result<Vec<Theorem>, String> {
    let mut found = Vec::new();
    for line in list.lines().map(str::trim) {
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let parsed = line
            .split_once(':')
            .and_then(|(head, rest)| Some((head.split_once(' ')?, rest)));
        let Some(((module, name), rest)) = parsed else {
            return Err(format!("theorems.txt: {line:?} is no line of it"));
        };
        let mut assumptions: BTreeSet<String> =
            rest.split_ascii_whitespace().map(str::to_owned).collect();
        if !assumptions.remove("nothing") && assumptions.is_empty() {
            return Err(format!("theorems.txt: {line:?} does not say on what"));
        }
        found.push(Theorem {
            module: module.to_owned(),
            name: name.trim().to_owned(),
            assumptions,
        });
    }
    Ok(found)
}

/// Files that are there and not compiled.
fn unlisted(proofs: &Path, modules: &[String]) -> Result<Vec<String>, String> {
    let mut wrong = Vec::new();
    for path in crate::tidy::files(proofs) {
        let relative = path.strip_prefix(proofs).map_err(|e| e.to_string())?;
        if let Some(module) = relative.to_str().and_then(|name| name.strip_suffix(".v"))
            && !modules.iter().any(|listed| listed == module)
        {
            wrong.push(format!("{module}.v is not in _CoqProject"));
        }
    }
    Ok(wrong)
}

/// Theorems that no list names: a file of theorems holds main ones only, the steps to them are lemmas.
fn unlisted_theorems(module: &str, source: &str, listed: &[Theorem]) -> Vec<String> {
    without_comments(source)
        .lines()
        .filter_map(|line| line.trim_start().strip_prefix("Theorem "))
        .filter_map(|rest| rest.split([' ', ':', '{', '(']).next().map(str::to_owned))
        .filter(|name| {
            !listed
                .iter()
                .any(|theorem| theorem.name == *name && theorem.module == module)
        })
        .map(|name| format!("{module}.v: the theorem {name} is not in theorems.txt"))
        .collect()
}

/// Words that leave a proof open, outside comments.
fn open_proofs(source: &str) -> Vec<&'static str> {
    let text = without_comments(source);
    let words: BTreeSet<&str> = text
        .split(|c: char| !(c.is_alphanumeric() || c == '_' || c == '\''))
        .collect();
    OPEN.iter()
        .copied()
        .filter(|word| words.contains(word))
        .collect()
}

/// Comments of Coq nest.
fn without_comments(source: &str) -> String {
    let mut text = String::with_capacity(source.len());
    let (mut rest, mut depth) = (source, 0_usize);
    while let Some(first) = rest.chars().next() {
        if rest.starts_with("(*") {
            depth += 1;
            rest = &rest[2..];
        } else if depth > 0 && rest.starts_with("*)") {
            depth -= 1;
            rest = &rest[2..];
        } else {
            if depth == 0 {
                text.push(first);
            }
            rest = &rest[first.len_utf8()..];
        }
    }
    text
}

/// Compiles what has changed and all that rests on it, as many modules at a time as there are cores.
fn compile(build: &Path, sources: &[(&str, String)]) -> Result<(), String> {
    let failed = |file: &Path, error: io::Error| format!("{}: {error}", file.display());
    let mut stale: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    let mut listed = BTreeSet::new();
    for (module, source) in sources {
        let (file, object) = (
            module_file(build, module, "v"),
            module_file(build, module, "vo"),
        );
        let imports = imports(source);
        if let Some(later) = imports.iter().find(|of| !listed.contains(of.as_str())) {
            return Err(format!(
                "_CoqProject: {module}.v rests on {later}.v, which is not before it"
            ));
        }
        listed.insert(*module);
        let is_same = fs::read_to_string(&file).is_ok_and(|kept| kept == *source);
        let is_stale = |of: &String| stale.contains_key(of.as_str());
        if is_same && object.exists() && !imports.iter().any(is_stale) {
            continue;
        }
        let _ = fs::remove_file(&object);
        if let Some(directory) = file.parent() {
            fs::create_dir_all(directory).map_err(|error| failed(directory, error))?;
        }
        fs::write(&file, source).map_err(|error| failed(&file, error))?;
        stale.insert(module, imports);
    }
    let cores = thread::available_parallelism().map_or(1, usize::from);
    let (to_done, done) = mpsc::channel();
    thread::scope(|scope| {
        let mut waiting: Vec<&str> = sources.iter().map(|(module, _)| *module).collect();
        waiting.retain(|module| stale.contains_key(module));
        let (mut running, mut broken) = (0, None);
        while running > 0 || (broken.is_none() && !waiting.is_empty()) {
            let is_ready = |module: &&str| {
                let mut imports = stale.get(module).into_iter().flatten();
                !imports.any(|of| stale.contains_key(of.as_str()))
            };
            let next = waiting.iter().position(is_ready);
            if let Some(at) = next.filter(|_| running < cores && broken.is_none()) {
                let (module, to_done) = (waiting.remove(at), to_done.clone());
                running += 1;
                scope.spawn(move || {
                    let compile =
                        || step::run(coqc(build).arg(format!("{module}.v")), Counting::Status);
                    let count = catch_unwind(compile);
                    // Whoever waits for it is below.
                    let _ = to_done.send((module, count.is_ok_and(|count| count.failed == 0)));
                });
                continue;
            }
            let Ok((module, is_good)) = done.recv() else {
                unreachable!("a sender is here");
            };
            running -= 1;
            stale.remove(module);
            if !is_good {
                broken = Some(format!("{module}.v does not compile"));
            }
        }
        broken.map_or(Ok(()), Err)
    })
}

fn module_file(build: &Path, module: &str, end: &str) -> PathBuf {
    build.join(format!("{module}.{end}"))
}

/// The modules of ours on which one rests: those in its lines `From Whimbrel.DIRECTORY Require Import A B.`
fn imports(source: &str) -> Vec<String> {
    let lines = source.lines().filter_map(|line| {
        let (directory, rest) = line
            .strip_prefix("From Whimbrel.")?
            .split_once(" Require ")?;
        let (_, names) = rest.strip_suffix('.')?.split_once(' ')?;
        let of = |name: &str| format!("{directory}/{name}");
        Some(names.split_whitespace().map(of).collect::<Vec<String>>())
    });
    lines.flatten().collect()
}

/// What Coq says on what each theorem rests, all in one run: most of the time of a run is spent on loading. A line [`NEXT`] goes before each answer.
fn ask(build: &Path, theorems: &[Theorem]) -> Result<String, String> {
    let module = |theorem: &Theorem| format!("{ROOT}.{}", theorem.module.replace('/', "."));
    let mut question = String::new();
    for module in theorems.iter().map(module).collect::<BTreeSet<String>>() {
        question += &format!("Require {module}.\n");
    }
    for theorem in theorems {
        question += &format!(
            "Goal True. idtac \"{NEXT}\". Abort.\nPrint Assumptions {}.{}.\n",
            module(theorem),
            theorem.name
        );
    }
    let file = build.join("question.v");
    fs::write(&file, question).map_err(|e| format!("{}: {e}", file.display()))?;
    let answer = coqc(build)
        .arg("question.v")
        .stdin(Stdio::null())
        .output()
        .map_err(|e| format!("coqc: {e}"))?;
    if !answer.status.success() {
        return Err(String::from_utf8_lossy(&answer.stderr).into_owned());
    }
    Ok(String::from_utf8_lossy(&answer.stdout).into_owned())
}

/// The answers of one run, apart.
fn answers(output: &str) -> Vec<String> {
    let mut found: Vec<String> = Vec::new();
    for line in output.lines() {
        if line == NEXT {
            found.push(String::new());
        } else if let Some(last) = found.last_mut() {
            last.push_str(line);
            last.push('\n');
        }
    }
    found
}

/// The axioms that an answer names, or nothing if it is no answer.
fn assumptions(answer: &str) -> Option<BTreeSet<String>> {
    if answer.trim() == CLOSED {
        return Some(BTreeSet::new());
    }
    let (_, axioms) = answer.split_once("Axioms:")?;
    // Each begins at the margin as `name : type`; what is indented goes on with a type.
    let names: BTreeSet<String> = axioms
        .lines()
        .filter(|line| !line.is_empty() && !line.starts_with(' '))
        .filter_map(|line| line.split([' ', ':']).next().map(str::to_owned))
        .collect();
    (!names.is_empty()).then_some(names)
}

fn coqc(build: &Path) -> Command {
    let mut command = Command::new("coqc");
    command.current_dir(build).args(["-q", "-Q", ".", ROOT]);
    command
}

fn read(path: &Path) -> Result<String, String> {
    fs::read_to_string(path).map_err(|e| format!("{}: {e}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(names: &[&str]) -> BTreeSet<String> {
        names.iter().map(|name| (*name).to_owned()).collect()
    }

    #[test]
    fn imports_are_found() {
        let source = "From Coq Require Import List.\nFrom Whimbrel.spec Require Export A.\nFrom Whimbrel.proof Require Import B C.\n";
        assert_eq!(imports(source), ["spec/A", "proof/B", "proof/C"]);
    }

    #[test]
    fn answers_are_understood() {
        let check = |answer: &str, expected: Option<&[&str]>| {
            assert_eq!(assumptions(answer), expected.map(set), "{answer:?}");
        };
        check("Closed under the global context\n", Some(&[]));
        check(
            "Axioms:\nfunext : forall A,\n  A\nWhimbrel.a.b : False\n",
            Some(&["funext", "Whimbrel.a.b"]),
        );
        check("", None);
        check("Axioms:\n", None);
        check("Error: no such theorem", None);
        assert_eq!(
            answers("noise\n== next\na\n== next\n== next\nb\nc\n"),
            ["a\n", "", "b\nc\n"]
        );
    }

    #[test]
    fn open_proofs_are_found() {
        let check = |source: &str, expected: &[&str]| {
            assert_eq!(open_proofs(source), expected, "{source:?}");
        };
        check("Lemma a : True. Proof. done. Qed.", &[]);
        check("Proof. admit. Admitted.", &["Admitted", "admit"]);
        check(
            "(* Admitted (* nested *) Axiom *) Definition admitted := 1.",
            &[],
        );
        check("Axiom a : False.", &["Axiom"]);
        check("Context (a : nat). Hypothesis b : a = 0.", &["Hypothesis"]);
    }

    #[test]
    fn lists_are_read() {
        let listed =
            theorems("# comment\n\nproof/A a: nothing\nproof/B b: funext\n").expect("well formed");
        let expected = [
            ("proof/A", "a", set(&[])),
            ("proof/B", "b", set(&["funext"])),
        ];
        for (theorem, (module, name, assumptions)) in listed.iter().zip(expected) {
            assert_eq!(theorem.module, module);
            assert_eq!(theorem.name, name);
            assert_eq!(theorem.assumptions, assumptions);
        }
        assert_eq!(listed.len(), 2);
        for bad in ["proof/A a", "proof/A: nothing", "proof/A a:"] {
            assert!(theorems(bad).is_err(), "{bad:?}");
        }
        let source = "Theorem a : True.\nTheorem c (x : nat) : True.\n(* Theorem d : *)\n";
        assert_eq!(
            unlisted_theorems("proof/A", source, &listed),
            ["proof/A.v: the theorem c is not in theorems.txt"]
        );
        assert_eq!(
            modules("-Q . W\nspec/A.v\n# x\nproof/A.v\n"),
            ["spec/A", "proof/A"]
        );
    }
}
