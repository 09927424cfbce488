//! Debian packages: installing what the lab needs, and fetching kernels of other suites without installing them.
//!
//! Other suites are read through a private folder of lists and archives, so the machine's own apt state is never
//! touched. The mirror is the one this machine is configured for; nothing here names a host. Indexes and packages are
//! verified as apt always does, against the machine's Debian keyring.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, anyhow, bail, ensure};

/// Something that only root may do was needed, and we are not root. `main` exits with status 2 on it.
#[derive(Debug)]
pub struct NeedsRoot {
    /// The command the user should run.
    pub command: String,
    /// The programs that were not found.
    pub missing: Vec<String>,
}

impl std::fmt::Display for NeedsRoot {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "not installed: {}; run this as root, then try again:\n  {}",
            self.missing.join(", "),
            self.command
        )
    }
}

impl std::error::Error for NeedsRoot {}

/// Makes sure that each program is there: `(program, Debian package)`. A program with a `/` in it is a file to look
/// for, otherwise it is looked for in `PATH` and the usual `bin` and `sbin` folders.
///
/// What is missing is installed when we are root, saying so on stderr.
///
/// # Errors
/// [`NeedsRoot`] when we are not; else what apt said.
pub fn ensure(programs: &[(&str, &str)]) -> Result<()> {
    let missing: Vec<_> = programs.iter().filter(|(program, _)| find_program(program).is_none()).collect();
    if missing.is_empty() {
        return Ok(());
    }
    let packages: BTreeSet<&str> = missing.iter().map(|(_, package)| *package).collect();
    let packages: Vec<&str> = packages.into_iter().collect();
    if !is_root() {
        return Err(NeedsRoot {
            command: format!(
                "apt-get update && apt-get install --no-install-recommends {}",
                packages.join(" ")
            ),
            missing: missing.iter().map(|(program, _)| (*program).to_owned()).collect(),
        }
        .into());
    }
    eprintln!("installing {} (apt-get install --no-install-recommends)", packages.join(", "));
    // Two of us at once would meet at dpkg's lock: apt waits for it when told to.
    let install = || {
        let mut command = apt_get();
        command.args(["-qq", "-y", "--no-install-recommends", "-o", "DPkg::Lock::Timeout=300", "install"]);
        run(command.args(&packages))
    };
    // The lists may be missing (a new container) or old (a version that the mirror has dropped): fetch them once.
    let lists_know = packages.iter().all(|package| {
        Command::new("apt-cache")
            .args(["--quiet=0", "--no-all-versions", "show", package])
            .stdin(Stdio::null())
            .output()
            .is_ok_and(|output| output.status.success())
    });
    if !lists_know || install().is_err() {
        run(apt_get().args(["-qq", "-o", "DPkg::Lock::Timeout=300", "update"]))?;
        install()?;
    }
    match missing.iter().find(|(program, _)| find_program(program).is_none()) {
        None => Ok(()),
        Some((program, package)) => bail!("{package} is installed, but {program} is still not found"),
    }
}

/// The path of a program, or of a file when its name has a `/`.
pub fn find_program(name: &str) -> Option<PathBuf> {
    if name.contains('/') {
        return Some(PathBuf::from(name)).filter(|path| path.exists());
    }
    let path = std::env::var_os("PATH").unwrap_or_default();
    let usual =
        ["/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin"].map(PathBuf::from);
    std::env::split_paths(&path).chain(usual).map(|folder| folder.join(name)).find(|path| path.is_file())
}

/// Whether we run as root, by the owner of our own `/proc` entry.
pub fn is_root() -> bool {
    use std::os::unix::fs::MetadataExt;
    fs::metadata("/proc/self").is_ok_and(|data| data.uid() == 0)
}

/// The machine's Debian mirror.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mirror {
    /// URI of the main archive, without a trailing slash.
    pub main: String,
    /// URI of the security archive: the configured one, else the usual neighbour of the main one.
    pub security: String,
}

impl Mirror {
    /// Reads `sources.list`, `sources.list.d/*.list` and `*.sources` under `etc` (`/etc/apt`).
    ///
    /// # Errors
    /// None of them names a Debian archive.
    pub fn of_system(etc: &Path) -> Result<Mirror> {
        let mut files = vec![etc.join("sources.list")];
        if let Ok(folder) = fs::read_dir(etc.join("sources.list.d")) {
            let mut parts: Vec<_> = folder.flatten().map(|entry| entry.path()).collect();
            parts.sort();
            files.extend(parts);
        }
        let mut sources = Vec::new();
        for file in files {
            let deb822 = match file.extension().and_then(|extension| extension.to_str()) {
                Some("list") => false,
                Some("sources") => true,
                _ => continue,
            };
            if let Ok(text) = fs::read_to_string(&file) {
                sources.extend(if deb822 { parse_deb822(&text) } else { parse_one_line(&text) });
            }
        }
        Mirror::choose(&sources).ok_or_else(|| {
            anyhow!(
                "no Debian archive (a release such as bookworm, component main) in {} or {}: \
                 the lab takes its kernels from the mirror configured there",
                etc.join("sources.list").display(),
                etc.join("sources.list.d").display()
            )
        })
    }

    /// Picks the archive among all that is configured. Third parties use Debian's release names and even `main`
    /// too, so the keyring and the last part of the address decide among several.
    fn choose(sources: &[Source]) -> Option<Mirror> {
        let rank = |source: &Source| {
            let keyring = match &source.signed_by {
                Some(keyring) if keyring.contains("debian-archive") => 4,
                Some(_) => 0,
                None => 2,
            };
            keyring + u32::from(source.uri.contains("debian"))
        };
        let best = |wanted: &dyn Fn(&Source) -> bool| {
            let mut found: Option<&Source> = None;
            for source in sources.iter().filter(|s| s.components.iter().any(|c| c == "main") && wanted(s)) {
                if found.is_none_or(|found| rank(source) > rank(found)) {
                    found = Some(source);
                }
            }
            found.map(|source| source.uri.trim_end_matches('/').to_owned())
        };
        let main = best(&|source| RELEASES.contains(&source.suite.as_str()))?;
        let security = best(&|source| {
            let release = source.suite.strip_suffix("-security").or(source.suite.strip_suffix("/updates"));
            release.is_some_and(|release| RELEASES.contains(&release))
        })
        .unwrap_or_else(|| format!("{main}-security"));
        Some(Mirror { main, security })
    }
}

/// Names under which a Debian archive has its releases.
const RELEASES: &[&str] = &[
    "bullseye",
    "bookworm",
    "trixie",
    "forky",
    "duke",
    "sid",
    "unstable",
    "testing",
    "stable",
    "oldstable",
    "oldoldstable",
];

/// One archive and suite of the machine's configuration.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Source {
    uri: String,
    suite: String,
    components: Vec<String>,
    signed_by: Option<String>,
}

/// The classic form: `deb [options] uri suite component…`, see sources.list(5).
fn parse_one_line(text: &str) -> Vec<Source> {
    let mut sources = Vec::new();
    for line in text.lines() {
        let line = line.split('#').next().unwrap_or_default().trim();
        let Some(mut rest) = line.strip_prefix("deb").filter(|rest| rest.starts_with([' ', '\t'])) else {
            continue;
        };
        rest = rest.trim_start();
        let mut signed_by = None;
        if let Some(bracket) = rest.strip_prefix('[') {
            let Some((options, after)) = bracket.split_once(']') else { continue };
            signed_by = options
                .split_whitespace()
                .find_map(|option| option.strip_prefix("signed-by="))
                .map(str::to_owned);
            rest = after;
        }
        let mut words = rest.split_whitespace().map(str::to_owned);
        if let (Some(uri), Some(suite)) = (words.next(), words.next()) {
            sources.push(Source { uri, suite, components: words.collect(), signed_by });
        }
    }
    sources
}

/// The deb822 form: stanzas of fields, see sources.list(5).
fn parse_deb822(text: &str) -> Vec<Source> {
    let mut sources = Vec::new();
    let mut stanza: Vec<(String, String)> = Vec::new();
    for line in text.lines().filter(|line| !line.starts_with('#')).chain([""]) {
        if line.starts_with([' ', '\t']) && !line.trim().is_empty() {
            if let Some((_, value)) = stanza.last_mut() {
                value.push(' ');
                value.push_str(line.trim());
            }
        } else if let Some((name, value)) = line.split_once(':') {
            stanza.push((name.trim().to_ascii_lowercase(), value.trim().to_owned()));
        } else if line.trim().is_empty() {
            sources.extend(stanza_sources(&stanza));
            stanza.clear();
        }
    }
    sources
}

/// Every address and suite of one stanza; none when it is switched off or holds only sources.
fn stanza_sources(stanza: &[(String, String)]) -> Vec<Source> {
    let field = |name: &str| stanza.iter().find(|(field, _)| field == name).map(|(_, value)| value.as_str());
    let words = |name: &str| field(name).unwrap_or_default().split_whitespace();
    let off = field("enabled").is_some_and(|value| {
        ["no", "false", "without", "off", "disable"].contains(&value.to_ascii_lowercase().as_str())
    });
    if off || !words("types").any(|word| word == "deb") {
        return Vec::new();
    }
    let mut sources = Vec::new();
    for uri in words("uris") {
        for suite in words("suites") {
            sources.push(Source {
                uri: uri.to_owned(),
                suite: suite.to_owned(),
                components: words("components").map(str::to_owned).collect(),
                signed_by: field("signed-by").map(str::to_owned),
            });
        }
    }
    sources
}

/// One suite of Debian, as [`Archive`] reads it.
#[derive(Debug, Clone, Copy)]
pub struct Suite {
    /// Codename, such as `bookworm`.
    pub name: &'static str,
    /// Whether `NAME-security` is read as well.
    pub security: bool,
    /// Past its end of support: its index may have outlived its own date, which apt would refuse. The signature is
    /// checked all the same.
    pub ended: bool,
}

/// The keyring of package debian-archive-keyring.
const KEYRING: &str = "/usr/share/keyrings/debian-archive-keyring.gpg";

/// Packages of one suite, for amd64, read through lists of our own.
pub struct Archive {
    folder: PathBuf,
    suite: Suite,
}

impl Archive {
    /// Opens the suite and fetches its lists. `folder` holds everything apt writes.
    ///
    /// # Errors
    /// No mirror is configured, it cannot be reached, or it does not carry the suite; or the suite's signature
    /// cannot be verified.
    pub fn open(folder: &Path, suite: Suite) -> Result<Archive> {
        ensure(&[(KEYRING, "debian-archive-keyring")])?;
        let mirror = Mirror::of_system(Path::new("/etc/apt"))?;
        for part in ["lists/partial", "cache/archives/partial"] {
            fs::create_dir_all(folder.join(part)).with_context(|| format!("making {}", folder.display()))?;
        }
        let mut list = format!("deb [signed-by={KEYRING}] {} {} main\n", mirror.main, suite.name);
        if suite.security {
            list += &format!("deb [signed-by={KEYRING}] {} {}-security main\n", mirror.security, suite.name);
        }
        fs::write(folder.join("sources.list"), list)
            .with_context(|| format!("writing in {}", folder.display()))?;
        let archive = Archive { folder: folder.to_owned(), suite };
        archive.update()?;
        Ok(archive)
    }

    fn update(&self) -> Result<()> {
        let output = self
            .apt("apt-get")
            .args(["-q", "--error-on=any", "update"])
            .output()
            .context("running apt-get")?;
        if output.status.success() {
            return Ok(());
        }
        let said =
            format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        let said: Vec<&str> =
            said.lines().filter(|line| line.starts_with("E:") || line.starts_with("W:")).collect();
        let hint = if said.iter().any(|line| line.contains("NO_PUBKEY")) {
            format!(
                "\nthe key that signs {} is not in {KEYRING}: upgrade the package debian-archive-keyring",
                self.suite.name
            )
        } else {
            String::new()
        };
        bail!("apt-get update for Debian {} failed:\n{}{hint}", self.suite.name, said.join("\n"))
    }

    /// The names a package depends on, directly, of its newest version in the suite.
    ///
    /// # Errors
    /// The suite does not have the package.
    pub fn depends(&self, package: &str) -> Result<Vec<String>> {
        let output = self
            .apt("apt-cache")
            .args([
                "depends",
                "--no-recommends",
                "--no-suggests",
                "--no-conflicts",
                "--no-breaks",
                "--no-replaces",
            ])
            .args(["--no-enhances", package])
            .output()
            .context("running apt-cache")?;
        ensure!(
            output.status.success(),
            "Debian {} has no package {package}: {}",
            self.suite.name,
            String::from_utf8_lossy(&output.stderr).trim()
        );
        Ok(parse_depends(&String::from_utf8_lossy(&output.stdout)))
    }

    /// Fetches the packages and unpacks them into `into`, without installing anything. Gives back the file names,
    /// which say version and architecture.
    pub fn unpack(&self, packages: &[String], into: &Path) -> Result<Vec<String>> {
        let debs = tempfile::tempdir_in(&self.folder).context("making a folder for packages")?;
        run(self.apt("apt-get").current_dir(debs.path()).args(["-qq", "download"]).args(packages))?;
        let mut names = Vec::new();
        for deb in fs::read_dir(debs.path()).context("listing packages")? {
            let deb = deb.context("listing packages")?;
            run(Command::new("dpkg-deb").arg("--extract").arg(deb.path()).arg(into))?;
            names.push(deb.file_name().to_string_lossy().into_owned());
        }
        names.sort();
        ensure!(names.len() == packages.len(), "asked apt for {packages:?}, and it fetched {names:?}");
        Ok(names)
    }

    /// Fetches a package and unpacks some of its files into `into`, for packages that are too large to unpack whole.
    ///
    /// # Errors
    /// The suite does not have the package, or the package not all of the files.
    pub fn unpack_files(&self, package: &str, files: &[String], into: &Path) -> Result<()> {
        let debs = tempfile::tempdir_in(&self.folder).context("making a folder for packages")?;
        run(self.apt("apt-get").current_dir(debs.path()).args(["-qq", "download", package]))?;
        let mut debs = fs::read_dir(debs.path()).context("listing packages")?;
        let deb = debs.next().context("apt fetched nothing")?.context("listing packages")?;
        let mut unpack = Command::new("dpkg-deb");
        unpack.arg("--fsys-tarfile").arg(deb.path()).stdin(Stdio::null()).stdout(Stdio::piped());
        let mut unpack = unpack.spawn().context("running dpkg-deb")?;
        let tarfile = unpack.stdout.take().context("reading from dpkg-deb")?;
        let mut tar = Command::new("tar");
        tar.args(["--extract", "--directory"]).arg(into).args(files.iter().map(|file| format!("./{file}")));
        let output = tar.stdin(Stdio::from(tarfile)).output().context("running tar")?;
        unpack.wait().context("waiting for dpkg-deb")?;
        ensure!(output.status.success(), "{package}: {}", String::from_utf8_lossy(&output.stderr).trim());
        Ok(())
    }

    /// An apt command that sees our suite alone, and writes only in our folder.
    fn apt(&self, program: &str) -> Command {
        let mut command = if program == "apt-get" { apt_get() } else { Command::new(program) };
        command.stdin(Stdio::null());
        let mut option = |name: &str, value: &str| {
            command.arg("-o").arg(format!("{name}={value}"));
        };
        let at = |part: &str| self.folder.join(part).to_string_lossy().into_owned();
        option("Dir::State", &at("state"));
        option("Dir::State::Lists", &at("lists"));
        option("Dir::State::status", "/dev/null");
        option("Dir::Cache", &at("cache"));
        option("Dir::Etc::sourcelist", &at("sources.list"));
        option("Dir::Etc::sourceparts", "/dev/null");
        option("Dir::Etc::preferences", "/dev/null");
        option("Dir::Etc::preferencesparts", "/dev/null");
        option("APT::Architecture", "amd64");
        option("APT::Architectures", "amd64");
        // Only the package index is of use: no translations, no software-centre metadata.
        option("Acquire::Languages", "none");
        option("Acquire::IndexTargets::deb::DEP-11::DefaultEnabled", "false");
        option("Acquire::Retries", "3");
        // Our folder need not be open to apt's own user.
        option("APT::Sandbox::User", "root");
        if self.suite.ended {
            option("Acquire::Check-Valid-Until", "false");
        }
        command
    }
}

/// The names after `Depends:` in what `apt-cache depends` prints; pre-dependencies, alternatives (`|Depends:`) and
/// virtual packages (`<name>`) are left out.
fn parse_depends(text: &str) -> Vec<String> {
    text.lines()
        .filter_map(|line| line.trim_start().strip_prefix("Depends: "))
        .filter(|name| !name.starts_with('<'))
        .map(|name| name.trim().to_owned())
        .collect()
}

fn apt_get() -> Command {
    let mut command = Command::new("apt-get");
    command.env("DEBIAN_FRONTEND", "noninteractive").stdin(Stdio::null());
    command
}

/// Runs a command, keeping what it says for the error.
pub fn run(command: &mut Command) -> Result<()> {
    let name = command.get_program().to_string_lossy().into_owned();
    let output = command.stdin(Stdio::null()).output().with_context(|| format!("running {name}"))?;
    if output.status.success() {
        return Ok(());
    }
    let words: Vec<_> = command.get_args().map(|arg| arg.to_string_lossy().into_owned()).collect();
    bail!(
        "{name} {} failed ({}):\n{}{}",
        words.join(" "),
        output.status,
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    const DEB822: &str = "\
# a comment
Types: deb deb-src
# another
URIs: http://mirror.example/debian
Suites: bookworm bookworm-updates
Components: main contrib
Signed-By: /usr/share/keyrings/debian-archive-keyring.gpg

Types: deb
URIs: http://mirror.example/debian-security/
Suites: bookworm-security
Components: main
Signed-By: /usr/share/keyrings/debian-archive-keyring.gpg

Types: deb
URIs: https://other.example/debian/12/prod
Suites: bookworm
Components: main
Signed-By:
 -----BEGIN PGP PUBLIC KEY BLOCK-----
 .
 mDMEYCQjIxYJKwYBBAHaRw8B
 -----END PGP PUBLIC KEY BLOCK-----

Enabled: no
Types: deb
URIs: http://off.example/debian
Suites: bookworm
Components: main
";

    #[test]
    fn deb822_stanzas() {
        let sources = parse_deb822(DEB822);
        let seen: Vec<(&str, &str)> = sources.iter().map(|s| (s.uri.as_str(), s.suite.as_str())).collect();
        assert_eq!(
            seen,
            [
                ("http://mirror.example/debian", "bookworm"),
                ("http://mirror.example/debian", "bookworm-updates"),
                ("http://mirror.example/debian-security/", "bookworm-security"),
                ("https://other.example/debian/12/prod", "bookworm"),
            ]
        );
        assert_eq!(sources[0].components, ["main", "contrib"]);
        assert!(sources[3].signed_by.as_deref().is_some_and(|key| key.contains("BEGIN PGP")));
    }

    #[test]
    fn the_debian_archive_is_chosen_among_others() {
        let expected = Mirror {
            main: "http://mirror.example/debian".into(),
            security: "http://mirror.example/debian-security".into(),
        };
        assert_eq!(Mirror::choose(&parse_deb822(DEB822)), Some(expected.clone()));
        let mut other_first =
            parse_one_line("deb [signed-by=/k/other.gpg] https://other.example/debian bookworm main");
        other_first.extend(parse_one_line("deb http://mirror.example/debian bookworm main"));
        assert_eq!(Mirror::choose(&other_first), Some(expected));
    }

    #[test]
    fn one_line_form() {
        let sources = parse_one_line(
            "# deb http://commented.example/debian bookworm main\n\
             deb-src http://m.example/debian bookworm main\n\
             deb [ arch=amd64 signed-by=/k/debian-archive-keyring.gpg ] mirror+file:/etc/apt/mirrors/debian.list trixie main non-free # tail\n\
             deb\thttp://m.example/debian-security\ttrixie-security\tmain\n\
             deb http://flat.example/ ./\n\
             deb\n",
        );
        assert_eq!(sources.len(), 3);
        assert_eq!(sources[0].uri, "mirror+file:/etc/apt/mirrors/debian.list");
        assert_eq!(sources[0].components, ["main", "non-free"]);
        assert_eq!(sources[0].signed_by.as_deref(), Some("/k/debian-archive-keyring.gpg"));
        assert_eq!(sources[2].components, Vec::<String>::new());
        let mirror = Mirror::choose(&sources).unwrap();
        assert_eq!(mirror.main, "mirror+file:/etc/apt/mirrors/debian.list");
        assert_eq!(mirror.security, "http://m.example/debian-security");
    }

    #[test]
    fn security_is_guessed_beside_the_archive_when_not_configured() {
        let mirror = Mirror::choose(&parse_one_line("deb http://m.example/debian/ bookworm main")).unwrap();
        assert_eq!(mirror.security, "http://m.example/debian-security");
        assert_eq!(Mirror::choose(&parse_one_line("deb http://m.example/x nodistro main")), None);
        assert_eq!(Mirror::choose(&parse_one_line("deb http://m.example/x bookworm stable")), None);
    }

    #[test]
    fn a_configuration_is_read_from_its_files() {
        let etc = tempfile::tempdir().unwrap();
        fs::create_dir(etc.path().join("sources.list.d")).unwrap();
        let part =
            |name: &str, text: &str| fs::write(etc.path().join("sources.list.d").join(name), text).unwrap();
        part("debian.sources.disabled", DEB822);
        assert!(Mirror::of_system(etc.path()).is_err());
        part("debian.sources", DEB822);
        assert_eq!(Mirror::of_system(etc.path()).unwrap().main, "http://mirror.example/debian");
    }

    #[test]
    fn dependencies_without_alternatives_and_virtual_packages() {
        let text = "linux-image-7-cloud-amd64\n  PreDepends: linux-base\n |Depends: dracut\n  \
                    Depends: <linux-initramfs-tool>\n    dracut\n  Depends: linux-binary-7-cloud-amd64\n";
        assert_eq!(parse_depends(text), ["linux-binary-7-cloud-amd64"]);
    }

    #[test]
    fn programs_are_found_by_name_and_by_path() {
        assert!(find_program("sh").is_some());
        assert!(find_program("/bin/sh").is_some());
        assert!(find_program("/bin/no-such-program").is_none());
        assert!(find_program("no-such-program-anywhere").is_none());
        assert!(ensure(&[("sh", "dash")]).is_ok());
    }
}
