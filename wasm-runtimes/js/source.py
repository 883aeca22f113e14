"""A source of QuickJS as the programs beside this one change it: whatever one changes has its one
place there, or it stops, since what was released is then another than it knows."""

import re
import sys


class Source:
    """The file that is named first, until it is written."""

    def __init__(self):
        self.path = sys.argv[1]
        with open(self.path) as file:
            self.text = file.read()

    def stop(self, why):
        sys.exit(f"{sys.argv[0]}: {self.path}: {why}")

    def replace(self, old, new):
        """Puts the new text in the place of the old one, which is there once."""
        if self.text.count(old) != 1:
            self.stop(f"not once in it: {old!r}")
        self.text = self.text.replace(old, new)

    def replace_all(self, pattern, new, count):
        """The same by a pattern, which is there so many times."""
        self.text, found = re.subn(pattern, new, self.text)
        if found != count:
            self.stop(f"{found} times in it, not {count}: {pattern}")

    def write(self):
        with open(self.path, "w") as file:
            file.write(self.text)
