//! `stream_options.include_usage`: a streamed chat completion says what it used only to those who ask.

use failsoft_core::is_sealed;

use crate::{
    Provider, lens,
    recognise::{self, Endpoint},
    request::{look, replace_body},
};

/// Asks for usage in the body of a request for a streamed chat completion, where the caller said nothing about it.
pub(crate) fn ask<Req: 'static>(request: &mut Req, provider: Provider) {
    let look = look(&*request);
    let is_chat = match provider {
        // Where nobody knows the dialect, nothing is changed: another may refuse a field that it does not know.
        Provider::Auto => recognise::of_request(&look) == Some(Provider::OpenAiCompatible),
        Provider::OpenAiCompatible => look
            .path
            .and_then(|path| Endpoint::of(path).provider)
            .is_none_or(|provider| provider == Provider::OpenAiCompatible),
        _ => false,
    };
    // Of another body a signature or a digest would be wrong.
    let is_free = is_chat && !look.headers.is_some_and(|headers| is_sealed(headers, look.query));
    let asked = look.body.as_deref().filter(|_| is_free).and_then(|body| std::str::from_utf8(body).ok());
    if let Some(body) = asked.and_then(with_usage) {
        replace_body(request, &body);
    }
}

/// The body with the option in it; `None` where it is no request for a stream, or says something about usage already.
fn with_usage(body: &str) -> Option<String> {
    let names = ["messages", "prompt", "stream", "stream_options"];
    let [messages, prompt, stream, options] = lens::fields(body, names)?;
    if messages.or(prompt).is_none() || stream != Some("true") {
        return None;
    }
    let (at, text) = match options {
        None => (body.find('{')? + 1, r#""stream_options":{"include_usage":true},"#),
        Some(options) => {
            let [said] = lens::fields(options, ["include_usage"])?;
            let is_empty = !lens::truthy(options);
            let text = if is_empty { r#""include_usage":true"# } else { r#""include_usage":true,"# };
            if said.is_some() {
                return None;
            }
            // A slice of the body, so it lies in there.
            (options.as_ptr() as usize - body.as_ptr() as usize + 1, text)
        }
    };
    let (before, after) = body.split_at_checked(at)?;
    let mut changed = String::with_capacity(body.len() + text.len());
    changed.extend([before, text, after]);
    // Of a field sent twice, and the like, nobody knows what the server reads.
    let [options] = lens::fields(&changed, ["stream_options"])?;
    let [said] = lens::fields(options?, ["include_usage"])?;
    (said == Some("true")).then_some(changed)
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use http::{Request, header::CONTENT_LENGTH};
    use http_body_util::Full;

    use super::*;

    #[test]
    fn usage_is_asked_for_beside_what_is_there() {
        for (body, wanted) in [
            (
                r#"{"stream":true,"messages":[]}"#,
                r#"{"stream_options":{"include_usage":true},"stream":true,"messages":[]}"#,
            ),
            (
                r#" { "messages": [], "stream": true, "stream_options": {"include_obfuscation": false} }"#,
                r#" { "messages": [], "stream": true, "stream_options": {"include_usage":true,"include_obfuscation": false} }"#,
            ),
            (
                r#"{"messages":[],"stream":true,"stream_options":{ }}"#,
                r#"{"messages":[],"stream":true,"stream_options":{"include_usage":true }}"#,
            ),
            (
                r#"{"prompt":"x","stream":true}"#,
                r#"{"stream_options":{"include_usage":true},"prompt":"x","stream":true}"#,
            ),
        ] {
            assert_eq!(with_usage(body).as_deref(), Some(wanted), "{body}");
        }
    }

    #[test]
    fn what_the_caller_said_about_it_stays_and_so_does_any_other_request() {
        for body in [
            r#"{"messages":[],"stream":true,"stream_options":{"include_usage":false}}"#,
            r#"{"messages":[],"stream":true,"stream_options":{"include_usage":true}}"#,
            r#"{"messages":[],"stream":true,"stream_options":7}"#,
            r#"{"messages":[],"stream":true,"stream_options":null}"#,
            r#"{"messages":[],"stream":false}"#,
            r#"{"messages":[]}"#,
            r#"{"input":"x","stream":true}"#,
            "[]",
            "",
            "{",
        ] {
            assert_eq!(with_usage(body), None, "{body}");
        }
    }

    const BODY: &str = r#"{"messages":[],"stream":true}"#;

    #[test]
    fn the_length_that_was_announced_is_that_of_the_new_body() {
        let mut request = Request::post("http://a/v1/chat/completions")
            .header(CONTENT_LENGTH, BODY.len())
            .body(BODY.to_owned())
            .unwrap();
        ask(&mut request, Provider::Auto);
        assert!(request.body().contains("include_usage"));
        assert_eq!(request.headers()[CONTENT_LENGTH], request.body().len().to_string());
        // Where none was announced, none is.
        let mut request = Request::post("http://a/v1/chat/completions").body(Bytes::from(BODY)).unwrap();
        ask(&mut request, Provider::OpenAiCompatible);
        assert!(request.body().len() > BODY.len() && request.headers().is_empty());
    }

    #[test]
    fn a_request_that_is_signed_is_not_changed() {
        for (name, value, is_changed) in [
            ("authorization", "AWS4-HMAC-SHA256 Credential=a/20260101/eu/bedrock/aws4_request", false),
            ("authorization", "Bearer AWS4-", true),
            ("content-md5", "1B2M2Y8AsgTpgAmY7PhCfg==", false),
            ("content-digest", "sha-256=:47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU=:", false),
            ("x-amz-content-sha256", "UNSIGNED-PAYLOAD", false),
            ("signature-input", "sig1=()", false),
            ("authorization", "TC3-HMAC-SHA256 Credential=a/b", false),
            ("authorization", "Signature keyId=\"a\"", false),
            ("x-goog-content-sha256", "47DEQpj8HBSa", false),
        ] {
            let mut request = Request::post("http://a/").header(name, value).body(BODY.to_owned()).unwrap();
            ask(&mut request, Provider::OpenAiCompatible);
            assert_eq!(request.body() != BODY, is_changed, "{name}: {value}");
        }
        let mut presigned = Request::post("http://a/?X-Amz-Signature=0&a=b").body(BODY.to_owned()).unwrap();
        ask(&mut presigned, Provider::OpenAiCompatible);
        assert_eq!(presigned.body(), BODY);
    }

    #[test]
    fn every_body_in_memory_that_can_be_changed_is() {
        let whole = |look: crate::request::Look<'_>| look.body.is_some_and(|body| body.len() > BODY.len());
        let mut full = Request::new(Full::new(Bytes::from(BODY)));
        ask(&mut full, Provider::OpenAiCompatible);
        assert!(whole(look(&full)));
        let mut vec = Request::new(BODY.as_bytes().to_vec());
        ask(&mut vec, Provider::OpenAiCompatible);
        assert!(whole(look(&vec)));
        // A text of the program cannot.
        let mut text = Request::new(BODY);
        ask(&mut text, Provider::OpenAiCompatible);
        assert_eq!(*text.body(), BODY);
    }

    #[cfg(feature = "reqwest-013")]
    #[test]
    fn reqwests_requests_are_changed_too() {
        let mut request =
            reqwest::Client::new().post("http://a/v1/chat/completions").body(BODY).build().unwrap();
        ask(&mut request, Provider::Auto);
        let body = request.body().and_then(reqwest::Body::as_bytes).unwrap();
        assert!(body.len() > BODY.len());
        let mut request = Request::new(reqwest::Body::from(BODY));
        ask(&mut request, Provider::OpenAiCompatible);
        assert!(request.body().as_bytes().unwrap().len() > BODY.len());
    }

    #[test]
    fn other_dialects_are_left_alone() {
        for (path, provider) in [
            ("/v1/messages", Provider::Auto),
            ("/v1/messages", Provider::OpenAiCompatible),
            ("/unknown", Provider::Auto),
            ("/v1/chat/completions", Provider::Anthropic),
        ] {
            let mut request = Request::post(format!("http://a{path}")).body(BODY.to_owned()).unwrap();
            ask(&mut request, provider);
            assert_eq!(request.body(), BODY, "{path}");
        }
    }
}
