//! Embeddings: vectors that can be used.

use failsoft_core::{ConfigError, Finding, Report, SoftKind};
use serde_json::Value;

use super::missing_json;
use crate::{Answer, Check};

/// The answer holds vectors, each of the right dimension, of finite numbers, and not of zeros only.
///
/// A vector of the wrong dimension comes from another model than the one that an index was built with, and one of zeros is near nothing and divides by
/// zero in every cosine. `null` and `NaN`, which some servers write where a model overflowed, are no numbers.
///
/// It reads `{"data": [{"embedding": […]}]}` (OpenAI and its like, numbers or base64 of 32-bit floats), `{"embeddings": […]}` (Ollama, Cohere, Gemini),
/// `{"embedding": […]}` (Ollama, Bedrock), with a `values` or a `float` inside of either, and a bare list of numbers or of lists.
///
/// The findings are of [`SoftKind::Schema`] at the vector's JSON pointer: `embedding.dimension`, `embedding.not_finite`, `embedding.zero`, and
/// `embedding.none` for a place among others that has none; none at all is [`SoftKind::Empty`], `embedding.none`.
///
/// ```
/// use validate_layer::{Check, checks::Embedding};
///
/// let check = Embedding::any().dimension(3)?.count(1)?;
/// assert!(check.on_text(r#"{"data": [{"index": 0, "embedding": [0.1, 0.2, 0.3]}]}"#).is_empty());
/// let code = |text| check.on_text(text).leading().map(|finding| finding.code());
/// assert_eq!(code(r#"{"data": [{"embedding": [0.1, 0.2]}]}"#), Some("embedding.dimension"));
/// assert_eq!(code(r#"{"data": [{"embedding": [0, 0, 0]}]}"#), Some("embedding.zero"));
/// assert_eq!(code(r#"{"data": [{"embedding": [0.1, null, 0.3]}]}"#), Some("embedding.not_finite"));
/// assert_eq!(code(r#"{"data": []}"#), Some("embedding.none"));
/// # Ok::<(), failsoft_core::ConfigError>(())
/// ```
#[derive(Clone, Copy, Debug, Default)]
pub struct Embedding {
    dimension: Option<usize>,
    count: Option<usize>,
}

impl Embedding {
    /// Vectors of any dimension, all of the same.
    #[must_use]
    pub const fn any() -> Self {
        Self { dimension: None, count: None }
    }

    /// Vectors of this dimension.
    ///
    /// # Errors
    ///
    /// When it is 0.
    pub fn dimension(mut self, dimension: usize) -> Result<Self, ConfigError> {
        self.dimension = Some(positive("dimension", dimension)?);
        Ok(self)
    }

    /// So many vectors: as many as there were texts.
    ///
    /// # Errors
    ///
    /// When it is 0.
    pub fn count(mut self, count: usize) -> Result<Self, ConfigError> {
        self.count = Some(positive("count", count)?);
        Ok(self)
    }
}

fn positive(field: &'static str, value: usize) -> Result<usize, ConfigError> {
    if value == 0 {
        return Err(ConfigError::new("Embedding", field, 0, "at least 1"));
    }
    Ok(value)
}

impl Check for Embedding {
    fn check(&self, answer: &Answer, report: &mut Report) {
        let Some(value) = answer.value() else { return missing_json(answer, report) };
        let mut vectors = Vec::new();
        collect(value, String::new(), 0, &mut vectors);
        if vectors.iter().all(|(_, vector)| vector.is_none()) {
            report.push(Finding::new(SoftKind::Empty, "embedding.none", "no vector in it"));
            return;
        }
        if let Some(count) = self.count.filter(|count| vectors.len() != *count) {
            let message = format!("{} vectors where {count} were asked for", vectors.len());
            report.push(Finding::new(SoftKind::Schema, "embedding.count", message));
        }
        // Where none was given, the first one's.
        let mut dimension = self.dimension;
        for (path, vector) in vectors {
            let Some(vector) = vector else {
                let finding =
                    Finding::new(SoftKind::Schema, "embedding.none", "no vector where one should be");
                report.push(finding.at(path));
                continue;
            };
            let found = Vector::read(vector);
            let wanted = *dimension.get_or_insert(found.dimension);
            let wrong = if !found.is_finite {
                ("embedding.not_finite", "a number in the vector is none, or is not finite".to_owned())
            } else if found.dimension != wanted || wanted == 0 {
                (
                    "embedding.dimension",
                    format!("{} dimensions where {wanted} were expected", found.dimension),
                )
            } else if found.is_zero {
                ("embedding.zero", "the vector is all zeros".to_owned())
            } else {
                continue;
            };
            let finding = Finding::new(SoftKind::Schema, wrong.0, wrong.1);
            report.push(if path.is_empty() { finding } else { finding.at(path) });
        }
    }
}

/// The vectors in an answer, with their pointers; of a place in a list that has none, the pointer only: a reader who counts
/// would take the next one for it.
fn collect<'a>(value: &'a Value, path: String, depth: usize, vectors: &mut Vec<(String, Option<&'a Value>)>) {
    // Deeper than any API has them.
    if depth > 4 {
        return;
    }
    match value {
        Value::Object(fields) => {
            for key in ["data", "embeddings", "embedding", "values", "float"] {
                if let Some(inside) = fields.get(key) {
                    collect(inside, format!("{path}/{key}"), depth + 1, vectors);
                }
            }
        }
        Value::Array(list) if list.first().is_none_or(|first| first.is_array() || first.is_object()) => {
            for (i, inside) in list.iter().enumerate() {
                let (before, path) = (vectors.len(), format!("{path}/{i}"));
                collect(inside, path.clone(), depth + 1, vectors);
                if vectors.len() == before {
                    vectors.push((path, None));
                }
            }
            // A vector without a number is a vector all the same, where one should be.
            if list.is_empty() && path.ends_with("embedding") {
                vectors.push((path, Some(value)));
            }
        }
        Value::Array(_) => vectors.push((path, Some(value))),
        Value::String(_) if path.ends_with("embedding") => vectors.push((path, Some(value))),
        _ => {}
    }
}

#[derive(Clone, Copy)]
struct Vector {
    dimension: usize,
    is_finite: bool,
    is_zero: bool,
}

impl Vector {
    fn read(vector: &Value) -> Self {
        let empty = Self { dimension: 0, is_finite: true, is_zero: true };
        let add = |vector: Self, number: Option<f64>| Self {
            dimension: vector.dimension + 1,
            // Most readers have 32 bits for it.
            #[allow(
                clippy::cast_possible_truncation,
                reason = "what is too large for 32 bits is not finite there"
            )]
            is_finite: vector.is_finite && number.is_some_and(|number| (number as f32).is_finite()),
            is_zero: vector.is_zero && number == Some(0.0),
        };
        match vector {
            Value::Array(numbers) => numbers.iter().map(Value::as_f64).fold(empty, add),
            Value::String(text) => match floats(text) {
                Some(floats) => floats.into_iter().map(|float| Some(f64::from(float))).fold(empty, add),
                None => Self { is_finite: false, ..empty },
            },
            _ => Self { is_finite: false, ..empty },
        }
    }
}

/// Little-endian 32-bit floats in base64; `None` where it is no such thing.
fn floats(text: &str) -> Option<Vec<f32>> {
    let digits = text.trim_end_matches('=').as_bytes();
    let mut bytes = Vec::with_capacity(digits.len() / 4 * 3 + 2);
    for group in digits.chunks(4) {
        let mut bits = 0_u32;
        for digit in group {
            let value = match digit {
                b'A'..=b'Z' => digit - b'A',
                b'a'..=b'z' => digit - b'a' + 26,
                b'0'..=b'9' => digit - b'0' + 52,
                b'+' | b'-' => 62,
                b'/' | b'_' => 63,
                _ => return None,
            };
            bits = bits << 6 | u32::from(value);
        }
        // A group of four is three bytes, of three two, of two one.
        let missing = 4 - group.len();
        let whole = (bits << (6 * missing)).to_be_bytes();
        let made = match missing {
            0 => 3,
            1 => 2,
            2 => 1,
            _ => return None,
        };
        bytes.extend_from_slice(whole.get(1..=made)?);
    }
    let floats = bytes.chunks_exact(4);
    if !floats.remainder().is_empty() {
        return None;
    }
    floats.map(|float| Some(f32::from_le_bytes(float.try_into().ok()?))).collect()
}
