"""From what a caller asks to what the ledger takes: policy, plan, limits, price, signature and seal."""
