"""The llama.cpp adapter: any `llama-server`, or the bundled one. The class is in `engine`."""
