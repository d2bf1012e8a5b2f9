//! Keeps the house: how long lines, functions and files may be, which crate may use which, and what
//! names and comments may look like.
//!
//! | rule | holds for | limit |
//! |---|---|---|
//! | columns | code, templates, scripts, Markdown (tables and links aside) | 100 |
//! | function | Rust | 60 lines |
//! | file | code, templates, scripts | 600 lines |
//! | layers | dependencies between crates | the list in `layers.rs` |
//! | type-twice | product types of the workspace | one definition a name |
//! | banned-type | product types | no bare participle, pronoun or preposition |
//! | dialect | identifiers of product code | none of the words in `names.rs` |
//! | short-doc | doc comments that no command line or API description shows | more than four words |
//! | no-doc | public items of the library `backstop` | a doc comment |
//!
//! `exceptions.txt` lists what breaks a rule today. The list only shrinks: the test fails when a
//! file gets worse, and also when it gets better than its entry says.

mod docs;
mod exceptions;
mod layers;
mod names;
mod shape;
mod source;

use exceptions::{Exceptions, Finding};
use source::{SourceFile, source_files};

fn check(rule: &str, findings: impl IntoIterator<Item = Finding>) {
    let problems = Exceptions::load().compare(rule, findings);
    assert!(problems.is_empty(), "\n{}\n", problems.join("\n"));
}

fn files_where(keep: impl Fn(&SourceFile) -> bool) -> Vec<SourceFile> {
    source_files().into_iter().filter(keep).collect()
}

#[test]
fn lines_end_at_100_columns() {
    check(
        "columns",
        source_files().iter().filter_map(shape::long_lines),
    );
}

#[test]
fn functions_fit_a_screen() {
    let rust = files_where(SourceFile::is_rust);
    check("function", rust.iter().filter_map(shape::long_functions));
}

#[test]
fn files_hold_one_idea() {
    let code = files_where(|file| !file.is_markdown());
    check("file", code.iter().filter_map(shape::long_file));
}

#[test]
fn crates_use_only_the_layers_below_them() {
    check("layers", layers::violations());
}

#[test]
fn a_type_name_has_one_definition() {
    let product = files_where(SourceFile::is_product);
    check(
        "type-twice",
        names::types_with_several_definitions(&product),
    );
}

#[test]
fn types_are_nouns() {
    let product = files_where(SourceFile::is_product);
    check("banned-type", names::banned_types(&product));
}

#[test]
fn identifiers_use_the_words_of_the_field() {
    let product = files_where(SourceFile::is_product);
    check("dialect", names::dialect(&product));
}

#[test]
fn a_doc_comment_says_more_than_the_name() {
    let product = files_where(SourceFile::is_product);
    check("short-doc", product.iter().filter_map(docs::short_docs));
}

#[test]
fn public_items_of_the_library_are_documented() {
    let library = files_where(|file| file.is_product() && file.path.starts_with(docs::FACADE));
    check("no-doc", library.iter().filter_map(docs::missing_docs));
}

#[test]
fn the_list_of_exceptions_names_known_rules_only() {
    let rules = [
        "columns",
        "function",
        "file",
        "layers",
        "type-twice",
        "banned-type",
        "dialect",
        "short-doc",
        "no-doc",
    ];
    let exceptions = Exceptions::load();
    let unknown = exceptions.rules_beside(&rules);
    assert!(
        unknown.is_empty(),
        "exceptions.txt names unknown rules: {unknown:?}"
    );
}
