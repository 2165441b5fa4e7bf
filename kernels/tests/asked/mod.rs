//! Whether the tests are to run through a driver.

/// Whether `LOCKSTEP_TEST_DEVICE=cuda` asks for a driver. Where nothing does, a test says that it is
/// skipped.
///
/// # Panics
/// If `REQUIRE_CUDA=1` requires a driver and none is asked for: nothing would be shown.
pub(crate) fn for_a_driver() -> bool {
    let is = |name, value| std::env::var(name).is_ok_and(|found| found == value);
    let asked = is("LOCKSTEP_TEST_DEVICE", "cuda");
    assert!(
        asked || !is("REQUIRE_CUDA", "1"),
        "REQUIRE_CUDA=1 needs LOCKSTEP_TEST_DEVICE=cuda and a driver"
    );
    if !asked {
        println!("skipped: LOCKSTEP_TEST_DEVICE=cuda asks for a driver");
    }
    asked
}
