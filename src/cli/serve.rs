use std::path::Path;
pub(super) fn run(
    _d: &Path,
    _a: &super::ServeArgs,
    _s: &dyn Fn(&crate::lifecycle::Handle) -> Result<(), crate::lifecycle::BoxError>,
) -> Result<u8, super::CliError> {
    Err(super::CliError::failed("stub"))
}
