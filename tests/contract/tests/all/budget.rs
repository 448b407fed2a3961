//! The contract of budget-layer.

use budget_layer::BudgetLayer;

contract::contract! {
    budget => |_inner| BudgetLayer::builder().tokens(1_000_000).build().expect("a valid layer")
}

#[tokio::test(start_paused = true)]
async fn a_denial_gives_the_readiness_of_the_inner_service_back() {
    let probe = contract::Probe::new();
    let layer = BudgetLayer::builder().build().expect("a valid layer");
    let budget = layer.budget().clone();
    contract::refusal_gives_back(layer, &probe, || budget.set_limit(0), || budget.set_limit(50_000)).await;
}
