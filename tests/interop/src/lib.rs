//! Nothing here: the tests are in `tests/`. Each says what must hold where one of our layers stands under or over one of tower's or
//! of tower-http's.
