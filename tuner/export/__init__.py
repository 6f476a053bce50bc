"""Deployable files of a recommended server, parsed back before they are called done."""
