"""The tables of peers.py, as Markdown."""
import math
import os
import platform
import subprocess

LABELS = dict(fxc='fxc', ort='ONNX Runtime', ov='OpenVINO', eager='torch', compile='torch.compile')
PACKAGES = ['torch', 'torchvision', 'transformers', 'onnxruntime', 'openvino']
STAGES = ['load', 'check', 'optimize', 'lower', 'compile', 'pack']


def machine():
    """The processor's name and what tells it apart."""
    name, flags = platform.processor() or platform.machine(), ''
    try:
        with open('/proc/cpuinfo') as f:
            lines = dict(l.split(':', 1) for l in f if ':' in l)
        values = {k.strip(): v.strip() for k, v in lines.items()}
        name = values.get('model name', name)
        if 'cpu family' in values:
            name += f' (family {values["cpu family"]}, model {values["model"]})'
        found = values.get('flags', '').split()
        flags = ', AVX-512' if 'avx512f' in found else ', AVX2' if 'avx2' in found else ''
    except OSError:
        pass
    return f'{name}, {os.cpu_count()} cores{flags}'


def heading(a, results):
    """What was measured, where and when, and how busy others kept the machine."""
    from importlib.metadata import PackageNotFoundError, version
    found = [subprocess.run([a.fxc, '--version'], capture_output=True, text=True).stdout.strip()]
    for p in PACKAGES:
        try:
            found.append(f'{p} {version(p)}')
        except PackageNotFoundError:
            pass
    busy = max((r['busy'] for r in results.values()), default=0.0)
    text = f'{machine()}; {", ".join(found)}; {a.day}. Other processes took at most {100 * busy:.0f} % of the machine when a case began.'
    return ' '.join([text, *a.missing])


def ratio(at):
    """fxc over the best peer, and that peer."""
    others = [p for p in at if p != 'fxc']
    if 'fxc' not in at or not others:
        return None, None
    top = min(others, key=lambda p: at[p]['median_ms'])
    return at['fxc']['median_ms'] / at[top]['median_ms'], top


def mean(ratios):
    return math.exp(sum(map(math.log, ratios)) / len(ratios))


def row(cells):
    return '| ' + ' | '.join(cells) + ' |'


def cell(at, peer, scale):
    """A time, and the error of its result."""
    if peer not in at:
        return '–'
    r = at[peer]
    return f'{r["median_ms"] * scale:.4g} ({r.get("error", float("nan")):.0e})'


def latencies(a, results, names, unit, scale):
    """One row for each case and number of threads."""
    out = [row(['case', 'threads', *(LABELS[p] for p in a.peers), 'ratio']), '|---' * (len(a.peers) + 3) + '|']
    ratios, slow = [], []
    for n in names:
        for t in a.threads:
            at = results.get((n, t), {}).get('best', {})
            value, top = ratio(at)
            if value:
                ratios.append(value)
                if value > 1:
                    slow.append(f'{n} on {t}')
            out.append(row([n, str(t), *(cell(at, p, scale) for p in a.peers), f'{value:.2f}' if value else '–']))
    reference = 'eager torch' if a.precision == 'f32' else 'eager torch in f32'
    text = [f'Medians in {unit}, of the best round; in brackets the largest difference from {reference} over the largest magnitude.', '', *out]
    if ratios:
        text += ['', f'Geometric mean of the ratios over {len(ratios)} rows: {mean(ratios):.2f}; largest {max(ratios):.2f}; '
                 f'{len(slow)} above 1.' + (f' ({", ".join(slow)}.)' if slow else '')]
    return text


def beginnings(a, results, names):
    """Compilation, first results and memory, with the most threads measured."""
    t = a.threads[-1]
    out = [row(['case', 'fxc: load, check, optimise, lower, generate code, pack', *(f'{LABELS[p]}: first result' for p in a.peers),
                *(f'{LABELS[p]}: MB' for p in a.peers)]), '|---' * (2 * len(a.peers) + 2) + '|']
    for n in names:
        at = results.get((n, t), {}).get('best', {})
        times = at.get('fxc', {}).get('stages_ms', {})
        split = ', '.join(f'{times[s]:.0f}' for s in STAGES if s in times) or '–'
        first = [f'{at[p]["first_ms"]:.0f}' if p in at else '–' for p in a.peers]
        memory = [str(at[p].get('peak_rss_mb') or '–') if p in at else '–' for p in a.peers]
        out.append(row([n, split, *first, *memory]))
    return [f'From the start of the process to the first result, in milliseconds, the best round, {t} threads (torch.compile with its cache '
            'filled), and the most memory that was resident.', '', *out]


def tables(a, results, names):
    """The Markdown of results: (case, threads) -> what peers.py keeps of it."""
    models, kernels = [n for n in names if '.' not in n], [n for n in names if '.' in n]
    text = [heading(a, results), '']
    if models:
        text += ['Models:' if a.precision == 'f32' else f'Models in {a.precision}:', '', *latencies(a, results, models, 'milliseconds', 1.0), '', *beginnings(a, results, models), '']
    if kernels:
        table = latencies(a, results, kernels, 'microseconds', 1e3)
        summary = table.pop() if table[-1].startswith('Geometric') else ''
        text += [f'Kernels, rows x columns. {summary}'.rstrip(), '', '<details><summary>All of them</summary>', '',
                 '\n'.join(table).rstrip(), '', '</details>', '']
    return '\n'.join(text)
