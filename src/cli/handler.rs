use std::path::Path;
pub(super) fn list(_d: &Path) -> Result<u8, super::CliError> {
    Err(super::CliError::failed("stub"))
}
