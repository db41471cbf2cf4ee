/** Named tasks with their times, in a binary heap. A new task replaces the task of the same name. */
interface Task {
  readonly at: number;
  readonly key: string;
  readonly run: (lateMs: number) => void;
  dropped: boolean;
}

export class TimerQueue {
  readonly #heap: Task[] = [];
  /** One task per key. Keys name members, peers or the core's own rounds, which are all bounded. */
  readonly #tasks = new Map<string, Task>();

  /** @param run gets the task's delay in ms, so that a process that was paused can avoid blaming its peers */
  set(key: string, at: number, run: (lateMs: number) => void): void {
    this.cancel(key);
    const task = { at, key, run, dropped: false };
    this.#tasks.set(key, task);
    this.#heap.push(task);
    this.#up(this.#heap.length - 1);
  }

  has(key: string): boolean {
    return this.#tasks.has(key);
  }

  cancel(key: string): void {
    const task = this.#tasks.get(key);
    if (task === undefined) return;
    task.dropped = true;
    this.#tasks.delete(key);
    // A cancelled task stays in the heap until its time, unless most tasks of the heap are cancelled.
    if (this.#heap.length > 64 && this.#heap.length > 2 * this.#tasks.size) this.#rebuild();
  }

  next(): number | undefined {
    while (this.#heap[0]?.dropped) this.#pop();
    return this.#heap[0]?.at;
  }

  /** Runs due tasks in order. Tasks that they add for `now` run too, so they must not add tasks without end. */
  run(now: number): void {
    for (let next = this.next(); next !== undefined && next <= now; next = this.next()) {
      const task = this.#pop();
      if (task === undefined) return;
      this.#tasks.delete(task.key);
      task.run(now - task.at);
    }
  }

  #rebuild(): void {
    const alive = this.#heap.filter((task) => !task.dropped).sort((a, b) => a.at - b.at);
    this.#heap.length = 0;
    this.#heap.push(...alive);
  }

  #pop(): Task | undefined {
    const first = this.#heap[0];
    const last = this.#heap.pop();
    if (last !== undefined && last !== first) {
      this.#heap[0] = last;
      this.#down(0);
    }
    return first;
  }

  #up(from: number): void {
    for (let at = from; at > 0; ) {
      const parent = (at - 1) >> 1;
      if (!this.#swapIfEarlier(at, parent)) return;
      at = parent;
    }
  }

  #down(from: number): void {
    for (let at = from; ; ) {
      const left = 2 * at + 1;
      const right = left + 1;
      const a = this.#heap[left];
      const b = this.#heap[right];
      if (a === undefined) return;
      const child = b !== undefined && b.at < a.at ? right : left;
      if (!this.#swapIfEarlier(child, at)) return;
      at = child;
    }
  }

  #swapIfEarlier(child: number, parent: number): boolean {
    const a = this.#heap[child];
    const b = this.#heap[parent];
    if (a === undefined || b === undefined || a.at >= b.at) return false;
    this.#heap[child] = b;
    this.#heap[parent] = a;
    return true;
  }
}
