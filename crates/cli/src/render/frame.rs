//! The screen layout of `--watch`: a heading, the data, and the notes.

/// Returns the lines of a screen with the given number of rows. Lines that do not fit are counted.
pub(super) fn frame(heading: &str, text: &str, notes: &[String], rows: usize) -> Vec<String> {
    let mut lines = vec![heading.to_owned()];
    let data: Vec<&str> = text.lines().collect();
    let room = rows.saturating_sub(lines.len() + notes.len());
    if data.len() <= room {
        lines.extend(data.into_iter().map(str::to_owned));
    } else {
        let shown = room.saturating_sub(1);
        lines.extend(data.iter().take(shown).map(|line| (*line).to_owned()));
        lines.push(format!("… {} lines more", data.len() - shown));
    }
    lines.extend(notes.iter().cloned());
    lines.truncate(rows);
    lines
}

#[cfg(test)]
mod tests {
    use super::frame;

    #[test]
    fn lines_that_do_not_fit_are_counted() {
        let notes = ["2 blocked".to_owned()];
        assert_eq!(frame("h", "a\nb", &notes, 5), ["h", "a", "b", "2 blocked"]);
        assert_eq!(frame("h", "a\nb\nc\nd", &notes, 5), ["h", "a", "b", "… 2 lines more", "2 blocked"]);
        assert_eq!(frame("h", "a\nb", &notes, 1), ["h"]);
    }
}
