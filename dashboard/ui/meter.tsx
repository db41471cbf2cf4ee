import { Meter as Base } from '@base-ui/react/meter';
import clsx from 'clsx';

/** Used shares from which the meter has the color of a warning (WARN) and of an error (FULL). */
const WARN = 0.75;
const FULL = 0.95;

interface MeterProps {
  label: string;
  value: number;
  max: number;
  /** Shown and read aloud instead of the number. */
  text: string;
  note?: string;
  /** True if a full meter is good. Then the meter never has those colors. */
  plain?: boolean;
}

/** The used share of a limited quantity. */
export function Meter({ label, value, max, text, note, plain = false }: MeterProps) {
  const part = max === 0 ? 1 : value / max;
  return (
    <Base.Root value={Math.min(value, max)} max={max} getAriaValueText={() => text} className="flex flex-col gap-1.5">
      <Base.Label className="font-medium text-sm">{label}</Base.Label>
      <Base.Track className="h-2 overflow-hidden rounded-full bg-hover">
        <Base.Indicator
          className={clsx('rounded-full', plain || part < WARN ? 'bg-accent' : part >= FULL ? 'bg-bad' : 'bg-wait')}
        />
      </Base.Track>
      <span className="flex justify-between gap-2 text-muted text-xs">
        <span className="tabular-nums">{text}</span>
        {note !== undefined && <span>{note}</span>}
      </span>
    </Base.Root>
  );
}
