/** The line in the log when `Link.reclaim` found lost credit. Every test that starts programs fails if one prints it. */
export function lostCreditText(peer: string, bytes: number): string {
  return `${peer}: credit of ${bytes} bytes was lost, and is granted again`;
}
