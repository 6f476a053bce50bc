"""What is known of speculation: counts of tokens and steps, and the clock that turns them into
time. Numbers in, predictions out; knows no engine, no study and no Optuna."""
