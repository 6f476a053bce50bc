"""Pure adapters of server programs: text in, values out; no socket, no process, no Optuna."""
