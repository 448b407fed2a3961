//! A JSON array that is sent element by element, as Google's streaming endpoints answer where no events are asked for.
//!
//! The framer finds where elements begin and end; whether one is JSON is for its reader to see. Bytes may be cut
//! anywhere, and nothing recurses with the depth of an element.
//!
//! ```
//! use stream_layer::ArrayFramer;
//!
//! let mut framer = ArrayFramer::default();
//! let mut elements = Vec::new();
//! for chunk in ["[{\"a\":", "\"]}\"}\n,", "\r\n{\"a\":2}]\n"] {
//!     let mut fed = framer.feed(chunk.as_bytes());
//!     while let Some(element) = fed.next_element() {
//!         elements.push(element?.to_vec());
//!     }
//! }
//! assert_eq!(elements, [&b"{\"a\":\"]}\"}"[..], b"{\"a\":2}"]);
//! assert!(framer.is_over());
//! # Ok::<(), stream_layer::ArrayError>(())
//! ```

use std::{error::Error, fmt};

use failsoft_core::{Class, Fault, Hint, Verdict};
use memchr::memchr2;

use crate::{LAYER, MAX_EVENT, TooLong};

/// Cuts a JSON array into its elements. Its memory is bounded by the length of one element, and an element that comes in
/// one piece is not copied.
pub struct ArrayFramer {
    max: usize,
    /// What came of an element that is not whole yet.
    element: Vec<u8>,
    /// `element` was handed out, and makes room before the next.
    given: bool,
    place: Place,
}

/// Where in the array the next byte stands.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Place {
    Before,
    /// After `[`, a comma or an element.
    Between,
    /// In an element.
    Inside(Nesting),
    /// After `]`.
    After,
    Failed,
}

/// How deep in an element.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Nesting {
    depth: usize,
    in_string: bool,
    /// The byte before was a backslash.
    escaped: bool,
}

impl ArrayFramer {
    /// A framer that refuses an element of more than `max_element` bytes.
    #[must_use]
    pub const fn new(max_element: usize) -> Self {
        Self { max: max_element, element: Vec::new(), given: false, place: Place::Before }
    }

    /// Takes the next bytes of the stream. Read the elements until there is none: what is not read is lost.
    pub const fn feed<'a>(&'a mut self, bytes: &'a [u8]) -> ArrayElements<'a> {
        ArrayElements { framer: self, rest: bytes }
    }

    /// Whether the array was closed.
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.place == Place::After
    }

    /// Whether an element has begun and is not whole: a stream that ends here was cut.
    #[must_use]
    pub const fn is_cut(&self) -> bool {
        matches!(self.place, Place::Inside(_))
    }

    fn make_room(&mut self) {
        if std::mem::take(&mut self.given) {
            self.element.clear();
        }
    }

    fn fail(&mut self, err: ArrayError) -> ArrayError {
        self.place = Place::Failed;
        self.element = Vec::new();
        err
    }
}

impl Default for ArrayFramer {
    /// With a cap of [`MAX_EVENT`].
    fn default() -> Self {
        Self::new(MAX_EVENT)
    }
}

impl fmt::Debug for ArrayFramer {
    /// Without the content.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ArrayFramer")
            .field("max_element", &self.max)
            .field("buffered", &self.element.len())
            .field("place", &self.place)
            .finish_non_exhaustive()
    }
}

/// The elements in what was fed; read them with [`next_element`](Self::next_element).
#[must_use = "elements that are not read are lost"]
pub struct ArrayElements<'a> {
    framer: &'a mut ArrayFramer,
    rest: &'a [u8],
}

impl<'a> ArrayElements<'a> {
    /// What was fed and is not read yet.
    #[must_use]
    pub const fn rest(&self) -> &'a [u8] {
        self.rest
    }

    /// Takes the next element without looking for its end, where a reader knows it. `know` gets the bytes from the start of
    /// the element on; it says how many of those are the element, all of an object or of an array, and what to give. `None`,
    /// and the element is still the next, where it does not know it, where it is no object or array, or where not all of it
    /// was fed.
    ///
    /// ```
    /// use stream_layer::ArrayFramer;
    ///
    /// let mut framer = ArrayFramer::default();
    /// let mut elements = framer.feed(b"[{\"a\":1},\n{},{\"a\":2}]");
    /// elements.next_element();
    /// let know = |element: &[u8]| element.starts_with(b"{}").then_some((2, "nothing"));
    /// assert_eq!(elements.next_known(know), Some("nothing"));
    /// assert_eq!(elements.next_known(know), None);
    /// assert_eq!(elements.next_element(), Some(Ok(&b"{\"a\":2}"[..])));
    /// ```
    #[inline]
    pub fn next_known<T>(&mut self, know: impl FnOnce(&'a [u8]) -> Option<(usize, T)>) -> Option<T> {
        let framer = &mut *self.framer;
        framer.make_room();
        if framer.place != Place::Between {
            return None;
        }
        let is_between = |byte: &u8| *byte == b',' || byte.is_ascii_whitespace();
        let start = self.rest.iter().position(|byte| !is_between(byte))?;
        let bytes = self.rest.get(start..)?;
        // Where another value ends is seen at what comes after it.
        if !matches!(bytes.first(), Some(b'{' | b'[')) {
            return None;
        }
        let (length, known) = know(bytes)?;
        let rest = bytes.get(length..)?;
        if length == 0 || length > framer.max {
            return None;
        }
        self.rest = rest;
        Some(known)
    }

    /// The next element, without blanks around it; `None` when more bytes are needed. What comes after the end of the array
    /// is not looked at.
    ///
    /// # Errors
    ///
    /// When the bytes are no array, or an element is longer than the cap. Nothing comes after it.
    pub fn next_element(&mut self) -> Option<Result<&[u8], ArrayError>> {
        let framer = &mut *self.framer;
        framer.make_room();
        while !matches!(framer.place, Place::Inside(_)) {
            let (byte, rest) = self.rest.split_first()?;
            framer.place = match (framer.place, byte) {
                (Place::Failed | Place::After, _) => return None,
                (place, byte) if byte.is_ascii_whitespace() => place,
                (Place::Before, b'[') => Place::Between,
                // A byte order mark.
                (Place::Before, 0xEF | 0xBB | 0xBF) => Place::Before,
                (Place::Between, b',') => Place::Between,
                (Place::Between, b']') => Place::After,
                // What an element may begin with.
                (Place::Between, b'{' | b'[' | b'"' | b'-' | b'0'..=b'9' | b't' | b'f' | b'n') => {
                    framer.place = Place::Inside(Nesting::default());
                    break;
                }
                _ => return Some(Err(framer.fail(ArrayError::NoArray))),
            };
            self.rest = rest;
        }
        let Place::Inside(nesting) = &mut framer.place else { return None };
        let end = nesting.end_in(self.rest);
        let more = end.unwrap_or(self.rest.len());
        if framer.element.len().saturating_add(more) > framer.max {
            return Some(Err(framer.fail(ArrayError::TooLong(TooLong::new(framer.max)))));
        }
        let (element, rest) = self.rest.split_at(more);
        self.rest = rest;
        if end.is_none() {
            framer.element.extend_from_slice(element);
            return None;
        }
        framer.place = Place::Between;
        if framer.element.is_empty() {
            return Some(Ok(element));
        }
        framer.element.extend_from_slice(element);
        framer.given = true;
        Some(Ok(&framer.element))
    }
}

impl Nesting {
    /// After how many of these bytes the element is over; `None` when it goes on.
    fn end_in(&mut self, bytes: &[u8]) -> Option<usize> {
        let mut at = 0;
        while let Some(byte) = bytes.get(at) {
            if std::mem::take(&mut self.escaped) {
                at += 1;
            } else if self.in_string {
                let found = memchr2(b'"', b'\\', &bytes[at..])?;
                at += found + 1;
                if bytes[at - 1] == b'\\' {
                    self.escaped = true;
                } else {
                    self.in_string = false;
                    if self.depth == 0 {
                        return Some(at);
                    }
                }
            } else {
                match byte {
                    b'"' => self.in_string = true,
                    b'{' | b'[' => self.depth += 1,
                    b'}' | b']' | b',' if self.depth == 0 => return Some(at),
                    blank if self.depth == 0 && blank.is_ascii_whitespace() => return Some(at),
                    b'}' | b']' => {
                        self.depth -= 1;
                        if self.depth == 0 {
                            return Some(at + 1);
                        }
                    }
                    _ => {}
                }
                at += 1;
            }
        }
        None
    }
}

impl fmt::Debug for ArrayElements<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ArrayElements").field("rest", &self.rest.len()).finish_non_exhaustive()
    }
}

/// The bytes are no array, or one of an element that is too long. The framer gives nothing more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ArrayError {
    /// An element is longer than its cap.
    TooLong(TooLong),
    /// Something stands where `[`, an element, a comma or `]` should.
    NoArray,
}

impl fmt::Display for ArrayError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TooLong(err) => err.fmt(f),
            Self::NoArray => f.write_str("a streamed body is no JSON array"),
        }
    }
}

impl Error for ArrayError {}

impl From<ArrayError> for Fault {
    /// The request was fine: the same one may work.
    fn from(err: ArrayError) -> Self {
        match err {
            ArrayError::TooLong(err) => err.into(),
            ArrayError::NoArray => {
                Self::with_verdict(Verdict::of(Class::Transient).with_hint(Hint::Same), LAYER)
                    .with_message("no JSON array")
                    .with_source(err)
            }
        }
    }
}
