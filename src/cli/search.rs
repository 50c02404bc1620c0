use std::path::Path;
pub(super) fn run(_d: &Path, _a: &super::SearchArgs) -> Result<u8, super::CliError> {
    Err(super::CliError::failed("stub"))
}
