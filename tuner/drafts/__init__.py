"""Draft checkpoints: what they hold, how engines will wire them, how two of them differ."""
