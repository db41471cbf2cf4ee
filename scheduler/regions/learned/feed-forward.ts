/**
 * Layers of tanh units; the last one is linear. Parameters in one vector: by layer, then by output, inputs before the
 * constant.
 */
export class FeedForward {
  readonly sizes: readonly number[];
  readonly parameters: Float64Array;
  /** Values of each layer in the last `forward`. */
  protected readonly values: Float64Array[];
  /** First parameter of each layer. */
  protected readonly starts: number[] = [];

  constructor(sizes: readonly number[]) {
    this.sizes = sizes;
    let size = 0;
    for (let layer = 1; layer < sizes.length; layer++) {
      this.starts.push(size);
      size += (sizes[layer] ?? 0) * ((sizes[layer - 1] ?? 0) + 1);
    }
    this.parameters = new Float64Array(size);
    this.values = sizes.map((units) => new Float64Array(units));
  }

  /** The next call overwrites the returned array. */
  forward(input: Float64Array): Float64Array {
    this.values[0]?.set(input);
    const last = this.sizes.length - 1;
    for (let layer = 1; layer <= last; layer++) {
      const from = this.values[layer - 1] ?? new Float64Array();
      const to = this.values[layer] ?? new Float64Array();
      let at = this.starts[layer - 1] ?? 0;
      for (let o = 0; o < to.length; o++) {
        let sum = 0;
        for (let i = 0; i < from.length; i++) sum += (this.parameters[at++] ?? 0) * (from[i] ?? 0);
        sum += this.parameters[at++] ?? 0;
        to[o] = layer === last ? sum : Math.tanh(sum);
      }
    }
    return this.values[last] ?? new Float64Array();
  }
}
