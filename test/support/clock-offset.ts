/**
 * `--import` this into a program to shift its wall clock by CLOCK_OFFSET_MS. Monotonic clocks and timers do not change.
 */
const offset = Number(process.env.CLOCK_OFFSET_MS ?? 0);
const RealDate = Date;

class OffDate extends RealDate {
  constructor(...given: [] | [number | string | Date]) {
    if (given.length === 0) super(RealDate.now() + offset);
    else super(...given);
  }

  static override now(): number {
    return RealDate.now() + offset;
  }
}
globalThis.Date = OffDate as DateConstructor;
