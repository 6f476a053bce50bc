"""The bundled llama.cpp server as a program with llama-server's flags, and its small model.

It is run (`python -m tuner.embedded`), never imported by the rest of the product; it imports
nothing else of it.
"""
