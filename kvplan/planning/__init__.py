"""From a scenario to its ledger: estimates, what-ifs, and what would fit."""
