//! The files of the workspace, and what of them is product code.

use std::fs;
use std::path::{Path, PathBuf};

const CODE: &[&str] = &["rs", "sql", "lua", "html", "css", "js", "py", "sh"];

/// Folders and files of a crate that do not ship.
const NO_PRODUCT: [&str; 5] = [
    "tests",
    "tests.rs",
    "benches",
    "examples",
    "backstop-testkit",
];

pub(crate) struct SourceFile {
    /// Relative to the workspace, with `/` between folders.
    pub(crate) path: String,
    pub(crate) text: String,
}

impl SourceFile {
    pub(crate) fn lines(&self) -> impl Iterator<Item = &str> {
        self.text.lines()
    }

    pub(crate) fn is_rust(&self) -> bool {
        self.extension() == "rs"
    }

    pub(crate) fn is_markdown(&self) -> bool {
        self.extension() == "md"
    }

    /// Rust that ships: neither tests, nor what only tests use, nor examples.
    pub(crate) fn is_product(&self) -> bool {
        let mut folders = self.path.split('/');
        let is_test = folders.any(|name| NO_PRODUCT.contains(&name));
        self.is_rust() && self.path.starts_with("crates/") && !is_test
    }

    fn extension(&self) -> &str {
        self.path
            .rsplit_once('.')
            .map_or("", |(_, extension)| extension)
    }

    /// The lines without inline test modules and items that only tests build.
    pub(crate) fn product_lines(&self) -> Vec<&str> {
        let mut product = Vec::new();
        let mut lines = self.lines().peekable();
        while let Some(line) = lines.next() {
            if !line.trim_start().starts_with("#[cfg(test)]") {
                product.push(line);
                continue;
            }
            let indent = &line[..line.len() - line.trim_start().len()];
            let end = format!("{indent}}}");
            for line in lines.by_ref() {
                if line == end || (line.ends_with(';') && !line.starts_with(&format!("{indent} ")))
                {
                    break;
                }
            }
        }
        product
    }
}

pub(crate) fn root() -> PathBuf {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR"))
        .parent()
        .expect("crates/ is above");
    crates
        .parent()
        .expect("the workspace is above crates/")
        .to_path_buf()
}

/// All hand-written text of the workspace, in the order of its paths.
pub(crate) fn source_files() -> Vec<SourceFile> {
    let (root, mut files) = (root(), Vec::new());
    collect(&root, &root, &mut files);
    files.sort_by(|a, b| a.path.cmp(&b.path));
    assert!(
        files.len() > 500,
        "only {} files found below {}",
        files.len(),
        root.display()
    );
    files
}

fn collect(root: &Path, folder: &Path, files: &mut Vec<SourceFile>) {
    for entry in fs::read_dir(folder).expect("a folder of the workspace is readable") {
        let entry = entry.expect("an entry of a folder is readable");
        let (path, name) = (entry.path(), entry.file_name());
        let name = name.to_string_lossy();
        if name.starts_with('.') || matches!(&*name, "target" | "node_modules") {
            continue;
        }
        if path.is_dir() {
            collect(root, &path, files);
            continue;
        }
        let extension = name.rsplit_once('.').map_or("", |(_, extension)| extension);
        let is_script = path
            .parent()
            .is_some_and(|folder| folder.ends_with("scripts"));
        if !CODE.contains(&extension) && extension != "md" && !is_script {
            continue;
        }
        let below = path.strip_prefix(root).expect("it is below the root");
        let text = fs::read_to_string(&path).expect("source files are UTF-8");
        files.push(SourceFile {
            path: below.to_string_lossy().replace('\\', "/"),
            text,
        });
    }
}
