"""Counts what was checked, by kind."""
import sys


class Tally:
    def __init__(self):
        self.counts = {}

    def add(self, kind, wrong):
        """One more check of this kind; `wrong` says what is wrong with it, if anything is."""
        passed, total = self.counts.get(kind, (0, 0))
        self.counts[kind] = (passed + (not wrong), total + 1)

    def finish(self):
        """Prints a line for each kind and exits: with 1 if anything was wrong."""
        width = max(map(len, self.counts), default=0)
        for kind, (passed, total) in self.counts.items():
            print(f"{kind:{width}} {passed:4} of {total}")
        sys.exit(any(passed < total for passed, total in self.counts.values()))
