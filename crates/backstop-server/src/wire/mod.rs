//! The JSON shapes that the API and the command line share.
