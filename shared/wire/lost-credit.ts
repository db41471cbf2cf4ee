/**
 * The log line that reports that `Link.reclaim` found lost credit. Every test that starts programs fails if a program
 * logs this line.
 */
export function lostCreditText(peer: string, bytes: number): string {
  return `${peer}: credit of ${bytes} bytes was lost, and is granted again`;
}
