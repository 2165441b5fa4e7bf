//! What several tests of the harness share.
