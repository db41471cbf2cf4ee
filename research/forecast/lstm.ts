import { calibrated } from '../../scheduler/forecast/conformal-intervals.ts';
import type { Forecaster } from '../../scheduler/forecast/types.ts';
import { normal, type Random } from '../../scheduler/simulator/random.ts';
import { Adam } from './adam.ts';
import { type Convergence, onWindows, type Sample, type WindowNetwork } from './windows.ts';

export interface LstmOptions {
  /** Number of previous slots that are inputs: 50 in OServe §4.1. */
  window?: number;
  hidden?: number;
  epochs?: number;
  until?: Convergence;
}

const RATE = 0.005;
const BATCH = 32;
/** Largest norm of a batch's gradient: one burst must not undo the training. */
const CLIP = 1;

/** A long short-term memory (Hochreiter and Schmidhuber 1997) over all series together, followed by a linear layer. */
export function lstm({ window = 50, hidden = 24, epochs = 8, until }: LstmOptions = {}): Forecaster {
  return calibrated(
    onWindows({
      name: `LSTM on ${window} slots`,
      window,
      epochs,
      until,
      batch: BATCH,
      create: ({ series }, random) => new Lstm(window, series, hidden, random),
    }),
  );
}

/**
 * Gates in the order input, forget, cell, output. Parameters in one vector: gates (4H × (I + H + 1)), then the head (O
 * × (H + 1)).
 */
class Lstm implements WindowNetwork {
  readonly #steps: number;
  readonly #inputs: number;
  readonly #hidden: number;
  readonly #row: number;
  readonly parameters: Float64Array;
  readonly #gradient: Float64Array;
  readonly #adam: Adam;
  /** Gates, cells and hidden states by step, of the last forward pass. */
  readonly #gates: Float64Array;
  readonly #cells: Float64Array;
  readonly #states: Float64Array;

  constructor(steps: number, inputs: number, hidden: number, random: Random) {
    this.#steps = steps;
    this.#inputs = inputs;
    this.#hidden = hidden;
    this.#row = inputs + hidden + 1;
    const size = 4 * hidden * this.#row + inputs * (hidden + 1);
    this.parameters = new Float64Array(size);
    const spread = 1 / Math.sqrt(inputs + hidden);
    for (let i = 0; i < 4 * hidden * this.#row; i++) this.parameters[i] = normal(random) * spread;
    // An initially open forget gate remembers (Gers et al. 2000). The head begins at zero, so that it first forecasts
    // no change.
    for (let h = 0; h < hidden; h++) this.parameters[(hidden + h + 1) * this.#row - 1] = 1;
    this.#gradient = new Float64Array(size);
    this.#adam = new Adam(size, RATE);
    this.#gates = new Float64Array(steps * 4 * hidden);
    this.#cells = new Float64Array((steps + 1) * hidden);
    this.#states = new Float64Array((steps + 1) * hidden);
  }

  predict(window: Float64Array): Float64Array {
    const [p, H] = [this.parameters, this.#hidden];
    for (let t = 0; t < this.#steps; t++) this.#forward(window, t);
    const head = 4 * H * this.#row;
    const found = new Float64Array(this.#inputs);
    for (let o = 0; o < this.#inputs; o++) {
      const at = head + o * (H + 1);
      let sum = p[at + H] ?? 0;
      for (let h = 0; h < H; h++) sum += (p[at + h] ?? 0) * (this.#states[this.#steps * H + h] ?? 0);
      found[o] = sum;
    }
    return found;
  }

  #forward(window: Float64Array, t: number): void {
    const [p, H, I, row] = [this.parameters, this.#hidden, this.#inputs, this.#row];
    const [before, gate] = [t * H, t * 4 * H];
    for (let g = 0; g < 4 * H; g++) {
      const at = g * row;
      let sum = p[at + row - 1] as number;
      for (let i = 0; i < I; i++) sum += (p[at + i] as number) * (window[t * I + i] as number);
      for (let h = 0; h < H; h++) sum += (p[at + I + h] as number) * (this.#states[before + h] as number);
      this.#gates[gate + g] = g >= 2 * H && g < 3 * H ? Math.tanh(sum) : 1 / (1 + Math.exp(-sum));
    }
    for (let h = 0; h < H; h++) {
      const [i, f, c, o] = [0, 1, 2, 3].map((n) => this.#gates[gate + n * H + h] as number) as [
        number,
        number,
        number,
        number,
      ];
      const cell = f * (this.#cells[before + h] as number) + i * c;
      this.#cells[before + H + h] = cell;
      this.#states[before + H + h] = o * Math.tanh(cell);
    }
  }

  train(batch: readonly Sample[]): number {
    const [g, H] = [this.#gradient, this.#hidden];
    let error = 0;
    for (const { window, truth } of batch) {
      const found = this.predict(window);
      const down = new Float64Array(H);
      for (let o = 0; o < this.#inputs; o++) {
        const off = (found[o] ?? 0) - (truth[o] ?? 0);
        error += off * off;
        const [at, d] = [4 * H * this.#row + o * (H + 1), (2 * off) / (batch.length * this.#inputs)];
        g[at + H] = (g[at + H] ?? 0) + d;
        for (let h = 0; h < H; h++) {
          g[at + h] = (g[at + h] ?? 0) + d * (this.#states[this.#steps * H + h] ?? 0);
          down[h] = (down[h] ?? 0) + d * (this.parameters[at + h] ?? 0);
        }
      }
      this.#backward(window, down);
    }
    const norm = Math.sqrt(g.reduce((sum, value) => sum + value * value, 0));
    if (norm > CLIP) for (let i = 0; i < g.length; i++) g[i] = ((g[i] ?? 0) * CLIP) / norm;
    this.#adam.step(this.parameters, g);
    return error / (batch.length * this.#inputs);
  }

  /** Backpropagation through time (Werbos 1990): `down` is the gradient of the last hidden state. */
  #backward(window: Float64Array, last: Float64Array): void {
    const [p, grad, H, I, row] = [this.parameters, this.#gradient, this.#hidden, this.#inputs, this.#row];
    let down = last;
    let cellDown = new Float64Array(H);
    const raw = new Float64Array(4 * H);
    for (let t = this.#steps - 1; t >= 0; t--) {
      const [before, gate] = [t * H, t * 4 * H];
      const nextCell = new Float64Array(H);
      for (let h = 0; h < H; h++) {
        const [i, f, c, o] = [0, 1, 2, 3].map((n) => this.#gates[gate + n * H + h] as number) as [
          number,
          number,
          number,
          number,
        ];
        const tanh = Math.tanh(this.#cells[before + H + h] as number);
        const dh = down[h] as number;
        const dc = (cellDown[h] as number) + dh * o * (1 - tanh * tanh);
        raw[h] = dc * c * i * (1 - i);
        raw[H + h] = dc * (this.#cells[before + h] as number) * f * (1 - f);
        raw[2 * H + h] = dc * i * (1 - c * c);
        raw[3 * H + h] = dh * tanh * o * (1 - o);
        nextCell[h] = dc * f;
      }
      const nextDown = new Float64Array(H);
      for (let n = 0; n < 4 * H; n++) {
        const [d, at] = [raw[n] as number, n * row];
        for (let i = 0; i < I; i++) grad[at + i] = (grad[at + i] as number) + d * (window[t * I + i] as number);
        for (let h = 0; h < H; h++) {
          grad[at + I + h] = (grad[at + I + h] as number) + d * (this.#states[before + h] as number);
          nextDown[h] = (nextDown[h] as number) + d * (p[at + I + h] as number);
        }
        grad[at + row - 1] = (grad[at + row - 1] as number) + d;
      }
      down = nextDown;
      cellDown = nextCell;
    }
  }
}
