//! Articles as the API shows them: times in one form, RFC 3339 in UTC with milliseconds and `Z`.

use serde::Serialize;

use crate::article::{Article, ArticleSummary, Kind, Status};

/// A time as the API writes it, from milliseconds since the Unix epoch: `2026-01-31T09:05:00.000Z`. Years outside 0 to
/// 9999 are clamped to that range.
pub fn rfc3339(ms: i64) -> String {
    // 0000-01-01T00:00:00Z and 9999-12-31T23:59:59.999Z.
    let ms = ms.clamp(-62_167_219_200_000, 253_402_300_799_999);
    let (days, of_day) = (ms.div_euclid(86_400_000), ms.rem_euclid(86_400_000));
    let (year, month, day) = civil_from_days(days);
    let (hour, minute, second, milli) = (of_day / 3_600_000, of_day / 60_000 % 60, of_day / 1_000 % 60, of_day % 1_000);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{milli:03}Z")
}

/// The Gregorian date of a day counted from 1970-01-01. Years are taken to begin in March, so that the leap day is the
/// last day of a year, and eras of 400 years, which all have the same days, to begin in March of year 0.
fn civil_from_days(days: i64) -> (i64, i64, i64) {
    const DAYS_TO_1970: i64 = 719_468;
    const DAYS_OF_ERA: i64 = 146_097;
    let shifted = days + DAYS_TO_1970;
    let (era, day_of_era) = (shifted.div_euclid(DAYS_OF_ERA), shifted.rem_euclid(DAYS_OF_ERA));
    let year_of_era = (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let march_month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * march_month + 2) / 5 + 1;
    let month = if march_month < 10 { march_month + 3 } else { march_month - 9 };
    let year = year_of_era + era * 400 + i64::from(month <= 2);
    (year, month, day)
}

/// An article in the API.
#[derive(Debug, Serialize)]
pub(super) struct ArticleView<'a> {
    id: &'a str,
    kind: Kind,
    status: Status,
    slug: &'a str,
    title: &'a str,
    /// Left out in lists.
    #[serde(skip_serializing_if = "Option::is_none")]
    content: Option<&'a str>,
    tags: &'a [String],
    version: i64,
    created_at: String,
    updated_at: String,
}

impl<'a> From<&'a Article> for ArticleView<'a> {
    fn from(article: &'a Article) -> Self {
        Self {
            id: &article.id,
            kind: article.kind,
            status: article.status,
            slug: &article.slug,
            title: &article.title,
            content: Some(&article.content),
            tags: &article.tags,
            version: article.version,
            created_at: rfc3339(article.created_at),
            updated_at: rfc3339(article.updated_at),
        }
    }
}

impl<'a> From<&'a ArticleSummary> for ArticleView<'a> {
    fn from(article: &'a ArticleSummary) -> Self {
        Self {
            id: &article.id,
            kind: article.kind,
            status: article.status,
            slug: &article.slug,
            title: &article.title,
            content: None,
            tags: &article.tags,
            version: article.version,
            created_at: rfc3339(article.created_at),
            updated_at: rfc3339(article.updated_at),
        }
    }
}

/// A list: `{"items":[…],"page","limit","total"}`.
#[derive(Debug, Serialize)]
pub(super) struct ListView<T> {
    pub(super) items: Vec<T>,
    pub(super) page: u32,
    pub(super) limit: u32,
    pub(super) total: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_have_one_form() {
        let table = [
            (0, "1970-01-01T00:00:00.000Z"),
            (-1, "1969-12-31T23:59:59.999Z"),
            (951_782_400_000, "2000-02-29T00:00:00.000Z"),
            (1_709_251_199_999, "2024-02-29T23:59:59.999Z"),
            (4_107_542_400_000, "2100-03-01T00:00:00.000Z"),
            (253_402_300_799_999, "9999-12-31T23:59:59.999Z"),
            (i64::MAX, "9999-12-31T23:59:59.999Z"),
            (i64::MIN, "0000-01-01T00:00:00.000Z"),
        ];
        for (ms, want) in table {
            assert_eq!(rfc3339(ms), want, "{ms}");
        }
    }
}
