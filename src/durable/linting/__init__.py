"""Static checks of workflow functions: what would not be the same on a replay.

A workflow runs again from the top whenever it is resumed; between its durable calls it must do
the same each time. These checks read the source, import nothing and guess nothing: what they
find is found by name, in functions decorated with `@workflow` and in the plain functions of the
same file that those call.
"""

from durable.linting.files import check_file, python_files
from durable.linting.rules import RULES, Finding, Rule

__all__ = ["RULES", "Finding", "Rule", "check_file", "python_files"]
