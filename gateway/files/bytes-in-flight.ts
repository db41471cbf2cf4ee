/** Bytes that go to the file store and that no row counts yet: uploads that come at once must not each see the same room. */

/** A Worker whose client leaves may never say that it has ended. */
const KEPT_MS = 3_600_000;
/** Multipart around one file is shorter than this. */
const FORM_BYTES = 4_096;

interface Place {
  bytes: number;
  endsMs: number;
}

/** By name, in this process: bounded by its connections. */
export class BytesInFlight {
  readonly #places = new Map<string, Set<Place>>();

  /** Bytes that are on their way under this name. */
  of(name: string, nowMs: number): number {
    const places = this.#places.get(name) ?? [];
    let sum = 0;
    for (const place of places) {
      if (place.endsMs <= nowMs) this.#end(name, place);
      else sum += place.bytes;
    }
    return sum;
  }

  /** @returns ends it */
  take(name: string, bytes: number, nowMs: number): () => void {
    const place = { bytes, endsMs: nowMs + KEPT_MS };
    const places = this.#places.get(name) ?? new Set();
    this.#places.set(name, places.add(place));
    return () => this.#end(name, place);
  }

  #end(name: string, place: Place): void {
    const places = this.#places.get(name);
    places?.delete(place);
    if (places?.size === 0) this.#places.delete(name);
  }
}

/** Of owners. */
export const fileBytesInFlight = new BytesInFlight();
/** Of uploads. */
export const partBytesInFlight = new BytesInFlight();

/**
 * What a form may bring by its content-length: `least` of its file, `most` with what may stand around it.
 * @param room that is left, at least 1
 */
export function formByteRange(request: Request, most: number, room: number): { least: number; most: number } {
  const said = request.headers.get('content-length');
  const whole = said === null ? Number.POSITIVE_INFINITY : Number(said);
  const least = Math.max(1, Math.min(most, room, Number.isNaN(whole) ? most : whole - FORM_BYTES));
  return { least, most: Math.min(most, room, least + FORM_BYTES) };
}
