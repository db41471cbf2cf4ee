/** Parses a time limit of a batch system: `D-HH:MM:SS`, `HH:MM:SS`, `MM:SS` or minutes. */
export function timeLimitMs(text: string): number | undefined {
  const [, days, rest = ''] = /^(?:(\d{1,4})-)?(\d{1,6}(?::\d{1,2}){0,2})$/.exec(text) ?? [];
  if (rest === '') return undefined;
  const parts = rest.split(':').map(Number);
  const [a = 0, b = 0, c = 0] = parts;
  // By sbatch(1): after days, the first number is hours. Without days, one number is minutes, and two numbers are
  // minutes and seconds.
  const seconds =
    days !== undefined || parts.length === 3 ? a * 3_600 + b * 60 + c : parts.length === 2 ? a * 60 + b : a * 60;
  return (Number(days ?? 0) * 86_400 + seconds) * 1_000;
}

/** Formats a time limit as `HH:MM:SS`. */
export function wallTime(time: string): string {
  const seconds = Math.floor((timeLimitMs(time) ?? 0) / 1_000);
  const two = (value: number) => String(value).padStart(2, '0');
  return `${two(Math.floor(seconds / 3_600))}:${two(Math.floor(seconds / 60) % 60)}:${two(seconds % 60)}`;
}

export const minutesOf = (time: string): number => Math.ceil((timeLimitMs(time) ?? 0) / 60_000);
