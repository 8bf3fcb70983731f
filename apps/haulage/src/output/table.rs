//! Tables of text.

/// The alignment of a column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Align {
    /// Left, for words.
    Left,
    /// Right, for numbers.
    Right,
}

/// Lays out `rows` under `columns`, two spaces between columns, one line each.
pub fn layout(columns: &[(&str, Align)], rows: &[Vec<String>]) -> String {
    let widths: Vec<usize> = columns
        .iter()
        .enumerate()
        .map(|(i, (title, _))| {
            let cells = rows.iter().filter_map(|row| row.get(i)).map(|cell| cell.chars().count());
            cells.chain([title.chars().count()]).max().unwrap_or(0)
        })
        .collect();
    let titles = columns.iter().map(|(title, _)| (*title).to_owned()).collect();
    let mut text = String::new();
    for row in std::iter::once(&titles).chain(rows) {
        let cells =
            row.iter().zip(&widths).zip(columns).map(|((cell, width), (_, align))| match align {
                Align::Left => format!("{cell:width$}"),
                Align::Right => format!("{cell:>width$}"),
            });
        let line = cells.collect::<Vec<_>>().join("  ");
        text.push_str(line.trim_end());
        text.push('\n');
    }
    text
}

/// Returns a number of things, of which `name` is one.
pub fn counted(count: usize, name: &str) -> String {
    format!("{count} {name}{}", if count == 1 { "" } else { "s" })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_as_wide_as_their_widest_cell_and_lines_end_at_their_text() {
        let rows = [vec!["get".to_owned(), "12".to_owned()], vec!["é".to_owned(), "3".to_owned()]];
        assert_eq!(
            layout(&[("op", Align::Left), ("us", Align::Right)], &rows),
            "op   us\nget  12\né     3\n"
        );
        assert_eq!(layout(&[("op", Align::Left)], &[vec![String::new()]]), "op\n\n");
    }
}
