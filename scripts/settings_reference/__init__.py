"""Writes docs/settings.md, the reference of every setting, from the code that reads them.

    python -m scripts.settings_reference

Names, defaults and ranges come from the values and models that validate, meanings from the same place or from
the docstrings of what they become. A test compares the file with what this writes.
"""
