//! Where the bytes of a stream are cut.

/// Takes a few cuts off the front of an input, and gives the rest whole and cut.
pub(crate) fn cut(input: &[u8]) -> (&[u8], Vec<&[u8]>) {
    let Some((&count, rest)) = input.split_first() else { return (&[], Vec::new()) };
    let (cuts, body) = rest.split_at(usize::from(count % 16).min(rest.len()));
    let mut cuts: Vec<usize> = cuts.iter().map(|cut| usize::from(*cut) * (body.len() + 1) / 256).collect();
    cuts.extend([0, body.len()]);
    cuts.sort_unstable();
    (body, cuts.windows(2).map(|ends| &body[ends[0]..ends[1]]).collect())
}
