//! A folder of its own for each test, files to put there, and the program to run there.

use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::OnceLock;

use tempfile::TempDir;

/// One convolution of three channels to four.
pub(crate) const CONV_NET: &str = r#"{
  "inputs": [{"name": "x", "channels": 3}],
  "nodes": [{"name": "c1", "op": "conv2d", "inputs": ["x"], "out_channels": 4, "kernel_size": 3, "padding": 1}],
  "outputs": ["c1"]
}
"#;

/// A folder that is removed with the test.
#[derive(Debug)]
pub(crate) struct Bed {
    dir: TempDir,
}

impl Bed {
    pub(crate) fn new() -> Self {
        Self { dir: tempfile::tempdir().expect("a folder for temporary files") }
    }

    /// With `net.json`, one convolution, and `x.npy`, 3×64×64.
    pub(crate) fn with_network() -> Self {
        let bed = Self::new();
        bed.write("net.json", CONV_NET.as_bytes());
        bed.npy("x.npy", &[3, 64, 64]);
        bed
    }

    /// Where a file of the folder lies.
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    pub(crate) fn write(&self, name: &str, bytes: &[u8]) {
        fs::write(self.dir.path().join(name), bytes).expect("the folder is writable");
    }

    /// An array of zeros.
    pub(crate) fn npy(&self, name: &str, shape: &[usize]) {
        let mut bytes = npy_header("<f4", shape);
        bytes.resize(bytes.len() + 4 * shape.iter().product::<usize>(), 0);
        self.write(name, &bytes);
    }

    /// An array of numbers between -1 and 1 that look random.
    pub(crate) fn random_npy(&self, name: &str, shape: &[usize]) {
        let mut bytes = npy_header("<f4", shape);
        let mut state = 0x9e37_79b9_7f4a_7c15_u64;
        for _ in 0..shape.iter().product::<usize>() {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let value = f32::from(u16::try_from(state >> 48).expect("sixteen bits")) / 32768.0 - 1.0;
            bytes.extend_from_slice(&value.to_le_bytes());
        }
        self.write(name, &bytes);
    }

    pub(crate) fn read(&self, name: &str) -> Vec<u8> {
        fs::read(self.dir.path().join(name)).unwrap_or_else(|error| panic!("{name}: {error}"))
    }

    /// An array of zeros of one byte each, that takes no room on the disk.
    pub(crate) fn sparse_npy(&self, name: &str, shape: &[usize]) {
        let header = npy_header("|u1", shape);
        let len = header.len() as u64 + shape.iter().map(|extent| *extent as u64).product::<u64>();
        let mut file = File::create(self.dir.path().join(name)).expect("the folder is writable");
        file.write_all(&header).and_then(|()| file.set_len(len)).expect("files may be sparse");
    }

    /// Tensors of zeros.
    pub(crate) fn weights(&self, name: &str, tensors: &[(&str, &[usize])]) {
        let mut header = serde_json::Map::new();
        let mut end = 0;
        for (tensor, shape) in tensors {
            let begin = end;
            end += 4 * shape.iter().product::<usize>();
            let entry = serde_json::json!({"dtype": "F32", "shape": shape, "data_offsets": [begin, end]});
            header.insert((*tensor).to_owned(), entry);
        }
        let header = serde_json::Value::Object(header).to_string();
        let mut bytes = (header.len() as u64).to_le_bytes().to_vec();
        bytes.extend_from_slice(header.as_bytes());
        bytes.resize(bytes.len() + end, 0);
        self.write(name, &bytes);
    }

    /// Cuts a file to its first bytes.
    pub(crate) fn cut(&self, name: &str, len: u64) {
        let file = File::options().write(true).open(self.dir.path().join(name)).expect("the file exists");
        file.set_len(len).expect("the file is writable");
    }

    /// The files of the folder.
    pub(crate) fn names(&self) -> Vec<String> {
        let entries = fs::read_dir(self.dir.path()).expect("the folder exists");
        let mut names: Vec<String> = entries
            .map(|entry| entry.expect("the folder is readable").file_name().to_string_lossy().into_owned())
            .collect();
        names.sort();
        names
    }

    pub(crate) fn succeeds<A: AsRef<str>>(&self, args: &[A]) {
        let output = self.program(args).output().expect("the program starts");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }

    /// What the program prints.
    pub(crate) fn says<A: AsRef<str>>(&self, args: &[A]) -> String {
        let output = self.program(args).output().expect("the program starts");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).expect("text")
    }

    /// Runs the program with `--json` and returns its one JSON object.
    pub(crate) fn json<A: AsRef<str>>(&self, args: &[A]) -> serde_json::Value {
        let output = self.program(args).arg("--json").output().expect("the program starts");
        let told = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{told}");
        // how far it is, and the losses of training: lines alone, and no bar where there is no terminal
        assert!(told.chars().all(|character| character == '\n' || !character.is_control()), "{told}");
        serde_json::from_slice(&output.stdout).expect("standard output is one JSON object")
    }

    /// The same, whatever it says on standard error meanwhile.
    pub(crate) fn report<A: AsRef<str>>(&self, args: &[A]) -> serde_json::Value {
        let output = self.program(args).arg("--json").output().expect("the program starts");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        serde_json::from_slice(&output.stdout).expect("standard output is one JSON object")
    }

    /// What the program says on standard error where it refuses to run.
    pub(crate) fn refused<A: AsRef<str>>(&self, args: &[A], code: i32) -> String {
        let output = self.program(args).output().expect("the program starts");
        let text = String::from_utf8(output.stderr).expect("text");
        assert_eq!(output.status.code(), Some(code), "{text}");
        text
    }

    /// What the program says on standard error where it fails.
    pub(crate) fn refusal<A: AsRef<str>>(&self, args: &[A]) -> Option<String> {
        let output = self.program(args).output().expect("the program starts");
        (!output.status.success()).then(|| String::from_utf8_lossy(&output.stderr).into_owned())
    }

    /// Runs the program and returns what it says on standard error, which is the text of this name.
    pub(crate) fn fails<A: AsRef<str>>(&self, name: &str, args: &[A], code: i32) -> String {
        let before = self.names();
        let output = self.program(args).output().expect("the program starts");
        self.check(name, &before, &output, code)
    }

    /// The same, where no file may be larger than 4096 or 8192 bytes: the shells' blocks differ.
    pub(crate) fn fails_limited(&self, name: &str, args: &[&str], code: i32) -> String {
        let before = self.names();
        // the signal of a file too large is ignored, so that the program sees the error
        let script = r#"trap '' XFSZ; ulimit -f 8; exec "$0" "$@""#;
        let output = Command::new("sh")
            .args(["-c", script, PROGRAM])
            .args(args)
            .current_dir(self.dir.path())
            .output()
            .expect("a shell starts");
        self.check(name, &before, &output, code)
    }

    /// Runs the program in an address space of so many bytes.
    pub(crate) fn limited(&self, args: &[&str], bytes: u64) -> Output {
        let script = format!(r#"ulimit -v {}; exec "$0" "$@""#, bytes >> 10);
        let mut command = Command::new("sh");
        command.args(["-c", &script, PROGRAM]).args(args).current_dir(self.dir.path());
        command.output().expect("a shell starts")
    }

    /// Sends SIGINT as soon as a file whose name begins with `sign` stands in the folder.
    pub(crate) fn interrupted(&self, name: &str, args: &[&str], sign: &str) {
        let before = self.names();
        let mut command = self.program(args);
        let mut child =
            command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("the program starts");
        // however long a busy machine takes: the program makes the file, or it ends
        while !self.names().iter().any(|file| file.starts_with(sign)) {
            assert_eq!(child.try_wait().expect("the program runs"), None, "ended before it was interrupted");
            std::thread::yield_now();
        }
        let killed = Command::new("kill").args(["-INT", &child.id().to_string()]).status();
        assert!(killed.expect("kill starts").success());
        let output = child.wait_with_output().expect("the program ends");
        self.check(name, &before, &output, 130);
    }

    /// Runs the program and returns how it ended.
    pub(crate) fn output<A: AsRef<str>>(&self, args: &[A]) -> Ended {
        Ended::of(self.program(args).output().expect("the program starts"))
    }

    /// Starts the program.
    pub(crate) fn start<A: AsRef<str>>(&self, args: &[A]) -> Child {
        let mut command = self.program(args);
        command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("the program starts")
    }

    pub(crate) fn program<A: AsRef<str>>(&self, args: &[A]) -> Command {
        let mut command = heeding(PROGRAM);
        command.args(args.iter().map(AsRef::as_ref)).current_dir(self.dir.path()).stdin(Stdio::null());
        command
    }

    fn check(&self, name: &str, before: &[String], output: &Output, code: i32) -> String {
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(code), "{name}: {text}");
        assert_eq!(String::from_utf8_lossy(&output.stdout), "", "{name}: standard output");
        // a busy machine may be slow enough for lines that say how far the run is
        let text: String = text.split_inclusive('\n').filter(|line| !is_progress(line)).collect();
        assert_eq!(text.lines().count(), 1, "{name}: {text}");
        assert_eq!(self.names(), before, "{name}: files were left or removed");
        compare(&texts().join(format!("{name}.txt")), &text);
        text
    }
}

/// A command that heeds signals, also where whoever started the tests has them ignored, as `nohup` and shells without job control do,
/// if it can.
pub(crate) fn heeding(program: &str) -> Command {
    if !are_ignored() || !can_reset() {
        return Command::new(program);
    }
    let mut command = Command::new("env");
    command.args([RESET, program]);
    command
}

/// Whether [`heeding`] can. Says so where it cannot.
pub(crate) fn can_heed() -> bool {
    let can = !are_ignored() || can_reset();
    if !can {
        eprintln!("skipped: whoever started the tests has them ignore signals");
    }
    can
}

/// Whether `env` is one that resets signals: GNU's.
fn can_reset() -> bool {
    static CAN_RESET: OnceLock<bool> = OnceLock::new();
    *CAN_RESET.get_or_init(|| {
        Command::new("env").args([RESET, "true"]).output().is_ok_and(|output| output.status.success())
    })
}

const RESET: &str = "--default-signal=HUP,INT,TERM";

/// Whether this process ignores SIGHUP, SIGINT or SIGTERM: so does every program that it starts.
fn are_ignored() -> bool {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let mask = mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0);
    [1, 2, 15].iter().any(|signal| mask & (1 << (signal - 1)) != 0)
}

/// How a program ended.
#[derive(Debug)]
pub(crate) struct Ended {
    pub(crate) code: Option<i32>,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl Ended {
    pub(crate) fn of(output: Output) -> Self {
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("text");
        Self { code: output.status.code(), stdout: text(output.stdout), stderr: text(output.stderr) }
    }
}

/// The header of an `.npy` file, version 1.0.
pub(crate) fn npy_header(descr: &str, shape: &[usize]) -> Vec<u8> {
    let shape: String = shape.iter().map(|extent| format!("{extent}, ")).collect();
    let text = format!("{{'descr': '{descr}', 'fortran_order': False, 'shape': ({shape}), }}");
    let len = (10 + text.len() + 1).next_multiple_of(64) - 10;
    let mut bytes = b"\x93NUMPY\x01\x00".to_vec();
    bytes.extend_from_slice(&u16::try_from(len).expect("a short header").to_le_bytes());
    bytes.extend_from_slice(format!("{text:<width$}\n", width = len - 1).as_bytes());
    bytes
}

/// The number that follows these words.
pub(crate) fn number_after(text: &str, words: &str) -> u64 {
    let (_, rest) = text.split_once(words).expect("the words stand in the text");
    let digits: String = rest.chars().take_while(char::is_ascii_digit).collect();
    digits.parse().expect("a number follows")
}

fn compare(path: &Path, got: &str) {
    if std::env::var_os("TILED_BLESS").is_some() {
        let kept = fs::read_to_string(path).unwrap_or_default();
        if !matches(&kept, got) {
            fs::write(path, got).expect("the texts are writable");
        }
        return;
    }
    let expected = fs::read_to_string(path)
        .unwrap_or_else(|error| panic!("{}: {error}; set TILED_BLESS=1 to write it", path.display()));
    assert!(matches(&expected, got), "{}:\nexpected {expected}     got {got}", path.display());
}

/// Whether a line says how far a run is: `run: 12 of 345 steps, 3 %, 7 s`.
pub(crate) fn is_progress(line: &str) -> bool {
    line.contains(" steps, ") && line.trim_end().ends_with(" s") && line.contains(" %, ")
}

/// Whether a text is as expected, where `<number>` stands for any number.
fn matches(expected: &str, got: &str) -> bool {
    let mut rest = got;
    for (place, part) in expected.split("<number>").enumerate() {
        if place > 0 {
            let digits = rest.trim_start_matches(|c: char| c.is_ascii_digit());
            if digits.len() == rest.len() {
                return false;
            }
            rest = digits;
        }
        match rest.strip_prefix(part) {
            Some(tail) => rest = tail,
            None => return false,
        }
    }
    rest.is_empty() && !expected.is_empty()
}

fn texts() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/ui")
}

const PROGRAM: &str = env!("CARGO_BIN_EXE_tiled");

/// Plans a network of one node `n1` over three channels, which is refused with the text of this name.
pub(crate) fn refuses_node(text: &str, attributes: &str) {
    let bed = Bed::new();
    let network = format!(
        r#"{{"inputs": [{{"name": "x", "channels": 3}}],
  "nodes": [{{"name": "n1", "inputs": ["x"], {attributes}}}], "outputs": ["n1"]}}"#
    );
    bed.write("net.json", network.as_bytes());
    bed.fails(text, &["plan", "--net", "net.json", "--input", "3x16x16"], 2);
}
