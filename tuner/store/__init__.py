"""What is kept: Optuna's tables and ours in one database, raw files beside it."""
