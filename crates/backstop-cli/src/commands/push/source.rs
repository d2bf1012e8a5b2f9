//! Where lines come from.

use crate::error::CliError;
use std::fs::File;
use std::io::{self, BufReader, Read, Seek};
use std::path::{Path, PathBuf};

/// Bytes read at a time.
const BUFFER_BYTES: usize = 1 << 18;

pub(crate) type InputReader = BufReader<Box<dyn Read + Send>>;

pub(crate) enum InputSource {
    File(PathBuf),
    Stdin,
    /// What was piped in, kept so that it can be read twice; gone when it is closed.
    Spooled(File),
}

impl InputSource {
    /// A file by its path; `-` is what is piped in.
    pub(crate) fn at(path: &Path) -> Self {
        if path.as_os_str() == "-" {
            Self::Stdin
        } else {
            Self::File(path.to_owned())
        }
    }

    /// How many bytes there are, where that can be known: for the estimate of the time left.
    pub(crate) fn size(&self) -> Option<u64> {
        let metadata = match self {
            Self::File(path) => std::fs::metadata(path).ok()?,
            Self::Spooled(file) => file.metadata().ok()?,
            Self::Stdin => return None,
        };
        metadata.is_file().then_some(metadata.len())
    }

    pub(crate) fn reader(&self) -> Result<InputReader, CliError> {
        let file = match self {
            Self::Stdin => {
                return Ok(BufReader::with_capacity(
                    BUFFER_BYTES,
                    Box::new(io::stdin()),
                ));
            }
            Self::File(path) => File::open(path).map_err(|error| {
                CliError::misuse(format!("{} cannot be read: {error}", path.display()))
                    .advise("the path of a file that exists, or - for stdin")
            })?,
            Self::Spooled(file) => {
                let mut file = file.try_clone()?;
                file.rewind()?;
                file
            }
        };
        Ok(BufReader::with_capacity(BUFFER_BYTES, Box::new(file)))
    }

    /// One that can be read twice.
    pub(crate) fn into_repeatable(self) -> Result<Self, CliError> {
        let must_be_kept = match &self {
            Self::File(path) => !std::fs::metadata(path)?.is_file(),
            Self::Stdin => true,
            Self::Spooled(_) => false,
        };
        if !must_be_kept {
            return Ok(self);
        }
        let mut spooled = tempfile::tempfile()?;
        io::copy(&mut self.reader()?, &mut spooled)?;
        Ok(Self::Spooled(spooled))
    }
}
