//! Pages of the error codes, as `tidelock explain CODE` prints them and the book shows them.
//!
//! The pages are the files in `crates/core/errors/`. `cargo xtask tidy` checks that this list matches that directory.

/// Pairs each code with its page.
macro_rules! pages {
    ($($code:literal),* $(,)?) => {
        &[$(($code, include_str!(concat!("../../errors/", $code, ".md")))),*]
    };
}

const PAGES: &[(&str, &str)] = pages![
    "TL0101", "TL0102", "TL0103", "TL0104", "TL0105", "TL0106", "TL0201", "TL0202", "TL0203", "TL0204",
    "TL0205", "TL0206", "TL0207", "TL0208", "TL0209", "TL0210", "TL0212", "TL0213", "TL0301", "TL0302",
    "TL0303", "TL0304", "TL0305", "TL0306", "TL0307", "TL0308", "TL0309", "TL0310", "TL0311", "TL0312",
    "TL0313", "TL0401", "TL0402", "TL0403", "TL0404", "TL0405", "TL0406", "TL0501", "TL0502", "TL0503",
    "TL0504", "TL0505", "TL0506", "TL0507", "TL0511", "TL0512", "TL0513", "TL0514", "TL0515", "TL0516",
    "TL0517", "TL0521", "TL0522", "TL0601", "TL0602", "TL0603", "TL0604", "TL0605", "TL0606", "TL0607",
    "TL0608", "TL0609", "TL0610", "TL0701", "TL0702", "TL0703", "TL0704", "TL0705", "TL0706", "TL0707",
    "TL0708", "TL0709", "TL0710", "TL0801", "TL0802", "TL0803", "TL0804", "TL0805", "TL0806", "TL0807",
    "TL0808", "TL0809", "TL0810", "TL0811", "TL0812", "TL0813", "TL0901", "TL0902", "TL0903", "TL0904",
    "TL0905", "TL0906", "TL0907", "TL0908", "TL0909", "TL0910", "TL0911", "TL0912", "TL1001", "TL1002",
    "TL1003", "TL1004", "TL1005", "TL1006", "TL1007", "TL1008", "TL1009", "TL1010", "TL1011", "TL1012",
    "TL1013", "TL1014", "TL1015", "TL1016", "TL1017", "TL1018", "TL1019", "TL1020", "TL1021", "TL1101",
    "TL1102", "TL1103", "TL1104", "TL1105", "TL1106", "TL1107", "TL1108", "TL1109", "TL1201", "TL1202",
    "TL1203", "TL1204", "TL1205", "TL1206", "TL1207", "TL1211", "TL1212", "TL1213", "TL1214", "TL1215",
    "TL1216", "TL1217", "TL1218", "TL1221", "TL1222", "TL1223", "TL1301", "TL1302", "TL1303", "TL1304",
    "TL1305", "TL1306", "TL1307", "TL1308", "TL1309", "TL1310", "TL1311", "TL1312", "TL1314", "TL1315",
    "TL1316", "TL1317", "TL1318", "TL1319", "TL1320", "TL1321", "TL1322",
];

/// Returns the page of a code in Markdown; `None` when there is no such code. Upper and lower case are equal.
#[must_use]
pub fn page(code: &str) -> Option<&'static str> {
    PAGES.iter().find(|(known, _)| known.eq_ignore_ascii_case(code)).map(|(_, page)| *page)
}

/// Returns the example message on the page of a code.
#[must_use]
pub fn example(code: &str) -> Option<&'static str> {
    let (_, example) = page(code)?.split_once("## Example message\n\n```text\n")?;
    example.strip_suffix("\n```\n")
}

/// Returns every code with its page, in the order of the codes.
#[must_use]
pub fn all() -> &'static [(&'static str, &'static str)] {
    PAGES
}

#[cfg(test)]
pub(crate) mod tests;
