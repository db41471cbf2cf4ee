"""A progress bar with tqdm or rich, if one of them is installed and a person looks."""

import sys


class _None:
    def update(self, _=1):
        pass

    def close(self):
        pass


class _Rich:
    def __init__(self, progress, task):
        self.progress, self.task = progress, task

    def update(self, count=1):
        self.progress.advance(self.task, count)

    def close(self):
        self.progress.stop()


def bar(total, label, wanted=None):
    """An object with update(count) and close(). `wanted`: None shows the bar on a terminal and in a notebook."""
    if wanted is False or (wanted is None and not (sys.stderr.isatty() or "ipykernel" in sys.modules)):
        return _None()
    try:
        from tqdm.auto import tqdm

        return tqdm(total=total, desc=label)
    except ImportError:
        pass
    try:
        from rich.progress import Progress

        progress = Progress()
        task = progress.add_task(label, total=total)
        progress.start()
        return _Rich(progress, task)
    except ImportError:
        return _None()
