//! Only breaker-layer, around a `reqwest::Client`: a target that fails is left alone.

use breaker_layer::BreakerLayer;
use tower::{BoxError, Service, ServiceBuilder, ServiceExt};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), BoxError> {
    let client = reqwest::Client::new();
    let breaker = BreakerLayer::builder().name("search").consecutive_failures(3).build()?;
    let mut search = ServiceBuilder::new().layer(breaker.clone()).service(client.clone());
    for call in 1..=5 {
        // Nobody listens at port 1: the first three fail to connect, the others are refused here.
        let request = client.get("http://127.0.0.1:1/search?q=tower").build()?;
        match search.ready().await?.call(request).await {
            Ok(response) => println!("{call}: {}", response.status()),
            Err(err) => println!("{call}: {err}"),
        }
    }
    println!("the circuit is {:?}", breaker.circuit().state());
    Ok(())
}

#[test]
fn runs() -> Result<(), BoxError> {
    main()
}
