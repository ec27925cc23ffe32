"""Arguments that the benchmarks beside other programs have in common."""
import argparse
import os

# What is in the user's cache was not compiled now.
os.environ['FXC_CACHE'] = 'off'

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))


def threads(text):
    """`1,2` as a list of numbers."""
    return [int(t) for t in text.split(',')]


def parser(doc, name, rounds, seconds):
    """A parser with these arguments: which fxc, threads, rounds, seconds and a folder for files, by default called after the benchmark."""
    ap = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument('--fxc', type=os.path.abspath, default=os.path.join(ROOT, 'target', 'release', 'fxc'))
    ap.add_argument('--threads', type=threads, default='1,2')
    ap.add_argument('--rounds', type=int, default=rounds)
    ap.add_argument('--seconds', type=float, default=seconds, help='to measure one thing for')
    ap.add_argument('--work', type=os.path.abspath, default=os.path.join(os.environ.get('TMPDIR', '/tmp'), f'fxc-{name}'))
    ap.add_argument('--markdown', help='write the tables to this file')
    return ap
