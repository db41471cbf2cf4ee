import { ApiError } from '../../shared/openai/api-errors.ts';

interface PlacesOptions {
  /** Plural noun of what takes the places. */
  of: string;
  most: number;
  /** Maximum of one holder, so that no holder can take all places. */
  mostPerHolder: number;
}

/** Bounds long requests of one process, and of each key holder. */
export class HolderPlaces {
  readonly #options: PlacesOptions;
  /** Number of places by holder; at most `most` entries. */
  readonly #held = new Map<string, number>();
  #taken = 0;

  constructor(options: PlacesOptions) {
    this.#options = options;
  }

  /**
   * Takes a place. Call the returned function once, when the request is over.
   * @throws ApiError 429, 503
   */
  take(holder: string): () => void {
    const { of, most, mostPerHolder } = this.#options;
    const own = this.#held.get(holder) ?? 0;
    if (own >= mostPerHolder)
      throw new ApiError('rate_limit_exceeded', `Your keys already have their maximum of ${mostPerHolder} ${of}.`);
    if (this.#taken >= most)
      throw new ApiError('server_is_overloaded', `This gateway has its maximum of ${most} ${of}.`);
    this.#taken++;
    this.#held.set(holder, own + 1);
    return () => {
      this.#taken--;
      const left = (this.#held.get(holder) ?? 1) - 1;
      if (left > 0) this.#held.set(holder, left);
      else this.#held.delete(holder);
    };
  }
}
