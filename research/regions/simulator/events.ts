/**
 * Timers of servers, earliest first; equal times in the order in which they were set. Only one per server is valid, so
 * `cancel` bounds the outdated ones.
 */
export class Events {
  #times = new Float64Array(1024);
  #order = new Float64Array(1024);
  #servers = new Int32Array(1024);
  #epochs = new Int32Array(1024);
  #size = 0;
  #count = 0;

  /** Infinity: there is no timer. */
  get nextS(): number {
    return this.#size === 0 ? Number.POSITIVE_INFINITY : (this.#times[0] ?? 0);
  }

  push(timeS: number, server: number, epoch: number): void {
    if (this.#size === this.#times.length) this.#grow();
    let at = this.#size++;
    const order = this.#count++;
    while (at > 0) {
      const up = (at - 1) >> 1;
      if ((this.#times[up] ?? 0) <= timeS) break;
      this.#move(up, at);
      at = up;
    }
    this.#times[at] = timeS;
    this.#order[at] = order;
    this.#servers[at] = server;
    this.#epochs[at] = epoch;
  }

  /** Removes the first. Its server and epoch are in `server` and `epoch` until the next call. */
  pop(): void {
    this.server = this.#servers[0] ?? -1;
    this.epoch = this.#epochs[0] ?? -1;
    const last = --this.#size;
    if (last <= 0) return;
    const [time, order] = [this.#times[last] ?? 0, this.#order[last] ?? 0];
    const [server, epoch] = [this.#servers[last] ?? 0, this.#epochs[last] ?? 0];
    let at = 0;
    for (;;) {
      let child = 2 * at + 1;
      if (child >= last) break;
      if (child + 1 < last && this.#before(child + 1, child)) child++;
      const childTime = this.#times[child] ?? 0;
      if (childTime > time || (childTime === time && (this.#order[child] ?? 0) > order)) break;
      this.#move(child, at);
      at = child;
    }
    this.#times[at] = time;
    this.#order[at] = order;
    this.#servers[at] = server;
    this.#epochs[at] = epoch;
  }

  server = -1;
  epoch = -1;

  #before(a: number, b: number): boolean {
    const difference = (this.#times[a] ?? 0) - (this.#times[b] ?? 0);
    return difference < 0 || (difference === 0 && (this.#order[a] ?? 0) < (this.#order[b] ?? 0));
  }

  #move(from: number, to: number): void {
    this.#times[to] = this.#times[from] ?? 0;
    this.#order[to] = this.#order[from] ?? 0;
    this.#servers[to] = this.#servers[from] ?? 0;
    this.#epochs[to] = this.#epochs[from] ?? 0;
  }

  #grow(): void {
    const size = 2 * this.#times.length;
    const copied = <T extends Float64Array | Int32Array>(from: T, to: T): T => {
      to.set(from);
      return to;
    };
    this.#times = copied(this.#times, new Float64Array(size));
    this.#order = copied(this.#order, new Float64Array(size));
    this.#servers = copied(this.#servers, new Int32Array(size));
    this.#epochs = copied(this.#epochs, new Int32Array(size));
  }
}
