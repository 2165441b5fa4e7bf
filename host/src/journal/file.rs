//! The files of a journal: never overwritten, renamed when one is begun anew.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use super::writer::JournalOptions;

/// Where lines go.
pub(super) trait Sink: Send {
    fn write(&mut self, line: &[u8]) -> io::Result<()>;
    fn sync(&mut self) -> io::Result<()>;
    fn rotate(&mut self) -> io::Result<()>;
}

pub(super) struct FileSink {
    file: File,
    path: PathBuf,
    max_files: Option<u32>,
}

impl FileSink {
    pub(super) fn create(options: &JournalOptions) -> io::Result<Self> {
        Ok(Self {
            file: create(&options.path, None)?,
            path: options.path.clone(),
            max_files: options.max_files,
        })
    }
}

impl Sink for FileSink {
    fn write(&mut self, line: &[u8]) -> io::Result<()> {
        self.file.write_all(line)
    }

    fn sync(&mut self) -> io::Result<()> {
        self.file.sync_data()
    }

    fn rotate(&mut self) -> io::Result<()> {
        self.file.sync_data()?;
        self.file = create(&self.path, self.max_files)?;
        Ok(())
    }
}

/// Creates a file that was not there; one that was is renamed to the number behind the last.
fn create(path: &Path, max_files: Option<u32>) -> io::Result<File> {
    if fs::metadata(path).is_ok_and(|found| !found.is_file()) {
        // A pipe or a device is written to as it is: renaming it would take it from the system.
        return OpenOptions::new().write(true).open(path);
    }
    if path.exists() {
        let mut numbers = renamed(path)?;
        let next = numbers.last().map_or(1, |last| last + 1);
        fs::rename(path, numbered(path, next))?;
        numbers.push(next);
        let kept = max_files.map_or(numbers.len(), |most| most as usize);
        for number in &numbers[..numbers.len().saturating_sub(kept)] {
            fs::remove_file(numbered(path, *number))?;
        }
    }
    let file = OpenOptions::new().write(true).create_new(true).open(path)?;
    // A synced file is found after a crash of the machine only if its name is on the disk too.
    File::open(folder(path))?.sync_all()?;
    Ok(file)
}

fn folder(path: &Path) -> &Path {
    match path.parent() {
        Some(folder) if folder != Path::new("") => folder,
        _ => Path::new("."),
    }
}

fn numbered(path: &Path, number: u32) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(format!(".{number}"));
    PathBuf::from(name)
}

/// The numbers of the files that were renamed, ascending.
fn renamed(path: &Path) -> io::Result<Vec<u32>> {
    let own = path.file_name().unwrap_or_default().to_string_lossy();
    let mut numbers = Vec::new();
    for entry in fs::read_dir(folder(path))? {
        let name = entry?.file_name();
        let number = name
            .to_string_lossy()
            .strip_prefix(&*own)
            .and_then(|rest| rest.strip_prefix('.')?.parse::<u32>().ok());
        numbers.extend(number);
    }
    // A folder has no order: the numbers have, and each is there once.
    numbers.sort_unstable();
    Ok(numbers)
}
