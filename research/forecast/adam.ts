const [BETA_1, BETA_2, EPSILON] = [0.9, 0.999, 1e-8];

/** Adam (Kingma and Ba 2015) over one vector of parameters. */
export class Adam {
  readonly #mean: Float64Array;
  readonly #square: Float64Array;
  readonly #rate: number;
  #steps = 0;

  /** `rate`: step size. */
  constructor(size: number, rate: number) {
    this.#mean = new Float64Array(size);
    this.#square = new Float64Array(size);
    this.#rate = rate;
  }

  /** Moves the parameters against the gradient and sets the gradient to zero. */
  step(parameters: Float64Array, gradient: Float64Array): void {
    this.#steps++;
    const rate = (this.#rate * Math.sqrt(1 - BETA_2 ** this.#steps)) / (1 - BETA_1 ** this.#steps);
    for (let i = 0; i < parameters.length; i++) {
      const g = gradient[i] ?? 0;
      const mean = BETA_1 * (this.#mean[i] ?? 0) + (1 - BETA_1) * g;
      const square = BETA_2 * (this.#square[i] ?? 0) + (1 - BETA_2) * g * g;
      this.#mean[i] = mean;
      this.#square[i] = square;
      parameters[i] = (parameters[i] ?? 0) - (rate * mean) / (Math.sqrt(square) + EPSILON);
      gradient[i] = 0;
    }
  }
}
