//! The layers in async-openai's middleware. The SDK is used as ever: its chat, its streams, its tools. What the provider gets
//! wrong is mended below it, and what cannot be mended is an error of the SDK with a [`Fault`] inside.

mod provider;

use std::time::Duration;

use async_openai::{
    Client,
    config::OpenAIConfig,
    error::OpenAIError,
    middleware::ReqwestService,
    types::chat::{
        ChatCompletionMessageToolCalls, ChatCompletionRequestUserMessage, ChatCompletionTool,
        CreateChatCompletionRequest, CreateChatCompletionRequestArgs, FunctionObject,
    },
};
use failsoft::{
    core::{Cloned, backoff::Jitter},
    prelude::*,
};
use futures_util::StreamExt as _;
use tower::ServiceBuilder;

fn client(url: &str) -> Result<Client<OpenAIConfig>, BoxError> {
    let service = ServiceBuilder::new()
        .map_err(OpenAIError::Boxed)
        .layer(
            RetryLayer::builder()
                // The SDK's requests are `Clone`.
                .replay(Cloned)
                .repeat_unanswered(true)
                // The default waits are 1 s, doubled, with full jitter.
                .backoff(Backoff::fixed(Duration::from_millis(5)).jitter(Jitter::None))
                .build()?,
        )
        .layer(BreakerLayer::builder().name("model").build()?)
        .layer(
            ValidateLayer::builder()
                .name("model")
                .tools(["weather"])
                // A model that makes a tool up may know better when it is asked once more.
                .hint(SoftKind::UnknownTool, Hint::Same)
                .build()?,
        )
        .layer(LlmLayer::builder().provider(Provider::OpenAiCompatible).name("model").build()?)
        .service(ReqwestService::new(reqwest::Client::builder().retry(reqwest::retry::never()).build()?));
    let config = OpenAIConfig::new().with_api_base(url).with_api_key("none");
    Ok(Client::with_config(config).with_http_service(service))
}

fn question(text: &str) -> Result<CreateChatCompletionRequest, OpenAIError> {
    let message = ChatCompletionRequestUserMessage::from(text);
    CreateChatCompletionRequestArgs::default().model("m").messages([message.into()]).build()
}

/// An answer as a whole.
async fn chat(client: &Client<OpenAIConfig>) -> Result<Option<String>, BoxError> {
    let answer = client.chat().create(question("whole")?).await?;
    Ok(answer.choices.into_iter().next().and_then(|choice| choice.message.content))
}

/// An answer as a stream.
async fn stream(client: &Client<OpenAIConfig>) -> Result<String, BoxError> {
    let mut chunks = client.chat().create_stream(question("stream")?).await?;
    let mut text = String::new();
    while let Some(chunk) = chunks.next().await {
        chunk?
            .choices
            .iter()
            .for_each(|choice| text.push_str(choice.delta.content.as_deref().unwrap_or_default()));
    }
    Ok(text)
}

/// A tool call.
async fn tool(client: &Client<OpenAIConfig>) -> Result<Vec<(String, String)>, BoxError> {
    let weather = FunctionObject {
        name: "weather".to_owned(),
        parameters: Some(serde_json::json!({"type": "object", "properties": {"city": {"type": "string"}}})),
        ..FunctionObject::default()
    };
    let mut request = question("tool")?;
    request.tools = Some(ChatCompletionTool { function: weather }.into());
    let answer = client.chat().create(request).await?;
    let calls =
        answer.choices.into_iter().next().and_then(|choice| choice.message.tool_calls).unwrap_or_default();
    Ok(calls
        .into_iter()
        .filter_map(|call| match call {
            ChatCompletionMessageToolCalls::Function(call) => {
                Some((call.function.name, call.function.arguments))
            }
            ChatCompletionMessageToolCalls::Custom(_) => None,
        })
        .collect())
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), BoxError> {
    let client = client(&provider::serve(provider::ONCE_WRONG).await?)?;
    println!("{:?}", chat(&client).await?);
    println!("{:?}", stream(&client).await?);
    println!("{:?}", tool(&client).await?);

    let client = self::client(&provider::serve(provider::ALWAYS_WRONG).await?)?;
    if let Err(error) = chat(&client).await {
        println!("{:?}", Fault::find(&*error).map(|fault| fault.class()));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn what_goes_wrong_once_the_sdk_does_not_see() -> Result<(), BoxError> {
        let client = client(&provider::serve(provider::ONCE_WRONG).await?)?;
        assert_eq!(chat(&client).await?.as_deref(), Some("Bern"));
        assert_eq!(stream(&client).await?, "Bern");
        assert_eq!(tool(&client).await?, [("weather".to_owned(), r#"{"city":"Bern"}"#.to_owned())]);
        Ok(())
    }

    #[tokio::test]
    async fn what_stays_wrong_is_a_fault_in_the_sdks_error() -> Result<(), BoxError> {
        let client = client(&provider::serve(provider::ALWAYS_WRONG).await?)?;
        let class = |error: BoxError| Fault::find(&*error).map(|fault| fault.class());
        assert_eq!(chat(&client).await.map_err(class), Err(Some(Class::Overloaded)));
        assert_eq!(stream(&client).await.map_err(class), Err(Some(Class::Overloaded)));
        assert_eq!(tool(&client).await.map_err(class), Err(Some(Class::Soft(SoftKind::UnknownTool))));
        Ok(())
    }
}
