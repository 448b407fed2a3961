//! Writes AWS's binary event stream.

#![allow(dead_code, reason = "each test file uses a part of it")]

/// The checksum bit by bit, as the standard defines it.
fn crc(bytes: &[u8]) -> [u8; 4] {
    let crc = bytes.iter().fold(u32::MAX, |crc, byte| {
        (0..8).fold(crc ^ u32::from(*byte), |crc, _| crc >> 1 ^ if crc & 1 == 1 { 0xedb8_8320 } else { 0 })
    });
    (!crc).to_be_bytes()
}

/// A message with these headers, all of them text.
pub(crate) fn message(headers: &[(&str, &str)], payload: &str) -> Vec<u8> {
    let mut written = Vec::new();
    for (name, value) in headers {
        written.push(name.len() as u8);
        written.extend(name.as_bytes());
        written.push(7);
        written.extend((value.len() as u16).to_be_bytes());
        written.extend(value.as_bytes());
    }
    let length = 12 + written.len() + payload.len() + 4;
    let mut message = [(length as u32).to_be_bytes(), (written.len() as u32).to_be_bytes()].concat();
    message.extend(crc(&message));
    message.extend(written);
    message.extend(payload.as_bytes());
    message.extend(crc(&message));
    message
}

/// An event of a `ConverseStream`.
pub(crate) fn event(name: &str, payload: &str) -> Vec<u8> {
    let headers = [(":event-type", name), (":content-type", "application/json"), (":message-type", "event")];
    message(&headers, payload)
}

/// An exception in the place of an event.
pub(crate) fn exception(name: &str, text: &str) -> Vec<u8> {
    let headers =
        [(":exception-type", name), (":content-type", "application/json"), (":message-type", "exception")];
    message(&headers, &format!(r#"{{"message":"{text}"}}"#))
}

/// An error that the service did not model.
pub(crate) fn unmodelled(code: &str, text: &str) -> Vec<u8> {
    message(&[(":error-code", code), (":error-message", text), (":message-type", "error")], "")
}

/// A model's own event in a `chunk`, as `InvokeModelWithResponseStream` sends it.
pub(crate) fn chunk(inner: &str) -> Vec<u8> {
    event("chunk", &format!(r#"{{"bytes":"{}","p":"abcdef"}}"#, base64(inner.as_bytes())))
}

fn base64(bytes: &[u8]) -> String {
    const DIGITS: &[u8] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::new();
    for three in bytes.chunks(3) {
        let bits = (0..3).fold(0, |bits, at| bits << 8 | usize::from(three.get(at).copied().unwrap_or(0)));
        let digits = [18, 12, 6, 0].map(|shift| char::from(DIGITS[bits >> shift & 63]));
        text.extend(&digits[..=three.len()]);
        text.extend(std::iter::repeat_n('=', 3 - three.len()));
    }
    text
}
